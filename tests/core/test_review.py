"""Odd but legal programs, and crowds: what a reader of the core tried to break."""

from __future__ import annotations

from collections.abc import Callable

from actorproc.core.coordinator import Coordinator
from actorproc.errors import KeyPoisoned
from actorproc.model.ids import Mode, WorkerId
from actorproc.model.messages.events import (
    AbortRequested,
    Published,
    Signalled,
    Submitted,
    Tick,
    TypeRegistered,
    WorkerReady,
)
from actorproc.model.messages.outcomes import Advanced, Answered, Finished, Refused, Slept, Suspended, Waited
from actorproc.model.policies import Backoff, LockKey, TypeMeta
from actorproc.model.rows.records import ProcedureRecord, UndoRecord
from actorproc.model.rows.snapshot import RecoverySnapshot
from actorproc.model.rows.writes import PutLock, PutProcedure
from actorproc.model.states import Phase, ProcedureState
from tests.core.stage import Stage, boom
from tests.kit.counting import calls_of

DONE = Finished(state=b"", elapsed=1.0)
KEY = LockKey.write("k")


def _settle(stage: Stage) -> None:
    stage.core.settle(stage.core.seal())


# ---------------------------------------------------------------- crowds
def _calls_for_each(crowd: Callable[[int], None], size: int) -> float:
    calls, _ = calls_of(lambda: crowd(size))
    return calls / size


def test_siblings_queue_for_one_key_at_a_price_that_does_not_depend_on_their_number() -> None:
    def crowd(size: int) -> None:
        stage = Stage(workers=2)
        stage.submit(stage.new("p"))
        children = tuple(stage.new(f"c{n}", locks=(KEY,)) for n in range(size))
        stage.answer("p", Suspended(state=b"", children=children))
        while "p" not in stage.inbox:
            stage.answer(next(iter(stage.inbox)), DONE)

    assert _calls_for_each(crowd, 1000) < 1.5 * _calls_for_each(crowd, 100)


