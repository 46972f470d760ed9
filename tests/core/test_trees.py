"""Children, failure scopes, rollback and locks of trees."""

from __future__ import annotations

from actorproc.model.ids import Mode
from actorproc.model.messages.events import RollbackRequested, Tick
from actorproc.model.messages.outcomes import Advanced, Finished, Outcome, Poisoned, Slept, Suspended
from actorproc.model.policies import Backoff, LockKey
from actorproc.model.rows.records import ErrorInfo, NewProcedure
from actorproc.model.rows.writes import PutLock, PutPoison, PutProcedure
from actorproc.model.states import ProcedureState
from tests.core.stage import Stage, boom

DONE = Finished(state=b"")


def _suspend(*children: NewProcedure, unit: str | None = None, max_parallel: int | None = None) -> Suspended:
    return Suspended(state=b"", children=children, unit=unit, max_parallel=max_parallel)


def test_parent_children_and_latch_are_one_decision_and_the_parent_wakes_when_all_have_ended() -> None:
    stage = Stage(workers=3)
    stage.submit(stage.new("p"))
    decision = stage.answer("p", _suspend(stage.new("a"), stage.new("b")))
    heads = {write.record.id: write.record for write in decision.writes if isinstance(write, PutProcedure)}
    assert heads["p"].pending == 2
    assert set(heads) == {"p", "a", "b"}

    stage.answer("a", DONE)
    assert "p" not in stage.inbox
    decision = stage.answer("b", DONE)

    assert stage.inbox["p"].children_step == 1
    assert {write.record.id for write in decision.writes if isinstance(write, PutProcedure)} == {"b", "p"}


def test_suspending_on_no_children_resumes_at_once() -> None:
    stage = Stage()
    stage.submit(stage.new("p"))

    stage.answer("p", _suspend())

    assert stage.inbox["p"].token.step == 2


def test_fan_in_is_a_counter_so_each_completion_writes_two_heads() -> None:
    stage = Stage(workers=1)
    stage.submit(stage.new("p"))
    stage.answer("p", _suspend(*(stage.new(f"c{n}") for n in range(500))))

    sizes = set()
    for n in range(499):
        decision = stage.answer(f"c{n}", Finished(state=b"", elapsed=1.0))
        sizes.add(len([w for w in decision.writes if isinstance(w, PutProcedure)]))

    assert sizes <= {2, 3}, "the child, its parent, and the next child handed out"


def test_max_parallel_bounds_how_many_children_run_at_once() -> None:
    stage = Stage(workers=4)
    stage.submit(stage.new("p"))
    stage.answer("p", _suspend(*(stage.new(f"c{n}") for n in range(5)), max_parallel=2))

    assert set(stage.inbox) == {"c0", "c1"}
    stage.answer("c1", DONE)
    assert set(stage.inbox) == {"c0", "c2"}


def test_a_failed_child_undoes_the_whole_tree_newest_first() -> None:
    stage = Stage(workers=2, rollback_supported=True)
    stage.submit(stage.new("p", unit="one"))
    stage.answer("p", _suspend(stage.new("a", unit=""), stage.new("b", unit=""), unit="two"))
    stage.answer("a", DONE)
    stage.answer("b", DONE)
    stage.answer("p", boom())

    assert stage.undo_all() == ["p:two", "b:", "a:", "p:one"]
    assert stage.resolved() == dict.fromkeys(("a", "b", "p"), ProcedureState.ROLLEDBACK)


def test_running_siblings_end_their_step_first_and_sleeping_and_unstarted_ones_stop_at_once() -> None:
    stage = Stage(workers=3, rollback_supported=True)
    stage.submit(stage.new("p", unit=""))
    names = ("sleeps", "runs", "fails", "waits")
    stage.answer("p", _suspend(*(stage.new(name, unit="") for name in names)))
    stage.answer("sleeps", Slept(state=b"", unit="", seconds=99))
    assert "waits" in stage.inbox
    stage.answer("waits", Slept(state=b"", unit="", seconds=99))

    stage.answer("fails", boom())
    assert [run.token.mode for run in stage.inbox.values()] == [Mode.EXECUTE], "runs is still running"

    stage.answer("runs", Advanced(state=b"", unit=""))
    assert stage.undo_all()[-1] == "p:"
    assert set(stage.resolved().values()) == {ProcedureState.ROLLEDBACK}


