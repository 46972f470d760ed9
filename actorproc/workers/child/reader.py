"""Who reads the channel: the main thread while it waits for a step, the reader thread while one runs.

A message that comes when nothing runs is nearly always the next step. Read by the thread that will run it, it costs
no change of threads, which takes as long as all the rest of a short step. While a step runs, somebody must hear the
answers to what it asks, a request to abort, a step taken back: then the reader thread reads.

It takes over when a step has lasted for a while, or at once when the step asks the host something. Steps that follow
one another quickly never wake it; it looks after them a few times a second as long as they come, and sleeps when
none does (leader and follower, as in POSA 2, with a leader that is late on purpose).
"""

from __future__ import annotations

import os
import queue
import signal
import threading
import traceback
from collections.abc import Callable
from typing import Protocol

from actorproc.workers.child.channel import Channel
from actorproc.workers.child.guard import die_with_group
from actorproc.workers.exit_codes import EXIT_INTERNAL, EXIT_PROTOCOL
from actorproc.workers.frames import FrameError, ToWorker

__all__ = ["Reader"]

_LATE = 0.005
"""Seconds; a step that is still running after one to two of them has the reader thread read."""
_QUIET = 50
"""Times that long without a step, after which the reader thread sleeps and must be woken for the next one."""


class Desk(Protocol):
    """Where steps to run are put."""

    taken: int
    """How many steps the main thread has taken: tells one step from the next."""

    @property
    def is_empty(self) -> bool:
        """No step, and no word to stop, waits for the main thread."""
        ...


class Reader:
    """Reads the channel on one thread at a time, and has each message taken in. At first the reader thread reads."""

    def __init__(self, channel: Channel, desk: Desk, take_in: Callable[[ToWorker], None]) -> None:
        self._channel = channel
        self._desk = desk
        self._take_in = take_in
        self._lock = threading.Lock()
        """For what follows. Held for moments, never while reading."""
        self._here = True
        """The reader thread reads."""
        self._main_reads = False
        self._main_waits = False
        """The main thread does not read, and waits for what the reader thread puts on the desk."""
        self._asleep = False
        """The reader thread sleeps until the main thread has read something."""
        self._bell: queue.SimpleQueue[bool] = queue.SimpleQueue()
        """Rings for the resting reader thread; True: it is to read now, False: a step may begin."""

    def start(self) -> None:
        """Start the reader thread."""
        threading.Thread(target=self._run, name="actorproc-reader", daemon=True).start()

    # ------------------------------------------------------------ main thread
    def read(self) -> bool:
        """Read on the calling thread until something came; False: the reader thread reads, wait at the desk."""
        with self._lock:
            if self._here:
                self._main_waits = self._desk.is_empty
                return False
            self._main_reads = True
        try:
            self._read()
        finally:
            with self._lock:
                self._main_reads = False
                rouse, self._asleep = self._asleep, False
            if rouse:
                self._bell.put(False)
        return True

    def served(self) -> None:
        """The main thread waits no more."""
        self._main_waits = False

    def leave(self) -> None:
        """The main thread is going to wait at the desk while steps run on other threads."""
        with self._lock:
            self._main_waits = self._desk.is_empty
        self.take_over()

    def take_over(self) -> None:
        """Somebody waits for a message and cannot read: the reader thread is to. Any thread."""
        if not (self._here or self._main_reads):
            self._bell.put(True)

    # ------------------------------------------------------------ reader thread
    def _run(self) -> None:
        # Signals are for the main thread, where they interrupt what blocks.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            while True:
                self._read()
                if self._may_rest():
                    self._rest()
        except BaseException:  # noqa: BLE001 - a worker that hears nothing must not live on
            traceback.print_exc()
            os._exit(EXIT_INTERNAL)

    def _may_rest(self) -> bool:
        """The main thread waited and was given something: from now on it can read for itself."""
        with self._lock:
            if not self._main_waits or self._desk.is_empty:
                return False
            self._main_waits = self._here = False
            return True

    def _rest(self) -> None:
        """Leave reading to the main thread until a step lasts, or asks for something."""
        taken, quiet = -1, 0
        while True:
            ring = self._next_ring()
            with self._lock:
                lasts = self._desk.taken == taken and ring is not False
                if not self._main_reads and (ring or lasts):
                    self._here = True
                    return
                quiet = quiet + 1 if lasts else 0
                self._asleep = quiet >= _QUIET
                taken = -1 if ring is False else self._desk.taken

    def _next_ring(self) -> bool | None:
        """Wait for the bell; None: a while has passed."""
        try:
            return self._bell.get(timeout=None if self._asleep else _LATE)
        except queue.Empty:
            return None

    # ------------------------------------------------------------ either thread
    def _read(self) -> None:
        try:
            messages = self._channel.receive()
            if messages is not None:
                with self._channel.limiter.lifted():
                    for message in messages:
                        self._take_in(message)
                return
        except FrameError:
            traceback.print_exc()
            os._exit(EXIT_PROTOCOL)
        except Exception:  # noqa: BLE001 - a worker that hears nothing must not live on
            traceback.print_exc()
            os._exit(EXIT_INTERNAL)
        die_with_group()
