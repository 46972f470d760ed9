"""Steps that were lost with three hosts in a row: they run alone on a host, and fail with the next one."""

from __future__ import annotations

import msgspec
import pytest

from actorproc.core.coordinator import Coordinator
from actorproc.core.results.adoption import absent_workers
from actorproc.core.state.head import LOSSES_OF_HOSTS
from actorproc.model.ids import WorkerId
from actorproc.model.messages.commands import StartWorker, TakeBack
from actorproc.model.messages.events import (
    AbortRequested,
    CrashReport,
    HostAdded,
    HostClaimed,
    HostDraining,
    HostRemoved,
    RetryRequested,
    StepReturned,
    WorkerLost,
    WorkerReady,
)
from actorproc.model.messages.outcomes import Advanced, Finished, Refused
from actorproc.model.policies import Scheduling, StepLimits, TypeMeta
from actorproc.model.states import Phase, ProcedureState

from .harness import CoreHarness, boom, difference, heads_of, image_of, later

LOST = CrashReport(kind="host-lost", message="the host was silent for 10 s")


class Cluster(CoreHarness):
    """Hosts h1, h2 … with workers of their own, which come again after a loss."""

    def __init__(self, hosts: int, workers: int = 1, *, own: int = 0, **traits: object) -> None:
        super().__init__(0, rollback_supported=True, **traits)
        self.incarnation = 0
        self.handle(HostAdded(""))
        for slot in range(own):
            self.handle(WorkerReady(WorkerId(slot, 1)))
        self.sizes = {f"h{number}": workers for number in range(1, hosts + 1)}
        for name in self.sizes:
            self.come(name)

    def come(self, name: str) -> None:
        self.incarnation += 1
        self.handle(HostAdded(name))
        for number in range(self.sizes[name]):
            self.handle(WorkerReady(WorkerId(int(name[1:]) * 1000 + number, self.incarnation), host=name))

    def lose(self, name: str, *, comes_back: bool = True) -> None:
        """The host is lost with all that its workers have in hand."""
        there = [worker.id for worker in self.core._state.workers.table.by_host.get(name, {}).values()]
        for id, run in list(self.inbox.items()):
            if run.token.worker in there:
                del self.inbox[id]
        self.handle(HostRemoved(name))
        for worker in there:
            self.handle(WorkerLost(worker, LOST))
        if comes_back:
            self.come(name)

    def host_of(self, id: str) -> str | None:
        worker = self.core._state.workers.table.in_hand.get(id)
        return None if worker is None else worker.host

    def lose_host_of(self, id: str, *, times: int = 1) -> None:
        for _ in range(times):
            host = self.host_of(id)
            assert host, f"{id} runs on no host"
            self.lose(host)

    def begin(self, *names: str, **fields: object) -> None:
        for name in names:
            self.submit(self.new(name, **fields))

    def why(self, id: str) -> tuple[Phase, str | None]:
        record = self.core.view(id)
        assert record is not None
        return self.core.phase(record)


def test_the_fourth_attempt_waits_until_a_host_has_nothing_else_and_nothing_else_goes_there():
    cluster = Cluster(3, workers=2)
    cluster.begin("bad")
    cluster.lose_host_of("bad", times=2)
    cluster.begin(*(f"p{n}" for n in range(5)))
    cluster.lose_host_of("bad")

    assert heads_of(cluster)["bad"].host_losses == LOSSES_OF_HOSTS
    assert cluster.host_of("bad") is None, "all hosts have something else to do"
    phase, why = cluster.why("bad")
    assert phase is Phase.QUEUED
    kept = cluster.core._state.workers.table.hosts.kept["bad"]
    assert why is not None
    assert "for a host to itself: its host was lost three times, so it runs alone" in why
    assert f"on host {kept}" in why

    beside = [name for name in list(cluster.inbox) if cluster.host_of(name) == kept]
    assert beside
    cluster.begin("later")
    assert cluster.host_of("later") != kept
    for name in beside:
        assert cluster.host_of("bad") is None
        cluster.answer(name, Finished(state=b""))

    assert cluster.host_of("bad") == kept
    assert cluster.why("bad") == (Phase.RUNNING, "runs alone: its host was lost three times")
    cluster.begin(*(f"q{n}" for n in range(9)))
    assert [name for name in cluster.inbox if cluster.host_of(name) == kept] == ["bad"]
    assert difference(cluster) is None

    cluster.answer("bad", Finished(state=b""))
    assert cluster.state("bad") is ProcedureState.SUCCESS
    assert not cluster.core._state.workers.table.hosts.kept
    assert {cluster.host_of(name) for name in cluster.inbox} >= {kept}, "the host is for all again"


