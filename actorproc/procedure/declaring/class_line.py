"""The class line of a procedure class: its options, and what is refused or warned of when the class is made."""

from __future__ import annotations

import contextlib
import inspect
import warnings
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypedDict

import msgspec

from actorproc.model.policies import LockScope
from actorproc.procedure.declaring.policies import Limits, RetryPolicy
from actorproc.procedure.shipping.importing import is_repeated
from actorproc.procedure.values.fields import declared_fields
from actorproc.procedure.values.members import is_class_variable, own_annotations

__all__ = ["OPTIONS", "ClassOptions", "explain_arguments", "refuse_unknown_options", "warn_of_idle_options"]


class ClassOptions(TypedDict, total=False):
    """Options in the class line, ``class Fetch(Procedure, retry=…)``; see `Procedure`."""

    type_name: str
    version: int
    retry: RetryPolicy
    rollback_retry: RetryPolicy
    rollback_supported: bool
    rollback_mode: Literal["strict", "best-effort"]
    limits: Limits
    on_child_failure: Literal["fail", "resume"]
    undo_children: bool
    lock_scope: LockScope
    uses: tuple[Any, ...]
    aliases: Mapping[str, Any]
    work_class: str
    keep_steps: int | None
    codec: Literal["data", "pickle"]
    searchable: tuple[str, ...]


OPTIONS = frozenset(ClassOptions.__annotations__)
"""Names of the options."""
_OF_OPTIONS: Mapping[str, Callable[[Any], bool]] = {
    "retry": lambda value: isinstance(value, RetryPolicy),
    "rollback_retry": lambda value: isinstance(value, RetryPolicy),
    "limits": lambda value: isinstance(value, Limits),
    "rollback_supported": lambda value: type(value) is bool,
    "undo_children": lambda value: type(value) is bool,
    "rollback_mode": lambda value: value in ("strict", "best-effort"),
    "on_child_failure": lambda value: value in ("fail", "resume"),
    "lock_scope": lambda value: value in ("procedure", "step"),
    "uses": lambda value: isinstance(value, tuple) and bool(value) and all(isinstance(used, type) for used in value),
    "codec": lambda value: value == "pickle",
}
"""Values that tell an option from a field: no field of that name begins with one."""


class _TakesNoArguments:
    """The last base of classes that annotate fields and may lack their ``@dataclass``."""

    __slots__ = ()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        try:
            super().__init__(*args, **kwargs)
        except TypeError:
            problem = _forgotten_dataclass(type(self)) if args or kwargs else None
            if problem is None:
                raise
            raise TypeError(problem) from None


def warn_of_idle_options(cls: Any) -> None:
    """Warn of an annotated option: it is a field now, and so the engine does not hear of it."""
    if is_repeated():
        return
    annotations = own_annotations(cls)
    for name in _OF_OPTIONS.keys() & annotations.keys() & cls.__dict__.keys():
        if not is_class_variable(annotations[name]) and _OF_OPTIONS[name](cls.__dict__[name]):
            msg = (
                f"{cls.__qualname__}.{name} is annotated, so it is a field, and no option of the class; for the option "
                f"write 'class {cls.__name__}(…, {name}=…)', or leave the annotation out"
            )
            warnings.warn(msg, UserWarning, stacklevel=3)


def refuse_unknown_options(cls: type, given: Mapping[str, Any], base: Any) -> None:
    """Raise `TypeError` for an option of the class line that no base class takes."""
    if given and not hasattr(base, "__func__"):  # only `object` comes after this one
        known = ", ".join(sorted(OPTIONS))
        msg = (
            f"{cls.__qualname__} has an unknown keyword {min(given)!r} in its class line; the options of a procedure "
            f"class are {known}"
        )
        raise TypeError(msg)


def explain_arguments(cls: type) -> None:
    """Have a class that annotates fields, and gets no ``__init__`` of a dataclass, say so when it is called."""
    init: object = inspect.getattr_static(cls, "__init__")
    if init is not object.__init__ or not own_annotations(cls) or isinstance(cls, msgspec.StructMeta):
        return
    with contextlib.suppress(TypeError):  # another layout: then it is Python that says that it takes no arguments
        cls.__bases__ = (*cls.__bases__, _TakesNoArguments)


def _forgotten_dataclass(cls: type) -> str | None:
    names = [
        name
        for base in reversed(cls.__mro__)
        if "_engine_taken" in base.__dict__
        for name, annotation in own_annotations(base).items()
        if name[0] != "_" and not is_class_variable(annotation)
    ]
    if declared_fields(cls) is not None or not names:
        return None
    return (
        f"{cls.__qualname__} takes no arguments: it annotates {', '.join(names)}, but is no dataclass; write "
        f"'@dataclass' above 'class {cls.__name__}'"
    )
