"""A process under torture: a candidate for the lead, the agent of a host, or an application, as users start them.

It writes down what cannot be seen from outside: kills of its own, hosts that it gives up, changes of the lead.

    python -m actorproc.testing.torture.cluster.process FOLDER candidate URL LISTEN ADVERTISE
    python -m actorproc.testing.torture.cluster.process FOLDER agent URL
    python -m actorproc.testing.torture.cluster.process FOLDER application URL NUMBER
"""

from __future__ import annotations

import logging
import os
import runpy
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from actorproc.api.manager import ProcedureManager
from actorproc.config import Config
from actorproc.engine.workers.absent_hosts import AbsentHosts
from actorproc.errors import ActorprocError
from actorproc.report.changes import LeaderEvent, LifecycleEvent
from actorproc.testing.torture.cluster import application
from actorproc.testing.torture.cluster.plan import HOST_PATIENCE, LEASE
from actorproc.testing.torture.cluster.seeded_bugs import CLUSTER_BUGS
from actorproc.testing.torture.host import Notary, watch_for_lag
from actorproc.testing.torture.plan import Plan
from actorproc.testing.torture.procedures import CLASSES
from actorproc.testing.torture.record import EpisodeJournal
from actorproc.testing.torture.seeded_bugs import SEEDED_BUGS, VARIABLE
from actorproc.workers.hosts.joined_hosts import JoinedHosts
from actorproc.workers.hosts.remote_host import RemoteHost
from actorproc.workers.pool.local_pool import LocalPool

__all__ = ["MODULE", "STOP", "main"]

MODULE = "actorproc.testing.torture.procedures"
"""Module with the procedures."""
STOP = b"s"
"""Byte on the standard input of a candidate that is to stop in order."""
_STOP_WITHIN = 20.0
_AGAIN = 0.2
"""Seconds between two tries to start: the database may be away."""


def main(arguments: list[str]) -> int:
    """Run; the exit code."""
    folder, kind, url = Path(arguments[0]), arguments[1], arguments[2]
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    plan = msgspec.json.decode((folder / "plan.json").read_bytes(), type=Plan)
    if plan.bug in CLUSTER_BUGS:
        CLUSTER_BUGS[plan.bug]()
    elif plan.bug:
        os.environ[VARIABLE] = plan.bug
        SEEDED_BUGS[plan.bug].in_host()
    stop = threading.Event()
    threading.Thread(target=_listen, args=(stop,), daemon=True).start()
    if kind == "application":
        return application.main(plan, folder, url, int(arguments[3]))
    journal = EpisodeJournal(folder / "journal")
    logging.getLogger().addHandler(Notary(journal))
    _announce_kills(journal)
    _announce_losses(journal)
    threading.Thread(target=watch_for_lag, args=(journal,), daemon=True).start()
    if kind == "agent":
        sys.argv[1:] = ["worker", MODULE, "--path", url, "--workers", str(plan.workers)]
        runpy.run_module("actorproc", run_name="__main__")
    return _candidate(plan, url, *arguments[3:], journal=journal, stop=stop)


def _candidate(
    plan: Plan, url: str, listen: str, advertise: str, *, journal: EpisodeJournal, stop: threading.Event
) -> int:
    def note(event: LifecycleEvent) -> None:
        if isinstance(event, LeaderEvent):
            journal.note("leads" if event.kind == "leader-changed" else "follows", epoch=event.epoch)

    manager = ProcedureManager(
        url,
        procedures=CLASSES.values(),  # type: ignore[arg-type]
        workers=plan.workers,
        preload=[MODULE],
        on_event=note,
        config=Config(
            lease=LEASE,
            host_patience=HOST_PATIENCE,
            listen=listen,
            advertise=advertise,
            commit_backoff=0.02,
            commit_backoff_cap=0.2,
            restart_limit=1_000_000,
            spares=1,
            log_bytes=0,
        ),
    )
    while not stop.is_set():
        try:
            manager.start()
            break
        except ActorprocError as error:
            logging.getLogger("actorproc").warning("cannot start yet: %s", error)
            stop.wait(_AGAIN)
    stop.wait()
    manager.stop(timeout=_STOP_WITHIN)
    return 0


def _listen(stop: threading.Event) -> None:
    """End in order when asked to, and at once when the runner has ended: its end closes our standard input."""
    while os.read(0, 1):
        stop.set()
    if not stop.is_set():
        os.kill(os.getpid(), signal.SIGKILL)


def _announce_kills(journal: EpisodeJournal) -> None:
    kill, close = LocalPool.kill, LocalPool.close

    def killing(pool: LocalPool, workers: list[Any]) -> None:
        for worker in workers:
            link = pool._links.get(worker)
            if link is not None and link.process is not None:
                journal.killing(link.process.pid)

    def announced_kill(self: LocalPool, worker: Any, **options: Any) -> None:
        killing(self, [worker])
        kill(self, worker, **options)

    def announced_close(self: LocalPool, timeout: float) -> None:
        killing(self, list(self._links))
        close(self, timeout)

    LocalPool.kill = announced_kill  # type: ignore[method-assign]
    LocalPool.close = announced_close  # type: ignore[method-assign]


def _announce_losses(journal: EpisodeJournal) -> None:
    lose: Callable[..., None] = JoinedHosts._lose
    look: Callable[..., list[Any]] = AbsentHosts.look

    def announced(self: JoinedHosts, host: RemoteHost, why: str, *, is_lost: bool = True) -> None:
        if is_lost and not (host.gone or host.is_arriving):
            journal.note("host-lost", pid=host.hello.pid, text=why)
        lose(self, host, why, is_lost=is_lost)

    def announced_look(self: AbsentHosts, now: float, *, in_trouble: bool) -> list[Any]:
        lost = look(self, now, in_trouble=in_trouble)
        for event in lost:
            journal.note("host-lost", pid=0, text=event.report.message)
        return lost

    JoinedHosts._lose = announced  # type: ignore[method-assign]
    AbsentHosts.look = announced_look  # type: ignore[method-assign]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
