"""Frozen programs (PyInstaller, cx_Freeze): their executable is the program itself, and no interpreter.

A worker of such a program is the program once more, with a mark among its arguments. `freeze_support`, which its main
program calls first, lives as a worker where it finds the mark. A main program without that call would run in each
worker, and each of those would start workers. So a frozen program starts none before it has made the call.
"""

from __future__ import annotations

import sys

from actorproc.errors import UsageError

__all__ = ["WORKER_MARK", "check_not_multiplying", "freeze_support", "is_this_program"]

WORKER_MARK = "--actorproc-worker"
"""The first argument of a worker of a frozen program."""


class _Calls:
    """Note that this process has called `freeze_support`."""

    made = False


def freeze_support() -> None:
    """Run as a worker in the processes that a frozen program starts; without effect in any other program.

    Call it first in the main program, behind ``if __name__ == "__main__":``, as `multiprocessing.freeze_support`::

        if __name__ == "__main__":
            actorproc.freeze_support()
            main()

    In a worker it does not return. Code above it, imports most of all, runs in each worker.
    """
    _Calls.made = True
    if _is_frozen() and sys.argv[1:2] == [WORKER_MARK]:
        del sys.argv[1]
        from actorproc.workers.child.boot import boot  # noqa: PLC0415 - for workers alone

        boot()


def is_this_program(executable: str) -> bool:
    """The executable is this frozen program, and takes none of the options of an interpreter."""
    return _is_frozen() and executable == sys.executable


def check_not_multiplying(executable: str) -> None:
    """Raise `UsageError` when a worker started with `executable` would run the main program."""
    if is_this_program(executable) and not _Calls.made:
        msg = (
            "this is a frozen program, and its workers would run its main program again: call "
            "actorproc.freeze_support() first in that, or name a Python interpreter that has the same packages by "
            "Config(executable=…)"
        )
        raise UsageError(msg)


def _is_frozen() -> bool:
    return bool(getattr(sys, "frozen", False))
