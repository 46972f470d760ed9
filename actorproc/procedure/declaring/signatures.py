"""Signatures of what the engine calls: checked when a class is made, so that no call of a running procedure fails."""

from __future__ import annotations

import functools
import inspect
import os
import re
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["HOOKS", "MAY_BE_ASYNC", "check_call", "check_hooks", "is_of_own_signature"]

HOOKS: Mapping[str, str] = {
    "execute": "self, ctx",
    "rollback": "self, ctx",
    "abort": "self, ctx",
    "dump": "self",
    "load": "cls, data",
    "migrate": "cls, data, from_version",
    "lock_keys": "self",
    "limit_keys": "self",
    "poison_keys": "self",
    "before_recover": "self, ctx",
    "after_recover": "self, ctx",
    "on_timeout": "self, ctx",
    "on_completed": "self, ctx",
}
"""Methods of `Procedure` that the engine calls, and the parameters it gives them by position."""
MAY_BE_ASYNC = ("execute", "rollback", "abort", "before_recover", "after_recover", "on_timeout", "on_completed")
"""Hooks that may be ``async def``."""
_ENGINE = f"{Path(__file__).parents[1]}{os.sep}"
_MISMATCH = re.compile(r"([\w.<>]+)\(\) (?:takes |missing |got (?:an unexpected|multiple|some) )")


def check_call(function: Any, form: str, what: str, *, given: int | None = None) -> None:
    """Raise `TypeError` when a function cannot be called with the arguments of ``form``.

    ``what`` names it in the message; ``given`` is how many of the arguments it gets, by default all of them.
    """
    names = form.split(", ")
    count = len(names) if given is None else given
    if _accepts(function, count):
        return
    name = what.rpartition(".")[2]
    form = ", ".join(names[len(names) - count :])
    msg = (
        f"{what} is called as {name}({form}), which its 'def {name}({_parameters(function)})' does not take; "
        f"write 'def {name}({form})'"
    )
    if "ctx" in names and count >= names.index("ctx"):
        msg += ", and make other values fields of the class"
    raise TypeError(msg)


def check_hooks(cls: Any, forms: Mapping[str, str]) -> None:
    """Raise `TypeError` for a hook of this class, not of its bases, that the engine could not call."""
    own, taken = cls.__dict__, cls._engine_taken
    for name in forms.keys() & own.keys() - taken:
        _check_hook(cls, name, own[name], forms[name])


def _check_hook(cls: Any, name: str, found: Any, form: str) -> None:
    what, count = f"{cls.__qualname__}.{name}", len(form.split(", "))
    if isinstance(found, types.FunctionType):
        if form.startswith("cls"):
            msg = f"{what} is called on the class, before there is an object; write @classmethod above 'def {name}'"
            raise TypeError(msg)
        check_call(found, form, what)
    elif isinstance(found, staticmethod):
        check_call(found.__func__, form, what, given=count - 1)
    elif isinstance(found, classmethod):
        check_call(found.__func__, form, what)
    elif isinstance(found, functools.partialmethod):
        check_call(inspect.signature(found.__get__(None, cls)), form, what)
    elif callable(found) and not hasattr(type(found), "__get__"):
        check_call(found, form, what, given=count - 1)


def is_of_own_signature(error: BaseException, cls: type) -> bool:
    """A `TypeError` of a call that does not fit the signature of a method of the class: another try cannot help."""
    if not isinstance(error, TypeError):
        return False
    try:
        found = _MISMATCH.match(str(error))
    except Exception:  # noqa: BLE001 - __str__ of a class derived from TypeError is user code
        return False
    if found is None:
        return False
    frames = error.__traceback__
    while frames is not None and frames.tb_next is not None:
        frames = frames.tb_next
    if frames is not None and frames.tb_frame.f_code.co_filename.startswith(_ENGINE):
        return True  # the engine's own call of a step, an undo or a hook
    name = found[1]
    return any(name == base.__qualname__ or name.startswith(f"{base.__qualname__}.") for base in cls.__mro__)


def _accepts(function: Any, count: int) -> bool:
    if isinstance(function, inspect.Signature):
        try:
            function.bind(*(None,) * count)
        except TypeError:
            return False
        return True
    if isinstance(function, types.FunctionType):
        # What is really called: not what a decorator says that it wraps.
        code = function.__code__
        required = code.co_argcount - len(function.__defaults__ or ())
        optional = function.__kwdefaults__ or {}
        first = code.co_argcount
        keywords = code.co_varnames[first : first + code.co_kwonlyargcount]
        is_open = bool(code.co_flags & inspect.CO_VARARGS)
        return required <= count and (is_open or count <= code.co_argcount) and optional.keys() >= set(keywords)
    try:
        signature = inspect.signature(function, follow_wrapped=False)
    except (TypeError, ValueError, NameError):  # it says nothing of its parameters
        return True
    return _accepts(signature, count)


def _parameters(function: Any) -> str:
    if isinstance(function, types.FunctionType):
        code = function.__code__
        names = list(code.co_varnames[: code.co_argcount])
        at = code.co_argcount + code.co_kwonlyargcount
        if code.co_flags & inspect.CO_VARARGS:
            names.append(f"*{code.co_varnames[at]}")
            at += 1
        elif code.co_kwonlyargcount:
            names.append("*")
        names += code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]
        if code.co_flags & inspect.CO_VARKEYWORDS:
            names.append(f"**{code.co_varnames[at]}")
        return ", ".join(names)
    signature = function if isinstance(function, inspect.Signature) else inspect.signature(function)
    return ", ".join(map(str, signature.parameters.values()))
