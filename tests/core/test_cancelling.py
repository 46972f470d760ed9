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
from tests.core.stage import Stage, boom, difference, image_of, later

DONE = Finished(state=b"")
ROLLEDBACK, SUCCESS = ProcedureState.ROLLEDBACK, ProcedureState.SUCCESS


def _told(decision: Decision) -> set[str]:
    return {command.token.procedure for command in decision.commands if isinstance(command, AskAbort)}


def _killed(decision: Decision) -> set[str]:
    return {command.token.procedure for command in decision.commands if isinstance(command, KillWorker)}


def _tree(workers: int = 6, **traits: object) -> Stage:
    """A root with two children that run, one of which is a parent that waits for two that run."""
    stage = Stage(workers, rollback_supported=True, **traits)
    stage.submit(stage.new("root", unit="r"))
    children = (stage.new("leaf", unit="l"), stage.new("mid", unit="m"))
    stage.answer("root", Suspended(state=b"", children=children, unit="r2"))
    stage.answer("mid", Suspended(state=b"", children=(stage.new("one", unit="o"), stage.new("two", unit="t"))))
    assert {"leaf", "one", "two"} <= stage.inbox.keys()
    return stage


def _bury(stage: Stage, token: StepToken, kind: str = "timeout") -> Decision:
    """The worker of a step is dead, killed for it."""
    return stage.handle(WorkerLost(token.worker, CrashReport(kind=kind, message="killed"), blamed=token))


# ---------------------------------------------------------------- every cause tells
def _miss_the_deadline(stage: Stage) -> Decision:
    stage.now = 50.0
    return stage.handle(Tick())


CAUSES: dict[str, tuple[Callable[[Stage], Decision], set[str]]] = {
    "abort of the root": (lambda stage: stage.handle(AbortRequested("root", 2)), {"leaf", "one", "two"}),
    "abort of a parent": (lambda stage: stage.handle(AbortRequested("mid", 2)), {"leaf", "one", "two"}),
    "rollback of the root": (lambda stage: stage.handle(RollbackRequested("root", 2)), {"leaf", "one", "two"}),
    "failure of a child": (lambda stage: stage.answer("leaf", boom()), {"one", "two"}),
    "failure of a grandchild": (lambda stage: stage.answer("one", boom()), {"leaf", "two"}),
}


@pytest.mark.parametrize("cause", CAUSES)
def test_every_cause_tells_every_running_step_at_once(cause: str) -> None:
    happens, concerned = CAUSES[cause]
    stage = _tree()

    decision = happens(stage)

    assert _told(decision) == concerned
    assert not _killed(decision)
    assert difference(stage) is None
    for name in concerned:
        stage.answer(name, Advanced(state=b"", unit="next"))
    stage.undo_all()
    assert stage.state("root") is ROLLEDBACK


def test_the_abort_of_a_child_under_a_parent_that_takes_failures_tells_nobody_else() -> None:
    stage = Stage(4, rollback_supported=True)
    stage.register("R", rollback_supported=True, on_child_failure="resume")
    stage.submit(stage.new("root", "R", unit="r"))
    stage.answer("root", Suspended(state=b"", children=(stage.new("a", unit="a"), stage.new("b", unit="b"))))

    assert _told(stage.handle(AbortRequested("a", 2))) == {"a"}
    assert not _told(stage.answer("a", Advanced(state=b"", unit="a2")))


def test_a_class_that_is_asked_tells_its_own_step_and_its_descendants_when_it_has_agreed() -> None:
    stage = _tree()
    stage.register("Asked", rollback_supported=True, asks_abort=True)
    stage.submit(stage.new("p", "Asked", unit="p"))
    stage.answer("p", Suspended(state=b"", children=(stage.new("c", unit="c"), stage.new("d", unit="d")), wait="any"))
    stage.answer("d", DONE)
    assert "p" in stage.inbox

    assert _told(stage.handle(AbortRequested("p", 2))) == {"p"}
    assert not _told(stage.answer("p", Advanced(state=b"", unit="p2")))
    assert stage.inbox["p"].token.mode is Mode.ASK_ABORT
    assert _told(stage.answer("p", Answered(allowed=True))) == {"c"}


