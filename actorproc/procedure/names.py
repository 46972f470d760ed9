"""What classes and functions are called in the store, and where a program finds their modules."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

__all__ = ["command_of_module", "default_type_name", "module_name", "module_path"]

_RUN = """\
import json, runpy, sys
sys.path[:] = json.loads(sys.argv.pop(1))
runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)
"""


def module_name(subject: Any) -> str:
    """The module of a class or function; for a program run with ``python -m`` its own name in place of "__main__"."""
    module: str = getattr(subject, "__module__", None) or ""
    if module == "__main__":
        spec = getattr(sys.modules.get("__main__"), "__spec__", None)
        module = spec.name if spec is not None else module
    return module


def default_type_name(subject: Any) -> str:
    """ "module.qualname" of a class or function."""
    return f"{module_name(subject)}.{subject.__qualname__}"


def module_path() -> tuple[str, ...]:
    """Where this program finds modules now, as absolute paths; it may have grown since workers were started."""
    return tuple(str(Path(entry).absolute()) for entry in sys.path if isinstance(entry, str))


def command_of_module(name: str, *arguments: str) -> list[str]:
    """The command line of a process of ours that runs a module, which it finds where this program would.

    Not ``python -m``, which looks in the working directory first: that may be the directory of a store from elsewhere.
    """
    return [sys.executable, "-P", "-c", _RUN, json.dumps(module_path()), name, *arguments]
