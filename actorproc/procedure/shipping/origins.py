"""Identity of what travels by value: classes, functions and type variables of a script, a notebook or a function.

The program sends a class to its workers by value, together with its *origin*: the name under which the program has it,
its declared fields, and a token. A worker makes one *copy* of it. An object that a worker sends back names the origin,
for which the program takes its own class. That is the class of this name, as pickle finds it; a class without a name
(made in a function) is found by its token.

A class of another program, which has no such name here or other fields there, is made again from its *definition*, the
pickle that came along. Unpickling fills classes that it makes and never sets an attribute of a class that was there.
In a worker, copies follow their originals: each call brings the attributes that they have in the program.
"""

from __future__ import annotations

import logging
import os
import pickle
import sys
import threading
import types
import weakref
from collections.abc import Callable, Iterator
from enum import Enum
from io import BytesIO
from pathlib import PurePath
from typing import Any, NamedTuple

from actorproc.procedure.shipping.importable import found_at
from actorproc.procedure.shipping.script_globals import changed, keep, new_token, news
from actorproc.procedure.shipping.skeletons import empty_class
from actorproc.procedure.shipping.worker_main import show
from actorproc.procedure.values.fields import declared_fields
from actorproc.procedure.values.type_names import MAIN_MODULES, module_name, name_of_main

__all__ = [
    "OWN_MARK",
    "Origin",
    "fill",
    "follow",
    "follow_function",
    "loads",
    "loads_returned",
    "made_in_program",
    "made_in_worker",
    "name_in_program",
    "named_in_worker",
    "origin_of",
    "reference_to",
    "token_of",
]

logger = logging.getLogger("actorproc")

_PATIENCE = 10.0
"""Seconds to wait for another thread that makes classes, before making some beside it."""
_LONGEST_DEFINITION = 64 * 1024
"""Bytes of a pickled class that results bring along; a longer one is named only."""


class Origin(NamedTuple):
    """Name and traits of an object in the program that it comes from."""

    module: str
    """As stored names have it: for the main program under ``python -m`` the name of its module."""
    qualname: str
    token: str
    """Same for all copies of one class; empty for what is known by its name alone."""
    shape: tuple[str, ...]
    """Kind and declared fields."""
    is_main: bool
    """The module was the main program."""
    is_named: bool
    """The module has the object under this name."""


class _Entry:
    """A class, function or variable of this process that travels by value, or that came by value."""

    __slots__ = ("definition", "is_copy", "marks", "origin", "subject")

    def __init__(self, subject: weakref.ref[Any], origin: Origin, *, is_copy: bool) -> None:
        self.subject = subject
        self.origin = origin
        self.is_copy = is_copy
        self.definition: bytes | None = None
        self.marks: dict[str, bytes | None] = {}
        """Of the attributes of a copy, as they came last."""


class _Registry:
    """Entries by object and by token. Objects are compared by identity: a metaclass may define ``__eq__``."""

    def __init__(self) -> None:
        self.making = threading.RLock()
        """Held from the making of a first class to the end of that unpickling."""
        self._entries: dict[int, _Entry] = {}
        self._by_token: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()

    def of(self, subject: Any) -> _Entry | None:
        """The entry of this very object."""
        entry = self._entries.get(id(subject))
        return entry if entry is not None and entry.subject() is subject else None

    def holder(self, token: str) -> Any:
        """The object with this token; None when there is none, or no longer."""
        return self._by_token.get(token) if token else None

    def note(self, subject: Any, origin: Origin, *, is_copy: bool) -> _Entry:
        """Make an entry, or return the one that another thread has made meanwhile."""
        place = id(subject)

        def forget(_: object, entries: dict[int, _Entry] = self._entries) -> None:
            entries.pop(place, None)

        fresh = _Entry(weakref.ref(subject, forget), origin, is_copy=is_copy)
        entry = self._entries.setdefault(place, fresh)
        if origin.token:
            self._by_token.setdefault(entry.origin.token, subject)
        return entry

    def forget_in_fork(self) -> None:
        """In a forked copy the thread that was making classes does not exist."""
        self.making = threading.RLock()


