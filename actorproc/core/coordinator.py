"""The router: one event in, one decision out.

`handle` hands the event to the part that knows it. Then it settles the consequences (granted locks, deadlock victims,
failing scopes) until nothing moves, fills the workers, and closes the decision. It changes memory and touches nothing
else; its caller stores the writes and only then carries out the commands.

Nothing here knows threads, processes, files or clocks, so every crash is a place in a loop and can be tried.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from actorproc.core import recovery
from actorproc.core.lifecycle import signals
from actorproc.core.locks.explain import why_waiting
from actorproc.core.locks.request import LockWaiter
from actorproc.core.operator import bypass
from actorproc.core.operator.verbs import VERBS
from actorproc.core.results import adoption, firings
from actorproc.core.results.fast_end import end_straight
from actorproc.core.results.fast_step import go_straight_on
from actorproc.core.results.postponed_steps import why_put_off
from actorproc.core.results.worker_loss import on_stopped
from actorproc.core.rules import HANDLERS, follow_up, settle
from actorproc.core.scheduler import reload, scaling
from actorproc.core.scheduler.pick import may_steal, steal_at, why_queued
from actorproc.core.state.engine_state import DRIFT, EngineState
from actorproc.core.state.fingerprint import fingerprint
from actorproc.core.state.parts.schedules import named_by_timer, no_rules
from actorproc.core.state.parts.settings import DEFAULT_QUOTAS, DEFAULT_RETENTION, DEFAULT_SCHEDULING
from actorproc.core.state.phases import phase_of, reason_of
from actorproc.core.state.quarantine import error_of
from actorproc.core.state.signal_ids import is_repeated
from actorproc.core.state.standstill import Parked, obstacle_of, obstacle_of_stored, parked_residents
from actorproc.errors import StoreDamaged
from actorproc.model.ids import HeldSteps, StepToken, debounce_name
from actorproc.model.messages.commands import Decision, RunStep
from actorproc.model.messages.events import (
    EnqueuedFound,
    Event,
    ForkRequested,
    Published,
    StepEnded,
    Submitted,
    Tick,
    WorkerReady,
)
from actorproc.model.messages.outcomes import Advanced, Finished, Stopped, Suspended
from actorproc.model.names import no_class_registered
from actorproc.model.policies import LockMode, Quotas, Retention, Scheduling, TypeMeta
from actorproc.model.rows.asks import AskKey
from actorproc.model.rows.records import ProcedureRecord, UndoRecord
from actorproc.model.rows.schedules import RuleOf
from actorproc.model.rows.snapshot import RecoverySnapshot
from actorproc.model.states import Phase

__all__ = ["Coordinator"]

_LOADED = frozenset(verb.event for verb in VERBS if verb.loads)
"""Requests that are decided on with their procedure in memory."""


class Coordinator:
    """Decides for one manager. Not thread-safe; told the time, in epoch seconds."""

    def __init__(self, state: EngineState) -> None:
        self._state = state

    @classmethod
    def restore(
        cls,
        snapshot: RecoverySnapshot,
        now: float,
        *,
        workers: Sequence[tuple[WorkerReady, tuple[StepToken, ...]]] = (),
        quotas: Quotas = DEFAULT_QUOTAS,
        scheduling: Scheduling = DEFAULT_SCHEDULING,
        retention: Retention = DEFAULT_RETENTION,
        types: Iterable[TypeMeta] = (),
        gated: bool = False,
        unattended: bool = False,
        rules: RuleOf = no_rules,
        before: Coordinator | None = None,
    ) -> tuple[Coordinator, Decision]:
        """A coordinator that goes on where the snapshot stands, and its first decision.

        `workers` are live workers with the steps handed to them whose answers are not in the snapshot:
        empty at a start, the living after a failed commit. `types` are known already: their procedures are queued,
        in their old order; `TypeRegistered` follows all the same, for those that are parked. `unattended`: it only
        writes down what operators want, for the next one to do. `rules` is the arithmetic of schedules. `before`, whose
        commit failed, knows which of the workers have old code, and which hosts there are.
        """
        hosts = None if before is None else before._state.workers.table.hosts
        state, busy = recovery.rebuild(snapshot, now, workers, scheduling, types, hosts)
        state.schedules.reckon_by(rules)
        if before is not None:
            reload.take_over(state.workers, before._state)
        recovery.resume(state, busy)
        state.settings.put_in_force(quotas, retention)
        state.switches.gate(closed=gated)
        if unattended:
            state.switches.leave_unattended()
        recovery.take_up(state, busy)
        bypass.take_up_bypasses(state, busy)
        return cls(state), settle(state)

    @classmethod
    def rebuilt(
        cls,
        snapshot: RecoverySnapshot,
        now: float,
        *,
        workers: Sequence[tuple[WorkerReady, tuple[StepToken, ...]]] = (),
        scheduling: Scheduling = DEFAULT_SCHEDULING,
    ) -> Coordinator:
        """The same memory that wrote the snapshot, with nothing new decided (`fingerprint` is equal)."""
        state, busy = recovery.rebuild(snapshot, now, workers, scheduling)
        recovery.resume(state, busy)
        return cls(state)

    # ------------------------------------------------------------------ the read set
    def missing(self, event: Event, now: float) -> tuple[str, ...]:
        """Procedures this event is about that are not in memory: load their trees first.

        Those of the cold run queue need not be loaded: they become resident here.
        """
        state = self._state
        if type(event) is StepEnded and type(event.outcome) is not Suspended and event.outcome.requests is None:
            return ()  # the most frequent of all events
        names: Iterable[str]
        match event:
            case Submitted():
                names = [new.id for new in event.procedures if not new.fresh]
                terms = event.procedures[0].debounce if event.procedures else None
                if terms is not None and terms.key not in state.residents.debounced:
                    names.insert(0, debounce_name(terms.key))
            case EnqueuedFound():
                names = (row.record.new.id for row in event.rows if row.record.new is not None and not row.fault)
            case StepEnded(outcome=outcome):
                names = [] if outcome.requests is None else [new.id for new in outcome.requests.roots]
                if type(outcome) is Suspended:
                    names += (new.id for new in outcome.children if not new.fresh)
            case Published():
                names = signals.first_listener(state, event.name)
            case ForkRequested(id=origin, new=new):
                names = (origin,) if new.fresh else (origin, new.id)
            case Tick():
                names = state.timers.due(now)
                if state.schedules.records:
                    names = self._due_with_firings(names, now)
            case _:
                id_ = getattr(event, "id", None) if type(event) in _LOADED else None
                names = () if id_ is None else (id_,)
        return tuple(name for name in names if self._is_missing(name))

    def _due_with_firings(self, due: Iterable[str], now: float) -> Iterator[str]:
        """Procedures that are due, and for schedules among them those that a look at each decides on."""
        for name in due:
            schedule = named_by_timer(name)
            if schedule is None:
                yield name
            elif schedule in self._state.schedules.records:
                yield from firings.needed(self._state, schedule, now)

    def _is_missing(self, id: str) -> bool:
        """The store may know it and memory does not: a stored procedure, or the root of a tree that is half removed."""
        state = self._state
        if id in state.residents.procs or id in state.damage.procedures:
            return False
        if id in state.queues.run_queue.cold:
            state.residents.make_resident(state.queues.run_queue.cold[id])
            return False
        return id not in state.ended.removed or id in state.ended.removals

    def load(self, members: Sequence[ProcedureRecord], units: Sequence[UndoRecord]) -> bool:
        """A stored tree, as `missing` asked for; False when it turned out to be damaged: ask `missing` again.

        Loading a resident tree changes nothing. Nor does one that was removed by a decision which is not stored yet.
        """
        recovery.load_tree(self._state, members, units)
        return not members or members[0].id not in self._state.damage.procedures

    def note_debounced(self, key: str, id: str) -> None:
        """The newest root of a debounce key, once it was loaded: `missing` asks with `debounce_name`."""
        state = self._state
        if id in state.queues.run_queue.cold:
            state.residents.make_resident(state.queues.run_queue.cold[id])
        if id in state.residents.procs:
            state.residents.debounced[key] = id

    def exclude(self, id: str, reason: str) -> None:
        """A procedure that `missing` named cannot be read: nothing is done with it, and its id stays taken.

        Then `missing` may name another one.
        """
        self._state.damage.procedures.setdefault(id, reason)

    # ------------------------------------------------------------------ deciding
    def handle(self, event: Event, now: float) -> Decision:
        """Decide what `event` leads to at `now`, and what those led to that were taken before it."""
        state = self._state
        if now != state.decision.now:
            state.begin(now)
        if type(event) is StepEnded:
            outcome = event.outcome
            if type(outcome) is Advanced:
                decision = go_straight_on(state, event, outcome)
                if decision is not None:
                    return decision
            elif type(outcome) is Finished and end_straight(state, event, outcome):
                return settle(state)
            elif type(outcome) is Stopped:
                on_stopped(state, event, outcome.report)
                return settle(state)
        HANDLERS[type(event)](state, event)
        return settle(state)

    def take(self, event: StepEnded, now: float) -> bool:
        """Take a plain end (True) whose decision is still open. False, and nothing is done, for any other answer.

        Of many answers that come together, what they set free is given away once, and a parent's head is written once.
        The next call must be `take`, `handle` of something that a worker says, or `decide`.
        """
        outcome = event.outcome
        if type(outcome) is not Finished:
            return False
        state = self._state
        if now != state.decision.now:
            state.begin(now)
        if not end_straight(state, event, outcome):
            return False
        follow_up(state)  # its parent may have asked for locks or ended: the next event finds that settled
        return True

    def decide(self) -> Decision:
        """The decision that `take` left open: what was set free is given to workers."""
        return settle(self._state)

    # ------------------------------------------------------------------ time and batches
    def next_deadline(self) -> float | None:
        """Epoch seconds at which a `Tick` is due; None: never."""
        state = self._state
        earliest = state.timers.next_at()
        for at in (self._steal_at(), state.queues.key_limits.next_at(), scaling.next_look(state)):
            if at is not None and (earliest is None or at < earliest):
                earliest = at
        return earliest

    def _steal_at(self) -> float | None:
        return steal_at(self._state) if may_steal(self._state) else None

    def was_set_back(self, now: float) -> bool:
        """True if the clock shows less than at the last decision, and something is to be looked at for that."""
        minds = bool(self._state.schedules.records or self._state.residents.debounced)
        return minds and now < self._state.decision.now - DRIFT

    @property
    def faulty_schedules(self) -> Iterator[str]:
        """One sentence for each schedule that does not fire as it should; read it at once."""
        for record in self._state.schedules.records.values():
            if record.fault is not None and record.paused is None:
                yield f"schedule {record.id}: {record.fault}"

    def seal(self) -> int:
        """The caller closes its batch; the number of that batch."""
        return self._state.counters.seal()

    def settle(self, batch: int) -> None:
        """Note that this batch is stored: cold and finished trees it left behind may leave memory."""
        self._state.settle(batch)

    # ------------------------------------------------------------------ looking
    @property
    def dispatching(self) -> bool:
        """True while steps are handed out. After setting it to True, handle a `Tick`."""
        return self._state.switches.dispatching

    @dispatching.setter
    def dispatching(self, value: bool) -> None:
        self._state.switches.dispatch(on=value)

    @property
    def gated(self) -> bool:
        """Nothing is handed out until the gate is opened. After setting it to False, handle a `Tick`."""
        return self._state.switches.gated

    @gated.setter
    def gated(self, value: bool) -> None:
        self._state.switches.gate(closed=value)

    @property
    def scheduling(self) -> Scheduling:
        """Scheduling in force, as the last resize left it."""
        return self._state.settings.scheduling

    @property
    def paused(self) -> str | None:
        """Reason for which the whole manager is paused; None: it is not."""
        return self._state.switches.paused

    @property
    def vacated(self) -> tuple[int, ...]:
        """Slots without a worker that are not wanted any more, since the pool was made smaller."""
        return tuple(sorted(self._state.workers.slot_plan.vacated))

    @property
    def known_types(self) -> tuple[str, ...]:
        """Names of the types whose classes are registered."""
        return tuple(sorted(self._state.types.metas))

    @property
    def stale_results(self) -> int:
        """Answers dropped because their token was not current."""
        return self._state.counters.stale_results

    @property
    def damaged(self) -> tuple[str, ...]:
        """One sentence for each damaged record, and for each procedure that stands still because of one in its tree."""
        damage = self._state.damage
        silent = (f"schedule {name} does not fire: {reason}" for name, reason in damage.schedules.items())
        still = (f"procedure {name} stands still: {reason}" for name, reason in damage.procedures.items())
        return (*damage.flaws, *silent, *still)

    @property
    def halted(self) -> int:
        """Procedures that stand still because of damage."""
        return len(self._state.damage.procedures)

    def damage_of(self, id: str) -> StoreDamaged | None:
        """Damage for which a procedure stands still for good; None when it is sound, or unknown."""
        return error_of(self._state.damage, id)

    @property
    def epoch(self) -> int:
        """The life of the manager that this is."""
        return self._state.counters.epoch

    @property
    def parkings(self) -> int:
        """Number of times that a procedure was parked: another number than before means that some may be new."""
        return self._state.types.parkings

    def batch_of(self, root: str) -> int:
        """The number of the last batch that changed a tree; -1: it is not in memory."""
        tree = self._state.residents.trees.get(root)
        return -1 if tree is None else tree.batch

    def parked(self) -> Iterator[Parked]:
        """Procedures in memory that are parked; read it at once."""
        return parked_residents(self._state)

    def obstacle_of(self, id: str, members: Sequence[ProcedureRecord] = ()) -> Parked | None:
        """The parked procedure that keeps this one from ending; None when none does, or it is unknown.

        `members` are those of its tree as they are stored, when that is not in memory.
        """
        state = self._state
        return obstacle_of(state, id) if id in state.residents.procs else obstacle_of_stored(state.types, id, members)

    @property
    def in_hand(self) -> int:
        """Steps in workers' hands."""
        return len(self._state.workers.table.in_hand)

    @property
    def queued(self) -> int:
        """Procedures that could run if a worker had room."""
        return len(self._state.queues.run_queue)

    def queue_age(self, now: float) -> float:
        """Seconds that the procedure has waited for a worker which waits longest; 0 when none waits."""
        return self._state.queues.run_queue.oldest(now)

    def claimable(
        self, host: int, slots: int, held: Sequence[HeldSteps]
    ) -> list[tuple[WorkerReady, tuple[RunStep, ...]]]:
        """Workers of a host that worked for an earlier leader, and live on, each with its steps that count."""
        return adoption.claimable(self._state, host, slots, held)

    @property
    def unoffered(self) -> Mapping[str, tuple[str, str, int]]:
        """As `HostTable.unoffered`."""
        return self._state.workers.table.hosts.unoffered

    def wants_worker_for(self, id: str) -> bool:
        """True if a worker was asked for that is this procedure's own, and it has not ended since."""
        return id in self._state.workers.hired

    def view(self, id: str) -> ProcedureRecord | None:
        """The head of one in memory or in the cold run queue; not to be changed, and valid until the next event."""
        return self._state.residents.procs.get(id) or self._state.queues.run_queue.cold.get(id)

    def phase(self, record: ProcedureRecord) -> tuple[Phase, str | None]:
        """Phase of a procedure, and the reason in words."""
        state = self._state
        still = state.damage.procedures.get(record.id)
        if still is None and record.type_name not in state.types.metas:
            still = no_class_registered(record.type_name, state.types.metas)
        phase = phase_of(
            record,
            running=record.id in state.workers.table.in_hand,
            waits_for_locks=state.locks.table.is_waiting(record.id),
            stands_still=still is not None,
        )
        if phase not in {Phase.DONE, Phase.PARKED, Phase.RUNNING} and record.id not in state.workers.table.in_hand:
            stillness = self._why_still(record)
            if stillness is not None:
                return stillness
        if phase is Phase.LOCKED_OUT:
            return phase, why_waiting(state.locks.table, record.id)
        if phase is Phase.PARKED:
            return phase, record.parked or still
        if (
            state.queues.postponed
            and phase in {Phase.QUEUED, Phase.ROLLING_BACK}
            and (again := why_put_off(state.queues, record))
        ):
            return (Phase.RETRYING if phase is Phase.QUEUED else phase), again
        if phase is Phase.QUEUED:
            return phase, reason_of(record, phase) or why_queued(state, record)
        reason = reason_of(record, phase)
        if phase is Phase.ROLLING_BACK and not record.undoing and state.workers.table.runs_a_step(record.id):
            still = f"step {record.step} still runs, and its undo waits for it"
            return phase, still if reason is None else f"{reason}; {still}"
        return phase, reason

    @property
    def removals(self) -> tuple[str, ...]:
        """Roots of trees that are half removed: `RemovalContinued` is due for each."""
        return tuple(self._state.ended.removals)

    @property
    def is_removing(self) -> bool:
        """Something was removed by a decision that may not be stored yet."""
        return bool(self._state.ended.removed)

    def acknowledged(self, until: float) -> Iterator[str]:
        """Finished roots whose results were taken at that time or before, the first first; read it at once."""
        return (root for root, at in self._state.ended.acknowledged.items() if at <= until)

    def published(self) -> list[str]:
        """Targets of the events by name that are kept, for `too_old`; a copy that stays as it is."""
        return signals.published(self._state.signals)

    def too_old(self, targets: Iterable[str], at: float) -> tuple[tuple[str, int], ...]:
        """Target and number of events under these targets that have been kept long enough at the time `at`."""
        return signals.too_old(self._state, targets, at)

    def knows_ask(self, id: str, ask: AskKey) -> bool:
        """True if this ask is kept for its procedure, or was taken by one that has not ended."""
        return is_repeated(self._state.signals, id, ask.mark)

    def _why_still(self, record: ProcedureRecord) -> tuple[Phase, str] | None:
        """Reason why a procedure is held back: it or an ancestor is paused, or its retried tree waits for its locks."""
        tree = self._state.residents.trees.get(record.root)
        if tree is None or not tree.is_still(record.id):
            return None
        for name in tree.lineage(record.id):
            why = tree.members[name].paused
            if why is not None:
                return Phase.PAUSED, why if name == record.id else f"{name} is paused: {why}"
        if not self._state.locks.table.is_waiting(tree.root):
            return None
        return Phase.LOCKED_OUT, f"what its tree held is taken again: {why_waiting(self._state.locks.table, tree.root)}"

    def lock_waiters(self) -> list[LockWaiter]:
        """Procedures that wait for locks, in the order of the queue; a copy that stays as it is."""
        return self._state.locks.table.queue()

    def lock_holders(self) -> Mapping[str, Mapping[str, LockMode]]:
        """All held keys by procedure; not to be changed, and only valid until the next event."""
        return self._state.locks.table.holders()

    def fingerprint(self) -> dict[str, Any]:
        """Equal for engine states with the same durable facts; trees that may leave memory are left out."""
        return fingerprint(self._state)
