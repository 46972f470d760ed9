"""Submits of ids that exist: which are refused, which begin a new generation, and what counts once."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from actorproc.core.lifecycle import renewal
from actorproc.core.lifecycle.restart import KEPT
from actorproc.errors import ActorprocError, DuplicateProcedure, KeyPoisoned, ManagerBusy, NotAllowed, UnknownType
from actorproc.model.messages.events import AbortRequested, BypassRequested, PoisonCleared
from actorproc.model.messages.outcomes import Advanced, Finished, Refused, Renewed, Slept, Suspended
from actorproc.model.policies import LockKey, Scheduling, TypeMeta
from actorproc.model.rows.records import IdReuse, NewProcedure
from actorproc.model.rows.writes import DeleteProcedure, PutProcedure, PutStep
from actorproc.model.states import ProcedureState
from tests.core.harness import CoreHarness, boom, difference, image_of, restarted

RUNNABLE, SUCCESS = ProcedureState.RUNNABLE, ProcedureState.SUCCESS
POLICIES = ("error", "restart-failed", "restart")
_tokens = iter(range(10**6))


def token() -> bytes:
    return next(_tokens).to_bytes(8, "big")


def again(harness: CoreHarness, id: str, policy: str, *, own: bytes | None = None, **fields: object) -> NewProcedure:
    new = harness.new(id, reuse=IdReuse(policy, own or token()), **fields)  # type: ignore[arg-type]
    return replace(new, fresh=False)


def error_of(harness: CoreHarness, *procedures: NewProcedure) -> ActorprocError | None:
    return harness.submit(*procedures).error


def generation(harness: CoreHarness, id: str) -> int:
    record = harness.core.view(id)
    assert record is not None
    return record.generation


def ended(state: str, **fields: object) -> CoreHarness:
    """A harness on which ``p`` is in that state."""
    harness = CoreHarness(workers=2, rollback_supported=True)
    harness.submit(harness.new("p", **fields))
    match state:
        case "done":
            harness.answer("p", Finished(state=b"1"))
        case "failed":
            harness = CoreHarness(workers=2)
            harness.submit(harness.new("p", **fields))
            harness.answer("p", boom())
        case "undone":
            harness.answer("p", boom())
            harness.undo_all()
        case "cancelled":
            harness.answer("p", Slept(state=b"1", seconds=9.0))
            harness.handle(AbortRequested("p", 7))
            harness.undo_all()
        case "bypassed":
            harness.answer("p", Slept(state=b"1", seconds=9.0))
            harness.handle(BypassRequested("p", 7))
        case "asleep":
            harness.answer("p", Slept(state=b"1", seconds=9.0))
        case _:
            assert state == "running"
    return harness


TAKEN = {
    ("failed", "restart-failed"),
    ("undone", "restart-failed"),
    ("cancelled", "restart-failed"),
    *((state, "restart") for state in ("done", "failed", "undone", "cancelled", "bypassed")),
}


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("state", ["done", "failed", "undone", "cancelled", "bypassed", "asleep", "running"])
def test_what_a_policy_makes_of_an_id_in_each_state(state: str, policy: str) -> None:
    harness = ended(state)
    before = harness.core.view("p")
    assert before is not None

    error = error_of(harness, again(harness, "p", policy))

    if (state, policy) in TAKEN:
        assert error is None
        assert (generation(harness, "p"), harness.state("p")) == (2, RUNNABLE)
        assert harness.inbox["p"].generation == 2
        harness.answer("p", Finished(state=b"1", output=b"second"))
        assert harness.state("p") is SUCCESS
    else:
        assert type(error) is (DuplicateProcedure if policy == "error" else NotAllowed)
        assert "p" in str(error)
        assert harness.core.view("p") == before
    assert difference(harness) is None


@pytest.mark.parametrize("policy", POLICIES)
def test_an_id_that_is_new_is_taken_under_every_policy(policy: str) -> None:
    harness = CoreHarness()

    assert error_of(harness, again(harness, "p", policy)) is None
    assert (generation(harness, "p"), harness.state("p")) == (1, RUNNABLE)
    assert difference(harness) is None


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("then", ["runs", "done", "failed"])
@pytest.mark.parametrize("first", ["new", "ended"])
@pytest.mark.parametrize("crash", [False, True])
def test_a_submit_that_is_sent_again_counts_once(policy: str, then: str, first: str, *, crash: bool) -> None:
    harness = ended("failed") if first == "ended" and policy != "error" else CoreHarness(workers=2)
    sent = again(harness, "p", policy)
    assert error_of(harness, sent) is None
    if then != "runs":
        harness.answer("p", Finished(state=b"1") if then == "done" else boom())
    number = generation(harness, "p")
    if crash:
        harness = restarted(harness, TypeMeta(type_name="T"))
        image = image_of(harness)
        harness.core.load([image.heads["p"]], [])
    at = len(harness.writes)

    assert error_of(harness, sent) is None

    assert generation(harness, "p") == number
    assert not any(isinstance(write, (PutStep, DeleteProcedure)) for write in harness.writes[at:])
    if then == "runs" or policy == "error":  # another one is another one
        assert error_of(harness, again(harness, "p", policy)) is not None


def test_a_submit_that_comes_again_after_a_later_restart_begins_nothing() -> None:
    harness = ended("failed")
    sent = []
    for _ in range(KEPT):
        sent.append(again(harness, "p", "restart"))
        assert error_of(harness, sent[-1]) is None
        harness.answer("p", Finished(state=b"1"))
    number = generation(harness, "p")

    for old in sent:
        assert error_of(harness, old) is None

    assert generation(harness, "p") == number == KEPT + 1
    head = harness.core.view("p")
    assert head is not None
    assert len(head.tokens) == KEPT * 8
    assert error_of(harness, again(harness, "p", "restart")) is None
    head = harness.core.view("p")
    assert head is not None
    assert len(head.tokens) == KEPT * 8


def test_a_token_that_begins_in_the_middle_of_two_others_is_another_one() -> None:
    harness = ended("failed")
    assert error_of(harness, again(harness, "p", "restart", own=b"abcdefgh")) is None
    harness.answer("p", boom())
    assert error_of(harness, again(harness, "p", "restart", own=b"efghabcd")) is None
    harness.answer("p", boom())

    assert error_of(harness, again(harness, "p", "restart", own=b"abcdabcd")) is None

    assert generation(harness, "p") == 4


def test_a_head_without_a_policy_has_no_marks_of_its_past() -> None:
    harness = CoreHarness()
    harness.submit(harness.new("p"))
    head = harness.core.view("p")
    assert head is not None
    assert head.past is None


def test_the_new_generation_is_of_the_new_submit() -> None:
    harness = CoreHarness(workers=1)
    harness.submit(harness.new("p", tags=("old",), owner="old", priority=1, deadline=50.0))
    harness.answer("p", boom())
    harness.now = 7.0
    new = replace(
        again(harness, "p", "restart"), state=b"other", digest=b"other", tags=("new",), owner="new", version=2
    )

    assert error_of(harness, new) is None

    head = harness.core.view("p")
    assert head is not None
    assert (head.tags, head.owner, head.priority, head.deadline) == (("new",), "new", 0, None)
    assert (head.created_at, head.finished_at, head.error, head.run) == (7.0, None, None, 1)
    assert (head.step, head.records, head.attempt, head.digest, head.version) == (1, 1, 1, b"other", 2)
    first = [write.record for write in harness.writes if isinstance(write, PutStep)][-1]
    assert (first.number, first.state, first.outcome) == (1, b"other", "submitted")


def test_the_same_submit_of_a_restarted_procedure_is_the_one_that_restarted_it() -> None:
    harness = ended("failed")
    assert error_of(harness, replace(again(harness, "p", "restart"), state=b"other", digest=b"other")) is None
    plain = replace(harness.new("p"), fresh=False)

    assert error_of(harness, replace(plain, digest=b"other")) is None
    assert type(error_of(harness, plain)) is DuplicateProcedure


def test_another_class_does_not_get_the_id() -> None:
    harness = ended("failed")
    harness.register("U")
    assert type(error_of(harness, again(harness, "p", "restart", type_name="U"))) is DuplicateProcedure


def test_a_class_that_is_not_registered_begins_nothing() -> None:
    harness = ended("failed")
    harness = restarted(harness)
    harness.core.load([image_of(harness).heads["p"]], [])
    assert type(error_of(harness, again(harness, "p", "restart"))) is UnknownType
    assert generation(harness, "p") == 1


@pytest.mark.parametrize("policy", ["restart-failed", "restart"])
@pytest.mark.parametrize("locks", [(), (LockKey.write("a"),), (LockKey.write("other"),)])
def test_a_key_that_it_poisoned_itself_refuses_a_restart_until_it_is_cleared(
    policy: str, locks: tuple[LockKey, ...]
) -> None:
    harness = CoreHarness(workers=1)
    harness.submit(harness.new("p", locks=(LockKey.write("a"),), poisons=("a",)))
    harness.answer("p", boom())

    error = error_of(harness, again(harness, "p", policy, locks=locks))
    assert type(error) is KeyPoisoned
    assert "clear_poison" in str(error)

    harness.handle(PoisonCleared("a", 3))
    assert error_of(harness, again(harness, "p", policy, locks=locks)) is None
    assert difference(harness) is None


def test_a_key_that_another_one_poisoned_refuses_as_it_does_a_new_procedure() -> None:
    harness = ended("failed")
    harness.submit(harness.new("q", locks=(LockKey.write("a"),), poisons=("a",)))
    harness.answer("q", boom())

    assert type(error_of(harness, again(harness, "p", "restart", locks=(LockKey.write("a"),)))) is KeyPoisoned
    assert error_of(harness, again(harness, "p", "restart")) is None


def family(harness: CoreHarness, children: int = 2) -> None:
    harness.submit(harness.new("p"))
    harness.answer("p", Suspended(state=b"1", children=tuple(harness.new(f"c{n}") for n in range(children))))
    for n in range(children):
        harness.answer(f"c{n}", Finished(state=b"1"))


def test_a_child_and_a_parent_with_open_children_are_not_restarted() -> None:
    harness = CoreHarness(workers=3)
    harness.submit(harness.new("p"))
    harness.answer(
        "p", Suspended(state=b"1", children=(harness.new("c0"), harness.new("c1")), wait="any", on_parent_end="leave")
    )
    harness.answer("c0", boom())

    assert "child of p" in str(error_of(harness, again(harness, "c0", "restart")))

    harness = CoreHarness(workers=3)
    harness.submit(harness.new("p"))
    harness.answer(
        "p", Suspended(state=b"1", children=(harness.new("c0"), harness.new("c1")), wait="any", on_parent_end="leave")
    )
    harness.answer("c0", Finished(state=b"1"))
    harness.answer("p", Finished(state=b"2"))
    assert harness.state("p") is SUCCESS
    assert "left children behind" in str(error_of(harness, again(harness, "p", "restart")))
    harness.answer("c1", Finished(state=b"1"))
    assert error_of(harness, again(harness, "p", "restart")) is None
    assert difference(harness) is None


def test_the_ended_tree_is_removed_and_its_ids_are_free() -> None:
    harness = CoreHarness(workers=3)
    family(harness)
    harness.answer("p", boom())
    at = len(harness.writes)

    assert error_of(harness, again(harness, "p", "restart")) is None

    gone = [write.record.id for write in harness.writes[at:] if isinstance(write, DeleteProcedure)]
    assert sorted(gone) == ["c0", "c1", "p"]
    assert set(image_of(harness).heads) == {"p"}
    harness.answer("p", Suspended(state=b"1", children=(harness.new("c0"),)))
    assert harness.state("c0") is RUNNABLE
    assert difference(harness) is None


def test_a_large_tree_goes_in_slices_and_a_crash_between_them_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(renewal, "SLICE", 1)
    harness = CoreHarness(workers=8)
    family(harness, children=5)
    harness.answer("p", boom())

    assert error_of(harness, again(harness, "p", "restart")) is None
    assert len(image_of(harness).heads) == 5  # the new root, and four of the old children
    assert difference(harness) is None

    later = restarted(harness, TypeMeta(type_name="T"))
    while len(image_of(later).heads) > 1:
        before = len(image_of(later).heads)
        later.handle(AbortRequested("nobody", 1))
        assert len(image_of(later).heads) < before
    assert set(image_of(later).heads) == {"p"}
    assert difference(later) is None


def test_a_new_root_may_have_the_id_of_a_member_that_is_on_its_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(renewal, "SLICE", 1)
    harness = CoreHarness(workers=8)
    family(harness, children=5)
    harness.answer("p", boom())
    assert error_of(harness, again(harness, "p", "restart")) is None
    assert "c0" in image_of(harness).heads

    assert error_of(harness, replace(harness.new("c0"), fresh=False)) is None

    assert image_of(harness).heads["c0"].root == "c0"
    while len(image_of(harness).heads) > 2:
        harness.handle(AbortRequested("nobody", 1))
    assert set(image_of(harness).heads) == {"p", "c0"}
    assert difference(harness) is None


def test_a_restart_takes_its_place_in_submit_order_over() -> None:
    harness = ended("failed")
    harness.submit(harness.new("q"))
    head = harness.core.view("p")
    assert head is not None
    seq = head.seq

    assert error_of(harness, again(harness, "p", "restart")) is None
    harness.submit(harness.new("r"))

    heads = image_of(harness).heads
    assert heads["p"].seq == seq
    assert len({head.seq for head in heads.values()}) == 3
    assert difference(harness) is None


def test_a_call_restarts_all_that_it_names_or_none() -> None:
    harness = ended("failed")
    harness.submit(harness.new("q"))

    assert type(error_of(harness, again(harness, "p", "restart"), again(harness, "q", "restart"))) is NotAllowed
    assert generation(harness, "p") == 1

    harness.answer("q", Finished(state=b"1"))
    own = token()
    assert error_of(harness, *(again(harness, name, "restart", own=own) for name in ("p", "q", "new", "p"))) is None
    assert [generation(harness, name) for name in ("p", "q", "new")] == [2, 2, 1]
    assert difference(harness) is None


def test_an_id_that_a_call_names_twice_is_refused_where_it_must_be_new() -> None:
    harness = CoreHarness()
    own = token()
    assert type(error_of(harness, *(again(harness, "p", "error", own=own) for _ in range(2)))) is DuplicateProcedure
    assert harness.core.view("p") is None


def test_a_restart_counts_as_a_new_procedure_for_the_limit_on_queued_ones() -> None:
    harness = CoreHarness(workers=1)
    harness.submit(harness.new("p"))
    harness.answer("p", boom())
    harness = restarted(harness, TypeMeta(type_name="T"), scheduling=Scheduling(max_queued=1))
    harness.core.load([image_of(harness).heads["p"]], [])
    harness.submit(harness.new("q"))

    assert type(error_of(harness, again(harness, "p", "restart"))) is ManagerBusy
    assert generation(harness, "p") == 1


def test_generations_of_restarts_and_of_again_are_counted_together() -> None:
    harness = ended("done")
    assert error_of(harness, again(harness, "p", "restart")) is None
    harness.answer("p", Advanced(state=b"1"))
    harness.answer("p", Renewed(state=b"2", fresh=b"3"))
    assert generation(harness, "p") == 3
    harness.answer("p", Finished(state=b"4"))
    assert error_of(harness, again(harness, "p", "restart")) is None

    assert (generation(harness, "p"), harness.inbox["p"].generation, harness.inbox["p"].begun) == (4, 4, 0)
    assert difference(harness) is None


def test_what_waits_for_nothing_but_a_worker_begins_anew_in_the_backlog() -> None:
    harness = CoreHarness(workers=0)
    harness.submit(harness.new("p"))
    harness.handle(AbortRequested("p", 2))
    assert harness.state("p") is ProcedureState.ROLLEDBACK

    assert error_of(harness, again(harness, "p", "restart-failed")) is None

    written = [write.record for write in harness.writes if isinstance(write, PutProcedure)][-1]
    assert (written.generation, written.state) == (2, RUNNABLE)
    assert error_of(harness, again(harness, "p", "restart")) is not None
    assert difference(harness) is None


@pytest.mark.parametrize("policy", POLICIES)
def test_a_submit_that_is_sent_again_is_not_refused_for_what_came_of_it(policy: str) -> None:
    harness = CoreHarness(workers=1)
    sent = again(harness, "p", policy, locks=(LockKey.write("a"),), poisons=("a",))
    assert error_of(harness, sent) is None
    harness.answer("p", boom())
    assert "a" in image_of(harness).poisons

    assert error_of(harness, sent) is None

    later = restarted(harness)  # its class is not known yet, or is gone
    later.core.load([image_of(later).heads["p"]], [])
    assert error_of(later, sent) is None
    assert generation(later, "p") == 1


# ---------------------------------------------------------------- what was parked
@pytest.mark.parametrize("ended", ["bypassed", "aborted"])
def test_one_that_is_parked_again_under_the_id_of_a_parked_run_is_parked_as_any_other(ended: str) -> None:
    harness = CoreHarness()
    harness.submit(harness.new("p", limit_keys=("k",)))
    harness.answer("p", Refused(reason="not today", needs="Other"))
    harness.handle(BypassRequested("p", 1) if ended == "bypassed" else AbortRequested("p", reply=1, force=True))
    harness.core.settle(harness.core.seal())
    assert not any(harness.core._state.types.parked.values())

    assert error_of(harness, again(harness, "p", "restart", limit_keys=("k",))) is None
    before = harness.core.parkings
    harness.answer("p", Refused(reason="not today", needs="Other"))

    assert harness.core.parkings > before
    assert harness.core._state.queues.key_limits.holders == 0
    assert difference(harness) is None
