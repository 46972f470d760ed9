"""What classes and functions are called in the store, where another program must find them by that name."""

from __future__ import annotations

import sys
from typing import Any

__all__ = ["default_type_name", "module_name"]


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
