"""Managers on one store: one leads, the others follow with the same methods, and a change of leaders is a pause."""

from __future__ import annotations

import threading
import time

import pytest

pytest.importorskip("cryptography", reason="the certificate of a link is made by cryptography (extra postgres)")

from actorproc import (
    Config,
    EngineError,
    LeaderEvent,
    Procedure,
    ProcedureClient,
    ProcedureExecutor,
    ProcedureManager,
    Status,
    StoreReader,
    UnknownType,
    connect,
)
from tests.kit.procedures import Add, Nap, Part
from tests.kit.waiting import BOUND, wait_until

pytestmark = pytest.mark.processes
LEASE = 1.0


class Shop(Procedure):
    """Answers asks for prices until it is told to close."""

    def __init__(self):
        self.asked = 0

    def execute(self, ctx):
        if ctx.event == "close":
            return Status.done(self.asked)
        if ctx.ask_id is not None:
            self.asked += 1
            ctx.reply(f"the price of {ctx.event}")
        return Status.wait("price")


def config(**options) -> Config:
    return Config(lease=LEASE, spares=0, allow_any_filesystem=True, **options)


@pytest.fixture
def open_manager(url):
    opened = []

    def make(**options) -> ProcedureManager:
        settings = {"procedures": [Add, Nap], "workers": 1, "config": config()} | options
        opened.append(ProcedureManager(url, **settings))
        return opened[-1]

    yield make
    for manager in reversed(opened):
        manager.stop(drain=False, timeout=5.0)


@pytest.fixture
def pair(open_manager):
    """A leader and a follower."""
    return open_manager().start(), open_manager().start()


def leads(manager: ProcedureManager) -> bool:
    return manager._tree.leads


def test_the_first_leads_and_the_second_follows(pair):
    leader, follower = pair
    assert leads(leader)
    assert not leads(follower)
    assert follower.run(Add(2, 3)) == 5
    handle = follower.submit(Add(1, 1), id="mine")
    assert handle.result(BOUND) == 2
    assert leader.get("mine").result(BOUND) == 2
    wait_until(lambda: len(leader.workers()) == 2)  # one of each machine
    assert [worker.pid for worker in follower.workers()] == [worker.pid for worker in leader.workers()]
    assert {info.id for info in follower.list()} == {info.id for info in leader.list()}


def test_what_a_follower_waits_for_goes_on_when_the_leader_stops(pair):
    leader, follower = pair
    handle = follower.submit(Nap(1.0), id="nap")
    changes = []
    called = threading.Event()
    handle.add_done_callback(lambda _: called.set())
    future = handle.future()
    watching = threading.Thread(target=lambda: changes.extend(follower.watch("nap")))
    watching.start()
    wait_until(lambda: follower.info("nap").phase == "running")
    leader.stop(drain=False, timeout=0.0)
    assert handle.result(BOUND) == "rested"
    assert future.result(BOUND) == "rested"
    assert called.wait(BOUND)
    watching.join(BOUND)
    assert changes[-1].state == "SUCCESS"
    assert leads(follower)


def test_what_the_leader_waits_for_goes_on_when_it_is_deposed(pair):
    leader, follower = pair
    handle = leader.submit(Nap(1.0), id="nap")
    waiting = []
    thread = threading.Thread(target=lambda: waiting.append(handle.result(BOUND)))
    thread.start()
    wait_until(lambda: leader.info("nap").phase == "running")
    leader._tree.step_down()
    thread.join(BOUND)
    assert waiting == ["rested"]
    wait_until(lambda: leads(leader) != leads(follower))
    assert leader.run(Add(4, 5)) == 9


def test_debounced_submits_of_leader_and_follower_are_one_run_over_a_change_of_leaders(pair):
    leader, follower = pair
    handles = [manager.submit(Add(1, 1), debounce="key", within=600.0) for manager in pair]
    leader._tree.step_down()
    wait_until(lambda: leads(follower))
    handles += [manager.submit(Add(2, 2), debounce="key", within=600.0) for manager in pair]
    assert follower.get(handles[0].id).info().debounce == "key"
    handles.append(leader.submit(Add(3, 4), debounce="key", within=0.2))
    assert [handle.result(BOUND) for handle in handles] == [7] * 5
    assert len({handle.id for handle in handles}) == 1
    assert leader.run(Add(5, 5), debounce="key", within=0.1, timeout=BOUND) == 10


