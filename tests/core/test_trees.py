"""Children, failure scopes, rollback and locks of trees."""

from __future__ import annotations

from actorproc.model.ids import Mode
from actorproc.model.messages.events import RollbackRequested, Tick
from actorproc.model.messages.outcomes import Advanced, Finished, Outcome, Poisoned, Slept, Suspended
from actorproc.model.policies import Backoff, LockKey
from actorproc.model.rows.records import ErrorInfo, NewProcedure
from actorproc.model.rows.writes import PutLock, PutPoison, PutProcedure
from actorproc.model.states import ProcedureState
from tests.core.harness import CoreHarness, boom

DONE = Finished(state=b"")


def _suspend(*children: NewProcedure, unit: str | None = None, max_parallel: int | None = None) -> Suspended:
    return Suspended(state=b"", children=children, unit=unit, max_parallel=max_parallel)


def test_parent_children_and_latch_are_one_decision_and_the_parent_wakes_when_all_have_ended() -> None:
    harness = CoreHarness(workers=3)
    harness.submit(harness.new("p"))
    decision = harness.answer("p", _suspend(harness.new("a"), harness.new("b")))
    heads = {write.record.id: write.record for write in decision.writes if isinstance(write, PutProcedure)}
    assert heads["p"].pending == 2
    assert set(heads) == {"p", "a", "b"}

    harness.answer("a", DONE)
    assert "p" not in harness.inbox
    decision = harness.answer("b", DONE)

    assert harness.inbox["p"].children_step == 1
    assert {write.record.id for write in decision.writes if isinstance(write, PutProcedure)} == {"b", "p"}


def test_suspending_on_no_children_resumes_at_once() -> None:
    harness = CoreHarness()
    harness.submit(harness.new("p"))

    harness.answer("p", _suspend())

    assert harness.inbox["p"].token.step == 2


def test_fan_in_is_a_counter_so_each_completion_writes_two_heads() -> None:
    harness = CoreHarness(workers=1)
    harness.submit(harness.new("p"))
    harness.answer("p", _suspend(*(harness.new(f"c{n}") for n in range(500))))

    sizes = set()
    for n in range(499):
        decision = harness.answer(f"c{n}", Finished(state=b"", elapsed=1.0))
        sizes.add(len([w for w in decision.writes if isinstance(w, PutProcedure)]))

    assert sizes <= {2, 3}, "the child, its parent, and the next child handed out"


def test_max_parallel_bounds_how_many_children_run_at_once() -> None:
    harness = CoreHarness(workers=4)
    harness.submit(harness.new("p"))
    harness.answer("p", _suspend(*(harness.new(f"c{n}") for n in range(5)), max_parallel=2))

    assert set(harness.inbox) == {"c0", "c1"}
    harness.answer("c1", DONE)
    assert set(harness.inbox) == {"c0", "c2"}


def test_a_failed_child_undoes_the_whole_tree_newest_first() -> None:
    harness = CoreHarness(workers=2, rollback_supported=True)
    harness.submit(harness.new("p", unit="one"))
    harness.answer("p", _suspend(harness.new("a", unit=""), harness.new("b", unit=""), unit="two"))
    harness.answer("a", DONE)
    harness.answer("b", DONE)
    harness.answer("p", boom())

    assert harness.undo_all() == ["p:two", "b:", "a:", "p:one"]
    assert harness.resolved() == dict.fromkeys(("a", "b", "p"), ProcedureState.ROLLEDBACK)


def test_running_siblings_end_their_step_first_and_sleeping_and_unstarted_ones_stop_at_once() -> None:
    harness = CoreHarness(workers=3, rollback_supported=True)
    harness.submit(harness.new("p", unit=""))
    names = ("sleeps", "runs", "fails", "waits")
    harness.answer("p", _suspend(*(harness.new(name, unit="") for name in names)))
    harness.answer("sleeps", Slept(state=b"", unit="", seconds=99))
    assert "waits" in harness.inbox
    harness.answer("waits", Slept(state=b"", unit="", seconds=99))

    harness.answer("fails", boom())
    assert [run.token.mode for run in harness.inbox.values()] == [Mode.EXECUTE], "runs is still running"

    harness.answer("runs", Advanced(state=b"", unit=""))
    assert harness.undo_all()[-1] == "p:"
    assert set(harness.resolved().values()) == {ProcedureState.ROLLEDBACK}


