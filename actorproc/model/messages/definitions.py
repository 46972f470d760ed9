"""Definitions of classes and of children, as host and worker send them to each other."""

from __future__ import annotations

import msgspec

from actorproc.model.policies import TypeMeta

__all__ = ["CALL_TYPE", "Definition", "OutcomeRow"]

CALL_TYPE = "actorproc.Call"
"""Type name of the calls of an executor."""


class Definition(msgspec.Struct, frozen=True, array_like=True):
    """Source of a procedure class for a worker.

    `module` and `qualname` when it is importable; else `pickled` (cloudpickle, by value). `loader` means
    the object is a loader function ``f(data) -> Procedure`` and not a class. `revision` grows when a class
    of ``__main__`` is registered again under its name.
    """

    meta: TypeMeta
    module: str | None = None
    qualname: str | None = None
    pickled: bytes | None = None
    loader: bool = False
    revision: int = 1
    signing_key: bytes | tuple[bytes, ...] | None = None
    """Keys of the signed pickle codec, the newest first, for the classes that opted in; never stored, never logged."""
    path: tuple[bytes, ...] = ()
    """Module path of the program that sent it, for modules that a worker that started earlier does not find."""
    migrations: bytes | None = None
    """Migrations of value classes that stand in other modules than these (cloudpickle, pairs of class and function)."""
    digest: str = ""
    """SHA-256 of the file of its module; "": it goes by value, or its module is no file."""
    step_names: tuple[str, ...] = ()
    """Names of its steps as they are counted, those of undos included."""


class OutcomeRow(msgspec.Struct, frozen=True, array_like=True):
    """One child's outcome. `output` is None when it is too long to send unasked: ask for "output"."""

    id: str
    type_name: str
    state: str
    output: bytes | None
    codec: str
    error: str | None
    error_traceback: str = ""