def test_asks_to_leader_and_follower_are_answered_over_a_change_of_leaders(pair):
    leader, follower = pair
    for manager in pair:
        manager.register(Shop)
    shop = leader.submit(Shop(), id="shop")
    leader.pause("shop")
    replies = {}
    threads = [
        threading.Thread(
            target=lambda manager=manager, id=id: replies.update(
                {id: manager.get("shop").ask("price", id, BOUND, id=id, wait_parked=True)}
            )
        )
        for manager, id in ((leader, "leader"), (follower, "follower"))
    ]
    for thread in threads:
        thread.start()
    wait_until(lambda: len(leader.signals("shop")) == 2)
    leader._tree.step_down()
    wait_until(lambda: leads(follower))
    leader.resume("shop")
    for thread in threads:
        thread.join(BOUND)
    assert replies == {"leader": "the price of leader", "follower": "the price of follower"}
    assert [manager.get("shop").ask("price", "other", BOUND, id="leader") for manager in pair] == [
        replies["leader"]
    ] * 2
    leader.signal("shop", "close")
    assert shop.result(BOUND) == 2


def test_submits_go_on_through_a_change_of_leaders(pair):
    leader, follower = pair
    done, failed = [], []

    def submit(manager, name) -> None:
        for number in range(60):
            try:
                done.append(manager.submit(Add(number, 1), id=f"{name}-{number}").result(BOUND))
            except Exception as error:  # noqa: BLE001
                failed.append(error)

    threads = [
        threading.Thread(target=submit, args=(manager, name)) for manager, name in ((leader, "l"), (follower, "f"))
    ]
    for thread in threads:
        thread.start()
    for _ in range(3):
        time.sleep(0.3)
        first = wait_until(lambda: next(filter(leads, pair), None))
        first._tree.step_down()
    for thread in threads:
        thread.join(BOUND)
    assert failed == []
    assert len(done) == 120


def test_a_type_that_the_leader_does_not_know_is_refused_with_its_machine_named(open_manager):
    import socket

    open_manager(procedures=[Add]).start()
    follower = open_manager(procedures=[Part]).start()
    with pytest.raises(UnknownType, match=socket.gethostname()):
        follower.submit(Part(1))
    assert follower.run(Add(1, 2)) == 3


def test_a_client_finds_the_leader_and_the_next_one(pair, url):
    leader, follower = pair
    with ProcedureClient(url, patience=BOUND, config=config()) as client:
        assert client.run(Add(1, 2)) == 3
        leader.stop(drain=False, timeout=0.0)
        assert client.run(Add(1, 3)) == 4
        wait_until(lambda: leads(follower))  # its door opens a moment before


def test_an_executor_works_in_the_leader_and_in_a_follower(pair, url):
    for manager in pair:
        with ProcedureExecutor(manager) as executor:
            assert list(executor.map(abs, [-1, -2, -3])) == [1, 2, 3]
    with ProcedureExecutor(url, max_workers=1, config=config()) as executor:
        assert executor.submit(pow, 2, 5).result(BOUND) == 32


def test_resize_and_pause_of_a_follower_hold_when_it_leads(pair):
    leader, follower = pair
    wait_until(lambda: len(leader.workers()) == 2)  # one of each machine
    follower.resize(2)
    wait_until(lambda: len(leader.workers()) == 3)
    assert follower.pause(reason="later")
    assert leader.run(Add(1, 2)) == 3
    leader.stop(drain=False, timeout=0.0)
    wait_until(lambda: leads(follower) and follower.health().paused == "later")
    assert follower.resume()
    wait_until(lambda: len(follower.workers()) == 2)
    assert follower.run(Add(1, 2)) == 3


def test_a_follower_that_resumes_before_it_leads_is_not_paused(pair):
    leader, follower = pair
    assert not follower.resume()
    assert follower.pause()
    assert follower.resume()
    leader.stop(drain=False, timeout=0.0)
    assert follower.run(Add(1, 2)) == 3


def test_a_backup_is_made_on_the_machine_of_the_caller(pair, tmp_path):
    _, follower = pair
    follower.run(Add(1, 2), id="kept")
    follower.backup(tmp_path / "copy")
    with StoreReader(tmp_path / "copy") as reader:
        assert reader.info("kept").state == "SUCCESS"


def test_health_says_who_leads(pair):
    leader, follower = pair
    assert leader.health().role == "leading"
    assert follower.health().role == "following"
    assert leader.health().status == follower.health().status == "running"
    metrics = leader.metrics(), follower.metrics()
    assert [(one.leads, one.epoch, one.takeovers, one.deposed) for one in metrics] == [
        (True, 1, 1, 0),
        (False, 1, 0, 0),
    ]
    assert "actorproc_leader 1" in metrics[0].prometheus()


