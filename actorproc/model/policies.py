"""Numbers that steer a procedure: backoff, limits, lock keys."""

from __future__ import annotations

from enum import IntEnum
from typing import Literal

import msgspec

__all__ = ["Backoff", "LockKey", "LockMode", "LockScope", "OnChildFailure", "Quotas", "TypeMeta"]

OnChildFailure = Literal["fail", "resume"]
LockScope = Literal["procedure", "step"]


class LockMode(IntEnum):
    """What a lock key asks for; intentions on ancestors are derived, never declared."""

    READ = 1
    WRITE = 2


class LockKey(msgspec.Struct, frozen=True, array_like=True, gc=False, order=True):
    """A hierarchical lock key: segments joined by ``/``.

    A write of ``cat/db`` excludes everything below it; a lock below implies a shared intention on
    every ancestor (multi-granularity locking, Gray 1975).
    """

    path: str
    mode: LockMode

    @classmethod
    def read(cls, path: str) -> LockKey:
        """A shared lock of ``path`` and everything below it."""
        return cls(_checked(path), LockMode.READ)

    @classmethod
    def write(cls, path: str) -> LockKey:
        """An exclusive lock of ``path`` and everything below it."""
        return cls(_checked(path), LockMode.WRITE)


def _checked(path: object) -> str:
    if not isinstance(path, str):
        msg = f"a lock key is a string such as 'catalog/db/table', not {type(path).__name__}"
        raise TypeError(msg)
    if not path or any(not segment for segment in path.split("/")) or "\x00" in path:
        msg = f"lock key {path!r} is empty, has an empty segment, or holds NUL; write it as 'catalog/db/table'"
        raise ValueError(msg)
    try:
        size = len(path.encode())
    except UnicodeEncodeError:
        msg = f"lock key {path!a:.60} holds a lone surrogate, which cannot be stored"
        raise ValueError(msg) from None
    if size > 255:
        msg = f"lock key {path[:40]!r}… has {size} bytes in UTF-8; the limit is 255"
        raise ValueError(msg)
    return path


class Backoff(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The numeric part of a `RetryPolicy`; which errors are retryable is judged in the worker."""

    max_attempts: int = 3
    base: float = 0.5
    factor: float = 2.0
    cap: float = 60.0
    jitter: float = 0.25
    max_elapsed: float | None = None


class Quotas(msgspec.Struct, frozen=True):
    """Guards against procedures that spawn themselves or too many others; exceeding one fails the step that asks."""

    depth: int = 64
    """Deepest nesting of sub-procedures."""
    children: int = 100_000
    """Children of one procedure, over all its steps."""
    tree: int = 1_000_000
    """Procedures under one root, the root included."""


class TypeMeta(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """What the engine must know of a procedure class without ever loading it."""

    type_name: str
    version: int = 1
    retry: Backoff = Backoff()
    rollback_retry: Backoff = Backoff(max_attempts=10)
    rollback_supported: bool = False
    on_child_failure: OnChildFailure = "fail"
    undo_children: bool = True
    lock_scope: LockScope = "procedure"
    crashes: int = 3
    """Crashes of one step after which the step fails."""
    wall_time: float | None = None
    """Seconds a step may run before its worker is killed."""
    grace: float = 1.0
    """Seconds between SIGTERM and SIGKILL when a step is past its wall time."""
    asks_abort: bool = False
    """The class overrides `abort`: it is asked before an abort takes effect."""
    has_on_timeout: bool = False
    """The class overrides `on_timeout`: a wait that times out calls it."""
    codec: str = "data"
    """Codec of the states it dumps."""
