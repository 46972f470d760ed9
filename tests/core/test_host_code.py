"""Types of which some hosts have other code than the manager: their steps go to hosts with the manager's."""

from __future__ import annotations

import msgspec
import pytest

from actorproc.core.coordinator import Coordinator
from actorproc.model.ids import WorkerId
from actorproc.model.messages.commands import RunStep, StartWorker
from actorproc.model.messages.events import (
    AbortRequested,
    HostAdded,
    HostDraining,
    HostRemoved,
    StepReturned,
    WorkerReady,
)
from actorproc.model.messages.outcomes import Advanced, Finished
from actorproc.model.policies import StepLimits, TypeMeta
from actorproc.model.states import Phase

from .harness import CoreHarness, difference, image_of


def cluster(**traits: object) -> CoreHarness:
    """A manager that runs nothing itself, with the hosts h1 and h2 of two workers each."""
    harness = CoreHarness(0, rollback_supported=True, **traits)
    harness.register("S")
    for number in (1, 2):
        harness.handle(HostAdded(f"h{number}"))
        for slot in (0, 1):
            harness.handle(WorkerReady(WorkerId(number * 1000 + slot, 1), host=f"h{number}"))
    return harness


def other_code(harness: CoreHarness, host: str, *types: str) -> None:
    harness.handle(HostAdded(host, other_code=types))


def place(harness: CoreHarness, id: str) -> str | None:
    worker = harness.core._state.workers.table.in_hand.get(id)
    return None if worker is None else worker.host


def begin(harness: CoreHarness, *names: str, type_name: str = "T", **fields: object) -> list[str | None]:
    for name in names:
        harness.submit(harness.new(name, type_name, **fields))
    return [place(harness, name) for name in names]


def why(harness: CoreHarness, id: str) -> str | None:
    record = harness.core.view(id)
    assert record is not None
    phase, reason = harness.core.phase(record)
    assert phase is Phase.QUEUED
    return reason


def test_steps_of_a_type_go_to_hosts_with_its_code_and_those_of_others_anywhere():
    harness = cluster()
    other_code(harness, "h1", "T")
    assert begin(harness, "a", "b", "c") == ["h2", "h2", None]
    assert why(harness, "c") == "for a worker on 1 host with the code of T (1 host has other code)"
    assert begin(harness, "x", "y", "z", type_name="S") == ["h1", "h1", None], "they are not kept waiting"
    harness.answer("a", Finished(state=b""))
    assert place(harness, "c") == "h2"
    assert difference(harness) is None


def test_a_procedure_whose_step_ends_on_a_host_with_other_code_goes_on_elsewhere():
    harness = cluster()
    assert begin(harness, "a") == ["h1"]
    other_code(harness, "h1", "T")
    harness.answer("a", Advanced(state=b"1"))
    assert place(harness, "a") == "h2"
    assert harness.inbox["a"].token.step == 2


def test_a_step_that_came_back_as_its_host_has_other_code_goes_to_another_under_the_same_attempt():
    harness = cluster()
    assert begin(harness, "a") == ["h1"]
    token = harness.inbox.pop("a").token
    other_code(harness, "h1", "T")
    harness.handle(StepReturned(token))
    assert place(harness, "a") == "h2"
    assert harness.inbox["a"].token.attempt == 1