def test_lost_with_the_fourth_host_it_fails_in_words_and_is_undone_and_others_are_charged_nothing():
    cluster = Cluster(4, workers=2)
    cluster.begin("bad", unit="u")
    for _ in range(LOSSES_OF_HOSTS + 1):
        cluster.begin(f"beside{cluster.incarnation}")
        cluster.lose_host_of("bad")

    assert cluster.undo_all() == ["bad:u"]
    error = heads_of(cluster)["bad"].error
    assert error is not None
    assert "its host was lost for the 4th time in a row in step 1" in error.message
    assert "it ran alone there" in error.message
    assert cluster.state("bad") is ProcedureState.ROLLEDBACK
    for name, head in heads_of(cluster).items():
        assert (head.errors, head.crashes) == (0, 0), name
    for name in list(cluster.inbox):
        cluster.answer(name, Finished(state=b""))
    states = {name: cluster.state(name) for name in heads_of(cluster) if name != "bad"}
    assert set(states.values()) == {ProcedureState.SUCCESS}
    assert difference(cluster) is None


def test_a_success_ends_the_row():
    cluster = Cluster(2)
    cluster.begin("p")
    cluster.lose_host_of("p", times=LOSSES_OF_HOSTS)
    cluster.answer("p", Advanced(state=b"1"))
    assert heads_of(cluster)["p"].host_losses == 0
    assert not cluster.core._state.workers.table.hosts.kept
    cluster.lose_host_of("p", times=LOSSES_OF_HOSTS)
    assert cluster.why("p")[0] is Phase.RUNNING


def test_an_error_does_not_end_the_row():
    cluster = Cluster(2)
    cluster.begin("p")
    cluster.lose_host_of("p", times=LOSSES_OF_HOSTS)
    cluster.answer("p", later(after=0.0))
    assert heads_of(cluster)["p"].host_losses == LOSSES_OF_HOSTS


@pytest.mark.parametrize("loss", ["drains", "leaves"])
def test_a_host_that_goes_before_it_is_free_is_not_waited_for(loss):
    cluster = Cluster(2, workers=2)
    cluster.begin("bad")
    cluster.lose_host_of("bad", times=LOSSES_OF_HOSTS - 1)
    cluster.begin("a", "b", "c")
    cluster.lose_host_of("bad")
    kept = cluster.core._state.workers.table.hosts.kept["bad"]
    assert cluster.host_of("bad") is None

    if loss == "drains":
        cluster.handle(HostDraining(kept))
    else:
        cluster.lose(kept, comes_back=False)

    for name in [name for name in cluster.inbox if cluster.host_of(name) != kept]:
        cluster.answer(name, Finished(state=b""))
    assert cluster.host_of("bad") not in {None, kept}
    assert difference(cluster) is None


def test_what_waits_behind_a_running_step_is_asked_back_from_the_host_that_is_kept():
    cluster = Cluster(2)
    cluster.begin("bad")
    cluster.lose_host_of("bad", times=LOSSES_OF_HOSTS - 1)
    cluster.core._state.workers.table._expected["T"] = 0.0001  # short steps: a worker gets several
    cluster.begin("a", "b", "c", "d", "e")
    cluster.lose(str(cluster.host_of("bad")), comes_back=False)
    kept = cluster.core._state.workers.table.hosts.kept["bad"]
    there = [name for name in cluster.inbox if cluster.host_of(name) == kept]

    taken = [command for command in cluster.commands if isinstance(command, TakeBack)][-1]

    assert [token.procedure for token in taken.tokens] == there[1:] != []
    for token in taken.tokens:
        cluster.inbox.pop(token.procedure)
        cluster.handle(StepReturned(token))
    cluster.answer(there[0], Finished(state=b""))
    assert list(cluster.inbox) == ["bad"]
    assert cluster.host_of("bad") == kept
    assert difference(cluster) is None


def test_the_machine_of_the_manager_is_never_taken():
    cluster = Cluster(1, own=1)
    cluster.begin("own", "bad")
    assert (cluster.host_of("own"), cluster.host_of("bad")) == ("", "h1")
    cluster.lose_host_of("bad", times=LOSSES_OF_HOSTS - 1)
    cluster.lose("h1", comes_back=False)
    cluster.answer("own", Finished(state=b""))
    assert cluster.host_of("bad") is None
    assert "none has joined that is free for that, and the manager's machine is not taken" in str(cluster.why("bad")[1])
    cluster.begin("other")
    assert cluster.host_of("other") == "", "others run there"
    cluster.come("h1")
    assert cluster.host_of("bad") == "h1"


def test_an_abort_while_it_waits_gives_the_host_back():
    cluster = Cluster(2)
    cluster.begin("bad", "a")
    cluster.lose_host_of("bad", times=LOSSES_OF_HOSTS - 1)
    cluster.lose(str(cluster.host_of("bad")), comes_back=False)
    kept = cluster.core._state.workers.table.hosts.kept
    assert list(kept) == ["bad"]

    cluster.handle(AbortRequested("bad", reply=2, force=True))

    assert not kept
    cluster.begin("b")
    cluster.answer("a", Finished(state=b""))
    assert cluster.host_of("b") is not None
    assert difference(cluster) is None