def test_an_abort_of_a_running_parent_reaches_its_running_children_at_once() -> None:
    stage = Stage(4, rollback_supported=True)
    stage.submit(stage.new("p", unit="p"))
    stage.answer("p", Suspended(state=b"", children=(stage.new("c", unit="c"), stage.new("d", unit="d")), wait="any"))
    stage.answer("d", DONE)

    assert _told(stage.handle(AbortRequested("p", 2))) == {"p", "c"}
    stage.answer("p", DONE)
    stage.answer("c", DONE)

    assert stage.undo_all() == ["d:d", "c:c", "p:p"]
    assert stage.state("p") is ROLLEDBACK


def test_who_is_alone_and_ends_well_in_the_step_that_was_told_has_succeeded() -> None:
    stage = Stage(1, rollback_supported=True)
    stage.submit(stage.new("p", unit="p"))

    assert _told(stage.handle(AbortRequested("p", 2))) == {"p"}
    stage.answer("p", DONE)

    assert stage.resolved() == {"p": SUCCESS}


def test_telling_twice_is_telling_once() -> None:
    stage = _tree()
    stage.handle(AbortRequested("root", 2))

    assert not _told(stage.handle(AbortRequested("mid", 3)))
    assert not _told(stage.answer("leaf", boom()))


def test_a_step_that_has_not_begun_is_told_and_taken_back_and_does_not_run() -> None:
    stage = Stage(1, rollback_supported=True)
    # Given: one worker with two short steps in hand.
    stage.core._state.worker_table._expected["T"] = 0.001
    stage.submit(stage.new("root", unit="r"))
    stage.answer("root", Suspended(state=b"", children=(stage.new("a", unit="a"), stage.new("b", unit="b"))))
    behind = stage.inbox["b"].token

    decision = stage.handle(AbortRequested("root", 2))

    assert _told(decision) == {"a", "b"}
    assert [command for command in decision.commands if isinstance(command, TakeBack)] == [
        TakeBack(WorkerId(0, 1), (behind,))
    ]
    stage.handle(StepReturned(behind))
    stage.answer("a", DONE)
    assert stage.undo_all() == ["b:b", "a:a", "root:r"]


def test_the_abort_of_one_that_has_not_begun_takes_effect_when_it_comes_back() -> None:
    stage = Stage(1, rollback_supported=True)
    stage.core._state.worker_table._expected["T"] = 0.001
    stage.submit(stage.new("a", unit="a"), stage.new("b", unit="b"))

    stage.handle(AbortRequested("b", 2))
    stage.handle(StepReturned(stage.inbox.pop("b").token))
    stage.answer("a", DONE)

    assert stage.undo_all() == ["b:b"]
    assert stage.state("b") is ROLLEDBACK


def test_a_step_that_was_told_and_is_sent_again_is_told_again() -> None:
    stage = _tree()
    stage.handle(AbortRequested("root", 2))

    decision = stage.handle(StepDelayed(stage.inbox["leaf"].token))

    assert [command.aborting for command in decision.commands if type(command).__name__ == "SendAgain"] == [True]


@pytest.mark.parametrize("is_charged", [True, False])
@pytest.mark.parametrize("asks_abort", [False, True])
def test_a_step_that_was_told_and_whose_worker_died_is_not_begun_again(is_charged: bool, asks_abort: bool) -> None:
    stage = Stage(2, rollback_supported=True, asks_abort=asks_abort, abort_grace=1.0)
    stage.submit(stage.new("p", unit="p"))
    assert _told(stage.handle(AbortRequested("p", 2))) == {"p"}
    token = stage.inbox.pop("p").token

    report = CrashReport(kind="signal", message="killed")
    stage.handle(WorkerLost(token.worker, report, crashed=is_charged))

    assert image_of(stage).heads["p"].errors == 0
    assert stage.inbox["p"].token.mode is (Mode.ASK_ABORT if asks_abort else Mode.ROLLBACK)
    if asks_abort:
        stage.answer("p", Answered(allowed=True))
    assert stage.undo_all() == ["p:p"]
    assert (stage.state("p"), difference(stage)) == (ROLLEDBACK, None)


