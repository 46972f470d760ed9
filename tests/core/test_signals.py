"""Signals with an id count once, however late they are repeated; and how much of that is remembered."""

from __future__ import annotations

import pytest

from actorproc.core.coordinator import Coordinator
from actorproc.core.lifecycle import signals as signalling
from actorproc.core.state import signal_ids
from actorproc.errors import NotAllowed, UnknownProcedure
from actorproc.model.ids import WorkerId
from actorproc.model.messages.commands import Reply
from actorproc.model.messages.events import (
    Event,
    Published,
    Signalled,
    SignalsExpired,
    SignalsWithdrawn,
    Submitted,
    WorkerReady,
)
from actorproc.model.messages.outcomes import Failed, Finished, Waited
from actorproc.model.policies import Retention
from actorproc.model.rows.records import ErrorInfo
from actorproc.model.rows.snapshot import RecoverySnapshot
from actorproc.testing.histories.image import Image
from tests.core.harness import CoreHarness

AGAIN = Waited(state=b"", event="go")


def _signal(harness: CoreHarness, target: str, payload: bytes, dedup: str | None = None) -> bool:
    if target == "go":
        reply = _reply(harness, Published(target, payload, 5, dedup))
        assert reply.error is None
        return True
    reply = _reply(harness, Signalled(target, payload, 5, dedup))
    assert reply.error is None
    return bool(reply.value)


def _reply(harness: CoreHarness, event: Event) -> Reply:
    decision = harness.handle(event)
    return next(command for command in decision.commands if isinstance(command, Reply))


def _restarted(harness: CoreHarness) -> CoreHarness:
    image = Image(RecoverySnapshot(1, 1, 1, [], [], [], [], [], []))
    image.apply(harness.writes)
    snapshot = image.snapshot()
    snapshot.epoch = 2
    later = CoreHarness(workers=0)
    later.core, _ = Coordinator.restore(snapshot, harness.now)
    assert later.core.fingerprint()["taken"] == harness.core.fingerprint()["taken"]
    later.writes = list(harness.writes)
    later.register("T")
    later.handle(WorkerReady(WorkerId(0, 1)))
    return later


def _waiting(harness: CoreHarness) -> CoreHarness:
    harness.submit(harness.new("p"))
    harness.answer("p", AGAIN)
    return harness


@pytest.mark.parametrize("target", ["p", "go"])
def test_a_signal_that_was_delivered_is_not_delivered_again_by_its_id(target: str) -> None:
    harness = _waiting(CoreHarness())

    assert _signal(harness, target, b"1", "k")
    assert harness.inbox["p"].event == b"1"
    harness.answer("p", AGAIN)
    assert _signal(harness, target, b"2", "k")
    assert "p" not in harness.inbox

    assert _signal(harness, target, b"3", "other")
    assert harness.inbox["p"].event == b"3"


@pytest.mark.parametrize("target", ["p", "go"])
def test_a_signal_that_was_kept_and_then_taken_is_known_by_its_id(target: str) -> None:
    harness = CoreHarness()
    harness.submit(harness.new("p"))
    assert _signal(harness, target, b"1", "k")
    assert _signal(harness, target, b"1", "k")

    harness.answer("p", AGAIN)
    assert harness.inbox["p"].event == b"1"
    harness.answer("p", AGAIN)
    assert _signal(harness, target, b"2", "k")

    assert "p" not in harness.inbox


def test_a_restart_forgets_no_id() -> None:
    harness = _waiting(CoreHarness())
    _signal(harness, "go", b"1", "k")
    harness.answer("p", AGAIN)

    later = _restarted(harness)
    assert _signal(later, "go", b"2", "k")
    assert "p" not in later.inbox
    assert _signal(later, "go", b"3", "l")
    assert later.inbox["p"].event == b"3"


def test_the_same_id_is_another_one_for_another_target() -> None:
    harness = _waiting(CoreHarness())
    _signal(harness, "go", b"1", "k")
    harness.answer("p", AGAIN)

    _signal(harness, "p", b"2", "k")

    assert harness.inbox["p"].event == b"2"


def test_signals_without_an_id_leave_nothing_behind() -> None:
    harness = _waiting(CoreHarness())
    _signal(harness, "go", b"1")

    image = Image(RecoverySnapshot(1, 1, 1, [], [], [], [], [], []))
    image.apply(harness.writes)

    assert image.events == {}


def test_ids_of_a_procedure_go_with_its_end() -> None:
    harness = _waiting(CoreHarness())
    _signal(harness, "p", b"1", "k")
    harness.answer("p", Finished(state=b""))

    image = Image(RecoverySnapshot(1, 1, 1, [], [], [], [], [], []))
    image.apply(harness.writes)

    assert image.events == {}
    assert not _signal(harness, "p", b"2", "k")


def test_the_oldest_ids_of_a_target_and_of_all_are_forgotten_beyond_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signal_ids, "MAX_REMEMBERED", 3)
    monkeypatch.setattr(signal_ids, "MAX_REMEMBERED_IN_ALL", 4)
    harness = _waiting(CoreHarness())

    for number in range(4):
        _signal(harness, "go", b"x", f"go-{number}")
        harness.answer("p", AGAIN)
    for number in range(2):
        _signal(harness, "p", b"x", f"p-{number}")
        harness.answer("p", AGAIN)
    later = _restarted(harness)

    assert set(later.core.fingerprint()["taken"]["event go"]) == {"go-2", "go-3"}
    assert set(later.core.fingerprint()["taken"]["p"]) == {"p-0", "p-1"}


