"""From runnable to handed out: what a procedure still needs before a step, and who gets it."""

from __future__ import annotations

from actorproc.core import locking
from actorproc.core.book import Book
from actorproc.core.staff import InHand, Worker
from actorproc.model.commands import RunStep, TakeBack
from actorproc.model.ids import Mode, StepToken
from actorproc.model.records import ProcedureRecord, UndoRecord
from actorproc.model.states import TERMINAL, ProcedureState
from actorproc.model.writes import PutUndo

__all__ = ["fill", "park", "steal", "wake"]


def wake(book: Book, record: ProcedureRecord, *, to_the_back: bool = False, to_the_front: bool = False) -> None:
    """Bring a procedure one step nearer to running: park, wait for a due time or for locks, or queue it.

    Safe to call at any time: a procedure that cannot run, or runs already, is left alone.
    """
    if record.id in book.staff.in_hand:
        return
    if not record.undoing and (record.rolling or record.state is not ProcedureState.RUNNABLE):
        return
    if record.parked is not None or record.type_name not in book.types:
        park(book, record)
        return
    if record.due_at is not None:
        if record.due_at > book.now:
            book.timers.add(record.due_at, record.id, record.root)
            return
        record.due_at = None
        book.touch(record)
    if _is_held_back(book, record):
        return
    if not record.locked and not _has_locks(book, record):
        return
    is_new_root = to_the_back or (record.parent is None and record.step == 1 and not record.attempt)
    if to_the_front and record.id not in book.ready:
        book.ready.put_back(record.id, priority=record.priority, is_new_root=is_new_root)
        return
    book.ready.push(record.id, priority=record.priority, is_new_root=is_new_root)


def _has_locks(book: Book, record: ProcedureRecord) -> bool:
    """Ask for the locks of a step. A key that was poisoned since the procedure was accepted is refused now."""
    if book.poisons and not record.undoing and not book.locks.is_waiting(record.id):
        path = locking.poisoned_key(book, record)
        if path is not None:
            book.refused[record.id] = path
            return False
    return locking.ask(book, record)


def park(book: Book, record: ProcedureRecord) -> None:
    """Set a procedure aside until its type is registered."""
    book.parked.setdefault(record.type_name, {})[record.id] = None


def _is_held_back(book: Book, record: ProcedureRecord) -> bool:
    """Whether `max_parallel` of the parent keeps this child back."""
    if record.parent is None:
        return False
    held = book.tree_of(record).held.get(record.parent)
    return held is not None and record.id in held


def fill(book: Book) -> None:
    """Hand out steps while workers have room."""
    if not book.dispatching:
        return
    for asked in list(book.asking):
        _ask_abort(book, asked)
    while (procedure := book.ready.pop()) is not None:
        record = book.procs[procedure]
        if book.is_late(record):
            book.overdue[procedure] = None
            continue
        worker = book.staff.choose(record.type_name, book.warm.get(procedure))
        if worker is None:
            is_new_root = record.parent is None and record.step == 1 and not record.attempt
            book.ready.put_back(procedure, priority=record.priority, is_new_root=is_new_root)
            return
        _hand_out(book, worker, record)


def _ask_abort(book: Book, procedure: str) -> None:
    record = book.procs.get(procedure)
    if record is None or record.state in TERMINAL or record.rolling:
        del book.asking[procedure]
        return
    if procedure in book.staff.in_hand or record.type_name not in book.types:
        return
    worker = book.staff.choose(record.type_name, book.warm.get(procedure))
    if worker is not None:
        del book.asking[procedure]
        book.ready.discard(procedure)
        _send(book, worker, record, Mode.ASK_ABORT, record.step, None)


def _hand_out(book: Book, worker: Worker, record: ProcedureRecord) -> None:
    record.attempt += 1
    if record.undoing:
        unit = book.tree_of(record).units[record.undoing]
        _send(book, worker, record, Mode.ROLLBACK, record.records + 1, unit.label)
        return
    if record.poisons and record.step == 1:
        _poison_before_the_first_step(book, record)
    root = book.procs[record.root]
    if record.unit is not None and record.unit != record.last_unit:
        unit = UndoRecord(record.root, root.undo_next, record.id, record.unit, record.step)
        root.undo_next += 1
        record.last_unit = record.unit
        book.tree_of(record).push(unit)
        book.write(PutUndo(unit))
        book.touch(root)
    if record.unit_no_return and record.event is None and not root.no_return:
        # The mark is durable before the step runs: from here on failures only retry forward.
        root.no_return = True
        book.touch(root)
    mode = Mode.ON_TIMEOUT if record.event is not None else Mode.EXECUTE
    _send(book, worker, record, mode, record.step, None)


def _poison_before_the_first_step(book: Book, record: ProcedureRecord) -> None:
    """The keys it named when it was submitted; later ones come with the answer of the step before."""
    from actorproc.core.failing import poison  # noqa: PLC0415 - failing builds on queueing

    if record.attempt == 1:
        for path in record.poisons:
            if path not in book.poisons:
                poison(book, path, record, "set by poison_keys() before a risky step")


def _send(book: Book, worker: Worker, record: ProcedureRecord, mode: Mode, step: int, unit: str | None) -> None:
    book.touch(record)
    token = StepToken(book.epoch, worker.id, record.id, step, record.attempt, mode)
    meta = book.types[record.type_name]
    is_warm = record.attempt == 1 and book.warm.get(record.id) == worker.id
    book.staff.give(worker, InHand(token, record.type_name), book.now)
    book.tree_of(record).running.add(record.id)
    book.command(
        RunStep(
            token,
            record.type_name,
            is_warm,
            record.root,
            record.parent,
            record.attempt > 1,
            record.aborting,
            record.deadline,
            record.awaiting,
            unit,
            record.records,
            record.payload,
            meta.wall_time,
            meta.grace,
        )
    )


def steal(book: Book) -> None:
    """Ask back what waits behind a silent worker's running step while another worker is idle."""
    if len(book.ready) or not book.dispatching:
        return
    for worker, behind in book.staff.stuck_behind(book.now):
        # Leave half: the running step may end any moment, and the idle worker needs only a share.
        share = behind[len(behind) // 2 :]
        for item in share:
            item.recalled = True
        book.command(TakeBack(worker.id, tuple(item.token for item in share)))
