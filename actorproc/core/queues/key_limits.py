"""Limits by key: how many procedures at once, and how many starts in a span of time.

A procedure names its limit keys when it is submitted. It holds a slot of each key that has a limit from its first
step until it ends or begins to be undone. Sleeps, retries and crashes of its worker in between change nothing. The
slot is a mark in its head, so a restart changes nothing either. A rate counts each procedure once, when its first step
is handed out; those times are stored, so a restart does not open the window again.

Slots are the last thing asked for, all keys at once, first come first served by virtual deadline (`RunQueue`).
No procedure holds one while it waits for what another slot could hold up. One that waits for locks gives its slot
back. Parents that wait for children lend theirs as long as a member of their tree waits for a slot or a lock. So no
cycle of waiting can close over a slot.

``max_running`` is such a limit too, of one key that every root has (`RootLimit`). It is asked for first, before locks,
and held to the end: those inside never wait for one outside.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Mapping
from operator import attrgetter

import msgspec

from actorproc.model.rows.records import WITH_RUNNING, WITH_SLOT, WITH_STARTED, Admitted, ProcedureRecord, StartRecord

__all__ = ["KeyLimits", "RootLimit"]

_at = attrgetter("at")
_ROOTS = "roots"
"""The key of all roots."""


class _Key:
    """One limit key in use."""

    __slots__ = ("announced", "capacity", "name", "per", "places", "rate", "starts", "taken", "waiting")

    def __init__(self, name: str, capacity: int | None, rate: tuple[int, float] | None) -> None:
        self.name = name
        self.capacity = capacity
        self.rate, self.per = rate if rate is not None else (0, 0.0)
        self.taken = 0
        self.waiting: list[tuple[float, int, str]] = []
        self.starts: deque[tuple[float, int]] = deque()
        """Times and places of the last starts, at most `rate` of them."""
        self.places = 0
        self.announced = 0.0
        """Time at which a waiting procedure is looked at again."""

    def open_at(self, now: float) -> float:
        """Time at which the window has room for one more start."""
        if not self.rate or len(self.starts) < self.rate:
            return 0.0
        ahead = self.starts[-1][0] - now
        if ahead > 0:  # the clock was set back; no procedure waits longer for that
            self.starts = deque((at - ahead, place) for at, place in self.starts)
        return self.starts[0][0] + self.per

    @property
    def is_unused(self) -> bool:
        return not self.taken and not self.waiting and not self.starts

    def count(self, at: float) -> StartRecord:
        """Note a start; the row of the one that left the window is used again."""
        if len(self.starts) >= self.rate:
            place = self.starts.popleft()[1]
        else:
            place = self.places
            self.places += 1
        self.starts.append((at, place))
        return StartRecord(self.name, place, at)


class _Waiter(msgspec.Struct):
    """One procedure that waits for slots."""

    order: float
    number: int
    keys: list[_Key]
    work_class: str
    is_new: bool
    """Its start has not been counted yet."""
    root: str
    listed: bool = False


class KeyLimits:
    """Slots of limit keys: their holders, and the procedures that wait for them."""

    _held = WITH_SLOT
    """Marks in a head of one that holds slots."""
    _slot = Admitted.SLOT
    _granted = Admitted.SLOT | Admitted.STARTED

    def __init__(
        self, concurrency: Mapping[str, int] | None = None, rate: Mapping[str, tuple[int, float]] | None = None
    ) -> None:
        self._concurrency = dict(concurrency or {})
        self._rate = dict(rate or {})
        self._patterns: list[str] = []
        if self._concurrency or self._rate:
            patterns = (name[:-1] for name in {*self._concurrency, *self._rate} if name.endswith("*"))
            self._patterns.extend(sorted(patterns, key=len, reverse=True))
        self.holders = 0
        """Procedures that hold slots."""
        self._keys: dict[str, _Key] = {}
        self.waiting: dict[str, _Waiter] = {}
        """Procedures that wait; for others to look at."""
        self._waiting_in: dict[str, int] = {}
        self._candidates: dict[str, list[tuple[float, int, str]]] = {}
        """Per class of work those who may have got what they wait for; looked at again by `peek`."""
        self._opening: list[tuple[float, str]] = []
        """Times at which the window of a key has room again."""
        self._told = 0.0
        """The time that the last of these was told of at."""
        self._count = 0

    def __len__(self) -> int:
        return len(self.waiting)

    def __contains__(self, procedure: str) -> bool:
        return procedure in self.waiting

    def names(self) -> list[str]:
        """All procedures that wait."""
        return list(self.waiting)

    # ------------------------------------------------------------ what holds for whom
    def _key(self, name: str) -> _Key | None:
        """The key's state, None when no limit is configured for it."""
        known = self._keys.get(name)
        if known is not None:
            return known
        rule = name
        if name not in self._concurrency and name not in self._rate:
            prefix = next((prefix for prefix in self._patterns if name.startswith(prefix)), None)
            if prefix is None:
                return None
            rule = prefix + "*"
        made = self._keys[name] = _Key(name, self._concurrency.get(rule), self._rate.get(rule))
        return made

    def _keys_of(self, record: ProcedureRecord) -> list[_Key]:
        return [key for name in record.limit_keys if (key := self._key(name)) is not None]

    def restore(self, records: Iterable[ProcedureRecord], starts: Iterable[StartRecord]) -> None:
        """Take up what is stored: who holds slots, and what the rates have counted."""
        for record in records:
            if record.admitted in self._held:
                self.holders += 1
                for key in self._keys_of(record):
                    key.taken += 1
        for start in sorted(starts, key=_at):
            rated = self._key(start.key)
            if rated is None or not rated.rate:
                continue
            rated.places = max(rated.places, start.place + 1)
            if len(rated.starts) >= rated.rate:
                rated.starts.popleft()
            rated.starts.append((start.at, start.place))

    def concerns(self, record: ProcedureRecord) -> bool:
        """True if it must have slots, or be counted, before it goes on."""
        if record.admitted in WITH_SLOT or record.undoing or record.rolling:
            return False
        return any(self._key(name) is not None for name in record.limit_keys)

    def waits_in(self, root: str) -> bool:
        """True when a member of this tree waits for slots."""
        return root in self._waiting_in

    def why(self, procedure: str, now: float) -> str | None:
        """The limits that a waiting procedure waits for, in words."""
        waiter = self.waiting.get(procedure)
        if waiter is None:
            return None
        for key in waiter.keys:
            if key.capacity is not None and key.taken >= key.capacity:
                return f"for a slot of {key.name!r}: {key.taken} of {key.capacity} are taken"
            if waiter.is_new and key.open_at(now) > now:
                return f"for the rate of {key.name!r}: {key.rate} starts in {key.per:g} s"
        return f"for its turn among those that wait for {', '.join(repr(key.name) for key in waiter.keys)}"

    # ------------------------------------------------------------ waiting
    def wait(self, record: ProcedureRecord, order: float, work_class: str) -> None:
        """Queue a procedure for all its keys; one that waits already keeps its place."""
        if record.id in self.waiting:
            return
        self._count += 1
        is_new = record.admitted not in WITH_STARTED
        waiter = _Waiter(order, self._count, self._keys_of(record), work_class, is_new, record.root)
        self.waiting[record.id] = waiter
        self._waiting_in[record.root] = self._waiting_in.get(record.root, 0) + 1
        for key in waiter.keys:
            heapq.heappush(key.waiting, (order, self._count, record.id))
        self._list(record.id, waiter)

    def discard(self, procedure: str) -> None:
        """It does not wait any more; who stood behind it may go on."""
        waiter = self.waiting.pop(procedure, None)
        if waiter is None:
            return
        left = self._waiting_in.pop(waiter.root) - 1
        if left:
            self._waiting_in[waiter.root] = left
        for key in waiter.keys:
            self._list_first(key)

    def peek(self, work_class: str, now: float) -> tuple[float, str] | None:
        """The first procedure of a class of work that can have all its slots now, with its virtual deadline."""
        heap = self._candidates.get(work_class)
        while heap:
            order, number, procedure = heap[0]
            waiter = self.waiting.get(procedure)
            if waiter is not None and waiter.number == number:
                if self._can_have_all(procedure, waiter, now):
                    return order, procedure
                waiter.listed = False
            heapq.heappop(heap)
        return None

    def classes(self) -> list[str]:
        """Classes of work of which a procedure may have got slots."""
        return [name for name, heap in self._candidates.items() if heap]

    def grant(self, record: ProcedureRecord, now: float) -> list[StartRecord]:
        """Give the procedure that `peek` named its slots; the starts to be stored. The head has changed."""
        waiter = self.waiting[record.id]
        for key in waiter.keys:
            key.taken += 1
        counted = [key.count(now) for key in waiter.keys if waiter.is_new and key.rate]
        record.admitted |= self._granted
        self.holders += 1
        self.discard(record.id)
        return counted

    def release(self, record: ProcedureRecord) -> None:
        """Take a procedure's slots back. The head has changed."""
        record.admitted &= ~self._slot
        self.holders = max(0, self.holders - 1)
        for key in self._keys_of(record):
            key.taken = max(0, key.taken - 1)
            self._list_first(key)

    # ------------------------------------------------------------ time
    def next_at(self) -> float | None:
        """Time at which the next window opens that a procedure waits for."""
        return self._opening[0][0] if self._opening else None

    def pass_time(self, now: float) -> None:
        """Look again at those whose window has opened; at all when the clock was set back."""
        is_set_back = now < self._told
        self._told = min(self._told, now)
        while self._opening and (is_set_back or self._opening[0][0] <= now):
            key = self._keys.get(heapq.heappop(self._opening)[1])
            if key is not None:
                key.announced = 0.0  # should the clock be set back now, it opens at this time once more
                self._list_first(key)

    # ------------------------------------------------------------ inside
    def _first(self, key: _Key) -> str | None:
        while key.waiting:
            _, number, procedure = key.waiting[0]
            waiter = self.waiting.get(procedure)
            if waiter is not None and waiter.number == number:
                return procedure
            heapq.heappop(key.waiting)
        return None

    def _list_first(self, key: _Key) -> None:
        first = self._first(key)
        if first is not None:
            self._list(first, self.waiting[first])
        elif key.is_unused:
            self._keys.pop(key.name, None)

    def _list(self, procedure: str, waiter: _Waiter) -> None:
        if not waiter.listed:
            waiter.listed = True
            heapq.heappush(self._candidates.setdefault(waiter.work_class, []), (waiter.order, waiter.number, procedure))

    def _can_have_all(self, procedure: str, waiter: _Waiter, now: float) -> bool:
        for key in waiter.keys:
            if self._first(key) != procedure or (key.capacity is not None and key.taken >= key.capacity):
                return False
            if waiter.is_new and (opens := key.open_at(now)) > now:
                if opens != key.announced:
                    key.announced = opens
                    self._told = now
                    heapq.heappush(self._opening, (opens, key.name))
                return False
        return True


class RootLimit(KeyLimits):
    """The limit of running roots: slots of one key, held from before the first lock to the end."""

    _held = WITH_RUNNING
    _slot = _granted = Admitted.RUNNING

    def __init__(self, capacity: int | None = None) -> None:
        self.capacity = capacity
        super().__init__(None if capacity is None else {_ROOTS: capacity})

    def _keys_of(self, record: ProcedureRecord) -> list[_Key]:
        key = None if record.parent is not None else self._keys.get(_ROOTS) or self._key(_ROOTS)
        return [] if key is None else [key]

    def ask(self, record: ProcedureRecord, order: float) -> bool:
        """Let a root in, or have it wait by its virtual deadline; True when it is in and its head has changed."""
        is_first = not self.waiting
        self.wait(record, order, _ROOTS)
        if is_first and self.next() is not None:
            self.admit(record)
            return True
        return False

    def next(self) -> str | None:
        """The root that is admitted next; None when there is none, or no room."""
        found = self.peek(_ROOTS, 0.0)
        return None if found is None else found[1]

    def admit(self, record: ProcedureRecord) -> None:
        """Let a root in, also beyond the limit: one that began already may hold what those inside wait for."""
        self.wait(record, 0.0, _ROOTS)
        self.grant(record, 0.0)
