"""Poisoned keys in trees: who may take them, and what a retry or a deletion does to them."""

from __future__ import annotations

import pytest

from actorproc.errors import KeyPoisoned
from actorproc.model.messages.events import (
    AbortRequested,
    DeleteRequested,
    PauseRequested,
    PoisonCleared,
    ResumeRequested,
    RetryRequested,
    Tick,
)
from actorproc.model.messages.outcomes import (
    Advanced,
    Finished,
    Poisoned,
    Slept,
    Suspended,
)
from actorproc.model.policies import Backoff, LockKey
from actorproc.model.rows.records import ErrorInfo
from actorproc.model.states import ProcedureState
from tests.core.harness import CoreHarness, boom, difference, heads_of

LOCK = LockKey.write("k")
FAILED = ProcedureState.FAILED
ROLLEDBACK = ProcedureState.ROLLEDBACK
KEY = (LockKey.write("k"),)
DONE = Finished(state=b"")
SUCCESS = ProcedureState.SUCCESS


def _poison(harness: CoreHarness) -> None:
    harness.register("P", rollback_supported=True, rollback_retry=Backoff(max_attempts=1))
    harness.submit(harness.new("bad", "P", unit="", locks=(LOCK,)))
    harness.answer("bad", boom())
    harness.answer("bad", boom())
    assert harness.state("bad") == ProcedureState.FAILED


def test_a_procedure_accepted_before_a_key_was_poisoned_does_not_get_it_afterwards() -> None:
    harness = CoreHarness(workers=2)
    harness.submit(harness.new("late", due_at=10.0, locks=(LOCK,)))
    _poison(harness)

    harness.now = 11.0
    harness.handle(Tick())

    assert "late" not in harness.inbox
    assert harness.state("late") == ProcedureState.ROLLEDBACK
    assert heads_of(harness)["late"].error.type_name == "KeyPoisoned"


def test_a_poisoned_key_is_not_acquired_by_a_later_step() -> None:
    harness = CoreHarness(workers=2)
    harness.submit(harness.new("p"))
    _poison(harness)

    harness.answer("p", Advanced(state=b"", acquire=(LockKey.read("k/below"),)))

    assert "p" not in harness.inbox
    assert heads_of(harness)["p"].error.type_name == "KeyPoisoned"


def test_an_undo_gets_back_the_keys_that_were_poisoned_meanwhile() -> None:
    harness = CoreHarness(workers=2)
    harness.register("S", lock_scope="step", rollback_supported=True)
    harness.submit(harness.new("s", "S", unit="one", locks=(LOCK,)))
    harness.answer("s", Slept(state=b"", seconds=100.0))
    _poison(harness)

    harness.handle(AbortRequested("s", reply=2))

    assert harness.undo_all() == ["s:one"]
    assert harness.state("s") == ProcedureState.ROLLEDBACK


def test_a_new_submit_of_a_poisoned_key_names_who_poisoned_it() -> None:
    harness = CoreHarness()
    _poison(harness)

    reply = harness.submit(harness.new("new", locks=(LOCK,)))

    assert isinstance(reply.error, KeyPoisoned)
    assert "bad" in str(reply.error)


def test_who_says_poisoned_when_its_tree_fails_already_is_not_undone() -> None:
    harness = CoreHarness(3, rollback_supported=True)
    harness.submit(harness.new("r", unit=""))
    harness.answer("r", Suspended(state=b"", children=(harness.new("a", unit=""), harness.new("b", unit=""))))

    harness.answer("a", boom())
    half_done = ErrorInfo("poisoned", "Poisoned", "half done")
    harness.answer("b", Poisoned(state=b"", keys=("k",), error=half_done))

    assert harness.undo_all() == ["a:", "r:"]
    assert harness.resolved() == {"r": ROLLEDBACK, "a": ROLLEDBACK, "b": FAILED}
    b = harness.core.view("b")
    assert b is not None
    assert b.error == half_done


def test_a_key_that_was_cleared_is_poisoned_again_before_the_next_risky_step_that_names_it() -> None:
    harness = CoreHarness(1)
    harness.submit(harness.new("p"))
    risky = Advanced(state=b"", poisons=("k",))
    harness.answer("p", risky)
    harness.handle(PoisonCleared("k", 2))
    assert harness.submit(harness.new("before", locks=KEY)).error is None

    harness.answer("p", risky)

    assert isinstance(harness.submit(harness.new("after", locks=KEY)).error, KeyPoisoned)
    assert difference(harness) is None


