"""Submits of ids that exist: which are refused, which begin a new generation, and what counts once."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from actorproc.core.lifecycle import renewal
from actorproc.core.lifecycle.restart import KEPT
from actorproc.errors import ActorprocError, DuplicateProcedure, KeyPoisoned, ManagerBusy, NotAllowed, UnknownType
from actorproc.model.messages.events import AbortRequested, BypassRequested, PoisonCleared
from actorproc.model.messages.outcomes import Advanced, Finished, Renewed, Slept, Suspended
from actorproc.model.policies import LockKey, Scheduling, TypeMeta
from actorproc.model.rows.records import IdReuse, NewProcedure
from actorproc.model.rows.writes import DeleteProcedure, PutProcedure, PutStep
from actorproc.model.states import ProcedureState
from tests.core.stage import Stage, boom, difference, image_of, restarted

RUNNABLE, SUCCESS = ProcedureState.RUNNABLE, ProcedureState.SUCCESS
POLICIES = ("error", "restart-failed", "restart")
_tokens = iter(range(10**6))


def token() -> bytes:
    return next(_tokens).to_bytes(8, "big")


def again(stage: Stage, id: str, policy: str, *, own: bytes | None = None, **fields: object) -> NewProcedure:
    new = stage.new(id, reuse=IdReuse(policy, own or token()), **fields)  # type: ignore[arg-type]
    return replace(new, fresh=False)


def error_of(stage: Stage, *procedures: NewProcedure) -> ActorprocError | None:
    return stage.submit(*procedures).error


def generation(stage: Stage, id: str) -> int:
    record = stage.core.view(id)
    assert record is not None
    return record.generation


def ended(state: str, **fields: object) -> Stage:
    """A stage on which ``p`` is in that state."""
    stage = Stage(workers=2, rollback_supported=True)
    stage.submit(stage.new("p", **fields))
    match state:
        case "done":
            stage.answer("p", Finished(state=b"1"))
        case "failed":
            stage = Stage(workers=2)
            stage.submit(stage.new("p", **fields))
            stage.answer("p", boom())
        case "undone":
            stage.answer("p", boom())
            stage.undo_all()
        case "cancelled":
            stage.answer("p", Slept(state=b"1", seconds=9.0))
            stage.handle(AbortRequested("p", 7))
            stage.undo_all()
        case "bypassed":
            stage.answer("p", Slept(state=b"1", seconds=9.0))
            stage.handle(BypassRequested("p", 7))
        case "asleep":
            stage.answer("p", Slept(state=b"1", seconds=9.0))
        case _:
            assert state == "running"
    return stage


TAKEN = {
    ("failed", "restart-failed"),
    ("undone", "restart-failed"),
    ("cancelled", "restart-failed"),
    *((state, "restart") for state in ("done", "failed", "undone", "cancelled", "bypassed")),
}


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("state", ["done", "failed", "undone", "cancelled", "bypassed", "asleep", "running"])
def test_what_a_policy_makes_of_an_id_in_each_state(state: str, policy: str) -> None:
    stage = ended(state)
    before = stage.core.view("p")
    assert before is not None

    error = error_of(stage, again(stage, "p", policy))

    if (state, policy) in TAKEN:
        assert error is None
        assert (generation(stage, "p"), stage.state("p")) == (2, RUNNABLE)
        assert stage.inbox["p"].generation == 2
        stage.answer("p", Finished(state=b"1", output=b"second"))
        assert stage.state("p") is SUCCESS
    else:
        assert type(error) is (DuplicateProcedure if policy == "error" else NotAllowed)
        assert "p" in str(error)
        assert stage.core.view("p") == before
    assert difference(stage) is None


@pytest.mark.parametrize("policy", POLICIES)
def test_an_id_that_is_new_is_taken_under_every_policy(policy: str) -> None:
    stage = Stage()

    assert error_of(stage, again(stage, "p", policy)) is None
    assert (generation(stage, "p"), stage.state("p")) == (1, RUNNABLE)
    assert difference(stage) is None


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("then", ["runs", "done", "failed"])
@pytest.mark.parametrize("first", ["new", "ended"])
@pytest.mark.parametrize("crash", [False, True])
def test_a_submit_that_is_sent_again_counts_once(policy: str, then: str, first: str, *, crash: bool) -> None:
    stage = ended("failed") if first == "ended" and policy != "error" else Stage(workers=2)
    sent = again(stage, "p", policy)
    assert error_of(stage, sent) is None
    if then != "runs":
        stage.answer("p", Finished(state=b"1") if then == "done" else boom())
    number = generation(stage, "p")
    if crash:
        stage = restarted(stage, TypeMeta(type_name="T"))
        image = image_of(stage)
        stage.core.load([image.heads["p"]], [])
    at = len(stage.writes)

    assert error_of(stage, sent) is None

    assert generation(stage, "p") == number
    assert not any(isinstance(write, (PutStep, DeleteProcedure)) for write in stage.writes[at:])
    if then == "runs" or policy == "error":  # another one is another one
        assert error_of(stage, again(stage, "p", policy)) is not None


def test_a_submit_that_comes_again_after_a_later_restart_begins_nothing() -> None:
    stage = ended("failed")
    sent = []
    for _ in range(KEPT):
        sent.append(again(stage, "p", "restart"))
        assert error_of(stage, sent[-1]) is None
        stage.answer("p", Finished(state=b"1"))
    number = generation(stage, "p")

    for old in sent:
        assert error_of(stage, old) is None

    assert generation(stage, "p") == number == KEPT + 1
    head = stage.core.view("p")
    assert head is not None
    assert len(head.tokens) == KEPT * 8
    assert error_of(stage, again(stage, "p", "restart")) is None
    head = stage.core.view("p")
    assert head is not None
    assert len(head.tokens) == KEPT * 8


def test_a_token_that_begins_in_the_middle_of_two_others_is_another_one() -> None:
    stage = ended("failed")
    assert error_of(stage, again(stage, "p", "restart", own=b"abcdefgh")) is None
    stage.answer("p", boom())
    assert error_of(stage, again(stage, "p", "restart", own=b"efghabcd")) is None
    stage.answer("p", boom())

    assert error_of(stage, again(stage, "p", "restart", own=b"abcdabcd")) is None

    assert generation(stage, "p") == 4


def test_a_head_without_a_policy_has_no_marks_of_its_past() -> None:
    stage = Stage()
    stage.submit(stage.new("p"))
    head = stage.core.view("p")
    assert head is not None
    assert head.past is None


def test_the_new_generation_is_of_the_new_submit() -> None:
    stage = Stage(workers=1)
    stage.submit(stage.new("p", tags=("old",), owner="old", priority=1, deadline=50.0))
    stage.answer("p", boom())
    stage.now = 7.0
    new = replace(again(stage, "p", "restart"), state=b"other", digest=b"other", tags=("new",), owner="new", version=2)

    assert error_of(stage, new) is None

    head = stage.core.view("p")
    assert head is not None
    assert (head.tags, head.owner, head.priority, head.deadline) == (("new",), "new", 0, None)
    assert (head.created_at, head.finished_at, head.error, head.run) == (7.0, None, None, 1)
    assert (head.step, head.records, head.attempt, head.digest, head.version) == (1, 1, 1, b"other", 2)
    first = [write.record for write in stage.writes if isinstance(write, PutStep)][-1]
    assert (first.number, first.state, first.outcome) == (1, b"other", "submitted")


def test_the_same_submit_of_a_restarted_procedure_is_the_one_that_restarted_it() -> None:
    stage = ended("failed")
    assert error_of(stage, replace(again(stage, "p", "restart"), state=b"other", digest=b"other")) is None
    plain = replace(stage.new("p"), fresh=False)

    assert error_of(stage, replace(plain, digest=b"other")) is None
    assert type(error_of(stage, plain)) is DuplicateProcedure


def test_another_class_does_not_get_the_id() -> None:
    stage = ended("failed")
    stage.register("U")
    assert type(error_of(stage, again(stage, "p", "restart", type_name="U"))) is DuplicateProcedure


def test_a_class_that_is_not_registered_begins_nothing() -> None:
    stage = ended("failed")
    stage = restarted(stage)
    stage.core.load([image_of(stage).heads["p"]], [])
    assert type(error_of(stage, again(stage, "p", "restart"))) is UnknownType
    assert generation(stage, "p") == 1


@pytest.mark.parametrize("policy", ["restart-failed", "restart"])
@pytest.mark.parametrize("locks", [(), (LockKey.write("a"),), (LockKey.write("other"),)])
def test_a_key_that_it_poisoned_itself_refuses_a_restart_until_it_is_cleared(
    policy: str, locks: tuple[LockKey, ...]
) -> None:
    stage = Stage(workers=1)
    stage.submit(stage.new("p", locks=(LockKey.write("a"),), poisons=("a",)))
    stage.answer("p", boom())

    error = error_of(stage, again(stage, "p", policy, locks=locks))
    assert type(error) is KeyPoisoned
    assert "clear_poison" in str(error)

    stage.handle(PoisonCleared("a", 3))
    assert error_of(stage, again(stage, "p", policy, locks=locks)) is None
    assert difference(stage) is None


def test_a_key_that_another_one_poisoned_refuses_as_it_does_a_new_procedure() -> None:
    stage = ended("failed")
    stage.submit(stage.new("q", locks=(LockKey.write("a"),), poisons=("a",)))
    stage.answer("q", boom())

    assert type(error_of(stage, again(stage, "p", "restart", locks=(LockKey.write("a"),)))) is KeyPoisoned
    assert error_of(stage, again(stage, "p", "restart")) is None


def family(stage: Stage, children: int = 2) -> None:
    stage.submit(stage.new("p"))
    stage.answer("p", Suspended(state=b"1", children=tuple(stage.new(f"c{n}") for n in range(children))))
    for n in range(children):
        stage.answer(f"c{n}", Finished(state=b"1"))


def test_a_child_and_a_parent_with_open_children_are_not_restarted() -> None:
    stage = Stage(workers=3)
    stage.submit(stage.new("p"))
    stage.answer(
        "p", Suspended(state=b"1", children=(stage.new("c0"), stage.new("c1")), wait="any", on_parent_end="leave")
    )
    stage.answer("c0", boom())

    assert "child of p" in str(error_of(stage, again(stage, "c0", "restart")))

    stage = Stage(workers=3)
    stage.submit(stage.new("p"))
    stage.answer(
        "p", Suspended(state=b"1", children=(stage.new("c0"), stage.new("c1")), wait="any", on_parent_end="leave")
    )
    stage.answer("c0", Finished(state=b"1"))
    stage.answer("p", Finished(state=b"2"))
    assert stage.state("p") is SUCCESS
    assert "left children behind" in str(error_of(stage, again(stage, "p", "restart")))
    stage.answer("c1", Finished(state=b"1"))
    assert error_of(stage, again(stage, "p", "restart")) is None
    assert difference(stage) is None


def test_the_ended_tree_is_removed_and_its_ids_are_free() -> None:
    stage = Stage(workers=3)
    family(stage)
    stage.answer("p", boom())
    at = len(stage.writes)

    assert error_of(stage, again(stage, "p", "restart")) is None

    gone = [write.record.id for write in stage.writes[at:] if isinstance(write, DeleteProcedure)]
    assert sorted(gone) == ["c0", "c1", "p"]
    assert set(image_of(stage).heads) == {"p"}
    stage.answer("p", Suspended(state=b"1", children=(stage.new("c0"),)))
    assert stage.state("c0") is RUNNABLE
    assert difference(stage) is None


def test_a_large_tree_goes_in_slices_and_a_crash_between_them_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(renewal, "SLICE", 1)
    stage = Stage(workers=8)
    family(stage, children=5)
    stage.answer("p", boom())

    assert error_of(stage, again(stage, "p", "restart")) is None
    assert len(image_of(stage).heads) == 5  # the new root, and four of the old children
    assert difference(stage) is None

    later = restarted(stage, TypeMeta(type_name="T"))
    while len(image_of(later).heads) > 1:
        before = len(image_of(later).heads)
        later.handle(AbortRequested("nobody", 1))
        assert len(image_of(later).heads) < before
    assert set(image_of(later).heads) == {"p"}
    assert difference(later) is None


def test_a_new_root_may_have_the_id_of_a_member_that_is_on_its_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(renewal, "SLICE", 1)
    stage = Stage(workers=8)
    family(stage, children=5)
    stage.answer("p", boom())
    assert error_of(stage, again(stage, "p", "restart")) is None
    assert "c0" in image_of(stage).heads

    assert error_of(stage, replace(stage.new("c0"), fresh=False)) is None

    assert image_of(stage).heads["c0"].root == "c0"
    while len(image_of(stage).heads) > 2:
        stage.handle(AbortRequested("nobody", 1))
    assert set(image_of(stage).heads) == {"p", "c0"}
    assert difference(stage) is None


def test_a_restart_takes_its_place_in_submit_order_over() -> None:
    stage = ended("failed")
    stage.submit(stage.new("q"))
    head = stage.core.view("p")
    assert head is not None
    seq = head.seq

    assert error_of(stage, again(stage, "p", "restart")) is None
    stage.submit(stage.new("r"))

    heads = image_of(stage).heads
    assert heads["p"].seq == seq
    assert len({head.seq for head in heads.values()}) == 3
    assert difference(stage) is None


def test_a_call_restarts_all_that_it_names_or_none() -> None:
    stage = ended("failed")
    stage.submit(stage.new("q"))

    assert type(error_of(stage, again(stage, "p", "restart"), again(stage, "q", "restart"))) is NotAllowed
    assert generation(stage, "p") == 1

    stage.answer("q", Finished(state=b"1"))
    own = token()
    assert error_of(stage, *(again(stage, name, "restart", own=own) for name in ("p", "q", "new", "p"))) is None
    assert [generation(stage, name) for name in ("p", "q", "new")] == [2, 2, 1]
    assert difference(stage) is None


def test_an_id_that_a_call_names_twice_is_refused_where_it_must_be_new() -> None:
    stage = Stage()
    own = token()
    assert type(error_of(stage, *(again(stage, "p", "error", own=own) for _ in range(2)))) is DuplicateProcedure
    assert stage.core.view("p") is None


def test_a_restart_counts_as_a_new_procedure_for_the_limit_on_queued_ones() -> None:
    stage = Stage(workers=1)
    stage.submit(stage.new("p"))
    stage.answer("p", boom())
    stage = restarted(stage, TypeMeta(type_name="T"), scheduling=Scheduling(max_queued=1))
    stage.core.load([image_of(stage).heads["p"]], [])
    stage.submit(stage.new("q"))

    assert type(error_of(stage, again(stage, "p", "restart"))) is ManagerBusy
    assert generation(stage, "p") == 1


def test_generations_of_restarts_and_of_again_are_counted_together() -> None:
    stage = ended("done")
    assert error_of(stage, again(stage, "p", "restart")) is None
    stage.answer("p", Advanced(state=b"1"))
    stage.answer("p", Renewed(state=b"2", fresh=b"3"))
    assert generation(stage, "p") == 3
    stage.answer("p", Finished(state=b"4"))
    assert error_of(stage, again(stage, "p", "restart")) is None

    assert (generation(stage, "p"), stage.inbox["p"].generation, stage.inbox["p"].begun) == (4, 4, 0)
    assert difference(stage) is None


def test_what_waits_for_nothing_but_a_worker_begins_anew_in_the_backlog() -> None:
    stage = Stage(workers=0)
    stage.submit(stage.new("p"))
    stage.handle(AbortRequested("p", 2))
    assert stage.state("p") is ProcedureState.ROLLEDBACK

    assert error_of(stage, again(stage, "p", "restart-failed")) is None

    written = [write.record for write in stage.writes if isinstance(write, PutProcedure)][-1]
    assert (written.generation, written.state) == (2, RUNNABLE)
    assert error_of(stage, again(stage, "p", "restart")) is not None
    assert difference(stage) is None


@pytest.mark.parametrize("policy", POLICIES)
def test_a_submit_that_is_sent_again_is_not_refused_for_what_came_of_it(policy: str) -> None:
    stage = Stage(workers=1)
    sent = again(stage, "p", policy, locks=(LockKey.write("a"),), poisons=("a",))
    assert error_of(stage, sent) is None
    stage.answer("p", boom())
    assert "a" in image_of(stage).poisons

    assert error_of(stage, sent) is None

    later = restarted(stage)  # its class is not known yet, or is gone
    later.core.load([image_of(later).heads["p"]], [])
    assert error_of(later, sent) is None
    assert generation(later, "p") == 1
