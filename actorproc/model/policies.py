"""Numbers that steer a procedure: backoff, limits, lock keys."""

from __future__ import annotations

from enum import IntEnum, IntFlag
from typing import TYPE_CHECKING, Literal, Self

import msgspec

from actorproc.model.exact import exact_text

__all__ = [
    "TASKS",
    "Backoff",
    "LockBit",
    "LockKey",
    "LockMode",
    "LockScope",
    "OnChildFailure",
    "OnExisting",
    "Quotas",
    "Retention",
    "Scheduling",
    "StepLimits",
    "StepPolicy",
    "TypeMeta",
    "checked_lock_key",
    "exclude_each_other",
    "is_nested",
]

OnChildFailure = Literal["fail", "resume"]
LockScope = Literal["procedure", "step"]
OnExisting = Literal["same", "error", "restart-failed", "restart"]
"""Policies of a submit whose id exists."""


class LockBit(IntFlag):
    """Claims on one node of the hierarchy: two on the keys below it, and one for each `LockMode`."""

    READS_BELOW = 1
    WRITES_BELOW = 2
    READS = 4
    WRITES = 8


_EVERYTHING = sum(LockBit)


class LockMode(IntEnum):
    """Mode of a lock key; intentions on ancestors are derived, never declared.

    All that the engine does with a mode is said here. The first number is the one that is stored; modes are compared by
    their strength.
    """

    own: int
    """Claim on the key itself, a `LockBit`."""
    above: int
    """Claim on each key above it: the intention."""
    against: int
    """Claims of others that it excludes, and that exclude it."""
    covers: int
    """Claims on the key and below it that its holder has by it."""
    strength: int
    """A stronger mode may take the place of a weaker one."""
    poisons: bool
    """A rollback that gives up poisons the keys that are held so."""
    word: str
    """Name in reports, in JSON and on the command line."""

    def __new__(
        cls,
        number: int,
        own: int = 0,
        above: int = 0,
        against: int = 0,
        covers: int = 0,
        strength: int = 0,
        poisons: bool = False,
        word: str = "",
    ) -> Self:
        """A member with what is said of it; the engine asks for one by its number alone."""
        mode = int.__new__(cls, number)
        mode._value_ = number
        mode.own, mode.above, mode.against, mode.covers = int(own), int(above), int(against), int(covers)
        mode.strength, mode.poisons, mode.word = strength, poisons, word
        return mode

    READ = (
        1,
        LockBit.READS,
        LockBit.READS_BELOW,
        LockBit.WRITES_BELOW | LockBit.WRITES,
        LockBit.READS_BELOW | LockBit.READS,
        10,
        False,
        "read",
    )
    WRITE = 2, LockBit.WRITES, LockBit.WRITES_BELOW, _EVERYTHING, _EVERYTHING, 20, True, "write"

    @property
    def is_exclusive(self) -> bool:
        """Nothing of others goes beside it, not even the same."""
        return self.against == _EVERYTHING

    def __lt__(self, other: int) -> bool:
        return self.strength < getattr(other, "strength", other)

    def __le__(self, other: int) -> bool:
        return self.strength <= getattr(other, "strength", other)

    def __gt__(self, other: int) -> bool:
        return self.strength > getattr(other, "strength", other)

    def __ge__(self, other: int) -> bool:
        return self.strength >= getattr(other, "strength", other)


class _NoMode(TypeError, msgspec.ValidationError):
    """A lock key without a mode: a wrong call, or damaged bytes."""


def _no_mode() -> LockMode:
    msg = "a lock key says what it locks for: write LockKey.read('a/b') or LockKey.write('a/b'), not LockKey('a/b')"
    raise _NoMode(msg)


class LockKey(msgspec.Struct, frozen=True, array_like=True, gc=False, order=True):
    """A hierarchical lock key: segments joined by ``/``.

    A write of ``cat/db`` excludes everything below it; a lock below implies a shared intention on
    every ancestor (multi-granularity locking, Gray 1975).
    """

    path: str
    if TYPE_CHECKING:
        mode: LockMode
    else:  # called only when there is none, by a program or in stored bytes
        mode: LockMode = msgspec.field(default_factory=_no_mode)

    @classmethod
    def read(cls, path: str) -> LockKey:
        """A shared lock of a key and everything below it.

        Args:
            path: The key: segments joined by ``/``, at most 255 bytes in UTF-8.

        Returns:
            The key.

        Raises:
            TypeError: ``path`` is no text.
            ValueError: ``path`` can be no key.
        """
        return cls(_checked(path), LockMode.READ)

    @classmethod
    def write(cls, path: str) -> LockKey:
        """An exclusive lock of a key and everything below it.

        Args:
            path: The key: segments joined by ``/``, at most 255 bytes in UTF-8.

        Returns:
            The key.

        Raises:
            TypeError: ``path`` is no text.
            ValueError: ``path`` can be no key.
        """
        return cls(_checked(path), LockMode.WRITE)


