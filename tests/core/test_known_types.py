"""A start that knows the classes already: their procedures queue at once, in their old order."""

from __future__ import annotations

from actorproc.model.ids import WorkerId
from actorproc.model.messages.events import AbortRequested, TypeRegistered, WorkerReady
from actorproc.model.messages.outcomes import Refused
from actorproc.model.policies import LockKey, TypeMeta
from actorproc.model.states import ProcedureState
from tests.core.harness import CoreHarness, difference, restarted

A, B = TypeMeta(type_name="A"), TypeMeta(type_name="B")


def _hire(harness: CoreHarness, workers: int) -> None:
    for slot in range(workers):
        harness.handle(WorkerReady(WorkerId(slot, 2)))


def _two_types(workers: int = 0) -> CoreHarness:
    harness = CoreHarness(workers)
    harness.register("A")
    harness.register("B")
    return harness


def test_procedures_of_several_classes_go_on_in_the_order_in_which_they_were_submitted() -> None:
    harness = _two_types()
    harness.submit(*(harness.new(f"p-{number}", "AB"[number % 2]) for number in range(6)))

    again = restarted(harness, B, A)
    _hire(again, 6)

    assert [procedure for procedure, _, _ in again.order] == [f"p-{number}" for number in range(6)]
    assert difference(again) is None
    order = list(again.order)
    again.handle(TypeRegistered(B))
    again.handle(TypeRegistered(A))
    assert again.order == order


def test_a_class_that_is_not_known_yet_keeps_its_procedures_parked() -> None:
    harness = _two_types()
    harness.submit(harness.new("a", "A"), harness.new("b", "B"))

    again = restarted(harness, B)
    _hire(again, 2)

    assert list(again.inbox) == ["b"]
    again.handle(TypeRegistered(A))
    assert sorted(again.inbox) == ["a", "b"]


def test_who_was_refused_goes_on_when_its_class_is_told_of() -> None:
    harness = _two_types(1)
    harness.submit(harness.new("a", "A"))
    harness.answer("a", Refused(reason="its module cannot be imported"))

    again = restarted(harness, A)
    _hire(again, 2)

    assert not again.inbox
    again.handle(TypeRegistered(A))
    assert list(again.inbox) == ["a"]


def test_locks_are_asked_for_in_the_old_order_whatever_class_they_are_for() -> None:
    harness = _two_types(1)
    lock = (LockKey.write("table"),)
    for number, name in enumerate("ABAB"):
        harness.submit(harness.new(f"p-{number}", name, locks=lock))

    again = restarted(harness, B, A)

    assert [one.procedure for one in again.core.lock_waiters()] == ["p-1", "p-2", "p-3"]
    assert difference(again) is None


def test_an_abort_that_was_asked_for_before_the_start_is_carried_out_either_way() -> None:
    harness = _two_types(2)
    harness.submit(harness.new("a", "A"), harness.new("b", "B"))
    harness.handle(AbortRequested("a", 2))

    ends = []
    for types in ((), (A, B)):
        again = restarted(harness, *types)
        again.handle(TypeRegistered(A))
        again.handle(TypeRegistered(B))
        _hire(again, 1)
        ends.append((again.state("a"), list(again.inbox)))
        assert difference(again) is None

    assert ends == [(ProcedureState.FAILED, ["b"])] * 2