def test_a_procedure_that_never_executed_is_not_rolled_back() -> None:
    stage = Stage(workers=1, rollback_supported=True)
    stage.submit(stage.new("p", unit=""))
    stage.answer("p", _suspend(stage.new("a", unit=""), stage.new("never", unit="")))

    stage.answer("a", boom())

    assert stage.undo_all() == ["a:", "p:"]
    assert stage.state("never") is ProcedureState.ROLLEDBACK


def test_children_returned_by_a_step_that_ends_meanwhile_are_recorded_and_never_started() -> None:
    stage = Stage(workers=2, rollback_supported=True)
    stage.submit(stage.new("p", unit=""))
    stage.answer("p", _suspend(stage.new("a", unit=""), stage.new("b", unit="")))
    stage.answer("a", boom())

    stage.answer("b", _suspend(stage.new("grandchild", unit=""), unit=""))

    assert stage.undo_all() == ["b:", "a:", "p:"]
    assert stage.resolved()["grandchild"] is ProcedureState.ROLLEDBACK
    assert "grandchild" not in {name for name, _, _ in stage.order}


def test_a_parent_that_resumes_gets_the_failure_and_only_what_is_below_is_undone() -> None:
    stage = Stage(workers=2, rollback_supported=True)
    stage.register("R", rollback_supported=True, on_child_failure="resume")
    stage.submit(stage.new("p", "R", unit=""))
    stage.answer("p", _suspend(stage.new("a", unit=""), stage.new("b", unit=""), unit=""))
    stage.answer("b", DONE)

    stage.answer("a", boom())

    assert stage.undo_all() == ["a:"]
    record = stage.core.view("p")
    assert record is not None
    assert (record.succeeded, record.failed) == (1, 1)
    assert stage.inbox["p"].token.step == 2


def test_undo_children_false_leaves_finished_children_to_the_parent() -> None:
    stage = Stage(workers=2, rollback_supported=True)
    stage.register("P", rollback_supported=True, undo_children=False)
    stage.submit(stage.new("p", "P", unit=""))
    stage.answer("p", _suspend(stage.new("a", unit=""), unit=""))
    stage.answer("a", DONE)

    stage.answer("p", boom())

    assert stage.undo_all() == ["p:"]
    assert stage.state("a") is ProcedureState.SUCCESS


def test_a_rollback_that_raises_keeps_its_place_and_is_retried() -> None:
    stage = Stage(rollback_supported=True, rollback_retry=Backoff(max_attempts=5, base=1.0))
    stage.submit(stage.new("p", unit="one"))
    stage.answer("p", Advanced(state=b"", unit="two"))
    stage.answer("p", boom())
    assert stage.inbox["p"].unit == "two"

    stage.answer("p", boom("undo failed", retryable=True))
    stage.now += 10
    stage.handle(Tick())

    assert stage.undo_all() == ["p:two", "p:one"]


def test_an_exhausted_rollback_fails_and_poisons_the_write_locks() -> None:
    stage = Stage(rollback_supported=True, rollback_retry=Backoff(max_attempts=1))
    stage.submit(stage.new("p", unit="", locks=(LockKey.write("t"), LockKey.read("u"))))
    stage.submit(stage.new("waits", locks=(LockKey.write("t"),)))
    stage.answer("p", boom())

    stage.answer("p", boom("cannot undo", retryable=True))

    assert [write.record.path for write in stage.writes if isinstance(write, PutPoison)] == ["t"]
    assert stage.state("p") is ProcedureState.FAILED
    record = stage.core.view("waits")
    assert record is not None
    assert record.error is not None
    assert record.error.type_name == "KeyPoisoned"
    refused = stage.submit(stage.new("late", locks=(LockKey.read("t/below"),)))
    assert "poisoned by p" in str(refused.error)


def test_a_poisoned_member_is_not_undone_but_the_rest_is() -> None:
    stage = Stage(rollback_supported=True)
    stage.submit(stage.new("p", unit="one"))
    stage.answer("p", _suspend(stage.new("a", unit="")))

    stage.answer("a", Poisoned(state=b"", keys=("t",), error=ErrorInfo("poisoned", "Poisoned", "half done")))

    assert stage.undo_all() == ["p:one"]
    assert stage.resolved() == {"a": ProcedureState.FAILED, "p": ProcedureState.ROLLEDBACK}


