"""How a class gets to a worker: by import path when the worker can import it, else by value through cloudpickle.

By value it brings along the classes its type hints reach, because names written in hints cannot be looked up in a
process where the module they belong to does not exist.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import inspect
import io
import os
import sys
import threading
from collections import ChainMap
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import cloudpickle
import msgspec
from msgspec.structs import replace

from actorproc.errors import UnknownType, UsageError
from actorproc.model.definitions import Definition
from actorproc.procedure.failures import in_words
from actorproc.procedure.function import class_behind
from actorproc.procedure.names import module_name, module_path
from actorproc.procedure.procedure import Procedure
from actorproc.procedure.reducers import reducers
from actorproc.procedure.type_runtime import TypeRuntime

__all__ = ["definition_of", "dumped", "is_on_path", "pickled_by_value", "resolve", "unimportable_by_value"]


class _ByValue:
    """What was added to cloudpickle's list of modules to pickle by value, which is global to the process."""

    def __init__(self) -> None:
        self.lock = threading.RLock()  # `__reduce__` is user code, and may submit a call
        self._added: list[ModuleType] = []

    def add(self, module: ModuleType) -> None:
        """To be removed again by whoever has the lock."""
        self._added.append(module)
        cloudpickle.register_pickle_by_value(module)

    def remove(self, modules: Iterable[ModuleType]) -> None:
        """As far as they are there."""
        for module in modules:
            if module in self._added:
                self._added.remove(module)
                with contextlib.suppress(ValueError):  # interrupted in between
                    cloudpickle.unregister_pickle_by_value(module)

    def forget_in_fork(self) -> None:
        """In a forked copy the thread that was at it does not exist."""
        self.lock = threading.RLock()
        self.remove(self._added[:])


_by_value_now = _ByValue()
os.register_at_fork(after_in_child=_by_value_now.forget_in_fork)


def definition_of(runtime: TypeRuntime, revision: int | None = None) -> Definition:
    """What a worker needs to `resolve` this type. Raises `UsageError` when the class cannot be pickled."""
    subject: Any = runtime.loader if runtime.loader is not None else runtime.procedure_class
    definition = Definition(
        meta=runtime.meta,
        loader=runtime.loader is not None,
        revision=runtime.revision if revision is None else revision,
        signing_key=runtime.signing_key,
        path=tuple(map(os.fsencode, module_path())),
    )
    if _is_importable(subject):
        return replace(definition, module=subject.__module__, qualname=subject.__qualname__)
    return replace(definition, pickled=_by_value(subject, runtime))


