"""From runnable to handed out: what a procedure still needs before a step, and which worker gets it."""

from __future__ import annotations

import msgspec

from actorproc.core.lock_manager import acquire
from actorproc.core.lock_manager.poison import declare
from actorproc.core.queues.host_table import Demand
from actorproc.core.queues.run_queue import DEFAULT_CLASS, is_new_root
from actorproc.core.queues.worker_table import InHand, Worker
from actorproc.core.scheduler.dedicated import can_go_on, own_worker
from actorproc.core.scheduler.lone_steps import seat_lone_steps
from actorproc.core.scheduler.pick import (
    changes_lane,
    keep_nothing,
    leave_queue,
    lend_slots,
    may_steal,
    needs_slots,
    next_up,
    open_workers,
    step_aside,
    stuck_behind,
    take_turn,
    work_class_of,
)
from actorproc.core.scheduler.placement import keep_worker_for, labels_alone, leave_to_others, on_hosts, share_of
from actorproc.core.scheduler.reload import open_to
from actorproc.core.state import head
from actorproc.core.state.engine_state import EngineState
from actorproc.core.state.parts.types import KnownLimits
from actorproc.core.state.step_limits import alone, known_limits_of
from actorproc.core.state.tree import Tree
from actorproc.model.ids import Mode, StepToken
from actorproc.model.messages.commands import RunStep, TakeBack
from actorproc.model.policies import StepLimits
from actorproc.model.rows.cold_trees import is_debounced
from actorproc.model.rows.records import WITH_RUNNING, ProcedureRecord, UndoRecord
from actorproc.model.rows.writes import PutUndo
from actorproc.model.slots import host_of
from actorproc.model.states import TERMINAL, ProcedureState
from actorproc.model.trace_context import step_context

__all__ = [
    "end_debounces",
    "fill",
    "go_on",
    "hurry",
    "let_in",
    "note_unbegun",
    "park",
    "push_unit",
    "steal",
    "wake",
]

# Looked up once: CPython 3.11 runs Python code for every member that is taken from its enum.
_RUNNABLE, _EXECUTE, _ON_TIMEOUT = ProcedureState.RUNNABLE, Mode.EXECUTE, Mode.ON_TIMEOUT


def wake(state: EngineState, record: ProcedureRecord, *, to_the_back: bool = False, to_the_front: bool = False) -> None:
    """Bring a procedure one step nearer to running: park, wait for a due time or for locks, or queue it.

    Safe to call at any time: a procedure that cannot run, or runs already, is left alone.
    """
    if record.id in state.workers.table.in_hand:
        return
    if not record.undoing and (record.rolling or record.state is not _RUNNABLE):
        return
    if record.parked is not None or record.type_name not in state.types.metas:
        park(state, record)
        return
    if record.due_at is not None and not _ends_wait(state, record, record.due_at):
        return
    tree = state.residents.trees[record.root]
    if record.bypassing or (record.parent is not None and _is_held_back(tree, record.id, record.parent)):
        return
    if tree.still and tree.is_still(record.id):
        return
    is_new = to_the_back or is_new_root(record)
    if state.queues.admission.capacity is not None and not _is_let_in(state, record):
        return
    if not record.locked and not _has_locks(state, record):
        lend_slots(state, record)
        return
    priority = record.priority if tree.lent is None else max(record.priority, tree.lent)
    if record.limit_keys and state.queues.key_limits.concerns(record):
        order = state.queues.run_queue.virtual_deadline(priority, state.decision.now, is_new_root=is_new)
        state.queues.key_limits.wait(record, order, work_class_of(state, record))
        lend_slots(state, record)
        return
    run_queue = state.queues.run_queue
    if record.id in run_queue.cold:
        return
    put = run_queue.put_back if to_the_front else run_queue.push
    put(
        record.id,
        root=record.root,
        priority=priority,
        is_new_root=is_new,
        now=state.decision.now,
        work_class=DEFAULT_CLASS
        if state.workers.shares is None and not state.types.sorts_work
        else work_class_of(state, record),
    )


