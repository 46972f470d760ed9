"""What a module of tests needs of pytest when a worker imports it for the procedures in it: decorators that do nothing.

pytest itself takes an interpreter six times as long to import as all else a worker imports, and hundreds of workers of
the tests would. The folder of this file is on the path that workers are given, and nowhere else; whoever needs more
than this gets pytest.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any


class _Decorator:
    """`pytest.mark` and whatever is made of it, `pytest.fixture` with and without arguments."""

    def __getattr__(self, name: str) -> _Decorator:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        """The decorated function as it is; for arguments, what decorates it."""
        is_decorated = len(arguments) == 1 and not options and callable(arguments[0])
        return arguments[0] if is_decorated else self


mark = fixture = _Decorator()


def param(*values: Any, **_options: Any) -> tuple[Any, ...]:
    """One row of parameters."""
    return values


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    return getattr(_the_real_one(), name)


def _the_real_one() -> Any:
    here, path = str(Path(__file__).parent), list(sys.path)
    sys.modules.pop("pytest", None)
    sys.path[:] = [entry for entry in path if entry != here]
    try:
        return importlib.import_module("pytest")
    finally:
        sys.path[:] = path
