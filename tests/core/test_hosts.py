"""Labels and resources of hosts: which steps go where, what they take, and what waits for a host keeps from running."""

from __future__ import annotations

import pytest

from actorproc.core.queues.host_table import HostTable, demand_of
from actorproc.model.ids import WorkerId
from actorproc.model.messages.commands import RunStep, StartWorker, StopWorker, TakeBack
from actorproc.model.messages.events import (
    AbortRequested,
    CrashReport,
    HostAdded,
    HostDraining,
    HostRemoved,
    StepReturned,
    Tick,
    WorkerLost,
    WorkerReady,
)
from actorproc.model.messages.outcomes import Advanced, Finished, Slept
from actorproc.model.policies import Scheduling, StepLimits
from actorproc.model.states import Phase

from .harness import CoreHarness, later

GPU = {"on": ("gpu",), "resources": {"gpu": 1}}
KILLED = CrashReport(kind="signal", message="killed by signal 9 (SIGKILL)", signal="SIGKILL")


def harness_of(scheduling: Scheduling | None = None, **traits: object) -> CoreHarness:
    harness = CoreHarness(workers=0, **(traits or GPU))
    harness.register("Plain")
    if scheduling is not None:
        state = harness.core._state
        state.settings.reschedule(scheduling)
        state.queues.__init__(scheduling, state.residents.place_of)  # type: ignore[misc]
        state.workers.__init__(scheduling)  # type: ignore[misc]
    return harness


def join(harness: CoreHarness, host: str, *slots: int, on: tuple[str, ...] = (), **resources: float) -> None:
    harness.handle(HostAdded(host, on, resources))
    for slot in slots:
        harness.handle(WorkerReady(WorkerId(slot, 1), host=host))


def place(harness: CoreHarness, name: str) -> int:
    return harness.inbox[name].token.worker.slot


def why(harness: CoreHarness, name: str) -> str | None:
    head = harness.core.view(name)
    assert head is not None
    return harness.core.phase(head)[1]


# ---------------------------------------------------------------------- who gets what
def test_a_step_goes_to_a_host_with_the_label_and_to_no_other():
    harness = harness_of()
    join(harness, "plain", 0, 1)
    harness.submit(harness.new("p"))
    assert "p" not in harness.inbox

    join(harness, "h2", 2, on=("gpu",), gpu=1)

    assert place(harness, "p") == 2


def test_resources_are_taken_while_a_step_runs_and_given_back_at_its_end():
    harness = harness_of()
    join(harness, "h", 0, 1, 2, on=("gpu",), gpu=2)
    harness.submit(*(harness.new(name) for name in "abc"))
    assert set(harness.inbox) == {"a", "b"}

    harness.answer("a", Finished(state=b""))

    assert "c" in harness.inbox


@pytest.mark.parametrize("ends", ["sleeps", "is lost", "is tried later", "goes on"])
def test_resources_are_given_back_however_a_step_ends(ends):
    harness = harness_of()
    join(harness, "h", 0, 1, on=("gpu",), gpu=1)
    harness.submit(harness.new("a"), harness.new("b"))
    assert "b" not in harness.inbox

    if ends == "sleeps":
        harness.answer("a", Slept(state=b"", seconds=60.0))
    elif ends == "is lost":
        harness.handle(WorkerLost(WorkerId(0, 1), KILLED))
        harness.answer("a", Finished(state=b""))
    elif ends == "is tried later":
        harness.answer("a", later(after=60.0))
    else:
        harness.answer("a", Advanced(state=b""))

    assert harness.order[-1][0] in {"a", "b"}
    held = harness.core._state.workers.table.hosts.hosts["h"].free["gpu"]
    running = [name for name in "ab" if name in harness.core._state.workers.table.in_hand]
    assert held == 1000 * (1 - len(running))
    assert len(running) == 1


def test_fractions_add_up_to_exactly_the_whole():
    harness = harness_of(resources={"gpu": 0.1})
    join(harness, "h", *range(12), gpu=1)
    harness.submit(*(harness.new(f"p{number}") for number in range(12)))
    assert len(harness.inbox) == 10


def test_steps_of_one_procedure_run_on_different_hosts():
    harness = harness_of()
    join(harness, "cpus", 0)
    join(harness, "gpus", 1, on=("gpu",), gpu=1)
    harness.submit(harness.new("p", "Plain"))
    assert place(harness, "p") == 0, "a plain step leaves the host with a gpu to others"
    harness.answer("p", Advanced(state=b""))
    harness.register("Plain", **GPU)
    harness.answer("p", Advanced(state=b""))
    assert place(harness, "p") == 1


def test_limits_of_a_submit_ask_for_hosts_as_well():
    harness = harness_of()
    join(harness, "plain", 0)
    harness.submit(harness.new("p", "Plain", limits=StepLimits(on=("ssd",))))
    assert "p" not in harness.inbox
    join(harness, "h", 1, on=("ssd",))
    assert place(harness, "p") == 1


