"""Pickles of what a worker cannot import: cloudpickle's, with the origin of each class.

`dumped` is for what a program sends to its workers, `returned` for what a worker sends back.
"""

from __future__ import annotations

import contextlib
import copyreg
import dataclasses
import dis
import functools
import inspect
import io
import os
import pickle
import sys
import threading
import typing
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import CodeType, FunctionType, MemberDescriptorType, ModuleType
from typing import Any, ClassVar

import cloudpickle
import msgspec

from actorproc.procedure.shipping import origins, placed_objects, reducers as parts_by_reducer, script_globals
from actorproc.procedure.shipping.importable import is_importable, is_on_path
from actorproc.procedure.shipping.origins import (
    OWN_MARK,
    fill,
    follow,
    follow_function,
    made_in_program,
    made_in_worker,
    name_in_program,
    named_in_worker,
    origin_of,
    reference_to,
    token_of,
)
from actorproc.procedure.shipping.placed_objects import Place, may_be_marker, parts_of_placed
from actorproc.procedure.shipping.reducers import reducers
from actorproc.procedure.shipping.script_globals import globals_of, home_of
from actorproc.procedure.shipping.structs import make_with_fields
from actorproc.procedure.shipping.value_marks import PARTED, marks_of
from actorproc.procedure.shipping.worker_main import names_in
from actorproc.procedure.values.type_names import MAIN_MODULES, is_top_of_main

__all__ = ["dumped", "of_main_in", "returned", "unimportable_by_value"]


def dumped(subject: Any) -> bytes:
    """The pickle of what may be of a script, or refer to it, for `origins.loads` in a worker."""
    file = io.BytesIO()
    if getattr(sys.modules.get("__main__"), "__name__", "") == "__mp_main__":  # a process that multiprocessing spawned
        with unimportable_by_value({"__mp_main__"}):
            _Sending(file).dump(subject)
    else:
        _Sending(file).dump(subject)
    return file.getvalue()


def of_main_in(subject: Any) -> dict[Any, None]:
    """The classes and functions at the top of the main program that `dumped` would take along."""
    pickler = _Collecting(io.BytesIO())
    pickler.dump(subject)
    return pickler.of_main


def returned(subject: Any) -> bytes:
    """The pickle of what a worker sends back, for `origins.loads_returned` in the program."""
    file = io.BytesIO()
    _Returning(file).dump(subject)
    return file.getvalue()


def _defined(subject: Any) -> bytes:
    """The pickle of a class with all that it refers to, none of which the program need have."""
    file = io.BytesIO()
    _Defining(file).dump(subject)
    return file.getvalue()


# ---------------------------------------------------------------- picklers
def _is_class(subject: Any) -> bool:
    return issubclass(type(subject), type)  # not by isinstance: a proxy may say that it is one


def _named(subject: Any, reduced: tuple[Any, ...]) -> tuple[Any, ...]:
    """Parts of a function or variable, with its name when the program has it under one."""
    name = name_in_program(subject)
    if name is None:
        return reduced
    return named_in_worker, (*reduced[:2], *name, token_of(subject, *name)), *reduced[2:]


class _Globals:
    """Stands for the globals of a function, which a worker has by the name of their module."""

    def __init__(self, home: script_globals.Home, base: dict[str, Any]) -> None:
        self.parts = home, base

    def __reduce__(self) -> tuple[Any, ...]:
        return globals_of, self.parts


class _Table(dict[type, Any]):
    """Reducers by type, with those that the program registers in `copyreg`; faster than a ChainMap."""

    def __missing__(self, kind: type) -> Any:
        return copyreg.dispatch_table[kind]


_by_reducer = reducers(is_importable, _named)
_helpers = frozenset(
    function
    for module in (cloudpickle.cloudpickle, origins, parts_by_reducer, placed_objects, script_globals)
    for function in vars(module).values()
    if type(function) is FunctionType
)
"""Functions that every by-value pickle names; each of them is where its name says."""


