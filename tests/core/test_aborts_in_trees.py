"""Aborts in trees: which procedure is asked, in which order, and which answers count."""

from __future__ import annotations

import pytest

from actorproc.errors import NotAllowed
from actorproc.model.ids import Mode, WorkerId
from actorproc.model.messages.commands import (
    Reply,
)
from actorproc.model.messages.events import (
    AbortRequested,
    BypassRequested,
    CrashReport,
    DeleteRequested,
    StepEnded,
    StepReturned,
    WorkerLost,
    WorkerReady,
)
from actorproc.model.messages.outcomes import (
    Advanced,
    Answered,
    Finished,
    Outcome,
    Refused,
    Slept,
    Suspended,
    Waited,
)
from actorproc.model.states import Phase, ProcedureState
from tests.core.harness import CoreHarness, boom, difference, later, restarted

DONE = Finished(state=b"")
SUCCESS = ProcedureState.SUCCESS
ROLLEDBACK = ProcedureState.ROLLEDBACK
FAILED = ProcedureState.FAILED


def test_an_abort_that_could_not_be_asked_is_asked_when_the_class_is_registered_again() -> None:
    harness = CoreHarness(asks_abort=True)
    harness.submit(harness.new("p"))
    harness.answer("p", Waited(state=b"", event="go"))
    harness.handle(AbortRequested("p", reply=1))
    harness.answer("p", Refused(reason="load() raised"))
    assert harness.core.phase(harness.core.view("p"))[0] is Phase.PARKED

    harness.register("T", asks_abort=True)

    assert harness.inbox["p"].token.mode is Mode.ASK_ABORT


def test_aborting_a_suspended_parent_ends_its_running_child_first_and_cancels_the_queued_one() -> None:
    harness = CoreHarness(workers=1, rollback_supported=True)
    harness.submit(harness.new("p", unit="one"))
    harness.answer(
        "p", Suspended(state=b"", children=(harness.new("a", unit=""), harness.new("b", unit="")), unit="two")
    )

    harness.handle(AbortRequested("p", reply=1))
    assert [run.token.mode for run in harness.inbox.values()] == [Mode.EXECUTE]
    harness.answer("a", Finished(state=b"", elapsed=1.0))

    assert harness.undo_all() == ["a:", "p:one"]
    assert harness.resolved() == dict.fromkeys(("b", "a", "p"), ProcedureState.ROLLEDBACK)


def test_the_answer_to_an_abort_question_comes_after_the_last_child_ended() -> None:
    harness = CoreHarness(workers=2)
    harness.register("A", asks_abort=True)
    harness.submit(harness.new("p", "A"))
    harness.answer("p", Suspended(state=b"", children=(harness.new("c"),)))
    harness.handle(AbortRequested("p", reply=1))
    assert harness.inbox["p"].token.mode is Mode.ASK_ABORT
    harness.answer("c", DONE)

    harness.answer("p", Answered(allowed=False))

    assert (harness.inbox["p"].token.mode, harness.inbox["p"].token.step) == (Mode.EXECUTE, 2)


def _asked(harness: CoreHarness, name: str) -> bool:
    return name in harness.inbox and harness.inbox[name].token.mode is Mode.ASK_ABORT


def test_an_abort_that_came_in_the_last_step_does_not_keep_a_parent_that_may_refuse_from_its_end() -> None:
    harness = CoreHarness(3, rollback_supported=True, asks_abort=True)
    harness.register("C", rollback_supported=True)
    harness.submit(harness.new("r", unit=""))
    children = (harness.new("quick", "C", unit=""), harness.new("slow", "C", unit=""))
    harness.answer("r", Suspended(state=b"", children=children, wait="any"))
    harness.answer("quick", DONE)

    harness.handle(AbortRequested("r", 2))
    harness.answer("r", DONE)

    assert not _asked(harness, "r")
    harness.answer("slow", DONE)
    assert harness.undo_all() == ["slow:"]
    assert harness.resolved() == {"quick": SUCCESS, "r": SUCCESS, "slow": ROLLEDBACK}


def test_who_is_being_bypassed_fails_for_no_old_abort_when_its_class_is_registered_anew() -> None:
    harness = CoreHarness(3)
    harness.register("Asked", asks_abort=True)
    harness.submit(harness.new("r"))
    harness.answer("r", Suspended(state=b"", children=(harness.new("p", "Asked"),)))
    harness.answer("p", Suspended(state=b"", children=(harness.new("quick"), harness.new("slow")), wait="any"))
    harness.answer("quick", DONE)
    harness.handle(AbortRequested("p", 2))
    harness.answer("p", Refused(reason="it cannot be loaded"))
    harness.handle(BypassRequested("p", 3, children=True, force=True))
    (kill,) = harness.kills()

    harness.register("Asked")  # one that is not asked
    harness.kill(kill.worker.slot)
    harness.answer("r", DONE)

    assert harness.resolved() == dict.fromkeys(("r", "p", "quick", "slow"), SUCCESS)


