"""Who owns a store: what the lock file says, and whether it is still true."""

from __future__ import annotations

import fcntl
import itertools
import os
import signal
import subprocess
import sys
from types import SimpleNamespace

import pytest

from actorproc.errors import StoreDamaged, StoreInUse
from actorproc.store.directory import OWNER_FILE
from actorproc.store.lmdb import owner_lock
from actorproc.store.lmdb.owner_lock import Owner, OwnerLock, examine_for_reader, owner_of

OWNS = """
import sys
from pathlib import Path
from actorproc.store.lmdb.owner_lock import OwnerLock
lock = OwnerLock.acquire(Path(sys.argv[1]))
print("owned", flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
def test_an_owner_that_was_killed_and_is_not_reaped_yet_owns_nothing(tmp_path):
    path = tmp_path / "owner.lock"
    owner = subprocess.Popen([sys.executable, "-c", OWNS, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert owner.stdout.readline() == b"owned\n"
        found = owner_of(path)
        assert found is not None
        assert found.pid == owner.pid

        os.kill(owner.pid, signal.SIGKILL)
        # Its end is known, and nobody has asked for it: a zombie.
        os.waitid(os.P_PID, owner.pid, os.WEXITED | os.WNOWAIT)

        assert owner_of(path) is None
        OwnerLock.acquire(path).release()
    finally:
        owner.kill()
        owner.communicate()


# ---------------------------------------------------------------- commands that take turns
class Turns:
    """A lock that others have, by a clock that goes on with each look.

    Args:
        seconds: For which each of them has it.
        until: Second at which it is free.
        unnamed: Seconds at the beginning of each turn in which the owner is not known yet.
    """

    def __init__(self, seconds, until, unnamed=0.0):
        self.now = 0.0
        self.seconds, self.until, self.unnamed = seconds, until, unnamed
        self.time = SimpleNamespace(monotonic=lambda: self.now, sleep=self._sleep)

    def _sleep(self, seconds):
        del seconds
        self.now += 0.5

    @property
    def is_free(self):
        return self.now >= self.until

    @property
    def pid(self):
        """Process whose turn it is; 0 when that is not known."""
        number, since = divmod(self.now, self.seconds)
        return 0 if since < self.unnamed else int(number) + 1


def in_a_directory(turns, tmp_path, monkeypatch):
    """Take the lock of a directory."""
    path = tmp_path / OWNER_FILE
    held = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(held, fcntl.LOCK_EX)

    def look(_):
        if turns.is_free:
            fcntl.flock(held, fcntl.LOCK_UN)
        return Owner(turns.pid, "here", "command") if turns.pid else None

    monkeypatch.setattr(owner_lock, "time", turns.time)
    monkeypatch.setattr(owner_lock, "owner_of", look)
    try:
        OwnerLock.acquire(path).release()
    finally:
        os.close(held)


def in_a_database(turns, tmp_path, monkeypatch):
    """Take the lock of a store in a database."""
    pytest.importorskip("psycopg", reason="extra postgres")
    from actorproc.store.postgres.leading import store_lock
    from actorproc.store.postgres.leading.owner_row import DatabaseOwner, LeaderRow
    from actorproc.store.postgres.place import place_of

    class Lock(store_lock.StoreLock):
        def _candidate(self):
            return SimpleNamespace(close=lambda: None)

        def _try(self, session):
            return turns.is_free

        def _look(self, session):
            owner = DatabaseOwner(turns.pid, "there", "command") if turns.pid else None
            return LeaderRow(turns.pid, owner, 1.0 if owner else None, 0, True, "", b"", b"", 0.0)

        def _become_owner(self, session):
            pass

    monkeypatch.setattr(store_lock, "time", turns.time)
    Lock(place_of("postgresql://db/app"), "title", 10.0).take()


@pytest.mark.parametrize("take", [in_a_directory, in_a_database])
@pytest.mark.parametrize("unnamed", [0.0, 1.0])
def test_commands_that_take_turns_are_waited_for_one_by_one(take, unnamed, tmp_path, monkeypatch):
    turns = Turns(seconds=6.0, until=60.0, unnamed=unnamed)

    take(turns, tmp_path, monkeypatch)

    assert turns.now >= 60.0


@pytest.mark.parametrize("take", [in_a_directory, in_a_database])
def test_a_command_that_stays_is_given_up_also_after_others(take, tmp_path, monkeypatch):
    turns = Turns(seconds=30.0, until=60.0)

    with pytest.raises(StoreInUse):
        take(turns, tmp_path, monkeypatch)

    assert 10.0 <= turns.now <= 11.0


# ---------------------------------------------------------------- readers beside owners that come and go
def test_pages_that_changed_under_an_owner_that_has_gone_again_are_looked_at_once_more(tmp_path, monkeypatch):
    looks = itertools.count(1)

    def examined(directory, last):
        number = next(looks)
        if number <= 2:
            OwnerLock.acquire(directory / OWNER_FILE).release(f"sealed-size {number}\n")
            raise StoreDamaged("pages of two commits", reason="torn")
        assert last == {"sealed-size": "2"}
        return True

    monkeypatch.setattr(owner_lock, "examined", examined)

    assert examine_for_reader(tmp_path)


def test_damage_that_no_owner_was_near_is_told_at_once(tmp_path, monkeypatch):
    OwnerLock.acquire(tmp_path / OWNER_FILE).release()

    def examined(directory, last):
        raise StoreDamaged("pages of two commits", reason="torn")

    monkeypatch.setattr(owner_lock, "examined", examined)

    with pytest.raises(StoreDamaged):
        examine_for_reader(tmp_path)
