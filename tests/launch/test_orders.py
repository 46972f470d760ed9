"""Orders that a launcher gives to Ray, without Ray: a stand-in keeps what it was asked for."""

from __future__ import annotations

import os
import sys
import types

import pytest

from actorproc import EngineError, UsageError
from actorproc.api.launch import ray as launcher
from actorproc.api.launch.ray import HostActor, RayHost, start_hosts, stop_hosts
from tests.kit.waiting import wait_until

URL = "postgresql://db/app"


class StandIn(types.ModuleType):
    """As much of Ray as a launcher asks for: named actors, some of them dead."""

    class exceptions:  # noqa: N801 - as Ray names it
        class GetTimeoutError(Exception):
            pass

        class RayActorError(Exception):
            pass

    def __init__(self) -> None:
        super().__init__("ray")
        self.addresses = []
        self.actors = {}
        self.options = {}
        self.orders = {}
        self.dead = set()
        self.killed = []
        self.util = types.SimpleNamespace(list_named_actors=lambda: list(self.actors))
        self.connected = False

    def is_initialized(self):
        return self.connected

    def init(self, **options):
        self.addresses.append(options["address"])

    def shutdown(self):
        pass

    def remote(self, kind):
        assert kind is HostActor
        return types.SimpleNamespace(options=self._options)

    def _options(self, **options):
        name = options["name"]

        def start(order, own):
            assert own == name
            self.options[name], self.orders[name] = options, order
            ask = types.SimpleNamespace(remote=lambda: ("describe", name))
            self.actors[name] = types.SimpleNamespace(name=name, describe=ask)

        return types.SimpleNamespace(remote=start)

    def get_actor(self, name, namespace):
        if name not in self.actors:
            raise ValueError(name)
        return self.actors[name]

    def get(self, asked, timeout):
        _, name = asked
        if name in self.dead:
            raise self.exceptions.RayActorError
        return {"name": name, "pid": 1, "order": self.orders[name]}

    def kill(self, actor, *, no_restart):
        assert no_restart
        self.killed.append(actor.name)
        del self.actors[actor.name]


@pytest.fixture
def ray(monkeypatch):
    """The stand-in, whose live actors have joined the leader."""
    made = StandIn()
    monkeypatch.setitem(sys.modules, "ray", made)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    joined = lambda path: {name: (f"h-{name}", "10.0.0.1") for name in made.actors if name not in made.dead}  # noqa: E731
    monkeypatch.setattr(launcher, "_rows", joined)
    return made


def start(**more):
    return start_hosts("app.procs", URL, **({"hosts": 2, "cpus": 8, "address": "head:6379", "timeout": 0.1} | more))


def test_hosts_are_detached_and_spread_without_a_placement_group(ray):
    found = start()
    assert len(found) == len(ray.options) == 2
    for name, options in ray.options.items():
        assert options["name"] == name
        assert (options["lifetime"], options["max_restarts"]) == ("detached", -1)
        assert options["scheduling_strategy"] == "SPREAD"
        assert options["get_if_exists"], "of two launchers at once one starts it"
        assert (options["num_cpus"], options["num_gpus"]) == (8, 0)
        assert not any("placement" in option for option in options)
    assert ray.addresses == ["head:6379"]


@pytest.mark.parametrize(
    ("more", "gpus"),
    [
        ({}, 0),
        ({"labels": ("gpu",)}, 1.0),
        ({"labels": ("gpu",), "resources": {"gpu": 4}}, 4.0),
        ({"resources": {"gpu": 2}}, 2.0),
    ],
)
def test_a_host_with_gpus_asks_ray_for_them(ray, more, gpus):
    start(**more)
    assert {options["num_gpus"] for options in ray.options.values()} == {gpus}
    assert all(order["resources"].get("gpu", 0) == gpus for order in ray.orders.values())


def test_what_runs_is_not_started_again_and_what_is_dead_gets_a_new_name(ray):
    first = start()
    assert all(start() == first for _ in range(50))
    assert len(ray.options) == 2
    ray.dead.add(first[1].actor)

    second = start()

    assert second[0] == first[0]
    assert second[1].actor.rpartition("-")[0] == first[1].actor.rpartition("-")[0]
    assert (first[1].actor[-1], second[1].actor[-1]) == ("1", "2"), "the name of a dead actor is not used at once"
    assert ray.killed == [first[1].actor]