def _ends_wait(state: EngineState, record: ProcedureRecord, due_at: float) -> bool:
    """True if its time has come. It waits for further submits also while a pause or a closed gate keeps it back."""
    if due_at > state.decision.now:
        state.timers.add(due_at, record.id)
        return False
    if is_debounced(record):
        tree = state.residents.trees[record.root]
        if not state.switches.hands_out or (tree.still and tree.is_still(record.id)):
            state.residents.overdue[record.id] = None
            return False
        head.end_debounce(record)
    head.wait_no_longer(record)
    state.decision.touch(record)
    return True


def end_debounces(state: EngineState) -> None:
    """Steps are handed out again: the waits for further submits end whose time is over."""
    names = list(state.residents.overdue)
    state.residents.overdue.clear()
    for name in names:  # one that is paused itself is overdue again
        wake(state, state.residents.procs[name])


def _is_let_in(state: EngineState, record: ProcedureRecord) -> bool:
    """True if a root counts as running, from now on if there is room; its members are let in with it."""
    if record.parent is not None or record.undoing or record.admitted in WITH_RUNNING:
        return True
    if record.step > 1 or record.attempt or record.run > 1:
        # It began before there was a limit, or is retried: it may hold what those inside wait for.
        state.queues.admission.admit(record)
        state.decision.touch(record)
        return True
    order = state.queues.run_queue.virtual_deadline(record.priority, state.decision.now, is_new_root=True)
    if not state.queues.admission.ask(record, order):
        return False
    state.decision.touch(record)
    return True


def let_in(state: EngineState) -> None:
    """A running root has ended: the next one comes in and asks for what else it needs."""
    while (name := state.queues.admission.next()) is not None:
        record = state.residents.procs[name]
        state.queues.admission.admit(record)
        state.decision.touch(record)
        wake(state, record)


def hurry(state: EngineState) -> None:
    """A tree has a higher priority now, lent to it: what is queued of it is queued again."""
    tree = state.residents.trees.get(state.follow_ups.hurried.popitem()[0])
    if tree is None:
        return
    for record in list(tree.members.values()):
        if record.id in state.queues.run_queue.live or record.id in state.queues.key_limits:
            state.queues.run_queue.discard(record.id)
            wake(state, record)


def go_on(state: EngineState, tree: Tree, top: str) -> None:
    """Nothing keeps `top` and its descendants from running any more: wake those that have something to do."""
    # In the old order of the queue for locks, as after a restart.
    for record in sorted(tree.below(top), key=lambda record: (not record.ticket, record.ticket)):
        wake(state, record)
    state.follow_ups.scopes_to_advance.update(tree.scopes)


def _has_locks(state: EngineState, record: ProcedureRecord) -> bool:
    """Ask for the locks of a step. A key that was poisoned since the procedure was accepted is refused now."""
    if state.locks.poisons and not record.undoing and not state.locks.table.is_waiting(record.id):
        path = acquire.poisoned_key(state, record)
        if path is not None:
            state.follow_ups.refused[record.id] = path
            return False
    return acquire.ask(state, record)


def park(state: EngineState, record: ProcedureRecord, needs: str = "") -> None:
    """Set a procedure aside until its type is registered, or the other one that it ``needs``."""
    parked = state.types.parked.setdefault(record.type_name, {})
    if record.id not in parked:  # else a signal found it where it was
        parked[record.id] = None
        state.types.count_parking()
    keep_nothing(state, record)  # also where an earlier run under this id was parked
    if needs and needs != record.type_name:
        state.types.parked.setdefault(needs, {})[record.id] = None


def _is_held_back(tree: Tree, child: str, parent: str) -> bool:
    """True if `max_parallel` of the parent keeps this child back."""
    held = tree.held.get(parent)
    return held is not None and child in held


def fill(state: EngineState) -> None:
    """Hand out steps while workers have room."""
    if not state.switches.hands_out:
        return
    if state.workers.table.hosts.lone:
        seat_lone_steps(state)
    if state.follow_ups.asking or state.types.sorts_work:
        _ask_and_wake(state)
    barred: set[str] = set()
    kept: dict[str, int] = {}
    while (procedure := next_up(state, barred)) is not None or (state.types.sorts_work and step_aside(state)):
        if procedure is None:
            continue
        record = state.residents.procs[procedure]
        if record.deadline is not None and state.is_late(record):
            state.queues.run_queue.discard(procedure)
            state.follow_ups.overdue[procedure] = None
            continue
        known = known_limits_of(state.types, record)
        if known.demand is not None and (needs_slots(state, record) or changes_lane(state, record)):
            continue
        worker = _worker_for(state, record, known, known.demand, kept)
        if worker is not None:
            take_turn(state, record)
            _hand_out(state, worker, record, known)
            if barred:
                barred = set(kept)
            elif state.workers.table.is_full and not state.types.sorts_work:
                return
        elif state.workers.shares is None and not state.types.sorts_work:
            return
        else:
            _set_aside(state, record, known, barred, kept)


