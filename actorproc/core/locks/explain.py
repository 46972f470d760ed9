"""Report on locks: the waiters of each, and the dangling ones, which no procedure will give up.

Both are pure joins of stored lock records with what the lock table says, so they may run in any thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Generic, TypeVar

from actorproc.core.locks.modes import CONFLICTS, OWN, ancestors_of, needs_of
from actorproc.core.locks.request import LockWaiter
from actorproc.core.locks.view import LockView
from actorproc.errors import StoreDamaged
from actorproc.model.policies import LockKey, LockMode, is_nested
from actorproc.model.rows.records import LockRecord, ProcedureRecord
from actorproc.model.states import TERMINAL

__all__ = ["WaitersByNode", "dangling", "why_waiting"]

T = TypeVar("T")

_NAMED = 5
"""Holders or waiters named in a sentence."""


def why_waiting(locks: LockView, procedure: str) -> str:
    """Text of a queued procedure's wait: its key and the holders, "waits for write of 'a/b' held by job-1".

    Of several keys that are taken, the first one declared is named.
    """
    keys = locks.waiting()[procedure].keys
    for key in keys:
        if holders := list(islice(locks.holders_against(procedure, key), _NAMED)):
            return f"waits for {_asked(key)} held by {', '.join(holders)}"
    asked = " and ".join(map(_asked, keys[:_NAMED]))
    earlier = ", ".join(islice(locks.blockers(procedure), _NAMED)) or "earlier waiters"
    return f"waits for {asked} behind {earlier}"


def _asked(key: LockKey) -> str:
    return f"{key.mode.word} of {key.path!r}"


class WaitersByNode(Generic[T]):
    """The queue of the lock table, indexed by the nodes that its waiters need.

    Locks side by side under a node that many wait for have the same waiters. They get one tuple, made once, so a lock
    table costs what its locks and its queue cost and not their product.
    """

    def __init__(self, waiters: Iterable[LockWaiter], show: Callable[[LockWaiter, LockMode], T]) -> None:
        """`waiters` are in queue order; `show` is what becomes of one, given the mode it asks for."""
        self._show = show
        self._needing: dict[str, list[tuple[int, LockWaiter]]] = {}
        self._taking: dict[str, list[tuple[int, LockWaiter]]] = {}
        """Of `_needing`, those that ask for the node itself and so for everything below it."""
        self._families: set[str] = set()
        """The waiters and their ancestors."""
        self._shared: dict[tuple[str, LockMode], tuple[T, ...]] = {}
        """Waiters of locks that only a key above stands against, by parent node and mode."""
        for place, waiter in enumerate(waiters):
            self._families |= waiter.lineage
            for path, mask in waiter.needs.items():
                self._needing.setdefault(path, []).append((place, waiter))
                if mask & OWN:
                    self._taking.setdefault(path, []).append((place, waiter))

    def of(self, lock: LockRecord) -> tuple[T, ...]:
        """Waiters for this lock, in queue order, with the mode asked for on its path, above it or below it.

        That is who conflicts with it, and who waits behind such a waiter. The locks of its own ancestors
        are in no procedure's way.
        """
        if lock.path in self._needing or lock.holder in self._families:
            return self._found(lock)
        alike = (lock.path.rpartition("/")[0], lock.mode)
        if alike not in self._shared:
            self._shared[alike] = self._found(lock)
        return self._shared[alike]

    def _found(self, lock: LockRecord) -> tuple[T, ...]:
        held = needs_of((LockKey(lock.path, lock.mode),))
        candidates = dict(self._needing.get(lock.path, ()))
        for path in ancestors_of(lock.path):
            candidates.update(self._taking.get(path, ()))
        found = []
        in_front: dict[str, int] = {}
        for _, waiter in sorted(candidates.items()):
            if lock.holder in waiter.lineage:
                continue
            is_behind = not waiter.ahead and _conflict(waiter.needs, in_front)
            if is_behind or _conflict(waiter.needs, held):
                found.append(self._show(waiter, _mode_on(waiter, lock.path)))
                for path, mask in waiter.needs.items():
                    if is_nested(path, lock.path):
                        in_front[path] = in_front.get(path, 0) | mask
        return tuple(found)


def _conflict(needs: Mapping[str, int], others: Mapping[str, int]) -> bool:
    return any(CONFLICTS[mask] & others.get(path, 0) for path, mask in needs.items())


def _mode_on(waiter: LockWaiter, path: str) -> LockMode:
    """The strongest mode of a waiter's keys at a path, above it or below it."""
    return max(key.mode for key in waiter.keys if is_nested(key.path, path))


def dangling(
    locks: Sequence[LockRecord],
    held: Mapping[str, Mapping[str, LockMode]],
    head_of: Callable[[str], ProcedureRecord | None],
) -> list[tuple[LockRecord, str]]:
    """Stored locks that no procedure will ever give up, or that memory does not know as they are; with the reason.

    `held` are the keys the running engine holds, by procedure. Keys that it holds and the store does not are reported
    too. `head_of` gives a procedure's head, None when there is none, and raises `StoreDamaged` when it cannot be read.
    """

    def root_of(holder: str) -> str:
        try:
            head = head_of(holder)
        except StoreDamaged:
            head = None
        return head.root if head is not None else holder

    found = []
    for lock in locks:
        reason = _flaw_of(lock, held, head_of)
        if reason is not None:
            found.append((lock, reason))
    stored = {(lock.holder, lock.path) for lock in locks}
    for holder, keys in held.items():
        for path, mode in keys.items():
            if (holder, path) not in stored:
                row = LockRecord(path, LockMode(mode), holder, root_of(holder), 0.0)
                found.append((row, "the running engine holds it and the store does not"))
    return found


def _flaw_of(
    lock: LockRecord,
    held: Mapping[str, Mapping[str, LockMode]],
    head_of: Callable[[str], ProcedureRecord | None],
) -> str | None:
    try:
        head = head_of(lock.holder)
    except StoreDamaged as error:
        return f"its holder {lock.holder} cannot be read: {error.reason}"
    if head is None:
        return f"its holder {lock.holder} does not exist"
    if head.state in TERMINAL and not head.undoing:
        return f"its holder {lock.holder} has ended {head.state}"
    if head.root != lock.root:
        return f"its holder {lock.holder} belongs to the tree of {head.root}, not of {lock.root}"
    mode = held.get(lock.holder, {}).get(lock.path)
    if mode is None:
        return "the store holds it and the running engine does not"
    if mode != lock.mode:
        return f"the running engine holds it for {LockMode(mode).word}, the store for {lock.mode.word}"
    return None
