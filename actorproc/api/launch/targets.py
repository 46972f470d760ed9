"""Targets of launchers: the procedures, or the manager, that ``MODULE[:ATTRIBUTE]`` names."""

from __future__ import annotations

import importlib
import os
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from actorproc.api.manager import ProcedureManager
from actorproc.errors import ActorprocError, UsageError
from actorproc.procedure.authoring.function import class_behind
from actorproc.procedure.authoring.procedure import Procedure

if TYPE_CHECKING:
    from actorproc.telemetry.tracing import Tracing

__all__ = ["CannotRun", "found_in", "only_procedures", "procedure_classes", "procedures_in", "tracing_of_service"]


class CannotRun(ActorprocError):
    """The module has nothing that can be run; the message is one line that says what is missing."""


def procedures_in(target: str) -> list[type]:
    """Procedure classes of ``module:attribute``. Raises `CannotRun`. Exceptions of the module pass.

    A manager that the module makes would have workers of its own: it is refused.
    """
    found, name = found_in(target)
    if isinstance(found, ProcedureManager):
        msg = f"{name} is a manager; name the procedures of the module as MODULE:NAME, such as a list of them"
        raise CannotRun(msg)
    return only_procedures(found, name)


def tracing_of_service() -> Tracing:
    """Tracing by the provider that the module has set, or as the environment says. Raises `CannotRun`."""
    from actorproc.telemetry.environment import tracing_of_environment  # noqa: PLC0415 - the extra may be absent

    try:
        return tracing_of_environment()
    except UsageError as error:
        raise CannotRun(str(error)) from None


def only_procedures(found: Any, name: str) -> list[type]:
    listed = list(found) if isinstance(found, list | tuple | set | frozenset) else [found]
    classes = procedure_classes(listed)
    if not classes or len(classes) < len(listed):
        msg = f"{name} is neither a ProcedureManager, nor a function that makes one, nor procedures: {found!r:.80}"
        raise CannotRun(msg)
    return classes


def found_in(target: str) -> tuple[Any, str]:
    """Object that ``module:attribute`` names, or that a module offers, and its name. Raises `CannotRun`."""
    module_name, _, attribute = target.partition(":")
    if os.getcwd() not in sys.path and "" not in sys.path:  # noqa: PTH109 - entries of sys.path are strings
        sys.path.insert(0, os.getcwd())  # noqa: PTH109
    try:
        module = importlib.import_module(module_name)
    except (ModuleNotFoundError, ValueError, TypeError) as error:
        is_name = module_name != "" and not module_name.startswith(".") and "\0" not in module_name
        if not isinstance(error, ModuleNotFoundError) and is_name:
            raise  # the module itself did; a name such as ./shop.py is never looked for
        missing = getattr(error, "name", None)
        if missing is not None and missing != module_name and not module_name.startswith(f"{missing}."):
            raise  # the module is there, but something that it imports is not: its traceback says what
        help_ = _meant(module_name) or f"give a module that can be imported from {os.getcwd()}"  # noqa: PTH109
        msg = f"there is no module {module_name!r} here; {help_}"
        raise CannotRun(msg) from None
    if attribute:
        found: Any = module
        for part in attribute.split("."):
            found = getattr(found, part, None)
        if found is None:
            msg = f"{module_name} has no {attribute!r}"
            raise CannotRun(msg)
        return found, target
    if hasattr(module, "manager"):
        return module.manager, f"{module_name}:manager"
    managers = _started(module)
    if len(managers) > 1:
        msg = f"{module_name} starts several managers: {', '.join(managers)}; name one as {module_name}:{managers[0]}"
        raise CannotRun(msg)
    if managers:
        return getattr(module, managers[0]), f"{module_name}:{managers[0]}"
    defined = [value for value in vars(module).values() if getattr(value, "__module__", None) == module_name]
    classes = procedure_classes(defined)
    if not classes:
        msg = f"{module_name} has neither a 'manager' nor a procedure of its own; name one as {module_name}:NAME"
        raise CannotRun(msg)
    return classes, module_name


def _started(module: ModuleType) -> list[str]:
    """Names of the managers that a module has started at its top, or would have, each manager once."""
    named = reversed(vars(module).items())
    found = {
        id(value): name
        for name, value in named
        if isinstance(value, ProcedureManager) and (value._tree is not None or value._asked is not None)
    }
    return sorted(found.values())


def _meant(module_name: str) -> str:
    """Likely meaning of a name that is no module: a file, or something in a module."""
    owner, _, name = module_name.rpartition(".")
    module = sys.modules.get(owner)
    if module is None:
        return ""
    if hasattr(module, name):
        return f"for what is in {owner} write {owner}:{name}"
    return f"leave .py out: {owner}" if name == "py" else ""


def procedure_classes(values: list[Any]) -> list[type]:
    """The procedure classes among these, those of `@procedure` functions included."""
    classes: dict[type, None] = {}
    for value in values:
        cls = class_behind(value)
        if isinstance(cls, type) and issubclass(cls, Procedure):
            classes[cls] = None
    return list(classes)