def test_a_crash_past_the_point_of_no_return_begins_the_step_again_whatever_was_asked() -> None:
    stage = Stage(2, rollback_supported=True)
    stage.submit(stage.new("p", unit="p"))
    stage.answer("p", Advanced(state=b"", unit="q", no_return=True))
    stage.handle(AbortRequested("p", 2))

    _bury(stage, stage.inbox.pop("p").token, "signal")

    assert stage.inbox["p"].token.mode is Mode.EXECUTE


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
    stage = _tree()
    for name in before:
        stage.handle(AbortRequested(name, 2))

    decision = stage.handle(AbortRequested(target, 3, force=True))

    assert _killed(decision) == concerned
    assert difference(stage) is None
    running = {name: run.token for name, run in stage.inbox.items() if run.token.mode is Mode.EXECUTE}
    for name in concerned:
        _bury(stage, running[name])
        assert not any(
            run.token.mode is Mode.EXECUTE and run.token != running.get(run.token.procedure)
            for run in stage.inbox.values()
        )
    for name in {"leaf", "one", "two"} - concerned:
        stage.answer(name, Advanced(state=b"", unit="next"))
    stage.inbox = {name: run for name, run in stage.inbox.items() if run.token.mode is Mode.ROLLBACK}
    undone = stage.undo_all()
    assert sorted(undone) == ["leaf:l", "mid:m", "one:o", "root:r", "two:t"]
    for name in ("leaf", "one", "two"):
        head = image_of(stage).heads[name]
        assert (head.state, head.errors, head.crashes, head.step > 1) == (ROLLEDBACK, 0, 0, name not in concerned)


def test_a_kill_by_force_is_charged_to_nothing_and_the_step_is_undone_and_not_tried_again() -> None:
    stage = Stage(2, rollback_supported=True)
    stage.submit(stage.new("p", unit="first"))
    stage.answer("p", Advanced(state=b"", unit="second"))
    token = stage.inbox.pop("p").token

    assert _killed(stage.handle(AbortRequested("p", 2, force=True))) == {"p"}
    _bury(stage, token)

    assert stage.undo_all() == ["p:second", "p:first"]
    assert [mode for name, _, mode in stage.order if name == "p"] == ["EXECUTE", "EXECUTE", "ROLLBACK", "ROLLBACK"]
    head = image_of(stage).heads["p"]
    assert (head.errors, head.crashes, head.error and head.error.kind) == (0, 0, "aborted")


@pytest.mark.parametrize("outcome", [DONE, Advanced(state=b"2", unit="next"), Slept(state=b"2", seconds=9.0)])
def test_an_answer_that_came_before_the_kill_counts(outcome: Outcome) -> None:
    stage = _tree()
    stage.handle(AbortRequested("root", 2, force=True))

    stage.answer("leaf", outcome)

    head = image_of(stage).heads["leaf"]
    assert (head.step, head.rolling) == (2, True)
    for name in ("one", "two"):
        _bury(stage, stage.inbox.pop(name).token)
    assert sorted(stage.undo_all()) == ["leaf:l", "mid:m", "one:o", "root:r", "two:t"]


@pytest.mark.parametrize("outcome", [boom(), later()])
def test_a_step_that_fails_because_it_was_told_is_not_tried_again(outcome: Outcome) -> None:
    stage = _tree()
    stage.handle(AbortRequested("root", 2))

    for name in ("leaf", "one", "two"):
        stage.answer(name, outcome)

    assert not any(run.token.mode is Mode.EXECUTE for run in stage.inbox.values())
    stage.undo_all()
    assert stage.state("root") is ROLLEDBACK


