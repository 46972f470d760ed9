"""Choice of the next step: the run queue merged with those that wait for slots, under the shares of classes of work."""

from __future__ import annotations

import math

from actorproc.core.queues.run_queue import DEFAULT_CLASS, OWN_CLASS
from actorproc.core.queues.worker_shares import WorkerShares
from actorproc.core.queues.worker_table import STEAL_AFTER, InHand, Worker
from actorproc.core.state.engine_state import EngineState
from actorproc.core.state.step_limits import known_limits_of
from actorproc.model.rows.records import WITH_RUNNING, WITH_SLOT, ProcedureRecord
from actorproc.model.rows.writes import PutStart
from actorproc.model.states import ProcedureState

__all__ = [
    "keep_nothing",
    "leave_limits",
    "leave_queue",
    "lend_slots",
    "may_steal",
    "next_up",
    "on_suspended",
    "open_workers",
    "steal_at",
    "stuck_behind",
    "take_turn",
    "wants_another_worker",
    "why_queued",
    "work_class_of",
]


def work_class_of(book: EngineState, record: ProcedureRecord) -> str:
    """The class of work of a procedure's steps; without shares all are one, but for workers of one's own."""
    if book.knows_dedicated and known_limits_of(book, record).limits.dedicated:
        return OWN_CLASS
    return DEFAULT_CLASS if book.shares is None else book.types[record.type_name].work_class


def next_up(book: EngineState, barred: set[str]) -> str | None:
    """The procedure whose turn it is, of the classes of work that are not barred; it stays where it waits."""
    if book.shares is None and not book.knows_dedicated:
        if barred:
            return None
        best = book.ready.peek()
        if book.backlog:
            best = _or_of_the_backlog(book, best)
        if len(book.slots):
            best = _earlier(best, book.slots.peek(DEFAULT_CLASS, book.now))
    else:
        best = None
        for work_class in {*_wanting(book), OWN_CLASS} - barred:
            best = _earlier(best, book.ready.peek(work_class))
            best = _earlier(best, book.slots.peek(work_class, book.now))
        if book.backlog and DEFAULT_CLASS not in barred:
            best = _or_of_the_backlog(book, best)
    return None if best is None else best[1]


def _or_of_the_backlog(book: EngineState, best: tuple[float, str] | None) -> tuple[float, str]:
    """The first of the backlog if its turn comes before that of `best`: then it is resident."""
    order, record = book.backlog.first()
    if best is not None and (best[0], _place_of(book, best[1])) < (order, record.seq):
        return best
    book.make_resident(record)
    return order, record.id


def _place_of(book: EngineState, procedure: str) -> int:
    """The number of its tree in submit order: who was queued at the start, and not left, waits since the same time."""
    return book.procs[book.procs[procedure].root].seq


def _earlier(one: tuple[float, str] | None, other: tuple[float, str] | None) -> tuple[float, str] | None:
    if one is None or other is None:
        return one if other is None else other
    return min(one, other)


def _wanting(book: EngineState) -> set[str]:
    """Classes of work that may want a worker of those that are for all."""
    return {*book.ready.classes(), *book.slots.classes()} - {OWN_CLASS}


def open_workers(book: EngineState, shares: WorkerShares, record: ProcedureRecord) -> list[Worker]:
    """Workers that may get a step of this procedure's class of work."""
    return shares.open_to(book.staff, work_class_of(book, record), _wanting(book))


def wants_another_worker(book: EngineState) -> bool:
    """True if a step waits that one worker more than there are might get."""
    shares = book.shares
    wanting: set[str] = set() if shares is None else _wanting(book)
    for worker in book.staff.workers.values():
        if len(worker.queue) < 2 or worker.threaded:  # they run beside each other, so none waits
            continue
        if shares is None or shares.would_use_another(book.staff, worker.work_class, wanting):
            return True
    kept_out = {
        work_class
        for work_class in wanting
        if shares is not None and not shares.would_use_another(book.staff, work_class, wanting)
    }
    # Who waits for slots that are free waits for a worker only.
    return next_up(book, kept_out) is not None


