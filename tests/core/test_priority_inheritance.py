"""What holds locks goes before work that is less urgent than those who wait for the locks."""

from __future__ import annotations

import pytest

from actorproc.model.ids import WorkerId
from actorproc.model.messages.events import AbortRequested, Tick, WorkerReady
from actorproc.model.messages.outcomes import Advanced, Finished, Slept, Suspended
from actorproc.model.policies import LockKey, TypeMeta
from tests.core.harness import CoreHarness, difference, image_of, restarted
from tests.core.test_limits_by_key import Limited

A, B, C = LockKey.write("a"), LockKey.write("b"), LockKey.write("c")
STEP = Advanced(state=b"1", yield_=True)
DONE = Finished(state=b"1")


def order(harness: CoreHarness) -> list[str]:
    """Procedures in the order in which steps were handed out."""
    return [name for name, _, _ in harness.order]


def inverted(**traits: object) -> CoreHarness:
    """One worker has ``low``, which holds ``a``; three of priority 5 are queued."""
    harness = CoreHarness(workers=1, **traits)
    harness.submit(harness.new("low", locks=(A,)))
    for number in range(3):
        harness.submit(harness.new(f"mid{number}", priority=5))
    return harness


def work_off(harness: CoreHarness, *, first: int = 0) -> list[str]:
    """End what is handed out, one by one; the names from place `first` on."""
    for _ in range(20):
        running = [name for name in harness.inbox if name in harness.core._state.workers.table.in_hand]
        if not running:
            break
        harness.answer(running[0], DONE)
    return order(harness)[first:]


@pytest.mark.parametrize("urgent", [0, 9])
def test_a_holder_goes_before_work_between_it_and_the_one_that_waits(urgent: int) -> None:
    harness = inverted()
    harness.submit(harness.new("high", priority=urgent, locks=(A,)))
    harness.answer("low", STEP)

    expected = ["low", "high", "mid0", "mid1", "mid2"] if urgent else ["mid0", "mid1", "mid2", "low", "high"]
    assert work_off(harness, first=1) == expected
    assert difference(harness) is None


def test_a_holder_that_is_queued_already_goes_to_the_front() -> None:
    harness = inverted()
    harness.answer("low", STEP)
    harness.submit(harness.new("high", priority=9, locks=(A,)))

    assert work_off(harness, first=1) == ["mid0", "low", "high", "mid1", "mid2"]
    assert difference(harness) is None


def chained(*, high_first: bool) -> CoreHarness:
    """``high`` waits for ``between``, and that one for ``low``, which is queued; ``mid0`` has one of the two workers."""
    harness = CoreHarness(workers=2)
    harness.submit(harness.new("low", locks=(A,)), harness.new("between", locks=(B,), priority=1))
    for number in range(3):
        harness.submit(harness.new(f"mid{number}", priority=5))
    high = harness.new("high", priority=9, locks=(B,))
    if high_first:
        harness.submit(high)
    harness.answer("between", Advanced(state=b"1", acquire=(A,)))
    if not high_first:
        harness.submit(high)
    return harness


@pytest.mark.parametrize("urgent", [0, 9])
@pytest.mark.parametrize("waits_before", [False, True])
def test_a_holder_that_waits_for_a_slot_goes_before_those_between(urgent: int, *, waits_before: bool) -> None:
    harness = Limited(workers=2, concurrency={"k": 1})
    harness.submit(harness.new("first", limit_keys=("k",)))
    harness.submit(harness.new("low", locks=(A,)))
    high, child = harness.new("high", priority=urgent, locks=(A,)), harness.new("child", limit_keys=("k",))
    harness.submit(*(harness.new(f"mid{number}", priority=5, limit_keys=("k",)) for number in range(2)))
    if not waits_before:
        harness.submit(high)
    harness.answer("low", Suspended(state=b"1", children=(child,)))
    if waits_before:
        harness.submit(high)
    harness.answer("first", DONE)

    expected = ["child", "mid0", "mid1"] if urgent else ["mid0", "mid1", "child"]
    assert [name for name in work_off(harness) if name in expected] == expected


@pytest.mark.parametrize("high_first", [False, True])
def test_it_passes_over_holders_that_wait_themselves_whichever_began_first(*, high_first: bool) -> None:
    harness = chained(high_first=high_first)
    harness.answer("low", STEP)

    found = order(harness)[2:]
    assert found == ["mid0", "low"]
    harness.answer("low", DONE)
    assert order(harness)[4] == "between"
    harness.answer("between", DONE)
    assert order(harness)[5] == "high"
    assert difference(harness) is None