# ---------------------------------------------------------------- receivers and names
def test_a_signal_without_a_procedure_is_refused_and_leaves_nothing_behind() -> None:
    harness = CoreHarness()

    reply = _reply(harness, Signalled("nobody", b"1", 5, "k"))

    assert isinstance(reply.error, UnknownProcedure)
    assert "publish()" in str(reply.error)
    assert harness.core.fingerprint()["buffered"] == {}
    assert harness.core.fingerprint()["taken"] == {}


def test_a_signal_counts_for_a_procedure_that_was_submitted_in_the_same_batch() -> None:
    harness = CoreHarness()
    harness.core.handle(Submitted((harness.new("p"),), 1), harness.now)

    assert _reply(harness, Signalled("p", b"1", 5)).value is True


def test_an_event_is_not_for_the_procedure_that_has_its_name_for_an_id() -> None:
    harness = CoreHarness()
    harness.submit(harness.new("p"))
    assert _reply(harness, Published("p", b"1", 5)).error is None
    harness.answer("p", AGAIN)

    assert "p" not in harness.inbox
    assert list(harness.core.fingerprint()["buffered"]) == ["event p"]


def test_what_a_procedure_has_not_taken_goes_with_its_end_and_stays_for_a_retry() -> None:
    harness = CoreHarness()
    for name in ("p", "q"):
        harness.submit(harness.new(name))
        assert _signal(harness, name, b"1", "k")
    harness.answer("p", Finished(state=b""))
    harness.answer("q", Failed(error=ErrorInfo("error", "ValueError", "no"), retryable=False))

    image = Image(RecoverySnapshot(1, 1, 1, [], [], [], [], [], []))
    image.apply(harness.writes)

    assert {target for target, _ in image.events} == {"q"}


def test_events_in_all_have_a_bound_and_signals_do_not_count_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signalling, "MAX_PUBLISHED", 2)
    harness = CoreHarness()
    harness.submit(harness.new("p"))
    assert _signal(harness, "p", b"1")
    for name in ("a", "b"):
        assert _reply(harness, Published(name, b"", 5)).error is None

    assert isinstance(_reply(harness, Published("c", b"", 5)).error, NotAllowed)
    assert _reply(harness, SignalsWithdrawn(None, "a", 5)).value == 1
    assert _reply(harness, Published("c", b"", 5)).error is None

    later = _restarted(harness)
    assert isinstance(_reply(later, Published("d", b"", 5)).error, NotAllowed)


@pytest.mark.parametrize(
    ("event", "left"),
    [
        (SignalsWithdrawn(None, "go", 5), [("p", 1)]),
        (SignalsWithdrawn(None, "go", 5, number=2), [("event go", 1), ("p", 1)]),
        (SignalsWithdrawn("p", None, 5), [("event go", 1), ("event go", 2)]),
        (SignalsWithdrawn("go", None, 5), [("event go", 1), ("event go", 2), ("p", 1)]),
        (SignalsWithdrawn(None, "go", 5, number=9), [("event go", 1), ("event go", 2), ("p", 1)]),
    ],
)
def test_an_operator_withdraws_what_none_has_taken_and_nothing_else(
    event: SignalsWithdrawn, left: list[tuple[str, int]]
) -> None:
    harness = CoreHarness()
    harness.submit(harness.new("p"))
    _signal(harness, "p", b"1", "k")
    _signal(harness, "go", b"2", "k")
    _signal(harness, "go", b"3")

    assert _reply(harness, event).value == 3 - len(left)

    image = Image(RecoverySnapshot(1, 1, 1, [], [], [], [], [], []))
    image.apply(harness.writes)
    assert sorted(image.events) == left
    assert harness.core.fingerprint() == _restarted(harness).core.fingerprint() | {
        name: harness.core.fingerprint()[name] for name in ("at work", "heads", "numbers")
    }


def test_an_event_is_removed_when_it_was_kept_too_long_and_a_signal_never() -> None:
    harness = CoreHarness()
    harness.core._state.settings.retention = Retention(signals_seconds=10.0)
    harness.submit(harness.new("p"))
    _signal(harness, "p", b"1")
    _signal(harness, "go", b"2", "k")
    harness.now += 5
    _signal(harness, "go", b"3")
    harness.now += 5

    old = harness.core.too_old(["p", *harness.core.published()], harness.now)
    harness.handle(SignalsExpired(old, harness.now))

    image = Image(RecoverySnapshot(1, 1, 1, [], [], [], [], [], []))
    image.apply(harness.writes)
    assert sorted(image.events) == [("event go", 2), ("p", 1)]
    assert harness.core.published() == ["event go"]
    harness.answer("p", AGAIN)
    assert harness.inbox["p"].event == b"1"
    harness.answer("p", AGAIN)
    assert harness.inbox["p"].event == b"3"


def test_an_event_that_was_taken_before_its_removal_is_decided_is_left_alone() -> None:
    harness = CoreHarness()
    harness.core._state.settings.retention = Retention(signals_seconds=1.0)
    _signal(harness, "go", b"1", "k")
    harness.now += 5
    old = harness.core.too_old(harness.core.published(), harness.now)
    harness.submit(harness.new("p"))
    harness.answer("p", AGAIN)

    harness.handle(SignalsExpired(old, harness.now))

    assert harness.inbox["p"].event == b"1"
    assert _signal(harness, "go", b"2", "k")
    assert harness.core.published() == []
