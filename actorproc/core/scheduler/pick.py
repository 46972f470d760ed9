"""Pick-next: the run queue merged with steps that wait for slots, under the shares of classes of work."""

from __future__ import annotations

import math
from collections.abc import Callable

from actorproc.core.queues.run_queue import DEFAULT_CLASS, OWN_CLASS, is_new_root
from actorproc.core.queues.worker_shares import WorkerShares
from actorproc.core.queues.worker_table import STEAL_AFTER, InHand, Worker
from actorproc.core.scheduler.lone_steps import why_alone
from actorproc.core.scheduler.placement import could_go_to, demand_in, is_passed_over, lane_of, note_demand, share_of
from actorproc.core.state.engine_state import EngineState
from actorproc.core.state.parts.queues import WorkQueues
from actorproc.core.state.step_limits import known_limits_of
from actorproc.model.rows.records import WITH_RUNNING, WITH_SLOT, ProcedureRecord
from actorproc.model.rows.writes import PutStart
from actorproc.model.states import ProcedureState

__all__ = [
    "changes_lane",
    "keep_nothing",
    "leave_limits",
    "leave_queue",
    "lend_slots",
    "may_steal",
    "needs_slots",
    "next_up",
    "on_suspended",
    "open_workers",
    "steal_at",
    "step_aside",
    "stuck_behind",
    "take_turn",
    "wants_another_worker",
    "why_queued",
    "work_class_of",
]


def work_class_of(state: EngineState, record: ProcedureRecord) -> str:
    """The lane of a procedure's steps: their class of work, with what they ask of a host; or workers of one's own.

    Without shares all are of one class.
    """
    work_class = DEFAULT_CLASS if state.workers.shares is None else state.types.metas[record.type_name].work_class
    if state.types.sorts_work:
        known = known_limits_of(state.types, record)
        if known.demand is not None:
            if known.demand.alone:
                state.workers.table.hosts.lone[known.demand.key] = known.demand
            else:
                note_demand(state, known.demand, record)
        if known.limits.dedicated:
            return OWN_CLASS
        if known.demand is not None:
            return lane_of(work_class, known.demand)
    return work_class


def next_up(state: EngineState, barred: set[str]) -> str | None:
    """The procedure whose turn it is, of the lanes that are not barred; it stays where it waits."""
    if state.workers.shares is None and not state.types.sorts_work:
        if barred:
            return None
        best = state.queues.run_queue.peek()
        if len(state.queues.key_limits):
            best = _earlier(best, state.queues.key_limits.peek(DEFAULT_CLASS, state.decision.now))
    else:
        best = None
        for work_class in {*_lanes(state.queues), OWN_CLASS} - barred:
            if is_passed_over(state, work_class):
                continue
            best = _earlier(best, state.queues.run_queue.peek(work_class))
            best = _earlier(best, state.queues.key_limits.peek(work_class, state.decision.now))
    if best is None:
        return None
    if state.queues.run_queue.cold and (record := state.queues.run_queue.cold.get(best[1])) is not None:
        state.residents.make_resident(record)
    return best[1]


def _earlier(one: tuple[float, str] | None, other: tuple[float, str] | None) -> tuple[float, str] | None:
    if one is None or other is None:
        return one if other is None else other
    return min(one, other)


def _lanes(queues: WorkQueues) -> set[str]:
    """Lanes whose steps may want a worker of those that are for all."""
    return {*queues.run_queue.classes(), *queues.key_limits.classes()} - {OWN_CLASS}


def _wanting(state: EngineState) -> set[str]:
    """Classes of work that may want a worker of those that are for all."""
    lanes = _lanes(state.queues)
    if not state.types.sorts_work:
        return lanes
    return {share_of(lane) for lane in lanes if not is_passed_over(state, lane)}


def open_workers(state: EngineState, shares: WorkerShares, record: ProcedureRecord) -> list[Worker]:
    """Workers that may get a step of this procedure's class of work."""
    return shares.open_to(state.workers.table, share_of(work_class_of(state, record)), _wanting(state))