@pytest.mark.parametrize("high_first", [False, True])
def test_a_restart_lends_to_all_of_a_chain(*, high_first: bool) -> None:
    harness = chained(high_first=high_first)
    again = restarted(harness, TypeMeta(type_name="T"))
    again.handle(WorkerReady(WorkerId(0, 1)))
    found = work_off(again)
    assert found.index("low") < found.index("between") < found.index("high") < found.index("mid1")


@pytest.mark.parametrize("urgent", [0, 9])
def test_one_that_is_granted_a_lock_inherits_what_was_lent_to_one_that_waits_for_it(urgent: int) -> None:
    harness = CoreHarness(workers=3)
    keys = {"first": A, "between": B, "second": C}
    harness.submit(*(harness.new(name, locks=(key,)) for name, key in keys.items()))
    for name in ("second", "between"):  # the second one waits for "first", and then for "second"
        harness.answer(name, Advanced(state=b"1", acquire=(A,)))
    harness.submit(harness.new("high", priority=urgent, locks=(B,)))
    for number in range(4):
        harness.submit(harness.new(f"mid{number}", priority=5))
    harness.answer("first", DONE)

    assert order(harness)[3:] == ["mid0", "mid1", "second" if urgent else "mid2"]
    if urgent:
        harness.answer("second", DONE)
        harness.answer("between", DONE)
        assert order(harness)[6] == "between"
        assert harness.core._state.locks.ranks == {}
    assert difference(harness) is None


def test_a_circle_of_trees_that_wait_for_each_other_lends_once() -> None:
    harness = CoreHarness(workers=3)
    harness.submit(harness.new("one", locks=(A,)), harness.new("two", locks=(B,)))
    harness.submit(harness.new("high", priority=9, locks=(A,)))
    harness.answer("one", Advanced(state=b"1", acquire=(B,)))
    harness.answer("two", Advanced(state=b"1", acquire=(A,)))
    found = work_off(harness)
    assert {"one", "high"} <= set(found)  # the younger of the circle gave way
    assert harness.core._state.locks.ranks == {}
    assert difference(harness) is None


def test_one_that_is_granted_the_lock_before_the_urgent_one_inherits_it() -> None:
    harness = inverted()
    harness.submit(harness.new("early", priority=1, locks=(A,)))
    harness.submit(harness.new("high", priority=9, locks=(A,)))
    harness.answer("low", DONE)

    assert work_off(harness, first=1) == ["early", "high", "mid0", "mid1", "mid2"]


def test_it_ends_with_the_last_lock() -> None:
    harness = inverted(lock_scope="step")
    harness.submit(harness.new("high", priority=9, locks=(A,)))
    harness.answer("low", STEP)

    assert work_off(harness, first=1) == ["high", "mid0", "mid1", "mid2", "low"]


@pytest.mark.parametrize("priority", [-5, 0])
def test_it_is_a_matter_of_who_is_more_urgent_also_below_zero(priority: int) -> None:
    harness = CoreHarness(workers=1)
    harness.submit(harness.new("low", locks=(A,), priority=-9))
    harness.submit(harness.new("mid", priority=-7), harness.new("high", locks=(A,), priority=priority))
    harness.answer("low", STEP)
    assert work_off(harness, first=1) == ["low", "high", "mid"]


def test_a_waiter_that_leaves_is_forgotten() -> None:
    harness = inverted()
    harness.submit(harness.new("high", priority=9, locks=(A,)))
    harness.handle(AbortRequested("high", 7))
    assert harness.core._state.locks.waiters == {}
    harness.answer("low", DONE)
    harness.submit(harness.new("next", locks=(A,)))
    assert work_off(harness, first=1) == ["mid0", "mid1", "mid2", "next"]
    assert difference(harness) is None


@pytest.mark.parametrize("is_cold", [False, True])
def test_a_restart_lends_again(*, is_cold: bool) -> None:
    harness = inverted()
    harness.answer("low", Slept(state=b"1", seconds=5.0) if is_cold else STEP)
    harness.submit(harness.new("high", priority=9, locks=(A,)))
    again = restarted(harness, TypeMeta(type_name="T"))
    again.now = 6.0
    again.handle(Tick())
    again.handle(WorkerReady(WorkerId(0, 1)))
    assert again.core.view("low") is not None
    found = work_off(again)
    assert found.index("low") < found.index("high") < found.index("mid1")


def test_a_holder_that_left_memory_inherits_when_it_comes_back() -> None:
    harness = inverted()
    harness.answer("low", Slept(state=b"1", seconds=5.0))
    harness.core.settle(harness.core.seal())
    assert harness.core.view("low") is None
    harness.submit(harness.new("high", priority=9, locks=(A,)))
    harness.now = 6.0
    assert harness.core.missing(Tick(), 6.0) == ("low",)
    harness.core.load([image_of(harness).heads["low"]], [])
    harness.handle(Tick())
    assert work_off(harness, first=1) == ["mid0", "low", "high", "mid1", "mid2"]
