"""A manager as a service: runs until a signal, drains, and tells the service manager meanwhile."""

from __future__ import annotations

import logging
import os
import queue
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from actorproc.api.home.host_side import HostSide
from actorproc.api.manager import ProcedureManager
from actorproc.cli.service.notify import Notifier
from actorproc.errors import EngineError, ManagerStopped
from actorproc.report.health import Health
from actorproc.workers.hosts.agent import HostRejected

__all__ = ["EXIT_FAILED", "EXIT_STOPPED", "serve", "serve_host"]

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
    with _first_signal(manager._give_up_start) as asked:
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


def serve_host(host: HostSide, *, notifier: Notifier, stop_timeout: float) -> int:
    """Run the workers of this machine for the manager that leads, until a signal; the exit code.

    As `serve`, the first signal drains, and a second one ends the process at once. The watchdog is fed while the guard
    of the agent makes its rounds, whether a leader is there or not: to start again would not bring one.
    """
    agent = host.agent
    ended = threading.Event()
    with _first_signal() as asked:
        failures: list[HostRejected] = []
        threading.Thread(target=_run_host, args=(host, failures, ended, asked), name="actorproc-host").start()
        beat = notifier.watchdog_seconds
        pause = min(_LOOK_EVERY, beat / 2) if beat is not None else _LOOK_EVERY
        logger.info("process %d offers %d workers; SIGTERM or Ctrl-C drains it", os.getpid(), agent.offer.workers)
        notifier.ready("looking for a leader")
        while not ended.is_set():
            words = f"host {agent.name}: {agent.busy} busy" if agent.is_joined else "looking for a leader"
            if beat is None:
                notifier.status(words)
            elif agent.is_alive:
                notifier.alive(words)
            try:
                number = asked.get(timeout=pause)
            except queue.Empty:
                continue
            if number is not None:
                notifier.stopping(f"waiting at most {stop_timeout:g} s for running steps")
                logger.info("leaving; running steps have %g s to end, a second signal ends them now", stop_timeout)
                agent.drain(f"its process got {signal.Signals(number).name}")
        if failures:
            logger.critical("no leader takes this host in: %s", failures[0])
            notifier.stopping(str(failures[0]))
            return EXIT_FAILED
    return EXIT_STOPPED


def _run_host(
    host: HostSide, failures: list[HostRejected], ended: threading.Event, asked: queue.SimpleQueue[int | None]
) -> None:
    try:
        host.run()
    except HostRejected as error:
        failures.append(error)
    finally:
        ended.set()
        asked.put(None)


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
def _first_signal(at_once: Callable[[], object] = lambda: None) -> Iterator[queue.SimpleQueue[int | None]]:
    """A queue that gets the first signal asking for an end; the second ends the process. The old handlers come back.

    `at_once` is called by the handler: a manager that is being started may be waiting for another owner.
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
        at_once()

    asking = [signal.SIGTERM, signal.SIGINT]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        asking.append(signal.SIGHUP)
    before = {number: signal.signal(number, handle) for number in asking}
    try:
        yield asked
    finally:
        for number, old in before.items():
            signal.signal(number, old)
