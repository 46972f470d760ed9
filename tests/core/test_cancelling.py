"""Running forward steps whose undo is decided: told at once, killed by force or when their time is over, never again."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from actorproc.core.coordinator import Coordinator
from actorproc.model.ids import Mode, StepToken, WorkerId
from actorproc.model.messages.commands import AskAbort, Decision, KillWorker, RunStep, TakeBack
from actorproc.model.messages.events import (
    AbortRequested,
    BypassRequested,
    CrashReport,
    RetryRequested,
    RollbackRequested,
    StepDelayed,
    StepReturned,
    Tick,
    WorkerLost,
    WorkerReady,
)
from actorproc.model.messages.outcomes import Advanced, Answered, Finished, Outcome, Slept, Suspended
from actorproc.model.policies import Backoff, LockKey, LockMode, Scheduling, StepLimits, TypeMeta
from actorproc.model.states import Phase, ProcedureState
from tests.core.harness import CoreHarness, boom, difference, image_of, later

DONE = Finished(state=b"")
ROLLEDBACK, SUCCESS = ProcedureState.ROLLEDBACK, ProcedureState.SUCCESS


def _told(decision: Decision) -> set[str]:
    return {command.token.procedure for command in decision.commands if isinstance(command, AskAbort)}


def _killed(decision: Decision) -> set[str]:
    return {command.token.procedure for command in decision.commands if isinstance(command, KillWorker)}


def _tree(workers: int = 6, **traits: object) -> CoreHarness:
    """A root with two children that run, one of which is a parent that waits for two that run."""
    harness = CoreHarness(workers, rollback_supported=True, **traits)
    harness.submit(harness.new("root", unit="r"))
    children = (harness.new("leaf", unit="l"), harness.new("mid", unit="m"))
    harness.answer("root", Suspended(state=b"", children=children, unit="r2"))
    harness.answer("mid", Suspended(state=b"", children=(harness.new("one", unit="o"), harness.new("two", unit="t"))))
    assert {"leaf", "one", "two"} <= harness.inbox.keys()
    return harness


def _bury(harness: CoreHarness, token: StepToken, kind: str = "timeout") -> Decision:
    """The worker of a step is dead, killed for it."""
    return harness.handle(WorkerLost(token.worker, CrashReport(kind=kind, message="killed"), blamed=token))


# ---------------------------------------------------------------- every cause tells
def _miss_the_deadline(harness: CoreHarness) -> Decision:
    harness.now = 50.0
    return harness.handle(Tick())


CAUSES: dict[str, tuple[Callable[[CoreHarness], Decision], set[str]]] = {
    "abort of the root": (lambda harness: harness.handle(AbortRequested("root", 2)), {"leaf", "one", "two"}),
    "abort of a parent": (lambda harness: harness.handle(AbortRequested("mid", 2)), {"leaf", "one", "two"}),
    "rollback of the root": (lambda harness: harness.handle(RollbackRequested("root", 2)), {"leaf", "one", "two"}),
    "failure of a child": (lambda harness: harness.answer("leaf", boom()), {"one", "two"}),
    "failure of a grandchild": (lambda harness: harness.answer("one", boom()), {"leaf", "two"}),
}


@pytest.mark.parametrize("cause", CAUSES)
def test_every_cause_tells_every_running_step_at_once(cause: str) -> None:
    happens, concerned = CAUSES[cause]
    harness = _tree()

    decision = happens(harness)

    assert _told(decision) == concerned
    assert not _killed(decision)
    assert difference(harness) is None
    for name in concerned:
        harness.answer(name, Advanced(state=b"", unit="next"))
    harness.undo_all()
    assert harness.state("root") is ROLLEDBACK


def test_the_abort_of_a_child_under_a_parent_that_takes_failures_tells_nobody_else() -> None:
    harness = CoreHarness(4, rollback_supported=True)
    harness.register("R", rollback_supported=True, on_child_failure="resume")
    harness.submit(harness.new("root", "R", unit="r"))
    harness.answer("root", Suspended(state=b"", children=(harness.new("a", unit="a"), harness.new("b", unit="b"))))

    assert _told(harness.handle(AbortRequested("a", 2))) == {"a"}
    assert not _told(harness.answer("a", Advanced(state=b"", unit="a2")))


def test_a_class_that_is_asked_tells_its_own_step_and_its_descendants_when_it_has_agreed() -> None:
    harness = _tree()
    harness.register("Asked", rollback_supported=True, asks_abort=True)
    harness.submit(harness.new("p", "Asked", unit="p"))
    harness.answer(
        "p", Suspended(state=b"", children=(harness.new("c", unit="c"), harness.new("d", unit="d")), wait="any")
    )
    harness.answer("d", DONE)
    assert "p" in harness.inbox

    assert _told(harness.handle(AbortRequested("p", 2))) == {"p"}
    assert not _told(harness.answer("p", Advanced(state=b"", unit="p2")))
    assert harness.inbox["p"].token.mode is Mode.ASK_ABORT
    assert _told(harness.answer("p", Answered(allowed=True))) == {"c"}


def test_an_abort_of_a_running_parent_reaches_its_running_children_at_once() -> None:
    harness = CoreHarness(4, rollback_supported=True)
    harness.submit(harness.new("p", unit="p"))
    harness.answer(
        "p", Suspended(state=b"", children=(harness.new("c", unit="c"), harness.new("d", unit="d")), wait="any")
    )
    harness.answer("d", DONE)

    assert _told(harness.handle(AbortRequested("p", 2))) == {"p", "c"}
    harness.answer("p", DONE)
    harness.answer("c", DONE)

    assert harness.undo_all() == ["d:d", "c:c", "p:p"]
    assert harness.state("p") is ROLLEDBACK


def test_who_is_alone_and_ends_well_in_the_step_that_was_told_has_succeeded() -> None:
    harness = CoreHarness(1, rollback_supported=True)
    harness.submit(harness.new("p", unit="p"))

    assert _told(harness.handle(AbortRequested("p", 2))) == {"p"}
    harness.answer("p", DONE)

    assert harness.resolved() == {"p": SUCCESS}


def test_telling_twice_is_telling_once() -> None:
    harness = _tree()
    harness.handle(AbortRequested("root", 2))

    assert not _told(harness.handle(AbortRequested("mid", 3)))
    assert not _told(harness.answer("leaf", boom()))


def test_a_step_that_has_not_begun_is_told_and_taken_back_and_does_not_run() -> None:
    harness = CoreHarness(1, rollback_supported=True)
    # Given: one worker with two short steps in hand.
    harness.core._state.workers.table._expected["T"] = 0.001
    harness.submit(harness.new("root", unit="r"))
    harness.answer("root", Suspended(state=b"", children=(harness.new("a", unit="a"), harness.new("b", unit="b"))))
    behind = harness.inbox["b"].token

    decision = harness.handle(AbortRequested("root", 2))

    assert _told(decision) == {"a", "b"}
    assert [command for command in decision.commands if isinstance(command, TakeBack)] == [
        TakeBack(WorkerId(0, 1), (behind,))
    ]
    harness.handle(StepReturned(behind))
    harness.answer("a", DONE)
    assert harness.undo_all() == ["b:b", "a:a", "root:r"]


def test_the_abort_of_one_that_has_not_begun_takes_effect_when_it_comes_back() -> None:
    harness = CoreHarness(1, rollback_supported=True)
    harness.core._state.workers.table._expected["T"] = 0.001
    harness.submit(harness.new("a", unit="a"), harness.new("b", unit="b"))

    harness.handle(AbortRequested("b", 2))
    harness.handle(StepReturned(harness.inbox.pop("b").token))
    harness.answer("a", DONE)

    assert harness.undo_all() == ["b:b"]
    assert harness.state("b") is ROLLEDBACK


def test_a_step_that_was_told_and_is_sent_again_is_told_again() -> None:
    harness = _tree()
    harness.handle(AbortRequested("root", 2))

    decision = harness.handle(StepDelayed(harness.inbox["leaf"].token))

    assert [command.aborting for command in decision.commands if type(command).__name__ == "SendAgain"] == [True]


@pytest.mark.parametrize("is_charged", [True, False])
@pytest.mark.parametrize("asks_abort", [False, True])
def test_a_step_that_was_told_and_whose_worker_died_is_not_begun_again(is_charged: bool, asks_abort: bool) -> None:
    harness = CoreHarness(2, rollback_supported=True, asks_abort=asks_abort, abort_grace=1.0)
    harness.submit(harness.new("p", unit="p"))
    assert _told(harness.handle(AbortRequested("p", 2))) == {"p"}
    token = harness.inbox.pop("p").token

    report = CrashReport(kind="signal", message="killed")
    harness.handle(WorkerLost(token.worker, report, crashed=is_charged))

    assert image_of(harness).heads["p"].errors == 0
    assert harness.inbox["p"].token.mode is (Mode.ASK_ABORT if asks_abort else Mode.ROLLBACK)
    if asks_abort:
        harness.answer("p", Answered(allowed=True))
    assert harness.undo_all() == ["p:p"]
    assert (harness.state("p"), difference(harness)) == (ROLLEDBACK, None)


def test_a_crash_past_the_point_of_no_return_begins_the_step_again_whatever_was_asked() -> None:
    harness = CoreHarness(2, rollback_supported=True)
    harness.submit(harness.new("p", unit="p"))
    harness.answer("p", Advanced(state=b"", unit="q", no_return=True))
    harness.handle(AbortRequested("p", 2))

    _bury(harness, harness.inbox.pop("p").token, "signal")

    assert harness.inbox["p"].token.mode is Mode.EXECUTE


# ---------------------------------------------------------------- force
FORCED: dict[str, tuple[tuple[str, ...], str, set[str]]] = {
    "the root": ((), "root", {"leaf", "one", "two"}),
    "a parent that waits": ((), "mid", {"one", "two"}),
    "a member": ((), "leaf", {"leaf"}),
    "the root that is undone already": (("root",), "root", {"leaf", "one", "two"}),
    "a parent in a tree that is undone already": (("root",), "mid", {"one", "two"}),
    "a member of a tree that is undone already": (("root",), "two", {"two"}),
}


@pytest.mark.parametrize("which", FORCED)
def test_force_kills_the_running_steps_of_whom_it_names_and_those_below(which: str) -> None:
    before, target, concerned = FORCED[which]
    harness = _tree()
    for name in before:
        harness.handle(AbortRequested(name, 2))

    decision = harness.handle(AbortRequested(target, 3, force=True))

    assert _killed(decision) == concerned
    assert difference(harness) is None
    running = {name: run.token for name, run in harness.inbox.items() if run.token.mode is Mode.EXECUTE}
    for name in concerned:
        _bury(harness, running[name])
        assert not any(
            run.token.mode is Mode.EXECUTE and run.token != running.get(run.token.procedure)
            for run in harness.inbox.values()
        )
    for name in {"leaf", "one", "two"} - concerned:
        harness.answer(name, Advanced(state=b"", unit="next"))
    harness.inbox = {name: run for name, run in harness.inbox.items() if run.token.mode is Mode.ROLLBACK}
    undone = harness.undo_all()
    assert sorted(undone) == ["leaf:l", "mid:m", "one:o", "root:r", "two:t"]
    for name in ("leaf", "one", "two"):
        head = image_of(harness).heads[name]
        assert (head.state, head.errors, head.crashes, head.step > 1) == (ROLLEDBACK, 0, 0, name not in concerned)


def test_a_kill_by_force_is_charged_to_nothing_and_the_step_is_undone_and_not_tried_again() -> None:
    harness = CoreHarness(2, rollback_supported=True)
    harness.submit(harness.new("p", unit="first"))
    harness.answer("p", Advanced(state=b"", unit="second"))
    token = harness.inbox.pop("p").token

    assert _killed(harness.handle(AbortRequested("p", 2, force=True))) == {"p"}
    _bury(harness, token)

    assert harness.undo_all() == ["p:second", "p:first"]
    assert [mode for name, _, mode in harness.order if name == "p"] == ["EXECUTE", "EXECUTE", "ROLLBACK", "ROLLBACK"]
    head = image_of(harness).heads["p"]
    assert (head.errors, head.crashes, head.error and head.error.kind) == (0, 0, "aborted")


@pytest.mark.parametrize("outcome", [DONE, Advanced(state=b"2", unit="next"), Slept(state=b"2", seconds=9.0)])
def test_an_answer_that_came_before_the_kill_counts(outcome: Outcome) -> None:
    harness = _tree()
    harness.handle(AbortRequested("root", 2, force=True))

    harness.answer("leaf", outcome)

    head = image_of(harness).heads["leaf"]
    assert (head.step, head.rolling) == (2, True)
    for name in ("one", "two"):
        _bury(harness, harness.inbox.pop(name).token)
    assert sorted(harness.undo_all()) == ["leaf:l", "mid:m", "one:o", "root:r", "two:t"]


@pytest.mark.parametrize("outcome", [boom(), later()])
def test_a_step_that_fails_because_it_was_told_is_not_tried_again(outcome: Outcome) -> None:
    harness = _tree()
    harness.handle(AbortRequested("root", 2))

    for name in ("leaf", "one", "two"):
        harness.answer(name, outcome)

    assert not any(run.token.mode is Mode.EXECUTE for run in harness.inbox.values())
    harness.undo_all()
    assert harness.state("root") is ROLLEDBACK


def test_steps_that_run_beside_one_that_is_killed_start_again_uncharged() -> None:
    harness = CoreHarness(2, rollback_supported=True, threads=4)
    harness.submit(harness.new("a", unit="a"), harness.new("b", unit="b"))
    assert harness.inbox["a"].token.worker == harness.inbox["b"].token.worker

    harness.handle(AbortRequested("a", 2, force=True))
    token = harness.inbox.pop("a").token
    _bury(harness, token)

    again = harness.inbox["b"].token
    assert (again.mode, again.attempt) == (Mode.EXECUTE, 2)
    head = image_of(harness).heads["b"]
    assert (head.errors, head.crashes) == (0, 0)


def test_an_undo_that_runs_is_neither_told_nor_killed() -> None:
    harness = CoreHarness(2, rollback_supported=True)
    harness.submit(harness.new("root", unit="r"))
    harness.handle(RollbackRequested("root", 2))
    harness.answer("root", boom())
    assert harness.inbox["root"].token.mode is Mode.ROLLBACK

    decision = harness.handle(AbortRequested("root", 3, force=True))

    assert not _told(decision)
    assert not _killed(decision)
    assert harness.undo_all() == ["root:r"]


def test_a_step_past_the_point_of_no_return_is_neither_told_nor_killed_and_so_are_those_after_it() -> None:
    harness = CoreHarness(2, rollback_supported=True, abort_grace=1.0)
    harness.submit(harness.new("p", unit="p", no_return=True))

    for decision in (harness.handle(AbortRequested("p", 2)), harness.handle(AbortRequested("p", 3, force=True))):
        assert not _told(decision)
        assert not _killed(decision)
    harness.now = 9.0
    assert not _killed(harness.handle(Tick()))
    harness.answer("p", Advanced(state=b"", unit="q"))
    assert harness.inbox["p"].aborting is False
    harness.answer("p", DONE)
    assert harness.state("p") is SUCCESS


def test_a_child_of_a_parent_that_ends_past_the_point_of_no_return_goes_on_until_the_root_has_ended() -> None:
    harness = CoreHarness(4, rollback_supported=True)
    harness.submit(harness.new("root", unit="r", no_return=True))
    harness.answer("root", Suspended(state=b"", children=(harness.new("mid", unit="m"),)))
    children = (harness.new("fast", unit="f"), harness.new("slow", unit="s"))
    harness.answer("mid", Suspended(state=b"", children=children, wait="any"))
    harness.answer("fast", DONE)

    decision = harness.answer("mid", DONE)

    assert not _told(decision)
    assert harness.state("mid") is SUCCESS
    assert _told(harness.answer("root", DONE)) == {"slow"}
    harness.answer("slow", Advanced(state=b"", unit="s2"))
    assert harness.undo_all() == ["slow:s"]
    assert difference(harness) is None


# ---------------------------------------------------------------- abort_grace
@pytest.mark.parametrize("way", ["class", "submit", "config"])
def test_a_step_that_was_told_is_killed_when_its_time_is_over(way: str) -> None:
    harness = CoreHarness(3, rollback_supported=True, abort_grace=2.0 if way == "class" else None)
    if way == "config":
        harness.core._state.settings.scheduling = Scheduling(abort_grace=2.0)
    limits = StepLimits(abort_grace=2.0) if way == "submit" else None
    harness.submit(harness.new("p", unit="p", limits=limits))
    harness.now = 10.0
    assert _told(harness.handle(RollbackRequested("p", 2))) == {"p"}
    assert harness.core.next_deadline() == 12.0

    harness.now = 11.9
    assert not _killed(harness.handle(Tick()))
    harness.now = 12.0
    assert _killed(harness.handle(Tick())) == {"p"}

    _bury(harness, harness.inbox.pop("p").token)
    assert harness.undo_all() == ["p:p"]
    head = image_of(harness).heads["p"]
    assert (head.state, head.errors, head.crashes) == (ROLLEDBACK, 0, 0)


@pytest.mark.parametrize(
    ("of_class", "of_config", "killed_at"),
    [(None, None, None), (math.inf, 1.0, None), (3.0, 1.0, 3.0), (None, 1.0, 1.0), (0.0, None, 0.0)],
)
def test_the_time_of_the_class_goes_before_that_of_the_config(
    of_class: float | None, of_config: float | None, killed_at: float | None
) -> None:
    harness = CoreHarness(3, rollback_supported=True, abort_grace=of_class)
    harness.core._state.settings.scheduling = Scheduling(abort_grace=of_config)
    harness.submit(harness.new("p", unit="p"))

    decision = harness.handle(AbortRequested("p", 2))

    assert _killed(decision) == ({"p"} if killed_at == 0.0 else set())
    if killed_at:
        harness.now = killed_at
        assert _killed(harness.handle(Tick())) == {"p"}
    else:
        harness.now = 1e6
        assert not _killed(harness.handle(Tick()))


def test_a_class_that_may_refuse_is_given_time_from_the_decision_on() -> None:
    harness = CoreHarness(3, rollback_supported=True, abort_grace=1.0)
    harness.register("Asked", rollback_supported=True, asks_abort=True, abort_grace=1.0)
    harness.submit(harness.new("p", "Asked", unit="p"))
    harness.handle(AbortRequested("p", 2))
    harness.now = 5.0
    assert not _killed(harness.handle(Tick()))

    harness.answer("p", Suspended(state=b"", children=(harness.new("c", unit="c"),)))
    harness.handle(Tick())
    assert harness.inbox["p"].token.mode is Mode.ASK_ABORT
    assert _told(harness.answer("p", Answered(allowed=True))) == {"c"}
    harness.now = 5.9
    assert not _killed(harness.handle(Tick()))
    harness.now = 6.0
    assert _killed(harness.handle(Tick())) == {"c"}


def test_memory_that_was_lost_knows_again_who_was_told_when_and_who_is_being_killed() -> None:
    harness = _tree(abort_grace=4.0)
    harness.now = 1.0
    harness.handle(AbortRequested("root", 2))
    harness.now = 2.0
    harness.handle(AbortRequested("leaf", 3, force=True))
    running = {name: harness.inbox[name].token for name in ("leaf", "one", "two")}

    again = CoreHarness(0)
    again.now = 3.0
    living = [(WorkerReady(token.worker), (token,)) for token in running.values()]
    meta = TypeMeta(type_name="T", rollback_supported=True, abort_grace=4.0)
    again.core, decision = Coordinator.restore(image_of(harness).snapshot(), again.now, workers=living, types=[meta])

    assert _killed(decision) == {"leaf"}
    again.now = 4.9
    assert not _killed(again.handle(Tick()))
    again.now = 5.0
    assert _killed(again.handle(Tick())) == {"one", "two"}
    again.writes = [*harness.writes, *again.writes]
    _bury(again, running["one"])
    head = image_of(again).heads["one"]
    assert (head.errors, head.crashes, head.rolling) == (0, 0, True)


# ---------------------------------------------------------------- parents that end
def _race(harness: CoreHarness, *, locks: tuple[LockKey, ...] = ()) -> None:
    harness.submit(harness.new("race", unit="r", locks=(LockKey.write("track"),)))
    children = (
        harness.new("fast", unit="f"),
        harness.new("slow", unit="s", locks=locks),
        harness.new("held", unit="h"),
    )
    harness.answer("race", Suspended(state=b"", children=children, wait="any", max_parallel=2))
    harness.answer("fast", DONE)


def test_a_parent_that_resumes_with_the_first_child_cancels_nobody() -> None:
    harness = CoreHarness(4, rollback_supported=True)
    _race(harness)

    assert not any(isinstance(command, AskAbort | KillWorker) for command in harness.commands)


def test_a_parent_that_is_done_ends_at_once_and_its_children_keep_the_locks_they_named_until_they_are_undone() -> None:
    harness = CoreHarness(4, rollback_supported=True)
    key = LockKey.write("track/2")
    _race(harness, locks=(key,))

    decision = harness.answer("race", DONE)

    assert harness.resolved()["race"] is SUCCESS
    assert _told(decision) == {"slow", "held"}
    assert dict(harness.core.lock_holders()["slow"]) == {"track/2": LockMode.WRITE}
    assert image_of(harness).heads["race"].left_open
    harness.submit(harness.new("near", locks=(key,)), harness.new("far", locks=(LockKey.write("track/3"),)))
    assert "far" in harness.inbox
    assert "near" not in harness.inbox
    harness.answer("slow", DONE)
    harness.answer("held", DONE)
    assert sorted(harness.undo_all()) == ["held:h", "slow:s"]
    assert "near" in harness.inbox
    assert not image_of(harness).heads["race"].left_open
    assert difference(harness) is None


def test_a_child_that_cannot_be_undone_behind_its_parent_changes_nothing_of_it() -> None:
    harness = CoreHarness(4, rollback_supported=True, rollback_retry=Backoff(max_attempts=1))
    _race(harness)
    harness.answer("race", DONE)
    harness.answer("slow", boom())
    harness.answer("held", DONE)

    for name in ("slow", "held"):
        harness.answer(name, boom("no undo"))

    failed = dict.fromkeys(("slow", "held"), ProcedureState.FAILED)
    assert harness.resolved() == {"fast": SUCCESS, "race": SUCCESS, **failed}
    assert image_of(harness).heads["race"].error is None


def test_the_failure_of_the_tree_takes_over_what_is_undone_behind_a_parent_that_ended() -> None:
    harness = CoreHarness(6, rollback_supported=True)
    harness.submit(harness.new("root", unit="r"))
    harness.answer("root", Suspended(state=b"", children=(harness.new("p", unit="p"), harness.new("q", unit="q"))))
    harness.answer(
        "p", Suspended(state=b"", children=(harness.new("a", unit="a"), harness.new("b", unit="b")), wait="any")
    )
    harness.answer("a", DONE)
    harness.answer("p", DONE)

    harness.answer("q", boom())
    harness.answer("b", DONE)

    assert harness.undo_all() == ["b:b", "a:a", "q:q", "p:p", "root:r"]
    assert difference(harness) is None


def test_a_forced_abort_of_a_child_that_is_undone_behind_its_parent_kills_its_step() -> None:
    harness = CoreHarness(4, rollback_supported=True)
    _race(harness)
    harness.answer("race", DONE)

    assert _killed(harness.handle(AbortRequested("slow", 2, force=True))) == {"slow"}
    _bury(harness, harness.inbox.pop("slow").token)
    harness.answer("held", DONE)
    assert sorted(harness.undo_all()) == ["held:h", "slow:s"]


# ---------------------------------------------------------------- looking
def test_a_step_that_still_runs_is_named_as_what_its_undo_waits_for() -> None:
    harness = _tree()
    harness.handle(AbortRequested("root", 2))
    leaf = harness.core.view("leaf")
    assert leaf is not None

    phase, reason = harness.core.phase(leaf)

    assert phase is Phase.ROLLING_BACK
    assert reason is not None
    assert "step 1 still runs" in reason


def test_a_retry_forgets_that_a_step_was_cancelled() -> None:
    harness = CoreHarness(2)
    harness.submit(harness.new("p"))
    harness.handle(AbortRequested("p", 2))
    harness.answer("p", boom())
    assert harness.state("p") is ProcedureState.FAILED

    harness.handle(RetryRequested("p", 3))

    assert image_of(harness).heads["p"].cancelled_at is None
    assert isinstance(harness.commands[-1], RunStep) or "p" in harness.inbox


def test_a_step_of_one_that_is_bypassed_by_force_is_not_told() -> None:
    harness = CoreHarness(2, rollback_supported=True)
    harness.submit(harness.new("p", unit="p"))

    decision = harness.handle(BypassRequested("p", 2, force=True))

    assert not _told(decision)
    assert _killed(decision) == {"p"}