@pytest.mark.parametrize("hosts", [1, 2])
def test_two_lone_steps_run_on_a_host_each_and_where_there_is_one_host_one_after_the_other(hosts):
    cluster = Cluster(1, workers=2)
    cluster.begin("x", "y")
    for _ in range(LOSSES_OF_HOSTS):
        cluster.lose("h1")
    assert {heads_of(cluster)[name].host_losses for name in ("x", "y")} == {LOSSES_OF_HOSTS}
    if hosts == 2:
        cluster.sizes["h2"] = 1
        cluster.come("h2")
        assert sorted(map(str, (cluster.host_of("x"), cluster.host_of("y")))) == ["h1", "h2"]
        return
    running = next(name for name in ("x", "y") if cluster.host_of(name))
    waiting = "y" if running == "x" else "x"
    assert cluster.why(waiting)[1] is not None
    assert "none has joined that is free for that" in str(cluster.why(waiting)[1])
    cluster.answer(running, Finished(state=b""))
    assert cluster.host_of(waiting) == "h1"


def test_steps_beside_each_other_in_one_worker_are_all_counted_and_run_alone_later():
    cluster = Cluster(2, threads=4)
    cluster.begin("x", "y")
    assert cluster.host_of("x") == cluster.host_of("y")
    cluster.lose_host_of("x")
    assert {heads_of(cluster)[name].host_losses for name in ("x", "y")} == {1}
    cluster.lose_host_of("x", times=2)
    assert cluster.host_of("x") != cluster.host_of("y")


def test_a_procedure_with_a_worker_of_its_own_gets_it_on_the_host_that_is_kept():
    cluster = Cluster(2, workers=1, dedicated=True)
    cluster.register("S")
    cluster.begin("bad")
    for count in range(LOSSES_OF_HOSTS):
        started = [command for command in cluster.commands if isinstance(command, StartWorker)]
        assert len(started) == count + 1
        worker = WorkerId(10_000_000 + 100_000 + count, 1)
        cluster.handle(WorkerReady(worker, reserved="bad", host="h1"))
        assert cluster.host_of("bad") == "h1"
        cluster.inbox.pop("bad")
        if count == LOSSES_OF_HOSTS - 1:
            cluster.submit(cluster.new("s1", "S"), cluster.new("s2", "S"))
        cluster.handle(WorkerLost(worker, LOST))
    asked = [command for command in cluster.commands if isinstance(command, StartWorker)][-1]
    kept = cluster.core._state.workers.table.hosts.kept["bad"]
    assert asked.host == kept
    cluster.handle(WorkerReady(WorkerId(10_000_000 + 100_000 * int(kept[1:]) + 9, 1), reserved="bad", host=kept))
    assert cluster.host_of("bad") is None, "a step of another one still runs there"
    beside = next(name for name in ("s1", "s2") if cluster.host_of(name) == kept)
    cluster.answer(beside, Finished(state=b""))
    assert cluster.host_of("bad") == kept


@pytest.mark.parametrize("comes", [True, False])
def test_after_a_change_of_leaders_it_runs_alone_too(comes):
    cluster = Cluster(2)
    cluster.begin("bad")
    cluster.lose_host_of("bad", times=LOSSES_OF_HOSTS)
    token, host = cluster.inbox["bad"].token, cluster.host_of("bad")
    assert host is not None
    snapshot = msgspec.structs.replace(image_of(cluster).snapshot(), epoch=2)
    after = Cluster(0)
    after.sizes = {"h1": 2, "h2": 2}
    types = (TypeMeta(type_name="T", rollback_supported=True),)
    absent = absent_workers(snapshot.procedures)
    after.core, _ = Coordinator.restore(snapshot, 0.0, types=types, workers=absent)
    after.writes = [*cluster.writes]
    after.handle(HostAdded(""))
    if comes:
        found = after.core.claimable(int(host[1:]), 2, ((token.worker, 7, (token,), ()),))
        workers = [
            (msgspec.structs.replace(ready, host=host), tuple(run.token for run in runs)) for ready, runs in found
        ]
        after.handle(HostClaimed(int(host[1:]), tuple(workers)))
        after.handle(HostAdded(host))
        after.handle(WorkerReady(WorkerId(int(host[1:]) * 1000 + 5, 1), host=host))
        assert after.host_of("bad") == host
        after.begin("p")
        assert after.host_of("p") is None
    else:
        after.handle(WorkerLost(absent[0][0].worker, LOST, crashed=False))
        after.come("h1")
        assert heads_of(after)["bad"].host_losses == LOSSES_OF_HOSTS, "a host that is not heard of was lost by chance"
        assert after.host_of("bad") == "h1"
        after.begin("p")
        assert after.host_of("p") is None