_registry = _Registry()
os.register_at_fork(after_in_child=_registry.forget_in_fork)


class _Loading(threading.local):
    """Unpickling that is under way on this thread."""

    depth = 0
    has_lock = False

    def __init__(self) -> None:
        self.unfilled: dict[int, tuple[Any, Origin]] = {}
        """Classes that were made and have no attributes yet."""


_loading = _Loading()
OWN_MARK = ""
"""Name among the marks of a function's globals that is for the function itself."""
_OBJECT = ("object",)
"""Shape of what is no class."""
_told: set[tuple[str, str]] = set()
"""Modules and names of classes about which a warning was logged."""


# ---------------------------------------------------------------- where an object is from
def origin_of(subject: Any) -> Origin:
    """The origin of a class that is about to travel by value."""
    entry = _registry.of(subject)
    if entry is None:
        entry = _registry.note(subject, _described(subject, new_token()), is_copy=False)
    elif not entry.is_copy:  # it may have another name by now, or none: its cell in a notebook ran again
        return _described(subject, entry.origin.token)
    return entry.origin


def token_of(subject: Any, module: str, name: str, is_main: bool) -> str:
    """The token of a function or variable that is about to travel by value under its name."""
    entry = _registry.of(subject)
    if entry is None:
        origin = Origin(module, name, new_token(), _OBJECT, is_main, True)
        entry = _registry.note(subject, origin, is_copy=False)
    return entry.origin.token


def name_in_program(subject: Any) -> tuple[str, str, bool] | None:
    """Module and name of a function or variable that its module has under it, and whether that is the main program.

    None for any other.
    """
    module: Any = getattr(subject, "__module__", None)
    name: Any = getattr(subject, "__qualname__", None) or getattr(subject, "__name__", "")
    holder = sys.modules.get(module) if isinstance(module, str) else None
    if holder is None or vars(holder).get(name) is not subject:
        return None
    return module_name(subject), name, module in MAIN_MODULES


def _described(subject: Any, token: str) -> Origin:
    module = getattr(subject, "__module__", None) or ""
    qualname = getattr(subject, "__qualname__", None) or getattr(subject, "__name__", None) or ""
    is_named = "<" not in qualname and _at(sys.modules.get(module), qualname) is subject
    return Origin(module_name(subject), qualname, token, _shape_of(subject), module in MAIN_MODULES, is_named)


def _shape_of(subject: Any) -> tuple[str, ...]:
    if not isinstance(subject, type):
        return _OBJECT
    if issubclass(subject, Enum):
        return ("enum", *(_member(member) for member in subject))
    fields = declared_fields(subject)
    if fields is None:
        fields = getattr(subject, "__pydantic_fields__", None)
    if fields is None:
        slots = vars(subject).get("__slots__") or ()
        fields = (slots,) if isinstance(slots, str) else slots
    return ("class", *map(str, fields))


def _member(member: Any) -> str:
    # What an enum gives back for a stored value depends on its values, but not all of those read the same each time.
    return f"{member.name}={member.value!r}" if type(member.value) in {int, str, bool, float} else str(member.name)


def _at(module: types.ModuleType | None, qualname: str) -> Any:
    try:
        return None if module is None else found_at(module, qualname)
    except Exception:  # noqa: BLE001 - `__getattr__` of modules and metaclasses is user code
        return None


# ---------------------------------------------------------------- what workers send back
def reference_to(subject: Any, define: Callable[[Any], bytes]) -> tuple[Any, ...] | None:
    """Reference that a worker sends in place of an object that is the program's; None: it is not, and goes by value.

    `define` pickles a class so that `loads` makes it again.
    """
    entry = _registry.of(subject)
    if entry is None or not entry.is_copy:
        # What stands in a worker's own `__main__` under its name is the program's as well.
        if getattr(subject, "__module__", None) not in MAIN_MODULES:
            return None
        origin = _described(subject, entry.origin.token if entry is not None else "")
        if not origin.is_named:
            return None
        if entry is None:
            entry = _registry.note(subject, origin, is_copy=False)
    if entry.definition is None:
        entry.definition = _definition(subject, define)
    return _in_program, (tuple(entry.origin), entry.definition)


