"""Crowds that wait or fail together: the work for each does not grow with their number."""

from __future__ import annotations

from collections.abc import Callable

from actorproc.model.ids import Mode
from actorproc.model.messages.events import (
    AbortRequested,
)
from actorproc.model.messages.outcomes import Advanced, Finished, Suspended, Waited
from actorproc.model.policies import LockKey
from tests.core.harness import CoreHarness, boom, heads_of
from tests.kit.counting import calls_of

DONE = Finished(state=b"")
LOCK = LockKey.write("k")


def _calls_for_each(crowd: Callable[[int], None], size: int) -> float:
    calls, _ = calls_of(lambda: crowd(size))
    return calls / size


def test_siblings_queue_for_one_key_at_a_price_that_does_not_depend_on_their_number() -> None:
    def crowd(size: int) -> None:
        harness = CoreHarness(workers=2)
        harness.submit(harness.new("p"))
        children = tuple(harness.new(f"c{n}", locks=(LOCK,)) for n in range(size))
        harness.answer("p", Suspended(state=b"", children=children))
        while "p" not in harness.inbox:
            harness.answer(next(iter(harness.inbox)), DONE)

    assert _calls_for_each(crowd, 1000) < 1.5 * _calls_for_each(crowd, 100)


def test_two_families_of_one_tree_share_a_key_without_a_search_through_both_for_each() -> None:
    def crowd(size: int) -> None:
        harness = CoreHarness(workers=2)
        harness.submit(harness.new("root"))
        harness.answer("root", Suspended(state=b"", children=(harness.new("left"), harness.new("right"))))
        for side in ("left", "right"):
            children = tuple(harness.new(f"{side}{n}", locks=(LOCK,)) for n in range(size // 2))
            harness.answer(side, Suspended(state=b"", children=children))
        while "root" not in harness.inbox:
            harness.answer(next(iter(harness.inbox)), DONE)

    # 5,550 as it is; looking at every waiter of both families for each of them, takes far more.
    assert _calls_for_each(crowd, 1000) < 8000


def test_children_fail_one_by_one_under_a_parent_that_resumes() -> None:
    def crowd(size: int) -> None:
        harness = CoreHarness(workers=2, on_child_failure="resume", rollback_supported=True)
        harness.submit(harness.new("p"))
        children = tuple(harness.new(f"c{n}", unit="") for n in range(size))
        harness.answer("p", Suspended(state=b"", children=children))
        while "p" not in harness.inbox:
            name, run = next(iter(harness.inbox.items()))
            harness.answer(name, DONE if run.token.mode is Mode.ROLLBACK else boom())

    assert _calls_for_each(crowd, 1000) < 3 * _calls_for_each(crowd, 100)


def test_a_crowd_of_undos_waits_for_one_key_without_a_search_through_all_for_each() -> None:
    def crowd(size: int) -> None:
        harness = CoreHarness(workers=2, on_child_failure="resume", rollback_supported=True)
        harness.register("Step", rollback_supported=True, lock_scope="step")
        harness.submit(harness.new("p"))
        children = tuple(harness.new(f"c{n}", "Step", unit="u", locks=(LockKey.write("a"),)) for n in range(size))
        harness.answer("p", Suspended(state=b"", children=(*children, harness.new("keeper"))))
        for child in children:
            harness.answer(child.id, Waited(state=b"", event="never"))
        harness.answer("keeper", Advanced(state=b"", acquire=(LockKey.read("a/b"),)))
        for child in children:
            harness.handle(AbortRequested(child.id, 2, force=True))
        harness.answer("keeper", DONE)
        assert len(harness.undo_all()) == size

    # They take turns, so each costs what they are; to look at all of them for each pair would make that the square.
    assert _calls_for_each(crowd, 160) < 3 * _calls_for_each(crowd, 80)


def test_siblings_that_wait_for_each_other_by_two_keys_are_found_in_a_crowd() -> None:
    harness = CoreHarness(workers=8)
    harness.submit(harness.new("p"))
    a, b = LockKey.write("a"), LockKey.write("b")
    children = (harness.new("x", locks=(a,)), harness.new("y", locks=(b,)))
    harness.answer(
        "p", Suspended(state=b"", children=(*children, *(harness.new(f"c{n}", locks=(a,)) for n in range(50))))
    )

    harness.answer("x", Advanced(state=b"", acquire=(b,)))
    harness.answer("y", Advanced(state=b"", acquire=(a,)))

    assert "deadlock" in {record.error.kind for record in heads_of(harness).values() if record.error is not None}