def test_who_has_ended_while_it_was_asked_about_its_abort_is_not_parked_for_the_answer() -> None:
    harness = CoreHarness(3, asks_abort=True)
    harness.register("C")
    harness.submit(harness.new("r"))
    harness.answer("r", Suspended(state=b"", children=(harness.new("c", "C"),)))
    harness.handle(AbortRequested("r", 2))
    harness.answer("c", boom())
    assert _asked(harness, "r")

    harness.answer("r", Refused(reason="not today"))

    r = harness.core.view("r")
    assert r is not None
    assert (r.state, r.parked) == (FAILED, None)


@pytest.mark.parametrize("how", ["allowed", "refused", "lost"])
def test_nobody_answers_for_the_abort_of_one_that_had_its_id_before(how: str) -> None:
    harness = CoreHarness(3, asks_abort=True)
    harness.register("C")
    harness.submit(harness.new("r"))
    harness.answer("r", Suspended(state=b"", children=(harness.new("c", "C"),)))
    harness.handle(AbortRequested("r", 2))
    harness.answer("c", boom())
    asked = harness.inbox["r"].token
    assert asked.mode is Mode.ASK_ABORT
    # It does not end before it has answered, so it keeps its id.
    refused = harness.handle(DeleteRequested("r", 3)).commands[0]
    assert isinstance(refused, Reply)
    assert isinstance(refused.error, NotAllowed)

    if how == "lost":
        harness.kill(asked.worker.slot)
    else:
        harness.answer("r", Refused(reason="not today") if how == "refused" else Answered(allowed=True))

    assert harness.state("r") is FAILED
    harness.handle(DeleteRequested("r", 4))
    harness.submit(harness.new("r"))
    assert (harness.inbox["r"].token.mode, harness.inbox["r"].token.step) == (Mode.EXECUTE, 1)
    assert not harness.inbox["r"].warm
    assert difference(harness) is None


@pytest.mark.parametrize("is_returned", [False, True])
def test_the_undo_of_a_tree_goes_on_when_one_that_ended_while_it_was_asked_to_abort_is_answered_for(
    is_returned: bool,
) -> None:
    harness = CoreHarness(5, rollback_supported=True)
    harness.register("Asked", rollback_supported=True, asks_abort=True)
    harness.register("Root", rollback_supported=True, on_child_failure="resume")
    harness.submit(harness.new("root", "Root", unit="u"))
    harness.answer("root", Suspended(state=b"", children=(harness.new("p", "Asked"),)))
    harness.answer("p", Suspended(state=b"", children=(harness.new("failing"),)))
    # Given: a worker is asking it, and meanwhile what it waits for has failed.
    harness.handle(AbortRequested("p", 2))
    question = harness.inbox.pop("p").token
    assert question.mode is Mode.ASK_ABORT
    harness.answer("failing", boom())
    assert "root" not in harness.inbox

    harness.handle(StepReturned(question) if is_returned else StepEnded(question, Answered(allowed=False)))

    assert harness.state("p") is ProcedureState.ROLLEDBACK
    harness.answer("root", boom())
    assert harness.undo_all() == ["root:u"]
    assert "root" in harness.resolved()


@pytest.mark.parametrize("outcome", [later(), Refused(reason="another version"), Advanced(state=b"")])
def test_an_answer_that_comes_before_the_kill_does_not_save_one_that_is_aborted_by_force(outcome: Outcome) -> None:
    harness = CoreHarness(1, asks_abort=True)
    harness.submit(harness.new("p"))
    harness.answer("p", Advanced(state=b""))
    harness.handle(AbortRequested("p", 2, force=True))

    harness.answer("p", outcome)

    assert harness.resolved()["p"] is ProcedureState.FAILED
    assert not harness.inbox


@pytest.mark.parametrize("way", ["refused", "lost", "returned"])
def test_who_is_aborted_by_force_while_it_is_asked_cannot_refuse(way: str) -> None:
    harness = CoreHarness(1, asks_abort=True)
    harness.submit(harness.new("p"))
    harness.answer("p", Waited(state=b"", event="never"))
    harness.handle(AbortRequested("p", 2))
    question = harness.inbox.pop("p").token
    harness.handle(AbortRequested("p", 3, force=True))

    if way == "refused":
        harness.handle(StepEnded(question, Answered(allowed=False)))
    elif way == "returned":
        harness.handle(StepReturned(question))
    else:
        harness.handle(WorkerLost(WorkerId(0, 1), CrashReport(kind="host", message="its host is gone"), crashed=False))

    assert harness.resolved()["p"] is ProcedureState.FAILED


@pytest.mark.parametrize("pause", [Slept(state=b"", seconds=9.0), Waited(state=b"", event="never")])
def test_a_class_without_abort_is_not_asked_whatever_it_had_before_the_restart(pause: Outcome) -> None:
    harness = CoreHarness(1, asks_abort=True)
    harness.submit(harness.new("p"))
    harness.answer("p", pause)
    harness.handle(AbortRequested("p", 2))
    assert harness.inbox["p"].token.mode is Mode.ASK_ABORT

    again = restarted(harness, after=1.0)
    again.register("T")

    assert again.resolved()["p"] is ProcedureState.FAILED
    again.handle(WorkerReady(WorkerId(0, 2)))
    assert not again.inbox