@pytest.mark.parametrize("waits", ["in the queue", "cold", "for a limit", "with limits of its own"])
def test_what_waited_when_the_last_host_with_its_code_went_says_so_once_and_runs_when_one_comes(waits):
    harness = CoreHarness(0)
    harness.handle(HostAdded("h1"))
    fields: dict[str, object] = {}
    if waits == "for a limit":
        fields = {"limit_keys": ("k",)}
    elif waits == "with limits of its own":
        fields = {"limits": StepLimits(on=("gpu",))}
        harness.handle(HostAdded("h1", ("gpu",)))
    elif waits == "in the queue":
        fields = {"deadline": 1e9}
    for name in ("a", "b", "c"):
        harness.submit(harness.new(name, **fields))
    labels = ("gpu",) if waits == "with limits of its own" else ()
    before = harness.core.parkings

    harness.handle(HostAdded("h1", labels, other_code=("T",)))
    harness.handle(WorkerReady(WorkerId(1000, 1), host="h1"))
    harness.handle(WorkerReady(WorkerId(1001, 1), host="h1"))

    words = "gpu and the code of T" if labels else "the code of T"
    assert not harness.inbox
    assert why(harness, "b") == f"for a host with {words} (1 host has other code)"
    assert [(said, others) for said, _, others in harness.core.unoffered.values()] == [(words, 1)]
    assert harness.core.parkings > before, "it is looked for what no host offers, and warned of it"
    harness.handle(HostAdded("h2", labels))
    for slot in range(3):
        harness.handle(WorkerReady(WorkerId(2000 + slot, 1), host="h2"))
    assert [place(harness, name) for name in ("a", "b", "c")] == ["h2"] * 3
    assert not harness.core.unoffered
    assert difference(harness) is None


def test_when_all_hosts_have_the_code_again_it_is_as_before():
    harness = cluster()
    other_code(harness, "h1", "T")
    begin(harness, "a", "b", "c")
    other_code(harness, "h1")
    assert place(harness, "c") == "h1"
    assert begin(harness, "d") == ["h1"]
    assert not harness.core._state.types.divided
    assert harness.core._state.types.limits["T"].is_plain


def test_a_host_that_leaves_takes_the_division_along():
    harness = cluster()
    other_code(harness, "h1", "T")
    harness.handle(HostRemoved("h1"))
    assert not harness.core._state.types.divided


def test_a_host_that_drains_does_not_count():
    harness = cluster()
    other_code(harness, "h1", "T")
    harness.handle(HostDraining("h2"))
    assert begin(harness, "a") == [None]
    assert why(harness, "a") == "for a host with the code of T (1 host has other code)"


def test_a_worker_of_its_own_is_asked_of_a_host_with_the_code():
    harness = cluster(dedicated=True)
    other_code(harness, "h1", "T")
    begin(harness, "a")
    assert [command for command in harness.commands if isinstance(command, StartWorker)] == [StartWorker("a", "h2")]


def test_the_question_about_an_abort_goes_to_a_host_with_the_code():
    harness = cluster(asks_abort=True)
    other_code(harness, "h1", "T")
    begin(harness, "a")
    harness.answer("a", Advanced(state=b"1", after=100.0))
    harness.handle(AbortRequested("a", reply=3, force=False))
    asked = [command for command in harness.commands if isinstance(command, RunStep)][-1]
    assert asked.token.mode.name == "ASK_ABORT"
    assert asked.token.worker.slot // 1000 == 2


def test_what_is_prefetched_is_not_given_to_an_idle_host_with_other_code():
    harness = cluster()
    other_code(harness, "h1", "T")
    harness.core._state.workers.table._expected["T"] = 0.0001
    assert begin(harness, "a", "b", "c", "d") == ["h2"] * 4
    assert harness.core.next_deadline() is None, "no other worker may have them"


def test_after_a_failed_commit_hosts_have_the_code_that_they_had():
    harness = cluster()
    other_code(harness, "h1", "T")
    begin(harness, "a")
    snapshot = image_of(harness).snapshot()
    workers = [
        (WorkerReady(worker.id, host=worker.host), tuple(item.token for item in worker.queue.values()))
        for worker in harness.core._state.workers.table.workers.values()
    ]
    again = CoreHarness(0)
    again.core, decision = Coordinator.restore(
        snapshot, 0.0, types=(TypeMeta(type_name="T"),), workers=workers, before=harness.core
    )
    again._noted(decision)
    assert begin(again, "b", "c") == ["h2", None]
    assert msgspec.structs.asdict(again.core._state.workers.table.hosts.hosts["h1"])["other_code"] == {"T"}
