"""What workers of the tests load first: a stand-in for pytest.

A worker imports the whole module of a test's procedures, and with it pytest. That takes longer than all else at the
start of a worker, and no step uses it: marks and fixtures are all that a module asks pytest for while it is imported.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


class _Decorator:
    """Any mark or fixture, with arguments or without: gives back what it decorates."""

    def __getattr__(self, name: str) -> Any:
        return self

    def __call__(self, *args: Any, **options: Any) -> Any:
        return args[0] if len(args) == 1 and callable(args[0]) and not options else self


class _StandIn(ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Decorator()


sys.modules.setdefault("pytest", _StandIn("pytest"))
