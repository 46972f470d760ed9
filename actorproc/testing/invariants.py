"""What must be true: memory equals a restored store after every commit, and a history obeys the engine's promises.

`check` is one pure function over a journal (what the outside saw: executions, commits, replies, deaths) and a
dump of the store; it knows nothing of the engine's insides. Its numbers:

1 durability of acknowledged submits · 2 no ghosts · 3 a committed step was executed before · 4 one commit per
record, consecutive · 5 nothing is handed out before the record and the attempt it starts from are durable ·
6 a step runs again only after a fault or a retryable failure · 7 nothing forward after the end, no older epoch
after a newer one · 8 one runner per procedure · 9 a step starts from the stored state, byte for byte ·
10 locks exclude, and all are free at the end · 11 undo in strictly reverse order, none skipped · 12 a parent goes
on after its children ended · 13 children are created once · 14 terminal states are final · 15 everything ends ·
16 recovery is idempotent · 17 bystanders are unharmed · 20 honest errors. Number 0 is "memory equals store".
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import msgspec

from actorproc.model.ids import Mode, StepToken, WorkerId
from actorproc.model.outcomes import Failed, Finished, Refused
from actorproc.model.policies import LockKey, LockMode
from actorproc.model.records import (
    ChildRecord,
    LockRecord,
    PoisonRecord,
    ProcedureRecord,
    StepKind,
    StepRecord,
    UndoRecord,
)
from actorproc.model.states import TERMINAL, ProcedureState
from actorproc.model.writes import (
    DeleteUndo,
    PutChild,
    PutProcedure,
    PutStep,
    PutUndo,
    Write,
)
from actorproc.store.base import ProcedureStore

__all__ = ["Entry", "StoreDump", "Violation", "check"]

Entry = tuple[Any, ...]
"""One line of a journal: a kind and its fields."""


class Violation(msgspec.Struct, frozen=True):
    """A broken promise: the number of the invariant and what was seen."""

    number: int
    text: str


# ---------------------------------------------------------------- the dump
class StoreDump(msgspec.Struct):
    """Everything in a store at the end of a history."""

    heads: dict[str, ProcedureRecord]
    steps: dict[str, list[StepRecord]]
    locks: list[LockRecord]
    poisons: list[PoisonRecord]

    @classmethod
    def of(cls, store: ProcedureStore) -> StoreDump:
        """Read a whole store through its protocol."""
        heads = {head.id: head for head in store.scan()}
        return cls(heads, {id: store.steps(id) for id in heads}, store.locks(), store.poisons())  # noqa: A001


# ---------------------------------------------------------------- one pass over a journal
def check(journal: list[Entry], dump: StoreDump, *, bystander: str | None = None) -> list[Violation]:
    """All violations of a finished history, in the order they were seen. Pure."""
    pass_ = _Pass()
    for entry in journal:
        handler = pass_.handlers.get(entry[0])
        if handler is not None:
            handler(*entry[1:])
    pass_.check_end(dump, bystander)
    return pass_.found


class _Run:
    """The last execution of one step of one procedure."""

    __slots__ = ("ended", "epoch", "outcome", "saved")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.ended = ""
        self.outcome: object = None
        self.saved = False


class _Pass:
    """The checker's own small model of what is durable and who runs."""

    def __init__(self) -> None:
        self.found: list[Violation] = []
        self.handlers: dict[str, Callable[..., None]] = {
            "sent": self.on_sent,
            "enter": self.on_enter,
            "exit": self.on_exit,
            "cut": self.on_cut,
            "commit": self.on_commit,
            "submit": self.on_submit,
            "reply": self.on_reply,
            "host-died": self.on_host_died,
            "commit-failed": self.on_commit_failed,
            "worker-died": self.on_worker_died,
        }
        self.heads: dict[str, ProcedureRecord] = {}
        self.forward: dict[str, tuple[int, int]] = {}
        """Step and attempt of a procedure when it last went forward."""
        self.records: dict[tuple[str, int], StepRecord] = {}
        self.children: dict[tuple[str, int, int], str] = {}
        self.units: dict[tuple[str, int], UndoRecord] = {}
        self.undo_tops: dict[tuple[str, int], str | None] = {}
        """Scope in which the undoing of a unit was begun."""
        self.runs: dict[tuple[str, int, Mode, str | None, int], _Run] = {}
        self.running: dict[str, StepToken] = {}
        self.live: dict[tuple[WorkerId, int, str], bytes] = {}
        self.newest_epoch: dict[str, int] = {}
        self.disturbed = 0
        """Deaths and failed commits so far: a repeated execution must have one between."""
        self.disturbed_at: dict[tuple[str, int, Mode, str | None, int], int] = {}
        self.exits: dict[str, set[bytes]] = {}
        self.numbers: dict[str, int] = {}
        self.jumps: dict[str, set[int]] = {}
        """Steps that one answer covered, when it covered more than one."""
        self.undone: set[tuple[str, str | None]] = set()
        self.submits: dict[int, tuple[str, ...]] = {}
        self.acknowledged: set[str] = set()
        self.refused: set[str] = set()
        self.offered: set[str] = set()
        self.holds: dict[str, dict[str, LockMode]] = {}
        """Keys that a tree took and keeps, by procedure."""

    def say(self, number: int, text: str) -> None:
        self.found.append(Violation(number, text))

    # ------------------------------------------------------------ executions
    def on_sent(self, token: StepToken, record: int, warm: bool) -> None:
        del record, warm
        head = self.heads.get(token.procedure)
        if head is None or not head.rolling or token.mode is not Mode.EXECUTE:
            return
        # Decided before the failure, in the same batch: then it runs to its end, as a running step does.
        if self.forward.get(head.id) != (token.step, token.attempt):
            self.say(7, f"{token} was sent forward although {head.id} is being undone")

    def on_enter(
        self, token: StepToken, unit: str | None, state: bytes, record: int, warm: bool, children_step: int
    ) -> None:
        id = token.procedure  # noqa: A001
        head = self.heads.get(id)
        if head is None:
            self.say(2, f"{id} runs but was never stored")
            return
        if id in self.running:
            self.say(8, f"{token} begins while {self.running[id]} still runs")
        if token.epoch < self.newest_epoch.get(id, 0):
            self.say(7, f"{token} runs after epoch {self.newest_epoch[id]}")
        self.newest_epoch[id] = token.epoch
        if token.mode is Mode.EXECUTE and head.state in TERMINAL:
            self.say(7, f"{token} runs although {id} is {head.state}")
        self._check_start(token, head, state, record, warm)
        if token.mode is not Mode.ASK_ABORT:  # asked as often as a step ends, and without locks
            self._check_repeat(token, unit, head)
            self._check_exclusion(id, head)
        if children_step and token.mode is Mode.EXECUTE:
            self._check_children(id, children_step, head)
        self.running[id] = token

    def _check_start(self, token: StepToken, head: ProcedureRecord, state: bytes, record: int, warm: bool) -> None:
        id = token.procedure  # noqa: A001
        stored = self.records.get((id, record))
        if stored is None:
            self.say(5, f"{token} starts from record {record}, which is not durable")
        elif warm:
            if state not in {self.live.get((token.worker, token.epoch, id)), stored.state}:
                self.say(9, f"{token} goes on warm with {state!r}, not with what its worker held")
        elif stored.state != state:
            self.say(9, f"{token} starts with {state!r}, but record {record} holds {stored.state!r}")
        if token.mode is not Mode.ASK_ABORT and head.attempt < token.attempt:
            self.say(5, f"{token} runs, but the durable attempt is {head.attempt}")

    def _check_repeat(self, token: StepToken, unit: str | None, head: ProcedureRecord) -> None:
        key = (token.procedure, token.step, token.mode, unit, head.undone)
        run = self.runs.get(key)
        if run is not None and run.ended == "exit" and not isinstance(run.outcome, (Failed, Refused)):
            if run.saved:
                self.say(6, f"{token} runs again although its result is durable")
            elif self.disturbed_at[key] == self.disturbed:
                self.say(6, f"{token} runs again although nothing happened since its answer")
        self.runs[key] = _Run(token.epoch)

    def _check_exclusion(self, id: str, head: ProcedureRecord) -> None:  # noqa: A002
        if not head.locks:
            return
        for other, token in self.running.items():
            # One that is asked `abort` may be waiting for its keys.
            if other != id and token.mode is not Mode.ASK_ABORT and not self._are_related(id, other):
                self._compare_keys(id, head.locks, other, {key.path: key.mode for key in self.heads[other].locks})
        for other, held in self.holds.items():
            if self.heads[other].root != head.root and self._is_kept(other):
                self._compare_keys(id, head.locks, other, held)
        if head.lock_scope == "procedure":
            self.holds[id] = {key.path: key.mode for key in head.locks}

    def _compare_keys(self, id: str, locks: tuple[LockKey, ...], other: str, held: dict[str, LockMode]) -> None:  # noqa: A002
        for path, mode in held.items():
            for key in locks:
                if (mode is LockMode.WRITE or key.mode is LockMode.WRITE) and _overlap(path, key.path):
                    self.say(10, f"{id} runs with {key.mode.name} {key.path} while {other} has {mode.name} {path}")

    def _is_kept(self, holder: str) -> bool:
        """What a procedure took stays taken as long as it, or an ancestor it passed it to, has not ended."""
        return any(self.heads[name].state not in TERMINAL for name in self._line(holder))

    def _are_related(self, one: str, other: str) -> bool:
        return one in self._line(other) or other in self._line(one)

    def _line(self, id: str) -> list[str]:  # noqa: A002
        line = []
        place: str | None = id
        while place is not None:
            line.append(place)
            place = self.heads[place].parent
        return line

    def _check_children(self, id: str, step: int, head: ProcedureRecord) -> None:  # noqa: A002
        links = [child for (parent, at, _), child in self.children.items() if (parent, at) == (id, step)]
        states = [self.heads[child].state for child in links]
        ended = [state for state in states if state in TERMINAL]
        if head.wait == "all" and len(ended) < len(states):
            self.say(12, f"{id} goes on after {len(ended)} of {len(states)} children")
        elif states and not ended:
            self.say(12, f"{id} goes on before any child ended")

    def on_exit(self, token: StepToken, unit: str | None, outcome: Any) -> None:
        id = token.procedure  # noqa: A001
        self.running.pop(id, None)
        head = self.heads.get(id)
        if head is None:
            return
        key = (id, token.step, token.mode, unit, head.undone)
        run = self.runs.get(key)
        if run is not None:
            run.ended = "exit"
            run.outcome = outcome
            self.disturbed_at[key] = self.disturbed
        self.live[token.worker, token.epoch, id] = outcome.state
        self.exits.setdefault(id, set()).add(outcome.state)
        if outcome.steps > 1:
            self.jumps.setdefault(id, set()).add(outcome.steps)
        if token.mode is Mode.ROLLBACK and isinstance(outcome, Finished):
            self.undone.add((id, unit))

    def on_cut(self, token: StepToken) -> None:
        self.running.pop(token.procedure, None)
        # Its answer may have been written all the same, and win.
        for (id, step, mode, _, _), run in self.runs.items():  # noqa: A001
            if (id, step, mode) == (token.procedure, token.step, token.mode):
                run.ended = "cut"

    def on_worker_died(self, worker: WorkerId) -> None:
        self.disturbed += 1
        for key in [key for key in self.live if key[0] == worker]:
            del self.live[key]

    def on_host_died(self) -> None:
        self.disturbed += 1
        self.running.clear()
        self.live.clear()

    def on_commit_failed(self, applied: bool) -> None:
        del applied
        self.disturbed += 1

    # ------------------------------------------------------------ commits
    def on_commit(self, epoch: int, writes: list[Write]) -> None:
        del epoch
        for write in writes:
            if isinstance(write, PutProcedure):
                self._put_head(write.record, is_new=write.was is None)
            elif isinstance(write, PutStep):
                self._put_step(write.record)
            elif isinstance(write, PutChild):
                self._put_child(write.record)
            elif isinstance(write, PutUndo):
                unit = write.record
                self.units[unit.root, unit.seq] = unit
                self.undone.discard((unit.procedure, unit.label))
        for write in writes:
            if isinstance(write, DeleteUndo):
                self._delete_unit(write)
            elif isinstance(write, PutChild) and write.record.child not in self.heads:
                self.say(13, f"{write.record.child} is linked, but was not stored with its parent")

    def _put_head(self, record: ProcedureRecord, *, is_new: bool) -> None:
        before = self.heads.get(record.id)
        if is_new and before is not None:
            self.say(13, f"{record.id} was created twice")
        if before is not None and before.state in TERMINAL and record.state is not before.state:
            is_undone_child = before.state is ProcedureState.SUCCESS and record.parent is not None
            if not is_undone_child:
                self.say(14, f"{record.id} was {before.state} and became {record.state}")
        if record.parent is not None and record.parent not in self.heads and is_new:
            self.say(13, f"{record.id} was stored before its parent {record.parent}")
        self.heads[record.id] = record
        if not record.rolling:
            self.forward[record.id] = (record.step, record.attempt)
        if record.undoing and (before is None or before.undoing != record.undoing):
            self.undo_tops[record.root, record.undoing] = self._top_of(record.id)
        if record.state in TERMINAL:
            self._end_holds(record)

    def _end_holds(self, record: ProcedureRecord) -> None:
        if record.parent is None:
            return  # its locks go with its end, those of children that outlive it stay: see `_is_kept`
        if record.state is not ProcedureState.SUCCESS or not self.heads[record.parent].undo_children:
            # What its own children had passed to it goes with it.
            for other in [other for other in self.holds if record.id in self._line(other)]:
                del self.holds[other]

    def _put_step(self, record: StepRecord) -> None:
        id = record.procedure  # noqa: A001
        before = self.records.get((id, record.number))
        if before is not None:
            self.say(4, f"record {record.number} of {id} was written twice: {before} and {record}")
        jump = record.number - self.numbers.get(id, 0)
        self.numbers[id] = record.number
        if jump != 1 and jump not in self.jumps.get(id, ()):
            self.say(4, f"record {record.number} of {id} comes {jump} after the one before it")
        self.records[id, record.number] = record
        from_step = record.slot >= 0 and record.kind is StepKind.STEP
        if from_step and record.state not in self.exits.get(id, ()):
            self.say(3, f"record {record.number} of {id} holds {record.state!r}, which no complete execution gave")
        for key, run in self.runs.items():
            if key[0] == id and run.ended == "exit" and getattr(run.outcome, "state", None) == record.state:
                run.saved = True

    def _put_child(self, link: ChildRecord) -> None:
        key = (link.parent, link.step, link.index)
        before = self.children.get(key)
        if before is not None:
            self.say(13, f"child {link.index} of step {link.step} of {link.parent} was linked twice")
        self.children[key] = link.child

    def _delete_unit(self, write: DeleteUndo) -> None:
        unit = self.units.pop((write.root, write.seq), None)
        if unit is None:
            self.say(11, f"undo unit {write.seq} of {write.root} was removed twice")
            return
        # An undo that ran when a wider failure began counts in its own scope: it ends like any running step.
        top = self.undo_tops.get((unit.root, unit.seq)) or self._top_of(unit.procedure)
        if top is None:
            return  # the tree ended well, or gave the unit up
        head = self.heads[unit.procedure]
        is_given_up = self._is_left_alone(head)
        if (unit.procedure, unit.label) not in self.undone and not is_given_up:
            self.say(11, f"undo unit {unit.label!r} of {unit.procedure} was removed and never undone")
        for later in self.units.values():
            is_newer = later.root == unit.root and later.seq > unit.seq
            if is_newer and not is_given_up and top in self._line(later.procedure):
                self.say(11, f"unit {unit.seq} of {unit.root} was undone before unit {later.seq}")

    def _top_of(self, id: str) -> str | None:  # noqa: A002
        """The top of the widest failure scope a procedure is in."""
        return next((name for name in reversed(self._line(id)) if self.heads[name].failing), None)

    def _is_left_alone(self, head: ProcedureRecord) -> bool:
        """Whether its units are given up unrun: it cannot be undone, is poisoned, or its parent compensates."""
        if head.state is ProcedureState.FAILED or not head.rollback_supported:
            return True
        if head.error is not None and head.error.kind == "poisoned":
            return True
        line = [self.heads[id] for id in self._line(head.id)]  # noqa: A001
        return any(inner.state is ProcedureState.SUCCESS and not outer.undo_children for inner, outer in pairwise(line))

    # ------------------------------------------------------------ the outside, and the end
    def on_submit(self, reply: int, ids: tuple[str, ...]) -> None:
        self.submits[reply] = ids
        self.offered.update(ids)

    def on_reply(self, reply: int, value: object, error: object) -> None:
        ids = self.submits.get(reply, ())
        if error is None:
            self.acknowledged.update(ids)
            missing = [id for id in ids if id not in self.heads]  # noqa: A001
            if missing:
                self.say(1, f"submit of {missing} was acknowledged before it was durable")
        else:
            self.refused.update(id for id in ids if id not in self.heads)  # noqa: A001
        del value

    def check_end(self, dump: StoreDump, bystander: str | None) -> None:
        for id in sorted(self.acknowledged - dump.heads.keys()):  # noqa: A001
            self.say(1, f"{id} was acknowledged and is not in the store")
        for id in sorted((self.refused - self.acknowledged) & dump.heads.keys()):  # noqa: A001
            self.say(20, f"submit of {id} was refused, yet it is stored")
        for id, head in dump.heads.items():  # noqa: A001
            if head.parent is None and id not in self.offered:
                self.say(2, f"{id} is stored and was never submitted")
            if head.state not in TERMINAL:
                self.say(15, f"{id} never ended: {_shown(head)}")
            self._check_log(id, head, dump.steps[id])
        if all(head.state in TERMINAL for head in dump.heads.values()):
            self.found += [Violation(10, f"still held at the end: {lock}") for lock in dump.locks]
        if bystander is not None and bystander in dump.heads:
            head = dump.heads[bystander]
            if head.state is not ProcedureState.SUCCESS:
                self.say(17, f"the bystander is {head.state}: {head.error}")

    def _check_log(self, id: str, head: ProcedureRecord, steps: list[StepRecord]) -> None:  # noqa: A002
        numbers = [record.number for record in steps]
        if numbers != sorted(set(numbers)) or numbers[-1] != head.records:
            self.say(4, f"the step log of {id} has numbers {numbers}; its head says {head.records}")
        for record in steps:
            if self.records.get((id, record.number)) != record:
                self.say(4, f"record {record.number} of {id} changed after its commit")
        if head.state is ProcedureState.SUCCESS:
            outputs = [record.state for record in steps if record.kind is StepKind.COMMIT]
            if len(outputs) != 1:
                self.say(14, f"{id} succeeded with {len(outputs)} closing records")


def _overlap(one: str, other: str) -> bool:
    """Whether two lock paths are the same or one lies below the other."""
    return one == other or one.startswith(other + "/") or other.startswith(one + "/")


def _shown(head: ProcedureRecord) -> str:
    first = ("state", "step", "attempt", "errors", "crashes", "rolling", "failing", "undoing")
    names = (*first, "locked", "pending", "due_at", "event", "parked")
    return ", ".join(f"{name}={getattr(head, name)}" for name in names)
