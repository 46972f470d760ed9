"""Answers that are kept while nothing changes, and asked for again no more often than their cost allows."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Generic, TypeVar

__all__ = ["Kept"]

_T = TypeVar("_T")
_SHARE = 0.01
"""Part of a core that one question may take."""


class Kept(Generic[_T]):
    """An answer that is kept while nothing changes, and asked for again no more often than its cost allows."""

    def __init__(self) -> None:
        self._for: object = None
        self._value: _T | None = None
        self._next_at = 0.0
        self._is_stale = True

    def changed(self) -> None:
        """Something in the store has changed."""
        self._is_stale = True

    def of(self, question: object, ask: Callable[[], _T]) -> _T:
        """The answer to a question: the kept one, or a new one."""
        now = time.monotonic()
        value = self._value
        if value is not None and question == self._for and (not self._is_stale or now < self._next_at):
            return value
        began = time.thread_time()
        value = ask()
        self._for, self._value, self._is_stale = question, value, False
        self._next_at = now + (time.thread_time() - began) / _SHARE
        return value
