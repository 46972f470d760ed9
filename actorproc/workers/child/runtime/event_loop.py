"""The event loop of a worker: it runs on a thread of its own, and knows at each moment which step its code belongs to.

Code of a step is what its task runs, the tasks and callbacks that this starts, and the threads that it starts or has a
pool run something. Each is marked before it goes on (`crash_marks`), for the crash report, and for what it prints and
logs.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import Future, ThreadPoolExecutor, thread as futures_thread
from contextvars import Context
from functools import partial
from typing import Any, Protocol, TypeVar

from actorproc.workers.child.runtime.crash_marks import CrashMarks
from actorproc.workers.protocol.frames import Run

__all__ = ["EventLoop", "TaskOwner"]

T = TypeVar("T")
_POOL = 64
"""Threads of the loop's own pool, for `asyncio.to_thread` and plain functions of asynchronous classes."""
_PATIENCE = 1.0
"""Seconds for what is left on the loop when its worker ends."""
_pool_target = getattr(futures_thread, "_worker", None)


class TaskOwner(Protocol):
    """A step, as far as the loop has to know it."""

    number: int
    run: Run
    tasks: set[asyncio.Task[Any]]
    pooled: set[Future[Any]]


class EventLoop:
    """A running loop.

    Args:
        marks: The marks that it keeps.
        mark_thread: Told to which step the output of the calling thread belongs; None: to none.
        follow: The process is a worker: its threads are followed as well.
    """

    def __init__(self, marks: CrashMarks, mark_thread: Callable[[Run | None], None], *, follow: bool) -> None:
        self._marks = marks
        self._words = marks.words
        self._mark_thread = mark_thread
        self.current: TaskOwner | None = None
        """The step whose code the loop's thread runs."""
        self.turns = 0
        """Times that it came to the code of a step."""
        self._here = threading.local()
        self._is_over = False
        self.loop = _Loop(self)
        self.loop.set_task_factory(self._new_task)
        self._pool = ThreadPoolExecutor(_POOL, "actorproc-thread")
        self.loop.set_default_executor(self._pool)
        self.thread = threading.Thread(target=self._serve, name="actorproc-loop", daemon=True)
        if follow:
            _follow_threads(self)
        self.thread.start()

    def post(self, call: Callable[..., object], *args: Any) -> None:
        """Have the loop call this soon. Any thread."""
        self.loop.call_soon_threadsafe(call, *args)

    def close(self) -> None:
        """End what is left on the loop, and the loop; a task or a thread that does not end is left alone."""
        future = asyncio.run_coroutine_threadsafe(self._end_tasks(), self.loop)
        try:
            future.result(_PATIENCE)
        except Exception:  # noqa: BLE001 - the process is about to end, whatever is left
            return
        finally:
            self._pool.shutdown(wait=False)
        self._is_over = True
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(_PATIENCE)
        if not self.thread.is_alive():
            self.loop.close()

    async def _end_tasks(self) -> None:
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        await self.loop.shutdown_asyncgens()

    def _serve(self) -> None:
        asyncio.set_event_loop(self.loop)
        self._marks.begin()
        while not self._is_over:
            try:
                self.loop.run_forever()  # a step may stop the loop, which is not its own
            except (SystemExit, KeyboardInterrupt) as error:  # these alone pass through the loop
                self.loop.call_exception_handler(
                    {"message": f"{type(error).__name__} came out of a task or a callback", "exception": error}
                )

    # ------------------------------------------------------------------ whose code runs
    def owner_here(self) -> TaskOwner | None:
        """The step whose code the calling thread runs."""
        if threading.get_ident() == self.thread.ident:
            return self.current
        owner: TaskOwner | None = getattr(self._here, "owner", None)
        return owner

    def enter(self, owner: TaskOwner | None) -> TaskOwner | None:
        """The loop comes to the code of this step; returns the one before. On the loop's thread."""
        before, self.current = self.current, owner
        self._words[1] = 0 if owner is None else owner.number
        self._mark_thread(None if owner is None else owner.run)
        self.turns += 1
        return before

    def run_marked(self, owner: TaskOwner, function: Callable[..., T], /, *args: Any, **kwargs: Any) -> T:
        """Run code of a step on the calling thread."""
        if threading.get_ident() == self.thread.ident:
            before = self.enter(owner)
            try:
                return function(*args, **kwargs)
            finally:
                self.enter(before)
        before, place = getattr(self._here, "owner", None), self._marks.place()
        self._mark_here(owner, place)
        try:
            return function(*args, **kwargs)
        finally:
            self._mark_here(before, place)

    def _mark_here(self, owner: TaskOwner | None, place: int) -> None:
        self._here.owner = owner
        if place:
            self._words[place] = 0 if owner is None else owner.number
        self._mark_thread(None if owner is None else owner.run)

    def start(self, owner: TaskOwner, coroutine: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        """The task of a step. On the loop's thread."""
        before = self.enter(owner)
        try:
            return self.loop.create_task(coroutine, name=name)
        finally:
            self.enter(before)

    def _new_task(self, loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> asyncio.Task[Any]:
        owner = self.current
        if owner is None or not asyncio.iscoroutine(coroutine):
            return asyncio.Task(coroutine, loop=loop, **options)
        task: asyncio.Task[Any] = asyncio.Task(_Marked(self, owner, coroutine), loop=loop, **options)
        owner.tasks.add(task)
        task.add_done_callback(owner.tasks.discard)
        return task


class _Loop(asyncio.SelectorEventLoop):
    """The loop of the standard library, whose callbacks belong to the step that asks for them."""

    def __init__(self, owner: EventLoop) -> None:
        super().__init__()
        self._marks_of = owner

    def call_soon(  # type: ignore[override]
        self, callback: Any, *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        owner = self._marks_of.current
        if owner is not None:
            callback = partial(self._marks_of.run_marked, owner, callback)
        return super().call_soon(callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Any, *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        owner = self._marks_of.current
        if owner is not None:
            callback = partial(self._marks_of.run_marked, owner, callback)
        return super().call_at(when, callback, *args, context=context)

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Any, *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        owner = self._marks_of.owner_here()
        if owner is not None:
            callback = partial(self._marks_of.run_marked, owner, callback)
        return super().call_soon_threadsafe(callback, *args, context=context)


class _Marked(Coroutine[Any, Any, Any]):
    """A coroutine of a step; each time it goes on, the loop is at the code of that step."""

    __slots__ = ("__name__", "__qualname__", "_coroutine", "_home", "_owner")

    def __init__(self, home: EventLoop, owner: TaskOwner, coroutine: Any) -> None:
        self._home = home
        self._owner = owner
        self._coroutine = coroutine
        self.__name__ = getattr(coroutine, "__name__", type(coroutine).__name__)
        self.__qualname__ = getattr(coroutine, "__qualname__", self.__name__)

    def send(self, value: Any) -> Any:
        before = self._home.enter(self._owner)
        try:
            return self._coroutine.send(value)
        finally:
            self._home.enter(before)

    def throw(self, *error: Any) -> Any:
        before = self._home.enter(self._owner)
        try:
            return self._coroutine.throw(*error)
        finally:
            self._home.enter(before)

    def close(self) -> None:
        self._coroutine.close()

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._coroutine.__await__()  # type: ignore[no-any-return]

    @property
    def cr_frame(self) -> Any:
        return getattr(self._coroutine, "cr_frame", None)

    @property
    def cr_code(self) -> Any:
        return getattr(self._coroutine, "cr_code", None)

    @property
    def cr_running(self) -> Any:
        return getattr(self._coroutine, "cr_running", False)

    @property
    def cr_await(self) -> Any:
        return getattr(self._coroutine, "cr_await", None)


def _follow_threads(home: EventLoop) -> None:
    """Have threads that a step starts, and what it gives to pools of threads, count as the step.

    It is done to the classes of this process, once: a worker has one loop, for its life.
    """
    submit, start = ThreadPoolExecutor.submit, threading.Thread.start

    def submit_marked(self: Any, function: Any, /, *args: Any, **kwargs: Any) -> Any:
        owner = home.owner_here()
        if owner is None:
            return submit(self, function, *args, **kwargs)
        future: Future[Any] = submit(self, home.run_marked, owner, function, *args, **kwargs)
        owner.pooled.add(future)
        future.add_done_callback(owner.pooled.discard)
        return future

    def start_marked(self: Any) -> None:
        owner = home.owner_here()
        if owner is not None and getattr(self, "_target", None) is not _pool_target:
            self.run = partial(home.run_marked, owner, self.run)
        start(self)

    ThreadPoolExecutor.submit = submit_marked  # type: ignore[method-assign]
    threading.Thread.start = start_marked  # type: ignore[method-assign]
