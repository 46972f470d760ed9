"""Settings of the host program, put in force in a worker."""

from __future__ import annotations

import builtins
import contextlib
import logging
import os
import sys
import warnings
from importlib.machinery import ModuleSpec
from typing import Any

from actorproc.workers.protocol.host_program import HostProgram, WarningFilter

__all__ = ["take_over"]


def take_over(program: HostProgram) -> None:
    """Put the settings in force. Before a module of the program is imported, and before the process state is noted."""
    if program.umask is not None:
        os.umask(program.umask)
    if program.arguments is not None:
        sys.argv[:] = [part.decode("utf-8", "surrogatepass") for part in program.arguments]
    if program.filters is not None:
        _take_over_filters(program.filters)
    if program.captures_warnings:
        logging.captureWarnings(True)
    main: Any = sys.modules["__main__"]
    if program.main_file is not None and getattr(main, "__file__", None) is None:
        # For `inspect.getsource`. Under this name children of multiprocessing do not run the file, as they else would.
        main.__file__ = program.main_file.decode("utf-8", "surrogatepass")
        main.__spec__ = ModuleSpec("__main__", None)


def _take_over_filters(filters: tuple[WarningFilter, ...]) -> None:
    warnings.resetwarnings()
    for entry in filters:
        with contextlib.suppress(Exception):  # a pattern or an action that only another Python knows
            warnings.filterwarnings(
                entry.action,  # type: ignore[arg-type]
                message=entry.message,
                category=_category(*entry.category),
                module=entry.module,
                lineno=entry.line,
                append=True,
            )
    # Python 3.12 and later warn of every fork here, because of the worker's own second thread: no step can help it.
    warnings.filterwarnings("ignore", r"This process \(pid=\d+\) is multi-threaded", DeprecationWarning)


class _Named(type):
    """The metaclass of stand-ins for classes that may not be imported yet, or come by value: they go by name."""

    stands_for: tuple[str, str]

    def __subclasscheck__(cls, other: Any) -> bool:
        return any((kind.__module__, kind.__qualname__) == cls.stands_for for kind in other.__mro__)


def _category(module: str, name: str) -> type[Warning]:
    known = getattr(builtins, name, None) if module == "builtins" else None
    if isinstance(known, type) and issubclass(known, Warning):
        return known
    stand_in: Any = _Named(name, (Warning,), {"__module__": module, "stands_for": (module, name)})
    return stand_in  # type: ignore[no-any-return]
