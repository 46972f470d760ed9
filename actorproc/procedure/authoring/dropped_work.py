"""Values of steps that are work which would be dropped: children, calls that were not made, coroutines."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Coroutine, Iterator, Mapping
from itertools import islice
from typing import Any

from actorproc.procedure.authoring.procedure import Procedure, unrun_kind
from actorproc.procedure.authoring.status import Status

__all__ = ["PLAIN_RESULTS", "dropped_work"]

PLAIN_RESULTS = frozenset({type(None), bool, int, float, str, bytes})
"""Classes of values that hold no work: need not be looked into."""
_LOOKED_AT = 1000
"""Members of a collection that are looked at."""
_PLAIN_COLLECTIONS = frozenset({list, tuple, set, frozenset, dict})
_COLLECTIONS = (list, tuple, set, frozenset, Mapping)
_FUNCTIONS = (types.FunctionType, types.MethodType, types.BuiltinFunctionType)
_LAZY = (map, filter, zip)
_OF_STATUS: dict[Any, str] = {
    vars(Status)[name].__func__: name for name in ("executing", "suspended", "sleep", "wait", "done", "poisoned")
}


def dropped_work(returned: Any) -> str | None:
    """Reason why a value that a step returned is work, and not its outcome, and what to write; None when it is not.

    A procedure or a collection of them, a function (of `Status` above all) that was not called, a coroutine, a lazy
    iterator, a `Status` in a collection, an exception.
    """
    if type(returned) in _PLAIN_COLLECTIONS:
        return _problem_inside(returned)
    unrun = unrun_kind(returned)
    if unrun is not None:
        return unrun
    if isinstance(returned, Coroutine) or getattr(returned, "_asyncio_future_blocking", None) is not None:
        return f"returned {_shown(returned)}, which nothing would await; write 'async def' and 'return await …'"
    if isinstance(returned, Procedure):
        return f"returned the procedure {_shown(returned)}, which would not be run; {_suspended(returned)}"
    if isinstance(returned, BaseException):
        return f"returned the exception {_shown(returned)}, which fails nothing; write 'raise' in place of 'return'"
    if isinstance(returned, _LAZY):
        kind = type(returned).__name__
        return f"returned a {kind} object, so nothing of it has run; write list(…) around it"
    return _not_called(returned) or _problem_inside(returned)


def _not_called(returned: Any) -> str | None:
    function = returned
    while isinstance(function, functools.partial):
        function = function.func
    name = _OF_STATUS.get(function) if isinstance(function, types.FunctionType) else None
    if name is not None:
        return f"returned Status.{name}, which was not called; write 'return Status.{name}(…)'"
    if isinstance(function, type) and issubclass(function, Status):
        return "returned the class Status; write 'return Status.done(output)' or another of its functions"
    if isinstance(function, type) and issubclass(function, Procedure):
        return f"returned the class {function.__qualname__}, of which nothing would be run; {_suspended(function)}"
    if hasattr(type(function), "procedure_class") or "procedure_class" in getattr(function, "__dict__", ()):
        name = function.__name__
        return f"returned {name}, which was not called; write 'return Status.suspended([{name}(…)])'"
    if isinstance(function, _FUNCTIONS) or function is not returned:
        name = getattr(function, "__name__", "function")
        return f"returned the function {name}, which was not called; write '{name}(…)'"
    return None


def _problem_inside(returned: Any) -> str | None:
    if not isinstance(returned, _COLLECTIONS) and type(returned).__module__ != "collections":
        return None
    try:
        for part in _examples(returned):
            if isinstance(part, Procedure):
                return (
                    f"returned procedures in a {type(returned).__name__}, {_shown(part)} among them, which would "
                    "not be run; write 'return Status.suspended([…])', and the next step finds their outcomes in "
                    "ctx.children"
                )
            if isinstance(part, Status):
                return (
                    f"returned a {type(returned).__name__} with {_shown(part)} in it, which does nothing there; "
                    "return the Status alone (a comma behind it makes a tuple)"
                )
            if isinstance(part, types.CoroutineType):
                part.close()  # without a warning that says the same
                return f"returned a {type(returned).__name__} of coroutines, none of which has run; await them"
    except TypeError:  # it cannot be gone through
        return None
    return None


def _examples(collection: Any) -> Iterator[Any]:
    """One member of each class, and one of each class in those that are collections themselves."""
    members = collection.values() if isinstance(collection, Mapping) else collection
    if PLAIN_RESULTS.issuperset(map(type, islice(members, _LOOKED_AT))):
        return
    for member in {type(member): member for member in islice(members, _LOOKED_AT)}.values():
        yield member
        if isinstance(member, list | tuple | set | frozenset):
            yield from {type(part): part for part in islice(member, _LOOKED_AT)}.values()


def _suspended(child: Any) -> str:
    name = child.__qualname__ if inspect.isclass(child) else type(child).__qualname__
    name = name.rpartition(".")[2]
    return (
        f"write 'return Status.suspended([{name}(…)])' to run it as a child; the next step finds its outcome in "
        "ctx.children"
    )


def _shown(value: object) -> str:
    try:
        return f"{value!r:.80}"
    except Exception:  # noqa: BLE001 - __repr__ is user code
        return f"an object of {type(value).__qualname__}"