def _fail_with_a_poisoned_key(harness: CoreHarness) -> None:
    harness.submit(harness.new("r"))
    harness.answer("r", Suspended(state=b"", children=(harness.new("c", locks=KEY, poisons=("k",)),)))
    harness.answer("c", boom())


def test_a_key_of_a_tree_that_was_deleted_stays_poisoned_for_the_next_one_with_its_ids_too() -> None:
    harness = CoreHarness(2)
    _fail_with_a_poisoned_key(harness)
    harness.handle(DeleteRequested("r", 2, force=True))

    harness.submit(harness.new("r"))
    harness.answer("r", Suspended(state=b"", children=(harness.new("c", locks=KEY),)))

    assert harness.state("r") is FAILED
    assert harness.core.view("c") is None
    assert difference(harness) is None


def test_who_gets_the_ids_of_a_deleted_tree_does_not_free_what_that_one_poisoned() -> None:
    harness = CoreHarness(2)
    _fail_with_a_poisoned_key(harness)
    harness.handle(DeleteRequested("r", 2, force=True))

    harness.submit(harness.new("r"))
    harness.answer("r", Suspended(state=b"", children=(harness.new("c", poisons=("k",)),)))
    harness.answer("c", DONE)
    harness.answer("r", DONE)

    assert harness.state("r") is SUCCESS
    assert isinstance(harness.submit(harness.new("other", locks=KEY)).error, KeyPoisoned)
    assert difference(harness) is None


def test_a_key_that_only_strangers_poison_any_more_is_not_given_to_the_sibling_that_waits_for_it() -> None:
    key = (LockKey.write("k"),)
    harness = CoreHarness(3)
    harness.submit(harness.new("p"))
    first = harness.new("first", locks=key, poisons=("k",))
    harness.answer("p", Suspended(state=b"", children=(first, harness.new("waiter", locks=key))))
    harness.submit(harness.new("stranger", poisons=("k",)))
    assert {"first", "stranger"} <= harness.inbox.keys()

    harness.answer("first", DONE)

    assert "waiter" not in harness.inbox
    record = harness.core.view("waiter")
    assert record is not None
    assert record.error is not None
    assert record.error.type_name == "KeyPoisoned"


def test_a_retried_root_that_was_paused_is_refused_a_key_that_was_poisoned_meanwhile() -> None:
    key = (LockKey.write("k"),)
    harness = CoreHarness(2)
    harness.submit(harness.new("failed", locks=key))
    harness.answer("failed", boom())
    harness.submit(harness.new("other", locks=key))
    # Given: it stands in line for its keys again, and is paused, when the one before it poisons them.
    harness.handle(RetryRequested("failed", 2))
    harness.handle(PauseRequested("failed", 3))
    harness.answer("other", Poisoned(state=b"", keys=("k",), error=ErrorInfo("error", "Half", "half done")))

    harness.handle(ResumeRequested("failed", 4))

    assert "failed" not in harness.inbox
    error = harness.core.view("failed").error  # type: ignore[union-attr]
    assert error is not None
    assert error.type_name == "KeyPoisoned"


@pytest.mark.parametrize("has_begun", [False, True])
def test_a_step_that_a_retry_takes_up_again_has_its_keys_poisoned(has_begun: bool) -> None:
    harness = CoreHarness(3)
    harness.register("Risky", rollback_supported=True)
    harness.submit(harness.new("root"))
    risky = harness.new("risky", "Risky", poisons=("k",), due_at=None if has_begun else 5.0)
    harness.answer("root", Suspended(state=b"", children=(harness.new("failed"), risky)))
    # Given: it came to a clean end with its tree, which failed and cannot be undone.
    harness.answer("failed", boom())
    if has_begun:
        harness.answer("risky", boom())
    assert harness.state("risky") is ProcedureState.ROLLEDBACK
    assert harness.submit(harness.new("before", locks=(LockKey.write("k"),))).error is None
    harness.answer("before", DONE)

    harness.handle(RetryRequested("root", 2))

    assert "risky" in harness.inbox
    assert isinstance(harness.submit(harness.new("after", locks=(LockKey.write("k"),))).error, KeyPoisoned)
    for name in ("failed", "risky", "root"):
        harness.answer(name, DONE)
    assert harness.submit(harness.new("later", locks=(LockKey.write("k"),))).error is None
