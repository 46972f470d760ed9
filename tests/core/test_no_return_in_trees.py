"""The point of no return in trees: aborts, poison, time limits and late turns beyond it."""

from __future__ import annotations

import pytest

from actorproc.errors import KeyPoisoned
from actorproc.model.ids import Mode
from actorproc.model.messages.events import (
    AbortRequested,
    PauseRequested,
    Published,
    ResumeRequested,
    Signalled,
    Tick,
)
from actorproc.model.messages.outcomes import (
    Advanced,
    Finished,
    Poisoned,
    Slept,
    Suspended,
    Waited,
)
from actorproc.model.policies import LockKey
from actorproc.model.rows.records import ErrorInfo
from actorproc.model.states import Phase, ProcedureState
from tests.core.harness import CoreHarness, boom, difference, heads_of

DONE = Finished(state=b"")
SUCCESS = ProcedureState.SUCCESS
KEY = (LockKey.write("k"),)
ROLLEDBACK = ProcedureState.ROLLEDBACK
RUNNABLE = ProcedureState.RUNNABLE


def test_a_child_past_the_point_of_no_return_makes_the_whole_tree_go_forward() -> None:
    harness = CoreHarness(workers=2)
    harness.submit(harness.new("p"))
    harness.answer("p", Suspended(state=b"", children=(harness.new("c", no_return=True), harness.new("d"))))
    harness.answer("d", boom())

    assert harness.state("d") == ProcedureState.RUNNABLE
    assert harness.core.phase(harness.core.view("d"))[0] is Phase.STUCK


def test_an_abort_past_the_point_of_no_return_is_recorded_without_effect() -> None:
    harness = CoreHarness(workers=1, rollback_supported=True)
    harness.submit(harness.new("p", unit="one", no_return=True))
    harness.answer("p", Slept(state=b"", seconds=10.0))

    harness.handle(AbortRequested("p", reply=1))
    harness.handle(AbortRequested("p", reply=2, force=True))

    assert heads_of(harness)["p"].aborting
    assert harness.state("p") == ProcedureState.WAITING_TIMEOUT


def test_a_wait_past_the_point_of_no_return_goes_on_when_its_time_is_up() -> None:
    harness = CoreHarness(workers=1, rollback_supported=True)
    harness.submit(harness.new("p", unit="one", no_return=True))
    harness.answer("p", Waited(state=b"", event="go", timeout=5.0))
    harness.now = 6.0
    harness.handle(Tick())
    assert heads_of(harness)["p"].error.kind == "wait-timeout"
    assert harness.core.phase(harness.core.view("p"))[0] is Phase.WAITING

    harness.handle(Published("go", b"now", reply=1))

    assert harness.inbox["p"].event == b"now"


def test_a_key_poisoned_as_a_tree_passes_its_point_of_no_return_does_not_turn_it_back() -> None:
    harness = CoreHarness(3)
    harness.submit(harness.new("holder", locks=KEY), harness.new("r"))
    harness.answer("r", Suspended(state=b"", children=(harness.new("waiter", locks=KEY), harness.new("b"))))
    # Nothing is handed out for a while, then two steps at once.
    harness.handle(PauseRequested(None, 2))
    harness.submit(harness.new("poisoner", poisons=("k",), priority=1))
    harness.answer("b", Advanced(state=b"", no_return=True))
    harness.handle(ResumeRequested(None, 3))
    assert [name for name, _, _ in harness.order[-2:]] == ["poisoner", "b"]

    assert harness.resolved() == {}
    assert difference(harness) is None
    for name in ("b", "holder", "waiter", "r"):
        harness.answer(name, DONE)
    assert harness.resolved() == dict.fromkeys(("b", "holder", "waiter", "r"), SUCCESS)