def test_steps_that_run_beside_one_that_is_killed_start_again_uncharged() -> None:
    stage = Stage(2, rollback_supported=True, threads=4)
    stage.submit(stage.new("a", unit="a"), stage.new("b", unit="b"))
    assert stage.inbox["a"].token.worker == stage.inbox["b"].token.worker

    stage.handle(AbortRequested("a", 2, force=True))
    token = stage.inbox.pop("a").token
    _bury(stage, token)

    again = stage.inbox["b"].token
    assert (again.mode, again.attempt) == (Mode.EXECUTE, 2)
    head = image_of(stage).heads["b"]
    assert (head.errors, head.crashes) == (0, 0)


def test_an_undo_that_runs_is_neither_told_nor_killed() -> None:
    stage = Stage(2, rollback_supported=True)
    stage.submit(stage.new("root", unit="r"))
    stage.handle(RollbackRequested("root", 2))
    stage.answer("root", boom())
    assert stage.inbox["root"].token.mode is Mode.ROLLBACK

    decision = stage.handle(AbortRequested("root", 3, force=True))

    assert not _told(decision)
    assert not _killed(decision)
    assert stage.undo_all() == ["root:r"]


def test_a_step_past_the_point_of_no_return_is_neither_told_nor_killed_and_so_are_those_after_it() -> None:
    stage = Stage(2, rollback_supported=True, abort_grace=1.0)
    stage.submit(stage.new("p", unit="p", no_return=True))

    for decision in (stage.handle(AbortRequested("p", 2)), stage.handle(AbortRequested("p", 3, force=True))):
        assert not _told(decision)
        assert not _killed(decision)
    stage.now = 9.0
    assert not _killed(stage.handle(Tick()))
    stage.answer("p", Advanced(state=b"", unit="q"))
    assert stage.inbox["p"].aborting is False
    stage.answer("p", DONE)
    assert stage.state("p") is SUCCESS


def test_a_child_of_a_parent_that_ends_past_the_point_of_no_return_goes_on_until_the_root_has_ended() -> None:
    stage = Stage(4, rollback_supported=True)
    stage.submit(stage.new("root", unit="r", no_return=True))
    stage.answer("root", Suspended(state=b"", children=(stage.new("mid", unit="m"),)))
    children = (stage.new("fast", unit="f"), stage.new("slow", unit="s"))
    stage.answer("mid", Suspended(state=b"", children=children, wait="any"))
    stage.answer("fast", DONE)

    decision = stage.answer("mid", DONE)

    assert not _told(decision)
    assert stage.state("mid") is SUCCESS
    assert _told(stage.answer("root", DONE)) == {"slow"}
    stage.answer("slow", Advanced(state=b"", unit="s2"))
    assert stage.undo_all() == ["slow:s"]
    assert difference(stage) is None


# ---------------------------------------------------------------- abort_grace
@pytest.mark.parametrize("way", ["class", "submit", "config"])
def test_a_step_that_was_told_is_killed_when_its_time_is_over(way: str) -> None:
    stage = Stage(3, rollback_supported=True, abort_grace=2.0 if way == "class" else None)
    if way == "config":
        stage.core._state.scheduling = Scheduling(abort_grace=2.0)
    limits = StepLimits(abort_grace=2.0) if way == "submit" else None
    stage.submit(stage.new("p", unit="p", limits=limits))
    stage.now = 10.0
    assert _told(stage.handle(RollbackRequested("p", 2))) == {"p"}
    assert stage.core.next_deadline() == 12.0

    stage.now = 11.9
    assert not _killed(stage.handle(Tick()))
    stage.now = 12.0
    assert _killed(stage.handle(Tick())) == {"p"}

    _bury(stage, stage.inbox.pop("p").token)
    assert stage.undo_all() == ["p:p"]
    head = image_of(stage).heads["p"]
    assert (head.state, head.errors, head.crashes) == (ROLLEDBACK, 0, 0)


