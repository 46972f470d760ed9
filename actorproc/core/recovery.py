"""Memory from the store: start-up and recovery are the same code, and so is the way back after a failed commit."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Container, Iterable, Sequence

from actorproc.core.lifecycle.finish import end
from actorproc.core.lifecycle.renewal import drop_stale
from actorproc.core.lock_manager import acquire
from actorproc.core.queues.host_table import HostTable
from actorproc.core.queues.worker_table import InHand
from actorproc.core.results.abort import may_abort, press_abort
from actorproc.core.scheduler.cancellation import resume_cancelling
from actorproc.core.scheduler.dedicated import say_goodbye
from actorproc.core.scheduler.schedule import park, wake
from actorproc.core.state.engine_state import EngineState
from actorproc.core.state.head import runs_alone
from actorproc.core.state.parts.residents import ResidentSet
from actorproc.core.state.parts.settings import DEFAULT_SCHEDULING
from actorproc.core.state.quarantine import exclude, exclude_damaged
from actorproc.core.state.signal_ids import recall
from actorproc.core.state.step_limits import known_limits_of
from actorproc.core.state.transitions import Trigger, move
from actorproc.core.state.tree import Tree
from actorproc.model.ids import Mode, StepToken
from actorproc.model.messages.events import WorkerReady
from actorproc.model.policies import LockMode, Scheduling, TypeMeta
from actorproc.model.rows.cold_trees import COLD_STATES, is_alone
from actorproc.model.rows.records import LockRecord, ProcedureRecord, UndoRecord
from actorproc.model.rows.schedules import ScheduleRecord
from actorproc.model.rows.snapshot import RecoverySnapshot
from actorproc.model.slots import host_of, is_absent
from actorproc.model.states import TERMINAL, ProcedureState

__all__ = ["hold_back", "load_tree", "rebuild", "resume", "take_up"]

# Looked up once: CPython 3.11 runs Python code for every member that is taken from its enum.
_RUNNABLE = ProcedureState.RUNNABLE


def rebuild(
    snapshot: RecoverySnapshot,
    now: float,
    workers: Sequence[tuple[WorkerReady, tuple[StepToken, ...]]],
    scheduling: Scheduling = DEFAULT_SCHEDULING,
    types: Iterable[TypeMeta] = (),
    hosts: HostTable | None = None,
) -> tuple[EngineState, list[Tree]]:
    """An engine state equal to the one that wrote this snapshot, before anything new is decided.

    Beside it the trees that have more under way than one procedure with its next step, for `resume` and `take_up`.
    There may be a hundred thousand of the others, and the first step would wait for each look at them. Most of these
    go to the cold run queue.
    """
    state = EngineState(snapshot.epoch, scheduling, now)
    for meta in types:
        state.types.know(meta)
    state.counters.restore(snapshot.next_seq, snapshot.next_ticket, snapshot.audits)
    state.switches.pause(snapshot.paused)
    for poison in snapshot.poisons:
        state.locks.poisons[poison.path] = poison
    for taken in snapshot.acknowledgements:
        state.ended.acknowledged[taken.root] = taken.at
    for removal in snapshot.removals:
        state.ended.removals[removal.root] = removal
    _take_schedules(state, snapshot.schedules)
    if snapshot.events:
        recall(state.signals, snapshot.events)
    others = _admit_all(state, snapshot, set() if workers else _ordinary_types(state, snapshot))
    busy = dict.fromkeys(record.root for record in others)
    for unit in snapshot.units:
        if unit.root in state.residents.trees:
            state.residents.trees[unit.root].push(unit)
    for root in busy:
        drop_stale(state, state.residents.trees[root])
    exclude_damaged(state, snapshot.damage, busy)
    for lock in snapshot.locks:
        _take_lock(state, lock)
    if workers or hosts is not None:
        _rehire_all(state, workers, now, hosts)
    others = [record for record in others if record.id in state.residents.procs]
    _note_waiting(state, snapshot, others)
    trees = [state.residents.trees[root] for root in busy if root in state.residents.trees]
    for tree in trees:
        _rebuild_tree(state, tree)
    _count(state, snapshot, others)
    return state, trees


def _take_schedules(state: EngineState, schedules: Iterable[ScheduleRecord]) -> None:
    """Each is looked at by the first tick: what its last firing has come to is not in its row."""
    for schedule in schedules:
        state.schedules.put(schedule)
        if schedule.paused is None:
            state.look_at_schedule(schedule.id, state.decision.now)


def _is_plain(record: ProcedureRecord) -> bool:
    """A tree by itself that pushed no unit yet, holds no place of a limit, and wants only its next step."""
    if not is_alone(record) or record.undo_next != 1:
        return False
    if record.state is not _RUNNABLE or record.due_at is not None or record.deadline is not None:
        return False
    if record.failing or record.rolling or record.aborting or record.bypassing or record.undoing:
        return False
    if record.past is not None and runs_alone(record):
        return False
    if record.paused is not None or record.limits is not None or record.finished_at is not None:
        return False
    return record.parked is None and not (record.pending or record.retaking or record.admitted)


def _admit_all(state: EngineState, snapshot: RecoverySnapshot, ordinary: Container[str]) -> list[ProcedureRecord]:
    """Put those of ordinary types that need only a worker into the cold run queue; the heads of all others."""
    later, others = [], []
    # Who has anything else in the store is no plain one, whatever its head says: what is amiss is to be seen.
    named = {lock.holder for lock in snapshot.locks}
    named.update(unit.root for unit in snapshot.units)
    named.update(record.root for record in snapshot.procedures if record.parent is not None)
    for record in snapshot.procedures:
        if not _is_plain(record):
            state.admit(record, stored=True)
            others.append(record)
        elif record.type_name in ordinary and _needs_only_a_worker(record) and record.id not in named:
            later.append(record)
        else:
            state.residents.admit_alone(record)
    state.queues.run_queue.fill(later, state.decision.now)
    return others


def _ordinary_types(state: EngineState, snapshot: RecoverySnapshot) -> set[str]:
    """Classes whose procedures may wait in the cold run queue: nothing is counted or hired before their turn."""
    if snapshot.damage or not state.leaves_outside:
        return set()
    return state.types.metas.keys() - state.types.choosy


def _needs_only_a_worker(record: ProcedureRecord) -> bool:
    """Of a plain one: it asks for no lock and no slot, so no other part has to know of it before its turn."""
    return record.locked and not (record.locks or record.limit_keys)


def _take_lock(state: EngineState, lock: LockRecord) -> None:
    state.locks.table.hold(lock.holder, lock.path, lock.mode)
    if lock.inherited:
        state.locks.inherited.setdefault(lock.holder, {})[lock.path] = LockMode(lock.inherited)
    holder = state.residents.procs.get(lock.holder)
    if holder is not None:
        acquire.note_holder(state, holder)
        state.residents.trees[holder.root].hold(holder.id)


def _note_waiting(state: EngineState, snapshot: RecoverySnapshot, others: Sequence[ProcedureRecord]) -> None:
    """Note the times and events that wake procedures: memory knows nothing else of the trees that are not loaded."""
    if snapshot.cold.due:
        state.timers.adopt(snapshot.cold.due)
    waiting = [
        (record.seq, record.event, record.id)
        for record in others
        if record.event is not None and record.state in COLD_STATES
    ]
    if snapshot.cold.listeners:
        waiting += snapshot.cold.listeners
    for _, event, procedure in sorted(waiting):
        state.signals.subscribers.add(event, procedure)


def _count(state: EngineState, snapshot: RecoverySnapshot, others: Sequence[ProcedureRecord]) -> None:
    """Count procedures for their limits; what is damaged stands still and takes no place of a limit."""
    residents, cold = state.residents, snapshot.cold.roots + len(state.queues.run_queue.cold)
    residents.count_roots(cold + len(residents.procs) - len(others))
    admitted = []
    for record in others:
        if record.state not in TERMINAL:
            if record.parent is None:
                residents.count_roots(1)
            if record.admitted:
                admitted.append(record)
    admitted += snapshot.cold.admitted
    if admitted or snapshot.starts:
        state.queues.key_limits.restore(admitted, snapshot.starts)
        state.queues.admission.restore(admitted, ())


def load_tree(state: EngineState, members: Sequence[ProcedureRecord], units: Sequence[UndoRecord]) -> None:
    """Bring a cold or finished tree back into memory. A resident one is left alone, and so is a removed one."""
    if not members or members[0].root in state.residents.trees or members[0].root in state.ended.removed:
        return
    tree: Tree | None = None
    for record in members:
        tree = state.admit(record, stored=True)
    assert tree is not None
    for unit in units:
        tree.push(unit)
    drop_stale(state, tree)
    exclude(state, tree)
    if not tree.is_bare and tree.holders:
        acquire.note_holder(state, state.residents.procs[tree.root])


def _rehire_all(
    state: EngineState,
    workers: Sequence[tuple[WorkerReady, tuple[StepToken, ...]]],
    now: float,
    hosts: HostTable | None,
) -> None:
    if hosts is not None:
        state.workers.table.hosts.adopt(hosts)
        state.types.divide(hosts.divided)
    state.workers.slot_plan.take_over(
        ready.worker.slot
        for ready, _ in workers
        if ready.reserved is None and not ready.leaving and not host_of(ready.worker.slot)
    )
    for ready, tokens in workers:
        _rehire(state, ready, tokens, now)


def _rehire(state: EngineState, ready: WorkerReady, tokens: tuple[StepToken, ...], now: float) -> None:
    """A worker that lived on while memory was lost, with the steps it still has in hand."""
    leaving = ready.leaving or state.workers.table.hosts.is_draining(ready.host)
    worker = state.workers.table.add(
        ready.worker, now, ready.pid, reserved=ready.reserved, leaving=leaving, host=ready.host
    )
    if ready.reserved is not None:
        state.workers.hired[ready.reserved] = ready.worker
    for token in tokens:
        record = state.residents.procs.get(token.procedure)
        if record is not None:
            item = InHand(token, record.type_name, threads=ready.threads)
            is_known = record.limits or record.type_name in state.types.metas
            if is_known:
                item.is_task = bool(known_limits_of(state.types, record).limits.tasks)
            # The workers of a host that has not joined are on no host that anything could be taken of.
            if is_known and token.mode is not Mode.ASK_ABORT and not is_absent(ready.worker.slot):
                item.demand = known_limits_of(state.types, record).demand
            state.workers.table.give(worker, item, now)
            state.residents.trees[record.root].running.add(record.id)


def _rebuild_tree(state: EngineState, tree: Tree) -> None:
    for record in tree.members.values():
        if record.parked is not None:
            # Also one that nothing wakes now, as its tree fails: its class may come before its undo does.
            park(state, record)
        if record.state in TERMINAL:
            continue
        if record.failing:
            tree.scopes[record.id] = None
        if record.deadline is not None:
            state.timers.add(record.deadline, record.id)
        if record.due_at is not None:
            state.timers.add(record.due_at, record.id)
        if record.pending and record.started < record.width and not record.rolling:
            hold_back(tree, record)


def hold_back(tree: Tree, parent: ProcedureRecord) -> None:
    """Children beyond those released by `max_parallel`: the last ones of the group, in order."""
    children = [tree.members[name] for name in tree.children.get(parent.id, ())]
    awaited = children[len(children) - parent.width :]
    held = [child.id for child in awaited[parent.started :] if child.state not in TERMINAL]
    if held:
        tree.held[parent.id] = OrderedDict.fromkeys(held)


def resume(state: EngineState, busy: Sequence[Tree]) -> None:
    """Queue what was queued: lock waiters in their old order, then everything runnable.

    Procedures with a due time wait for the next tick, even when that time has passed.
    """
    runnable = [
        record
        for tree in state.residents.trees.values()
        for record in tree.members.values()
        if record.due_at is None and (record.undoing or (record.state is _RUNNABLE and not record.rolling))
    ]
    waiters = [record for record in runnable if not record.locked]
    waiters += [record for tree in busy if (record := state.residents.procs[tree.root]).retaking]
    # Trees that hold locks, and undos, ask first, as they stood before the others in the queue.
    for record in sorted(waiters, key=lambda record: (not _goes_before_others(state.residents, record), record.ticket)):
        if record.retaking:
            acquire.has_retaken(state, state.residents.tree_of(record))
        else:
            wake(state, record)
    for record in runnable:
        if record.locked:
            wake(state, record)


def _goes_before_others(residents: ResidentSet, record: ProcedureRecord) -> bool:
    return record.undoing > 0 or bool(residents.tree_of(record).holders)


def take_up(state: EngineState, busy: Sequence[Tree]) -> None:
    """Resume unfinished work: failing scopes, abort requests that were not answered, workers that leave."""
    for worker in list(state.workers.table.workers.values()):
        say_goodbye(state, worker.id)
    for root in state.residents.debounced.values():
        state.timers.add(state.decision.now, root)  # the clock may have been set back meanwhile
    for tree in busy:
        if tree.running:
            resume_cancelling(state, tree)
        for record in tree.members.values():
            if record.ending and record.state not in TERMINAL and not record.rolling:
                # As an older version left it: it has said done, and its children are undone behind it by now.
                move(record, Trigger.CHILDREN_DONE)
                end(state, record, Trigger.FINISHED)
        concerned = [record for record in tree.members.values() if record.failing or record.aborting]
        for record in concerned:
            if record.failing and record.id in tree.scopes:
                state.follow_ups.scopes_to_advance[record.id] = None
        for record in concerned:
            if record.aborting and record.forced:
                press_abort(state, record)
            elif record.aborting and may_abort(state.residents, record):
                state.follow_ups.asking[record.id] = None