class _Sending(cloudpickle.Pickler):  # type: ignore[misc]
    """Pickles for workers.

    `MISSING`, by which a dataclass says that a field has no default, goes by name: with a copy of it each field would
    have a default in the worker.
    """

    dispatch_table: ClassVar[Any] = _Table(
        {
            **cloudpickle.Pickler.dispatch_table.maps[0],
            **_by_reducer,
            type(dataclasses.MISSING): lambda _: (_missing, ()),
        }
    )
    _make: ClassVar[Any] = staticmethod(made_in_worker)
    _set_state: ClassVar[Any] = staticmethod(follow)

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)
        self._shared: dict[int, _Globals | None] = {}
        """By the place of the globals, so that a pickle has each once."""
        self._placed: dict[int, Place] = {}
        """Places of values that may be markers."""

    def reducer_override(self, subject: Any) -> Any:
        """The parts of a class or function that goes by value."""
        if type(subject) is FunctionType:
            if subject in _helpers:
                return NotImplemented
        elif not _is_class(subject):
            if isinstance(subject, ModuleType) and not _can_be_imported(subject):
                msg = f"the module {subject.__name__!r} is in no place that a worker imports from"
                raise pickle.PicklingError(msg)
            place = self._placed.get(id(subject))
            return NotImplemented if place is None else parts_of_placed(subject, place)
        reduced = super().reducer_override(subject)
        # What makes an empty class, its arguments, the attributes, two that are None, what sets the attributes.
        if not isinstance(reduced, tuple) or len(reduced) != 6:
            return reduced
        if not _is_class(subject):
            for name in _names_in_bodies(subject.__code__):
                if name in subject.__globals__:
                    reduced[2][1]["__globals__"].setdefault(name, subject.__globals__[name])
            return self._function(subject, reduced)
        make, parts, attributes, _, _, set_state = reduced
        *given, _, extra = parts
        if isinstance(subject, msgspec.StructMeta):
            make_with_fields(subject, given, attributes[0])
        elif "__slots__" in vars(subject) and not hasattr(subject, "_fields"):  # those of named tuples are their own
            _make_with_slots(subject, given[-1], attributes[0])
        # Without cloudpickle's own token: by that it would set attributes of classes that exist.
        parts = make, (*given, None, extra), tuple(origin_of(subject))
        return self._make, parts, self._state(subject, set_state, attributes), None, None, self._set_state

    def _state(self, subject: Any, set_state: Any, attributes: Any) -> tuple[Any, ...]:
        hints = vars(subject).get("__annotations__")
        module = sys.modules.get(subject.__module__) if hints and subject.__module__ in MAIN_MODULES else None
        # Hints first: attributes, such as a schema of pydantic, may need the classes of the hints whole.
        hinted = {} if module is None else _hinted(subject, hints, vars(module))
        return hinted, set_state, attributes, self._marked(origin_of(subject).token, attributes[0])

    def _function(self, subject: Any, reduced: tuple[Any, ...]) -> tuple[Any, ...]:
        try:
            hints = subject.__annotations__
        except Exception:  # noqa: BLE001 - Python 3.14 evaluates them here
            hints = None
        if hints:
            reduced[2][1]["__globals__"].update(_hinted(subject, hints, subject.__globals__))
        make, parts, attributes, _, _, set_state = reduced
        shared = self._globals_of(subject.__globals__, parts[1])
        if shared is None:
            return _named(subject, reduced)
        parts = (parts[0], shared, *parts[2:])
        marked = attributes[1]["__globals__"]
        name = name_in_program(subject)
        if name is not None:
            make, parts = named_in_worker, (make, parts, *name, token_of(subject, *name))
            marked = {**marked, OWN_MARK: subject}
        state = set_state, attributes, self._marked(shared.parts[0], marked)
        return make, parts, state, None, None, follow_function

    def _marked(self, holder: script_globals.Home | str, values: dict[str, Any]) -> dict[str, bytes | None]:
        marks = marks_of(values, self.dispatch_table)
        for name, mark in marks.items():
            if mark is not None and mark[:1] == PARTED and may_be_marker(values[name], self.dispatch_table):
                self._placed[id(values[name])] = holder, name, mark
        return marks

    def _globals_of(self, names: dict[str, Any], base: dict[str, Any]) -> _Globals | None:
        place = id(names)
        if place not in self._shared:
            home = home_of(names)
            self._shared[place] = None if home is None else _Globals(home, base)
        return self._shared[place]


class _Collecting(_Sending):
    """Notes the classes and functions of the script, not of functions in it, that it meets."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)
        self.of_main: dict[Any, None] = {}

    def reducer_override(self, subject: Any) -> Any:
        """The parts of a class or function that goes by value."""
        if is_top_of_main(subject):
            self.of_main[subject] = None
        return super().reducer_override(subject)


class _Defining(_Sending):
    """Pickles of classes for programs that do not have them."""

    _make = staticmethod(made_in_program)
    _set_state = staticmethod(fill)

    def _state(self, subject: Any, set_state: Any, attributes: Any) -> tuple[Any, ...]:
        del subject
        return set_state, attributes

    def _function(self, subject: Any, reduced: tuple[Any, ...]) -> tuple[Any, ...]:
        del subject
        return reduced


class _Returning(_Defining):
    """Pickles for the program: what came from there goes back as a reference to it."""

    def reducer_override(self, subject: Any) -> Any:
        """The parts of a class or function; a reference when it is the program's."""
        if type(subject) in _WITH_NAMES or _is_class(subject):
            reference = reference_to(subject, _defined)
            if reference is not None:
                return reference
        return super().reducer_override(subject)


