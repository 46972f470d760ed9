"""Objects that a fresh interpreter with the same path finds under their names."""

from __future__ import annotations

import os
import sys
from types import ModuleType
from typing import Any

__all__ = ["found_at", "is_importable", "is_on_path"]

_OURS = __name__.partition(".")[0]


def found_at(module: ModuleType, qualname: str) -> Any:
    """The object at a dotted name of a module; None when there is none. For a procedure function, its class."""
    found: Any = module
    for name in qualname.split("."):
        found = getattr(found, name, None)
    # Not by `isinstance`: procedure functions need contexts, and those this module.
    return found.procedure_class if getattr(type(found), "_engine_is_function", False) else found


def is_importable(subject: Any) -> bool:
    """A fresh interpreter with the same path would find this very object under its name."""
    name = getattr(subject, "__module__", None)
    qualname = getattr(subject, "__qualname__", getattr(subject, "__name__", None))  # type variables have no other
    if not isinstance(name, str) or not isinstance(qualname, str) or name == "__main__" or "<" in qualname:
        return False
    module = sys.modules.get(name)
    return module is not None and found_at(module, qualname) is subject and is_on_path(module)


def is_on_path(module: ModuleType) -> bool:
    """A fresh interpreter with the same path would import this very module under its name."""
    if module.__name__ == _OURS:
        return True  # a worker loads it from where this program has it, before it has a path
    name, _, _ = module.__name__.rpartition(".")
    parent = sys.modules.get(name) if name else None
    if name and (parent is None or not is_on_path(parent)):
        return False
    search = None if parent is None else getattr(parent, "__path__", None)
    spec = None
    # sys.modules is no proof: a module may have been put there by hand, or loaded from a file outside of the path.
    for finder in sys.meta_path:
        find_spec = getattr(finder, "find_spec", None)
        spec = find_spec(module.__name__, search) if find_spec is not None else None
        if spec is not None:
            break
    if spec is None:
        return False
    if spec.origin in {"built-in", "frozen"}:
        return True
    if spec.origin is None or not spec.has_location:
        # A namespace package has no file; its modules are checked one by one.
        return spec.submodule_search_locations is not None
    file = getattr(module, "__file__", None)
    return file is not None and os.path.realpath(file) == os.path.realpath(spec.origin)
