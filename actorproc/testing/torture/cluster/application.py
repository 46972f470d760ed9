"""An application under torture, which enqueues procedures in transactions of its own and knows nothing of managers.

    python -m actorproc.testing.torture.cluster.process FOLDER application URL NUMBER

It goes through the roots of the plan that are its own. A transaction that fails is tried again, unless its row is
there. So the outcome of a commit that the application could not see is left to the database. A transaction in which the
application killed itself is not tried again.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import psycopg

from actorproc.postgres import enqueue
from actorproc.store.postgres.place import place_of
from actorproc.testing.torture.orders.roots import Enqueueing
from actorproc.testing.torture.plan import Plan, Root
from actorproc.testing.torture.procedures import made_of
from actorproc.testing.torture.record import EpisodeJournal

__all__ = ["APPLICATIONS", "connected", "main"]

APPLICATIONS = 2
"""Processes that enqueue at the same time."""
_PAUSE = 0.05
"""Seconds until a transaction that failed is tried again."""


def connected(url: str) -> psycopg.Connection[tuple[object, ...]]:
    """A connection of an application, outside of any transaction."""
    return psycopg.connect(url, autocommit=True)


class _Application:
    """One process over one of its lives."""

    def __init__(self, plan: Plan, folder: Path, url: str) -> None:
        self._folder = folder
        self._place = place_of(url)
        self._journal = EpisodeJournal(folder / "journal")
        self._plan = plan

    def serve(self, number: int) -> None:
        """Do what is not done yet."""
        own = [root for root in self._plan.roots if root.enqueue is not None][number::APPLICATIONS]
        over = self._over()
        began = time.monotonic()
        for root in sorted(own, key=lambda root: root.after):
            if root.id in over:
                continue
            time.sleep(max(0.0, began + root.after - time.monotonic()))
            assert root.enqueue is not None
            self._journal.note("transacting", procedure=root.id, text=root.enqueue.ends)
            while not self._transacted(root, root.enqueue):
                time.sleep(_PAUSE)
            self._journal.note("transacted", procedure=root.id)

    def _over(self) -> set[str]:
        """Roots that a life before has seen to the end, or was killed with."""
        found = set()
        for line in self._journal.lines():
            if line.kind == "transacted" or (line.kind == "transacting" and line.text.startswith("killed")):
                found.add(line.procedure)
        return found

    def _transacted(self, root: Root, terms: Enqueueing) -> bool:
        """Try a transaction; False if the database was not there for it."""
        try:
            with connected(self._place.url) as connection, connection.transaction():
                if terms.ends == "savepoint":
                    with connection.transaction() as inner:
                        self._write(connection, root, terms)
                        raise psycopg.Rollback(inner)
                self._write(connection, root, terms)
                if terms.ends == "rollback":
                    raise psycopg.Rollback
                if terms.ends == "killed-during":
                    threading.Timer(terms.seconds, _die).start()
        except psycopg.OperationalError:
            return False
        if terms.ends.startswith("killed"):
            if terms.ends == "killed-during":
                time.sleep(2 * terms.seconds)
            _die()
        return True

    def _write(self, connection: psycopg.Connection[tuple[object, ...]], root: Root, terms: Enqueueing) -> None:
        """Write a row of the application and enqueue, unless the row is there: then that was done before."""
        own = connection.execute(
            "INSERT INTO torture_witness.applied (id) VALUES (%s) ON CONFLICT DO NOTHING", (root.id,)
        )
        if own.rowcount:
            procedure = made_of(root.spec, str(self._folder))
            enqueue(connection, procedure, root.id, store=self._place.store, notify=terms.notifies)
        if terms.ends != "killed-during":
            time.sleep(terms.seconds)
        if terms.ends == "killed-before":
            _die()


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def main(plan: Plan, folder: Path, url: str, number: int) -> int:
    """Enqueue; the exit code."""
    _Application(plan, folder, url).serve(number)
    return 0
