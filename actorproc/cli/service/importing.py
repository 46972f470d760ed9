"""Imports of users' modules for a command: what goes wrong in one is told in words, with the place."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager

from actorproc.errors import ActorprocError, UsageError
from actorproc.procedure.values.error_text import in_words

__all__ = ["told_in_words"]


@contextmanager
def told_in_words(target: str, what: str = "cannot be imported") -> Iterator[None]:
    """Raise a `UsageError` for whatever a user's module raises inside, an exit included.

    Args:
        target: the module, as it was given.
        what: the part of the sentence between it and the error.
    """
    try:
        yield
    except UsageError:
        raise
    except ActorprocError as error:
        raise UsageError(str(error)) from error
    except SystemExit as error:
        raise UsageError(f"{target} {what}: it exits with {error.code!r}{_place_of(error)}") from error
    except Exception as error:
        raise UsageError(f"{target} {what}: {in_words(error)}{_place_of(error)}") from error


def _place_of(error: BaseException) -> str:
    """File and line in which it was raised. A SyntaxError names its place itself."""
    frames = traceback.extract_tb(error.__traceback__)
    if isinstance(error, SyntaxError) or not frames:
        return ""
    return f" ({frames[-1].filename}, line {frames[-1].lineno})"