_WITH_NAMES = frozenset({FunctionType, typing.TypeVar, *_by_reducer})


@functools.lru_cache(maxsize=1024)
def _names_in_bodies(code: CodeType) -> tuple[str, ...]:
    """Names that bodies of classes inside of a function load: globals of the function, which cloudpickle leaves out."""
    found: dict[str, None] = {}
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            if not inner.co_flags & inspect.CO_OPTIMIZED:
                found |= dict.fromkeys(step.argval for step in dis.get_instructions(inner) if step.opname in _BY_NAME)
            found |= dict.fromkeys(_names_in_bodies(inner))
    return tuple(name for name in found if name not in _OF_MODULES)


_BY_NAME = frozenset({"LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"})
_OF_MODULES = frozenset({"__name__", "__package__", "__path__", "__file__"})
"""Names that cloudpickle gives to the globals of every function."""


def _make_with_slots(cls: type, given: Any, attributes: dict[str, Any]) -> None:
    """Have a class made with the slots of its original: cloudpickle makes it without, with another layout."""
    slots = vars(cls)["__slots__"]
    given["__slots__"] = slots if isinstance(slots, str) else tuple(slots)
    for name, value in list(attributes.items()):
        if isinstance(value, MemberDescriptorType) and value.__objclass__ is cls:  # of a private name
            del attributes[name]


def _missing() -> Any:
    return dataclasses.MISSING


# ---------------------------------------------------------------- postponed annotations
_sendable: dict[int, tuple[weakref.ref[Any], dict[str, int], tuple[str, ...]]] = {}
"""By the id of a class or function: names in its hints with the ids of what they are, and those that can be pickled."""


class _Trying(threading.local):
    """Classes and functions whose hints are being tried on this thread; hints may lead back to them."""

    def __init__(self) -> None:
        self.places: set[int] = set()


_trying = _Trying()


def _hinted(subject: Any, hints: Any, scope: dict[str, Any]) -> dict[str, Any]:
    """Objects of the script that the hints name in text: `typing.get_type_hints` looks for them in a worker."""
    place = id(subject)
    if type(hints) is not dict or str not in map(type, hints.values()) or place in _trying.places:
        return {}
    known = _sendable.get(place)
    if known is None or known[0]() is not subject or any(id(scope.get(name)) != at for name, at in known[1].items()):
        reference = weakref.ref(subject, lambda _: _sendable.pop(place, None))
        places = {name: id(scope[name]) for name in names_in(hints.values(), scope)}
        _trying.places.add(place)
        try:
            known = reference, places, tuple(name for name in places if _can_travel(scope[name]))
        finally:
            _trying.places.discard(place)
        _sendable[place] = known
    return {name: scope[name] for name in known[2]}


def _can_travel(subject: Any) -> bool:
    try:
        dumped(subject)
    except Exception:  # noqa: BLE001 - whatever it is, a call that does without the hint is made
        return False
    return True


# ---------------------------------------------------------------- modules on no path
def _can_be_imported(module: ModuleType) -> bool:
    """Nothing is known against it: its package is in some place, or cloudpickle takes the module along."""
    root = module.__name__.partition(".")[0]
    known = sys.modules.get(module.__name__)
    by_value = any(module.__name__.startswith(name) for name in cloudpickle.list_registry_pickle_by_value())
    return known is not module or by_value or root == "__main__" or _has_place(root)


@functools.lru_cache(maxsize=1024)
def _has_place(root: str) -> bool:
    """Some finder finds a package or a module of this name."""
    found = (getattr(finder, "find_spec", lambda *_: None)(root, None) for finder in sys.meta_path)
    return root in sys.builtin_module_names or any(spec is not None for spec in found)


class _ByValue:
    """Modules added to cloudpickle's list of those to pickle by value, which is global to the process."""

    def __init__(self) -> None:
        self.lock = threading.RLock()  # `__reduce__` is user code, and may submit a call
        self._added: list[ModuleType] = []

    def add(self, module: ModuleType) -> None:
        """To be removed again by the holder of the lock."""
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
