"""Signals with an id count once, however late they are repeated; and how much of that is remembered."""

from __future__ import annotations

import pytest

from actorproc.core import signals
from actorproc.core.coordinator import Coordinator
from actorproc.model.commands import Reply
from actorproc.model.events import Signalled, WorkerReady
from actorproc.model.ids import WorkerId
from actorproc.model.outcomes import Finished, Waited
from actorproc.model.snapshot import Snapshot
from actorproc.testing.image import Image
from tests.core.stage import Stage

AGAIN = Waited(state=b"", event="go")


def _signal(stage: Stage, target: str, payload: bytes, dedup: str | None = None) -> bool:
    decision = stage.handle(Signalled(target, payload, 5, dedup))
    reply = next(command for command in decision.commands if isinstance(command, Reply))
    assert reply.error is None
    return bool(reply.value)


def _restarted(stage: Stage) -> Stage:
    image = Image(Snapshot(1, 1, 1, [], [], [], [], [], []))
    image.apply(stage.writes)
    snapshot = image.snapshot()
    snapshot.epoch = 2
    later = Stage(workers=0)
    later.core, _ = Coordinator.restore(snapshot, stage.now)
    assert later.core.fingerprint()["taken"] == stage.core.fingerprint()["taken"]
    later.writes = list(stage.writes)
    later.register("T")
    later.handle(WorkerReady(WorkerId(0, 1)))
    return later


def _waiting(stage: Stage) -> Stage:
    stage.submit(stage.new("p"))
    stage.answer("p", AGAIN)
    return stage


@pytest.mark.parametrize("target", ["p", "go"])
def test_a_signal_that_was_delivered_is_not_delivered_again_by_its_id(target: str) -> None:
    stage = _waiting(Stage())

    assert _signal(stage, target, b"1", "k")
    assert stage.inbox["p"].event == b"1"
    stage.answer("p", AGAIN)
    assert _signal(stage, target, b"2", "k")
    assert "p" not in stage.inbox

    assert _signal(stage, target, b"3", "other")
    assert stage.inbox["p"].event == b"3"


@pytest.mark.parametrize("target", ["p", "go"])
def test_a_signal_that_was_kept_and_then_taken_is_known_by_its_id(target: str) -> None:
    stage = Stage()
    stage.submit(stage.new("p"))
    assert _signal(stage, target, b"1", "k")
    assert _signal(stage, target, b"1", "k")

    stage.answer("p", AGAIN)
    assert stage.inbox["p"].event == b"1"
    stage.answer("p", AGAIN)
    assert _signal(stage, target, b"2", "k")

    assert "p" not in stage.inbox


def test_a_restart_forgets_no_id() -> None:
    stage = _waiting(Stage())
    _signal(stage, "go", b"1", "k")
    stage.answer("p", AGAIN)

    later = _restarted(stage)
    assert _signal(later, "go", b"2", "k")
    assert "p" not in later.inbox
    assert _signal(later, "go", b"3", "l")
    assert later.inbox["p"].event == b"3"


def test_the_same_id_is_another_one_for_another_target() -> None:
    stage = _waiting(Stage())
    _signal(stage, "go", b"1", "k")
    stage.answer("p", AGAIN)

    _signal(stage, "p", b"2", "k")

    assert stage.inbox["p"].event == b"2"


def test_signals_without_an_id_leave_nothing_behind() -> None:
    stage = _waiting(Stage())
    _signal(stage, "go", b"1")

    image = Image(Snapshot(1, 1, 1, [], [], [], [], [], []))
    image.apply(stage.writes)

    assert image.events == {}


def test_ids_of_a_procedure_go_with_its_end() -> None:
    stage = _waiting(Stage())
    _signal(stage, "p", b"1", "k")
    stage.answer("p", Finished(state=b""))

    image = Image(Snapshot(1, 1, 1, [], [], [], [], [], []))
    image.apply(stage.writes)

    assert image.events == {}
    assert not _signal(stage, "p", b"2", "k")


def test_the_oldest_ids_of_a_target_and_of_all_are_forgotten_beyond_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signals, "MAX_REMEMBERED", 3)
    monkeypatch.setattr(signals, "MAX_REMEMBERED_IN_ALL", 4)
    stage = _waiting(Stage())

    for number in range(4):
        _signal(stage, "go", b"x", f"go-{number}")
        stage.answer("p", AGAIN)
    for number in range(2):
        _signal(stage, "p", b"x", f"p-{number}")
        stage.answer("p", AGAIN)
    later = _restarted(stage)

    assert set(later.core.fingerprint()["taken"]["go"]) == {"go-2", "go-3"}
    assert set(later.core.fingerprint()["taken"]["p"]) == {"p-0", "p-1"}