def _set_aside(
    state: EngineState, record: ProcedureRecord, known: KnownLimits, barred: set[str], kept: dict[str, int]
) -> None:
    """No worker may get the next step: it waits for its own, or those of its lane wait for another time."""
    if known.limits.dedicated:
        state.queues.awaiting_worker.put(record.id)
        leave_queue(state, record)
        if record.id not in state.workers.hired:
            # Others have all the workers there may be of that kind, and keep them while they wait for slots.
            keep_nothing(state, record)
            if record.limit_keys and state.queues.key_limits.concerns(record):
                lend_slots(state, record)
        return
    lane = work_class_of(state, record)
    barred.add(lane)
    if known.demand is not None and not known.demand.alone:
        keep_worker_for(state.workers, lane, known.demand, kept)


def _ask_and_wake(state: EngineState) -> None:
    """Ask about aborts, and look whether hosts have room now for those that wait for workers of their own."""
    for asked in list(state.follow_ups.asking):
        _ask_abort(state, asked)
    hosts_changed = state.queues.awaiting_worker.names() and state.workers.hosts_changed()
    if hosts_changed or state.workers.table.hosts.kept:
        for name in state.queues.awaiting_worker.names():
            record = state.residents.procs[name]
            if can_go_on(state, record):
                state.queues.awaiting_worker.discard(name)
                wake(state, record, to_the_front=True)


def _ask_abort(state: EngineState, procedure: str) -> None:
    record = state.residents.procs.get(procedure)
    if record is None or record.state in TERMINAL or record.rolling:
        del state.follow_ups.asking[procedure]
        return
    if state.residents.has_no_return(record):
        # Its tree went beyond the point of no return meanwhile: the wish has no effect any more.
        del state.follow_ups.asking[procedure]
        wake(state, record)
        return
    if procedure in state.workers.table.in_hand or record.type_name not in state.types.metas:
        return
    if state.residents.tree_of(record).is_still(procedure):
        return
    known = known_limits_of(state.types, record)
    worker = _worker_for(state, record, known, labels_alone(state.workers, known.demand), {})
    if worker is not None:
        del state.follow_ups.asking[procedure]
        state.queues.run_queue.discard(procedure)
        _send(state, worker, record, known, Mode.ASK_ABORT, record.step, None)


def _worker_for(
    state: EngineState, record: ProcedureRecord, known: KnownLimits, demand: Demand | None, kept: dict[str, int]
) -> Worker | None:
    """The worker that gets the next step; None when there is none, and the procedure waits.

    `kept`: by lane, slots of workers that are kept for other steps.
    """
    if known.is_plain and state.workers.shares is None and not state.workers.outdated and not state.types.sorts_work:
        return state.workers.table.choose(record.type_name, state.workers.warm.get(record.id))
    limits = known.limits
    if limits.dedicated:
        return own_worker(state, record, demand)
    threads = 1 if record.id in state.workers.suspects else limits.beside
    among = None if state.workers.shares is None else open_workers(state, state.workers.shares, record)
    if state.workers.outdated:
        among = open_to(state.workers, record.id, among)
    if demand is not None:
        among = on_hosts(state.workers, demand, among)
    elif state.types.sorts_work:
        among = leave_to_others(state.workers, record, kept, among)
    is_task = bool(limits.tasks)
    return state.workers.table.choose(record.type_name, state.workers.warm.get(record.id), threads, among, is_task)


