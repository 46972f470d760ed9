"""Threads of numeric libraries (OpenBLAS, MKL, OpenMP …) inside a call, limited in its worker."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

__all__ = ["LimitedThreads"]


class _Now:
    """The limit that the libraries of this process were given last."""

    threads: int | None = None


class LimitedThreads:
    """Calls a function in a worker whose numeric libraries are limited.

    It takes effect where it is unpickled: before what stands behind it in a pickle, such as arrays, loads a library.

    Args:
        variables: environment variables that the libraries read when they are loaded.
        threads: limit for those that are loaded already; it holds where threadpoolctl is installed.
    """

    def __init__(self, variables: dict[str, str], threads: int) -> None:
        self._variables = variables
        self._threads = threads

    def __reduce__(self) -> tuple[Any, ...]:
        return _limited, (self._variables, self._threads)

    def __call__(self, function: Callable[[], Any], parts: object) -> Any:
        """Call it. `parts` is what the function is made of where that does not show: they are pickled as well."""
        del parts
        return function()


def _limited(variables: dict[str, str], threads: int) -> LimitedThreads:
    os.environ.update(variables)
    if _Now.threads != threads:
        try:
            from threadpoolctl import threadpool_limits  # noqa: PLC0415 - an optional library
        except ImportError:
            pass
        else:
            threadpool_limits(limits=threads)
        _Now.threads = threads
    return LimitedThreads(variables, threads)