def step_aside(state: EngineState) -> bool:
    """Have procedures that no host has room for wait in the run queue, and not for slots; True if one did.

    Others that wait for the same slots must not wait for the host as well.
    """
    moved = False
    for lane in state.queues.key_limits.classes():
        if demand_in(lane) and is_passed_over(state, lane):
            while (first := state.queues.key_limits.peek(lane, state.decision.now)) is not None:
                record = state.residents.procs[first[1]]
                state.queues.key_limits.discard(record.id)
                _wait_in(state, record, lane, state.queues.run_queue.put_back)
                moved = True
    return moved


def changes_lane(state: EngineState, record: ProcedureRecord) -> bool:
    """It was cold when its type began to wait in a lane of its own, and goes there now."""
    if record.type_name not in state.types.divided:
        return False
    lane, run_queue = work_class_of(state, record), state.queues.run_queue
    if run_queue.class_of(record.id) in {None, lane}:
        return False
    run_queue.discard(record.id)
    _wait_in(state, record, lane, run_queue.push)
    return True


def _wait_in(state: EngineState, record: ProcedureRecord, lane: str, put: Callable[..., None]) -> None:
    lent = state.residents.trees[record.root].lent
    put(
        record.id,
        root=record.root,
        priority=record.priority if lent is None else max(record.priority, lent),
        is_new_root=is_new_root(record),
        now=state.decision.now,
        work_class=lane,
    )


def needs_slots(state: EngineState, record: ProcedureRecord) -> bool:
    """It stepped aside, and asks for its slots again now that a host has room; it stays first."""
    if not record.limit_keys or record.id not in state.queues.run_queue.live:
        return False
    if not state.queues.key_limits.concerns(record):
        return False
    lane = work_class_of(state, record)
    order = state.queues.run_queue.peek(lane)
    state.queues.run_queue.discard(record.id)
    state.queues.key_limits.wait(record, order[0] if order is not None else 0.0, lane)
    lend_slots(state, record)
    return True


def wants_another_worker(state: EngineState) -> bool:
    """True if a step waits that one worker more than there are might get."""
    shares = state.workers.shares
    wanting: set[str] = set() if shares is None else _wanting(state)
    table = state.workers.table
    for worker in table.workers.values() if len(table.in_hand) > table.busy else ():
        if len(worker.queue) < 2 or worker.threaded:  # they run beside each other, so none waits
            continue
        if shares is None or shares.would_use_another(state.workers.table, worker.work_class, wanting):
            return True
    kept_out = {
        lane
        for lane in (set() if shares is None else _lanes(state.queues))
        if shares is not None and not shares.would_use_another(state.workers.table, share_of(lane), wanting)
    }
    # Who waits for slots that are free waits for a worker only.
    return next_up(state, kept_out) is not None


def take_turn(state: EngineState, record: ProcedureRecord) -> None:
    """It is handed out now: it leaves the queue, with its slots if it waited for any."""
    if not state.queues.run_queue.take(record.id, state.decision.now) and record.id in state.queues.key_limits:
        for start in state.queues.key_limits.grant(record, state.decision.now):
            state.decision.write(PutStart(start))
        state.decision.touch(record)


def leave_queue(state: EngineState, record: ProcedureRecord) -> None:
    """It waits for something else now, and holds no slots meanwhile."""
    if not state.queues.run_queue.take(record.id, state.decision.now):
        state.queues.key_limits.discard(record.id)


def lend_slots(state: EngineState, record: ProcedureRecord) -> None:
    """It begins to wait for slots or locks: ancestors that wait for it lend theirs until they go on."""
    if not state.queues.key_limits.holders:
        return
    if record.admitted in WITH_SLOT:
        _give_back(state, record)
    tree = state.residents.tree_of(record)
    if record.undoing:
        # The undo of the tree waits: neither those that wait to be undone, nor those above that wait for the end of
        # that, may hold up whom it waits for.
        tops = {name for top in tree.scopes for name in tree.lineage(top)}
        lenders = [member for member in tree.members.values() if member.rolling or member.id in tops]
    else:
        # A procedure without children to wait for does not wait for one that outlived its parent either.
        above = [tree.members[name] for name in tree.lineage(record.id)[1:]]
        lenders = [member for member in above if member.pending or member.rolling]
    for lender in lenders:
        if lender.admitted in WITH_SLOT and _waits(lender) and not state.workers.table.runs_a_step(lender.id):
            _give_back(state, lender)