@pytest.mark.parametrize(
    ("of_class", "of_config", "killed_at"),
    [(None, None, None), (math.inf, 1.0, None), (3.0, 1.0, 3.0), (None, 1.0, 1.0), (0.0, None, 0.0)],
)
def test_the_time_of_the_class_goes_before_that_of_the_config(
    of_class: float | None, of_config: float | None, killed_at: float | None
) -> None:
    stage = Stage(3, rollback_supported=True, abort_grace=of_class)
    stage.core._state.scheduling = Scheduling(abort_grace=of_config)
    stage.submit(stage.new("p", unit="p"))

    decision = stage.handle(AbortRequested("p", 2))

    assert _killed(decision) == ({"p"} if killed_at == 0.0 else set())
    if killed_at:
        stage.now = killed_at
        assert _killed(stage.handle(Tick())) == {"p"}
    else:
        stage.now = 1e6
        assert not _killed(stage.handle(Tick()))


def test_a_class_that_may_refuse_is_given_time_from_the_decision_on() -> None:
    stage = Stage(3, rollback_supported=True, abort_grace=1.0)
    stage.register("Asked", rollback_supported=True, asks_abort=True, abort_grace=1.0)
    stage.submit(stage.new("p", "Asked", unit="p"))
    stage.handle(AbortRequested("p", 2))
    stage.now = 5.0
    assert not _killed(stage.handle(Tick()))

    stage.answer("p", Suspended(state=b"", children=(stage.new("c", unit="c"),)))
    stage.handle(Tick())
    assert stage.inbox["p"].token.mode is Mode.ASK_ABORT
    assert _told(stage.answer("p", Answered(allowed=True))) == {"c"}
    stage.now = 5.9
    assert not _killed(stage.handle(Tick()))
    stage.now = 6.0
    assert _killed(stage.handle(Tick())) == {"c"}


def test_memory_that_was_lost_knows_again_who_was_told_when_and_who_is_being_killed() -> None:
    stage = _tree(abort_grace=4.0)
    stage.now = 1.0
    stage.handle(AbortRequested("root", 2))
    stage.now = 2.0
    stage.handle(AbortRequested("leaf", 3, force=True))
    running = {name: stage.inbox[name].token for name in ("leaf", "one", "two")}

    again = Stage(0)
    again.now = 3.0
    living = [(WorkerReady(token.worker), (token,)) for token in running.values()]
    meta = TypeMeta(type_name="T", rollback_supported=True, abort_grace=4.0)
    again.core, decision = Coordinator.restore(image_of(stage).snapshot(), again.now, workers=living, types=[meta])

    assert _killed(decision) == {"leaf"}
    again.now = 4.9
    assert not _killed(again.handle(Tick()))
    again.now = 5.0
    assert _killed(again.handle(Tick())) == {"one", "two"}
    again.writes = [*stage.writes, *again.writes]
    _bury(again, running["one"])
    head = image_of(again).heads["one"]
    assert (head.errors, head.crashes, head.rolling) == (0, 0, True)


# ---------------------------------------------------------------- parents that end
def _race(stage: Stage, *, locks: tuple[LockKey, ...] = ()) -> None:
    stage.submit(stage.new("race", unit="r", locks=(LockKey.write("track"),)))
    children = (stage.new("fast", unit="f"), stage.new("slow", unit="s", locks=locks), stage.new("held", unit="h"))
    stage.answer("race", Suspended(state=b"", children=children, wait="any", max_parallel=2))
    stage.answer("fast", DONE)


def test_a_parent_that_resumes_with_the_first_child_cancels_nobody() -> None:
    stage = Stage(4, rollback_supported=True)
    _race(stage)

    assert not any(isinstance(command, AskAbort | KillWorker) for command in stage.commands)


