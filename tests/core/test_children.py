"""Waiting for some of the children, ends that leave children outstanding, and quotas."""

from __future__ import annotations

from typing import Literal

from actorproc.core.coordinator import Coordinator
from actorproc.model.ids import WorkerId
from actorproc.model.messages.commands import AskAbort
from actorproc.model.messages.events import StepEnded, Submitted, TypeRegistered, WorkerReady
from actorproc.model.messages.outcomes import Advanced, Finished, Suspended
from actorproc.model.policies import LockKey, Quotas, TypeMeta
from actorproc.model.rows.records import NewProcedure
from actorproc.model.rows.snapshot import RecoverySnapshot
from actorproc.model.states import ProcedureState
from tests.core.harness import CoreHarness, boom

DONE = Finished(state=b"")


def _suspend(
    *children: NewProcedure,
    wait: Literal["all", "any", "each"] = "all",
    max_parallel: int | None = None,
    on_parent_end: Literal["abort", "leave"] = "abort",
) -> Suspended:
    return Suspended(
        state=b"", children=children, unit="", wait=wait, max_parallel=max_parallel, on_parent_end=on_parent_end
    )


def _three(harness: CoreHarness, **how: object) -> None:
    harness.submit(harness.new("p", unit=""))
    children = (harness.new(name, unit="") for name in ("a", "b", "c"))
    harness.answer("p", _suspend(*children, **how))  # type: ignore[arg-type]


def test_any_resumes_the_parent_with_the_first_child_that_finishes() -> None:
    harness = CoreHarness(workers=4)
    _three(harness, wait="any")

    harness.answer("b", DONE)

    record = harness.core.view("p")
    assert record is not None
    assert harness.inbox["p"].children_step == 1
    assert (record.seen, record.pending) == (1, 2)
    child = harness.core.view("b")
    assert child is not None
    assert child.ended_as == 1


def test_each_resumes_it_again_and_again_and_an_end_that_came_meanwhile_is_not_missed() -> None:
    harness = CoreHarness(workers=4)
    _three(harness, wait="each")
    harness.answer("b", DONE)
    harness.answer("c", DONE)

    harness.answer("p", _suspend(wait="each"))
    assert harness.inbox["p"].token.step == 3, "c had finished while the parent was running"
    harness.answer("p", _suspend(wait="each"))
    assert "p" not in harness.inbox
    harness.answer("a", DONE)
    assert harness.inbox["p"].token.step == 4
    harness.answer("p", _suspend(wait="each"))
    assert harness.inbox["p"].token.step == 5, "nothing is outstanding any more"


def test_suspending_on_nothing_joins_the_children_that_are_outstanding() -> None:
    harness = CoreHarness(workers=4)
    _three(harness, wait="any")
    harness.answer("a", DONE)

    harness.answer("p", _suspend())
    assert "p" not in harness.inbox
    harness.answer("b", DONE)
    assert "p" not in harness.inbox
    harness.answer("c", DONE)

    assert harness.inbox["p"].children_step == 1, "the outcomes of the whole group are seen"


def test_a_parent_that_says_done_ends_at_once_and_its_outstanding_children_are_undone_behind_it() -> None:
    harness = CoreHarness(workers=4, rollback_supported=True)
    _three(harness, wait="any")
    harness.answer("a", DONE)

    running = [harness.inbox[name].token for name in "bc"]
    decision = harness.answer("p", DONE)
    assert harness.state("p") is ProcedureState.SUCCESS
    assert [command.token for command in decision.commands if isinstance(command, AskAbort)] == running
    harness.answer("b", Advanced(state=b"", unit=""))
    harness.answer("c", DONE)
    undone = harness.undo_all()

    assert sorted(undone) == ["b:", "c:"]
    assert harness.resolved() == {
        "a": ProcedureState.SUCCESS,
        "b": ProcedureState.ROLLEDBACK,
        "c": ProcedureState.ROLLEDBACK,
        "p": ProcedureState.SUCCESS,
    }