# ---------------------------------------------------------------------- nothing offers it
def test_what_no_host_offers_is_accepted_and_says_what_it_waits_for():
    harness = harness_of()
    join(harness, "plain", 0)
    harness.submit(harness.new("p"), harness.new("q"))

    assert why(harness, "p") == "for a host with gpu and 1 gpu; none that is connected has that"
    assert list(harness.core.unoffered.values()) == [("gpu and 1 gpu", "p", 0)]

    join(harness, "h", 1, on=("gpu",), gpu=1)
    assert harness.core.unoffered == {}
    assert "p" in harness.inbox
    assert why(harness, "q") == "for a host with gpu and 1 gpu: 1 of 1 gpu are taken"


def test_what_waits_for_a_host_keeps_nothing_else_waiting():
    harness = harness_of()
    join(harness, "plain", 0)
    harness.submit(harness.new("p", priority=9))
    harness.submit(harness.new("q", "Plain"), harness.new("r", "Plain"))
    assert "q" in harness.inbox
    harness.answer("q", Finished(state=b""))
    assert "r" in harness.inbox


def test_what_waits_for_a_host_lets_others_have_the_slots_of_its_key():
    harness = harness_of(Scheduling(concurrency={"k": 1}))
    join(harness, "plain", 0)
    harness.submit(harness.new("p", limit_keys=("k",)))
    harness.submit(harness.new("q", "Plain", limit_keys=("k",)))
    assert "q" in harness.inbox

    join(harness, "h", 1, on=("gpu",), gpu=1)
    assert "p" not in harness.inbox, "the slot is taken"
    harness.answer("q", Finished(state=b""))
    assert place(harness, "p") == 1


def test_it_can_be_aborted_while_it_waits_for_a_host():
    harness = harness_of(asks_abort=True, **GPU)
    join(harness, "h", 0, on=("gpu",), gpu=1)
    harness.submit(harness.new("p"))
    harness.handle(WorkerLost(WorkerId(0, 1), KILLED, crashed=False))
    harness.handle(HostRemoved("h"))
    join(harness, "plain", 1)
    harness.handle(AbortRequested("p", reply=1))
    assert place(harness, "p") == 1
    assert harness.inbox["p"].token.mode.name == "ASK_ABORT"


# ---------------------------------------------------------------------- nothing starves
def test_short_plain_steps_do_not_keep_the_worker_that_another_waits_for():
    harness = harness_of()
    join(harness, "h", 0, on=("gpu",), gpu=1)
    harness.core._state.workers.table._expected["Plain"] = 0.001
    harness.submit(*(harness.new(f"q{number}", "Plain") for number in range(4)))
    harness.now += 1.0
    harness.submit(harness.new("p", priority=1))
    assert "p" not in harness.inbox
    harness.submit(*(harness.new(f"r{number}", "Plain") for number in range(4)))
    for number in range(4):
        harness.answer(f"q{number}", Finished(state=b""))
    assert "p" in harness.inbox
    assert not any(f"r{number}" in harness.inbox for number in range(4)), "the one that waited goes first"


def test_a_step_is_not_taken_back_for_a_worker_that_may_not_have_it():
    harness = harness_of(on=("gpu",))
    join(harness, "h", 0, on=("gpu",))
    join(harness, "plain", 1)
    harness.core._state.workers.table._expected["T"] = 0.001
    harness.submit(harness.new("a"), harness.new("b"))
    assert place(harness, "b") == 0
    harness.now += 60.0
    harness.handle(Tick())
    assert not [command for command in harness.commands if isinstance(command, TakeBack)]
    assert harness.core.next_deadline() is None

    harness.handle(WorkerReady(WorkerId(2, 1), host="h"))
    harness.handle(Tick())
    assert [command.tokens[0].procedure for command in harness.commands if isinstance(command, TakeBack)] == ["b"]
    harness.handle(StepReturned(harness.inbox["b"].token))
    assert place(harness, "b") == 2


def test_plain_steps_are_taken_back_while_others_wait_for_a_host():
    harness = harness_of()
    join(harness, "plain", 0)
    harness.submit(harness.new("waits"))
    harness.core._state.workers.table._expected["Plain"] = 0.001
    harness.submit(harness.new("a", "Plain"), harness.new("b", "Plain"))
    harness.handle(WorkerReady(WorkerId(1, 1), host="plain"))
    assert harness.core.next_deadline() is not None
    harness.now += 1.0
    harness.handle(Tick())
    assert [command.tokens[0].procedure for command in harness.commands if isinstance(command, TakeBack)] == ["b"]


def test_no_worker_is_added_for_what_waits_for_a_host():
    harness = harness_of(Scheduling(workers=1, max_workers=2))
    join(harness, "plain", 0)
    harness.submit(harness.new("p"), harness.new("q", "Plain"))
    assert "q" in harness.inbox
    assert harness.core.next_deadline() is None


