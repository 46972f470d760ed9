"""Roots that a step submits, and its changes of tags: they come with the record of its success, and with nothing else."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from actorproc.model.messages.events import AbortRequested, Submitted
from actorproc.model.messages.outcomes import (
    Advanced,
    Finished,
    Outcome,
    Refused,
    Renewed,
    Slept,
    StepRequests,
    Suspended,
    Waited,
)
from actorproc.model.rows.records import IdReuse, NewProcedure
from actorproc.model.rows.tags import MAX_TAGS
from actorproc.model.rows.writes import PutAttempt, PutProcedure, PutStep
from actorproc.model.states import ProcedureState
from tests.core.harness import CoreHarness, boom, difference

OUTCOMES = [Advanced, Slept, Waited, Finished, Suspended, Renewed]


def outcome_of(kind: type[Outcome], harness: CoreHarness, *roots: NewProcedure) -> Outcome:
    options = {
        Slept: {"seconds": 5.0},
        Waited: {"event": "e"},
        Suspended: {"children": (harness.new("c"),)},
        Renewed: {"fresh": b"0"},
    }.get(kind, {})
    return kind(state=b"1", requests=StepRequests(roots), **options)  # type: ignore[call-arg]


def root(harness: CoreHarness, id: str = "r", **fields: object) -> NewProcedure:
    new = harness.new(id, **fields)
    return NewProcedure(**{name: getattr(new, name) for name in new.__struct_fields__} | {"fresh": False})


@pytest.mark.parametrize("kind", OUTCOMES)
def test_a_root_comes_in_the_commit_of_the_record_of_the_step(kind: type[Outcome]) -> None:
    harness = CoreHarness(workers=3)
    harness.submit(harness.new("p"))
    at = len(harness.writes)

    harness.answer("p", outcome_of(kind, harness, root(harness), root(harness, "s", due_at=3.0)))

    writes = harness.writes[at:]
    assert any(isinstance(write, PutStep) and write.record.procedure == "p" for write in writes)
    heads = {write.record.id: write.record for write in writes if isinstance(write, PutProcedure)}
    assert (heads["r"].parent, heads["r"].root, heads["s"].due_at) == (None, "r", harness.now + 3.0)
    assert "r" in harness.inbox
    assert "s" not in harness.inbox
    assert difference(harness) is None


def test_an_attempt_that_fails_submits_nothing_and_a_root_stays_when_its_submitter_is_undone() -> None:
    harness = CoreHarness(workers=3, rollback_supported=True)
    harness.submit(harness.new("p", unit="u"))
    harness.answer("p", Advanced(state=b"1", unit="v", requests=StepRequests((root(harness),))))
    harness.answer("p", boom())
    harness.undo_all()
    assert harness.state("p") is ProcedureState.ROLLEDBACK
    harness.answer("r", Finished(state=b"1"))
    assert harness.state("r") is ProcedureState.SUCCESS
    assert difference(harness) is None


@pytest.mark.parametrize("how", ["same", "other type", "other state", "unknown type", "twice"])
def test_an_id_that_exists_is_the_same_submit_or_the_step_fails(how: str) -> None:
    harness = CoreHarness(workers=3)
    harness.register("U")
    harness.submit(harness.new("p"))
    if how not in {"unknown type", "twice"}:
        harness.submit(harness.new("r", "U" if how == "other type" else "T"))
    news = [root(harness, type_name="V" if how == "unknown type" else "T")]
    if how in {"other state", "twice"}:
        new = news[0]
        other = {name: getattr(new, name) for name in new.__struct_fields__} | {"digest": b"other"}
        news = [NewProcedure(**other)] if how == "other state" else [new, NewProcedure(**other)]

    harness.answer("p", Finished(state=b"1", requests=StepRequests(tuple(news))))

    head = harness.core.view("p")
    assert head is not None
    if how == "same":
        assert head.state is ProcedureState.SUCCESS
    else:
        assert head.state is ProcedureState.FAILED
        assert head.error is not None
        assert head.error.message.startswith("submit_root: ")
    assert difference(harness) is None


def test_a_step_that_ends_while_its_tree_is_undone_has_its_root_as_its_undo_sees_it() -> None:
    harness = CoreHarness(workers=3, rollback_supported=True)
    harness.submit(harness.new("p", unit="u"))
    harness.handle(AbortRequested("p", 7, force=True))
    harness.answer("p", Finished(state=b"1", requests=StepRequests((root(harness),))))
    harness.undo_all()
    assert harness.core.view("r") is not None
    assert difference(harness) is None


@pytest.mark.parametrize("taken", [False, True])
def test_an_undo_submits_a_root_or_gives_up_where_the_id_is_taken(*, taken: bool) -> None:
    harness = CoreHarness(workers=3, rollback_supported=True)
    harness.register("U")
    if taken:
        harness.submit(harness.new("r", "U"))
    harness.submit(harness.new("p", unit="u"))
    harness.answer("p", boom())
    harness.answer("p", Finished(state=b"1", requests=StepRequests((root(harness),))))
    assert harness.state("p") is (ProcedureState.FAILED if taken else ProcedureState.ROLLEDBACK)
    assert harness.core.view("r") is not None


@pytest.mark.parametrize("is_aborted", [False, True])
def test_a_child_and_a_root_of_one_step_cannot_have_the_same_id(*, is_aborted: bool) -> None:
    harness = CoreHarness(workers=3, rollback_supported=True)
    harness.submit(harness.new("p", unit="u"))
    if is_aborted:
        harness.handle(AbortRequested("p", 7, force=True))
    child = root(harness, "r")
    harness.answer("p", Suspended(state=b"1", children=(child,), requests=StepRequests((root(harness, "r"),))))
    head = harness.core.view("p")
    assert head is not None
    assert head.rolling
    if not is_aborted:
        assert head.error is not None
        assert head.error.message.startswith("child id r is in use already")
    harness.undo_all()
    assert harness.core.view("r") is None
    assert difference(harness) is None


# ---------------------------------------------------------------- tags
def tagged(kind: type[Outcome], harness: CoreHarness, *changes: tuple[str, str | None]) -> Outcome:
    return replace(outcome_of(kind, harness), requests=StepRequests(tags=changes))


def tags(harness: CoreHarness, id: str = "p") -> tuple[str, ...]:
    head = harness.core.view(id)
    assert head is not None
    return head.tags


@pytest.mark.parametrize("kind", OUTCOMES)
def test_tags_change_in_the_commit_of_the_record_of_the_step(kind: type[Outcome]) -> None:
    harness = CoreHarness(workers=3)
    harness.submit(harness.new("p", tags=("word", "eu", "at=1", "other=x")))
    at = len(harness.writes)

    harness.answer("p", tagged(kind, harness, ("at", "2"), ("word", None), ("new", "a=b"), ("none", None)))

    writes = harness.writes[at:]
    assert any(isinstance(write, PutStep) and write.record.procedure == "p" for write in writes)
    (put,) = [write for write in writes if isinstance(write, PutProcedure) and write.record.id == "p"]
    assert put.was is not None
    assert put.was.tags == ("word", "eu", "at=1", "other=x")
    assert put.record.tags == ("eu", "other=x", "at=2", "new=a=b")
    assert difference(harness) is None


def test_the_next_write_of_a_head_knows_the_tags_that_are_stored() -> None:
    harness = CoreHarness(workers=1)
    harness.submit(harness.new("p"))
    for number in range(3):
        harness.answer("p", tagged(Advanced, harness, ("at", str(number))))
    puts = [write for write in harness.writes if isinstance(write, PutProcedure)]
    before: tuple[str, ...] | None = None
    for put in puts:
        assert (put.was.tags if put.was is not None else None) == before
        before = put.record.tags
    assert before == ("at=2",)


@pytest.mark.parametrize("ends", ["retried", "failed", "killed", "refused"])
def test_an_attempt_that_does_not_end_well_changes_no_tag(ends: str) -> None:
    harness = CoreHarness(workers=1)
    harness.submit(harness.new("p", tags=("at=1",)))
    # A worker sends no requests with a failure; were there any, they would not count.
    asked = StepRequests(tags=(("at", "2"),))
    if ends == "killed":
        harness.kill(0)
    elif ends == "refused":
        harness.answer("p", Refused(reason="no class", requests=asked))
    else:
        harness.answer("p", replace(boom(retryable=ends == "retried"), requests=asked))
    assert tags(harness) == ("at=1",)
    assert difference(harness) is None


def test_an_undo_changes_tags_with_its_record_and_takes_none_back_by_itself() -> None:
    harness = CoreHarness(workers=1, rollback_supported=True)
    harness.submit(harness.new("p", unit="u"))
    harness.answer("p", replace(tagged(Advanced, harness, ("paid", "yes"), ("kept", "1")), unit="v"))
    harness.answer("p", boom())
    assert tags(harness) == ("paid=yes", "kept=1")
    harness.answer("p", boom(retryable=True))  # the undo of v
    assert tags(harness) == ("paid=yes", "kept=1")
    harness.undo_all()
    harness = CoreHarness(workers=1, rollback_supported=True)
    harness.submit(harness.new("p", unit="u", tags=("paid=yes",)))
    harness.answer("p", boom())
    harness.answer("p", Finished(state=b"u", requests=StepRequests(tags=(("paid", "back"),))))
    assert (harness.state("p"), tags(harness)) == (ProcedureState.ROLLEDBACK, ("paid=back",))
    assert difference(harness) is None


@pytest.mark.parametrize(("added", "fits"), [(1, True), (2, False)])
@pytest.mark.parametrize("undoes", [False, True])
def test_a_step_that_would_leave_too_many_tags_fails(added: int, *, fits: bool, undoes: bool) -> None:
    harness = CoreHarness(workers=1, rollback_supported=True)
    harness.submit(harness.new("p", unit="u", tags=tuple(f"k{n}=v" for n in range(MAX_TAGS - 1))))
    if undoes:
        harness.answer("p", boom())
    changes = (("k1", "w"), *((f"new{n}", "v") for n in range(added)))
    harness.answer("p", tagged(Finished, harness, *changes))
    head = harness.core.view("p")
    assert head is not None
    assert len(head.tags) == (MAX_TAGS if fits else MAX_TAGS - 1)
    if not fits:
        attempts = [write.record for write in harness.writes if isinstance(write, PutAttempt)]
        assert "set_tag: p would have 101 tags, of 100 at most" in attempts[-1].error.message


def test_a_generation_and_a_restart_have_the_tags_of_their_beginning() -> None:
    harness = CoreHarness(workers=1)
    harness.submit(harness.new("p", tags=("at=1",)))
    harness.answer("p", tagged(Renewed, harness, ("at", "2")))
    assert tags(harness) == ("at=2",)  # `Status.again` keeps what the procedure has
    harness.answer("p", Finished(state=b"1"))
    again = replace(harness.new("p", tags=("at=9",)), fresh=False, reuse=IdReuse("restart", bytes(8)))
    harness.handle(Submitted((again,), reply=5))
    assert tags(harness) == ("at=9",)
    assert difference(harness) is None
