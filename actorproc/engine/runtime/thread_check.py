"""Check that the system lets this program start the threads that an engine needs.

A thread that cannot be started in the middle of a start leaves half an engine behind, and an actor that never ran on
the lists of Pykka. So it is found out before anything is begun.
"""

from __future__ import annotations

import threading

from actorproc.errors import EngineError

__all__ = ["check_room_for_threads"]


def check_room_for_threads(count: int) -> None:
    """Start `count` threads, and end them. Raises `EngineError` when the system refuses one."""
    enough = threading.Event()
    started: list[threading.Thread] = []
    try:
        for _ in range(count):
            thread = threading.Thread(target=enough.wait, name="actorproc-probe", daemon=True)
            thread.start()
            started.append(thread)
    except RuntimeError as error:
        if not threading.main_thread().is_alive():
            msg = (
                f"the main thread of this program has ended, and this version of Python starts no more threads then "
                f"({error}); start the engine before, and let the main thread wait for its end"
            )
            raise EngineError(msg) from error
        msg = (
            f"the system lets this program start {len(started)} threads more, and an engine needs {count} ({error}); "
            "raise the limit of processes and threads (ulimit -u, TasksMax= of the unit, pids of the container)"
        )
        raise EngineError(msg) from error
    finally:
        enough.set()
        for thread in started:
            thread.join()