def test_a_procedure_that_never_executed_is_not_rolled_back() -> None:
    harness = CoreHarness(workers=1, rollback_supported=True)
    harness.submit(harness.new("p", unit=""))
    harness.answer("p", _suspend(harness.new("a", unit=""), harness.new("never", unit="")))

    harness.answer("a", boom())

    assert harness.undo_all() == ["a:", "p:"]
    assert harness.state("never") is ProcedureState.ROLLEDBACK


def test_children_returned_by_a_step_that_ends_meanwhile_are_recorded_and_never_started() -> None:
    harness = CoreHarness(workers=2, rollback_supported=True)
    harness.submit(harness.new("p", unit=""))
    harness.answer("p", _suspend(harness.new("a", unit=""), harness.new("b", unit="")))
    harness.answer("a", boom())

    harness.answer("b", _suspend(harness.new("grandchild", unit=""), unit=""))

    assert harness.undo_all() == ["b:", "a:", "p:"]
    assert harness.resolved()["grandchild"] is ProcedureState.ROLLEDBACK
    assert "grandchild" not in {name for name, _, _ in harness.order}


def test_a_parent_that_resumes_gets_the_failure_and_only_what_is_below_is_undone() -> None:
    harness = CoreHarness(workers=2, rollback_supported=True)
    harness.register("R", rollback_supported=True, on_child_failure="resume")
    harness.submit(harness.new("p", "R", unit=""))
    harness.answer("p", _suspend(harness.new("a", unit=""), harness.new("b", unit=""), unit=""))
    harness.answer("b", DONE)

    harness.answer("a", boom())

    assert harness.undo_all() == ["a:"]
    record = harness.core.view("p")
    assert record is not None
    assert (record.succeeded, record.failed) == (1, 1)
    assert harness.inbox["p"].token.step == 2


def test_undo_children_false_leaves_finished_children_to_the_parent() -> None:
    harness = CoreHarness(workers=2, rollback_supported=True)
    harness.register("P", rollback_supported=True, undo_children=False)
    harness.submit(harness.new("p", "P", unit=""))
    harness.answer("p", _suspend(harness.new("a", unit=""), unit=""))
    harness.answer("a", DONE)

    harness.answer("p", boom())

    assert harness.undo_all() == ["p:"]
    assert harness.state("a") is ProcedureState.SUCCESS


def test_a_rollback_that_raises_keeps_its_place_and_is_retried() -> None:
    harness = CoreHarness(rollback_supported=True, rollback_retry=Backoff(max_attempts=5, base=1.0))
    harness.submit(harness.new("p", unit="one"))
    harness.answer("p", Advanced(state=b"", unit="two"))
    harness.answer("p", boom())
    assert harness.inbox["p"].unit == "two"

    harness.answer("p", boom("undo failed", retryable=True))
    harness.now += 10
    harness.handle(Tick())

    assert harness.undo_all() == ["p:two", "p:one"]


def test_an_exhausted_rollback_fails_and_poisons_the_write_locks() -> None:
    harness = CoreHarness(rollback_supported=True, rollback_retry=Backoff(max_attempts=1))
    harness.submit(harness.new("p", unit="", locks=(LockKey.write("t"), LockKey.read("u"))))
    harness.submit(harness.new("waits", locks=(LockKey.write("t"),)))
    harness.answer("p", boom())

    harness.answer("p", boom("cannot undo", retryable=True))

    assert [write.record.path for write in harness.writes if isinstance(write, PutPoison)] == ["t"]
    assert harness.state("p") is ProcedureState.FAILED
    record = harness.core.view("waits")
    assert record is not None
    assert record.error is not None
    assert record.error.type_name == "KeyPoisoned"
    refused = harness.submit(harness.new("late", locks=(LockKey.read("t/below"),)))
    assert "poisoned by p" in str(refused.error)


def test_a_poisoned_member_is_not_undone_but_the_rest_is() -> None:
    harness = CoreHarness(rollback_supported=True)
    harness.submit(harness.new("p", unit="one"))
    harness.answer("p", _suspend(harness.new("a", unit="")))

    harness.answer("a", Poisoned(state=b"", keys=("t",), error=ErrorInfo("poisoned", "Poisoned", "half done")))

    assert harness.undo_all() == ["p:one"]
    assert harness.resolved() == {"a": ProcedureState.FAILED, "p": ProcedureState.ROLLEDBACK}


