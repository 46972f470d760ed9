"""Turn to read the channel: the worker's main thread has it while it runs nothing, else the reader thread.

To hand each step from a reading thread to the main one takes two changes of threads, as long as many a step. So the
main thread waits for its next step in the socket itself. The reader thread reads until the first step has come, when a
step waits for an answer, and when a step lasts. It looks every few milliseconds while steps come and go, and sleeps
while none does.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable, Sized
from queue import Empty, SimpleQueue
from typing import TypeVar

from actorproc.workers.child.process_state.guard import die_with_group, exit_with_traceback
from actorproc.workers.child.runtime.channel import WorkerChannel
from actorproc.workers.protocol.exit_codes import EXIT_PROTOCOL
from actorproc.workers.protocol.frames import FrameError, Run, ToWorker

__all__ = ["ChannelReader", "read_into", "wait_for_next"]

T = TypeVar("T")
_PAUSE = 0.005
"""Seconds between two checks whether the main thread is still in the same step."""
_LOOK_UP = 2.0
"""Seconds after which the main thread looks up when nothing comes."""
_NUDGES = (0.0, 0.05, 1.0, 10.0)
"""Seconds before each nudge, the last again and again. On a busy machine the main thread may come late to its wait,
and a message that brings no step has it wait anew."""
_IDLE_ROUNDS = 4
"""Looks between which the main thread came to read nothing: its steps are short, but more than was expected."""


class ChannelReader:
    """Right to read. `serve` is for the reader thread, `ask` for any thread, all else for the main thread.

    ``read`` reads what is there, waiting for something, and puts steps into ``steps``; ``asked`` are the questions
    that wait for an answer. The thread that has the right reads. The reader thread gives it back after each message,
    unless it is still needed, so that the main thread, which waits for the right, sees the message.

    A signal that comes in the instant before the main thread begins to wait does not interrupt the wait, and Python
    acts on it after the wait only. So ``nudge``, which interrupts it, is called when the main thread has come to rest,
    and now and then while it rests. The reader thread needs no such thing, nor could it always look up: it may wait
    beside a step that has used up its memory.
    """

    def __init__(
        self,
        read: Callable[[], None],
        steps: SimpleQueue[Run | None],
        asked: Sized,
        nudge: Callable[[], None] = lambda: None,
    ) -> None:
        self._read = read
        self._nudge = nudge
        self._steps = steps
        self._asked = asked
        self._right = threading.Lock()
        self._calls: SimpleQueue[None] = SimpleQueue()
        """Wake the reader thread."""
        self._main_reads = False
        self._in_step = False
        self._begun = 0
        self._led = 0
        """Number of times that the main thread came to read."""
        self._sleeps = False
        """The reader thread looks at nothing before it is called."""

    # ------------------------------------------------------------------ main thread
    def begin(self) -> None:
        """The main thread reads from now on, when it has nothing else to do."""
        self._main_reads = True

    def next_step(self) -> Run | None:
        """The next step, or None when there is to be none."""
        self._in_step = False
        if self._main_reads and self._steps.empty():
            self._led += 1
            while not self._right.acquire(timeout=_LOOK_UP):
                pass
            try:
                while self._steps.empty():
                    self._read()
            finally:
                self._right.release()
        step = wait_for_next(self._steps) if self._steps.empty() else self._steps.get()
        self._in_step = True
        self._begun += 1
        if self._sleeps or self._asked:
            self._sleeps = False
            self.ask()
        return step

    def leave_to_reader(self) -> None:
        """Let only the reader thread read from now on: the main thread waits for other things than frames, too."""
        if self._main_reads:
            self._main_reads = False
            self._calls.put(None)

    # ------------------------------------------------------------------ any thread
    def ask(self) -> None:
        """A question was sent: its answer is to be read although a step runs."""
        if self._main_reads:  # else the reader thread reads all the time, and hears no call
            self._calls.put(None)

    # ------------------------------------------------------------------ reader thread
    def serve(self) -> None:
        """Read when it is this thread's turn, for ever."""
        while True:
            self._read_in_place_of_main()
            with contextlib.suppress(MemoryError):  # a step used up what its limit allows: it is not the reader's limit
                self._rest()

    def _read_in_place_of_main(self) -> None:
        if not self._right.acquire(blocking=False):
            return
        try:
            self._read()
            while self._is_needed():
                self._read()
        finally:
            self._right.release()

    def _is_needed(self) -> bool:
        """True if this thread must read, whatever the main thread does."""
        return not self._main_reads or (self._in_step and bool(self._asked))

    def _rest(self) -> None:
        """Return when messages should be read here."""
        while not self._calls.empty():
            self._calls.get()  # of what is done; what is not is seen below
        seen, led, rounds = self._begun, self._led, 0
        while not self._is_needed():
            is_called = self._is_called_within(_PAUSE)
            nothing_began = self._begun == seen and not is_called
            rounds = rounds + 1 if self._led == led else 0
            if self._in_step and (nothing_began or rounds >= _IDLE_ROUNDS):
                return
            if nothing_began:  # and none runs: the next one calls
                self._sleeps = True
                if self._begun == seen:
                    self._sleep()
                self._sleeps = False
            seen, led = self._begun, self._led

    def _sleep(self) -> None:
        pauses = itertools.chain(_NUDGES, itertools.repeat(_NUDGES[-1]))
        while not self._is_called_within(next(pauses)):
            self._nudge()

    def _is_called_within(self, seconds: float) -> bool:
        try:
            self._calls.get(timeout=seconds)
        except Empty:
            return False
        return True


def wait_for_next(queue: SimpleQueue[T]) -> T:
    """The next of a queue, for a thread that is to hear signals as well.

    One that comes in the instant before the wait begins does not interrupt it, and Python acts on it after the wait.
    """
    while True:
        with contextlib.suppress(Empty):
            return queue.get(timeout=_LOOK_UP)


def read_into(channel: WorkerChannel, take_in: Callable[[ToWorker], None]) -> Callable[[], None]:
    """Function that reads a channel once and takes in the messages. It ends the process if the host is gone."""

    def read() -> None:
        try:
            messages = channel.receive()
            if messages is None:
                die_with_group()
            with channel.limiter.lifted():
                for message in messages or ():
                    take_in(message)
        except FrameError:
            exit_with_traceback(EXIT_PROTOCOL)

    return read