def on_suspended(state: EngineState, record: ProcedureRecord) -> None:
    """A parent of unfinished children waits now; it keeps its slots unless its tree waits for some, or for locks."""
    if record.admitted not in WITH_SLOT:
        return
    if (
        state.queues.key_limits.waits_in(record.root)
        or state.residents.tree_of(record).waiting
        or _waits_aside(state, record.root)
    ):
        _give_back(state, record)


def keep_nothing(state: EngineState, record: ProcedureRecord) -> None:
    """It runs no step for now, though it has not ended: those it waits for may need its slots."""
    if record.admitted in WITH_SLOT:
        _give_back(state, record)


def _waits_aside(state: EngineState, root: str) -> bool:
    """True if a member of the tree asks for slots once it has a worker of its own, or a host has room for it."""
    found = (state.residents.procs[name] for name in state.queues.awaiting_worker.names())
    if any(record.root == root and record.limit_keys for record in found):
        return True
    members, waiting = state.residents.trees[root].members.values(), state.queues.run_queue.live
    return any(one.limit_keys and one.id in waiting and state.queues.key_limits.concerns(one) for one in members)


def leave_limits(state: EngineState, record: ProcedureRecord) -> None:
    """It has ended: its slots, and its place among the running, are for others."""
    if record.admitted in WITH_SLOT:
        state.queues.key_limits.release(record)
    if record.admitted in WITH_RUNNING:
        state.queues.admission.release(record)
    record.admitted = 0
    state.decision.touch(record)


def _waits(record: ProcedureRecord) -> bool:
    return record.rolling or record.state is not ProcedureState.RUNNABLE


def _give_back(state: EngineState, record: ProcedureRecord) -> None:
    state.queues.key_limits.release(record)
    state.decision.touch(record)


def may_steal(state: EngineState) -> bool:
    """True if prefetched steps may be asked back: not while others are queued, unless shares keep those waiting."""
    return state.switches.hands_out and (
        state.workers.shares is not None or state.types.sorts_work or not state.queues.run_queue
    )


def stuck_behind(state: EngineState, now: float) -> list[tuple[Worker, list[InHand]]]:
    """Prefetched steps behind silent workers' running ones that an idle worker may have."""
    found = state.workers.table.stuck_behind(now)
    if not found or (state.workers.shares is None and not state.types.sorts_work):
        return found
    wanting = _wanting(state)
    idle = [worker for worker in state.workers.table.for_all() if not worker.queue]
    stuck = []
    for worker, behind in found:
        others = idle
        if state.workers.shares is not None:
            open_to = state.workers.shares.open_to(state.workers.table, worker.work_class, wanting)
            others = [other for other in open_to if not other.queue]
        may_go = [item for item in behind if any(could_go_to(state.workers, item, worker, other) for other in others)]
        if may_go:
            stuck.append((worker, may_go))
    return stuck


def steal_at(state: EngineState) -> float | None:
    """Time at which prefetched steps should be asked back, None when there is no worker that may have them."""
    at = state.workers.table.steal_at()
    if at is None or (state.workers.shares is None and not state.types.sorts_work):
        return at
    times = [worker.active_at for worker, _ in stuck_behind(state, math.inf)]
    return min(times) + STEAL_AFTER if times else None


def why_queued(state: EngineState, record: ProcedureRecord) -> str | None:
    """The limit that keeps a procedure waiting; None when it only waits for a worker."""
    if record.id in state.queues.admission:
        return f"for one of the {state.queues.admission.holders} that run to end (Config.max_running)"
    if state.workers.table.hosts.has_none:
        return "for a host: none has joined, and the manager that leads runs no steps itself"
    why = state.queues.key_limits.why(record.id, state.decision.now)
    if not state.types.sorts_work or record.type_name not in state.types.metas:
        return why
    demand = known_limits_of(state.types, record).demand
    if demand is not None and demand.alone:
        return why or why_alone(state.workers, demand)
    return why if demand is None else state.workers.table.hosts.why(demand) or why
