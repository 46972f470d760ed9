"""The states of new procedures wait in memory for their worker: few enough, and never those of another procedure."""

from __future__ import annotations

from actorproc import Procedure, ProcedureManager, Status
from actorproc.engine.pipeline.commit_cache import CommitCache
from actorproc.model.rows.records import ProcedureRecord, StepKind, StepRecord
from actorproc.model.rows.writes import DeleteProcedure, PutStep
from actorproc.model.states import ProcedureState


def put(procedure, number=1, state=b"state"):
    return PutStep(StepRecord(procedure=procedure, number=number, kind=StepKind.STEP, at=1.0, state=state))


def delete(procedure):
    head = {"id": procedure, "type_name": "t", "version": 1, "root": procedure, "seq": 1, "digest": b""}
    return DeleteProcedure(ProcedureRecord(**head, parent=None, state=ProcedureState.SUCCESS))


def test_a_first_state_is_given_away_once():
    states = CommitCache()
    write = put("a")
    states.committed([write, put("b", 2)], 0.0)

    assert states.take_state("a", 2) is None
    assert states.take_state("a", 1) is write.record
    assert states.take_state("a", 1) is None
    assert states.take_state("b", 2) is None


def test_a_first_record_that_was_emptied_at_its_end_is_not_kept():
    states = CommitCache()

    states.committed([put("a", state=b"")], 0.0)

    assert states.take_state("a", 1) is None


def test_whoever_gets_the_id_of_a_deleted_procedure_gets_its_own_state():
    states = CommitCache()

    states.committed([put("a", state=b"of the first one"), delete("a")], 0.0)
    assert states.take_state("a", 1) is None

    states.committed([put("a", state=b"of the first one"), delete("a"), put("a", state=b"of the second one")], 0.0)
    taken = states.take_state("a", 1)
    assert taken is not None
    assert taken.state == b"of the second one"


def test_so_many_are_kept_and_those_that_came_first():
    states = CommitCache(most=2, most_bytes=1000)

    states.committed([put("a"), put("b"), put("c")], 0.0)

    assert [name for name in "abc" if states.take_state(name, 1)] == ["a", "b"]


def test_so_many_bytes_are_kept():
    states = CommitCache(most=10, most_bytes=10)

    states.committed([put("large", state=b"x" * 11), put("a", state=b"x" * 6), put("b", state=b"x" * 6)], 0.0)
    assert [name for name in ("large", "a", "b") if states.take_state(name, 1)] == ["a"]

    states.committed([put("c", state=b"x" * 6)], 0.0)
    assert states.take_state("c", 1) is not None


def test_who_has_waited_for_long_makes_room():
    states = CommitCache(most=2, most_bytes=1000)
    states.committed([put("asleep")], 0.0)
    states.committed([put("a"), put("b"), put("c")], 60.0)

    assert [name for name in ("asleep", "a", "b", "c") if states.take_state(name, 1)] == ["a", "b"]


def test_after_the_store_was_opened_again_states_are_read_from_it():
    states = CommitCache(most=2, most_bytes=10)
    states.committed([put("a", state=b"x" * 8)], 0.0)

    states.forget()

    assert states.take_state("a", 1) is None
    states.committed([put("b", state=b"x" * 8)], 0.0)
    assert states.take_state("b", 1) is not None


class Named(Procedure):
    """Ends with its name."""

    def __init__(self, name):
        self.name = name

    def execute(self, ctx):
        return Status.done(self.name)


def test_an_id_that_is_used_again_runs_what_was_submitted_last(tmp_path):
    with ProcedureManager(tmp_path / "state", workers=1, procedures=[Named]) as manager:
        for name in ("one", "two", "three"):
            assert manager.submit(Named(name), id="again").result(30) == name
            assert manager.delete("again")


def test_procedures_beyond_those_that_are_kept_run_from_the_store(tmp_path, monkeypatch):
    monkeypatch.setattr(CommitCache.__init__, "__kwdefaults__", {"most": 3, "most_bytes": 1000, "most_ends": 0})
    with ProcedureManager(tmp_path / "state", workers=1, procedures=[Named]) as manager:
        handles = manager.submit_many([Named(number) for number in range(300)])

        assert [handle.result(30) for handle in handles] == list(range(300))
