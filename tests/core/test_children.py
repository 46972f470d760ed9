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
from tests.core.stage import Stage, boom

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


def _three(stage: Stage, **how: object) -> None:
    stage.submit(stage.new("p", unit=""))
    children = (stage.new(name, unit="") for name in ("a", "b", "c"))
    stage.answer("p", _suspend(*children, **how))  # type: ignore[arg-type]


def test_any_resumes_the_parent_with_the_first_child_that_finishes() -> None:
    stage = Stage(workers=4)
    _three(stage, wait="any")

    stage.answer("b", DONE)

    record = stage.core.view("p")
    assert record is not None
    assert stage.inbox["p"].children_step == 1
    assert (record.seen, record.pending) == (1, 2)
    child = stage.core.view("b")
    assert child is not None
    assert child.ended_as == 1


def test_each_resumes_it_again_and_again_and_an_end_that_came_meanwhile_is_not_missed() -> None:
    stage = Stage(workers=4)
    _three(stage, wait="each")
    stage.answer("b", DONE)
    stage.answer("c", DONE)

    stage.answer("p", _suspend(wait="each"))
    assert stage.inbox["p"].token.step == 3, "c had finished while the parent was running"
    stage.answer("p", _suspend(wait="each"))
    assert "p" not in stage.inbox
    stage.answer("a", DONE)
    assert stage.inbox["p"].token.step == 4
    stage.answer("p", _suspend(wait="each"))
    assert stage.inbox["p"].token.step == 5, "nothing is outstanding any more"


def test_suspending_on_nothing_joins_the_children_that_are_outstanding() -> None:
    stage = Stage(workers=4)
    _three(stage, wait="any")
    stage.answer("a", DONE)

    stage.answer("p", _suspend())
    assert "p" not in stage.inbox
    stage.answer("b", DONE)
    assert "p" not in stage.inbox
    stage.answer("c", DONE)

    assert stage.inbox["p"].children_step == 1, "the outcomes of the whole group are seen"


def test_a_parent_that_says_done_ends_at_once_and_its_outstanding_children_are_undone_behind_it() -> None:
    stage = Stage(workers=4, rollback_supported=True)
    _three(stage, wait="any")
    stage.answer("a", DONE)

    running = [stage.inbox[name].token for name in "bc"]
    decision = stage.answer("p", DONE)
    assert stage.state("p") is ProcedureState.SUCCESS
    assert [command.token for command in decision.commands if isinstance(command, AskAbort)] == running
    stage.answer("b", Advanced(state=b"", unit=""))
    stage.answer("c", DONE)
    undone = stage.undo_all()

    assert sorted(undone) == ["b:", "c:"]
    assert stage.resolved() == {
        "a": ProcedureState.SUCCESS,
        "b": ProcedureState.ROLLEDBACK,
        "c": ProcedureState.ROLLEDBACK,
        "p": ProcedureState.SUCCESS,
    }


def test_children_that_are_left_outlive_their_parent_with_their_locks_and_fail_alone() -> None:
    stage = Stage(workers=4, rollback_supported=True)
    stage.submit(stage.new("p", unit=""))
    key = (LockKey.write("t"),)
    stage.answer(
        "p", _suspend(stage.new("a", unit=""), stage.new("b", unit="", locks=key), wait="any", on_parent_end="leave")
    )
    stage.answer("a", DONE)

    stage.answer("p", DONE)
    assert stage.resolved()["p"] is ProcedureState.SUCCESS
    stage.submit(stage.new("stranger", locks=key))
    assert "stranger" not in stage.inbox
    stage.answer("b", boom())

    assert stage.undo_all() == ["b:"]
    assert stage.state("b") is ProcedureState.ROLLEDBACK
    assert "stranger" in stage.inbox


def test_children_kept_back_by_max_parallel_run_after_their_parent_left_them() -> None:
    stage = Stage(workers=4)
    _three(stage, wait="any", max_parallel=1, on_parent_end="leave")
    assert set(stage.inbox) == {"a"}
    stage.answer("a", DONE)
    assert set(stage.inbox) == {"p", "b"}

    stage.answer("p", DONE)

    assert set(stage.inbox) == {"b", "c"}


def test_max_parallel_counts_children_of_the_whole_group() -> None:
    stage = Stage(workers=4)
    stage.submit(stage.new("p"))
    stage.answer("p", _suspend(stage.new("a"), stage.new("b"), wait="any", max_parallel=2))
    stage.answer("a", DONE)

    stage.answer("p", _suspend(stage.new("c"), stage.new("d"), max_parallel=2))

    assert set(stage.inbox) == {"b", "c"}


def test_a_failure_undoes_outstanding_children_with_the_rest() -> None:
    stage = Stage(workers=4, rollback_supported=True)
    _three(stage, wait="any")
    stage.answer("a", DONE)
    stage.answer("b", DONE)
    stage.answer("c", DONE)

    stage.answer("p", boom())

    assert stage.undo_all() == ["c:", "b:", "a:", "p:"]


def test_quotas_fail_the_step_that_would_exceed_them() -> None:
    for quotas, words in (
        (Quotas(depth=0), "deeper than 0"),
        (Quotas(children=2), "more than the 2"),
        (Quotas(tree=3), "more than 3"),
    ):
        core, _ = Coordinator.restore(RecoverySnapshot(1, 1, 1, [], [], [], [], [], []), 0.0, quotas=quotas)
        core.handle(TypeRegistered(TypeMeta(type_name="T")), 0.0)
        core.handle(WorkerReady(WorkerId(0, 1)), 0.0)
        stage = Stage()
        stage.core = core
        stage.handle(Submitted((stage.new("p"),), reply=1))
        stage.handle(StepEnded(stage.inbox["p"].token, _suspend(*(stage.new(name) for name in "abc"))))

        record = core.view("p")
        assert record is not None
        assert record.error is not None
        assert words in record.error.message
        assert core.view("a") is None


def test_children_that_were_left_behind_and_wait_for_each_other_are_found() -> None:
    stage = Stage(workers=4, rollback_supported=True)
    x, y = LockKey.write("x"), LockKey.write("y")
    stage.submit(stage.new("p", unit=""))
    children = (stage.new("first", unit=""), stage.new("a", unit="", locks=(x,)), stage.new("b", unit="", locks=(y,)))
    stage.answer("p", _suspend(*children, wait="any", on_parent_end="leave"))
    stage.answer("first", DONE)
    stage.answer("p", DONE)

    stage.answer("a", Advanced(state=b"", unit="", acquire=(y,)))
    stage.answer("b", Advanced(state=b"", unit="", acquire=(x,)))

    assert len(stage.undo_all()) == 1
    assert [run for run in stage.inbox if run in ("a", "b")], "the other one goes on"
