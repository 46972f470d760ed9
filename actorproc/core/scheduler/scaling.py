"""Number of workers: extra ones while all the others are stuck in long steps, and a resize of the pool.

When every worker has been in its step for `stuck_after` seconds and work waits, one more is started, up to
`max_workers`; one that had nothing to do for `extra_worker_idle` seconds is retired while there are more than there
should be (HBase's and IoTDB's keep-alive workers). Workers are anonymous: it is the number that counts, so after a
stuck spell any idle one may go, the highest slot first. Nothing here is stored; a restart begins with `workers`.
"""

from __future__ import annotations

from msgspec.structs import replace

from actorproc.core.queues.worker_table import Worker
from actorproc.core.scheduler.pick import wants_another_worker
from actorproc.core.state.engine_state import EngineState
from actorproc.model.messages.commands import AddWorker, Reply, RetireWorker
from actorproc.model.messages.events import Resized, WorkerReady

__all__ = ["joined", "left", "look_after", "next_look", "resize"]


def joined(book: EngineState, event: WorkerReady) -> None:
    """A worker is ready: an extra one that was ordered, or the next one of a slot that is known."""
    roster = book.roster
    if event.reserved is not None:
        return
    if event.worker.slot not in roster.slots:
        roster.slots.add(event.worker.slot)
        roster.ordered = max(0, roster.ordered - 1)
    worker = book.staff.find(event.worker)
    if worker is None or worker.leaving:
        return
    if event.worker.slot in roster.vacated:
        roster.vacated.discard(event.worker.slot)
        _retire(book, worker)
    elif roster.unwanted:
        roster.unwanted -= 1
        _retire(book, worker)


def left(book: EngineState, worker: Worker) -> None:
    """A worker is gone; the slot of one that was retired goes with it."""
    if worker.id in book.roster.retired:
        book.roster.retired.discard(worker.id)
        book.roster.slots.discard(worker.id.slot)


def next_look(book: EngineState) -> float | None:
    """Time of the next look whether a worker is to be added or retired; kept until then, so that it moves no alarm."""
    limits, roster = book.scheduling, book.roster
    if not limits.workers:
        return None
    if roster.look_at is None and _is_short(book):
        roster.look_at = _stuck_at(book)
    if not _has_spare(book):
        return roster.look_at
    times = [worker.active_at + limits.extra_worker_idle for worker in _idle(book)]
    if roster.look_at is not None:
        times.append(roster.look_at)
    return min(times, default=None)


def look_after(book: EngineState) -> None:
    """Time passed: add a worker when all are stuck, retire those that are not needed any more."""
    roster = book.roster
    due = next_look(book)
    if due is None or due > book.now:
        return
    if roster.look_at is not None and roster.look_at <= book.now:
        roster.look_at = None
        if _is_short(book):
            stuck_at = _stuck_at(book)
            if stuck_at <= book.now and all(worker.queue for worker in book.staff.for_all()):
                _add(book)
                roster.look_at = book.now + book.scheduling.stuck_after
            else:
                roster.look_at = max(stuck_at, book.now + book.scheduling.stuck_after / 8)
    for worker in _idle(book):
        if _has_spare(book) and worker.active_at + book.scheduling.extra_worker_idle <= book.now:
            _retire(book, worker)


def resize(book: EngineState, event: Resized) -> None:
    """An operator wants another number of workers. Steps that run are finished where they run."""
    maximum = event.max_workers if event.max_workers is not None else book.scheduling.max_workers
    book.scheduling = replace(book.scheduling, workers=event.workers, max_workers=max(maximum, event.workers))
    roster = book.roster
    roster.vacated.clear()
    for _ in range(event.workers - len(roster.slots) - roster.ordered + len(roster.retired)):
        _add(book)
    # Who is not there goes first: a slot that cannot boot any more must not be kept in the place of one that works.
    too_many = max(0, _surplus(book) + roster.ordered)
    there = {worker.id.slot for worker in book.staff.workers.values()}
    roster.vacated.update(sorted(roster.slots - there, reverse=True)[:too_many])
    too_many -= len(roster.vacated)
    # Of those that are there idle ones do; the others end the step they are in and give back what they have not begun.
    leave_first = sorted(book.staff.for_all(), key=lambda worker: (bool(worker.queue), -worker.id.slot))
    going = leave_first[: max(0, too_many - roster.ordered)]
    for worker in going:
        _retire(book, worker)
    # Those that are still to come are too many as well.
    roster.unwanted = too_many - len(going)
    book.command(Reply(event.reply, value=True))


def _stuck_at(book: EngineState) -> float:
    """Time at which the last of the workers will have been silent for too long."""
    last = max((worker.active_at for worker in book.staff.for_all()), default=book.now)
    return last + book.scheduling.stuck_after


def _idle(book: EngineState) -> list[Worker]:
    return sorted((worker for worker in book.staff.for_all() if not worker.queue), key=lambda worker: -worker.id.slot)


def _surplus(book: EngineState) -> int:
    roster = book.roster
    return len(roster.slots) - len(roster.vacated) - len(roster.retired) - book.scheduling.workers


def _has_spare(book: EngineState) -> bool:
    """True if an idle worker may go: as many as there should be are ready without it."""
    return _surplus(book) > 0 and len(book.staff.for_all()) > book.scheduling.workers


def _is_short(book: EngineState) -> bool:
    """One more worker may be added, and would have something to do."""
    roster = book.roster
    may_add = len(roster.slots) - len(roster.vacated) + roster.ordered < book.scheduling.max_workers
    return may_add and book.hands_out and wants_another_worker(book)


def _add(book: EngineState) -> None:
    book.roster.ordered += 1
    book.command(AddWorker())


def _retire(book: EngineState, worker: Worker) -> None:
    worker.leaving = True
    worker.stopped = True
    book.roster.retired.add(worker.id)
    book.command(RetireWorker(worker.id))