def test_children_that_are_left_outlive_their_parent_with_their_locks_and_fail_alone() -> None:
    harness = CoreHarness(workers=4, rollback_supported=True)
    harness.submit(harness.new("p", unit=""))
    key = (LockKey.write("t"),)
    harness.answer(
        "p",
        _suspend(harness.new("a", unit=""), harness.new("b", unit="", locks=key), wait="any", on_parent_end="leave"),
    )
    harness.answer("a", DONE)

    harness.answer("p", DONE)
    assert harness.resolved()["p"] is ProcedureState.SUCCESS
    harness.submit(harness.new("stranger", locks=key))
    assert "stranger" not in harness.inbox
    harness.answer("b", boom())

    assert harness.undo_all() == ["b:"]
    assert harness.state("b") is ProcedureState.ROLLEDBACK
    assert "stranger" in harness.inbox


def test_children_kept_back_by_max_parallel_run_after_their_parent_left_them() -> None:
    harness = CoreHarness(workers=4)
    _three(harness, wait="any", max_parallel=1, on_parent_end="leave")
    assert set(harness.inbox) == {"a"}
    harness.answer("a", DONE)
    assert set(harness.inbox) == {"p", "b"}

    harness.answer("p", DONE)

    assert set(harness.inbox) == {"b", "c"}


def test_max_parallel_counts_children_of_the_whole_group() -> None:
    harness = CoreHarness(workers=4)
    harness.submit(harness.new("p"))
    harness.answer("p", _suspend(harness.new("a"), harness.new("b"), wait="any", max_parallel=2))
    harness.answer("a", DONE)

    harness.answer("p", _suspend(harness.new("c"), harness.new("d"), max_parallel=2))

    assert set(harness.inbox) == {"b", "c"}


def test_a_failure_undoes_outstanding_children_with_the_rest() -> None:
    harness = CoreHarness(workers=4, rollback_supported=True)
    _three(harness, wait="any")
    harness.answer("a", DONE)
    harness.answer("b", DONE)
    harness.answer("c", DONE)

    harness.answer("p", boom())

    assert harness.undo_all() == ["c:", "b:", "a:", "p:"]


def test_quotas_fail_the_step_that_would_exceed_them() -> None:
    for quotas, words in (
        (Quotas(depth=0), "deeper than 0"),
        (Quotas(children=2), "more than the 2"),
        (Quotas(tree=3), "more than 3"),
    ):
        core, _ = Coordinator.restore(RecoverySnapshot(1, 1, 1, [], [], [], [], [], []), 0.0, quotas=quotas)
        core.handle(TypeRegistered(TypeMeta(type_name="T")), 0.0)
        core.handle(WorkerReady(WorkerId(0, 1)), 0.0)
        harness = CoreHarness()
        harness.core = core
        harness.handle(Submitted((harness.new("p"),), reply=1))
        harness.handle(StepEnded(harness.inbox["p"].token, _suspend(*(harness.new(name) for name in "abc"))))

        record = core.view("p")
        assert record is not None
        assert record.error is not None
        assert words in record.error.message
        assert core.view("a") is None


def test_children_that_were_left_behind_and_wait_for_each_other_are_found() -> None:
    harness = CoreHarness(workers=4, rollback_supported=True)
    x, y = LockKey.write("x"), LockKey.write("y")
    harness.submit(harness.new("p", unit=""))
    children = (
        harness.new("first", unit=""),
        harness.new("a", unit="", locks=(x,)),
        harness.new("b", unit="", locks=(y,)),
    )
    harness.answer("p", _suspend(*children, wait="any", on_parent_end="leave"))
    harness.answer("first", DONE)
    harness.answer("p", DONE)

    harness.answer("a", Advanced(state=b"", unit="", acquire=(y,)))
    harness.answer("b", Advanced(state=b"", unit="", acquire=(x,)))

    assert len(harness.undo_all()) == 1
    assert [run for run in harness.inbox if run in ("a", "b")], "the other one goes on"