def test_a_parent_that_is_done_ends_at_once_and_its_children_keep_the_locks_they_named_until_they_are_undone() -> None:
    stage = Stage(4, rollback_supported=True)
    key = LockKey.write("track/2")
    _race(stage, locks=(key,))

    decision = stage.answer("race", DONE)

    assert stage.resolved()["race"] is SUCCESS
    assert _told(decision) == {"slow", "held"}
    assert dict(stage.core.lock_holders()["slow"]) == {"track/2": LockMode.WRITE}
    assert image_of(stage).heads["race"].left_open
    stage.submit(stage.new("near", locks=(key,)), stage.new("far", locks=(LockKey.write("track/3"),)))
    assert "far" in stage.inbox
    assert "near" not in stage.inbox
    stage.answer("slow", DONE)
    stage.answer("held", DONE)
    assert sorted(stage.undo_all()) == ["held:h", "slow:s"]
    assert "near" in stage.inbox
    assert not image_of(stage).heads["race"].left_open
    assert difference(stage) is None


def test_a_child_that_cannot_be_undone_behind_its_parent_changes_nothing_of_it() -> None:
    stage = Stage(4, rollback_supported=True, rollback_retry=Backoff(max_attempts=1))
    _race(stage)
    stage.answer("race", DONE)
    stage.answer("slow", boom())
    stage.answer("held", DONE)

    for name in ("slow", "held"):
        stage.answer(name, boom("no undo"))

    failed = dict.fromkeys(("slow", "held"), ProcedureState.FAILED)
    assert stage.resolved() == {"fast": SUCCESS, "race": SUCCESS, **failed}
    assert image_of(stage).heads["race"].error is None


def test_the_failure_of_the_tree_takes_over_what_is_undone_behind_a_parent_that_ended() -> None:
    stage = Stage(6, rollback_supported=True)
    stage.submit(stage.new("root", unit="r"))
    stage.answer("root", Suspended(state=b"", children=(stage.new("p", unit="p"), stage.new("q", unit="q"))))
    stage.answer("p", Suspended(state=b"", children=(stage.new("a", unit="a"), stage.new("b", unit="b")), wait="any"))
    stage.answer("a", DONE)
    stage.answer("p", DONE)

    stage.answer("q", boom())
    stage.answer("b", DONE)

    assert stage.undo_all() == ["b:b", "a:a", "q:q", "p:p", "root:r"]
    assert difference(stage) is None


def test_a_forced_abort_of_a_child_that_is_undone_behind_its_parent_kills_its_step() -> None:
    stage = Stage(4, rollback_supported=True)
    _race(stage)
    stage.answer("race", DONE)

    assert _killed(stage.handle(AbortRequested("slow", 2, force=True))) == {"slow"}
    _bury(stage, stage.inbox.pop("slow").token)
    stage.answer("held", DONE)
    assert sorted(stage.undo_all()) == ["held:h", "slow:s"]


# ---------------------------------------------------------------- looking
def test_a_step_that_still_runs_is_named_as_what_its_undo_waits_for() -> None:
    stage = _tree()
    stage.handle(AbortRequested("root", 2))
    leaf = stage.core.view("leaf")
    assert leaf is not None

    phase, reason = stage.core.phase(leaf)

    assert phase is Phase.ROLLING_BACK
    assert reason is not None
    assert "step 1 still runs" in reason


def test_a_retry_forgets_that_a_step_was_cancelled() -> None:
    stage = Stage(2)
    stage.submit(stage.new("p"))
    stage.handle(AbortRequested("p", 2))
    stage.answer("p", boom())
    assert stage.state("p") is ProcedureState.FAILED

    stage.handle(RetryRequested("p", 3))

    assert image_of(stage).heads["p"].cancelled_at is None
    assert isinstance(stage.commands[-1], RunStep) or "p" in stage.inbox


def test_a_step_of_one_that_is_bypassed_by_force_is_not_told() -> None:
    stage = Stage(2, rollback_supported=True)
    stage.submit(stage.new("p", unit="p"))

    decision = stage.handle(BypassRequested("p", 2, force=True))

    assert not _told(decision)
    assert _killed(decision) == {"p"}