def test_hosts_of_another_order_are_replaced(ray):
    start()
    found = start(labels=("ssd",))
    assert {host.actor[-1] for host in found} == {"2"}
    assert sorted(ray.killed) == sorted(name for name in ray.options if name.endswith("1"))


def test_hosts_that_have_not_joined_are_an_error_though_ray_has_their_actors(ray, monkeypatch):
    monkeypatch.setattr(launcher, "_rows", lambda path: {})
    with pytest.raises(EngineError, match="0 of 2 hosts have joined"):
        start()
    assert len(ray.actors) == 2


def test_a_stop_kills_without_a_restart(ray, monkeypatch):
    names = sorted(host.actor for host in start())
    monkeypatch.setattr("actorproc.api.client.ProcedureClient", _NoLeader)
    assert sorted(stop_hosts(URL, address="head:6379", timeout=0.0)) == names
    assert sorted(ray.killed) == names


class _NoLeader:
    def __init__(self, path):
        raise EngineError("no leader")


@pytest.mark.parametrize("address", [None, "auto", "local"])
def test_a_cluster_is_not_looked_for(ray, address):
    with pytest.raises(UsageError, match="there is no address of a Ray cluster"):
        start(address=address)
    assert ray.addresses == []


def test_a_cluster_that_the_program_is_connected_to_is_used_and_stays_connected(ray):
    ray.connected = True
    assert [type(host) for host in start(address=None)] == [RayHost, RayHost]
    assert ray.addresses == []


@pytest.mark.parametrize(("more", "words"), [({"cpus": 0}, "cpus is 0"), ({"hosts": 0}, "hosts is 0")])
def test_hosts_ask_for_processors(ray, more, words):
    with pytest.raises(UsageError, match=words):
        start(**more)


@pytest.mark.parametrize("working_dir", ["gcs://_ray_pkg_1.zip", "."])
def test_a_working_directory_that_ray_drops_when_nothing_uses_it_is_refused(ray, working_dir):
    with pytest.raises(UsageError, match="a host that is started again on another node fails"):
        start(runtime_env={"working_dir": working_dir})


@pytest.mark.parametrize(
    ("order", "kept"),
    [
        ({}, set()),
        ({"keeps_threads": True}, {"OMP_NUM_THREADS"}),
        ({"resources": {"gpu": 1.0}}, {"CUDA_VISIBLE_DEVICES"}),
    ],
)
def test_variables_that_ray_sets_do_not_reach_steps(monkeypatch, order, kept):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    made = launcher.HostOrder(
        "tests.hosts.journalled", URL, 1, (), order.get("resources", {}), order.get("keeps_threads", False)
    )
    seen = {}

    class Host:
        def start(self):
            seen.update(os.environ)

        def wait_until_left(self, timeout):
            return "drained"

    monkeypatch.setattr("actorproc.api.manager.ProcedureManager._make_host", lambda manager: Host())

    assert launcher._serve_host(made, "actorproc-x-0-1") == "drained"

    assert {"OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES"} & seen.keys() == kept


def test_a_drained_actor_leaves_in_a_task_of_its_own(monkeypatch):
    """`exit_actor` elsewhere than in a task of the actor raises, and Ray starts an actor again that just ends."""
    asked, made = [], StandIn()
    actor = types.SimpleNamespace(leave=types.SimpleNamespace(remote=lambda: asked.append("leave")))
    made.get_runtime_context = lambda: types.SimpleNamespace(current_actor=actor)
    made.actor = types.SimpleNamespace(exit_actor=lambda: asked.append("exit"))
    monkeypatch.setitem(sys.modules, "ray", made)
    monkeypatch.setattr(launcher, "_serve_host", lambda order, name: "drained")

    one = HostActor({"target": "t", "path": URL, "cpus": 1, "labels": [], "resources": {}, "keeps_threads": False}, "n")

    wait_until(lambda: asked == ["leave"])
    one.leave()
    assert asked == ["leave", "exit"]
