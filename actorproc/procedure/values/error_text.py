"""Exceptions of user code as text."""

from __future__ import annotations

import os
import traceback
from pathlib import Path
from types import TracebackType

from actorproc.errors import InvalidStatus, UsageError
from actorproc.model.rows.records import ErrorInfo, ErrorKind

__all__ = ["OF_USERS", "encodable", "error_info", "in_words", "passing_cause"]

OF_USERS = (Exception, SystemExit, KeyboardInterrupt, GeneratorExit)
"""Errors of a user's methods where they must end nothing: all but the worker's own request to stop."""

_ENGINE = f"{Path(__file__).parents[1]}{os.sep}"
_LONGEST = 64 * 1024
"""Characters of a traceback kept: its beginning and its end say most."""
_LONGEST_MESSAGE = 8 * 1024
"""Characters of a message kept: it is in the head of its procedure, which is written at every change."""


def error_info(error: BaseException | str, *, procedure: str, step: int, kind: ErrorKind | None = None) -> ErrorInfo:
    """This failure as text. Never raises, whatever the exception's own methods do."""
    if isinstance(error, str):
        return ErrorInfo(kind or "error", "", _shortened(encodable(error), _LONGEST_MESSAGE), "", procedure, step)
    cls = type(error)
    name = cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"
    return ErrorInfo(kind or _kind_of(error), encodable(name), _message(error), _traceback(error), procedure, step)


def in_words(error: BaseException) -> str:
    """Its class and its text, which any record can hold. Never raises, whatever the exception's own methods do."""
    return f"{encodable(type(error).__name__)}: {_message(error)}"


def passing_cause(error: BaseException) -> BaseException | None:
    """The error in a chain of causes for which what cannot be read now may be readable soon; None when there is none.

    That is an I/O error, or an import of files that are being replaced: a module, or a name in it, that is missing or
    is no whole program. The next attempts show whether it lasts.
    """
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        if isinstance(link, OSError | ImportError | SyntaxError):
            return link
        seen.add(id(link))
        link = link.__cause__
    return None


def _kind_of(error: BaseException) -> ErrorKind:
    if isinstance(error, InvalidStatus):
        return "invalid-status"
    return "usage" if isinstance(error, UsageError) else "error"


def _message(error: BaseException) -> str:
    try:
        return _shortened(encodable(str(error)), _LONGEST_MESSAGE)
    except OF_USERS as failure:  # __str__ is user code
        return f"<its text is not available: {type(failure).__name__}>"


def _traceback(error: BaseException) -> str:
    try:
        frames = _users_part(error.__traceback__)
        lines = _lines(error, frames)
        return _shortened(encodable("".join(lines)), _LONGEST)
    except OF_USERS as failure:
        return f"<the traceback is not available: {type(failure).__name__}>"


def _lines(error: BaseException, frames: TracebackType | None) -> list[str]:
    try:
        return list(traceback.TracebackException(type(error), error, frames, compact=True).format())
    except OF_USERS:  # it runs __bool__, __str__ and __repr__ of user code; the frames call no user code
        return ["Traceback (most recent call last):\n", *traceback.format_tb(frames), f"{in_words(error)}\n"]


def _shortened(text: str, longest: int) -> str:
    if len(text) <= longest:
        return text
    half = longest // 2
    return f"{text[:half]}\n  … {len(text) - longest} characters left out …\n{text[-half:]}"


def _users_part(frames: TracebackType | None) -> TracebackType | None:
    """Without the leading frames of the engine."""
    trimmed = frames
    while trimmed is not None and trimmed.tb_frame.f_code.co_filename.startswith(_ENGINE):
        trimmed = trimmed.tb_next
    return trimmed


def encodable(text: str) -> str:
    """Text as a message can hold it: names of files and of users' own making may have half a surrogate pair in them."""
    return text.encode("utf-8", "backslashreplace").decode()