def is_nested(one: str, other: str) -> bool:
    """True if the paths of two keys are equal, or one of them is above the other."""
    return one == other or one.startswith(other + "/") or other.startswith(one + "/")


def exclude_each_other(one: LockKey, other: LockKey) -> bool:
    """True if procedures of two trees cannot hold these keys at the same time."""
    if one.path == other.path:
        return bool(one.mode.against & other.mode.own or other.mode.against & one.mode.own)
    if other.path.startswith(one.path + "/"):
        return bool(one.mode.against & other.mode.above)
    return one.path.startswith(other.path + "/") and bool(other.mode.against & one.mode.above)


def checked_lock_key(key: object) -> LockKey:
    """A key from user code, made in whichever way: the constructor, which also reads what is stored, checks nothing.

    Returns it with a path that is plain text.
    """
    if not isinstance(key, LockKey) or not isinstance(key.mode, LockMode):
        msg = f"LockKey values are made by LockKey.read('a/b') and LockKey.write('a/b'), unlike {key!r:.80}"
        raise TypeError(msg)
    path = _checked(key.path)
    return key if path is key.path else LockKey(path, key.mode)


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
    return exact_text(path)


class Backoff(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The numeric part of a `RetryPolicy`; which errors are retryable is judged in the worker."""

    max_attempts: int = 3
    base: float = 0.5
    factor: float = 2.0
    cap: float = 60.0
    jitter: float = 0.25
    max_elapsed: float | None = None


TASKS = 100
"""Asynchronous steps that run beside each other in a worker where nothing else is said."""


class StepLimits(msgspec.Struct, frozen=True, array_like=True, kw_only=True, gc=False):
    """Limits of one step, as the engine carries and stores them; the public face is `actorproc.Limits`.

    Seconds and bytes; None means no limit.
    """

    wall_time: float | None = None
    cpu_time: float | None = None
    memory: int | None = None
    memory_hard: int | None = None
    crashes: int = 3
    dedicated: bool = False
    threads: int = 1
    nice: int | None = None
    cpus: tuple[int, ...] | None = None
    grace: float = 1.0
    processes: int | None = None
    abort_grace: float | None = None
    """Seconds a forward step may go on after its undo was decided; None: as `Scheduling.abort_grace` says."""
    retry: Backoff | None = None
    """Backoff after errors, of a call with a policy of its own; None: as the class says."""
    retries_overtime: bool = False
    """With `retry`: as `TypeMeta.retries_overtime`."""
    heartbeat: float | None = None
    """Seconds between two heartbeats of a step, and from its begin to the first, after which its worker is killed."""
    on: tuple[str, ...] = ()
    """Labels that the host must have, sorted."""
    resources: dict[str, float] = {}
    """Amounts that the step takes of its host's resources while it runs."""
    lock_wait: float | None = None
    """Seconds that a step may wait for the locks of its procedure, before its procedure fails."""
    given: tuple[str, ...] | None = None
    """Of a submit: the fields that it sets; the others are as the step and the class say. None: all are set."""
    tasks: int | None = None
    """Async steps that may run in a worker at once; None: the class of the step decides."""

    def over(self, declared: StepLimits) -> StepLimits:
        """The limits of a step: those that are given here, else those that it declares."""
        if self.given is None:
            return self
        return msgspec.structs.replace(declared, **{name: getattr(self, name) for name in self.given})

    @property
    def beside(self) -> int:
        """Steps like this one that may run in a worker at once, on threads or as tasks."""
        return self.tasks or self.threads

    @property
    def is_placed(self) -> bool:
        """Not every host will do."""
        return bool(self.on or self.resources)

    @property
    def is_watched(self) -> bool:
        """The host samples what the worker uses while the step runs."""
        return self.cpu_time is not None or self.memory_hard is not None or self.processes is not None

    @property
    def concerns_worker(self) -> bool:
        """The worker process must know: it sets something, or runs the step on a thread."""
        return (
            self.memory is not None
            or self.memory_hard is not None
            or self.nice is not None
            or self.cpus is not None
            or self.processes is not None
            or self.threads > 1
            or bool(self.tasks)
        )


class StepPolicy(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """Limits and retries of one step that declares its own, with those of its class where it says nothing."""

    limits: StepLimits
    retry: Backoff
    retries_overtime: bool = False
    """As `TypeMeta.retries_overtime`."""


class Quotas(msgspec.Struct, frozen=True):
    """Guards against procedures that spawn themselves or too many others; exceeding one fails the step that asks."""

    depth: int = 64
    """Deepest nesting of sub-procedures."""
    children: int = 100_000
    """Children of one procedure, over all its steps."""
    tree: int = 1_000_000
    """Procedures under one root, the root included."""
    dedicated: int = 16
    """Workers that belong to one procedure each, at the same time; more of them wait."""
    steps: int | None = 100
    """Records of done steps kept of a procedure with nothing to undo, at least; None: all."""


class Retention(msgspec.Struct, frozen=True):
    """Seconds for which finished trees are kept; None: for ever."""

    seconds: float | None = None
    count: int | None = None
    """Number of roots that are kept, those that finished last; None: any number."""
    failed_seconds: float | None = None
    """For trees that own poisoned keys or that were not wholly undone."""
    acknowledged_seconds: float = 60.0
    """After the result was acknowledged."""
    signals_seconds: float | None = None
    """For published events that no procedure has taken."""


class Scheduling(msgspec.Struct, frozen=True, kw_only=True):
    """In which order work goes to workers, how much of it at once, and how many workers there are; times in seconds."""

    priority_ageing: float = 60.0
    """Waiting that outweighs one level of priority."""
    max_running: int | None = None
    """Roots between their first step and their end at once; None: any number."""
    max_queued: int = 1_000_000
    """Unfinished roots beyond `max_running` that are accepted."""
    concurrency: dict[str, int] = {}
    """Procedures at once by limit key; a key that ends in ``*`` stands for every key that begins so, each by itself."""
    rate: dict[str, tuple[int, float]] = {}
    """By limit key ``(count, seconds)``: at most `count` procedures start in any span of `seconds`."""
    shares: dict[str, float] = {}
    """By class of work: the part of the workers it may use while others want them."""
    reserved: dict[str, int] = {}
    """By class of work: workers that are kept free for it."""
    workers: int = 0
    """Workers there should be; 0: the core leaves their number alone."""
    max_workers: int = 0
    """Workers there may be when all the others are stuck in long steps."""
    stuck_after: float = 10.0
    extra_worker_idle: float = 60.0
    abort_grace: float | None = None
    """For steps whose `StepLimits.abort_grace` is None; None: they may go on to their end."""


class TypeMeta(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """Traits of a procedure class that the engine must know without ever loading it."""

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
    cpu_time: float | None = None
    memory: int | None = None
    memory_hard: int | None = None
    dedicated: bool = False
    threads: int = 1
    nice: int | None = None
    cpus: tuple[int, ...] | None = None

    work_class: str = "default"
    """The class of work whose share of the workers its steps use."""
    best_effort: bool = False
    """An undo that gave up is recorded and skipped, instead of failing the whole rollback."""
    processes: int | None = None
    retries_overtime: bool = False
    """A step that was killed for its wall time or CPU time is tried again, as after other errors; undos always are."""
    abort_grace: float | None = None
    keep_steps: int | None = None
    """Records of done steps that are kept, at least; None: all where there may be something to undo, else as
    `Quotas.steps` says."""
    heartbeat: float | None = None
    """As `StepLimits.heartbeat`."""
    on: tuple[str, ...] = ()
    resources: dict[str, float] = {}
    lock_wait: float | None = None
    """As `StepLimits.lock_wait`."""
    steps: dict[str, StepPolicy] = {}
    """Steps with policies of their own, by name and by each former name."""
    tasks: int = 0
    """Steps that may run in a worker at once, as the class is asynchronous; 0: its steps are plain functions."""

    @property
    def is_placed(self) -> bool:
        """Not every host will do for each of its steps."""
        return bool(self.on or self.resources or any(policy.limits.is_placed for policy in self.steps.values()))

    @property
    def limits(self) -> StepLimits:
        """Limits of a step that the class declares."""
        return StepLimits(
            wall_time=self.wall_time,
            cpu_time=self.cpu_time,
            memory=self.memory,
            memory_hard=self.memory_hard,
            crashes=self.crashes,
            dedicated=self.dedicated,
            threads=self.threads,
            nice=self.nice,
            cpus=self.cpus,
            grace=self.grace,
            processes=self.processes,
            abort_grace=self.abort_grace,
            heartbeat=self.heartbeat,
            on=self.on,
            resources=self.resources,
            lock_wait=self.lock_wait,
            tasks=self.tasks or None,
        )
