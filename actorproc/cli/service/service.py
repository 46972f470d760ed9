"""A manager as a service: runs until a signal, drains, and tells the service manager meanwhile."""

from __future__ import annotations

import logging
import os
import queue
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from actorproc.api.manager import ProcedureManager
from actorproc.cli.service.notify import Notifier
from actorproc.errors import EngineError, ManagerStopped
from actorproc.report.health import Health

__all__ = ["EXIT_FAILED", "EXIT_STOPPED", "serve"]

logger = logging.getLogger("actorproc")

EXIT_STOPPED = 0
"""A signal asked for the end, and it came in order."""
EXIT_FAILED = 1
"""The engine could not start, or failed for good: a restart may help."""
_LOOK_EVERY = 5.0
"""Seconds between looks at the engine's health, unless the watchdog wants more."""


def serve(
    manager: ProcedureManager,
    *,
    notifier: Notifier,
    stop_timeout: float,
    wait: float = 0.0,
    begun: Callable[[], object] | None = None,
) -> int:
    """Run this manager until SIGTERM, SIGINT or SIGHUP, or until it fails; the exit code. For a program's main thread.

    The first signal drains: running steps get `stop_timeout` seconds to end. A second one ends the process at once
    with 128 + its number; the workers die with it, and what they did runs again at the next start. SIGHUP, which a
    terminal sends that is closed, is left alone where it is ignored (``nohup``). `wait`: seconds for another owner of
    the directory to stop; a signal ends this waiting too. `begun` is called once the manager runs.
    """
    manager._is_service = True
    with _first_signal(manager) as asked:
        try:
            if wait:
                notifier.status(f"waiting at most {wait:g} s for the directory's owner to stop")
                manager.start(wait=wait)
            else:
                manager.start()
        except ManagerStopped:
            return EXIT_STOPPED  # a signal came while it started
        except EngineError as error:
            logger.critical("the engine cannot start: %s", error)
            notifier.stopping(f"cannot start: {error}")
            return EXIT_FAILED
        if begun is not None:
            begun()
        failure = _watch(manager, notifier, asked)
        if failure is not None:
            notifier.stopping(failure)
            logger.critical("the engine failed: %s", failure)
            manager.stop(drain=False, timeout=stop_timeout)
            return EXIT_FAILED
        notifier.stopping(f"waiting at most {stop_timeout:g} s for running steps")
        logger.info("stopping; running steps have %g s to end, a second signal ends them now", stop_timeout)
        manager.stop(drain=True, timeout=stop_timeout)
    return EXIT_STOPPED


def _watch(manager: ProcedureManager, notifier: Notifier, asked: queue.SimpleQueue[int | None]) -> str | None:
    """Wait for a signal; or why the engine is beyond help."""
    manager._at_failure(lambda _: asked.put(None))
    tree = manager._tree
    assert tree is not None
    beat = notifier.watchdog_seconds
    # Twice as often as it must be, as systemd recommends.
    pause = min(_LOOK_EVERY, beat / 2) if beat is not None else _LOOK_EVERY
    words = _in_words(manager.health())
    logger.info("process %d serves %s: %s; SIGTERM or Ctrl-C stops it in order", os.getpid(), manager._path, words)
    notifier.ready(words)
    while True:
        health = manager.health()
        if health.status in {"failed", "stopped"} or tree.failure is not None:
            return str(tree.failure) if tree.failure is not None else "the manager was stopped"
        # "broken" without a failure is a manager that does not answer: then the watchdog is for it to bite.
        if health.status != "broken":
            notifier.alive(_in_words(health)) if beat is not None else notifier.status(_in_words(health))
        try:
            if asked.get(timeout=pause) is not None:
                return None
        except queue.Empty:
            continue


def _in_words(health: Health) -> str:
    counts = f"{len(health.slots)} workers, {health.busy} busy"
    return f"{health.status}: {counts}{'; ' if health.problems else ''}{'; '.join(health.problems)}"


@contextmanager
def _first_signal(manager: ProcedureManager) -> Iterator[queue.SimpleQueue[int | None]]:
    """A queue that gets the first signal asking for an end; the second ends the process. The old handlers come back.

    A manager that is being started is told as well, as it may be waiting for another owner.
    """
    # The one queue that may be filled by a handler which interrupts its reader.
    asked: queue.SimpleQueue[int | None] = queue.SimpleQueue()
    seen: list[int] = []

    def handle(number: int, _frame: FrameType | None) -> None:
        if seen:
            os.write(sys.__stderr__.fileno() if sys.__stderr__ is not None else 2, b"second signal: ending at once\n")
            os._exit(128 + number)
        seen.append(number)
        asked.put(number)
        manager._give_up_start()

    asking = [signal.SIGTERM, signal.SIGINT]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        asking.append(signal.SIGHUP)
    before = {number: signal.signal(number, handle) for number in asking}
    try:
        yield asked
    finally:
        for number, old in before.items():
            signal.signal(number, old)