def pickled_by_value(subject: Any) -> bytes:
    """A picklable object, such as the factory of ``ctx.env``, for `cloudpickle.loads` in a worker.

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


def _found(definition: Definition) -> Any:
    if definition.pickled is not None:
        return _unpickled(definition.pickled)
    assert definition.module is not None, definition.meta.type_name
    assert definition.qualname is not None, definition.meta.type_name
    found = _at_path(importlib.import_module(definition.module), definition.qualname)
    if found is None:
        msg = f"module {definition.module!r} has no {definition.qualname!r}"
        raise LookupError(msg)
    return found


def _at_path(module: ModuleType, qualname: str) -> Any:
    found: Any = module
    for name in qualname.split("."):
        found = getattr(found, name, None)
    return class_behind(found)


def _unpickled(pickled: bytes) -> Any:
    subject, classes, names = cloudpickle.loads(pickled)
    if isinstance(subject, type) and issubclass(subject, Procedure):
        _show_in_main(subject, classes)
    for member, (module, qualname) in zip((subject, *classes), names, strict=True):
        # cloudpickle keeps a class's short name only, and that it is of "__main__"; stored values name their classes
        # in full, as the program that sent them does.
        if isinstance(member, type) and (member.__module__, member.__qualname__) != (module, qualname):
            member.__module__, member.__qualname__ = module, qualname
    if isinstance(subject, type) and issubclass(subject, Procedure):
        subject._engine_shipped_classes = classes
    return subject


def _show_in_main(subject: type[Procedure], classes: tuple[type, ...]) -> None:
    """Have pickled states find classes of the program's main module, which they name as such, in a worker's, too.

    These are what came along: the class with its bases, those of its hints, and what its functions refer to.
    """
    functions: list[Any] = [
        member for base in subject.__mro__ for member in vars(base).values() if inspect.isfunction(member)
    ]
    found: list[Any] = [*classes, *subject.__mro__]
    for function in (*functions, *subject._engine_hinted_functions()):
        found.extend(function.__globals__.values())
    for member in found:
        if isinstance(member, type) and member.__module__ == "__main__" and "." not in member.__qualname__:
            setattr(sys.modules["__main__"], member.__qualname__, member)


# ---------------------------------------------------------------- by path
def _look_there_as_well(path: Iterable[bytes]) -> None:
    """Behind all places that are known, so that nothing is found elsewhere than before."""
    for entry in map(os.fsdecode, path):
        if entry not in sys.path and Path(entry).is_absolute() and "\0" not in entry:
            sys.path.append(entry)


def _is_importable(subject: Any) -> bool:
    """A fresh interpreter with the same path would find this very object under its name."""
    name = getattr(subject, "__module__", None)
    qualname = getattr(subject, "__qualname__", getattr(subject, "__name__", None))  # type variables have no other
    if not isinstance(name, str) or not isinstance(qualname, str) or name == "__main__" or "<" in qualname:
        return False
    module = sys.modules.get(name)
    return module is not None and _at_path(module, qualname) is subject and is_on_path(module)


def is_on_path(module: ModuleType) -> bool:
    """A fresh interpreter with the same path would import this very module under its name."""
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


# ---------------------------------------------------------------- by value
def _by_value(subject: Any, runtime: TypeRuntime) -> bytes:
    classes = runtime.codec.classes if runtime.procedure_class is not None else ()
    family = subject.__mro__ if isinstance(subject, type) else (subject,)
    for member in (*family, *classes):
        _refuse_struct(member, runtime.type_name)
    modules = {getattr(member, "__module__", "") for member in (*family, *classes)}
    # A pickle names a class as its program does, typed data as every program that has it.
    module_of = _own_module if runtime.meta.codec == "pickle" else module_name
    names = tuple((module_of(member), getattr(member, "__qualname__", "")) for member in (subject, *classes))
    return _pickled((subject, classes, names), modules, runtime.type_name)


def _own_module(member: Any) -> str:
    return getattr(member, "__module__", None) or ""


def _refuse_struct(member: Any, name: str) -> None:
    """cloudpickle makes a Struct again without its fields, and the state would be refused in every worker."""
    if isinstance(member, msgspec.StructMeta) and member.__struct_fields__ and not _is_importable(member):
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


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Names what says that a field of a dataclass has no default, of which cloudpickle makes a copy.

    With that copy each field would have a default in the worker: the copy. And it takes along what cloudpickle names.
    """

    dispatch_table: ClassVar[Any] = ChainMap(
        {type(dataclasses.MISSING): lambda _: "MISSING", **reducers(_is_importable)}, cloudpickle.Pickler.dispatch_table
    )


def dumped(subject: Any) -> bytes:
    """The pickle of what may be of a script, or refer to it."""
    file = io.BytesIO()
    _Pickler(file).dump(subject)
    return file.getvalue()


@contextmanager
def unimportable_by_value(names: set[str]) -> Iterator[None]:
    """Within, cloudpickle takes along what comes from those of these modules that a worker cannot import."""
    with _by_value_now.lock:
        before = cloudpickle.list_registry_pickle_by_value()
        modules = [sys.modules[name] for name in names if name in sys.modules and name != "__main__"]
        added = [module for module in modules if module.__name__ not in before and not is_on_path(module)]
        try:
            for module in added:
                _by_value_now.add(module)
            yield
        finally:
            _by_value_now.remove(added)
