"""Memory from the store: start-up and recovery are the same code, and so is the way back after a failed commit."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Container, Iterable, Sequence

from actorproc.core.lifecycle.finish import end
from actorproc.core.lifecycle.renewal import drop_stale
from actorproc.core.lock_manager import acquire
from actorproc.core.queues.worker_table import InHand
from actorproc.core.results.abort import may_abort, press_abort
from actorproc.core.scheduler.cancellation import resume_cancelling
from actorproc.core.scheduler.dedicated import say_goodbye
from actorproc.core.scheduler.schedule import park, wake
from actorproc.core.state.engine_state import DEFAULT_SCHEDULING, EngineState
from actorproc.core.state.quarantine import exclude, exclude_damaged
from actorproc.core.state.signal_ids import recall
from actorproc.core.state.transitions import Trigger, move
from actorproc.core.state.tree import Tree
from actorproc.model.ids import StepToken
from actorproc.model.messages.events import WorkerReady
from actorproc.model.policies import LockMode, Scheduling, TypeMeta
from actorproc.model.rows.cold_trees import COLD_STATES, is_alone
from actorproc.model.rows.records import WITH_RUNNING, LockRecord, ProcedureRecord, UndoRecord
from actorproc.model.rows.snapshot import RecoverySnapshot
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
) -> tuple[EngineState, list[Tree]]:
    """A book equal to the one that wrote this snapshot, before anything new is decided.

    Beside it the trees that have more under way than one procedure with its next step, for `resume` and `take_up`:
    of the others there may be a hundred thousand, and the first step would wait for each look at them.
    Most of these go to the backlog.
    """
    book = EngineState(snapshot.epoch, scheduling)
    book.now = now
    for meta in types:
        book.know(meta)
    book.next_seq = snapshot.next_seq
    book.next_ticket = snapshot.next_ticket
    book.paused = snapshot.paused
    book.audits = snapshot.audits
    for poison in snapshot.poisons:
        book.poisons[poison.path] = poison
    for taken in snapshot.acknowledgements:
        book.acknowledged[taken.root] = taken.at
    for removal in snapshot.removals:
        book.removals[removal.root] = removal
    if snapshot.events:
        recall(book, snapshot.events)
    others = _admit_all(book, snapshot, set() if workers else _ordinary_types(book, snapshot))
    busy = dict.fromkeys(record.root for record in others)
    for unit in snapshot.units:
        if unit.root in book.trees:
            book.trees[unit.root].push(unit)
    for root in busy:
        drop_stale(book, book.trees[root])
    exclude_damaged(book, snapshot.damage, busy)
    for lock in snapshot.locks:
        _take_lock(book, lock)
    if workers:
        _rehire_all(book, workers, now)
    others = [record for record in others if record.id in book.procs]
    _note_waiting(book, snapshot, others)
    trees = [book.trees[root] for root in busy if root in book.trees]
    for tree in trees:
        _rebuild_tree(book, tree)
    _count(book, snapshot, others)
    return book, trees


def _is_plain(record: ProcedureRecord) -> bool:
    """A tree by itself that pushed no unit yet, holds no place of a limit, and wants only its next step."""
    if not is_alone(record) or record.undo_next != 1:
        return False
    if record.state is not _RUNNABLE or record.due_at is not None or record.deadline is not None:
        return False
    if record.failing or record.rolling or record.aborting or record.bypassing or record.undoing:
        return False
    if record.paused is not None or record.limits is not None or record.finished_at is not None:
        return False
    return record.parked is None and not (record.pending or record.retaking or record.admitted)


def _admit_all(book: EngineState, snapshot: RecoverySnapshot, ordinary: Container[str]) -> list[ProcedureRecord]:
    """All heads, those of the ordinary types that need only a worker to the backlog; who has more under way."""
    later, others = [], []
    # Who has anything else in the store is no plain one, whatever its head says: what is amiss is to be seen.
    named = {lock.holder for lock in snapshot.locks}
    named.update(unit.root for unit in snapshot.units)
    named.update(record.root for record in snapshot.procedures if record.parent is not None)
    for record in snapshot.procedures:
        if not _is_plain(record):
            book.admit(record, stored=True)
            others.append(record)
        elif record.type_name in ordinary and _needs_only_a_worker(record) and record.id not in named:
            later.append(record)
        else:
            book.admit_alone(record)
    book.backlog.fill(later, book.ready.clock(book.now))
    return others


def _ordinary_types(book: EngineState, snapshot: RecoverySnapshot) -> set[str]:
    """Classes whose procedures may wait in the backlog: nothing is counted, shared out or hired before their turn."""
    if snapshot.damage or not book.leaves_outside:
        return set()
    return {name for name, meta in book.types.items() if not meta.dedicated}


def _needs_only_a_worker(record: ProcedureRecord) -> bool:
    """Of a plain one: it asks for no lock and no slot, so no other part has to know of it before its turn."""
    return record.locked and not (record.locks or record.limit_keys)


def _take_lock(book: EngineState, lock: LockRecord) -> None:
    book.locks.hold(lock.holder, lock.path, lock.mode)
    if lock.inherited:
        book.inherited.setdefault(lock.holder, {})[lock.path] = LockMode(lock.inherited)
    holder = book.procs.get(lock.holder)
    if holder is not None:
        book.trees[holder.root].hold(holder.id)


def _note_waiting(book: EngineState, snapshot: RecoverySnapshot, others: Sequence[ProcedureRecord]) -> None:
    """Note the times and events that wake procedures: memory knows nothing else of the trees that are not loaded."""
    if snapshot.cold.due:
        book.timers.adopt(snapshot.cold.due)
    waiting = [
        (record.seq, record.event, record.id)
        for record in others
        if record.event is not None and record.state in COLD_STATES
    ]
    if snapshot.cold.listeners:
        waiting += snapshot.cold.listeners
    for _, event, procedure in sorted(waiting):
        book.listeners.add(event, procedure)


def _count(book: EngineState, snapshot: RecoverySnapshot, others: Sequence[ProcedureRecord]) -> None:
    """Count procedures for their limits; what is damaged stands still and takes no place of a limit."""
    book.open_roots = snapshot.cold.roots + len(book.backlog) + len(book.procs) - len(others)
    admitted = []
    for record in others:
        if record.state not in TERMINAL:
            if record.parent is None:
                book.open_roots += 1
            if record.admitted:
                admitted.append(record)
    admitted += snapshot.cold.admitted
    if admitted or snapshot.starts:
        book.slots.restore(admitted, snapshot.starts)
        book.lobby.running = sum(record.admitted in WITH_RUNNING for record in admitted if record.parent is None)


def load_tree(book: EngineState, members: Sequence[ProcedureRecord], units: Sequence[UndoRecord]) -> None:
    """Bring a cold or finished tree back into memory. A resident one is left alone, and so is a removed one."""
    if not members or members[0].root in book.trees or members[0].root in book.removed:
        return
    tree: Tree | None = None
    for record in members:
        tree = book.admit(record, stored=True)
    assert tree is not None
    for unit in units:
        tree.push(unit)
    drop_stale(book, tree)
    exclude(book, tree)


def _rehire_all(book: EngineState, workers: Sequence[tuple[WorkerReady, tuple[StepToken, ...]]], now: float) -> None:
    book.roster.take_over(ready.worker.slot for ready, _ in workers if ready.reserved is None and not ready.leaving)
    for ready, tokens in workers:
        _rehire(book, ready, tokens, now)


def _rehire(book: EngineState, ready: WorkerReady, tokens: tuple[StepToken, ...], now: float) -> None:
    """A worker that lived on while memory was lost, with the steps it still has in hand."""
    worker = book.staff.add(ready.worker, now, ready.pid, reserved=ready.reserved, leaving=ready.leaving)
    if ready.reserved is not None:
        book.hired[ready.reserved] = ready.worker
    for token in tokens:
        record = book.procs.get(token.procedure)
        if record is not None:
            book.staff.give(worker, InHand(token, record.type_name, threads=ready.threads), now)
            book.trees[record.root].running.add(record.id)


def _rebuild_tree(book: EngineState, tree: Tree) -> None:
    for record in tree.members.values():
        if record.parked is not None:
            # Also one that nothing wakes now, as its tree fails: its class may come before its undo does.
            park(book, record)
        if record.state in TERMINAL:
            continue
        if record.failing:
            tree.scopes[record.id] = None
        if record.deadline is not None:
            book.timers.add(record.deadline, record.id)
        if record.due_at is not None:
            book.timers.add(record.due_at, record.id)
        if record.pending and record.started < record.width and not record.rolling:
            hold_back(tree, record)


def hold_back(tree: Tree, parent: ProcedureRecord) -> None:
    """Children beyond those released by `max_parallel`: the last ones of the group, in order."""
    children = [tree.members[name] for name in tree.children.get(parent.id, ())]
    awaited = children[len(children) - parent.width :]
    held = [child.id for child in awaited[parent.started :] if child.state not in TERMINAL]
    if held:
        tree.held[parent.id] = OrderedDict.fromkeys(held)


def resume(book: EngineState, busy: Sequence[Tree]) -> None:
    """Queue what was queued: lock waiters in their old order, then everything runnable.

    What is due at a time waits for the next tick, even when that time has passed.
    """
    runnable = [
        record
        for tree in book.trees.values()
        for record in tree.members.values()
        if record.due_at is None and (record.undoing or (record.state is _RUNNABLE and not record.rolling))
    ]
    waiters = [record for record in runnable if not record.locked]
    waiters += [record for tree in busy if (record := book.procs[tree.root]).retaking]
    # Trees that hold locks, and undos, ask first, as they stood before the others in the queue.
    for record in sorted(waiters, key=lambda record: (not _goes_before_others(book, record), record.ticket)):
        if record.retaking:
            acquire.has_retaken(book, book.tree_of(record))
        else:
            wake(book, record)
    for record in runnable:
        if record.locked:
            wake(book, record)


def _goes_before_others(book: EngineState, record: ProcedureRecord) -> bool:
    return record.undoing > 0 or bool(book.tree_of(record).holders)


def take_up(book: EngineState, busy: Sequence[Tree]) -> None:
    """Go on with what was under way: failing scopes, abort requests that were not answered, workers that leave."""
    for worker in list(book.staff.workers.values()):
        say_goodbye(book, worker.id)
    for tree in busy:
        if tree.running:
            resume_cancelling(book, tree)
        for record in tree.members.values():
            if record.ending and record.state not in TERMINAL and not record.rolling:
                # As an older version left it: it has said done, and its children are undone behind it by now.
                move(record, Trigger.CHILDREN_DONE)
                end(book, record, Trigger.FINISHED)
        concerned = [record for record in tree.members.values() if record.failing or record.aborting]
        for record in concerned:
            if record.failing and record.id in tree.scopes:
                book.scopes_to_advance[record.id] = None
        for record in concerned:
            if record.aborting and record.forced:
                press_abort(book, record)
            elif record.aborting and may_abort(book, record):
                book.asking[record.id] = None