def _definition(subject: Any, define: Callable[[Any], bytes]) -> bytes:
    try:
        made = define(subject)
    except Exception:  # noqa: BLE001 - anything the class refers to may refuse; the program most likely has the class
        return b""
    return made if len(made) <= _LONGEST_DEFINITION else b""


def _in_program(parts: tuple[Any, ...], definition: bytes) -> Any:
    """The object of this origin, in the program."""
    origin = Origin(*parts)
    found = _own(origin)
    if found is not None:
        return found
    if not definition:
        msg = f"this program has no {origin.module}.{origin.qualname} like that of the call, {_fields_of(origin)}"
        raise LookupError(msg)
    made = loads(definition)
    _tell(origin)
    return made


def _own(origin: Origin) -> Any:
    """This program's own object of an origin, or the copy that it has already; None when there is none."""
    if origin.is_named:
        for module in _namesakes(origin):
            found = _at(module, origin.qualname)
            if found is not None and _fits(found, origin):
                return found
    return _registry.holder(origin.token)


def _namesakes(origin: Origin) -> Iterator[types.ModuleType | None]:
    """Modules that may be the origin's. None is imported: a module whose classes travel by value is on no path."""
    main = sys.modules.get("__main__")
    if origin.is_main and main is not None:
        name = name_of_main()
        # A script has no name but that of its file.
        file = PurePath(getattr(main, "__file__", None) or "").stem
        is_its_file = name == "__main__" and file == origin.module.rpartition(".")[2]
        if is_its_file or origin.module in {name, "__main__"}:
            yield main
    if origin.module != "__main__":
        yield sys.modules.get(origin.module)


def _fits(found: Any, origin: Origin) -> bool:
    """True if it is the class, or another edition of it with the same fields; an enum may have got more members."""
    shape = _shape_of(found)
    if shape[0] == origin.shape[0] == "enum":
        return set(origin.shape) <= set(shape)
    return shape == origin.shape


def _fields_of(origin: Origin) -> str:
    return f"with the fields {', '.join(origin.shape[1:])}" if origin.shape[1:] else "or it is of another kind"


def _tell(origin: Origin) -> None:
    """Log once that a class of another program came by value."""
    name = (origin.module, origin.qualname)
    if name in _told:
        return
    _told.add(name)
    logger.warning(
        "a result refers to %s.%s, which this program does not have (%s); it gets a copy of that %s, so ==, isinstance "
        "and except do not take it for one of this program's",
        origin.module,
        origin.qualname,
        _fields_of(origin),
        "class" if origin.shape[0] != "object" else "object",
    )


# ---------------------------------------------------------------- making classes from pickles
def made_in_worker(make: Callable[..., Any], parts: tuple[Any, ...], origin: tuple[Any, ...]) -> Any:
    """A copy of a class that the program sent: the one that is here already, or a new one that has yet to be filled."""
    found = _made(make, parts, Origin(*origin), _registry.holder, is_quiet=False)
    entry = _registry.of(found)
    if entry is not None and entry.is_copy and entry.origin != origin:
        entry.origin = Origin(*origin)  # it lost its name since, as a cell that defines it ran again
    return found


def made_in_program(make: Callable[..., Any], parts: tuple[Any, ...], origin: tuple[Any, ...]) -> Any:
    """A class that a worker sent by value: the program's own when it has it, or a new one that has yet to be filled."""
    full = Origin(*origin)
    return _made(make, parts, full, lambda _: _own(full), is_quiet=True)


def named_in_worker(
    make: Callable[..., Any],
    parts: tuple[Any, ...],
    module: str,
    name: str,
    is_main: bool,
    token: str,
) -> Any:
    """The copy of a function or variable that the program has under a name."""
    made = _registry.holder(token)
    if made is None:
        made = make(*parts)
        _registry.note(made, Origin(module, name, token, _OBJECT, is_main, True), is_copy=True)
        keep((token.partition(":")[0], module), name, made)
    if is_main:
        show(name, made)
    return made


