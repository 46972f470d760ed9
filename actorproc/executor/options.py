"""Options of calls: limits and retries, for all calls of an executor or for some."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Callable
from typing import Any, NamedTuple, ParamSpec, Protocol, TypeVar

import msgspec

from actorproc.api.manager import ProcedureManager
from actorproc.config import Config
from actorproc.engine.arguments import check_workers, checked_limits
from actorproc.executor.futures import DurableFuture
from actorproc.executor.results import CallTimeout
from actorproc.model.policies import StepLimits
from actorproc.procedure.authoring.call import Call, call_chunk
from actorproc.procedure.declaring.policies import Limits, RetryPolicy
from actorproc.support.durations import seconds_or_none

__all__ = ["CallOptions", "Submit", "check_arguments", "manager_for", "name_of"]

P = ParamSpec("P")
T = TypeVar("T")


class Submit(Protocol):
    """`ProcedureExecutor.submit` with options: what `ProcedureExecutor.submit_with` returns."""

    def __call__(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> DurableFuture[T]:
        """Queue ``fn(*args, **kwargs)``."""
        ...


class CallOptions(NamedTuple):
    """Limits and retry policy of a call, checked; None: those of `Call`."""

    limits: Limits | None = None
    retry: RetryPolicy | None = None
    stored: StepLimits | None = None
    """Rows that the engine stores of both."""

    @classmethod
    def of(cls, limits: Any, retry: Any, timeout: Any = None) -> CallOptions:
        """Options from the arguments of a program. Raises TypeError and ValueError."""
        if limits is not None and checked_limits(limits) is not None:
            if limits.heartbeat is not None:
                msg = (
                    "Limits(heartbeat=…) is for steps: a call sends no heartbeats, and would always be killed; "
                    "give it a timeout, or Limits(wall_time=…)"
                )
                raise ValueError(msg)
            if limits.tasks is not None:
                msg = f"Limits(tasks={limits.tasks}) is for async steps: a call is a plain function, and on no loop"
                raise ValueError(msg)
        if retry is not None and not isinstance(retry, RetryPolicy):
            msg = f"retry is a RetryPolicy(…), not {retry!r:.60}"
            raise TypeError(msg)
        seconds = seconds_or_none(timeout, "timeout", least="above zero")
        if seconds is not None:
            limits = msgspec.structs.replace(limits if limits is not None else Limits(), wall_time=seconds)
        if limits is None and retry is None:
            return cls()
        stored = (limits if limits is not None else Limits()).of_step
        if retry is not None:
            stored = msgspec.structs.replace(stored, retry=retry.backoff, retries_overtime=_takes_timeouts(retry))
        return cls(limits, retry, stored)

    def changed(self, limits: Any, retry: Any, timeout: Any) -> CallOptions:
        """These options, but for those that are given."""
        if limits is None and retry is None and timeout is None:
            return self
        return self.of(self.limits if limits is None else limits, self.retry if retry is None else retry, timeout)


def _takes_timeouts(retry: RetryPolicy) -> bool:
    """True: a call that was killed for its time is tried again; callers know its error as `CallTimeout`."""
    classes = retry.retry_on if isinstance(retry.retry_on, tuple) else (retry.retry_on,)
    return retry.retries_overtime or CallTimeout in classes


def manager_for(
    manager: ProcedureManager | str | os.PathLike[str],
    max_workers: int | None,
    max_tasks_per_child: int | None,
    config: Any,
    retain: Any,
) -> ProcedureManager:
    """The manager of an executor: the one that is given, or a new one of its own at a path.

    Raises TypeError and ValueError; also for options that are given with another's manager.
    """
    if not isinstance(manager, ProcedureManager):
        settings = _config_of(config, max_tasks_per_child, retain)
        return ProcedureManager(manager, procedures=[Call], workers=max_workers, config=settings)
    if any(given is not None for given in (max_workers, max_tasks_per_child, config, retain)):
        msg = (
            "max_workers, max_tasks_per_child, config and retain are for an executor with a manager of its "
            "own; a manager is given them when it is made"
        )
        raise ValueError(msg)
    manager.register(Call)
    return manager


def _config_of(config: Any, max_tasks_per_child: int | None, retain: Any) -> Config:
    """The settings of an executor's own manager. Raises TypeError and ValueError."""
    if config is not None and not isinstance(config, Config):
        msg = f"config is a Config(…), not {config!r:.60}"
        raise TypeError(msg)
    changes: dict[str, Any] = {}
    if max_tasks_per_child is not None:
        changes["recycle_steps"] = max_tasks_per_child
    if retain is not None:
        changes["retain_for"] = seconds_or_none(retain, "retain", least="zero")
    return dataclasses.replace(config if config is not None else Config(), **changes)


def check_arguments(max_workers: Any, mp_context: Any, initializer: Any, max_tasks_per_child: Any) -> None:
    """Refuse what `ProcessPoolExecutor` refuses of these arguments, and the fork start method."""
    if max_workers is not None:
        if isinstance(max_workers, int) and max_workers <= 0:
            msg = "max_workers must be greater than 0"
            raise ValueError(msg)
        check_workers(max_workers)
    if initializer is not None and not callable(initializer):
        msg = "initializer must be a callable"
        raise TypeError(msg)
    if mp_context is not None and mp_context.get_start_method(allow_none=True) == "fork":
        msg = "mp_context: workers are fresh interpreters and never forked; leave it out, or give a 'spawn' context"
        raise ValueError(msg)
    if max_tasks_per_child is not None and (not isinstance(max_tasks_per_child, int) or max_tasks_per_child <= 0):
        msg = "max_tasks_per_child must be a number of calls, greater than 0"
        raise ValueError(msg)


def name_of(function: Callable[..., Any]) -> str:
    """The function's name for people who look at the calls, as their ``owner``."""
    while isinstance(function, functools.partial):
        function = function.args[0] if function.func is call_chunk else function.func
    name = getattr(function, "__qualname__", None) or type(function).__qualname__
    full = f"{getattr(function, '__module__', '')}.{name}"[:200]
    return full if full.isascii() else full.encode("ascii", "backslashreplace").decode()
