"""Policies that a class declares: retries, and resources of a step."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from actorproc.errors import (
    InvalidStatus,
    RetryLater,
    StateNotEncodable,
    StateTooLarge,
    StepTimeout,
    UsageError,
    WaitTimeout,
)
from actorproc.model.placement import Amounts, checked_labels, checked_resources
from actorproc.model.policies import Backoff, StepLimits
from actorproc.procedure.values.error_text import OF_USERS
from actorproc.support.durations import Least, in_seconds, seconds_or_none

__all__ = ["Limits", "RetryOn", "RetryPolicy", "given_by", "is_count"]

RetryOn = type[BaseException] | tuple[type[BaseException], ...] | Callable[[BaseException], bool]
"""Exception classes, or a predicate on the exception raised."""

_NEVER: tuple[type[BaseException], ...] = (InvalidStatus, StateNotEncodable, StateTooLarge, WaitTimeout)
# Raised by user code to end the interpreter; in a step they are a failure like any other.
_OF_THE_PROCESS = ("cpu_time", "memory", "memory_hard", "dedicated", "nice", "cpus", "processes")
_EXITS = (KeyboardInterrupt, SystemExit, GeneratorExit)
_LONGEST_DELAY = 1e300
_RETRIES = frozenset({"max_retries", "retries"})
_MEANT = {
    **{("RetryPolicy", name): "max_attempts" for name in (*_RETRIES, "attempts", "tries", "max_tries", "stop_after")},
    **{("RetryPolicy", name): "base" for name in ("delay", "wait", "interval", "initial", "initial_interval", "after")},
    **{("RetryPolicy", name): "factor" for name in ("backoff", "multiplier", "exponent", "backoff_coefficient")},
    **{("RetryPolicy", name): "cap" for name in ("max_delay", "max_wait", "max_interval", "max_backoff", "maximum")},
    **{("RetryPolicy", name): "retry_on" for name in ("on", "errors", "exceptions", "retry_for", "retry_if")},
    **{("RetryPolicy", name): "never_on" for name in ("ignore", "give_up_on", "no_retry_for", "throws", "fatal")},
    **{("RetryPolicy", name): "max_elapsed" for name in ("timeout", "max_time", "max_duration")},
    **{("Limits", name): "wall_time" for name in ("timeout", "time", "time_limit", "max_time", "seconds", "walltime")},
    **{("Limits", name): "cpu_time" for name in ("cpu", "cpu_seconds", "max_cpu")},
    **{("Limits", name): "memory" for name in ("max_memory", "mem", "memory_limit", "ram", "rss")},
    **{("Limits", name): "heartbeat" for name in ("heartbeat_timeout", "heartbeat_interval", "silence")},
    **{("Limits", name): "crashes" for name in ("max_crashes", "crash_limit")},
    **{("Limits", name): "threads" for name in ("concurrency", "max_threads", "workers")},
    **{("Limits", name): "tasks" for name in ("max_tasks", "coroutines")},
}
"""Names that others give to an option."""
_set = msgspec.structs.force_setattr
"""For what a frozen struct keeps of a value: numbers and tuples of the very types that are stored."""


class _Explained(msgspec.StructMeta):
    """Says which options there are when a class is called with one that there is not."""

    if not TYPE_CHECKING:  # to a type checker the class has its own parameters

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            names = self.__struct_fields__
            unknown = [name for name in kwargs if name not in names]
            if unknown:
                raise TypeError(_unknown_option(self.__name__, unknown[0], kwargs[unknown[0]], names))
            try:
                made = super().__call__(*args, **kwargs)
            except TypeError as error:
                msg = f"{self.__name__}(…): {error}; its options are {', '.join(names)}"
                raise TypeError(msg) from None
            _set(made, "_given", (*names[: len(args)], *kwargs))
            return made


class _Options(msgspec.Struct, frozen=True, dict=True, metaclass=_Explained):
    """Options of which it is known which ones were given; the others leave room for those of a class."""

    def __reduce__(self) -> Any:
        return partial(type(self), **{name: getattr(self, name) for name in given_by(self)}), ()


def given_by(options: _Options) -> tuple[str, ...]:
    """Names of the options that were given, also those that were given their defaults."""
    names: tuple[str, ...] | None = options.__dict__.get("_given")
    if names is None:  # made by `msgspec.structs.replace` or `copy.copy`
        defaults = type(options)()
        names = tuple(name for name in options.__struct_fields__ if getattr(options, name) != getattr(defaults, name))
    return names


class RetryPolicy(_Options, frozen=True):
    """Rules for trying errors of a step again: which, how often and when.

    The nth retry waits ``base * factor**(n-1)``, at most ``cap``, and up to the fraction ``jitter`` longer. A step that
    was killed for its ``wall_time``, ``cpu_time`` or ``heartbeat`` is tried again only where ``retry_on`` takes a
    `StepTimeout`, which the default does not. A predicate is asked that once, when the class is registered.

    Args:
        max_attempts: Greatest number of attempts, the first included, at least 1. Default: 3.
        base: Seconds, or a timedelta, before the first retry. Default: 0.5.
        factor: Factor from one wait to the next, at least 1. Default: 2.
        cap: Seconds, or a timedelta: the longest wait. Default: 60.
        jitter: Greatest random part of a wait, from 0 to 1. Default: 0.25.
        max_elapsed: Seconds, or a timedelta, since the first error; then no retry begins. Default: None, without limit.
        retry_on: Errors that are tried again: an exception class, a tuple of them, or a predicate. Default:
            `RetryLater`, `ConnectionError` and `TimeoutError`.
        never_on: Errors that are not, in the same form; it wins. Default: none.

    Raises:
        UsageError: A value makes no sense.
        TypeError: There is no such option.
    """

    max_attempts: int = 3
    base: float | timedelta = 0.5
    factor: float = 2.0
    cap: float | timedelta = 60.0
    jitter: float = 0.25
    max_elapsed: float | timedelta | None = None
    retry_on: RetryOn = (RetryLater, ConnectionError, TimeoutError)
    never_on: RetryOn = ()

    def __post_init__(self) -> None:
        if not is_count(self.max_attempts, 1):
            _refuse("RetryPolicy", "max_attempts", self.max_attempts, "a whole number, at least 1")
        for name in ("base", "cap", "max_elapsed"):
            _set(self, name, _seconds("RetryPolicy", name, getattr(self, name), may_be_none=name == "max_elapsed"))
        _check_number("RetryPolicy", "factor", self.factor, least=1.0)
        _check_number("RetryPolicy", "jitter", self.jitter, least=0.0, most=1.0)
        for name in ("retry_on", "never_on"):
            _check_errors(name, getattr(self, name))

    @property
    def backoff(self) -> Backoff:
        """The numbers of this policy, as the engine stores them."""
        return msgspec.convert(self, Backoff, from_attributes=True)

    @property
    def retries_overtime(self) -> bool:
        """A `StepTimeout` is tried again. Asked once for each class: the engine judges its kills without user code."""
        return self.judge(StepTimeout("the step ran longer than its limits allow"))[0]

    def judge(self, error: BaseException) -> tuple[bool, float | None]:
        """Tell whether an error is tried again, and after how many seconds.

        Args:
            error: The error of a step.

        Returns:
            True or False, and the seconds that a `RetryLater` asks for; None: by the backoff.
        """
        if isinstance(error, _NEVER) or _matches(self.never_on, error):
            return False, None
        if not _matches(self.retry_on, error):
            return False, None
        return _asked_delay(error) if isinstance(error, RetryLater) else (True, None)


class Limits(_Options, frozen=True):
    """Limits of one step. Durations are seconds or timedeltas, sizes bytes; None means no limit.

    Args:
        wall_time: Duration after which the step is asked to stop with SIGTERM and killed after ``grace``:
            `StepTimeout`. Default: None.
        cpu_time: Processor time of its worker and the processes below it, sampled by the host; then it ends as by
            ``wall_time``. Default: None.
        memory: Bytes a step may allocate on top of what its worker holds already; beyond it allocation raises
            `MemoryError` in the step (Linux). Default: None.
        memory_hard: Bytes that the worker and the processes below it may have resident in all; beyond it they are
            killed, as a crash. Default: None.
        crashes: Number of crashes of one step that make it fail with `WorkerCrashed`, at least 1. Default: 3.
        dedicated: Give the procedure a worker of its own for its whole life. Default: False.
        threads: Number of steps of such procedures that run at once in one worker, at least 1: for steps that wait for
            networks and disks. Default: 1.
        nice: Niceness while the step runs, -20 to 19. Default: None.
        cpus: Numbers of the processors it may use while the step runs. Default: None.
        grace: Duration from SIGTERM to SIGKILL. Default: 1.
        processes: Number of processes a step may have started that live at the same time. Beyond it they are killed, as
            a crash; the kernel stops a fork bomb before it is seen, where it can (`Health.process_limits`). Default:
            None.
        abort_grace: Duration that a step may go on after the decision to undo its procedure; `Context.aborting` tells
            it. Then it is stopped with SIGTERM and killed after ``grace``. `math.inf`: to its end. Default: None, as
            `Config.abort_grace` says.
        heartbeat: Longest duration from the begin of a step to its first `Context.heartbeat`, and from each to the
            next; then it ends as by ``wall_time``. Default: None, so that silence ends no step.
        on: Labels that a host must have to get the step, ``("gpu",)``; while none has them the procedure waits.
            Default: none.
        resources: Amounts by name that the step takes of its host's resources while it runs, ``{"gpu": 1}``; three
            decimals count. Default: none.
        lock_wait: Longest duration that the procedure waits for its locks, before the first step, or before the step
            that needs further ones. Then it fails with `LockTimeout` and is undone. An undo waits without limit.
            Default: None.
        tasks: Number of steps of such procedures that run at once on the event loop of one worker, at least 1: for
            classes with ``async def`` steps. Default: None, 100 for these.

    Raises:
        UsageError: A value makes no sense, or ``threads`` or ``tasks`` is given with a limit of the whole process.
        TypeError: There is no such option.
    """

    wall_time: float | timedelta | None = None
    cpu_time: float | timedelta | None = None
    memory: int | None = None
    memory_hard: int | None = None
    crashes: int = 3
    dedicated: bool = False
    threads: int = 1
    nice: int | None = None
    cpus: tuple[int, ...] | None = None
    grace: float | timedelta = 1.0
    processes: int | None = None
    abort_grace: float | timedelta | None = None
    heartbeat: float | timedelta | None = None
    on: tuple[str, ...] = ()
    resources: Mapping[str, float] = Amounts()
    lock_wait: float | timedelta | None = None
    tasks: int | None = None

    def __post_init__(self) -> None:
        for name in ("wall_time", "cpu_time", "heartbeat", "lock_wait", "grace"):
            is_limit = name != "grace"
            least: Least = "above zero" if is_limit else "zero"
            _set(self, name, _seconds("Limits", name, getattr(self, name), least=least, may_be_none=is_limit))
        if self.abort_grace is not None:
            _set(self, "abort_grace", _seconds("Limits", "abort_grace", self.abort_grace, endless=True))
        for name in ("memory", "memory_hard"):
            value = getattr(self, name)
            if value is not None and not is_count(value, 1):
                _refuse("Limits", name, value, "a number of bytes, at least 1, or None")
        if self.processes is not None and not is_count(self.processes, 1):
            _refuse("Limits", "processes", self.processes, "a whole number, at least 1, or None")
        for name in ("crashes", "threads"):
            value = getattr(self, name)
            if not is_count(value, 1):
                _refuse("Limits", name, value, "a whole number, at least 1")
        if not _is_flag(self.dedicated):
            _refuse("Limits", "dedicated", self.dedicated, "True or False")
        if self.nice is not None and (type(self.nice) is not int or not -20 <= self.nice <= 19):
            _refuse("Limits", "nice", self.nice, "a whole number from -20 to 19, or None")
        if self.cpus is not None:
            _set(self, "cpus", _checked_cpus(self.cpus))
        self._check_placement()
        self._check_beside()

    def _check_beside(self) -> None:
        if self.tasks is not None and not is_count(self.tasks, 1):
            _refuse("Limits", "tasks", self.tasks, "a whole number, at least 1, or None")
        if self.threads > 1 and (limit := self.of_the_process):
            msg = f"Limits(threads={self.threads}) cannot go with {limit}, which concerns the whole worker process"
            raise UsageError(msg)
        if self.tasks is not None and (limit := "threads" if self.threads > 1 else self.of_the_process):
            msg = f"Limits(tasks={self.tasks}) cannot go with {limit}, which concerns the whole worker process"
            raise UsageError(msg)

    @property
    def of_the_process(self) -> str:
        """A limit that is given here and concerns the whole worker process; "": none is."""
        return next((name for name in _OF_THE_PROCESS if getattr(self, name)), "")

    def _check_placement(self) -> None:
        if self.on == () and type(self.resources) is Amounts:
            return
        try:
            _set(self, "on", checked_labels(self.on, "Limits(on=…)"))
            _set(self, "resources", checked_resources(self.resources, "Limits(resources=…)"))
        except ValueError as error:
            raise UsageError(str(error)) from None

    @property
    def of_step(self) -> StepLimits:
        """The limits as the engine carries and stores them."""
        return msgspec.convert(self, StepLimits, from_attributes=True)

    @property
    def of_submit(self) -> StepLimits:
        """The same, with the names of those that hold before the ones of the step and the class."""
        return msgspec.structs.replace(self.of_step, given=given_by(self))


def _unknown_option(owner: str, name: str, value: object, names: tuple[str, ...]) -> str:
    meant = _MEANT.get((owner, name))
    if meant is None:
        near = difflib.get_close_matches(name, names, n=1)
        meant = near[0] if near else None
    text = f"{owner} has no option {name!r}"
    if meant == "max_attempts":
        count = value + 1 if name in _RETRIES and type(value) is int else value
        text += f"; write {owner}(max_attempts={count!r:.20}), which counts the first attempt too"
    elif meant is not None:
        text += f"; write {owner}({meant}=…)"
    return f"{text}; its options are {', '.join(names)}"


def _checked_cpus(cpus: Any) -> tuple[int, ...]:
    numbers: tuple[Any, ...] = tuple(cpus) if isinstance(cpus, Iterable) else ()
    if not numbers or not all(is_count(cpu, 0) for cpu in numbers):
        _refuse("Limits", "cpus", cpus, "a tuple of processor numbers, or None")
    return numbers


def is_count(value: Any, least: int) -> bool:
    """A whole number of at least this, which the store and the wire can hold."""
    return type(value) is int and least <= value < 2**63


def _is_flag(value: Any) -> bool:
    return type(value) is bool


def _asked_delay(error: RetryLater) -> tuple[bool, float | None]:
    """Delay that a `RetryLater` asks for. A class derived from it may have put anything there, which fails the step."""
    after: Any = error.after
    if after is None:
        return True, None
    is_number = isinstance(after, int | float) and not isinstance(after, bool)
    return (True, float(after)) if is_number and 0 <= after <= _LONGEST_DELAY else (False, None)


def _matches(rule: RetryOn, error: BaseException) -> bool:
    if isinstance(rule, type | tuple):
        classes = rule if isinstance(rule, tuple) else (rule,)
        return isinstance(error, classes) or (Exception in classes and isinstance(error, _EXITS))
    try:
        return bool(rule(error))
    except OF_USERS:  # a broken predicate must not hide the error it was asked about
        return False


def _check_errors(name: str, rule: Any) -> None:
    listed = rule if isinstance(rule, tuple) else (rule,)
    if all(isinstance(entry, type) and issubclass(entry, BaseException) for entry in listed):
        return
    if not isinstance(rule, tuple | type) and callable(rule):
        return
    advice = (
        "an exception class, a tuple of them such as (ConnectionError, TimeoutError), or a function of the exception"
    )
    if isinstance(rule, list | set | frozenset) and all(isinstance(entry, type) for entry in rule):
        names = ", ".join(entry.__name__ for entry in rule)
        advice += f"; write ({names}{',' if len(rule) == 1 else ''})"
    _refuse("RetryPolicy", name, rule, advice)


def _seconds(
    owner: str, name: str, value: Any, *, least: Least = "zero", may_be_none: bool = False, endless: bool = False
) -> float | None:
    check = seconds_or_none if may_be_none else in_seconds
    try:
        return check(value, f"{owner}({name}=…)", least=least, endless=endless)
    except (TypeError, ValueError) as error:
        raise UsageError(str(error)) from None


def _check_number(owner: str, name: str, value: Any, *, least: float, most: float | None = None) -> None:
    wanted = f"a finite number of at least {least:g}"
    if most is not None:
        wanted += f" and at most {most:g}"
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        _refuse(owner, name, value, wanted)
    if value < least or (most is not None and value > most):
        _refuse(owner, name, value, wanted)


def _refuse(owner: str, name: str, value: object, wanted: str) -> None:
    if type(value) is int and value >= 2**63:
        wanted += " and below 2**63"
    msg = f"{owner}({name}=…) is {wanted}, not {value!r}"
    raise UsageError(msg)
