"""Names of classes and functions in the store, and the places where a program finds their modules."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import FunctionType
from typing import Any

__all__ = [
    "MAIN_MODULES",
    "PACKAGE_HOME",
    "command_of_module",
    "default_type_name",
    "is_top_of_main",
    "module_name",
    "module_path",
    "name_of_main",
]

MAIN_MODULES = frozenset({"__main__", "__mp_main__"})
"""Names of a main program's module: a process of multiprocessing has the second one."""

PACKAGE_HOME = str(Path(__file__).resolve().parents[3])
"""Directory from which this program has this package."""

_RUN = """\
import json, runpy, sys
sys.path.insert(0, sys.argv.pop(1))
import actorproc
sys.path[:] = json.loads(sys.argv.pop(1))
runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)
"""


def module_name(subject: Any) -> str:
    """The module of a class or function; for a program run with ``python -m`` its own name in place of "__main__"."""
    module: str = getattr(subject, "__module__", None) or ""
    return name_of_main() if module in MAIN_MODULES else module


def name_of_main() -> str:
    """The name of the main program's module: its own under ``python -m``, else "__main__"."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return "__main__" if spec is None else spec.name


def default_type_name(subject: Any) -> str:
    """ "module.qualname" of a class or function."""
    return f"{module_name(subject)}.{subject.__qualname__}"


def module_path() -> tuple[str, ...]:
    """Places where this program finds modules now, as absolute paths; more may have come since workers were started."""
    return tuple(str(Path(entry).absolute()) for entry in sys.path if isinstance(entry, str))


def command_of_module(name: str, *arguments: str) -> list[str]:
    """The command line of a process of ours that runs a module, which it finds where this program would.

    Not ``python -m``, which looks in the working directory first: that may be the directory of a store from elsewhere,
    or a checkout of another version of this package. So the package itself is loaded before there is a path.
    """
    return [sys.executable, "-P", "-c", _RUN, PACKAGE_HOME, json.dumps(module_path()), name, *arguments]


def is_top_of_main(subject: Any) -> bool:
    """A class or function at the top of the program's main module."""
    return (
        isinstance(subject, type | FunctionType)
        and subject.__module__ == "__main__"
        and not {".", "<"}.intersection(subject.__qualname__)
    )