def test_a_procedure_without_rollback_ends_failed_and_the_others_are_undone() -> None:
    harness = CoreHarness(rollback_supported=True)
    harness.register("N")
    harness.submit(harness.new("p", unit=""))
    harness.answer("p", _suspend(harness.new("n", "N")))

    harness.answer("n", boom())

    assert harness.undo_all() == ["p:"]
    assert harness.resolved() == {"n": ProcedureState.FAILED, "p": ProcedureState.ROLLEDBACK}


def test_after_the_point_of_no_return_failures_only_retry_forward() -> None:
    harness = CoreHarness(rollback_supported=True)
    harness.submit(harness.new("p", unit="one"))
    harness.answer("p", Advanced(state=b"", unit="two", no_return=True))

    harness.answer("p", boom())
    harness.now += 100
    harness.handle(Tick())

    assert harness.inbox["p"].token.mode is Mode.EXECUTE
    assert harness.state("p") is ProcedureState.RUNNABLE


def test_a_first_step_may_be_the_point_of_no_return() -> None:
    harness = CoreHarness(rollback_supported=True)
    harness.submit(harness.new("p", unit="", no_return=True))

    harness.answer("p", boom())

    assert harness.state("p") is ProcedureState.RUNNABLE


def test_a_finished_childs_lock_stays_with_the_tree_until_the_root_ends() -> None:
    harness = CoreHarness(workers=2)
    harness.submit(harness.new("p"))
    harness.answer("p", _suspend(harness.new("c", locks=(LockKey.write("t"),))))
    harness.submit(harness.new("stranger", locks=(LockKey.write("t"),)))
    harness.answer("c", DONE)
    assert "stranger" not in harness.inbox
    assert [write.record.holder for write in harness.writes if isinstance(write, PutLock)] == ["c", "p"]

    harness.answer("p", DONE)

    assert "stranger" in harness.inbox


def test_conflicting_siblings_queue() -> None:
    harness = CoreHarness(workers=2)
    harness.submit(harness.new("p"))
    key = (LockKey.write("t"),)
    harness.answer("p", _suspend(harness.new("a", locks=key), harness.new("b", locks=key)))
    assert set(harness.inbox) == {"a"}

    harness.answer("a", DONE)

    assert set(harness.inbox) == {"b"}


def test_a_cycle_of_waiting_fails_the_youngest_tree_and_names_it() -> None:
    harness = CoreHarness(workers=2, rollback_supported=True)
    harness.submit(
        harness.new("old", unit="", locks=(LockKey.write("x"),)),
        harness.new("young", unit="", locks=(LockKey.write("y"),)),
    )
    harness.answer("old", Advanced(state=b"", unit="", acquire=(LockKey.write("y"),)))

    harness.answer("young", Advanced(state=b"", unit="", acquire=(LockKey.write("x"),)))

    assert harness.undo_all() == ["young:"]
    record = harness.core.view("young")
    assert record is not None
    assert record.error is not None
    assert record.error.kind == "deadlock"
    assert "old" in record.error.message
    assert "young" in record.error.message
    assert harness.inbox["old"].token.step == 2


def test_step_scoped_locks_are_given_up_between_steps_and_taken_again_for_the_undo() -> None:
    harness = CoreHarness(workers=2, rollback_supported=True, lock_scope="step")
    key = (LockKey.write("t"),)
    harness.submit(harness.new("a", unit="", locks=key), harness.new("b", unit="", locks=key))
    assert set(harness.inbox) == {"a"}

    harness.answer("a", Advanced(state=b"", unit=""))
    assert set(harness.inbox) == {"b"}
    harness.answer("b", boom())
    assert harness.inbox["a"].token.mode is Mode.EXECUTE

    harness.answer("a", DONE)
    assert harness.undo_all() == ["b:"]


def test_too_deep_a_tree_and_a_child_id_in_use_fail_the_parent_clearly() -> None:
    harness = CoreHarness()
    harness.submit(harness.new("p0"))
    for depth in range(64):
        harness.answer(f"p{depth}", _suspend(harness.new(f"p{depth + 1}")))
    harness.answer("p64", _suspend(harness.new("p65")))
    record = harness.core.view("p64")
    assert record is not None
    assert record.error is not None
    assert "deeper than 64" in record.error.message

    harness.submit(harness.new("q"), harness.new("taken"))
    harness.answer("q", _suspend(harness.new("taken")))
    record = harness.core.view("q")
    assert record is not None
    assert record.error is not None
    assert "taken" in record.error.message


