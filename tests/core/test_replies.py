"""What callers and operators are answered, and what is written down of what they asked for."""

from __future__ import annotations

import pytest

from actorproc.core.coordinator import Coordinator
from actorproc.core.lifecycle import signals
from actorproc.core.queues.backoff import delay
from actorproc.errors import NotAllowed, StoreDamaged, UnknownProcedure
from actorproc.model.messages.commands import Decision, Reply
from actorproc.model.messages.events import (
    AbortRequested,
    PoisonCleared,
    Published,
    RollbackRequested,
    Signalled,
    TypeRegistered,
)
from actorproc.model.messages.outcomes import Advanced, Poisoned, Waited
from actorproc.model.policies import Backoff, TypeMeta
from actorproc.model.rows.records import ErrorInfo
from actorproc.model.rows.snapshot import Damage, RecoverySnapshot
from actorproc.model.rows.writes import PutAudit
from tests.core.harness import CoreHarness


def _reply(decision: Decision) -> Reply:
    return next(command for command in decision.commands if isinstance(command, Reply))


def _audits(decision: Decision) -> list[tuple[str, str, str | None, str]]:
    rows = [write.record for write in decision.writes if isinstance(write, PutAudit)]
    return [(row.verb, row.target, row.reason, row.detail) for row in rows if not row.copy_of]


def test_an_abort_of_nobody_names_whom_it_asked_for() -> None:
    error = _reply(CoreHarness().handle(AbortRequested("ghost", 3))).error

    assert isinstance(error, UnknownProcedure)
    assert "'ghost'" in str(error)


def test_an_abort_by_force_is_recorded_as_such() -> None:
    harness = CoreHarness()
    harness.submit(harness.new("p"), harness.new("q"))

    assert _audits(harness.handle(AbortRequested("p", 3, force=True, reason="stuck"))) == [
        ("abort", "p", "stuck", "by force")
    ]
    assert _audits(harness.handle(AbortRequested("q", 3))) == [("abort", "q", None, "")]


def test_a_request_about_a_procedure_is_noted_under_it_and_in_the_log_of_all_with_the_name_of_the_one_who_asked() -> (
    None
):
    harness = CoreHarness()
    harness.submit(harness.new("p"))

    decision = harness.handle(AbortRequested("p", 3, reason="stuck", by="ann"))

    rows = [write.record for write in decision.writes if isinstance(write, PutAudit)]
    assert [(row.target, row.number, row.procedure, row.copy_of, row.by) for row in rows] == [
        ("p", 1, "", 0, "ann"),
        ("", 1, "p", 1, "ann"),
    ]


@pytest.mark.parametrize(("reason", "by", "noted"), [(None, None, 0), ("retried", None, 1), (None, "ann", 1)])
def test_a_signal_is_noted_when_a_reason_or_a_name_is_given(reason: str | None, by: str | None, noted: int) -> None:
    harness = CoreHarness()
    harness.submit(harness.new("p"))

    assert len(_audits(harness.handle(Signalled("p", b"1", 5, None, reason, by)))) == noted
    assert len(_audits(harness.handle(Published("rain", b"1", 6, None, reason, by)))) == noted


def test_a_signal_to_a_procedure_that_cannot_be_read_is_refused() -> None:
    snapshot = RecoverySnapshot(1, 1, 1, [], [], [], [], [], [Damage("procedures", "x", "too short")])
    core, _ = Coordinator.restore(snapshot, 1.0)
    core.handle(TypeRegistered(TypeMeta(type_name="T")), 1.0)

    reply = _reply(core.handle(Signalled("x", b"1", 5), 1.0))

    assert isinstance(reply.error, StoreDamaged)
    assert reply.value is None


def test_a_name_keeps_as_many_signals_as_it_may_and_refuses_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signals, "MAX_BUFFERED", 2)
    harness = CoreHarness()
    kept = [_reply(harness.handle(Published("go", payload, 5))) for payload in (b"1", b"2", b"3")]

    assert [reply.error for reply in kept[:2]] == [None, None]
    assert isinstance(kept[2].error, NotAllowed)
    assert "2 events called 'go' are kept already" in str(kept[2].error)
    harness.submit(harness.new("p"))
    harness.answer("p", Waited(state=b"", event="go"))
    assert harness.inbox["p"].event == b"1"
    harness.answer("p", Waited(state=b"", event="go"))
    assert harness.inbox["p"].event == b"2"
    harness.answer("p", Waited(state=b"", event="go"))
    assert "p" not in harness.inbox


def test_who_clears_a_key_is_recorded_with_the_key() -> None:
    harness = CoreHarness()
    harness.submit(harness.new("p"))
    harness.answer("p", Poisoned(keys=("cat/t",), error=ErrorInfo("poisoned", "ValueError", "half written")))

    cleared = harness.handle(PoisonCleared("cat/t", 9, "looked at it"))

    assert _audits(cleared) == [("clear-poison", "", "looked at it", "cat/t")]


def test_a_rollback_on_demand_says_so_in_the_error_and_refuses_past_the_point_of_no_return() -> None:
    harness = CoreHarness(2, rollback_supported=True)
    harness.submit(harness.new("p", unit="a"), harness.new("q", unit="a"))
    harness.answer("q", Advanced(state=b"", unit="b", no_return=True))
    harness.answer("p", Waited(state=b"", event="go"))

    refused = _reply(harness.handle(RollbackRequested("q", 8))).error
    harness.handle(RollbackRequested("p", 9, "not wanted"))

    assert "past its point of no return" in str(refused)
    record = harness.core.view("p")
    assert record is not None
    assert record.error is not None
    assert (record.error.kind, record.error.type_name) == ("aborted", "ProcedureAborted")
    assert "not wanted" in record.error.message


def test_a_policy_without_a_pause_has_none_however_many_errors_there_were() -> None:
    assert delay(Backoff(base=0.0, factor=1e300, jitter=0.0), procedure="p", step=1, errors=9) == 0.0
    assert delay(Backoff(base=1.0, factor=1e300, cap=7.0, jitter=0.0), procedure="p", step=1, errors=9) == 7.0
