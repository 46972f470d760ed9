"""Marks of the tasks of a worker with an event loop, as its host reads them (`workers.protocol.crash_marks`)."""

from __future__ import annotations

import mmap
import threading

from actorproc.workers.protocol.crash_marks import PAGE

__all__ = ["CrashMarks"]


class CrashMarks:
    """The marks: for each thread that runs code of tasks the number of the one it runs.

    Args:
        fd: Descriptor of the file; None: no host reads it.
    """

    def __init__(self, fd: int | None) -> None:
        page = bytearray(PAGE) if fd is None else mmap.mmap(fd, PAGE)
        self.words = memoryview(page).cast("Q")
        """Written without a lock: each thread has a pair of its own."""
        self._lock = threading.Lock()
        self._places: dict[int, int] = {}

    def begin(self) -> None:
        """The calling thread is that of the event loop; its number is the second of all words."""
        self.words[0] = threading.get_ident()

    def place(self) -> int:
        """Index of the word for the number of the calling thread; 0: there is room for no more threads."""
        thread = threading.get_ident()
        with self._lock:
            found = self._places.get(thread)
            if found is None:
                found = self._new_place()
                if found:
                    self._places[thread] = found
                    self.words[found - 1] = thread
            return found

    def _new_place(self) -> int:
        """The next pair, or one of a thread that runs nothing, and may have ended."""
        following = 3 + 2 * len(self._places)
        if following < len(self.words):
            return following
        for thread, place in self._places.items():
            if not self.words[place]:
                del self._places[thread]
                return place
        return 0
