"""What careful reading found in combinations that random histories seldom meet, each as the shortest story of it."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from msgspec.structs import replace

from actorproc.core.coordinator import Coordinator
from actorproc.errors import KeyPoisoned, NotAllowed
from actorproc.model.ids import Mode, WorkerId
from actorproc.model.messages.commands import KillWorker, Reply, StartWorker
from actorproc.model.messages.events import (
    AbortRequested,
    BypassRequested,
    CrashReport,
    DeleteRequested,
    PauseRequested,
    PoisonCleared,
    Published,
    ResumeRequested,
    RetryRequested,
    Signalled,
    Tick,
    TypeRegistered,
    WorkerLost,
    WorkerReady,
)
from actorproc.model.messages.outcomes import Advanced, Answered, Finished, Poisoned, Refused, Suspended, Waited
from actorproc.model.policies import LockKey, LockMode, LockScope, Quotas, Scheduling, StepLimits, TypeMeta
from actorproc.model.rows.records import ErrorInfo, NewProcedure, Wait
from actorproc.model.rows.snapshot import RecoverySnapshot
from actorproc.model.states import ProcedureState
from tests.core.stage import Stage, boom, difference, image_of, later

DONE = Finished(state=b"")
FAILED = ProcedureState.FAILED
RUNNABLE = ProcedureState.RUNNABLE
SUCCESS = ProcedureState.SUCCESS
ROLLEDBACK = ProcedureState.ROLLEDBACK
KEY = (LockKey.write("k"),)


def _held(stage: Stage) -> dict[str, Mapping[str, LockMode]]:
    return dict(stage.core.lock_holders())


def _asked(stage: Stage, name: str) -> bool:
    return name in stage.inbox and stage.inbox[name].token.mode is Mode.ASK_ABORT


def _fail_with_a_child_that_held_the_key(stage: Stage) -> None:
    """Root ``r`` of ``a``, which ran under the key and failed, while ``b`` ran; nothing of them can be undone."""
    stage.submit(stage.new("r"))
    stage.answer("r", Suspended(state=b"", children=(stage.new("a", locks=KEY), stage.new("b"))))
    stage.answer("a", Advanced(state=b""))
    stage.answer("a", boom())


def test_who_says_poisoned_when_its_tree_fails_already_is_not_undone() -> None:
    stage = Stage(3, rollback_supported=True)
    stage.submit(stage.new("r", unit=""))
    stage.answer("r", Suspended(state=b"", children=(stage.new("a", unit=""), stage.new("b", unit=""))))

    stage.answer("a", boom())
    half_done = ErrorInfo("poisoned", "Poisoned", "half done")
    stage.answer("b", Poisoned(state=b"", keys=("k",), error=half_done))

    assert stage.undo_all() == ["a:", "r:"]
    assert stage.resolved() == {"r": ROLLEDBACK, "a": ROLLEDBACK, "b": FAILED}
    b = stage.core.view("b")
    assert b is not None
    assert b.error == half_done


def test_an_abort_that_came_in_the_last_step_does_not_keep_a_parent_that_may_refuse_from_its_end() -> None:
    stage = Stage(3, rollback_supported=True, asks_abort=True)
    stage.register("C", rollback_supported=True)
    stage.submit(stage.new("r", unit=""))
    children = (stage.new("quick", "C", unit=""), stage.new("slow", "C", unit=""))
    stage.answer("r", Suspended(state=b"", children=children, wait="any"))
    stage.answer("quick", DONE)

    stage.handle(AbortRequested("r", 2))
    stage.answer("r", DONE)

    assert not _asked(stage, "r")
    stage.answer("slow", DONE)
    assert stage.undo_all() == ["slow:"]
    assert stage.resolved() == {"quick": SUCCESS, "r": SUCCESS, "slow": ROLLEDBACK}


def test_a_retry_takes_again_what_a_finished_child_left_to_a_parent_without_anything_to_undo() -> None:
    stage = Stage(3)
    stage.register("Undoable", rollback_supported=True)
    stage.submit(stage.new("r"))
    stage.answer("r", Suspended(state=b"", children=(stage.new("m", "Undoable"),)))
    stage.answer("m", Suspended(state=b"", children=(stage.new("c", locks=KEY),)))
    stage.answer("c", DONE)
    assert _held(stage) == {"m": {"k": LockMode.WRITE}}
    stage.answer("m", boom())
    assert (stage.state("r"), stage.state("m")) == (FAILED, ROLLEDBACK)

    stage.handle(RetryRequested("r", 2))

    assert _held(stage) == {"r": {"k": LockMode.WRITE}}
    assert stage.inbox["m"].token.step == 2


def test_a_retry_does_not_take_what_a_failed_child_had_given_up_before_the_tree_failed() -> None:
    stage = Stage(3)
    stage.register("R", on_child_failure="resume")
    stage.submit(stage.new("r", "R"))
    stage.answer("r", Suspended(state=b"", children=(stage.new("m"),)))
    stage.answer("m", Suspended(state=b"", children=(stage.new("c", locks=KEY),)))
    stage.answer("c", DONE)
    stage.answer("m", boom())
    assert _held(stage) == {}
    stage.submit(stage.new("stranger", locks=KEY))
    stage.answer("r", boom())

    stage.handle(RetryRequested("r", 2))

    assert stage.inbox["r"].token.step == 2
    assert set(_held(stage)) == {"stranger"}


def test_what_outlives_a_parent_leaves_no_lock_to_a_grandparent_that_undoes_no_children() -> None:
    stage = Stage(4)
    stage.register("G", undo_children=False)
    stage.submit(stage.new("g", "G"))
    stage.answer("g", Suspended(state=b"", children=(stage.new("p"), stage.new("other"))))
    children = (stage.new("quick"), stage.new("slow", locks=KEY))
    stage.answer("p", Suspended(state=b"", children=children, wait="any", on_parent_end="leave"))
    stage.answer("quick", DONE)
    stage.answer("p", DONE)
    stage.submit(stage.new("stranger", locks=KEY))
    assert "stranger" not in stage.inbox

    stage.answer("slow", DONE)

    assert "stranger" in stage.inbox


def test_a_retry_waits_for_no_keys_of_children_that_were_made_when_the_tree_failed_already() -> None:
    stage = Stage(3)
    stage.submit(stage.new("stranger", locks=KEY))
    stage.submit(stage.new("r"))
    stage.answer("r", Suspended(state=b"", children=(stage.new("a"), stage.new("b"))))
    stage.answer("a", boom())
    stage.answer("b", Suspended(state=b"", children=(stage.new("late", locks=KEY),)))
    assert stage.state("r") is FAILED

    stage.handle(RetryRequested("r", 2))

    assert "a" in stage.inbox
    assert "late" not in stage.inbox
    stage.answer("stranger", DONE)
    assert set(_held(stage)) == {"late"}
    assert difference(stage) is None


def test_a_root_that_fails_while_it_takes_its_keys_again_takes_them_at_the_next_retry_too() -> None:
    stage = Stage(4)
    _fail_with_a_child_that_held_the_key(stage)
    stage.answer("b", DONE)
    assert stage.state("r") is FAILED
    stage.submit(stage.new("stranger", locks=KEY))
    stage.handle(RetryRequested("r", 2))
    assert not {"a", "b"} & stage.inbox.keys()
    stage.handle(AbortRequested("r", 3, force=True))
    assert stage.state("r") is FAILED

    stage.handle(RetryRequested("r", 4))

    assert not {"a", "b"} & stage.inbox.keys()
    stage.answer("stranger", DONE)
    assert {"a", "b"} <= stage.inbox.keys()
    assert difference(stage) is None


def test_a_retried_parent_has_not_lost_a_child_that_it_never_counted() -> None:
    stage = Stage(4, rollback_supported=True)
    stage.submit(stage.new("r"))
    stage.answer("r", Suspended(state=b"", children=(stage.new("p", unit=""), stage.new("other"))))
    children = (stage.new("left"), stage.new("quick"))
    stage.answer("p", Suspended(state=b"", children=children, wait="any", on_parent_end="leave"))
    stage.answer("quick", DONE)
    stage.answer("p", DONE)
    stage.answer("other", boom())
    stage.answer("left", Advanced(state=b""))
    stage.answer("p", boom("cannot be undone"))
    assert (stage.state("p"), stage.state("left")) == (FAILED, FAILED)

    stage.handle(RetryRequested("r", 2))

    p = stage.core.view("p")
    assert p is not None
    assert (p.pending, p.succeeded, p.failed) == (1, 1, 0)


def test_a_retry_waits_for_no_keys_that_a_bypassed_child_was_still_waiting_for() -> None:
    stage = Stage(3)
    stage.submit(stage.new("stranger", locks=KEY))
    stage.submit(stage.new("r"))
    stage.answer("r", Suspended(state=b"", children=(stage.new("a"), stage.new("waiter", locks=KEY))))
    stage.handle(BypassRequested("waiter", 2))
    assert stage.state("waiter") is SUCCESS
    stage.answer("a", boom())
    assert stage.state("r") is FAILED

    stage.handle(RetryRequested("r", 3))

    assert "a" in stage.inbox


@pytest.mark.parametrize("wait", ["all", "any", "each"])
def test_a_parent_sees_the_end_of_a_child_that_came_while_it_ran_also_when_it_was_the_last(wait: Wait) -> None:
    stage = Stage(3)
    stage.submit(stage.new("p"))
    stage.answer("p", Suspended(state=b"", children=(stage.new("a"), stage.new("b")), wait="any"))
    stage.answer("a", DONE)
    stage.answer("b", DONE)

    stage.answer("p", Suspended(state=b"", children=(), wait=wait))

    p = stage.core.view("p")
    assert p is not None
    assert (stage.inbox["p"].children_step, p.seen) == (1, 2)
    # What comes after that is another group.
    stage.answer("p", Suspended(state=b"", children=(stage.new("c"),), wait=wait))
    assert "p" not in stage.inbox
    stage.answer("c", DONE)
    assert (stage.inbox["p"].children_step, p.seen) == (3, 3)


def _hire(stage: Stage, name: str, slot: int) -> None:
    """The worker that was asked for comes."""
    assert StartWorker(name) in stage.commands
    stage.handle(WorkerReady(WorkerId(slot, 1), reserved=name))


def test_who_has_a_worker_of_its_own_does_not_wait_for_those_of_all() -> None:
    stage = Stage(1)
    own = StepLimits(dedicated=True)
    stage.submit(stage.new("d", limits=own))
    _hire(stage, "d", 100)
    stage.submit(stage.new("long"), stage.new("next"))
    stage.now = 100.0  # by now "next" goes before whoever begins to wait
    stage.answer("d", Advanced(state=b""))
    assert "d" in stage.inbox
    assert "next" not in stage.inbox

    stage.submit(stage.new("e", limits=own))
    _hire(stage, "e", 101)

    assert "e" in stage.inbox


def test_who_waits_for_a_worker_waits_for_one_of_its_own_when_its_class_has_those_now() -> None:
    stage = Stage(1)
    stage.register("Other")
    stage.submit(stage.new("long", "Other"), stage.new("before", "Other"), stage.new("next"))

    stage.handle(TypeRegistered(TypeMeta(type_name="T", dedicated=True)))
    _hire(stage, "next", 100)

    assert "next" in stage.inbox


def test_who_is_asked_about_its_abort_and_has_no_place_for_a_worker_of_its_own_holds_up_nobody() -> None:
    stage = Stage(0)
    stage.core, _ = Coordinator.restore(
        RecoverySnapshot(1, 1, 1, [], [], [], [], [], []), 0.0, quotas=Quotas(dedicated=1)
    )
    stage.register("T")
    stage.register("D", dedicated=True, asks_abort=True)
    stage.handle(WorkerReady(WorkerId(0, 1)))
    stage.submit(stage.new("d", "D"))
    _hire(stage, "d", 100)
    # It is to try again when it has lost its worker and another one has its place.
    stage.submit(stage.new("e", "D"))
    stage.answer("d", later(after=5.0))
    stage.handle(WorkerLost(WorkerId(100, 1), CrashReport(kind="stopped", message="stopped"), crashed=False))
    _hire(stage, "e", 101)

    stage.handle(AbortRequested("d", 2))
    stage.now = 10.0
    stage.handle(Tick())
    stage.submit(stage.new("x"))
    stage.now = 1000.0
    stage.handle(Tick())

    assert "x" in stage.inbox
    stage.answer("e", DONE)
    _hire(stage, "d", 102)
    assert _asked(stage, "d")


def _find_late(stage: Stage, *children: NewProcedure) -> None:
    """`p` suspends on these, its worker leaves, and the next one comes at 11.0, before the clock tells of a deadline."""
    stage.submit(stage.new("p"))
    stage.handle(WorkerReady(WorkerId(0, 1)))
    stage.answer("p", Suspended(state=b"", children=children))
    stage.handle(WorkerLost(WorkerId(0, 1), CrashReport(kind="stopped", message="stopped"), crashed=False))
    stage.inbox.clear()
    stage.now = 11.0
    stage.handle(WorkerReady(WorkerId(0, 2)))


def test_who_ended_with_its_tree_when_two_of_it_were_late_does_not_fail_once_more() -> None:
    stage = Stage(0)
    _find_late(stage, stage.new("a", deadline=10.0), stage.new("b", deadline=10.0))

    assert set(stage.resolved()) == {"p", "a", "b"}
    stage.handle(RetryRequested("p", 2))
    assert difference(stage) is None
    stage.answer("a", DONE)
    stage.answer("b", DONE)
    stage.answer("p", DONE)
    assert stage.resolved() == dict.fromkeys(("p", "a", "b"), SUCCESS)


def test_after_a_failed_commit_nobody_pays_for_a_step_that_ran_beside_it() -> None:
    stage = Stage(1, threads=2)
    stage.submit(stage.new("a"), stage.new("b"))
    worker = WorkerId(0, 1)
    tokens = tuple(stage.inbox[name].token for name in ("a", "b"))
    assert {token.worker for token in tokens} == {worker}

    # Memory is made anew; the worker lived on.
    known = ((WorkerReady(worker, threads=2), tokens),)
    stage.core, _ = Coordinator.restore(image_of(stage).snapshot(), 0.0, workers=known)
    stage.register("T", threads=2)
    stage.kill(0)

    for name in ("a", "b"):
        record = stage.core.view(name)
        assert record is not None
        assert record.crashes == 0, "either of them may have done it"


def test_after_a_failed_commit_a_step_that_runs_beside_another_is_killed_by_force() -> None:
    stage = Stage(1, threads=2)
    stage.submit(stage.new("a"), stage.new("b"))
    known = ((WorkerReady(WorkerId(0, 1), threads=2), tuple(stage.inbox[name].token for name in ("a", "b"))),)
    stage.core, _ = Coordinator.restore(image_of(stage).snapshot(), 0.0, workers=known)
    stage.register("T", threads=2)

    stage.handle(AbortRequested("b", 2, force=True))

    assert [kill.token.procedure for kill in stage.kills()] == ["b"]


def test_nobody_is_suspected_for_ever_of_having_killed_a_worker() -> None:
    stage = Stage(1, threads=2)
    stage.submit(stage.new("a"), stage.new("b"))
    stage.kill(0)
    for name in ("a", "b"):
        stage.handle(AbortRequested(name, 2, force=True))
    assert set(stage.resolved()) == {"a", "b"}

    assert not stage.core._state.suspects  # with a suspect about, every step of everybody takes the long way


def test_who_is_being_bypassed_fails_for_no_old_abort_when_its_class_is_registered_anew() -> None:
    stage = Stage(3)
    stage.register("Asked", asks_abort=True)
    stage.submit(stage.new("r"))
    stage.answer("r", Suspended(state=b"", children=(stage.new("p", "Asked"),)))
    stage.answer("p", Suspended(state=b"", children=(stage.new("quick"), stage.new("slow")), wait="any"))
    stage.answer("quick", DONE)
    stage.handle(AbortRequested("p", 2))
    stage.answer("p", Refused(reason="it cannot be loaded"))
    stage.handle(BypassRequested("p", 3, children=True, force=True))
    (kill,) = stage.kills()

    stage.register("Asked")  # one that is not asked
    stage.kill(kill.worker.slot)
    stage.answer("r", DONE)

    assert stage.resolved() == dict.fromkeys(("r", "p", "quick", "slow"), SUCCESS)


def test_a_last_step_that_ended_too_late_to_count_sees_in_a_retry_what_it_saw() -> None:
    stage = Stage(4)
    stage.submit(stage.new("r"))
    stage.answer("r", Suspended(state=b"", children=(stage.new("p"), stage.new("w"), stage.new("z"))))
    stage.answer("p", Suspended(state=b"", children=(stage.new("c"),)))
    stage.answer("w", Waited(state=b"", event="go"))
    stage.answer("c", DONE)
    stage.handle(Signalled("w", b"what it waited for", 2))
    before = stage.inbox["p"].token, stage.inbox["w"].token

    stage.answer("z", boom())
    stage.answer("p", DONE)
    stage.answer("w", DONE)
    stage.handle(RetryRequested("r", 3))

    p, w = stage.inbox["p"], stage.inbox["w"]
    assert (p.token.step, p.children_step, p.replayed) == (2, 1, True)
    assert (w.token.step, w.event, w.replayed) == (2, b"what it waited for", True)
    assert (p.token, w.token) != before  # an answer of the run before that comes twice is none of this run
    assert difference(stage) is None


def test_an_on_timeout_that_ended_too_late_to_count_is_no_step_that_got_its_signal_after_a_retry() -> None:
    stage = Stage(3)
    stage.register("Late", has_on_timeout=True)
    stage.submit(stage.new("r"))
    stage.answer("r", Suspended(state=b"", children=(stage.new("w", "Late"), stage.new("z"))))
    stage.answer("w", Waited(state=b"", event="go", timeout=5.0))
    stage.now = 5.0
    stage.handle(Tick())
    assert stage.inbox["w"].token.mode is Mode.ON_TIMEOUT

    stage.answer("z", boom())
    stage.answer("w", DONE)
    stage.handle(RetryRequested("r", 2))
    assert "w" not in stage.inbox
    stage.handle(Published("go", b"now", 3))

    assert (stage.inbox["w"].token.step, stage.inbox["w"].event) == (2, b"now")
    assert difference(stage) is None


def test_a_last_step_that_ended_too_late_to_count_has_its_keys_poisoned_again_in_a_retry() -> None:
    stage = Stage(3)
    stage.submit(stage.new("r"))
    stage.answer("r", Suspended(state=b"", children=(stage.new("p"), stage.new("z"))))
    stage.answer("p", Advanced(state=b"", poisons=("k",)))
    stage.answer("z", boom())
    stage.answer("p", Finished(state=b"", poisons=()))
    assert image_of(stage).poisons == {}

    stage.handle(RetryRequested("r", 2))
    assert set(image_of(stage).poisons) == {"k"}
    assert difference(stage) is None

    stage.answer("p", Finished(state=b"", poisons=()))
    assert image_of(stage).poisons == {}


def test_a_poisoned_step_sees_in_a_retry_what_it_saw() -> None:
    half_done = Poisoned(state=b"", keys=("k",), error=ErrorInfo("poisoned", "Poisoned", "half done"))
    stage = Stage(2)
    stage.submit(stage.new("r"), stage.new("w"))
    stage.answer("r", Suspended(state=b"", children=(stage.new("c"),)))
    stage.answer("c", DONE)
    stage.answer("r", half_done)
    stage.answer("w", Waited(state=b"", event="go"))
    stage.handle(Published("go", b"what it waited for", 2))
    stage.answer("w", half_done)

    stage.handle(RetryRequested("r", 3))
    stage.handle(RetryRequested("w", 4))

    assert stage.inbox["r"].children_step == 1
    assert stage.inbox["w"].event == b"what it waited for"
    assert difference(stage) is None


def test_an_undo_that_a_wider_failure_takes_over_knows_that_it_was_begun_before() -> None:
    stage = Stage(2, rollback_supported=True)
    stage.register("R", rollback_supported=True, on_child_failure="resume")
    stage.submit(stage.new("r", "R", unit=""))
    stage.answer("r", Suspended(state=b"", unit="", children=(stage.new("c", unit=""), stage.new("d", unit=""))))
    stage.answer("c", boom())
    before = stage.inbox["c"].token
    assert (before.mode, before.attempt) == (Mode.ROLLBACK, 1)
    stage.answer("c", later())

    stage.handle(AbortRequested("r", 2))
    stage.answer("d", DONE)
    assert stage.inbox["d"].token.attempt == 1
    stage.answer("d", DONE)

    again = stage.inbox["c"]
    assert (again.token.mode, again.token.attempt, again.replayed) == (Mode.ROLLBACK, 2, True)
    assert difference(stage) is None
    assert stage.undo_all() == ["c:", "r:"]


@pytest.mark.parametrize("scope", ["procedure", "step"])
def test_a_retried_root_asks_for_what_it_acquired_when_its_tree_failed_already(scope: LockScope) -> None:
    stage = Stage(3)
    stage.register("R", lock_scope=scope)
    stage.submit(stage.new("r", "R"))
    stage.answer("r", Suspended(state=b"", children=(stage.new("a"), stage.new("quick")), wait="any"))
    stage.answer("quick", DONE)
    stage.answer("a", boom())
    stage.answer("r", Advanced(state=b"", acquire=KEY))
    stage.submit(stage.new("stranger", locks=KEY))

    stage.handle(RetryRequested("r", 2))

    assert "a" in stage.inbox
    assert "r" not in stage.inbox
    stage.answer("stranger", DONE)
    assert "r" in stage.inbox
    assert _held(stage) == {"r": {"k": LockMode.WRITE}}
    assert difference(stage) is None


def test_whose_turn_comes_late_goes_on_when_a_relative_passes_the_point_of_no_return_in_the_same_moment() -> None:
    stage = Stage(0)
    _find_late(stage, stage.new("late", deadline=10.0), stage.new("b", no_return=True))

    assert set(stage.inbox) == {"b"}
    assert difference(stage) is None
    stage.answer("b", DONE)
    stage.answer("late", DONE)
    stage.answer("p", DONE)
    assert stage.resolved() == dict.fromkeys(("p", "late", "b"), SUCCESS)


def test_a_key_poisoned_as_a_tree_passes_its_point_of_no_return_does_not_turn_it_back() -> None:
    stage = Stage(3)
    stage.submit(stage.new("holder", locks=KEY), stage.new("r"))
    stage.answer("r", Suspended(state=b"", children=(stage.new("waiter", locks=KEY), stage.new("b"))))
    # Nothing is handed out for a while, then two steps at once.
    stage.handle(PauseRequested(None, 2))
    stage.submit(stage.new("poisoner", poisons=("k",), priority=1))
    stage.answer("b", Advanced(state=b"", no_return=True))
    stage.handle(ResumeRequested(None, 3))
    assert [name for name, _, _ in stage.order[-2:]] == ["poisoner", "b"]

    assert stage.resolved() == {}
    assert difference(stage) is None
    for name in ("b", "holder", "waiter", "r"):
        stage.answer(name, DONE)
    assert stage.resolved() == dict.fromkeys(("b", "holder", "waiter", "r"), SUCCESS)


@pytest.mark.parametrize("force", [False, True])
def test_after_a_failed_commit_a_step_of_who_is_bypassed_is_killed_only_by_force(*, force: bool) -> None:
    stage = Stage(3)
    stage.submit(stage.new("r"))
    stage.answer("r", Suspended(state=b"", children=(stage.new("quick"), stage.new("b")), wait="any"))
    stage.answer("quick", DONE)
    stage.answer("b", Waited(state=b"", event="go"))
    token = stage.inbox["r"].token
    stage.handle(BypassRequested("b", 2, ancestors=True, force=force))
    kills = [kill.token for kill in stage.kills()]
    assert kills == [token] * force

    # Memory is made anew; the worker lived on.
    known = ((WorkerReady(token.worker), (token,)),)
    _, decision = Coordinator.restore(image_of(stage).snapshot(), 0.0, workers=known)

    assert [command.token for command in decision.commands if isinstance(command, KillWorker)] == kills


def test_who_waits_to_be_asked_about_its_abort_is_not_asked_beyond_the_point_of_no_return() -> None:
    stage = Stage(2)
    stage.register("Asked", asks_abort=True)
    stage.submit(stage.new("r"))
    stage.answer("r", Suspended(state=b"", children=(stage.new("a", "Asked"), stage.new("b"))))
    stage.handle(PauseRequested("a", 2))
    stage.answer("a", Advanced(state=b""))
    stage.handle(AbortRequested("a", 3))
    stage.answer("b", Advanced(state=b"", no_return=True))

    stage.handle(ResumeRequested("a", 4))

    assert stage.inbox["a"].token.mode is Mode.EXECUTE
    assert difference(stage) is None
    for name in ("a", "b", "r"):
        stage.answer(name, DONE)
    assert stage.resolved() == dict.fromkeys(("a", "b", "r"), SUCCESS)


def test_who_outlives_its_root_is_refused_a_key_that_was_poisoned_beyond_the_point_of_no_return() -> None:
    stage = Stage(4)
    stage.submit(stage.new("holder", locks=KEY), stage.new("r"))
    children = (stage.new("waiter", locks=KEY), stage.new("b"))
    stage.answer("r", Suspended(state=b"", children=children, wait="any", on_parent_end="leave"))
    stage.answer("b", Advanced(state=b"", no_return=True))
    stage.submit(stage.new("poisoner", poisons=("k",)))
    stage.answer("b", DONE)
    assert set(stage.resolved()) == {"b"}

    stage.answer("r", DONE)

    assert stage.resolved() == {"b": SUCCESS, "r": SUCCESS, "waiter": ROLLEDBACK}
    assert difference(stage) is None


def test_a_submit_again_is_the_same_one_also_when_a_newer_version_of_its_class_has_run_a_step_of_it() -> None:
    stage = Stage()
    stage.submit(stage.new("p"))
    stage.register("T", version=2)
    stage.answer("p", Advanced(state=b"", version=2))

    reply = stage.submit(replace(stage.new("p"), version=2, digest=b"of a state with one more field", is_compared=True))

    assert (reply.value, reply.error) == (("p",), None)
    assert difference(stage) is None


def test_a_retried_root_counts_as_running_before_it_runs_a_step_itself() -> None:
    stage = Stage(workers=0)
    snapshot = RecoverySnapshot(1, 1, 1, [], [], [], [], [], [])
    stage.core, _ = Coordinator.restore(snapshot, 0.0, scheduling=Scheduling(max_running=1))
    stage.register("T")
    for slot in range(3):
        stage.handle(WorkerReady(WorkerId(slot, 1)))
    stage.submit(stage.new("r"))
    stage.answer("r", Suspended(state=b"", children=(stage.new("c"),)))
    stage.answer("c", boom())

    stage.handle(RetryRequested("r", 2))
    stage.submit(stage.new("new"))

    assert set(stage.inbox) == {"c"}
    stage.answer("c", DONE)
    stage.answer("r", DONE)
    assert set(stage.inbox) == {"new"}


def _begin_past_the_point_of_no_return(stage: Stage) -> None:
    """Root ``r`` whose child ``c`` was done; its second step is the point of no return."""
    stage.submit(stage.new("r", unit="first"))
    stage.answer("r", Suspended(state=b"", unit="second", children=(stage.new("c", unit=""),)))
    stage.answer("c", DONE)
    stage.answer("r", Advanced(state=b"", unit="third", no_return=True))


def test_who_says_poisoned_past_the_point_of_no_return_runs_again_and_nothing_is_undone() -> None:
    stage = Stage(2, rollback_supported=True)
    _begin_past_the_point_of_no_return(stage)

    half_done = ErrorInfo("poisoned", "Poisoned", "half done")
    stage.answer("r", Poisoned(state=b"", keys=("k",), error=half_done))

    assert (stage.state("r"), stage.state("c")) == (RUNNABLE, SUCCESS)
    assert isinstance(stage.submit(stage.new("other", locks=KEY)).error, KeyPoisoned)
    stage.now += 100
    stage.handle(Tick())
    assert stage.inbox["r"].token.mode is Mode.EXECUTE
    stage.answer("r", DONE)
    assert stage.resolved() == {"r": SUCCESS, "c": SUCCESS}
    assert stage.submit(stage.new("other", locks=KEY)).error is None


def test_a_sibling_that_says_poisoned_past_the_point_of_no_return_turns_nobody_back() -> None:
    stage = Stage(3, rollback_supported=True)
    stage.submit(stage.new("r", unit=""))
    stage.answer("r", Suspended(state=b"", children=(stage.new("a", unit=""), stage.new("b", unit=""))))
    stage.answer("a", Advanced(state=b"", unit="", no_return=True))

    stage.answer("b", Poisoned(state=b"", keys=("k",), error=ErrorInfo("poisoned", "Poisoned", "half done")))
    stage.answer("a", DONE)

    assert stage.undo_all() == []
    assert stage.resolved() == {"a": SUCCESS}


def _time_out_past_the_point_of_no_return(stage: Stage) -> None:
    stage.submit(stage.new("p", no_return=True))
    stage.answer("p", Waited(state=b"", event="go", timeout=5.0))
    stage.now = 6.0
    stage.handle(Tick())


def test_a_wait_past_the_point_of_no_return_hears_its_signal_also_when_on_timeout_failed() -> None:
    stage = Stage(1, has_on_timeout=True)
    _time_out_past_the_point_of_no_return(stage)
    assert stage.inbox["p"].token.mode is Mode.ON_TIMEOUT
    stage.answer("p", boom("not in time"))
    assert difference(stage) is None

    stage.handle(Published("go", b"now", reply=1))

    assert (stage.inbox["p"].token.mode, stage.inbox["p"].event) == (Mode.EXECUTE, b"now")
    assert difference(stage) is None


def test_a_signal_that_came_while_on_timeout_failed_past_the_point_of_no_return_is_taken() -> None:
    stage = Stage(1, has_on_timeout=True)
    _time_out_past_the_point_of_no_return(stage)

    stage.handle(Signalled("p", b"now", reply=1))
    stage.answer("p", boom("not in time"))

    assert (stage.inbox["p"].token.mode, stage.inbox["p"].event) == (Mode.EXECUTE, b"now")
    assert difference(stage) is None


def test_an_on_timeout_that_failed_past_the_point_of_no_return_is_asked_again() -> None:
    stage = Stage(1, has_on_timeout=True)
    _time_out_past_the_point_of_no_return(stage)
    stage.answer("p", boom("not in time"))

    stage.now += 100
    stage.handle(Tick())
    assert stage.inbox["p"].token.mode is Mode.ON_TIMEOUT
    stage.answer("p", DONE)

    assert stage.resolved() == {"p": SUCCESS}


def test_a_key_that_was_cleared_is_poisoned_again_before_the_next_risky_step_that_names_it() -> None:
    stage = Stage(1)
    stage.submit(stage.new("p"))
    risky = Advanced(state=b"", poisons=("k",))
    stage.answer("p", risky)
    stage.handle(PoisonCleared("k", 2))
    assert stage.submit(stage.new("before", locks=KEY)).error is None

    stage.answer("p", risky)

    assert isinstance(stage.submit(stage.new("after", locks=KEY)).error, KeyPoisoned)
    assert difference(stage) is None


def test_who_has_ended_while_it_was_asked_about_its_abort_is_not_parked_for_the_answer() -> None:
    stage = Stage(3, asks_abort=True)
    stage.register("C")
    stage.submit(stage.new("r"))
    stage.answer("r", Suspended(state=b"", children=(stage.new("c", "C"),)))
    stage.handle(AbortRequested("r", 2))
    stage.answer("c", boom())
    assert _asked(stage, "r")

    stage.answer("r", Refused(reason="not today"))

    r = stage.core.view("r")
    assert r is not None
    assert (r.state, r.parked) == (FAILED, None)


def _fail_with_a_poisoned_key(stage: Stage) -> None:
    stage.submit(stage.new("r"))
    stage.answer("r", Suspended(state=b"", children=(stage.new("c", locks=KEY, poisons=("k",)),)))
    stage.answer("c", boom())


def test_a_key_of_a_tree_that_was_deleted_stays_poisoned_for_the_next_one_with_its_ids_too() -> None:
    stage = Stage(2)
    _fail_with_a_poisoned_key(stage)
    stage.handle(DeleteRequested("r", 2, force=True))

    stage.submit(stage.new("r"))
    stage.answer("r", Suspended(state=b"", children=(stage.new("c", locks=KEY),)))

    assert stage.state("r") is FAILED
    assert stage.core.view("c") is None
    assert difference(stage) is None


def test_who_gets_the_ids_of_a_deleted_tree_does_not_free_what_that_one_poisoned() -> None:
    stage = Stage(2)
    _fail_with_a_poisoned_key(stage)
    stage.handle(DeleteRequested("r", 2, force=True))

    stage.submit(stage.new("r"))
    stage.answer("r", Suspended(state=b"", children=(stage.new("c", poisons=("k",)),)))
    stage.answer("c", DONE)
    stage.answer("r", DONE)

    assert stage.state("r") is SUCCESS
    assert isinstance(stage.submit(stage.new("other", locks=KEY)).error, KeyPoisoned)
    assert difference(stage) is None


@pytest.mark.parametrize("how", ["allowed", "refused", "lost"])
def test_nobody_answers_for_the_abort_of_one_that_had_its_id_before(how: str) -> None:
    stage = Stage(3, asks_abort=True)
    stage.register("C")
    stage.submit(stage.new("r"))
    stage.answer("r", Suspended(state=b"", children=(stage.new("c", "C"),)))
    stage.handle(AbortRequested("r", 2))
    stage.answer("c", boom())
    asked = stage.inbox["r"].token
    assert asked.mode is Mode.ASK_ABORT
    # It does not end before it has answered, so it keeps its id.
    refused = stage.handle(DeleteRequested("r", 3)).commands[0]
    assert isinstance(refused, Reply)
    assert isinstance(refused.error, NotAllowed)

    if how == "lost":
        stage.kill(asked.worker.slot)
    else:
        stage.answer("r", Refused(reason="not today") if how == "refused" else Answered(allowed=True))

    assert stage.state("r") is FAILED
    stage.handle(DeleteRequested("r", 4))
    stage.submit(stage.new("r"))
    assert (stage.inbox["r"].token.mode, stage.inbox["r"].token.step) == (Mode.EXECUTE, 1)
    assert not stage.inbox["r"].warm
    assert difference(stage) is None