def _made(
    make: Callable[..., Any], parts: tuple[Any, ...], origin: Origin, find: Callable[[str], Any], *, is_quiet: bool
) -> Any:
    found = find(origin.token)
    if found is not None:
        return found
    if _loading.depth and not _loading.has_lock:
        # With a limit, as unpickling runs user code, which may wait for what another thread unpickles.
        _loading.has_lock = _registry.making.acquire(timeout=_PATIENCE)
        found = find(origin.token)
        if found is not None:
            return found
    made = empty_class(make, parts, _travels, is_quiet=is_quiet)
    if made.__qualname__ != origin.qualname:
        made.__qualname__ = origin.qualname
    _loading.unfilled[id(made)] = made, origin
    return made


def _travels(cls: type) -> bool:
    return id(cls) in _loading.unfilled or _registry.of(cls) is not None or cls.__module__ in MAIN_MODULES


def follow(
    subject: Any,
    state: tuple[dict[str, Any], Callable[[Any, Any], object], Any, dict[str, bytes | None]],
) -> None:
    """Give a copy in a worker the attributes that its original got in the program, and show what its hints name."""
    hinted, set_state, attributes, marks = state
    for name, value in hinted.items():
        show(name, value)
    is_new = fill(subject, (set_state, attributes))
    entry = _registry.of(subject)
    if is_new and entry is not None:
        entry.marks.update(marks)
    elif entry is None:
        set_state(subject, attributes)
    elif entry.is_copy:
        members, *slots = attributes
        set_state(subject, (news(entry.marks, members, marks), *slots))


def follow_function(
    subject: Any, state: tuple[Callable[[Any, Any], object], tuple[Any, dict[str, Any]], dict[str, bytes | None]]
) -> None:
    """Give a copy of a function what its original got in the program, and its module's globals as well."""
    set_state, attributes, marks = state
    entry = _registry.of(subject)
    if entry is not None and not entry.is_copy:
        return
    members = attributes[1]
    members["__globals__"] = changed(subject.__globals__, members["__globals__"], marks)
    if entry is not None and not news(entry.marks, {OWN_MARK: None}, marks):
        subject.__globals__.update(members["__globals__"])
        return
    set_state(subject, attributes)


def fill(subject: Any, state: tuple[Callable[[Any, Any], object], Any]) -> bool:
    """Give a class that was just made its attributes; False, and nothing is set, when it was there before."""
    if id(subject) not in _loading.unfilled:
        return False
    set_state, attributes = state
    set_state(subject, attributes)
    # Only now others may find it. What refers to it in this pickle has it already.
    _, origin = _loading.unfilled.pop(id(subject))
    _registry.note(subject, origin, is_copy=True)
    if origin.is_main and origin.is_named:
        show(origin.qualname, subject)
    return True


# ---------------------------------------------------------------- unpickling
def loads(data: Any) -> Any:
    """The object of a pickle that may hold classes by value."""
    return _loaded(pickle.loads, data)


def loads_returned(data: Any) -> Any:
    """The object of a pickle that a worker made, in the program.

    The main program under ``python -m`` and the module of its name are one.
    """
    name = name_of_main()
    if name == "__main__" or name in sys.modules:
        return _loaded(pickle.loads, data)
    return _loaded(lambda data: _AliasingMain(BytesIO(data), name).load(), data)


def _loaded(load: Callable[[Any], Any], data: Any) -> Any:
    _loading.depth += 1
    try:
        return load(data)
    finally:
        _loading.depth -= 1
        if not _loading.depth:
            _loading.unfilled.clear()
            if _loading.has_lock:
                _loading.has_lock = False
                _registry.making.release()


class _AliasingMain(pickle.Unpickler):
    """Takes the main program where a pickle names its module: importing that would make its classes twice."""

    def __init__(self, file: BytesIO, name: str) -> None:
        super().__init__(file)
        self._name = name

    def find_class(self, module: str, name: str, /) -> Any:
        """The object of a name."""
        return super().find_class("__main__" if module == self._name else module, name)