def test_who_waits_to_be_asked_about_its_abort_is_not_asked_beyond_the_point_of_no_return() -> None:
    harness = CoreHarness(2)
    harness.register("Asked", asks_abort=True)
    harness.submit(harness.new("r"))
    harness.answer("r", Suspended(state=b"", children=(harness.new("a", "Asked"), harness.new("b"))))
    harness.handle(PauseRequested("a", 2))
    harness.answer("a", Advanced(state=b""))
    harness.handle(AbortRequested("a", 3))
    harness.answer("b", Advanced(state=b"", no_return=True))

    harness.handle(ResumeRequested("a", 4))

    assert harness.inbox["a"].token.mode is Mode.EXECUTE
    assert difference(harness) is None
    for name in ("a", "b", "r"):
        harness.answer(name, DONE)
    assert harness.resolved() == dict.fromkeys(("a", "b", "r"), SUCCESS)


def test_who_outlives_its_root_is_refused_a_key_that_was_poisoned_beyond_the_point_of_no_return() -> None:
    harness = CoreHarness(4)
    harness.submit(harness.new("holder", locks=KEY), harness.new("r"))
    children = (harness.new("waiter", locks=KEY), harness.new("b"))
    harness.answer("r", Suspended(state=b"", children=children, wait="any", on_parent_end="leave"))
    harness.answer("b", Advanced(state=b"", no_return=True))
    harness.submit(harness.new("poisoner", poisons=("k",)))
    harness.answer("b", DONE)
    assert set(harness.resolved()) == {"b"}

    harness.answer("r", DONE)

    assert harness.resolved() == {"b": SUCCESS, "r": SUCCESS, "waiter": ROLLEDBACK}
    assert difference(harness) is None


def _begin_past_the_point_of_no_return(harness: CoreHarness) -> None:
    """Root ``r`` whose child ``c`` was done; its second step is the point of no return."""
    harness.submit(harness.new("r", unit="first"))
    harness.answer("r", Suspended(state=b"", unit="second", children=(harness.new("c", unit=""),)))
    harness.answer("c", DONE)
    harness.answer("r", Advanced(state=b"", unit="third", no_return=True))


def test_who_says_poisoned_past_the_point_of_no_return_runs_again_and_nothing_is_undone() -> None:
    harness = CoreHarness(2, rollback_supported=True)
    _begin_past_the_point_of_no_return(harness)

    half_done = ErrorInfo("poisoned", "Poisoned", "half done")
    harness.answer("r", Poisoned(state=b"", keys=("k",), error=half_done))

    assert (harness.state("r"), harness.state("c")) == (RUNNABLE, SUCCESS)
    assert isinstance(harness.submit(harness.new("other", locks=KEY)).error, KeyPoisoned)
    harness.now += 100
    harness.handle(Tick())
    assert harness.inbox["r"].token.mode is Mode.EXECUTE
    harness.answer("r", DONE)
    assert harness.resolved() == {"r": SUCCESS, "c": SUCCESS}
    assert harness.submit(harness.new("other", locks=KEY)).error is None


def test_a_sibling_that_says_poisoned_past_the_point_of_no_return_turns_nobody_back() -> None:
    harness = CoreHarness(3, rollback_supported=True)
    harness.submit(harness.new("r", unit=""))
    harness.answer("r", Suspended(state=b"", children=(harness.new("a", unit=""), harness.new("b", unit=""))))
    harness.answer("a", Advanced(state=b"", unit="", no_return=True))

    harness.answer("b", Poisoned(state=b"", keys=("k",), error=ErrorInfo("poisoned", "Poisoned", "half done")))
    harness.answer("a", DONE)

    assert harness.undo_all() == []
    assert harness.resolved() == {"a": SUCCESS}


def _time_out_past_the_point_of_no_return(harness: CoreHarness) -> None:
    harness.submit(harness.new("p", no_return=True))
    harness.answer("p", Waited(state=b"", event="go", timeout=5.0))
    harness.now = 6.0
    harness.handle(Tick())


def test_a_wait_past_the_point_of_no_return_hears_its_signal_also_when_on_timeout_failed() -> None:
    harness = CoreHarness(1, has_on_timeout=True)
    _time_out_past_the_point_of_no_return(harness)
    assert harness.inbox["p"].token.mode is Mode.ON_TIMEOUT
    harness.answer("p", boom("not in time"))
    assert difference(harness) is None

    harness.handle(Published("go", b"now", reply=1))

    assert (harness.inbox["p"].token.mode, harness.inbox["p"].event) == (Mode.EXECUTE, b"now")
    assert difference(harness) is None


