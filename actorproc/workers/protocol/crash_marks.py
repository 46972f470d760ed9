"""Marks of a worker with an event loop: the task that each of its threads runs, where its host can read it.

Many steps share the thread of a loop, so a death cannot be told from the thread alone. The worker writes the number of
a task before its code goes on, and takes it away behind. The marks stand in the first page of the memory file that
`faulthandler` writes to behind it, so they outlive the worker, however it ends.
"""

from __future__ import annotations

import re

__all__ = ["PAGE", "crashed_thread", "task_died_in"]

PAGE = 4096
"""Bytes of the marks: pairs of a thread's identifier and the number of its task, 8 bytes each; first that of the
loop."""
_CRASHED_THREAD = re.compile(r"^Fatal Python error.*^Current thread 0x([0-9a-fA-F]+) ", re.MULTILINE | re.DOTALL)


def crashed_thread(stack: str) -> int | None:
    """Identifier of the thread that `faulthandler` names as the one that crashed; None: it names none."""
    found = _CRASHED_THREAD.search(stack)
    return None if found is None else int(found.group(1), 16)


def task_died_in(page: bytes, stack: str) -> int | None:
    """The task that a worker died in.

    Args:
        page: The marks, as the worker left them.
        stack: Text of `faulthandler`.

    Returns:
        The number of the task; 0: it was in none, or none that is known; None: it had no event loop.
    """
    words = memoryview(page).cast("Q")
    if len(words) < 2 or not words[0]:
        return None
    marks = {words[place]: words[place + 1] for place in range(0, len(words) - 1, 2) if words[place]}
    crashed = crashed_thread(stack)
    if crashed is not None:
        return marks.get(crashed, 0)
    # Ended without a word: by the code that ran, or from outside.
    running = {number for number in marks.values() if number}
    return words[1] or (running.pop() if len(running) == 1 else 0)
