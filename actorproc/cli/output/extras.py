"""Optional packages: imported where they are used, and named when they are missing."""

from __future__ import annotations

import importlib
from typing import Any

from actorproc.errors import ActorprocError

__all__ = ["MissingExtra", "need"]


class MissingExtra(ActorprocError):
    """A package of an extra is not installed; the message is one line that says which extra to install."""


def need(module: str, *, extra: str, purpose: str) -> Any:
    """Import a module of an optional package. Raises `MissingExtra` when it is not installed."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module.partition(".")[0]:
            raise  # installed, but something it needs is not: hiding that would send the reader the wrong way
        raise MissingExtra(f"{purpose} needs {module}: pip install 'actorproc[{extra}]'") from None