def _hand_out(state: EngineState, worker: Worker, record: ProcedureRecord, known: KnownLimits) -> None:
    head.count_attempt(record)
    if record.undoing:
        unit = state.residents.tree_of(record).units[record.undoing]
        _send(state, worker, record, known, Mode.ROLLBACK, record.undo_step or record.records + 1, unit.label)
        return
    if record.poisons and record.step == 1 and record.attempt == 1:
        # The keys it named when it was submitted; later ones come with the answer of the step before.
        declare(state, record, record.poisons)
    is_step = record.event is None  # else on_timeout is called: the step itself, and its unit, are still to come
    if is_step and record.unit is not None and record.unit != record.last_unit:
        push_unit(state, record, record.unit)
    if is_step and record.unit_no_return and not (root := state.residents.procs[record.root]).no_return:
        # The mark is durable before the step runs: from here on failures only retry forward.
        root.no_return = True
        state.decision.touch(root)
    if record.unit is None:
        # What it does next is no repetition of the unit before: coming back to that one is a new unit.
        record.last_unit = None
    mode = _EXECUTE if is_step else _ON_TIMEOUT
    _send(state, worker, record, known, mode, record.step, None)


def push_unit(state: EngineState, record: ProcedureRecord, label: str) -> None:
    """The step that begins now is to be undone when its tree fails."""
    root = state.residents.procs[record.root]
    unit = UndoRecord(record.root, root.undo_next, record.id, label, record.step)
    root.undo_next += 1
    record.last_unit = label
    state.residents.tree_of(record).push(unit)
    state.decision.write(PutUndo(unit))
    state.decision.touch(root)


def note_unbegun(state: EngineState, record: ProcedureRecord) -> None:
    """The attempt that was handed out last has not begun its step: if none before has, the next one is the first."""
    tree = state.residents.tree_of(record)
    units = tree.units_of.get(record.id)
    if units and (units[-1].step, units[-1].attempt) == (record.step, record.attempt):
        unit = msgspec.structs.replace(units[-1], attempt=record.attempt + 1)
        tree.exchange_newest(unit)
        state.decision.write(PutUndo(unit))


def _send(
    state: EngineState,
    worker: Worker,
    record: ProcedureRecord,
    known: KnownLimits,
    mode: Mode,
    step: int,
    unit: str | None,
) -> None:
    if worker.host or record.past is not None:
        head.note_host(record, host_of(worker.id.slot))
    state.decision.touch(record)
    procedure, type_name, attempt = record.id, record.type_name, record.attempt
    token = StepToken(state.counters.epoch, worker.id, procedure, step, attempt, mode)
    if state.workers.outdated and worker.id not in state.workers.outdated:
        state.workers.renewed.add(procedure)
    limits = known.limits
    threads = 1 if known.is_plain or procedure in state.workers.suspects else limits.beside
    if not worker.queue and state.workers.shares is not None:
        worker.work_class = share_of(work_class_of(state, record))
    item = InHand(token, type_name, threads=threads)
    if limits.tasks:
        item.is_task = True
    if known.demand is not None and mode is not Mode.ASK_ABORT:
        item.demand = known.demand
    state.workers.table.give(worker, item, state.decision.now)
    state.residents.trees[record.root].running.add(procedure)
    state.decision.commands.append(
        RunStep(
            token,
            type_name,
            attempt == 1 and state.workers.warm.get(procedure) == worker.id,
            record.root,
            record.parent,
            attempt > 1,
            record.aborting and state.residents.shows_abort(record),
            record.deadline,
            record.awaiting,
            unit,
            record.state_at or record.records,
            record.payload,
            limits.wall_time,
            limits.grace,
            limits.heartbeat,
            limits=None if known.is_plain else _special(limits, threads),
            recovered=record.epoch != state.counters.epoch,
            generation=record.generation,
            begun=record.begun,
            step_name=record.current_name,
            queued=state.queues.run_queue.waited,
            trace=b"" if record.past is None else step_context(record, token),
        )
    )
    state.queues.run_queue.waited = 0.0


def _special(limits: StepLimits, threads: int) -> StepLimits | None:
    """Limits beside the wall time that the engine and the worker must know."""
    if not limits.is_watched and not limits.concerns_worker:
        return None
    return limits if threads == limits.beside else alone(limits)


def steal(state: EngineState) -> None:
    """Ask back what waits behind a silent worker's running step while another worker is idle."""
    if not may_steal(state):
        return
    for worker, behind in stuck_behind(state, state.decision.now):
        # Leave half: the running step may end any moment, and the idle worker needs only a share.
        share = behind[len(behind) // 2 :]
        for item in share:
            item.recalled = True
        state.decision.command(TakeBack(worker.id, tuple(item.token for item in share)))
