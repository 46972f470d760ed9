"""The router: one event in, one decision out.

`handle` hands the event to the part that knows it, then settles what that set off (granted locks, deadlock
victims, failing scopes) until nothing moves, fills the workers, and closes the decision. It changes memory
and touches nothing else; its caller stores the writes and only then carries out the commands.

Nothing here knows threads, processes, files or clocks, so every crash is a place in a loop and can be tried.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import assert_never

import msgspec

from actorproc.core import crashes, failing, locking, queueing, restoring, stepping, submitting, verbs
from actorproc.core.book import Book
from actorproc.core.lock_table import LockWaiter
from actorproc.model.commands import Decision
from actorproc.model.events import (
    AbortRequested,
    Event,
    NoteMade,
    PoisonCleared,
    Signalled,
    StepEnded,
    StepReturned,
    Submitted,
    Tick,
    TypeRegistered,
    WorkerLost,
    WorkerReady,
)
from actorproc.model.ids import StepToken
from actorproc.model.outcomes import Suspended
from actorproc.model.policies import LockMode, Quotas
from actorproc.model.records import ProcedureRecord, UndoRecord
from actorproc.model.snapshot import Snapshot
from actorproc.model.states import TERMINAL, Phase, ProcedureState

__all__ = ["Coordinator"]

DEFAULT_QUOTAS = Quotas()
_encode = msgspec.msgpack.Encoder().encode


class Coordinator:
    """Decides for one manager. Not thread-safe; told the time, in epoch seconds."""

    def __init__(self, book: Book) -> None:
        self._book = book

    @classmethod
    def restore(
        cls,
        snapshot: Snapshot,
        now: float,
        *,
        workers: Sequence[tuple[WorkerReady, tuple[StepToken, ...]]] = (),
        quotas: Quotas = DEFAULT_QUOTAS,
    ) -> tuple[Coordinator, Decision]:
        """A coordinator that goes on where the snapshot stands, and its first decision.

        `workers` are live workers with the steps handed to them whose answers are not in the snapshot:
        empty at a start, the living after a failed commit.
        """
        self = cls.rebuilt(snapshot, now, workers=workers)
        self._book.quotas = quotas
        restoring.take_up(self._book)
        return self, self._settle()

    @classmethod
    def rebuilt(
        cls, snapshot: Snapshot, now: float, *, workers: Sequence[tuple[WorkerReady, tuple[StepToken, ...]]] = ()
    ) -> Coordinator:
        """The same memory that wrote the snapshot, with nothing new decided (`fingerprint` is equal)."""
        book = restoring.rebuild(snapshot, now, workers)
        restoring.resume(book)
        return cls(book)

    # ------------------------------------------------------------------ the read set
    def missing(self, event: Event, now: float) -> tuple[str, ...]:
        """Procedures this event is about that are not in memory: load their trees first."""
        book = self._book
        if type(event) is StepEnded and type(event.outcome) is not Suspended:
            return ()  # the most frequent of all events
        names: Iterable[str]
        match event:
            case Submitted():
                names = (new.id for new in event.procedures if not new.fresh)
            case StepEnded(outcome=Suspended(children=children)):
                names = (new.id for new in children if not new.fresh)
            case AbortRequested():
                names = (event.id,)
            case Signalled():
                names = (event.target, *verbs.first_listener(book, event.target))
            case Tick():
                names = (name for name, _ in book.timers.due(now))
            case _:
                return ()
        return tuple(name for name in names if name not in book.procs and name not in book.damaged)

    def load(self, members: Sequence[ProcedureRecord], units: Sequence[UndoRecord]) -> None:
        """A stored tree, as `missing` asked for. Loading a resident tree changes nothing."""
        restoring.load_tree(self._book, members, units)

    def exclude(self, id: str, reason: str) -> None:  # noqa: A002
        """A procedure that `missing` named cannot be read: nothing is done with it, and nobody gets its id."""
        self._book.damaged[id] = reason

    # ------------------------------------------------------------------ deciding
    def handle(self, event: Event, now: float) -> Decision:
        """Decide what `event` leads to at `now`."""
        book = self._book
        book.now = now
        match event:
            case StepEnded():
                stepping.on_ended(book, event)
            case Submitted():
                submitting.submit(book, event)
            case StepReturned():
                stepping.on_returned(book, event)
            case WorkerReady():
                crashes.on_ready(book, event)
            case WorkerLost():
                crashes.on_lost(book, event)
            case TypeRegistered():
                self._register(event)
            case AbortRequested():
                verbs.request_abort(book, event)
            case Signalled():
                verbs.signal(book, event)
            case NoteMade():
                verbs.note(book, event)
            case PoisonCleared():
                verbs.clear_poison(book, event)
            case Tick():
                self._tick(now)
            case _:
                assert_never(event)
        return self._settle()

    def _settle(self) -> Decision:
        book = self._book
        while True:
            if granted := locking.note_grants(book):
                for record in granted:
                    queueing.wake(book, record)
            elif book.refused:
                failing.fail_refused(book)
            elif book.orphaned:
                failing.abort_orphans(book)
            elif book.victims:
                failing.fail_victims(book)
            elif book.scopes_to_advance:
                failing.advance(book, book.scopes_to_advance.popitem()[0])
            elif book.overdue:
                verbs.miss_deadline(book, book.procs[book.overdue.popitem()[0]])
            else:
                queueing.fill(book)
                if not book.overdue and not book.refused:
                    break
        return book.close()

    def _register(self, event: TypeRegistered) -> None:
        book = self._book
        book.types[event.meta.type_name] = event.meta
        for name in book.parked.pop(event.meta.type_name, ()):
            record = book.procs.get(name)
            if record is None:
                continue
            if record.parked is not None:
                record.parked = None
                book.touch(record)
            if record.aborting and not record.rolling and record.state not in TERMINAL:
                verbs.begin_abort(book, record)
            queueing.wake(book, record)

    def _tick(self, now: float) -> None:
        book = self._book
        for name in book.timers.pop_due(now):
            record = book.procs.get(name)
            if record is not None:
                verbs.on_due(book, record)
        queueing.steal(book)

    # ------------------------------------------------------------------ time and batches
    def next_deadline(self) -> float | None:
        """Epoch seconds at which a `Tick` is due; None: never."""
        times = [at for at in (self._book.timers.next_at(), self._steal_at()) if at is not None]
        return min(times) if times else None

    def _steal_at(self) -> float | None:
        book = self._book
        return None if len(book.ready) or not book.dispatching else book.staff.steal_at()

    def seal(self) -> int:
        """The caller closes its batch; the number of that batch."""
        self._book.batch += 1
        return self._book.batch - 1

    def settle(self, batch: int) -> None:
        """That batch is stored: cold and finished trees it left behind may leave memory."""
        self._book.settle(batch)

    # ------------------------------------------------------------------ looking
    @property
    def dispatching(self) -> bool:
        """Whether steps are handed out. After setting it to True, handle a `Tick`."""
        return self._book.dispatching

    @dispatching.setter
    def dispatching(self, value: bool) -> None:
        self._book.dispatching = value

    @property
    def stale_results(self) -> int:
        """Answers dropped because their token was not current."""
        return self._book.stale_results

    @property
    def damaged(self) -> tuple[str, ...]:
        """One sentence for each procedure that stands still because a record of its tree is damaged."""
        return tuple(f"procedure {name} stands still: {reason}" for name, reason in self._book.damaged.items())

    @property
    def in_hand(self) -> int:
        """Steps in workers' hands."""
        return len(self._book.staff.in_hand)

    @property
    def queued(self) -> int:
        """Procedures that could run if a worker had room."""
        return len(self._book.ready)

    def view(self, id: str) -> ProcedureRecord | None:  # noqa: A002
        """The head of a resident procedure; not to be changed, and only valid until the next event."""
        return self._book.procs.get(id)

    def phase(self, record: ProcedureRecord) -> tuple[Phase, str | None]:
        """What a procedure is doing, and the reason in words."""
        book = self._book
        if record.state in TERMINAL and not record.undoing:
            return Phase.DONE, None
        if record.parked is not None:
            return Phase.PARKED, record.parked
        if record.id in book.damaged:
            return Phase.PARKED, book.damaged[record.id]
        if record.type_name not in book.types:
            return Phase.PARKED, f"no class is registered as {record.type_name!r}"
        if record.rolling or record.undoing:
            return Phase.ROLLING_BACK, record.error.message if record.error else None
        if record.id in book.staff.in_hand:
            return Phase.RUNNING, None
        if record.state is ProcedureState.WAITING_TIMEOUT and record.event is None:
            return Phase.SLEEPING, None
        if record.event is not None:
            return Phase.WAITING, f"for the event {record.event!r}"
        if record.state is ProcedureState.WAITING:
            return Phase.SUSPENDED, f"for {record.pending} of its children"
        if book.locks.is_waiting(record.id):
            return Phase.LOCKED_OUT, f"by {', '.join(islice(book.locks.blockers(record.id), 5)) or 'earlier waiters'}"
        if record.errors or record.crashes:
            return Phase.RETRYING, record.error.message if record.error else None
        return Phase.QUEUED, None

    def lock_waiters(self) -> list[LockWaiter]:
        """Procedures that wait for locks, in the order of the queue; a copy that stays as it is."""
        return self._book.locks.queue()

    def lock_holders(self) -> Mapping[str, Mapping[str, LockMode]]:
        """All held keys by procedure; not to be changed, and only valid until the next event."""
        return self._book.locks.holders()

    def fingerprint(self) -> object:
        """Equal for books with the same durable facts; trees that may leave memory are left out."""
        book = self._book
        hot = [tree for tree in book.trees.values() if not (tree.is_finished or tree.is_cold)]
        heads = {
            record.id: _encode(record)
            for tree in hot
            for record in tree.members.values()
            if record.state not in TERMINAL
        }
        at_work = {name for name in {*book.ready.members(), *book.staff.in_hand} if name not in book.asking}
        timers = book.timers.entries()
        return {
            "heads": heads,
            "units": {tree.root: tuple(tree.units) for tree in hot},
            "scopes": {tree.root: frozenset(tree.scopes) for tree in hot},
            "held": {tree.root: {name: tuple(row) for name, row in tree.held.items()} for tree in hot},
            "at work": {name for name in at_work if name in heads},
            "locks": {name: dict(keys) for name, keys in book.locks.holders().items()},
            "lock queue": {name: (row.ticket, row.privileged) for name, row in book.locks.waiting().items()},
            "due": {(at, name) for at, name in timers if name in heads and book.procs[name].due_at == at},
            "inherited": {name: dict(keys) for name, keys in book.inherited.items()},
            "poisons": dict(book.poisons),
            "buffered": {target: tuple(rows) for target, rows in book.buffered.items()},
            "numbers": (book.next_seq, book.next_ticket),
        }