def test_two_families_of_one_tree_share_a_key_without_a_search_through_both_for_each() -> None:
    def crowd(size: int) -> None:
        stage = Stage(workers=2)
        stage.submit(stage.new("root"))
        stage.answer("root", Suspended(state=b"", children=(stage.new("left"), stage.new("right"))))
        for side in ("left", "right"):
            children = tuple(stage.new(f"{side}{n}", locks=(KEY,)) for n in range(size // 2))
            stage.answer(side, Suspended(state=b"", children=children))
        while "root" not in stage.inbox:
            stage.answer(next(iter(stage.inbox)), DONE)

    # 5,550 as it is; looking at every waiter of both families for each of them, takes far more.
    assert _calls_for_each(crowd, 1000) < 8000


def test_children_fail_one_by_one_under_a_parent_that_resumes() -> None:
    def crowd(size: int) -> None:
        stage = Stage(workers=2, on_child_failure="resume", rollback_supported=True)
        stage.submit(stage.new("p"))
        children = tuple(stage.new(f"c{n}", unit="") for n in range(size))
        stage.answer("p", Suspended(state=b"", children=children))
        while "p" not in stage.inbox:
            name, run = next(iter(stage.inbox.items()))
            stage.answer(name, DONE if run.token.mode is Mode.ROLLBACK else boom())

    assert _calls_for_each(crowd, 1000) < 3 * _calls_for_each(crowd, 100)


def test_a_crowd_of_undos_waits_for_one_key_without_a_search_through_all_for_each() -> None:
    def crowd(size: int) -> None:
        stage = Stage(workers=2, on_child_failure="resume", rollback_supported=True)
        stage.register("Step", rollback_supported=True, lock_scope="step")
        stage.submit(stage.new("p"))
        children = tuple(stage.new(f"c{n}", "Step", unit="u", locks=(LockKey.write("a"),)) for n in range(size))
        stage.answer("p", Suspended(state=b"", children=(*children, stage.new("keeper"))))
        for child in children:
            stage.answer(child.id, Waited(state=b"", event="never"))
        stage.answer("keeper", Advanced(state=b"", acquire=(LockKey.read("a/b"),)))
        for child in children:
            stage.handle(AbortRequested(child.id, 2, force=True))
        stage.answer("keeper", DONE)
        assert len(stage.undo_all()) == size

    # They take turns, so each costs what they are; to look at all of them for each pair would make that the square.
    assert _calls_for_each(crowd, 160) < 3 * _calls_for_each(crowd, 80)


def test_siblings_that_wait_for_each_other_by_two_keys_are_found_in_a_crowd() -> None:
    stage = Stage(workers=8)
    stage.submit(stage.new("p"))
    a, b = LockKey.write("a"), LockKey.write("b")
    children = (stage.new("x", locks=(a,)), stage.new("y", locks=(b,)))
    stage.answer("p", Suspended(state=b"", children=(*children, *(stage.new(f"c{n}", locks=(a,)) for n in range(50)))))

    stage.answer("x", Advanced(state=b"", acquire=(b,)))
    stage.answer("y", Advanced(state=b"", acquire=(a,)))

    assert "deadlock" in {record.error.kind for record in _heads(stage).values() if record.error is not None}


def _heads(stage: Stage) -> dict[str, ProcedureRecord]:
    return {write.record.id: write.record for write in stage.writes if isinstance(write, PutProcedure)}


# ---------------------------------------------------------------- poison keys
def _poison(stage: Stage) -> None:
    stage.register("P", rollback_supported=True, rollback_retry=Backoff(max_attempts=1))
    stage.submit(stage.new("bad", "P", unit="", locks=(KEY,)))
    stage.answer("bad", boom())
    stage.answer("bad", boom())
    assert stage.state("bad") == ProcedureState.FAILED


def test_a_procedure_accepted_before_a_key_was_poisoned_does_not_get_it_afterwards() -> None:
    stage = Stage(workers=2)
    stage.submit(stage.new("late", due_at=10.0, locks=(KEY,)))
    _poison(stage)

    stage.now = 11.0
    stage.handle(Tick())

    assert "late" not in stage.inbox
    assert stage.state("late") == ProcedureState.ROLLEDBACK
    assert _heads(stage)["late"].error.type_name == "KeyPoisoned"


def test_a_poisoned_key_is_not_acquired_by_a_later_step() -> None:
    stage = Stage(workers=2)
    stage.submit(stage.new("p"))
    _poison(stage)

    stage.answer("p", Advanced(state=b"", acquire=(LockKey.read("k/below"),)))

    assert "p" not in stage.inbox
    assert _heads(stage)["p"].error.type_name == "KeyPoisoned"


def test_an_undo_gets_back_the_keys_that_were_poisoned_meanwhile() -> None:
    stage = Stage(workers=2)
    stage.register("S", lock_scope="step", rollback_supported=True)
    stage.submit(stage.new("s", "S", unit="one", locks=(KEY,)))
    stage.answer("s", Slept(state=b"", seconds=100.0))
    _poison(stage)

    stage.handle(AbortRequested("s", reply=2))

    assert stage.undo_all() == ["s:one"]
    assert stage.state("s") == ProcedureState.ROLLEDBACK


def test_a_new_submit_of_a_poisoned_key_names_who_poisoned_it() -> None:
    stage = Stage()
    _poison(stage)

    reply = stage.submit(stage.new("new", locks=(KEY,)))

    assert isinstance(reply.error, KeyPoisoned)
    assert "bad" in str(reply.error)


def test_acquiring_the_same_key_at_each_step_does_not_grow_the_head() -> None:
    stage = Stage()
    stage.submit(stage.new("p"))
    for _ in range(20):
        stage.answer("p", Advanced(state=b"", acquire=(KEY,)))

    assert _heads(stage)["p"].locks == (KEY,)
    assert len([write for write in stage.writes if isinstance(write, PutLock)]) == 1


# ---------------------------------------------------------------- deadlines and timers
def test_a_deadline_kills_the_running_child_also_when_its_suspended_parent_is_looked_at_first() -> None:
    stage = Stage(workers=2)
    stage.submit(stage.new("a", deadline=10.0))
    stage.answer("a", Suspended(state=b"", children=(stage.new("b"), stage.new("c"))))

    stage.now = 11.0
    stage.handle(Tick())

    assert {kill.token.procedure for kill in stage.kills()} == {"b", "c"}


def test_a_step_killed_for_the_deadline_of_its_tree_is_charged_to_nobody() -> None:
    stage = Stage(workers=1)
    stage.submit(stage.new("a", deadline=10.0))
    stage.answer("a", Suspended(state=b"", children=(stage.new("b"),)))
    stage.now = 11.0
    stage.handle(Tick())

    stage.kill(0)

    assert _heads(stage)["b"].crashes == 0
    assert stage.state("a") == stage.state("b") == ProcedureState.FAILED, "neither has a rollback"


def test_deadlines_of_finished_procedures_are_forgotten() -> None:
    stage = Stage()
    for n in range(1000):
        stage.submit(stage.new(f"p{n}", deadline=1e9 + n))
        stage.answer(f"p{n}", DONE)
        _settle(stage)

    timers = stage.core._state.timers
    assert len(timers.entries()) == 0
    assert len(timers._heap) < 200
    assert stage.core.next_deadline() is None


def test_time_limits_of_waits_that_ended_in_time_are_forgotten() -> None:
    stage = Stage()
    stage.submit(stage.new("p"))
    for n in range(1000):
        stage.answer("p", Waited(state=b"", event="go", timeout=1e6 + n))
        stage.handle(Signalled("p", b"", reply=n))

    assert len(stage.core._state.timers._heap) < 200


def test_a_deadline_stays_when_a_wait_ends_that_was_due_at_the_same_time() -> None:
    stage = Stage()
    stage.submit(stage.new("p", deadline=100.0))
    stage.answer("p", Waited(state=b"", event="go", timeout=100.0))
    stage.handle(Signalled("p", b"", reply=1))
    stage.answer("p", Waited(state=b"", event="again"))

    stage.now = 100.0
    stage.handle(Tick())

    assert stage.state("p") == ProcedureState.FAILED
    assert _heads(stage)["p"].error.kind == "deadline"


# ---------------------------------------------------------------- abort
def test_an_abort_that_could_not_be_asked_is_asked_when_the_class_is_registered_again() -> None:
    stage = Stage(asks_abort=True)
    stage.submit(stage.new("p"))
    stage.answer("p", Waited(state=b"", event="go"))
    stage.handle(AbortRequested("p", reply=1))
    stage.answer("p", Refused(reason="load() raised"))
    assert stage.core.phase(stage.core.view("p"))[0] is Phase.PARKED

    stage.register("T", asks_abort=True)

    assert stage.inbox["p"].token.mode is Mode.ASK_ABORT


def test_aborting_a_suspended_parent_ends_its_running_child_first_and_cancels_the_queued_one() -> None:
    stage = Stage(workers=1, rollback_supported=True)
    stage.submit(stage.new("p", unit="one"))
    stage.answer("p", Suspended(state=b"", children=(stage.new("a", unit=""), stage.new("b", unit="")), unit="two"))

    stage.handle(AbortRequested("p", reply=1))
    assert [run.token.mode for run in stage.inbox.values()] == [Mode.EXECUTE]
    stage.answer("a", Finished(state=b"", elapsed=1.0))

    assert stage.undo_all() == ["a:", "p:one"]
    assert stage.resolved() == dict.fromkeys(("b", "a", "p"), ProcedureState.ROLLEDBACK)


def test_the_answer_to_an_abort_question_comes_after_the_last_child_ended() -> None:
    stage = Stage(workers=2)
    stage.register("A", asks_abort=True)
    stage.submit(stage.new("p", "A"))
    stage.answer("p", Suspended(state=b"", children=(stage.new("c"),)))
    stage.handle(AbortRequested("p", reply=1))
    assert stage.inbox["p"].token.mode is Mode.ASK_ABORT
    stage.answer("c", DONE)

    stage.answer("p", Answered(allowed=False))

    assert (stage.inbox["p"].token.mode, stage.inbox["p"].token.step) == (Mode.EXECUTE, 2)


# ---------------------------------------------------------------- nested scopes
def test_a_rollback_that_gives_up_below_two_resuming_parents_is_handed_to_the_nearest_one() -> None:
    stage = Stage(workers=1)
    stage.register("R", on_child_failure="resume", rollback_supported=True)
    stage.register("C", rollback_supported=True, rollback_retry=Backoff(max_attempts=1))
    stage.submit(stage.new("outer", "R", unit="o"))
    stage.answer("outer", Suspended(state=b"", children=(stage.new("inner", "R", unit="i"),), unit="o2"))
    stage.answer("inner", Suspended(state=b"", children=(stage.new("leaf", "C", unit="", locks=(KEY,)),), unit="i2"))
    stage.answer("leaf", boom())
    stage.answer("leaf", boom())

    assert stage.state("leaf") == ProcedureState.FAILED
    assert stage.inbox["inner"].children_step == 1
    stage.answer("inner", boom())
    assert stage.undo_all() == ["inner:i2", "inner:i"]
    assert stage.state("inner") == ProcedureState.ROLLEDBACK
    stage.answer("outer", DONE)
    assert stage.state("outer") == ProcedureState.SUCCESS


def test_grandchildren_of_a_parent_that_compensates_itself_are_left_alone() -> None:
    stage = Stage(workers=1, rollback_supported=True)
    stage.register("K", undo_children=False, rollback_supported=True)
    stage.submit(stage.new("root", unit="r"))
    stage.answer("root", Suspended(state=b"", children=(stage.new("keep", "K", unit="k"),), unit="r2"))
    stage.answer("keep", Suspended(state=b"", children=(stage.new("leaf", unit="", locks=(KEY,)),), unit="k2"))
    stage.answer("leaf", DONE)
    stage.answer("keep", DONE)
    stage.answer("root", boom())

    assert stage.undo_all() == ["root:r2", "keep:k2", "keep:k", "root:r"]
    assert stage.state("leaf") == ProcedureState.SUCCESS


def test_a_child_past_the_point_of_no_return_makes_the_whole_tree_go_forward() -> None:
    stage = Stage(workers=2)
    stage.submit(stage.new("p"))
    stage.answer("p", Suspended(state=b"", children=(stage.new("c", no_return=True), stage.new("d"))))
    stage.answer("d", boom())

    assert stage.state("d") == ProcedureState.RUNNABLE
    assert stage.core.phase(stage.core.view("d"))[0] is Phase.STUCK


def test_an_abort_past_the_point_of_no_return_is_recorded_without_effect() -> None:
    stage = Stage(workers=1, rollback_supported=True)
    stage.submit(stage.new("p", unit="one", no_return=True))
    stage.answer("p", Slept(state=b"", seconds=10.0))

    stage.handle(AbortRequested("p", reply=1))
    stage.handle(AbortRequested("p", reply=2, force=True))

    assert _heads(stage)["p"].aborting
    assert stage.state("p") == ProcedureState.WAITING_TIMEOUT


def test_a_wait_past_the_point_of_no_return_goes_on_when_its_time_is_up() -> None:
    stage = Stage(workers=1, rollback_supported=True)
    stage.submit(stage.new("p", unit="one", no_return=True))
    stage.answer("p", Waited(state=b"", event="go", timeout=5.0))
    stage.now = 6.0
    stage.handle(Tick())
    assert _heads(stage)["p"].error.kind == "wait-timeout"
    assert stage.core.phase(stage.core.view("p"))[0] is Phase.WAITING

    stage.handle(Published("go", b"now", reply=1))

    assert stage.inbox["p"].event == b"now"


# ---------------------------------------------------------------- recovery of damaged trees
def _head(name: str, parent: str | None, root: str, seq: int, **fields: object) -> ProcedureRecord:
    return ProcedureRecord(id=name, type_name="T", version=1, root=root, parent=parent, seq=seq, **fields)  # type: ignore[arg-type]


def _restored(snapshot: RecoverySnapshot) -> Stage:
    stage = Stage(workers=0)
    stage.core, _ = Coordinator.restore(snapshot, 0.0)
    stage.handle(TypeRegistered(TypeMeta(type_name="T")))
    stage.handle(WorkerReady(WorkerId(0, 1)))
    return stage


def test_a_tree_with_a_damaged_member_stands_still_and_the_others_run() -> None:
    waiting = {"state": ProcedureState.WAITING, "step": 2, "awaiting": 1, "pending": 1, "width": 1, "children": 1}
    top = _head("top", None, "top", 1, **waiting)
    leaf = _head("leaf", "middle", "top", 3)
    other = _head("other", None, "other", 4)
    units = [UndoRecord("top", 1, "middle", "", 1)]

    stage = _restored(RecoverySnapshot(1, 5, 1, [top, leaf, other], units, [], [], [], []))

    assert set(stage.inbox) == {"other"}
    stage.answer("other", DONE)
    assert stage.core.phase(top)[0] is Phase.PARKED
    assert stage.core.phase(leaf)[0] is Phase.PARKED
    for event in (AbortRequested("top", reply=1), Signalled("leaf", b"", reply=2)):
        assert any(getattr(command, "error", None) is not None for command in stage.handle(event).commands)
    reply = next(iter(stage.handle(Submitted((stage.new("leaf"),), reply=3)).commands))
    assert reply.error is not None, "its record must not be written over"
