"""Roots of an episode: what is submitted, how and when, and what is asked of it."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

__all__ = ["Debounced", "Enqueueing", "Root", "TransactionEnd"]

Spec = dict[str, Any]

TransactionEnd = Literal["commit", "rollback", "savepoint", "killed-before", "killed-during", "killed-after"]
"""Course of a transaction: committed; rolled back; or rolled back to a savepoint, written again and committed. In the
others its application kills itself: before the commit, while that is under way, or after it."""


class Debounced(msgspec.Struct, frozen=True, omit_defaults=True):
    """The submits of one key in each life."""

    within: float
    at_most: float | None
    pauses: tuple[float, ...]
    """Seconds before each submit."""


class Enqueueing(msgspec.Struct, frozen=True, omit_defaults=True):
    """The transaction that enqueues a root."""

    ends: TransactionEnd
    seconds: float = 0.0
    """Seconds from its first statement to its end; of ``killed-during``: from the begin of its commit to the kill."""
    notifies: bool = True
    """The commit wakes the leader."""


class Root(msgspec.Struct, frozen=True, omit_defaults=True):
    """One procedure that is submitted."""

    id: str
    spec: Spec
    ends: tuple[str, ...]
    """Final states that are right."""
    after: float = 0.0
    """Seconds after the host is up."""
    deadline: float | None = None
    abort_after: float | None = None
    force: bool = False
    """The abort is one by force."""
    signals: tuple[tuple[str, float], ...] = ()
    """Events to send, and when."""
    asks: tuple[tuple[str, str, float], ...] = ()
    """Names and ids of asks, and when they are sent first; each life sends all of them again."""
    debounce: Debounced | None = None
    """Its id is a debounce key, and it is submitted so, several times in each life."""
    enqueue: Enqueueing | None = None
    """An application enqueues it in this transaction, which may never be committed."""
    insists: bool = True
    """The caller submits again what was refused."""
    restarts: int = 0
    """The root is submitted again so many times, each time when it has ended."""
    exact: bool = True
    """True if the remains of a success are known: no part of the tree may fail on the way."""