def test_a_signal_that_came_while_on_timeout_failed_past_the_point_of_no_return_is_taken() -> None:
    harness = CoreHarness(1, has_on_timeout=True)
    _time_out_past_the_point_of_no_return(harness)

    harness.handle(Signalled("p", b"now", reply=1))
    harness.answer("p", boom("not in time"))

    assert (harness.inbox["p"].token.mode, harness.inbox["p"].event) == (Mode.EXECUTE, b"now")
    assert difference(harness) is None


def test_an_on_timeout_that_failed_past_the_point_of_no_return_is_asked_again() -> None:
    harness = CoreHarness(1, has_on_timeout=True)
    _time_out_past_the_point_of_no_return(harness)
    harness.answer("p", boom("not in time"))

    harness.now += 100
    harness.handle(Tick())
    assert harness.inbox["p"].token.mode is Mode.ON_TIMEOUT
    harness.answer("p", DONE)

    assert harness.resolved() == {"p": SUCCESS}


def test_a_deadline_that_passed_beyond_the_point_of_no_return_ends_a_child_that_outlives_its_root() -> None:
    harness = CoreHarness(3)
    harness.submit(harness.new("root", no_return=True))
    children = (harness.new("quick"), harness.new("left", deadline=5.0))
    harness.answer("root", Suspended(state=b"", children=children, wait="any", on_parent_end="leave"))
    harness.answer("left", Waited(state=b"", event="never"))
    harness.answer("quick", DONE)
    # Given: its time is up while there is only the way forward.
    harness.now = 6.0
    harness.handle(Tick())
    assert harness.state("left") is ProcedureState.WAITING

    harness.answer("root", DONE)
    assert harness.core.next_deadline() == 5.0
    harness.handle(Tick())

    assert harness.resolved()["left"] is ProcedureState.FAILED


@pytest.mark.parametrize("runs", [False, True])
@pytest.mark.parametrize("force", [False, True])
def test_an_abort_that_was_asked_for_beyond_the_point_of_no_return_is_asked_of_a_child_that_outlives_its_root(
    force: bool, runs: bool
) -> None:
    harness = CoreHarness(2)
    harness.submit(harness.new("root", unit="point", no_return=True))
    children = (harness.new("child"), harness.new("ends"))
    harness.answer("root", Suspended(state=b"", children=children, wait="any", on_parent_end="leave"))
    if not runs:
        harness.answer("child", Waited(state=b"", event="never"))
    harness.answer("ends", DONE)
    harness.handle(AbortRequested("child", 2, force=force))
    assert not harness.resolved().get("child")

    harness.answer("root", DONE)

    if not runs:
        assert harness.resolved()["child"] is ProcedureState.FAILED
    else:
        assert bool(harness.kills()) is force
        harness.answer("child", Advanced(state=b""))
        assert harness.resolved()["child"] is ProcedureState.FAILED


def test_a_wait_that_was_over_in_vain_beyond_the_point_of_no_return_ends_a_child_that_outlives_its_root() -> None:
    harness = CoreHarness(2)
    harness.submit(harness.new("root", unit="point", no_return=True))
    children = (harness.new("child"), harness.new("ends"))
    harness.answer("root", Suspended(state=b"", children=children, wait="any", on_parent_end="leave"))
    harness.answer("child", Waited(state=b"", event="never", timeout=5.0))
    harness.now = 5.0
    harness.handle(Tick())
    assert harness.state("child") is ProcedureState.WAITING_TIMEOUT
    harness.answer("ends", DONE)

    harness.answer("root", DONE)
    harness.now = harness.core.next_deadline() or 0.0
    harness.handle(Tick())

    assert harness.now == 5.0
    assert harness.resolved()["child"] is ProcedureState.FAILED
