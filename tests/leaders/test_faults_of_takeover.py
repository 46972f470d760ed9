"""A takeover that meets an error of the database at each of its statements is begun again, and loses nothing.

The statements of a takeover are counted first: taking the lock, ending the sessions of the owner before, the epoch,
reading what is unfinished, and handing it out. Then a takeover is made for each of them, in which that one fails.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

pytest.importorskip("cryptography", reason="the certificate of a link is made by cryptography (extra postgres)")

from actorproc import Config, ProcedureManager, StorageUnavailable
from actorproc.store.postgres.failures import DatabaseFailure
from actorproc.store.postgres.sessions import Session
from tests.databases import database_or_skip
from tests.kit.procedures import Add, Nap
from tests.kit.waiting import BOUND, wait_until
from tests.leaders.conftest import ROLE, ask

MANY = "ACTORPROC_LEADER_FAILURES" in os.environ
"""Each statement, as nightly; else some of them, first and last ones included."""
pytestmark = [pytest.mark.processes, pytest.mark.timeout(600 if MANY else 120)]
WORK = 6
SOME = 3


def config() -> Config:
    return Config(lease=2.0, spares=0, allow_any_filesystem=True, commit_backoff=0.05, commit_backoff_cap=0.2)


def leads(manager: ProcedureManager) -> bool:
    return manager._tree.leads


class Fault:
    """Counts what the next leader asks the database, and lets one of its questions fail.

    The next leader is known by its threads: the candidate's, and those that are younger than the fault.
    """

    def __init__(self, monkeypatch) -> None:
        self._send = Session.send
        self._old: set[int] = set()
        self._lock = threading.Lock()
        self._is_set = False
        self.count = 0
        self.at = 0
        self.fail: Callable[[Session], None] = _nothing
        self.failed = 0
        monkeypatch.setattr(Session, "send", self._hooked())

    def _hooked(self):
        def send(session: Session, questions, until: float) -> None:
            if self._is_set and self._is_next_leaders(session):
                with self._lock:
                    self.count += 1
                    is_due = self.count == self.at
                if is_due:
                    try:
                        self.fail(session)
                    finally:
                        self.failed += 1
            self._send(session, questions, until)

        return send

    def _is_next_leaders(self, session: Session) -> bool:
        thread = threading.current_thread()
        return session.kind != "look" and (thread.name == "actorproc-candidate" or thread.ident not in self._old)

    def set(self, at: int, fail: Callable[[Session], None]) -> None:
        """From here on the takeover is watched."""
        self._old = {thread.ident for thread in threading.enumerate() if thread.ident is not None}
        self.count, self.at, self.fail, self.failed = 0, at, fail, 0
        self._is_set = True

    def lift(self) -> None:
        self._is_set = False


def _nothing(_: Session) -> None:
    """Nothing fails."""


def refuse(_: Session) -> None:
    raise DatabaseFailure("planned: an internal error", "XX000")


def cut(session: Session) -> None:
    session._connection.finish()
    raise session._broken("planned: the connection was lost")


class Pair:
    """Two managers on one store, of which one leads."""

    def __init__(self, url: str) -> None:
        self.managers = [
            ProcedureManager(url, procedures=[Add, Nap], workers=1, config=config()).start() for _ in range(2)
        ]
        self._rounds = 0
        self.failures = 0
        """Faults that were met."""

    def change_leaders(self, fault: Fault, at: int, fail: Callable[[Session], None]) -> int:
        """Have the other one take over, with work at hand; the number of its questions."""
        self._rounds += 1
        wait_until(lambda: sum(map(leads, self.managers)) == 1)  # one that is deposed learns of it in a moment
        old = next(filter(leads, self.managers))
        new = self.managers[1 - self.managers.index(old)]
        wait_until(lambda: candidates(new))
        handles = [old.submit(Nap(0.02), id=f"r{self._rounds}-{number}") for number in range(WORK)]
        handles += [old.submit(Add(number, 1), id=f"a{self._rounds}-{number}") for number in range(WORK)]
        fault.set(at, fail)
        old._tree.step_down()
        wait_until(lambda: not leads(old) or fault.failed)
        results = [handle.result(BOUND) for handle in handles]
        wait_until(lambda: any(map(leads, self.managers)))
        fault.lift()
        assert results == ["rested"] * WORK + [number + 1 for number in range(WORK)]
        # The last ones are commits of the work, of which there are fewer when more goes into one.
        assert at == 0 or fault.failed == 1 or fault.count < at
        self.failures += fault.failed
        return fault.count

    def close(self) -> None:
        for manager in reversed(self.managers):
            manager.stop(drain=False, timeout=5.0)


def candidates(manager: ProcedureManager) -> tuple[str, ...]:
    """Candidates of the store; none while the database is away."""
    with contextlib.suppress(StorageUnavailable):
        return manager._home.candidates()
    return ()


def chosen(count: int) -> list[int]:
    """The statements that fail, one in each round."""
    if MANY:
        return list(range(1, count + 1))
    return sorted({1, 2, count // 2, count - 1, *(round(count * part / SOME) for part in range(1, SOME))})


EARLY = (3, 4, 5, 6)
KINDS = {"refused": [refuse], "cut": [cut]} if MANY else {"either": [refuse, cut]}


@pytest.mark.parametrize("kinds", KINDS.values(), ids=KINDS)
def test_an_error_at_any_statement_of_a_takeover_begins_it_again(url, monkeypatch, kinds):
    fault = Fault(monkeypatch)
    pair = Pair(url)
    try:
        count = pair.change_leaders(fault, 0, _nothing)
        assert count > 10
        for at, fail in zip(chosen(count - WORK), itertools.cycle(kinds)):
            pair.change_leaders(fault, at, fail)
        for at in EARLY:
            if pair.failures < 4:
                pair.change_leaders(fault, at, refuse)
        assert pair.failures >= 4
    finally:
        fault.lift()
        pair.close()


def test_a_database_that_restarts_at_any_statement_of_a_takeover_loses_nothing(monkeypatch):
    database_or_skip()
    from actorproc.testing.database_server import DatabaseServer

    # The server ends with the thread that started it, which must not be one of a manager.
    with DatabaseServer() as server, ThreadPoolExecutor(1) as other:
        ask(server.url(), f"CREATE ROLE {ROLE} LOGIN", f"GRANT CREATE ON DATABASE postgres TO {ROLE}")
        fault = Fault(monkeypatch)
        pair = Pair(server.url("restarts").replace("//actorproc@", f"//{ROLE}@"))
        try:
            count = pair.change_leaders(fault, 0, _nothing)
            # The last ones are not met by a takeover of fewer statements; the first ones are.
            wanted = chosen(count - WORK)[:: 1 if MANY else 2]
            for number, at in enumerate((*wanted, *EARLY)):
                if number < len(wanted) or pair.failures < 2:
                    pair.change_leaders(fault, at, lambda _: other.submit(server.restart, signal.SIGQUIT).result())
            assert pair.failures >= 2
        finally:
            fault.lift()
            pair.close()


def test_an_engine_whose_takeover_fails_after_it_has_begun_is_stopped(url):
    """Its workers and its hosts would be of a leader that there is not."""
    trees = []
    with ProcedureManager(url, workers=1, config=config()) as leader:
        follower = ProcedureManager(url, workers=1, config=config()).start()
        try:
            shared = follower._tree
            begin, definitions = shared._lead_with, shared._definitions

            def lead(*arguments):
                trees.append(begin(*arguments))
                return trees[-1]

            def away_at_first():
                if len(trees) == 1:
                    raise StorageUnavailable("planned: the database is away")
                return definitions()

            shared._lead_with, shared._definitions = lead, away_at_first
            leader.stop()
            wait_until(lambda: shared.leads)
            assert [tree.closed for tree in trees] == [True, False]
            assert len(follower.workers()) == 1
        finally:
            follower.stop()
