"""Leaders killed at each place at which they take enqueued rows in: each row becomes one procedure."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from actorproc.postgres import enqueue
from actorproc.store.postgres.place import place_of
from actorproc.store.postgres.store import DatabaseStore
from tests.databases import emptied, give_back
from tests.engine.test_enqueue import Mail, ask, dsn
from tests.kit.waiting import wait_until

psycopg = pytest.importorskip("psycopg", reason="needs the extra postgres")

pytestmark = pytest.mark.processes

ROWS = 70
"""More than a page."""
LEADER = """
import os, signal, sys
from actorproc import Config, ProcedureManager
from actorproc.engine.housekeeping.enqueued_taker import EnqueuedTaker
from actorproc.model.rows.writes import DeleteEnqueued
from actorproc.store.postgres.sessions import Session
from actorproc.store.postgres.store import DatabaseStore
from tests.engine.test_enqueue import Mail

url, place, passage = sys.argv[1], sys.argv[2], int(sys.argv[3])
left = passage

def die(here, is_one=True):
    global left
    if here == place and is_one:
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

def takes(writes):
    return any(type(write) is DeleteEnqueued for write in writes)

def around(kind, name, before, after, when=lambda given: True):
    honest = getattr(kind, name)
    def wrapped(self, *given, **named):
        is_one = when(given, **named)
        die(before, is_one)
        found = honest(self, *given, **named)
        die(after, is_one)
        return found
    setattr(kind, name, wrapped)

waiting = lambda given, refused=False, **_: not refused
around(DatabaseStore, "enqueued", "before the read", "after the read", waiting)
around(DatabaseStore, "commit", "before the commit", "after the commit", lambda given: takes(given[0]))
around(EnqueuedTaker, "stored", "before the removal is seen", "after it is seen",
       lambda given: takes(given[0].writes))
is_committing = []
commit, send = DatabaseStore.commit, Session.send
def committing(self, writes, *rest):
    is_committing[:] = [1] if takes(writes) else []
    try:
        return commit(self, writes, *rest)
    finally:
        is_committing.clear()
def sending(self, questions, until):
    mine = bool(is_committing) and any(b"enqueued" in statement.sql for statement, _ in questions)
    send(self, questions, until)
    die("in the commit", mine)  # all of it is sent, and no answer has come
DatabaseStore.commit, Session.send = committing, sending

with ProcedureManager(url, procedures=[Mail], workers=1, config=Config(spares=0)):
    print("leads", flush=True)
    sys.stdin.read()
"""
PLACES = (
    *("before the read", "after the read", "before the commit", "in the commit", "after the commit"),
    *("before the removal is seen", "after it is seen"),
)
KILLS = (*((place, 1) for place in PLACES), ("in the commit", 2), ("after the commit", 2))
"""Each with the passage at which the leader dies: 2 is the second page."""


@pytest.fixture
def url(monkeypatch, tmp_path) -> Iterator[str]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state-home"))
    url = emptied()
    store = DatabaseStore(url)
    store.own()
    store.close()
    yield url
    give_back(url)


def run(url: str, place: str, passage: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", LEADER, url, place, str(passage)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def test_rows_are_taken_once_whichever_place_the_leader_is_killed_at(url):
    """One leader after another is killed, some at the second page; the last one is not."""
    store = place_of(url).store
    ids: set[str] = set()
    for place, passage in KILLS:
        # with "error" a row that is taken twice is refused
        options = {"store": store, "on_existing": "error", "delay": 3600}
        with psycopg.connect(dsn(url)) as connection:
            for number in range(ROWS):
                id = f"{place} {passage} {number}".replace(" ", "-")
                ids.add(enqueue(connection, Mail("x"), id, **options))
        member = run(url, place, passage)
        assert (place, passage, member.wait(60)) == (place, passage, -signal.SIGKILL)
        member.communicate()
    last = run(url, "nowhere", 1)
    waiting = f"SELECT count(*) FROM \"{store}\".enqueued WHERE k >= '\\x77' AND k < '\\x78'"
    wait_until(lambda: ask(url, waiting) == [(0,)])
    last.communicate()
    assert last.returncode == 0
    assert ask(url, f'SELECT count(*) FROM "{store}".enqueued') == [(0,)]  # none was refused
    found = {bytes(key).decode() for (key,) in ask(url, f'SELECT k FROM "{store}".procedures')}
    assert found == ids
    assert len(ids) == len(KILLS) * ROWS
