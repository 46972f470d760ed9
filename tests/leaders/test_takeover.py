"""One owner after the other: nothing of an older epoch is stored after a newer one, however the older one ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from actorproc.errors import EngineError, StorageUnavailable, StoreInUse
from actorproc.model.rows.writes import PutSwitch
from actorproc.store.postgres.connecting import connect, title_of_owners
from actorproc.store.postgres.leading.owner_row import DoorRow, read_leader
from actorproc.store.postgres.leading.takeover import Silence, end_sessions
from actorproc.store.postgres.place import place_of
from tests.kit.waiting import BOUND, once_within, wait_until
from tests.leaders.conftest import ROLE, ask, through

LEASE = 1.0
LONG = 4 * BOUND
"""Seconds of a lease that no test waits for."""


def paused(text: str) -> PutSwitch:
    """A write that is read back with `paused`."""
    return PutSwitch(text, 0)


OWNER = """
import sys, time
from actorproc.model.rows.writes import PutSwitch
from actorproc.store.postgres.store import DatabaseStore
store = DatabaseStore(sys.argv[1], lease=float(sys.argv[2]), allow_unsynced=True)
epoch = store.own()
batch = 0
print("owned", epoch, flush=True)
for line in sys.stdin:
    batch += 1
    try:
        store.commit([PutSwitch(line.strip(), 0)], epoch, batch)
    except Exception as error:
        print(type(error).__name__, flush=True)
        try:
            store.reopen()
        except Exception as error:
            print("reopen", type(error).__name__, flush=True)
    else:
        print("done", batch, flush=True)