def test_a_procedure_without_rollback_ends_failed_and_the_others_are_undone() -> None:
    stage = Stage(rollback_supported=True)
    stage.register("N")
    stage.submit(stage.new("p", unit=""))
    stage.answer("p", _suspend(stage.new("n", "N")))

    stage.answer("n", boom())

    assert stage.undo_all() == ["p:"]
    assert stage.resolved() == {"n": ProcedureState.FAILED, "p": ProcedureState.ROLLEDBACK}


def test_after_the_point_of_no_return_failures_only_retry_forward() -> None:
    stage = Stage(rollback_supported=True)
    stage.submit(stage.new("p", unit="one"))
    stage.answer("p", Advanced(state=b"", unit="two", no_return=True))

    stage.answer("p", boom())
    stage.now += 100
    stage.handle(Tick())

    assert stage.inbox["p"].token.mode is Mode.EXECUTE
    assert stage.state("p") is ProcedureState.RUNNABLE


def test_a_first_step_may_be_the_point_of_no_return() -> None:
    stage = Stage(rollback_supported=True)
    stage.submit(stage.new("p", unit="", no_return=True))

    stage.answer("p", boom())

    assert stage.state("p") is ProcedureState.RUNNABLE


def test_a_finished_childs_lock_stays_with_the_tree_until_the_root_ends() -> None:
    stage = Stage(workers=2)
    stage.submit(stage.new("p"))
    stage.answer("p", _suspend(stage.new("c", locks=(LockKey.write("t"),))))
    stage.submit(stage.new("stranger", locks=(LockKey.write("t"),)))
    stage.answer("c", DONE)
    assert "stranger" not in stage.inbox
    assert [write.record.holder for write in stage.writes if isinstance(write, PutLock)] == ["c", "p"]

    stage.answer("p", DONE)

    assert "stranger" in stage.inbox


def test_conflicting_siblings_queue() -> None:
    stage = Stage(workers=2)
    stage.submit(stage.new("p"))
    key = (LockKey.write("t"),)
    stage.answer("p", _suspend(stage.new("a", locks=key), stage.new("b", locks=key)))
    assert set(stage.inbox) == {"a"}

    stage.answer("a", DONE)

    assert set(stage.inbox) == {"b"}


def test_a_cycle_of_waiting_fails_the_youngest_tree_and_names_it() -> None:
    stage = Stage(workers=2, rollback_supported=True)
    stage.submit(
        stage.new("old", unit="", locks=(LockKey.write("x"),)), stage.new("young", unit="", locks=(LockKey.write("y"),))
    )
    stage.answer("old", Advanced(state=b"", unit="", acquire=(LockKey.write("y"),)))

    stage.answer("young", Advanced(state=b"", unit="", acquire=(LockKey.write("x"),)))

    assert stage.undo_all() == ["young:"]
    record = stage.core.view("young")
    assert record is not None
    assert record.error is not None
    assert record.error.kind == "deadlock"
    assert "old" in record.error.message
    assert "young" in record.error.message
    assert stage.inbox["old"].token.step == 2


def test_step_scoped_locks_are_given_up_between_steps_and_taken_again_for_the_undo() -> None:
    stage = Stage(workers=2, rollback_supported=True, lock_scope="step")
    key = (LockKey.write("t"),)
    stage.submit(stage.new("a", unit="", locks=key), stage.new("b", unit="", locks=key))
    assert set(stage.inbox) == {"a"}

    stage.answer("a", Advanced(state=b"", unit=""))
    assert set(stage.inbox) == {"b"}
    stage.answer("b", boom())
    assert stage.inbox["a"].token.mode is Mode.EXECUTE

    stage.answer("a", DONE)
    assert stage.undo_all() == ["b:"]


def test_too_deep_a_tree_and_a_child_id_in_use_fail_the_parent_clearly() -> None:
    stage = Stage()
    stage.submit(stage.new("p0"))
    for depth in range(64):
        stage.answer(f"p{depth}", _suspend(stage.new(f"p{depth + 1}")))
    stage.answer("p64", _suspend(stage.new("p65")))
    record = stage.core.view("p64")
    assert record is not None
    assert record.error is not None
    assert "deeper than 64" in record.error.message

    stage.submit(stage.new("q"), stage.new("taken"))
    stage.answer("q", _suspend(stage.new("taken")))
    record = stage.core.view("q")
    assert record is not None
    assert record.error is not None
    assert "taken" in record.error.message