def test_a_step_with_labels_runs_alone_on_a_host_that_has_them():
    cluster = Cluster(2, workers=2)
    cluster.handle(HostAdded("h1", ("gpu",), {}))
    limits = StepLimits(on=("gpu",))
    cluster.begin("bad", limits=limits)
    for _ in range(LOSSES_OF_HOSTS):
        assert cluster.host_of("bad") == "h1"
        cluster.lose("h1")
        cluster.handle(HostAdded("h1", ("gpu",), {}))
    assert cluster.host_of("bad") == "h1"
    cluster.begin("p", "q", "r")
    assert sorted(map(str, (cluster.host_of(name) for name in ("p", "q", "r")))) == ["None", "h2", "h2"]


def test_the_host_is_given_back_when_it_fails_otherwise():
    cluster = Cluster(1, workers=2)
    cluster.begin("bad")
    cluster.lose_host_of("bad", times=LOSSES_OF_HOSTS)
    cluster.answer("bad", boom())
    assert cluster.undo_all() == []
    assert cluster.state("bad") is ProcedureState.ROLLEDBACK
    assert not cluster.core._state.workers.table.hosts.kept


def test_an_undo_that_takes_its_hosts_along_fails_in_the_same_way_and_a_retry_by_hand_ends_the_row():
    cluster = Cluster(2, workers=2)
    cluster.begin("bad", unit="u")
    cluster.answer("bad", boom())
    for _ in range(LOSSES_OF_HOSTS):
        cluster.lose_host_of("bad")
    cluster.begin("p", "q", "r")
    assert [name for name in ("p", "q", "r") if cluster.host_of(name) == cluster.host_of("bad")] == []
    cluster.lose_host_of("bad")
    assert cluster.state("bad") is ProcedureState.FAILED
    error = heads_of(cluster)["bad"].error
    assert error is not None
    assert "its host was lost for the 4th time in a row" in error.message

    cluster.handle(RetryRequested("bad", 3))
    for name in ("p", "q", "r"):
        cluster.answer(name, Finished(state=b""))

    assert cluster.host_of("bad") is not None
    assert heads_of(cluster)["bad"].host_losses == 0
    assert not cluster.core._state.workers.table.hosts.kept


def test_a_host_takes_back_what_its_steps_had_of_it_when_it_joins_the_next_leader():
    cluster = Cluster(1, workers=1)
    cluster.handle(HostAdded("h1", (), {"gpu": 1.0}))
    cluster.begin("p", limits=StepLimits(resources={"gpu": 1.0}))
    token = cluster.inbox["p"].token
    snapshot = msgspec.structs.replace(image_of(cluster).snapshot(), epoch=2)
    after = Cluster(0)
    after.core, _ = Coordinator.restore(
        snapshot, 0.0, types=(TypeMeta(type_name="T"),), workers=absent_workers(snapshot.procedures)
    )
    found = after.core.claimable(1, 2, ((token.worker, 7, (token,), ()), (WorkerId(1001, 1), 8, (), ())))
    after.handle(
        HostClaimed(
            1,
            tuple(
                (msgspec.structs.replace(ready, host="h1"), tuple(run.token for run in runs)) for ready, runs in found
            ),
        )
    )
    after.handle(HostAdded("h1", (), {"gpu": 1.0}))

    after.begin("q", limits=StepLimits(resources={"gpu": 1.0}))

    assert after.host_of("p") == "h1"
    assert after.host_of("q") is None


def test_no_host_stays_idle_for_a_step_that_waits_for_a_slot():
    cluster = Cluster(2, workers=1)
    cluster.core, _ = Coordinator.restore(
        image_of(cluster).snapshot(),
        0.0,
        scheduling=Scheduling(concurrency={"k": 1}),
        types=(TypeMeta(type_name="T", rollback_supported=True),),
    )
    cluster.handle(HostAdded(""))
    for name in cluster.sizes:
        cluster.come(name)
    cluster.begin("bad", limit_keys=("k",))
    cluster.lose_host_of("bad", times=LOSSES_OF_HOSTS)
    cluster.answer("bad", Refused(reason="its class is not to be had"))
    cluster.begin("other", limit_keys=("k",))
    there = cluster.host_of("other")
    assert there is not None
    cluster.register("T", rollback_supported=True)  # what was parked goes on

    assert cluster.host_of("bad") is None
    assert not cluster.core._state.workers.table.hosts.kept, "it waits for the slot of the other one"
    cluster.begin("free")
    assert cluster.host_of("free") not in {None, there}
    cluster.answer("other", Finished(state=b""))
    assert cluster.host_of("bad") == there
