"""Restarts by id, and forks: which are refused, what they begin with, and what counts once."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from actorproc.core.lock_manager.poison import poison
from actorproc.errors import ActorprocError, DuplicateProcedure, KeyPoisoned, ManagerBusy, NotAllowed, UnknownProcedure
from actorproc.model.ids import WorkerId
from actorproc.model.messages.events import (
    AbortRequested,
    ForkRequested,
    RestartRequested,
    RetryRequested,
    WorkerReady,
)
from actorproc.model.messages.outcomes import Advanced, Finished, Renewed, Slept, Suspended, Waited
from actorproc.model.policies import LockKey, Scheduling, TypeMeta
from actorproc.model.rows.records import IdReuse, StepRecord, StepTerms
from actorproc.model.rows.writes import PutAudit, PutStep
from actorproc.model.states import ProcedureState
from tests.core.harness import CoreHarness, boom, difference, image_of, restarted
from tests.core.test_restarting import again, ended, error_of, generation, token

SUCCESS, FAILED = ProcedureState.SUCCESS, ProcedureState.FAILED


def restart(harness: CoreHarness, id: str, *, own: bytes | None = None, at: int = 1, **fields: object):
    new = replace(harness.new(id, **fields), fresh=False, reuse=IdReuse("restart", own or token()))
    return reply_of(harness, RestartRequested(id, 90, new, at, "why", "ann"))


def fork(harness: CoreHarness, id: str, as_: str, *, own: bytes | None = None, step: int = 1, **fields: object):
    new = replace(harness.new(as_, **fields), fresh=False, reuse=IdReuse("error", own or token()))
    return reply_of(harness, ForkRequested(id, 90, new, step, "why", "ann"))


def reply_of(harness: CoreHarness, event: RestartRequested | ForkRequested | RetryRequested) -> ActorprocError | None:
    decision = harness.handle(event)
    (reply,) = [command for command in decision.commands if getattr(command, "reply", 0) == 90]
    return reply.error


def audits(harness: CoreHarness) -> list[tuple[str, str, str]]:
    rows = [write.record for write in harness.writes if isinstance(write, PutAudit)]
    return [(row.target, row.verb, row.detail) for row in rows if row.target]


def last_step(harness: CoreHarness, id: str) -> StepRecord:
    return [write.record for write in harness.writes if isinstance(write, PutStep) and write.record.procedure == id][-1]


# ---------------------------------------------------------------- restart
@pytest.mark.parametrize("state", ["done", "failed", "undone", "cancelled", "bypassed", "asleep", "running"])
def test_what_a_restart_takes(state: str) -> None:
    harness = ended(state)
    is_taken = state not in {"asleep", "running"}

    error = restart(harness, "p")

    assert (error is None) == is_taken
    assert generation(harness, "p") == 1 + is_taken
    assert ("p", "restart", "generation 2") in audits(harness) or not is_taken
    if not is_taken:
        assert isinstance(error, NotAllowed)
        assert "has not ended" in str(error)
    assert difference(harness) is None


@pytest.mark.parametrize("crash", [False, True])
@pytest.mark.parametrize("way", ["by its id", "restart", "restart-failed"])
def test_a_root_whose_rollback_gave_up_is_not_restarted_until_it_is_undone(way: str, *, crash: bool) -> None:
    harness = CoreHarness(rollback_supported=True)
    harness.submit(harness.new("p", unit="pay"))
    harness.answer("p", boom())
    harness.answer("p", boom())
    assert harness.state("p") is FAILED
    if crash:
        harness = restarted(harness, TypeMeta(type_name="T", rollback_supported=True))
        image = image_of(harness)
        harness.core.load([image.heads["p"]], list(image.units.values()))

    def begun_again() -> ActorprocError | None:
        return restart(harness, "p") if way == "by its id" else error_of(harness, again(harness, "p", way))

    error = begun_again()

    assert isinstance(error, NotAllowed)
    assert "p pay is not undone" in str(error)
    assert "retry('p')" in str(error)
    assert generation(harness, "p") == 1
    assert difference(harness) is None
    assert reply_of(harness, RetryRequested("p", 90)) is None
    if crash:
        harness.handle(WorkerReady(WorkerId(0, 1)))
    harness.undo_all()
    assert harness.state("p") is ProcedureState.ROLLEDBACK
    assert begun_again() is None
    assert generation(harness, "p") == 2
    assert difference(harness) is None


@pytest.mark.parametrize("crash", [False, True])
def test_a_restart_that_is_sent_again_counts_once(*, crash: bool) -> None:
    harness, own = ended("failed"), token()
    assert restart(harness, "p", own=own) is None
    if crash:
        harness = restarted(harness, TypeMeta(type_name="T"))
    assert restart(harness, "p", own=own) is None
    assert generation(harness, "p") == 2


def test_a_restart_of_a_generation_that_is_over_is_refused() -> None:
    harness = ended("failed")
    assert restart(harness, "p") is None
    harness.answer("p", boom())

    error = restart(harness, "p", at=1)

    assert isinstance(error, NotAllowed)
    assert "begun again since" in str(error)
    assert restart(harness, "p", at=2) is None


@pytest.mark.parametrize("of_what", ["unknown", "child", "a root that left a child"])
def test_what_is_no_ended_root_is_not_restarted(of_what: str) -> None:
    harness = CoreHarness(workers=2)
    harness.submit(harness.new("p"))
    harness.answer("p", Suspended(state=b"1", children=(harness.new("c"),), on_parent_end="leave", wait="any"))
    if of_what == "a root that left a child":
        harness.answer("c", Suspended(state=b"1", children=(harness.new("d"),)))
        harness.handle(AbortRequested("p", 7, force=True))
    name = {"unknown": "q", "child": "c", "a root that left a child": "p"}[of_what]

    error = restart(harness, name)

    assert isinstance(error, UnknownProcedure if of_what == "unknown" else NotAllowed)
    assert difference(harness) is None


def test_a_restart_needs_no_class_and_keeps_the_traits_of_the_one_before() -> None:
    harness = restarted(ended("undone"))
    image = image_of(harness)
    harness.core.load([image.heads["p"]], [])

    assert restart(harness, "p") is None

    head = harness.core.view("p")
    assert head is not None
    assert (head.generation, head.rollback_supported, head.type_name) == (2, True, "T")
    harness.handle(WorkerReady(WorkerId(0, 1)))
    assert "p" not in harness.inbox  # parked until its class is registered
    harness.register("T", rollback_supported=True)
    assert harness.inbox["p"].generation == 2


@pytest.mark.parametrize("how", ["restart", "fork"])
@pytest.mark.parametrize("why", ["poisoned", "busy"])
def test_what_cannot_run_now_is_refused(how: str, why: str) -> None:
    harness = ended("done")
    state = harness.core._state
    if why == "poisoned":
        harness.submit(harness.new("bad"))
        poison(state, "disk", state.residents.procs["bad"], "half written")
    else:
        state.settings.scheduling = Scheduling(max_queued=0)
    locks = (LockKey.write("disk/a"),)

    error = restart(harness, "p", locks=locks) if how == "restart" else fork(harness, "p", "f", locks=locks)

    assert isinstance(error, KeyPoisoned if why == "poisoned" else ManagerBusy)


# ---------------------------------------------------------------- fork
@pytest.mark.parametrize("state", ["done", "failed", "undone", "cancelled", "bypassed", "asleep", "running"])
def test_a_fork_is_taken_of_any_state_and_leaves_the_other_alone(state: str) -> None:
    harness = ended(state)
    before = harness.state("p")

    assert fork(harness, "p", "f", step=3, step_name="ship") is None

    assert harness.state("p") is before
    head = harness.core.view("f")
    assert head is not None
    assert (head.parent, head.root, head.generation, head.begun) == (None, "f", 1, -2)
    assert harness.inbox["f"].begun == -2
    assert audits(harness)[-2:] == [("p", "fork", "as f, from step 'ship'"), ("f", "fork", "of p, from step 'ship'")]
    harness.answer("f", Finished(state=b"1"))
    assert harness.state("f") is SUCCESS
    assert difference(harness) is None


def test_a_failed_fork_undoes_only_what_it_did_itself() -> None:
    harness = CoreHarness(workers=2, rollback_supported=True)
    harness.submit(harness.new("p", unit="pay"))
    harness.answer("p", Advanced(state=b"1", unit="ship"))
    harness.answer("p", Finished(state=b"2"))
    assert fork(harness, "p", "f", step=2, unit="ship") is None

    harness.answer("f", boom())
    harness.undo_all()

    assert harness.state("f") is ProcedureState.ROLLEDBACK
    assert [name for name, _, mode in harness.order if mode == "ROLLBACK"] == ["f"]
    assert harness.state("p") is SUCCESS
    assert difference(harness) is None


@pytest.mark.parametrize("crash", [False, True])
def test_a_fork_that_is_sent_again_counts_once_and_an_id_only_once(*, crash: bool) -> None:
    harness, own = ended("asleep"), token()
    assert fork(harness, "p", "f", own=own) is None
    if crash:
        harness = restarted(harness, TypeMeta(type_name="T", rollback_supported=True))
    assert fork(harness, "p", "f", own=own) is None
    assert isinstance(fork(harness, "p", "f"), DuplicateProcedure)
    assert isinstance(fork(harness, "p", "p"), DuplicateProcedure)
    assert isinstance(fork(harness, "nowhere", "g"), UnknownProcedure)
    assert difference(harness) is None


def test_a_fork_that_is_restarted_begins_at_the_same_step() -> None:
    harness = ended("done")
    assert fork(harness, "p", "f", step=3) is None
    harness.answer("f", Finished(state=b"1"))
    assert restart(harness, "f") is None
    assert (harness.inbox["f"].begun, generation(harness, "f")) == (-2, 2)
    assert difference(harness) is None


@pytest.mark.parametrize("crash", [False, True])
@pytest.mark.parametrize("renewals", [1, 2])
def test_a_fork_that_has_begun_again_is_restarted_at_the_step_it_was_forked_from(renewals: int, *, crash: bool) -> None:
    harness = ended("done")
    assert fork(harness, "p", "f", step=3) is None
    for _ in range(renewals):
        harness.answer("f", Advanced(state=b"1"))
        harness.answer("f", Renewed(state=b"", fresh=b"2"))
    if crash:
        harness = restarted(harness, TypeMeta(type_name="T", rollback_supported=True))
        harness.handle(WorkerReady(WorkerId(0, 1)))
    harness.answer("f", Finished(state=b"1"))
    for at in (renewals + 1, renewals + 2):  # the second one begins where the first one did
        assert restart(harness, "f", at=at) is None
        assert (harness.inbox["f"].begun, generation(harness, "f")) == (-2, at + 1)
        harness.answer("f", Finished(state=b"1"))
    assert difference(harness) is None


def test_a_child_may_be_forked_and_the_fork_is_a_root() -> None:
    harness = CoreHarness(workers=2)
    harness.submit(harness.new("p"))
    harness.answer("p", Suspended(state=b"1", children=(harness.new("c"),)))

    assert fork(harness, "c", "f") is None

    head = harness.core.view("f")
    assert head is not None
    assert (head.parent, head.root, head.depth) == (None, "f", 0)


# ---------------------------------------------------------------- terms of a step
A, B = LockKey.write("a"), LockKey.read("b")


@pytest.mark.parametrize(
    ("fields", "outcome", "first", "second"),
    [
        ({}, Advanced(state=b"1"), None, None),
        ({"locks": (A,)}, Advanced(state=b"1"), StepTerms((A,)), StepTerms((A,))),
        ({}, Advanced(state=b"1", acquire=(B,)), None, StepTerms((B,))),
        ({"locks": (A,)}, Advanced(state=b"1", acquire=(A, B)), StepTerms((A,)), StepTerms((A, B))),
        ({"poisons": ("x",)}, Slept(state=b"1", seconds=1.0), StepTerms((), ("x",)), StepTerms((), ("x",))),
        ({"poisons": ("x",)}, Waited(state=b"1", event="e", poisons=()), StepTerms((), ("x",)), StepTerms()),
        ({"no_return": True}, Advanced(state=b"1"), StepTerms(no_return=True), None),
        ({}, Advanced(state=b"1", no_return=True), None, StepTerms(no_return=True)),
    ],
)
def test_a_record_has_the_terms_of_the_step_that_runs_from_it(fields, outcome, first, second) -> None:
    harness = CoreHarness()
    harness.submit(harness.new("p", **fields))
    assert last_step(harness, "p").terms == first
    harness.answer("p", outcome)
    assert last_step(harness, "p").terms == second