def test_every_outcome_class_is_known_to_the_core() -> None:
    for outcome in (Advanced(state=b""), DONE, Slept(state=b"", seconds=1), _suspend()):
        stage = Stage()
        stage.submit(stage.new("p"))
        assert isinstance(outcome, Outcome)
        assert stage.answer("p", outcome).writes


def test_a_parent_that_locks_by_the_step_keeps_what_its_children_locked() -> None:
    stage = Stage(workers=3)
    stage.register("S", lock_scope="step")
    stage.submit(stage.new("p", "S", locks=(LockKey.write("own"), LockKey.read("child"))))
    stage.answer("p", _suspend(stage.new("c", locks=(LockKey.write("child"),))))
    stage.answer("c", DONE)
    stage.submit(
        stage.new("stranger", locks=(LockKey.write("child"),)), stage.new("other", locks=(LockKey.write("own"),))
    )
    assert "stranger" not in stage.inbox

    stage.answer("p", Advanced(state=b""))

    assert "stranger" not in stage.inbox, "the tree keeps the child's key until the root ends"
    assert "other" in stage.inbox, "the parent's own key is free between its steps"
    stage.answer("other", DONE)
    stage.answer("p", DONE)
    assert "stranger" in stage.inbox


def test_two_failing_scopes_of_one_tree_undo_one_after_the_other() -> None:
    stage = Stage(workers=4, rollback_supported=True)
    stage.register("R", rollback_supported=True, on_child_failure="resume")
    stage.register("S", rollback_supported=True, lock_scope="step")
    x, y = (LockKey.write("x"),), (LockKey.write("y"),)
    stage.submit(stage.new("p", "R", unit=""))
    stage.answer("p", _suspend(stage.new("a", unit=""), stage.new("b", unit=""), unit=""))
    for name, key in (("a", y), ("b", x)):
        stage.answer(name, _suspend(stage.new(f"{name} locks by the step", "S", unit="", locks=key), unit=""))
        stage.answer(f"{name} locks by the step", DONE)
    for name, key in (("a", x), ("b", y)):
        stage.answer(name, _suspend(stage.new(f"{name} holds", unit="", locks=key), unit=""))
        stage.answer(f"{name} holds", DONE)

    stage.answer("a", boom())
    assert stage.undo_all() == ["a holds:"], "undoing the other child of a needs y, which b keeps"
    stage.answer("b", boom())

    undone = stage.undo_all()
    assert [unit for unit in undone if unit.startswith("a")] == ["a locks by the step:", "a:"]
    assert [unit for unit in undone if unit.startswith("b")] == ["b holds:", "b locks by the step:", "b:"]
    assert stage.inbox["p"].token.step == 2
    assert stage.state("a") is stage.state("b") is ProcedureState.ROLLEDBACK


def test_what_the_engine_cannot_do_past_the_point_of_no_return_is_retried_and_not_undone() -> None:
    stage = Stage(rollback_supported=True)
    stage.submit(stage.new("p", unit="", no_return=True))

    stage.answer("p", _suspend(stage.new("twin"), stage.new("twin"), unit=""))

    record = stage.core.view("p")
    assert record is not None
    assert record.error is not None
    assert (record.state, record.step, record.error.kind) == (ProcedureState.RUNNABLE, 1, "usage")
    stage.now += 100
    stage.handle(Tick())
    assert stage.inbox["p"].token.mode is Mode.EXECUTE


def test_a_rollback_that_gives_up_waits_for_the_steps_that_still_run_in_its_scope() -> None:
    """A wider failure takes an undo over while a sibling's step runs: what it runs for must not end under it."""
    stage = Stage(3, on_child_failure="resume", rollback_supported=True, rollback_retry=Backoff(max_attempts=1))
    stage.submit(stage.new("p"))
    stage.answer("p", Suspended(state=b"", children=(stage.new("c", unit=""), stage.new("d")), wait="each"))
    stage.answer("c", boom())
    assert stage.inbox["c"].token.mode is Mode.ROLLBACK
    stage.handle(RollbackRequested("p", 9))

    stage.answer("c", boom("cannot undo"))
    assert stage.state("p") is ProcedureState.RUNNABLE

    stage.answer("d", Advanced(state=b""))
    stage.now += 1000
    stage.handle(Tick())
    stage.answer("c", boom("cannot undo"))
    assert stage.state("p") is ProcedureState.FAILED
