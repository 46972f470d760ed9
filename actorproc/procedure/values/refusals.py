"""The words for values that cannot be kept: each says what the value is, and what to write instead."""

from __future__ import annotations

import re
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable
from dataclasses import is_dataclass
from enum import Enum

import msgspec

from actorproc.procedure.values.kinds.pydantic import is_model

__all__ = ["why_not_kept"]

_OF_A_PROCESS = frozenset(
    (
        *("_thread", "threading", "_threading_local", "socket", "_socket", "ssl", "_ssl", "io", "_io", "select"),
        *("selectors", "mmap", "queue", "_queue", "asyncio", "subprocess", "multiprocessing", "concurrent"),
        *("sqlite3", "http", "urllib", "ftplib", "smtplib", "imaplib", "contextvars", "_contextvars", "logging"),
    )
)
"""Packages whose objects stand for something of the running process."""
_FLOWS = frozenset({"generator", "coroutine", "async_generator", "frame", "traceback", "memoryview", "module", "code"})
_FUNCTIONS = frozenset({"function", "method", "builtin_function_or_method", "partial", "staticmethod", "classmethod"})
_HELD = (defaultdict, Counter, OrderedDict, dict, list, set, frozenset, tuple, deque, str, bytes, bytearray, bool, int)
_NUMBERS = (float, complex)
_HINTS_AS_TEXT = (
    " (a hint that is text, as all are under 'from __future__ import annotations', does not find a class of a "
    "function: name that one in `uses`)"
)


def why_not_kept(cls: type, unresolved: Callable[[], Iterable[tuple[str, str]]]) -> str:
    """The reason why no value of this class can be kept.

    Args:
        cls: class of the value.
        unresolved: gives the type hints that do not resolve, as pairs of place and text.
    """
    if (advice := getattr(cls, "_engine_stays_here", None)) is not None:
        return f"a {cls.__name__} {advice}"
    name = f"{cls.__module__}.{cls.__qualname__}"
    if cls.__name__ in _FUNCTIONS and cls.__module__ in {"builtins", "functools"}:
        return f"a {cls.__name__} is code, which is never stored; keep the name of what to call, or codec = 'pickle'"
    is_flow = cls.__module__ == "builtins" and cls.__name__ in _FLOWS
    if is_flow or cls.__module__.partition(".")[0] in _OF_A_PROCESS:
        return (
            f"a value of {name} belongs to the process that made it; make it in the step, or in the manager's "
            "environment= and take it from ctx.env"
        )
    if _has_fields(cls):
        return f"a value of {name} cannot be kept, {_of_declared(cls, unresolved)}"
    held = next((base for base in (*_HELD, *_NUMBERS) if issubclass(cls, base)), None)
    if held is not None:
        return (
            f"a value of {name}, which is a {held.__name__} of a class of its own, would come back as another one; "
            f"convert it with {held.__name__}(…), or write a ValueAdapter for it"
        )
    return (
        f"a value of {name} cannot be kept; make its class a dataclass and name it in a type hint of the procedure or "
        f"in its `uses`, write a ValueAdapter for it, convert it in dump() and load(), or use codec = 'pickle'"
    )


def _has_fields(cls: type) -> bool:
    return (
        issubclass(cls, Enum | msgspec.Struct)
        or is_dataclass(cls)
        or is_model(cls)
        or hasattr(cls, "__attrs_attrs__")
        or (issubclass(cls, tuple) and hasattr(cls, "_fields"))
    )


def _of_declared(cls: type, unresolved: Callable[[], Iterable[tuple[str, str]]]) -> str:
    word = re.compile(rf"\b{re.escape(cls.__name__)}\b")
    for place, text in unresolved():
        if word.search(text):
            if "<locals>" in cls.__qualname__:
                break
            return (
                f"because the hint {text!r} of {place} does not resolve at run time; import {cls.__name__} without "
                "`if TYPE_CHECKING:`, or name it in `uses`"
            )
    more = _HINTS_AS_TEXT if "<locals>" in cls.__qualname__ else ""
    return f"because no type hint reaches its class; name that in a type hint of the procedure or in its `uses`{more}"