# ---------------------------------------------------------------------- shares
def test_a_class_that_waits_for_a_host_wants_no_worker_of_its_share():
    harness = harness_of(Scheduling(shares={"heavy": 0.5, "default": 0.5}), work_class="heavy", **GPU)
    join(harness, "plain", 0, 1)
    harness.submit(harness.new("p"))
    harness.submit(harness.new("q", "Plain"), harness.new("r", "Plain"))
    assert {"q", "r"} <= set(harness.inbox)


# ---------------------------------------------------------------------- draining, leaving
def test_a_host_that_drains_gets_nothing_more_and_its_workers_are_stopped():
    harness = harness_of()
    join(harness, "h", 0, 1, on=("gpu",), gpu=2)
    harness.submit(harness.new("p"))
    harness.handle(HostDraining("h"))
    assert [command.worker.slot for command in harness.commands if isinstance(command, StopWorker)] == [1]
    harness.answer("p", Advanced(state=b""))
    assert {command.worker.slot for command in harness.commands if isinstance(command, StopWorker)} == {0, 1}
    assert "none that is connected" in (why(harness, "p") or "")

    harness.handle(WorkerReady(WorkerId(3, 1), host="h"))
    assert harness.commands[-1] == StopWorker(WorkerId(3, 1)), "also one that comes later"


def test_the_steps_of_a_host_that_left_run_on_another():
    harness = harness_of()
    join(harness, "h1", 0, on=("gpu",), gpu=1)
    harness.submit(harness.new("p"))
    harness.handle(WorkerLost(WorkerId(0, 1), KILLED, crashed=False))
    harness.handle(HostRemoved("h1"))
    assert "none that is connected" in (why(harness, "p") or "")
    join(harness, "h2", 5, on=("gpu",), gpu=1)
    assert place(harness, "p") == 5


def test_a_host_offers_something_else_while_its_steps_run():
    table, demand = HostTable(), demand_of((), {"gpu": 1})
    assert demand is not None
    table.join("h", (), {"gpu": 1})
    table.take("h", demand)
    table.join("h", (), {"gpu": 2})
    assert table.hosts["h"].free == {"gpu": 1000}
    table.give_back("h", demand)
    table.give_back("h", demand)
    assert table.hosts["h"].free == {"gpu": 2000}, "never more than there is"


# ---------------------------------------------------------------------- workers of one's own
def test_a_worker_of_ones_own_is_asked_of_a_host_that_offers_what_is_asked():
    harness = harness_of(dedicated=True, **GPU)
    harness.submit(harness.new("p"))
    assert not [command for command in harness.commands if isinstance(command, StartWorker)]
    join(harness, "plain", 0)
    join(harness, "h", on=("gpu",), gpu=1)
    assert [command for command in harness.commands if isinstance(command, StartWorker)] == [StartWorker("p", "h")]
    harness.handle(WorkerReady(WorkerId(100, 1), reserved="p", host="h"))
    assert place(harness, "p") == 100


def test_workers_of_ones_own_take_turns_with_the_resources_of_their_host():
    harness = harness_of(dedicated=True, **GPU)
    join(harness, "h", on=("gpu",), gpu=1)
    harness.submit(harness.new("p"), harness.new("q"))
    harness.handle(WorkerReady(WorkerId(100, 1), reserved="p", host="h"))
    harness.handle(WorkerReady(WorkerId(101, 1), reserved="q", host="h"))
    assert set(harness.inbox) == {"p"}
    harness.answer("p", Slept(state=b"", seconds=60.0))
    assert place(harness, "q") == 101


def test_a_worker_of_ones_own_is_asked_of_another_host_when_the_first_leaves_before_it_comes():
    harness = harness_of(dedicated=True, **GPU)
    join(harness, "h1", on=("gpu",), gpu=1)
    harness.submit(harness.new("p"))
    join(harness, "h2", on=("gpu",), gpu=1)
    harness.handle(HostRemoved("h1"))
    asked = [command for command in harness.commands if isinstance(command, StartWorker)]
    assert asked == [StartWorker("p", "h1"), StartWorker("p", "h2")]


# ---------------------------------------------------------------------- nothing asked, nothing paid
def test_where_no_step_asks_hosts_are_not_looked_at(monkeypatch):
    harness = CoreHarness(workers=0)
    join(harness, "h", 0, on=("gpu",), gpu=1)
    for name in ("is_blocked", "has_room", "note", "is_plain", "take", "give_back"):
        monkeypatch.setattr(HostTable, name, lambda *_: pytest.fail("looked at hosts"))
    harness.submit(harness.new("p"))
    harness.answer("p", Advanced(state=b""))
    harness.answer("p", Finished(state=b""))
    assert [step for _, step, _ in harness.order] == [1, 2]


def test_phase_of_one_that_waits_for_a_host_is_queued():
    harness = harness_of()
    harness.submit(harness.new("p"))
    head = harness.core.view("p")
    assert head is not None
    assert harness.core.phase(head)[0] is Phase.QUEUED
    assert not [command for command in harness.commands if isinstance(command, RunStep)]
