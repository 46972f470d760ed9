"""Reasons for a procedure's standstill: the chain of its waits, down to the one that an operator can act on.

Pure: it asks a `WhySource` (a manager, a client, or the mere store) and concludes.
The chain branches where several are in the way. It stops at a cause that has none itself inside the engine: a running
step, a timer, an event from outside, an operator's pause, a failure. Each such end names the command that would repair
it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from actorproc.errors import UnknownProcedure
from actorproc.model.names import READ_LATER, is_of_no_class, no_class_registered
from actorproc.model.policies import LockKey, LockMode, exclude_each_other
from actorproc.model.rows.records import ErrorInfo
from actorproc.model.states import Phase, ProcedureState
from actorproc.report.info import EnqueuedInfo, LockInfo, ProcedureInfo, ScheduleInfo
from actorproc.report.why_terms import Cause, CauseKind, EngineFacts, RunningStep, WhySource, command, span, word
from actorproc.support.instants import in_utc

__all__ = [
    "Cause",
    "CauseKind",
    "EngineFacts",
    "RunningStep",
    "WhySource",
    "explain",
    "explain_enqueued",
    "explain_schedule",
]

_MODES = {mode.word: mode for mode in LockMode}
_BRANCHES = 5
_DEPTH = 40
_NODES = 200
_DAY = 86_400.0
_LATE = 1.0
"""Seconds after which something that is due and was not done is not just about to be done."""


def explain(source: WhySource, id: str, now: float) -> Cause:
    """Reasons for this procedure's standstill at `now` (epoch seconds). Raises `UnknownProcedure`."""
    return _Inquiry(source, now).of(source.info(id), ())


def explain_schedule(source: WhySource, schedule: ScheduleInfo, now: float) -> Cause:
    """The next instant of a schedule at `now`, or what keeps it from firing."""
    verb = f"schedules {schedule.id}"
    causes: tuple[Cause, ...] = ()
    repairs: tuple[str, ...] = ()
    if schedule.state == "paused":
        says, repairs = f"is paused: {schedule.reason}", (f"actorproc {verb} --resume",)
    elif schedule.state == "faulty":
        says = f"does not fire as it should: {schedule.reason}"
        repairs = (f"actorproc {verb} --reset",) if "reset" in str(schedule.reason) else ()
    elif schedule.waiting and schedule.last_id is not None:
        says = f"waits for {schedule.last_id} to end; {len(schedule.waiting)} instants wait with it"
        causes = _of_last(source, schedule.last_id, now)
    elif schedule.next_at is None:
        says, repairs = "is over: its rule has no further instant", (f"actorproc {verb} --remove",)
    elif now - schedule.next_at > _DAY:
        says = f"is due since {in_utc(schedule.next_at)}: the clock is looked at once more before it fires"
    else:
        says = f"fires next at {in_utc(schedule.next_at)}"
    if not source.facts().running:
        causes = (Cause(kind="manager", procedure="", says="no manager runs"),)
    if not schedule.declared:
        says += (
            f"; its declaration is of {in_utc(schedule.declared_at)}, and no program has repeated it since the last "
            f"start. If none is to do so, actorproc {verb} --remove takes it"
        )
    return Cause(
        kind="schedule", procedure=schedule.id, says=f"schedule {schedule.id}: {says}", repairs=repairs, causes=causes
    )


def explain_enqueued(source: WhySource, row: EnqueuedInfo, now: float) -> Cause:
    """The wait of an enqueued procedure at `now`, or the reason for which it was refused."""
    name = f"enqueued {row.id}"
    since = span(max(0.0, now - row.enqueued_at))
    causes: tuple[Cause, ...] = ()
    repairs: tuple[str, ...] = ()
    if row.state == "refused":
        says = f"{name} was refused: {row.reason}"
        repairs = (f"actorproc enqueued {row.id} --remove",)
    else:
        says = f"{name} waits for {since} to be taken by the manager that leads"
    if not source.facts().running:
        causes = (Cause(kind="manager", procedure="", says="no manager runs"),)
    return Cause(kind="enqueued", procedure=row.id, says=says, repairs=repairs, causes=causes)


def _of_last(source: WhySource, id: str, now: float) -> tuple[Cause, ...]:
    try:
        return (explain(source, id, now),)
    except UnknownProcedure:
        return ()


