"""Time limit of a replayed step: an endless one is stopped here, as its worker's time limit would stop it there."""

from __future__ import annotations

import ctypes
import signal
import threading
from types import TracebackType
from typing import Any, Self

from actorproc.procedure.authoring.context import StopStep

__all__ = ["DEFAULT", "StepTookTooLong", "TimeLimit"]

DEFAULT = 60.0
"""Seconds that a replayed step may take where nothing else is said."""
_AGAIN = 1.0
"""Seconds after which a step is interrupted again that went on."""


class StepTookTooLong(StopStep):
    """Thrown into a replayed step whose time is over."""


class TimeLimit:
    """Interrupts the code inside after so many seconds, and each second from then on. A context manager.

    In the main thread a signal does it, which also ends a sleep or a wait. In another thread the step is interrupted
    when it runs Python code next. Code that holds the interpreter, such as an endless loop in C, is not interrupted.

    Args:
        seconds: the limit; None: there is none.
    """

    def __init__(self, seconds: float | None) -> None:
        self._seconds = seconds
        self._thread: threading.Thread | None = None
        self._before: Any = None
        self._is_over = threading.Event()
        self._throwing = threading.Lock()
        """Held while the step is interrupted: nothing is thrown into a thread that has left it, or has ended."""
        self._is_main = False

    def __enter__(self) -> Self:
        if self._seconds is None:
            return self
        self._thread = threading.current_thread()
        self._is_main = self._thread is threading.main_thread()
        if self._is_main:
            self._before = signal.signal(signal.SIGALRM, _interrupt)
            signal.setitimer(signal.ITIMER_REAL, self._seconds, _AGAIN)
        else:
            name, watched = "actorproc-replay-limit", (self._thread, self._seconds)
            threading.Thread(target=self._watch, args=watched, name=name, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_main:
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            signal.signal(signal.SIGALRM, self._before)
        elif self._thread is not None:
            self._leave(self._thread)

    def _leave(self, thread: threading.Thread) -> None:
        """End the watch. An interrupt that has not arrived is taken back; one that arrives here has the same effect."""
        while not self._is_over.is_set():
            try:
                with self._throwing:
                    _throw(thread, None)
                    self._is_over.set()
            except StepTookTooLong:
                continue

    def _watch(self, thread: threading.Thread, seconds: float) -> None:
        while not self._is_over.wait(seconds) and thread.is_alive():  # its number may be another thread's then
            with self._throwing:
                if not self._is_over.is_set():
                    _throw(thread, StepTookTooLong)
            seconds = _AGAIN


def _throw(thread: threading.Thread, error: type[BaseException] | None) -> None:
    thrown = None if error is None else ctypes.py_object(error)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident or 0), thrown)


def _interrupt(number: int, frame: object) -> None:
    del number, frame
    raise StepTookTooLong