def take_turn(book: EngineState, record: ProcedureRecord) -> None:
    """It is handed out now: it leaves the queue, with its slots if it waited for any."""
    if record.id in book.backlog:
        book.backlog.discard(record.id)
    elif not book.ready.take(record.id, book.now) and record.id in book.slots:
        for start in book.slots.grant(record, book.now):
            book.write(PutStart(start))
        book.touch(record)


def leave_queue(book: EngineState, record: ProcedureRecord) -> None:
    """It waits for something else now, and holds no slots meanwhile."""
    if not book.ready.take(record.id, book.now):
        book.slots.discard(record.id)
        book.backlog.discard(record.id)


def lend_slots(book: EngineState, record: ProcedureRecord) -> None:
    """It begins to wait for slots or locks: ancestors that wait for it lend theirs until they go on."""
    if not book.slots.holders:
        return
    if record.admitted in WITH_SLOT:
        _give_back(book, record)
    tree = book.tree_of(record)
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
        if lender.admitted in WITH_SLOT and _waits(lender) and not book.staff.runs_a_step(lender.id):
            _give_back(book, lender)


def on_suspended(book: EngineState, record: ProcedureRecord) -> None:
    """A parent of unfinished children waits now; it keeps its slots unless its tree waits for some, or for locks."""
    if record.admitted not in WITH_SLOT:
        return
    if book.slots.waits_in(record.root) or book.tree_of(record).waiting or _waits_aside(book, record.root):
        _give_back(book, record)


def keep_nothing(book: EngineState, record: ProcedureRecord) -> None:
    """It runs no step for now, though it has not ended: those it waits for may need its slots."""
    if record.admitted in WITH_SLOT:
        _give_back(book, record)


def _waits_aside(book: EngineState, root: str) -> bool:
    """True if a member of the tree asks for slots once it has a worker of its own."""
    found = (book.procs[name] for name in book.aside.names())
    return any(record.root == root and record.limit_keys for record in found)


def leave_limits(book: EngineState, record: ProcedureRecord) -> None:
    """It has ended: its slots, and its place among the running, are for others."""
    if record.admitted in WITH_SLOT:
        book.slots.release(record)
    if record.admitted in WITH_RUNNING:
        book.lobby.leave(record)
    record.admitted = 0
    book.touch(record)


def _waits(record: ProcedureRecord) -> bool:
    return record.rolling or record.state is not ProcedureState.RUNNABLE


def _give_back(book: EngineState, record: ProcedureRecord) -> None:
    book.slots.release(record)
    book.touch(record)


def may_steal(book: EngineState) -> bool:
    """True if prefetched steps may be asked back: not while others are queued, unless shares keep those waiting."""
    return book.hands_out and (book.shares is not None or not (book.ready or book.backlog))


def stuck_behind(book: EngineState, now: float) -> list[tuple[Worker, list[InHand]]]:
    """Prefetched steps behind silent workers' running ones that an idle worker may have."""
    found = book.staff.stuck_behind(now)
    if book.shares is None:
        return found
    wanting = _wanting(book)
    return [
        (worker, behind)
        for worker, behind in found
        if any(not other.queue for other in book.shares.open_to(book.staff, worker.work_class, wanting))
    ]


def steal_at(book: EngineState) -> float | None:
    """Time at which prefetched steps should be asked back, None when there is no worker that may have them."""
    at = book.staff.steal_at()
    if at is None or book.shares is None:
        return at
    times = [worker.active_at for worker, _ in stuck_behind(book, math.inf)]
    return min(times) + STEAL_AFTER if times else None


def why_queued(book: EngineState, record: ProcedureRecord) -> str | None:
    """The limit that keeps a procedure waiting; None when it only waits for a worker."""
    if record.id in book.lobby:
        return f"for one of the {book.lobby.running} that run to end (Config.max_running)"
    return book.slots.why(record.id, book.now)