class _Inquiry:
    """One question: what was asked of `source` once is remembered."""

    def __init__(self, source: WhySource, now: float) -> None:
        self._source = source
        self._now = now
        self._facts = source.facts()
        self._locks: list[LockInfo] | None = None
        self._told: set[str] = set()

    def of(self, info: ProcedureInfo, chain: tuple[str, ...]) -> Cause:
        """The cause for one procedure; `chain` are those whose causes lead here."""
        name = info.id
        if name in chain:
            circle = " → ".join((*chain[chain.index(name) :], name))
            return self._cause(
                info, "cycle", f"is waited for by itself: {circle}", command("abort", name), command("abort", chain[-1])
            )
        if name in self._told:
            return Cause(kind="more", procedure=name, says=f"{word(info)}: see above")
        if len(chain) >= _DEPTH or len(self._told) >= _NODES:
            return Cause(
                kind="more", procedure=name, says=f"{word(info)}: the chain goes on", repairs=(command("why", name),)
            )
        self._told.add(name)
        cause = self._judged(info, (*chain, name))
        if not cause.causes and cause.kind not in _FINAL and (holds := self._runner_missing(info)) is not None:
            # Verbs reach a stopped store too, but without a manager nothing runs.
            return msgspec.structs.replace(cause, causes=(holds,))
        return cause

    def _judged(self, info: ProcedureInfo, chain: tuple[str, ...]) -> Cause:
        match info.phase:
            case Phase.DONE:
                return self._ended(info)
            case Phase.PARKED:
                return self._parked(info)
            case Phase.PAUSED:
                return self._paused(info)
        if (above := self._paused_above(info)) is not None and info.phase is not Phase.RUNNING:
            return above
        match info.phase:
            case Phase.LOCKED_OUT:
                return self._locked_out(info, chain)
            case Phase.SUSPENDED:
                return self._suspended(info, chain)
            case Phase.WAITING:
                until = f", and gives up {self._in(info.due_at)}" if info.due_at is not None else ""
                says = f"waits for the event {info.event or info.id!r}{until}"
                # By its own id: a signal of the event wakes the one that has waited for it longest.
                return self._cause(info, "event", says, command("signal", info.id))
            case Phase.ROLLING_BACK:
                return self._rolling(info, chain)
            case Phase.RUNNING:
                return self._running(info)
            case Phase.SLEEPING:
                return self._timed(info, "sleeps and goes on", ())
            case Phase.RETRYING | Phase.STUCK:
                return self._retrying(info)
        return self._queued(info, chain)

    # ------------------------------------------------------------ ends of chains
    def _ended(self, info: ProcedureInfo) -> Cause:
        when = f" {span(self._now - info.finished_at)} ago" if info.finished_at else ""
        if info.state is not ProcedureState.FAILED:
            why = f": {_error(info)}" if info.error is not None else ""
            return self._cause(info, "done", f"ended {info.state}{when}{why}")
        keys = [poison.path for poison in self._source.poisons() if info.id in (poison.by, poison.root, *poison.others)]
        left = f", and left {_and(map(repr, keys[:_BRANCHES]))} poisoned" if keys else ""
        undone = f"; not undone: {'; '.join(map(str, info.leftovers[:3]))}" if info.leftovers else ""
        repairs = [command("retry", info.root_id)] if info.parent_id is None or keys else []
        repairs += [command("clear-poison", key) for key in keys[:_BRANCHES]]
        return self._cause(info, "failed", f"ended FAILED{when}: {_error(info)}{undone}{left}", *repairs)

    def _parked(self, info: ProcedureInfo) -> Cause:
        reason = info.reason or no_class_registered(info.type_name, ())
        if "damage" in reason:
            repair = "actorproc doctor"
        elif not self._facts.running:
            repair = "actorproc run MODULE"
        elif is_of_no_class(reason):
            repair = f"manager.register({info.type_name.rpartition('.')[2]})"
        else:  # the class is there, and what is stored does not go with it
            repair = "actorproc reload"
        return self._cause(info, "parked", f"is parked: {reason}", repair)

    def _paused(self, info: ProcedureInfo) -> Cause:
        if info.paused is not None:
            says = f"was paused by an operator: {info.paused or 'no reason given'}"
            return self._cause(info, "paused", says, command("resume", info.id))
        return self._paused_above(info) or self._cause(info, "paused", "is paused", command("resume", info.root_id))

    def _paused_above(self, info: ProcedureInfo) -> Cause | None:
        """An ancestor was paused, and with it all below."""
        seen = {info.id}
        parent = info.parent_id
        while parent is not None and parent not in seen:
            seen.add(parent)
            above = self._source.info(parent)
            if above.paused is not None:
                says = f"is paused with its ancestor {above.id}: {above.paused or 'no reason given'}"
                return self._cause(info, "paused", says, command("resume", above.id))
            parent = above.parent_id
        return None

    def _running(self, info: ProcedureInfo) -> Cause:
        step = (self._facts.steps or {}).get(info.id)
        age = step.age if step is not None and step.age is not None else self._now - info.updated_at
        where = f" on {step.in_words()}" if step is not None else ""
        again = f", attempt {info.attempt}" if info.attempt > 1 else ""
        said = f": {step.message}" if step is not None and step.message else ""
        alone = f"; it {info.reason}" if info.reason else ""
        says = f"runs {info.step_in_words}{again} for {span(age)}{where}{said}{alone}"
        if info.error is not None and (info.errors or info.crashes):
            says += f" (it failed before: {_error(info)})"
        return self._cause(
            info,
            "running",
            says,
            command("stack", info.id),
            command("kill", info.id),
            f"{command('abort', info.root_id)} --force",
            since=self._now - age,
        )

    def _retrying(self, info: ProcedureInfo) -> Cause:
        stuck = info.phase is Phase.STUCK
        counts = " and ".join(
            f"{count} {name}" for count, name in ((info.errors, "errors"), (info.crashes, "crashes")) if count
        )
        if (info.reason or "").startswith(READ_LATER):
            return self._timed(info, f"has {info.step_in_words} to do; {info.reason}; next try", (), kind="retrying")
        says = f"fails at {info.step_in_words} and is retried ({counts or 'once'}): {_error(info)}"
        if stuck:
            says = f"cannot go back and fails at {info.step_in_words}, again and again ({counts}): {_error(info)}"
        repairs = (
            (f"{command('bypass', info.id)} --force",)
            if stuck
            else (command("abort", info.root_id), command("bypass", info.id))
        )
        return self._timed(info, says + "; next try", repairs, kind="stuck" if stuck else "retrying")

    def _timed(self, info: ProcedureInfo, says: str, repairs: Sequence[str], kind: CauseKind = "timer") -> Cause:
        """Something goes on at a time; when that has passed, another one is in the way."""
        if info.due_at is not None and info.due_at > self._now - _LATE:
            return self._cause(info, kind, f"{says} {self._in(info.due_at)}", *repairs)
        holds = self._engine_holds(info)
        return self._cause(info, kind, f"{says} is due", *repairs, causes=(holds,) if holds else ())

    # ------------------------------------------------------------ links
    def _locked_out(self, info: ProcedureInfo, chain: tuple[str, ...]) -> Cause:
        lineage = {info.id, *self._ancestors(info)}
        against, ahead = self._obstacles(info, lineage)
        if not against and not ahead:
            holds = self._engine_holds(info)
            says = info.reason or "waits for its locks, which no procedure holds"
            return self._cause(info, "lock", says, causes=(holds,) if holds else ())
        if against:
            asked, lock = against[0]
            says = f"waits for {asked} held by {lock.holder} for {span(lock.age)}"
            more = len({lock.holder for _, lock in against}) - 1
            says += f" and {more} more" if more > 0 else ""
        else:
            says = f"waits for its locks behind {_and(ahead[:_BRANCHES])}, first come first served"
        obstacles = list(dict.fromkeys([lock.holder for _, lock in against] + ([] if against else ahead)))
        return self._cause(info, "lock", says, causes=self._branches(obstacles, chain))

    def _obstacles(self, info: ProcedureInfo, lineage: set[str]) -> tuple[list[tuple[str, LockInfo]], list[str]]:
        """Locks against one of its keys, each with the key, and who stands before it in a queue."""
        if self._locks is None:
            self._locks = self._source.locks()
        against: list[tuple[str, LockInfo]] = []
        ahead: list[str] = []
        for lock in self._locks:
            place = next((n for n, waiter in enumerate(lock.waiters) if waiter.procedure == info.id), None)
            if place is None or lock.holder in lineage:
                continue
            for key in info.locks:
                if exclude_each_other(key, LockKey(lock.path, _MODES[lock.mode])):
                    against.append((f"{key.mode.word} of {key.path!r}" + _below(key.path, lock), lock))
                    break
            ahead += [waiter.procedure for waiter in lock.waiters[:place] if waiter.procedure not in lineage]
        return against, list(dict.fromkeys(ahead))

    def _suspended(self, info: ProcedureInfo, chain: tuple[str, ...]) -> Cause:
        children = self._source.unfinished(parent=info.id, limit=_NODES)
        count = sum(number for state, number in info.children.items() if state not in _ENDED)
        if not children:
            holds = self._engine_holds(info)
            says = "waits for its children, which have all ended"
            return self._cause(info, "child", says, causes=(holds,) if holds else ())
        # Those that stand still tell more than those that run.
        children.sort(key=lambda child: _ORDER.get(child.phase, 5))
        says = f"is suspended on {'its child' if count == 1 else f'{count} of its children'}"
        shown = tuple(self.of(child, chain) for child in children[:_BRANCHES])
        return self._cause(info, "child", says, causes=shown + self._more(info, count - len(shown)))

    def _rolling(self, info: ProcedureInfo, chain: tuple[str, ...]) -> Cause:
        says = f"is rolled back because of {_error(info)}" if info.error is not None else "is rolled back"
        step = (self._facts.steps or {}).get(info.id)
        if step is not None and info.cancelled_at is not None:
            return self._outstaying(info, says, step)
        if step is not None:
            age = f" for {span(step.age)}" if step.age is not None else ""
            says += f"; its undo{_named(info)} runs{age} on {step.in_words()}"
            if info.undo_error is not None:
                says += f" (it failed before: {_words(info.undo_error)})"
            return self._cause(info, "rolling-back", says, command("stack", info.id))
        if (info.reason or "").startswith(READ_LATER):
            return self._timed(info, f"{says}; {info.reason}; next try", (), kind="rolling-back")
        if info.undo_error is not None:
            count = info.errors + info.crashes
            times = f"{count} time{'' if count == 1 else 's'}"
            says += f"; its undo{_named(info)} failed {times}: {_words(info.undo_error)}; next try"
            bypass = f"{command('bypass', info.root_id)} --children"
            return self._timed(info, says, (command("steps", info.id), bypass), kind="rolling-back")
        others = [
            other
            for other in self._source.unfinished(root=info.root_id, limit=_NODES)
            if other.id not in chain and (other.phase is Phase.RUNNING or other.phase is Phase.ROLLING_BACK)
        ]
        busy = [other for other in others if other.id in (self._facts.steps or {}) or other.due_at is not None]
        if busy:
            outstaying = [other for other in busy if self._still_runs(other)]
            causes = tuple(self.of(other, chain) for other in (outstaying or busy)[:_BRANCHES])
            count = len(outstaying)
            waits = f"waits for {count} step{'' if count == 1 else 's'} that still run{'s' if count == 1 else ''}"
            how = waits if outstaying else "one undo at a time in a tree"
            return self._cause(info, "rolling-back", f"{says}; {how}", causes=causes)
        holds = self._engine_holds(info)
        return self._cause(info, "rolling-back", says, causes=(holds,) if holds else ())

    def _still_runs(self, info: ProcedureInfo) -> bool:
        return info.cancelled_at is not None and info.id in (self._facts.steps or {})

    def _outstaying(self, info: ProcedureInfo, says: str, step: RunningStep) -> Cause:
        """The forward step still runs; it was told, and the undo of the whole tree waits for its end."""
        assert info.cancelled_at is not None
        age = "" if step.age is None else f", for {span(step.age)} now"
        said = f": {step.message}" if step.message else ""
        told = span(self._now - info.cancelled_at)
        says += (
            f"; its {info.step_in_words} still runs on {step.in_words()}{age}{said}. It was told "
            f"(ctx.aborting) {told} ago, and its undo waits for it"
        )
        force = f"{command('abort', info.id)} --force"
        return self._cause(info, "rolling-back", says, command("stack", info.id), force, since=info.cancelled_at)

    def _queued(self, info: ProcedureInfo, chain: tuple[str, ...]) -> Cause:
        if info.debounce is not None:
            says = f"waits for further submits of the debounce key {info.debounce!r}"
            if info.due_at is not None and info.due_at > self._now:
                return self._cause(info, "timer", f"{says}, and starts {self._in(info.due_at)}")
            holds = self._engine_holds(info)
            return self._cause(info, "timer", f"{says}, and is due", causes=(holds,) if holds else ())
        if info.due_at is not None and info.due_at > self._now:
            return self._cause(info, "timer", f"starts {self._in(info.due_at)}")
        holds = self._engine_holds(info)
        if holds is not None:
            return self._cause(info, "manager", f"is ready for {info.step_in_words}", causes=(holds,))
        if info.reason:
            waits = f" and waits {info.reason}" if info.reason.startswith("for ") else f": {info.reason}"
            return self._cause(info, "worker", f"is ready for {info.step_in_words}{waits}")
        busy = [name for name in (self._facts.steps or {}) if name not in chain]
        says = f"is ready for {info.step_in_words} and waits for a free worker"
        return self._cause(info, "worker", says, causes=self._branches(busy, chain))

    # ------------------------------------------------------------ parts
    def _engine_holds(self, info: ProcedureInfo) -> Cause | None:
        """Reason why the manager hands out nothing; None when it does."""
        facts = self._facts
        if (missing := self._runner_missing(info)) is not None:
            return missing
        if facts.paused is not None:
            says = f"the whole manager was paused by an operator: {facts.paused or 'no reason given'}"
            return Cause(kind="paused", procedure="", says=says, repairs=("actorproc resume --manager",))
        if facts.trouble is not None:
            return Cause(
                kind="manager", procedure="", says=f"the manager {facts.trouble}", repairs=("actorproc status",)
            )
        return None

    def _runner_missing(self, info: ProcedureInfo) -> Cause | None:
        if self._facts.suspended:
            says = f"process {self._facts.pid}, the manager, is suspended: nothing goes on"
            return Cause(kind="manager", procedure="", says=says, repairs=(f"kill -CONT {self._facts.pid}",))
        if self._facts.running:
            return None
        module = info.type_name.rpartition(".")[0]
        known = module if module and module != "__main__" and "<" not in module else "MODULE"
        says = "no manager runs on this store"
        return Cause(kind="manager", procedure="", says=says, repairs=(f"actorproc run {known}",))

    def _branches(self, names: list[str], chain: tuple[str, ...]) -> tuple[Cause, ...]:
        from actorproc.errors import UnknownProcedure  # noqa: PLC0415

        found = []
        for name in names[:_BRANCHES]:
            try:
                found.append(self.of(self._blocker(name), chain))
            except UnknownProcedure:
                says = f"{name} is not in the store"
                found.append(Cause(kind="unknown", procedure=name, says=says, repairs=("actorproc doctor",)))
        rest = len(names) - _BRANCHES
        return (*found, *((Cause(kind="more", procedure="", says=f"and {rest} more"),) if rest > 0 else ()))

    def _blocker(self, name: str) -> ProcedureInfo:
        """Procedure that must end before what this one holds is free: itself, or its root when it has ended."""
        info = self._source.info(name)
        return self._source.info(info.root_id) if info.phase is Phase.DONE and info.root_id != name else info

    def _more(self, info: ProcedureInfo, count: int) -> tuple[Cause, ...]:
        if count <= 0:
            return ()
        return (Cause(kind="more", procedure="", says=f"and {count} more", repairs=(command("tree", info.id),)),)

    def _ancestors(self, info: ProcedureInfo) -> Iterator[str]:
        seen = {info.id}
        parent = info.parent_id
        while parent is not None and parent not in seen:
            seen.add(parent)
            yield parent
            parent = self._source.info(parent).parent_id

    def _in(self, at: float | None) -> str:
        return "now" if at is None or at <= self._now else f"in {span(at - self._now)}"

    def _cause(
        self,
        info: ProcedureInfo,
        kind: CauseKind,
        says: str,
        *repairs: str,
        causes: tuple[Cause, ...] = (),
        since: float | None = None,
    ) -> Cause:
        return Cause(
            kind=kind,
            procedure=info.id,
            says=f"{word(info)} {says}" + (" (an abort was asked for)" if info.aborting else ""),
            since=since if since is not None else info.finished_at or info.updated_at,
            repairs=tuple(dict.fromkeys(repairs)),
            causes=causes,
        )


_FINAL = frozenset({"done", "failed", "cycle", "more", "unknown", "manager"})
_ENDED = frozenset({"SUCCESS", "FAILED", "ROLLEDBACK"})
_ORDER = {
    Phase.STUCK: 0,
    Phase.PARKED: 0,
    Phase.PAUSED: 0,
    Phase.LOCKED_OUT: 1,
    Phase.RETRYING: 1,
    Phase.SUSPENDED: 2,
    Phase.WAITING: 2,
    Phase.RUNNING: 3,
}


def _named(info: ProcedureInfo) -> str:
    """Label of the unit that is being undone, to be said behind "its undo"."""
    return f" of {info.step_name}" if info.step_name else ""


def _error(info: ProcedureInfo) -> str:
    if info.error is None:
        return "unknown reasons"
    return _words(info.error)


def _words(error: ErrorInfo) -> str:
    return f"{error.type_name.rpartition('.')[2]}: {error.message}"


def _below(path: str, lock: LockInfo) -> str:
    return "" if path == lock.path else f" (against {lock.mode} of {lock.path!r})"


def _and(names: Any) -> str:
    listed = list(names)
    return listed[0] if len(listed) == 1 else f"{', '.join(listed[:-1])} and {listed[-1]}"
