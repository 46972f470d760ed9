"""Workers that belong to one procedure, and workers that leave.

A procedure with ``Limits.dedicated`` runs its steps in a worker that runs nothing else. The worker is asked for when
the first step is due, stays while the procedure waits or sleeps, and is stopped at its end; when it dies another one
is asked for with the next step. There are at most ``Quotas.dedicated`` of them, the others wait in the order they
came. None of this is stored: after a restart the workers are asked for again.
"""

from __future__ import annotations

from actorproc.core.queues.worker_table import Worker
from actorproc.core.state.engine_state import EngineState
from actorproc.model.ids import WorkerId
from actorproc.model.messages.commands import StartWorker, StopWorker, TakeBack
from actorproc.model.messages.events import WorkerLeaving, WorkerReady
from actorproc.model.rows.records import ProcedureRecord
from actorproc.model.states import TERMINAL

__all__ = ["hire_for", "join", "let_finished_go", "on_leaving", "own_worker", "say_goodbye", "was_lost"]


def join(book: EngineState, event: WorkerReady) -> ProcedureRecord | None:
    """A worker takes steps now; the procedure that waited for this one, if any.

    A worker for a procedure that has ended meanwhile is stopped again.
    """
    worker = book.staff.add(event.worker, book.now, event.pid, reserved=event.reserved, leaving=event.leaving)
    procedure = event.reserved
    if procedure is None:
        return None
    record = book.procs.get(procedure)
    if procedure not in book.hired or record is None:
        book.hired.pop(procedure, None)
        _dismiss(book, worker)
        return None
    book.hired[procedure] = worker.id
    if procedure not in book.aside:
        return None
    book.aside.discard(procedure)
    return record


def own_worker(book: EngineState, record: ProcedureRecord) -> Worker | None:
    """The dedicated worker of a procedure, if it is there and may get a step; else one is asked for."""
    hired = book.hired.get(record.id)
    worker = book.staff.find(hired) if hired is not None else None
    if worker is not None:
        return worker if not worker.leaving and not worker.queue else None
    hire_for(book, record.id)
    return None


def hire_for(book: EngineState, procedure: str) -> None:
    """Ask for a worker for this procedure, unless there is one, one is coming, or there are too many."""
    if procedure not in book.hired and len(book.hired) < book.quotas.dedicated:
        book.hired[procedure] = None
        book.command(StartWorker(procedure))


def let_finished_go(book: EngineState) -> None:
    """A procedure that has ended needs its worker no more."""
    for procedure in [name for name in book.hired if _has_ended(book, name)]:
        hired = book.hired.pop(procedure)
        worker = book.staff.find(hired) if hired is not None else None
        if worker is not None:
            _dismiss(book, worker)
        _hire_next(book)


def _has_ended(book: EngineState, procedure: str) -> bool:
    # A tree that left memory is finished, or cold: then its worker waits with it.
    record = book.procs.get(procedure)
    return record is not None and record.state in TERMINAL and not record.undoing


def was_lost(book: EngineState, worker: Worker) -> None:
    """A dedicated worker died: its procedure gets another one when it has something to do."""
    if worker.reserved in book.hired and book.hired[worker.reserved] is None:
        # It was told to stop when its procedure asked for one, and while it lived nothing came of asking.
        book.command(StartWorker(worker.reserved))
    if worker.reserved is None or book.hired.get(worker.reserved) != worker.id:
        return
    del book.hired[worker.reserved]
    if worker.reserved in book.aside:
        hire_for(book, worker.reserved)
    _hire_next(book)


def on_leaving(book: EngineState, event: WorkerLeaving) -> None:
    """A worker asked to be replaced: it ends what it has begun, gives back the rest, and is stopped."""
    worker = book.staff.find(event.worker)
    if worker is None or worker.leaving:
        return
    worker.leaving = True
    behind = book.staff.waiting_behind(worker)
    for item in behind:
        item.recalled = True
    if behind:
        book.command(TakeBack(worker.id, tuple(item.token for item in behind)))
    _stop_when_empty(book, worker)


def say_goodbye(book: EngineState, name: WorkerId) -> None:
    """A step left a worker's hands: one that is leaving and has nothing more is stopped."""
    worker = book.staff.find(name)
    if worker is not None and worker.leaving:
        _stop_when_empty(book, worker)


def _stop_when_empty(book: EngineState, worker: Worker) -> None:
    if not worker.queue and not worker.stopped:
        worker.stopped = True
        book.command(StopWorker(worker.id))


def _dismiss(book: EngineState, worker: Worker) -> None:
    worker.leaving = True
    _stop_when_empty(book, worker)


def _hire_next(book: EngineState) -> None:
    for procedure in book.aside.names():
        hire_for(book, procedure)
