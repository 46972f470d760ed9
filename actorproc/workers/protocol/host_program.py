"""Settings of the host program that every worker of a manager begins with, as they were when the manager started.

A worker may start at any time: after a crash, for a burst of load, or as a spare. A step that runs again elsewhere must
find the same directory, environment, arguments and filters, whatever the program has changed since.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from actorproc.workers import fork_guard

__all__ = ["HostProgram", "StartPlace", "WarningFilter", "host_program"]

_NOT_FOR_WORKERS = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "PYTHONINSPECT")


class WarningFilter(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One entry of `warnings.filters`; the category goes by name, because its module may not be imported."""

    action: str
    message: str
    module: str
    line: int
    category: tuple[str, str]
    """Module and qualified name of the class."""


class HostProgram(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Settings that a worker takes over before it imports any module of the program."""

    arguments: tuple[bytes, ...] | None = None
    """`sys.argv`, for `text_of`; None: the program has none."""
    umask: int | None = None
    """None: the one that the process inherits."""
    filters: tuple[WarningFilter, ...] | None = None
    """`warnings.filters`, the first one first; None: those of a fresh interpreter."""
    captures_warnings: bool = False
    """`logging.captureWarnings(True)` is in force."""
    levels: dict[str, int] = {}
    """Levels of the loggers that were given one, by name."""
    root_level: int = logging.WARNING
    main_file: bytes | None = None
    """`__main__.__file__`, in UTF-8 with surrogates; None: the program is no file."""


def host_program() -> HostProgram:
    """The settings of this program now."""
    return HostProgram(
        arguments=_arguments(),
        umask=_umask(),
        filters=tuple(found for entry in list(warnings.filters) if (found := _plain_filter(entry)) is not None),
        captures_warnings=getattr(logging, "_warnings_showwarning", None) is not None,
        levels=_levels(),
        root_level=logging.getLogger().level,
        main_file=_main_file(),
    )


class StartPlace:
    """The directory and the environment of this program at one moment, for the processes that it starts later.

    The directory is held open: a process begins in it also when it was renamed or removed meanwhile.

    Args:
        withheld: Variables of the environment that they are not given. Default: none.
    """

    def __init__(self, withheld: Sequence[str] = ()) -> None:
        self.environment = _environment((*_NOT_FOR_WORKERS, *withheld))
        self.directory = -1
        """A descriptor; -1: the directory cannot be opened, and processes inherit the one of their start."""
        with fork_guard.starting:
            with contextlib.suppress(OSError):
                self.directory = os.open(".", getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC)
            fork_guard.guarded(self)

    def close(self) -> None:
        """Give up the directory. Idempotent."""
        directory, self.directory = self.directory, -1
        if directory >= 0:
            os.close(directory)

    def forget(self) -> None:
        """Close the directory in a forked copy of the program."""
        self.close()


def _environment(withheld: Sequence[str]) -> dict[str, str]:
    while True:
        try:
            return {name: value for name, value in os.environ.items() if name not in withheld}
        except KeyError:  # another thread of the host removed a variable meanwhile
            continue


def _arguments() -> tuple[bytes, ...] | None:
    found: Any = getattr(sys, "argv", None)  # an embedding program may have none
    # Programs append paths and numbers; arguments that are no UTF-8 have surrogates in them.
    return tuple(str(part).encode("utf-8", "surrogatepass") for part in found) if isinstance(found, list) else None


def _levels() -> dict[str, int]:
    loggers = list(logging.Logger.manager.loggerDict.items())  # placeholders have no level
    return {name: int(logger.level) for name, logger in loggers if isinstance(logger, logging.Logger) and logger.level}


def _main_file() -> bytes | None:
    found: Any = getattr(sys.modules.get("__main__"), "__file__", None)
    return found.encode("utf-8", "surrogatepass") if isinstance(found, str) else None


def _umask() -> int | None:
    """The umask, without setting it for a moment, which other threads of the host would notice."""
    with contextlib.suppress(OSError, StopIteration, ValueError):
        lines = Path("/proc/self/status").read_text(encoding="utf-8", errors="replace").splitlines()
        return int(next(line for line in lines if line.startswith("Umask:")).split()[1], 8)
    return None


def _plain_filter(entry: Any) -> WarningFilter | None:
    """The entry as plain data; None for one that was put into the list by hand and cannot be understood."""
    try:
        action, message, category, module, line = entry
        kind = str(category.__module__), str(category.__qualname__)
        # The interpreter's own entries have the whole name of a module, those of `filterwarnings` a pattern.
        name = f"{re.escape(module)}\\Z" if isinstance(module, str) else _pattern(module)
        return WarningFilter(str(action), _pattern(message), name, int(line), kind)
    except (AttributeError, TypeError, ValueError):
        return None


def _pattern(compiled: Any) -> str:
    if compiled is None:
        return ""
    return re.escape(compiled) if isinstance(compiled, str) else str(compiled.pattern)
