"""Threads that answer, started as they are needed, up to a limit."""

from __future__ import annotations

import functools
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

__all__ = ["Threads"]

T = TypeVar("T")


class Threads:
    """A bounded number of daemon threads that do what is submitted, in its order.

    Not a `ThreadPoolExecutor`: that one takes nothing any more once the main thread has ended, and a program may have
    its manager in another thread and go on.
    """

    def __init__(self, most: int, name: str) -> None:
        self._most = most
        self._name = name
        self._news = threading.Condition(threading.Lock())
        self._waiting: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._running = 0
        self._idle = 0
        self._closed = False

    def submit(self, work: Callable[..., T], *arguments: object) -> Future[T]:
        """Have this done. Raises `RuntimeError` after `close`, and when the system has no thread for it."""
        future: Future[T] = Future()
        with self._news:
            if self._closed:
                raise RuntimeError("these threads have ended")
            self._waiting.append((future, functools.partial(work, *arguments)))
            if self._idle >= len(self._waiting):
                self._news.notify()
            elif self._running < self._most:
                self._start()
        return future

    def _start(self) -> None:
        thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        try:
            thread.start()
        except RuntimeError:
            if not self._running:  # else those that are there come to it
                self._waiting.pop()
                raise
        else:
            self._running += 1

    def close(self) -> None:
        """End, each after what it is at; what waits is cancelled. Waits for nothing."""
        with self._news:
            self._closed = True
            left = [future for future, _ in self._waiting]
            self._waiting.clear()
            self._news.notify_all()
        for future in left:
            future.cancel()

    def _run(self) -> None:
        while (job := self._next()) is not None:
            future, work = job
            if future.set_running_or_notify_cancel():
                try:
                    result = work()
                except BaseException as error:  # noqa: BLE001 - the caller is told
                    future.set_exception(error)
                else:
                    future.set_result(result)
            del job, future, work

    def _next(self) -> tuple[Future[Any], Callable[[], Any]] | None:
        with self._news:
            self._idle += 1
            while not self._waiting and not self._closed:
                self._news.wait()
            self._idle -= 1
            return self._waiting.popleft() if self._waiting else None
