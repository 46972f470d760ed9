"""Shipping of a class to a worker: by import path when the worker can import it, else by value through cloudpickle.

By value it brings along the classes that its type hints reach. Names in hints cannot be looked up in a process that
does not have their module.
"""

from __future__ import annotations

import functools
import importlib
import os
import pickle
import sys
from collections.abc import Iterable
from pathlib import Path
from types import FunctionType
from typing import Any

import msgspec
from msgspec.structs import replace

from actorproc.errors import StateNotEncodable, UnknownType, UsageError
from actorproc.model.messages.definitions import Definition
from actorproc.procedure.authoring.procedure import Procedure
from actorproc.procedure.encoding.state import format_of
from actorproc.procedure.runtime.type_runtime import TypeRuntime
from actorproc.procedure.shipping.by_value import dumped, of_main_in, unimportable_by_value
from actorproc.procedure.shipping.importable import found_at, is_importable, is_on_path
from actorproc.procedure.shipping.origins import loads
from actorproc.procedure.values.error_text import in_words
from actorproc.procedure.values.evolution import migrates, migration_of
from actorproc.procedure.values.kinds.base import SCALARS
from actorproc.procedure.values.members import option
from actorproc.procedure.values.type_names import module_name, module_path

__all__ = ["definition_of", "pickled_by_value", "refuse_unloadable", "resolve"]


def definition_of(runtime: TypeRuntime, revision: int | None = None) -> Definition:
    """Definition by which a worker can `resolve` this type. Raises `UsageError` when the class cannot be pickled."""
    subject: Any = runtime.loader if runtime.loader is not None else runtime.procedure_class
    definition = Definition(
        meta=runtime.meta,
        loader=runtime.loader is not None,
        revision=runtime.revision if revision is None else revision,
        signing_key=runtime.signing_key,
        path=tuple(map(os.fsencode, module_path())),
        step_names=() if runtime.procedure_class is None else runtime.procedure_class._engine_step_names(),
    )
    migrations = _migrations_elsewhere(runtime)
    if migrations:
        modules = {migration.__module__ for _, migration in migrations}
        definition = replace(definition, migrations=_pickled(migrations, modules, runtime.type_name))
    if runtime.meta.codec == "pickle":
        runtime.shipped = frozenset()
    if is_importable(subject):
        return replace(definition, module=subject.__module__, qualname=subject.__qualname__)
    return replace(definition, pickled=_by_value(subject, runtime))


def pickled_by_value(subject: Any) -> bytes:
    """A picklable object, such as the factory of ``ctx.env``, for `origins.loads` in a worker.

    Raises `UsageError` when it cannot be pickled.
    """
    return _pickled(subject, {getattr(subject, "__module__", "") or ""}, f"{subject!r:.80}")


def resolve(definition: Definition) -> TypeRuntime:
    """The runtime of a definition, in a worker. Raises `UnknownType` when the class cannot be had, or `MemoryError`."""
    type_name = definition.meta.type_name
    _look_there_as_well(definition.path)
    try:
        subject = _found(definition)
        if definition.loader:
            runtime = TypeRuntime.of_loader(type_name, subject)
        else:
            runtime = TypeRuntime.of_class(subject, signing_key=definition.signing_key)
    except MemoryError:
        raise  # nothing is wrong with the class: elsewhere, or later, there may be room for it
    except Exception as error:
        # Importing and unpickling run user code: whatever it raises, the type is not to be had here.
        msg = f"the worker cannot get {type_name!r}: {in_words(error)}"
        raise UnknownType(msg) from error
    runtime.revision = definition.revision
    return runtime


def file_digest(module: str) -> str:
    """SHA-256 of the file of a module that was imported.

    Args:
        module: Its name.

    Returns:
        Hexadecimal digits; "" where it comes from no file that can be read.
    """
    import hashlib  # noqa: PLC0415 - it brings OpenSSL, which only workers of hosts need

    place = getattr(sys.modules.get(module), "__file__", None)
    if not isinstance(place, str) or not place.endswith(".py"):
        return ""
    try:
        return hashlib.sha256(Path(place).read_bytes()).hexdigest()
    except OSError:
        return ""


def _migrations_elsewhere(runtime: TypeRuntime) -> tuple[tuple[type, Any], ...]:
    """Migrations that a worker does not have by importing the class they are for."""
    found = ((cls, migration_of(cls)) for cls in runtime.codec.classes if is_importable(cls))
    return tuple((cls, migration) for cls, migration in found if migration and migration.__module__ != cls.__module__)


def _found(definition: Definition) -> Any:
    if definition.migrations is not None:
        for cls, migration in loads(definition.migrations):
            if migration_of(cls) is not migration:
                migrates(cls)(migration)
    if definition.pickled is not None:
        return _unpickled(definition.pickled)
    assert definition.module is not None, definition.meta.type_name
    assert definition.qualname is not None, definition.meta.type_name
    found = found_at(importlib.import_module(definition.module), definition.qualname)
    if found is None:
        msg = f"module {definition.module!r} has no {definition.qualname!r}"
        raise ImportError(msg)
    return found