def test_events_tell_of_changes(open_manager):
    told = []
    first = open_manager(on_event=told.append).start()
    second = open_manager().start()
    first._tree.step_down()
    wait_until(lambda: leads(second))
    kinds = wait_until(
        lambda: (kinds := [event.kind for event in told if isinstance(event, LeaderEvent)])[1:] and kinds
    )
    assert kinds[:2] == ["leader-changed", "deposed"]


def test_a_leader_that_cannot_be_reached_fails_the_start_of_a_follower(open_manager, url):
    open_manager(config=config(advertise="127.0.0.1:1")).start()
    with pytest.raises(EngineError, match=r"neither lead nor follow.*127\.0\.0\.1:1"):
        open_manager(config=config(boot_timeout=5.0)).start()


def test_a_loopback_address_of_another_machine_fails_the_start_in_words(open_manager, monkeypatch):
    monkeypatch.setattr("actorproc.workers.link.addresses.machine_id", lambda: "0" * 32)
    open_manager().start()
    monkeypatch.undo()
    with pytest.raises(EngineError, match=r"Config\(listen=.*Config\(advertise="):
        open_manager().start()


def test_two_managers_that_start_at_once_on_an_empty_database_both_start(open_manager):
    managers = [open_manager(), open_manager()]
    threads = [threading.Thread(target=manager.start) for manager in managers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(BOUND)
    assert sorted(map(leads, managers)) == [False, True]
    assert [manager.run(Add(1, 2)) for manager in managers] == [3, 3]


def test_a_leader_whose_manager_broke_by_a_bug_gives_its_lead_up(pair):
    leader, follower = pair
    actor = leader._tree._local._manager._actor_weakref()
    actor._break(RuntimeError("a planted bug"))
    wait_until(lambda: leads(follower))
    assert follower.run(Add(1, 2)) == 3
    assert leader.health().status != "running"


def test_stopping_a_follower_leaves_the_leader_alone(pair):
    leader, follower = pair
    follower.stop()
    assert follower.health().status == "stopped"
    assert leader.run(Add(1, 2)) == 3
    follower.start()
    assert follower.run(Add(2, 2)) == 4


def test_a_new_leader_is_above_every_epoch_that_a_client_has_seen(pair, url):
    leader, follower = pair
    epoch = leader._tree._local.epoch
    with ProcedureClient(url, patience=BOUND, config=config()) as client:
        client.run(Add(1, 2))
        client._engine._channel._way.highest = epoch + 100
        client._engine._channel._stream.hang_up()
        assert client.run(Add(1, 3)) == 4
    wait_until(lambda: any(leads(manager) and manager._tree._local.epoch > epoch for manager in pair))
    del follower


def test_a_manager_whose_thread_hangs_gives_its_lead_up(pair, monkeypatch):
    leader, follower = pair
    tree = leader._tree._local
    stuck = threading.Event()

    def hang(event) -> None:
        stuck.wait(BOUND)

    actor = tree._manager._actor_weakref()
    actor._routes[type("Stuck", (), {})] = hang
    kind = next(kind for kind in actor._routes if kind.__name__ == "Stuck")
    tree._to_manager(kind())
    wait_until(lambda: leads(follower))
    assert follower.run(Add(1, 2)) == 3
    stuck.set()
    wait_until(lambda: not leads(leader))
    assert leader.run(Add(1, 3)) == 4


def test_the_leader_is_shown_and_steps_down_by_command(pair, url, capsys):
    import json
    import os

    from actorproc.cli.main import main

    leader, follower = pair
    wait_until(follower._home.candidates)
    assert main(["leader", "--path", url, "-o", "json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["leads"], shown["epoch"]) == (True, 1)
    assert str(os.getpid()) in shown["owner"]
    assert len(shown["candidates"]) == 1
    assert "secret" not in json.dumps(shown)
    assert main(["leader", "--path", url, "--step-down"]) == 0
    wait_until(lambda: leads(follower))
    assert main(["leader", "--path", url]) == 0
    assert "leads since" in capsys.readouterr().out
    follower.stop(drain=False, timeout=0.0)
    leader.stop(drain=False, timeout=0.0)
    assert main(["leader", "--path", url]) == 1


def test_a_directory_has_no_leader_to_show(tmp_path, capsys):
    from actorproc.cli.main import main

    assert main(["leader", "--path", str(tmp_path)]) != 0
    assert "one manager at a time" in capsys.readouterr().err


def test_two_hosts_of_the_example_lose_nothing():
    import subprocess
    import sys
    from pathlib import Path

    from tests.databases import database_or_skip

    database_or_skip()
    program = Path(__file__).parents[2] / "examples" / "07_two_hosts" / "two_hosts.py"
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=150, check=False)
    assert "60 of 60 parcels delivered" in done.stdout, done.stderr


def test_the_lease_is_renewed_while_a_great_many_are_submitted_at_once(pair):
    """300,000 of them nightly (ACTORPROC_MANY): the commit alone takes many leases then."""
    import os

    leader, follower = pair
    many = int(os.environ.get("ACTORPROC_MANY", "30000"))
    leader.pause(reason="only the commit is wanted")
    handles = leader.submit_many([Add(number, 1) for number in range(many)])
    assert len(handles) == many
    assert leads(leader)
    assert not leads(follower)
    assert leader._tree.deposed == 0


def test_a_leader_that_is_cut_off_from_the_database_alone_lets_its_clients_go(open_manager, url, proxy):
    from tests.leaders.conftest import through

    cut = ProcedureManager(through(url, proxy), procedures=[Add, Nap], workers=1, config=config())
    cut.start()
    try:
        follower = open_manager().start()
        with ProcedureClient(url, patience=BOUND, config=config()) as client:
            assert client.run(Add(1, 2)) == 3
            waiting = []
            thread = threading.Thread(target=lambda: waiting.append(cut.run(Add(3, 4))))
            proxy.hold()  # as if a cable was pulled: nothing is refused, and nothing answers
            thread.start()
            wait_until(lambda: leads(follower))
            assert client.run(Add(1, 3)) == 4
            proxy.release()
            thread.join(BOUND)
            assert waiting == [7]
            wait_until(lambda: not leads(cut))
    finally:
        cut.stop(drain=False, timeout=5.0)


def test_a_reload_of_a_follower_is_the_leaders(pair):
    leader, follower = pair
    wait_until(lambda: len(leader.workers()) == 2)  # one of each machine
    before = {worker.pid for worker in leader.workers()}
    assert follower.reload(BOUND) == 2
    assert before.isdisjoint(worker.pid for worker in leader.workers())


def test_a_manager_is_above_what_its_machine_has_seen_after_the_database_lost_it(
    open_manager, url, monkeypatch, tmp_path
):
    from actorproc.store.postgres.place import place_of
    from tests.leaders.conftest import ask

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    for _ in range(3):
        manager = open_manager().start()
        epoch = manager._tree._local.epoch
        manager.stop()
    assert epoch == 3
    schema = place_of(url).schema
    ask(url, f"UPDATE {schema}.leader SET epoch = 1")  # as a standby that was behind
    manager = open_manager().start()
    assert manager._tree._local.epoch == 4
    manager.stop()
    ask(url, f"DROP SCHEMA {schema} CASCADE")  # another store is not meant
    assert open_manager().start()._tree._local.epoch == 1


def test_a_leader_may_be_asked_to_step_down_as_soon_as_its_door_is_open(open_manager, monkeypatch):
    """By a client that was faster than the rest of its start."""
    from actorproc.api.home.shared_engine import SharedEngine

    first, second = open_manager().start(), open_manager().start()
    opened, may_go_on = threading.Event(), threading.Event()
    begin = SharedEngine._begin

    def slow(self, store, credentials) -> None:
        lead = self._lead_with

        def lead_slowly(*arguments):
            tree = lead(*arguments)
            opened.set()
            may_go_on.wait(BOUND)
            return tree

        self._lead_with = lead_slowly
        try:
            begin(self, store, credentials)
        finally:
            self._lead_with = lead

    monkeypatch.setattr(SharedEngine, "_begin", slow)
    first._tree.step_down()
    assert opened.wait(BOUND)
    monkeypatch.undo()
    first._tree.step_down()  # through the door of the second, which does not know yet that it leads
    may_go_on.set()
    wait_until(lambda: leads(first))
    assert second.run(Add(1, 2)) == 3


@pytest.mark.parametrize("kind", ["directory", "database"])
def test_a_connection_that_closes_answers_its_callers_through_the_next_one(tmp_path, request, kind):
    place = tmp_path / "state" if kind == "directory" else request.getfixturevalue("url")
    leader, other = (connect(place, procedures=[Waits], workers=1, config=config()) for _ in range(2))
    future = leader.submit(Waits(), id="asked").future()
    with other:
        assert (leader.health().role, other.health().role) == ("leading", "following")
        leader.close()
        wait_until(lambda: other.health().role == "leading")
        assert other.signal("asked", "here")
        assert future.result(BOUND) == "here"


class Waits(Procedure):
    def execute(self, ctx):
        return Status.done(ctx.event) if ctx.step > 1 else Status.wait("go")