"""


class Owner:
    """An owner in a process of its own."""

    def __init__(self, url: str, lease: float = LEASE) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", OWNER, url, str(lease)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        word, epoch = self.hear().split()
        assert word == "owned"
        self.epoch = int(epoch)

    def say(self, text: str) -> None:
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()

    def hear(self) -> str:
        return self.process.stdout.readline().strip()

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.process.pid, number)

    def end(self) -> None:
        self.process.kill()
        self.process.wait(BOUND)
        self.process.stdin.close()
        self.process.stdout.close()


@pytest.fixture
def open_owner():
    opened = []

    def make(*arguments) -> Owner:
        opened.append(Owner(*arguments))
        return opened[-1]

    yield make
    for owner in opened:
        owner.end()


def campaign(store) -> float:
    """Win the lock; the seconds that took."""
    begun = time.monotonic()
    assert store.leadership.lock.campaign(threading.Event())
    return time.monotonic() - begun


def test_a_living_owner_is_refused_at_once_and_named(open_owner, open_store, url):
    owner = open_owner(url, LONG)
    begun = time.monotonic()
    with pytest.raises(StoreInUse, match=str(owner.process.pid)):
        open_store(url, lease=LONG).own()
    assert time.monotonic() - begun < BOUND


def test_a_candidate_has_the_lock_a_moment_after_the_owner_was_killed(open_owner, open_store, url):
    def follow() -> float:
        owner, store = open_owner(url, LONG), open_store(url, lease=LONG)
        owner.say("first")
        assert owner.hear() == "done 1"
        thread = threading.Thread(target=campaign, args=(store,))
        thread.start()
        wait_until(lambda: len(sessions(url, "candidate")) == 1)
        owner.signal(signal.SIGKILL)
        killed = time.monotonic()
        thread.join(BOUND)
        took = time.monotonic() - killed
        assert store.own() == owner.epoch + 1
        assert store.paused == "first"
        store.close()
        return took

    once_within(1.0, follow)


def test_a_silent_owner_is_taken_over_from_after_its_lease_and_commits_nothing_afterwards(open_owner, open_store, url):
    def follow() -> float:
        nonlocal owner, store
        owner, store = open_owner(url), open_store(url)
        owner.signal(signal.SIGSTOP)
        return campaign(store)

    owner = store = None
    once_within(3 * LEASE, follow)
    epoch = store.own()
    store.commit([paused("newer")], epoch, 1)
    owner.signal(signal.SIGCONT)
    owner.say("older")
    assert owner.hear() in {"StorageUnavailable", "StoreInUse", "Deposed"}
    assert owner.hear() == "reopen Deposed"
    assert store.paused == "newer"
    assert store.leadership.lock.ended >= 2


def test_an_owner_that_starts_while_a_silent_one_has_the_lock_waits_for_the_second_look(open_owner, open_store, url):
    owner = open_owner(url)
    owner.signal(signal.SIGSTOP)
    time.sleep(1.2 * LEASE)
    assert open_store(url).own() == owner.epoch + 1


def test_a_commit_that_was_half_sent_holds_nothing_up(server, open_store, url, proxy):
    old = open_store(through(url, proxy), lease=LEASE)
    epoch = old.own()
    new = open_store(url, lease=LEASE)
    seen = []

    def half(direction: str, data: bytes) -> bytes:
        if direction == "up" and b"half sent" in data:
            seen.append(len(data))
            proxy.hold("up")
            return data[: len(data) // 2]
        return data

    proxy.watch = half
    failed = []

    def commit() -> None:
        try:
            old.commit([paused("half sent" * 1000)], epoch, 1)
        except (StorageUnavailable, StoreInUse) as error:
            failed.append(error)

    thread = threading.Thread(target=commit)
    thread.start()
    wait_until(lambda: seen)
    assert campaign(new) < 4 * LEASE
    new_epoch = new.own()
    new.commit([paused("newer")], new_epoch, 1)
    proxy.watch = None
    proxy.release()
    thread.join(BOUND)
    assert failed
    with pytest.raises((StoreInUse, StorageUnavailable)):
        old.reopen()
    assert new.paused == "newer"


def test_the_lock_session_alone_may_end_and_costs_no_takeover_without_a_faster_candidate(open_store, url, server):
    store = open_store(url, lease=LEASE)
    epoch = store.own()
    store.commit([paused("one")], epoch, 1)
    pid = store.leadership.lock.session.pid
    ask(server.url(), f"SELECT pg_terminate_backend({pid})")
    wait_until(lambda: store.leadership.lock.regained == 1)
    store.commit([paused("two")], epoch, 2)
    assert store.epoch == epoch
    assert store.paused == "two"


def test_a_candidate_that_is_faster_than_the_cut_lock_session_takes_over(open_store, url, server):
    old, new = open_store(url, lease=60.0), open_store(url, lease=60.0)
    epoch = old.own()
    won = threading.Thread(target=campaign, args=(new,))
    won.start()
    wait_until(lambda: sessions(url, "candidate"))
    ask(server.url(), f"SELECT pg_terminate_backend({old.leadership.lock.session.pid})")
    won.join(BOUND)
    assert new.own() == epoch + 1
    for _ in range(2):
        with pytest.raises((StoreInUse, StorageUnavailable)):
            old.commit([paused("older")], epoch, 1)
        with pytest.raises(StoreInUse):
            old.reopen()
    assert new.paused is None


@pytest.mark.parametrize("order", ["row", "fence"])
def test_an_old_session_that_has_a_lock_is_ended_and_the_commit_tried_again(open_store, url, order):
    """As of an owner that thawed after its sessions were ended, and connected anew."""
    store = open_store(url, lease=LEASE)
    epoch = store.own()
    store.commit([paused("one")], epoch, 1)
    place = place_of(url)
    thawed = connect(place, "commit", f"{title_of_owners(place)}0123456789abcdef manager 1 elsewhere")
    from actorproc.store.postgres.sessions import Statement

    table = '"meta" WHERE true' if order == "row" else "leader"
    held = Statement(f"SELECT 1::bigint FROM {place.schema}.{table} FOR UPDATE".encode())
    thawed.ask([(Statement(b"BEGIN"), ()), (held, ())], 5.0)
    store.commit([paused("two")], epoch, 2)
    assert store.paused == "two"
    assert store.leadership.lock.ended == 1
    thawed.close()


def test_sessions_of_a_newer_owner_are_never_ended_by_an_older_one(open_store, url):
    old, new = open_store(url, lease=LEASE), open_store(url, lease=LEASE)
    epoch = old.own()
    end_sessions_of(url, old)
    assert new.own() == epoch + 1
    with pytest.raises(StoreInUse):
        old.leadership.clear_the_way()
    new.commit([paused("newer")], epoch + 1, 1)


def test_another_role_is_refused_in_words(open_store, url, server):
    old = open_store(url.replace(f"//{ROLE}@", "//actorproc@"), lease=LEASE)
    old.own()
    session = connect(place_of(url), "look", "a test")
    with pytest.raises(EngineError, match="same role"):
        end_sessions(session, place_of(url), "nobody")
    session.close()


def test_the_lease_is_not_renewed_while_the_manager_hangs(open_store, url, caplog):
    store = open_store(url, lease=0.5)
    store.own()
    store.leadership.is_alive = lambda: False
    other = open_store(url, lease=0.5)
    assert campaign(other) < 10 * LEASE
    assert other.own() == 2
    assert "hangs; its lease is not renewed" in caplog.text


def test_a_deposed_owner_hears_of_it_without_a_commit(open_store, url):
    old, new = open_store(url, lease=0.5), open_store(url, lease=0.5)
    told = threading.Event()
    epoch = old.own()
    old.leadership.on_deposed = lambda _: told.set()
    ask(url, f"UPDATE {place_of(url).schema}.leader SET epoch = {epoch + 5}")
    assert told.wait(BOUND)
    old.close()
    assert new.own() == epoch + 6


def test_an_epoch_is_above_what_was_heard_of_elsewhere(open_store, url):
    store = open_store(url)
    store.leadership.seen = 41
    assert store.own() == 42


def test_a_failed_over_database_leaves_numbers_out(open_store, url):
    store = open_store(url)
    assert store.own() == 1
    store.close()
    ask(url, f"UPDATE {place_of(url).schema}.leader SET timeline = '00000099'")
    again = open_store(url)
    assert again.own() == 1002
    again.close()
    assert open_store(url).own() == 1003


def test_the_row_names_the_door_from_the_claim_on(open_store, url):
    store = open_store(url)
    store.leadership.door_row = DoorRow("10.0.0.1:4711", b"p" * 32, b"s" * 32)
    epoch = store.own()
    session = connect(place_of(url), "look", "a test")
    row = read_leader(session, place_of(url))
    leader = row.leader()
    assert (leader.epoch, leader.address, leader.pin, leader.secret) == (epoch, "10.0.0.1:4711", b"p" * 32, b"s" * 32)
    assert leader.leads
    assert 0 < leader.lease <= LEASE
    assert str(os.getpid()) in leader.owner
    store.leadership.publish(DoorRow("10.0.0.1:4712", b"q" * 32, b"s" * 32))
    assert read_leader(session, place_of(url)).pin == b"q" * 32
    store.close()
    assert read_leader(session, place_of(url)).leader() is None
    session.close()


def test_a_store_that_was_never_made_has_no_leader(url):
    session = connect(place_of(url), "look", "a test")
    assert read_leader(session, place_of(url)) is None
    session.close()


def test_two_owners_at_once_on_an_empty_database(open_store, server):
    """The schema is made under the lock; nightly 200 times (ACTORPROC_STARTS)."""
    from tests.databases import new_store

    for _ in range(int(os.environ.get("ACTORPROC_STARTS", "20"))):
        url = new_store().replace("//actorproc@", f"//{ROLE}@")
        stores = [open_store(url, lease=LEASE) for _ in range(2)]
        outcomes: list[object] = []
        barrier = threading.Barrier(2)

        def own(store, barrier=barrier, outcomes=outcomes) -> None:
            barrier.wait()
            try:
                outcomes.append(store.own())
            except StoreInUse as error:
                outcomes.append(error)

        threads = [threading.Thread(target=own, args=(store,)) for store in stores]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(BOUND)
        assert outcomes.count(1) == 1
        assert len(outcomes) == 2
        for store in stores:
            store.close()


# ---------------------------------------------------------------- silence, by a clock of the test's
@pytest.fixture
def now(monkeypatch):
    now = [1000.0]
    monkeypatch.setattr("actorproc.store.postgres.leading.takeover.time.monotonic", lambda: now[0])
    return now


def test_one_look_at_an_ended_lease_is_not_enough(now):
    silence = Silence()
    assert not silence.look(1, 500, -10.0, 6.0)
    now[0] += 2.3
    assert not silence.look(1, 500, -12.9, 6.0)
    now[0] += 0.2
    assert silence.look(1, 500, -13.1, 6.0)


def test_a_clock_that_jumps_forward_makes_no_living_owner_silent(now):
    silence = Silence()
    for beat in range(100):  # the leader renews every 2 s, by the same clock
        left = -3600.0 if beat == 50 else 5.0
        assert not silence.look(1, beat, left, 6.0)
        now[0] += 2.0


def test_a_clock_that_went_back_an_hour_delays_a_takeover_by_two_leases_at_most(now):
    silence = Silence()
    assert not silence.look(1, 500, 3600.0, 6.0)
    now[0] += 11.9
    assert not silence.look(1, 500, 3588.0, 6.0)
    now[0] += 0.2
    assert silence.look(1, 500, 3587.9, 6.0)


def jump(url: str, hours: int) -> None:
    """The lease as it is seen when the clock of the database has jumped: its end does not jump along."""
    ask(url, f"UPDATE {place_of(url).schema}.leader SET expires = expires - interval '{hours} hours'")


def left(url: str) -> float:
    """Seconds of the lease that are left by the clock of the database."""
    session = connect(place_of(url), "look", "a test")
    row = read_leader(session, place_of(url))
    session.close()
    return row.left


def test_a_living_owner_keeps_the_store_when_the_clock_of_the_database_jumps_forward(open_owner, open_store, url):
    lease = 6 * LEASE  # between two renewals pass two seconds; without one for 2.4 s, it would be taken for silent
    owner, candidate = open_owner(url, lease), open_store(url, lease=lease)
    stop = threading.Event()
    won = []
    thread = threading.Thread(target=lambda: won.append(candidate.leadership.lock.campaign(stop)))
    thread.start()
    wait_until(lambda: sessions(url, "candidate"))
    for number in range(1, 4):
        jump(url, 1)
        owner.say("alive")
        assert owner.hear() == f"done {number}"
        wait_until(lambda: left(url) > 0)
    stop.set()
    thread.join(BOUND)
    assert won == [False]
    assert candidate.leadership.lock.ended == 0


def test_an_owner_that_was_killed_is_followed_at_once_though_the_clock_of_the_database_went_back(
    open_owner, open_store, url
):
    owner = open_owner(url, LONG)
    jump(url, -1)
    owner.signal(signal.SIGKILL)
    store = open_store(url, lease=LONG)
    assert campaign(store) < BOUND  # the lock decides
    assert store.own() == owner.epoch + 1


def test_an_owner_that_froze_is_followed_though_the_clock_of_the_database_went_back(open_owner, open_store, url):
    owner = open_owner(url)
    owner.signal(signal.SIGSTOP)
    jump(url, -1)
    store = open_store(url, lease=LEASE)
    assert campaign(store) < 6 * LEASE
    assert store.own() == owner.epoch + 1


def test_a_candidate_of_a_short_lease_waits_for_an_owner_of_a_long_one(open_store, url):
    old, new = open_store(url, lease=30.0), open_store(url, lease=0.5)
    old.own()
    stop = threading.Event()
    threading.Timer(2.5, stop.set).start()
    assert not new.leadership.lock.campaign(stop)
    assert new.leadership.lock.ended == 0
    old.commit([paused("alive")], 1, 1)


def test_a_new_owner_begins_a_new_silence(now):
    silence = Silence()
    assert not silence.look(1, 500, -1.0, 6.0)
    now[0] += 100.0
    assert not silence.look(2, 500, -1.0, 6.0)


def sessions(url: str, role: str) -> list[tuple]:
    words = f"split_part(application_name, ' ', 2) = '{role}'"
    mine = f"application_name LIKE '{title_of_owners(place_of(url))}%'"
    return ask(url, f"SELECT pid FROM pg_stat_activity WHERE {words} AND {mine}")


def end_sessions_of(url: str, store) -> None:
    """As a candidate does with a silent owner."""
    store.leadership._ending.set()
    session = connect(place_of(url), "look", "a test")
    assert end_sessions(session, place_of(url), "another") >= 1
    session.close()