def _unpickled(pickled: bytes) -> Any:
    subject, classes, names = loads(pickled)
    for member, (module, qualname) in zip((subject, *classes), names, strict=True):
        # cloudpickle keeps a class's short name only, and that it is of "__main__"; stored values name their classes
        # in full, as the program that sent them does.
        if isinstance(member, type) and (member.__module__, member.__qualname__) != (module, qualname):
            member.__module__, member.__qualname__ = module, qualname
    if isinstance(subject, type) and issubclass(subject, Procedure):
        subject._engine_shipped_classes = classes
    return subject


# ---------------------------------------------------------------- by path
def _look_there_as_well(path: Iterable[bytes]) -> None:
    """Behind all places that are known, so that nothing is found elsewhere than before."""
    for entry in map(os.fsdecode, path):
        if entry not in sys.path and Path(entry).is_absolute() and "\0" not in entry:
            sys.path.append(entry)


# ---------------------------------------------------------------- by value
def _by_value(subject: Any, runtime: TypeRuntime) -> bytes:
    classes = runtime.codec.classes if runtime.procedure_class is not None else ()
    family = subject.__mro__ if isinstance(subject, type) else (subject,)
    for member in (*family, *classes):
        _refuse_struct(member, runtime.type_name)
    modules = {getattr(member, "__module__", "") for member in (*family, *classes)}
    # A pickle names a class as its program does, typed data as every program that has it.
    module_of = _own_module if runtime.meta.codec == "pickle" else module_name
    if runtime.meta.codec == "pickle":
        classes, runtime.shipped = _with_all_of_main(subject, classes, modules)
    names = tuple((module_of(member), getattr(member, "__qualname__", "")) for member in (subject, *classes))
    return _pickled((subject, classes, names), modules, runtime.type_name)


def _with_all_of_main(
    subject: Any, classes: tuple[Any, ...], modules: set[str]
) -> tuple[tuple[Any, ...], frozenset[Any]]:
    """Classes among these, with all of the script that the subject refers to, and those of them a worker can unpickle.

    Pickled states name what they are made of, and a worker has a script's classes only when they came along.
    """
    used = [each for each in option(subject, "uses") if isinstance(each, type) and not issubclass(each, Procedure)]
    members = list(dict.fromkeys((*classes, *used)))
    try:
        with unimportable_by_value(modules):
            met = of_main_in((subject, members))
    except Exception:  # noqa: BLE001 - it is pickled once more, and refused in words
        return tuple(members), frozenset()
    found = [each for each in met if each not in members and each is not subject]
    return (*members, *found), frozenset((subject, *members, *found))


def refuse_unloadable(procedure: Procedure, runtime: TypeRuntime) -> None:
    """Raise `StateNotEncodable` when the pickled state names what no worker would find.

    That is known once the runtime's definition was made; before that, nothing is refused.
    """
    shipped = runtime.shipped
    if shipped is None:
        return
    for name, value in format_of(type(procedure)).values(procedure).items():
        if type(value) in SCALARS:
            continue
        references = _References()
        references.dump(value)
        for found in references.found:
            if found in shipped or _is_found(found):
                continue
            advice = "name it in `uses`, or put it into a module" if isinstance(found, type) else "put it into a module"
            msg = (
                f"{runtime.type_name}.{name}: no worker could load it: it refers to {found.__module__}."
                f"{found.__qualname__}, which is in no module that a worker can import; {advice}"
            )
            raise StateNotEncodable(msg)


class _Nowhere:
    """A file that keeps nothing."""

    def write(self, data: bytes) -> int:
        return len(data)


class _References(pickle.Pickler):
    """Finds the classes and functions that a pickle would name."""

    def __init__(self) -> None:
        super().__init__(_Nowhere(), protocol=5, buffer_callback=lambda _: None)
        self.found: dict[Any, None] = {}

    def reducer_override(self, subject: Any) -> Any:
        """Note each class and function that is named, and pickle as usual."""
        if isinstance(subject, type | FunctionType):
            self.found[subject] = None
        return NotImplemented


def _is_found(subject: Any) -> bool:
    """A worker finds this class or function, of a module that it can import, by its name."""
    name = getattr(subject, "__module__", None)
    return isinstance(name, str) and name != "__main__" and _is_known(name)


@functools.lru_cache(maxsize=1024)
def _is_known(name: str) -> bool:
    module = sys.modules.get(name)
    return module is not None and is_on_path(module)


def _own_module(member: Any) -> str:
    return getattr(member, "__module__", None) or ""


def _refuse_struct(member: Any, name: str) -> None:
    """cloudpickle makes a Struct again without its fields, and the state would be refused in every worker."""
    if isinstance(member, msgspec.StructMeta) and member.__struct_fields__ and not is_importable(member):
        msg = (
            f"{name} cannot be sent to a worker: {member.__qualname__} is a msgspec.Struct of a script or a function, "
            "and those cannot be sent by value; put it in a module, or make it a dataclass"
        )
        raise UsageError(msg)


def _pickled(subject: Any, modules: set[str], name: str) -> bytes:
    try:
        with unimportable_by_value(modules):
            pickled = dumped(subject)
    except Exception as error:
        # __reduce__ of anything the subject reaches is user code.
        msg = f"{name} cannot be sent to a worker: {in_words(error)}"
        if "belongs to its process" not in msg:  # what says so gives better advice
            msg += (
                ". It refers to something that cannot be pickled; make that inside the step, or in the manager's "
                "environment=, or put the class in a module"
            )
        raise UsageError(msg) from error
    return pickled