def test_every_outcome_class_is_known_to_the_core() -> None:
    for outcome in (Advanced(state=b""), DONE, Slept(state=b"", seconds=1), _suspend()):
        harness = CoreHarness()
        harness.submit(harness.new("p"))
        assert isinstance(outcome, Outcome)
        assert harness.answer("p", outcome).writes


def test_a_parent_that_locks_by_the_step_keeps_what_its_children_locked() -> None:
    harness = CoreHarness(workers=3)
    harness.register("S", lock_scope="step")
    harness.submit(harness.new("p", "S", locks=(LockKey.write("own"), LockKey.read("child"))))
    harness.answer("p", _suspend(harness.new("c", locks=(LockKey.write("child"),))))
    harness.answer("c", DONE)
    harness.submit(
        harness.new("stranger", locks=(LockKey.write("child"),)), harness.new("other", locks=(LockKey.write("own"),))
    )
    assert "stranger" not in harness.inbox

    harness.answer("p", Advanced(state=b""))

    assert "stranger" not in harness.inbox, "the tree keeps the child's key until the root ends"
    assert "other" in harness.inbox, "the parent's own key is free between its steps"
    harness.answer("other", DONE)
    harness.answer("p", DONE)
    assert "stranger" in harness.inbox


def test_two_failing_scopes_of_one_tree_undo_one_after_the_other() -> None:
    harness = CoreHarness(workers=4, rollback_supported=True)
    harness.register("R", rollback_supported=True, on_child_failure="resume")
    harness.register("S", rollback_supported=True, lock_scope="step")
    x, y = (LockKey.write("x"),), (LockKey.write("y"),)
    harness.submit(harness.new("p", "R", unit=""))
    harness.answer("p", _suspend(harness.new("a", unit=""), harness.new("b", unit=""), unit=""))
    for name, key in (("a", y), ("b", x)):
        harness.answer(name, _suspend(harness.new(f"{name} locks by the step", "S", unit="", locks=key), unit=""))
        harness.answer(f"{name} locks by the step", DONE)
    for name, key in (("a", x), ("b", y)):
        harness.answer(name, _suspend(harness.new(f"{name} holds", unit="", locks=key), unit=""))
        harness.answer(f"{name} holds", DONE)

    harness.answer("a", boom())
    assert harness.undo_all() == ["a holds:"], "undoing the other child of a needs y, which b keeps"
    harness.answer("b", boom())

    undone = harness.undo_all()
    assert [unit for unit in undone if unit.startswith("a")] == ["a locks by the step:", "a:"]
    assert [unit for unit in undone if unit.startswith("b")] == ["b holds:", "b locks by the step:", "b:"]
    assert harness.inbox["p"].token.step == 2
    assert harness.state("a") is harness.state("b") is ProcedureState.ROLLEDBACK


def test_what_the_engine_cannot_do_past_the_point_of_no_return_is_retried_and_not_undone() -> None:
    harness = CoreHarness(rollback_supported=True)
    harness.submit(harness.new("p", unit="", no_return=True))

    harness.answer("p", _suspend(harness.new("twin"), harness.new("twin"), unit=""))

    record = harness.core.view("p")
    assert record is not None
    assert record.error is not None
    assert (record.state, record.step, record.error.kind) == (ProcedureState.RUNNABLE, 1, "usage")
    harness.now += 100
    harness.handle(Tick())
    assert harness.inbox["p"].token.mode is Mode.EXECUTE


def test_a_rollback_that_gives_up_waits_for_the_steps_that_still_run_in_its_scope() -> None:
    """A wider failure takes an undo over while a sibling's step runs: what it runs for must not end under it."""
    harness = CoreHarness(3, on_child_failure="resume", rollback_supported=True, rollback_retry=Backoff(max_attempts=1))
    harness.submit(harness.new("p"))
    harness.answer("p", Suspended(state=b"", children=(harness.new("c", unit=""), harness.new("d")), wait="each"))
    harness.answer("c", boom())
    assert harness.inbox["c"].token.mode is Mode.ROLLBACK
    harness.handle(RollbackRequested("p", 9))

    harness.answer("c", boom("cannot undo"))
    assert harness.state("p") is ProcedureState.RUNNABLE

    harness.answer("d", Advanced(state=b""))
    harness.now += 1000
    harness.handle(Tick())
    harness.answer("c", boom("cannot undo"))
    assert harness.state("p") is ProcedureState.FAILED
