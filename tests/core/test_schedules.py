"""Schedules in the core: each instant is decided about once, whatever the clock, restarts and operators do."""

from __future__ import annotations

from typing import Any

import pytest

from actorproc.core.coordinator import Coordinator
from actorproc.core.results.firings import DAY, PATIENCE, RETRY, SECOND_LOOK
from actorproc.model.ids import WorkerId, firing_id
from actorproc.model.messages.commands import Reply
from actorproc.model.messages.events import (
    PoisonCleared,
    RetryRequested,
    ScheduleDeclared,
    ScheduleSteered,
    Tick,
    TypeRegistered,
    WorkerReady,
)
from actorproc.model.messages.outcomes import Finished
from actorproc.model.policies import LockKey, LockMode, TypeMeta
from actorproc.model.rows.records import NewProcedure, PoisonRecord
from actorproc.model.rows.schedules import ScheduleRecord
from actorproc.model.states import ProcedureState
from actorproc.support.instants import instant_of
from actorproc.support.recurrence import rule_of
from tests.core.harness import CoreHarness, boom, difference, heads_of, image_of

DONE = Finished(state=b"")
HOUR = 3600.0
T = TypeMeta(type_name="T")


def schedule(id: str = "s", spec: str = "every 3600", **fields: Any) -> ScheduleRecord:
    new = fields.pop("new", NewProcedure(id=id, type_name=fields.pop("type_name", "T"), state=b"0", digest=b"d"))
    return ScheduleRecord(id=id, spec=spec, new=new, **fields)


class Stage(CoreHarness):
    """A coordinator with schedules, whose time passes by the times it asks for."""

    def __init__(self, workers: int = 1, **traits: object) -> None:
        super().__init__(workers, **traits)
        self.core._state.schedules.rule_of = rule_of

    def declare(self, id: str = "s", spec: str = "every 3600", **fields: Any) -> Any:
        return self.reply(ScheduleDeclared(schedule(id, spec, **fields), 1))

    def steer(self, action: Any, id: str = "s", reason: str | None = None) -> Any:
        return self.reply(ScheduleSteered(id, action, 1, reason))

    def reply(self, event: Any) -> Any:
        reply = next(command for command in self.handle(event).commands if isinstance(command, Reply))
        return reply.value if reply.error is None else reply.error

    def until(self, at: float, *, answers: bool = True) -> None:
        """Let time pass, from one deadline to the next."""
        while (due := self.core.next_deadline()) is not None and due <= at:
            self.now = max(self.now, due)
            self.handle(Tick())
            assert difference(self) is None
            while answers and self.inbox:
                self.answer(next(iter(self.inbox)), DONE)
        self.now = at

    def jump(self, at: float, *, answers: bool = True) -> None:
        """The clock shows another time all at once."""
        self.now = at
        self.handle(Tick())
        while answers and self.inbox:
            self.answer(next(iter(self.inbox)), DONE)

    def record(self, id: str = "s") -> ScheduleRecord:
        return self.core._state.schedules.records[id]

    @property
    def fired(self) -> list[float]:
        """Instants for which procedures were handed out, in order."""
        return [at for at in map(instant, self.order) if at is not None]


def instant(run: tuple[str, int, str]) -> float | None:
    found = instant_of(run[0])
    return None if found is None or run[2] != "EXECUTE" else found.timestamp()


def again(stage: Stage, *types: TypeMeta, after: float = 0.0) -> Stage:
    """The next life on the same store, with one worker."""
    found = Stage(0)
    found.now = stage.now + after
    snapshot = image_of(stage).snapshot()
    snapshot.epoch = stage.core.epoch + 1
    found.core, decision = Coordinator.restore(snapshot, found.now, types=types, rules=rule_of)
    found.writes = [*stage.writes, *decision.writes]
    found.handle(WorkerReady(WorkerId(0, 1)))
    return found


def test_each_instant_starts_one_procedure_with_the_instant_in_its_id() -> None:
    stage = Stage()
    assert stage.declare() is True
    assert stage.declare() is False, "it was declared so before"
    stage.until(3.5 * HOUR)
    assert stage.fired == [HOUR, 2 * HOUR, 3 * HOUR], "and never before its first instant"
    assert [name for name, *_ in stage.order] == [firing_id("s", at) for at in stage.fired]
    assert (stage.record().fired, stage.record().firings, stage.record().due) == (3 * HOUR, 3, 4 * HOUR)


def test_a_firing_and_the_watermark_are_one_decision() -> None:
    stage = Stage()
    stage.declare()
    stage.now = HOUR
    decision = stage.handle(Tick())
    names = [type(write).__name__ for write in decision.writes]
    assert "PutSchedule" in names
    assert "PutProcedure" in names


@pytest.mark.parametrize("gap", [0.0, 0.3 * HOUR, 5.4 * HOUR])
@pytest.mark.parametrize("policy", ["last", "all", "none"])
def test_a_restart_makes_up_for_what_was_missed_as_the_policy_says(gap, policy) -> None:
    stage = Stage()
    stage.declare(catch_up=policy)
    stage.until(1.8 * HOUR)
    stage = again(stage, T, after=gap)
    stage.declare(catch_up=policy)
    stage.until(stage.now + 1)
    missed = [at * HOUR for at in range(2, int(1.8 + gap / HOUR) + 1)]
    assert stage.fired == {"last": missed[-1:], "all": missed, "none": []}[policy]
    stage.until(9.5 * HOUR)
    assert stage.fired[-2:] == [8 * HOUR, 9 * HOUR]
    assert len(set(stage.fired)) == len(stage.fired)


def test_a_hundred_restarts_do_not_move_an_interval() -> None:
    stage = Stage()
    stage.declare()
    fired = []
    for _ in range(100):
        stage.until(stage.now + 0.37 * HOUR)
        fired += stage.fired
        stage = again(stage, T)
        stage.declare()
    assert fired == [at * HOUR for at in range(1, 38)][: len(fired)]
    assert len(fired) >= 36


def test_what_was_missed_waits_for_its_declaration_and_is_dropped_where_the_rule_is_another() -> None:
    stage = Stage()
    stage.declare()
    stage = again(stage, T, after=2.5 * HOUR)
    stage.until(stage.now + PATIENCE / 2)
    assert stage.fired == []
    stage.declare(spec="every 7200")
    stage.until(stage.now + 2 * PATIENCE)
    assert stage.fired == [], "instants before a declaration are never missed"
    stage.until(5 * HOUR)
    assert stage.fired == [int(2.5 * HOUR + PATIENCE / 2) + 2 * HOUR]


def test_a_schedule_that_is_not_declared_any_more_fires_all_the_same() -> None:
    stage = Stage()
    stage.declare()
    stage.declare("other", "every 60")
    stage = again(stage, T, after=2.5 * HOUR)
    stage.until(stage.now + 2 * PATIENCE)
    assert 2 * HOUR in stage.fired
    assert stage.record().epoch != stage.core.epoch


def test_a_change_of_anything_but_the_rule_keeps_the_watermark() -> None:
    stage = Stage()
    stage.declare()
    stage.until(1.5 * HOUR)
    assert stage.declare(overlap="queue", catch_up="all") is True
    assert stage.record().watermark == HOUR
    stage.until(2.5 * HOUR)
    assert stage.fired == [HOUR, 2 * HOUR]


# ---------------------------------------------------------------------- overlap
def test_skip_passes_over_what_comes_while_the_last_one_runs() -> None:
    stage = Stage()
    stage.declare()
    stage.until(3.5 * HOUR, answers=False)
    assert stage.fired == [HOUR]
    stage.answer(firing_id("s", HOUR), DONE)
    stage.until(4.5 * HOUR)
    assert stage.fired == [HOUR, 4 * HOUR]
    assert stage.record().passed == 2


def test_queue_starts_one_after_the_other() -> None:
    stage = Stage()
    stage.declare(overlap="queue")
    stage.until(3.5 * HOUR, answers=False)
    assert stage.fired == [HOUR]
    stage.until(3.6 * HOUR)
    stage.answer(firing_id("s", HOUR), DONE)
    stage.until(3.7 * HOUR)
    assert stage.fired == [HOUR, 2 * HOUR, 3 * HOUR]
    assert stage.record().waiting == ()


def test_cancel_running_aborts_and_starts_after_the_undo() -> None:
    stage = Stage(rollback_supported=True)
    stage.declare(overlap="cancel-running", new=NewProcedure(id="s", type_name="T", state=b"0", digest=b"d", unit=""))
    stage.until(2 * HOUR, answers=False)
    first = firing_id("s", HOUR)
    stage.answer(first, boom())
    assert stage.fired == [HOUR], "its undo comes first"
    stage.undo_all()
    stage.until(2 * HOUR + 1)
    assert stage.state(first) is ProcedureState.ROLLEDBACK
    assert stage.fired == [HOUR, 2 * HOUR]


def test_cancel_running_waits_for_an_undo_that_gave_up_and_does_not_pile_up() -> None:
    stage = Stage(rollback_supported=True)
    stage.declare(overlap="cancel-running", new=NewProcedure(id="s", type_name="T", state=b"0", digest=b"d", unit=""))
    stage.until(2 * HOUR, answers=False)
    first = firing_id("s", HOUR)
    stage.answer(first, boom())
    while stage.state(first) is not ProcedureState.FAILED:
        stage.answer(first, boom("the undo breaks"))
        stage.until(stage.core.next_deadline() or stage.now, answers=False)
    stage.until(5.5 * HOUR, answers=False)
    assert stage.fired == [HOUR]
    assert stage.record().waiting == (5 * HOUR,)
    stage = again(stage, T)
    stage.declare(overlap="cancel-running", new=NewProcedure(id="s", type_name="T", state=b"0", digest=b"d", unit=""))
    assert stage.reply(RetryRequested(first, 1)) is not None


def test_many_missed_ones_wait_in_a_bounded_line() -> None:
    stage = Stage()
    stage.declare(spec="every 1", overlap="queue", catch_up="all")
    stage.until(1.0, answers=False)
    stage.jump(5000.0, answers=False)
    assert len(stage.record().waiting) == 1000
    stage.until(5100.0, answers=False)
    assert len(stage.record().waiting) == 1000
    assert stage.record().passed >= 100


# ---------------------------------------------------------------------- clocks
def test_a_clock_set_back_fires_nothing_twice() -> None:
    stage = Stage()
    stage.declare()
    stage.until(5.5 * HOUR)
    stage.jump(2.5 * HOUR)
    assert "set back" in (stage.record().fault or "")
    stage.until(7.5 * HOUR)
    assert stage.fired == [at * HOUR for at in range(1, 8)]
    assert stage.record().fault is None


def test_a_clock_that_leaps_is_looked_at_twice() -> None:
    stage = Stage()
    stage.declare()
    stage.until(1.5 * HOUR)
    stage.jump(400 * DAY)
    assert stage.fired == [HOUR], "it may be a mistake"
    stage.jump(1.6 * HOUR)
    stage.until(3.5 * HOUR)
    assert stage.fired == [HOUR, 2 * HOUR, 3 * HOUR]


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("wrong_for", [2 * HOUR, 40 * HOUR])
def test_a_clock_that_was_wrong_does_not_silence_a_schedule(wrong_for, restarts) -> None:
    stage = Stage()
    stage.declare()
    stage.until(1.5 * HOUR)
    stage.jump(400 * DAY)
    stage.until(400 * DAY + SECOND_LOOK)
    assert stage.fired[1:] == [400 * DAY], "the clock keeps to it"
    stage.until(400 * DAY + wrong_for)
    if restarts:
        stage = again(stage, T)
        stage.declare()
    stage.order.clear()
    stage.jump(1.5 * HOUR + wrong_for)
    stage.until(stage.now + 3 * HOUR)
    assert len(stage.fired) == 4, "what was missed, by its last one, and three more"
    assert stage.fired[-1] < 3 * DAY
    assert stage.record().fault is None


def test_a_leap_of_less_than_a_day_is_for_the_operator_to_mend() -> None:
    stage = Stage()
    stage.declare()
    stage.until(1.5 * HOUR)
    stage.jump(20.5 * HOUR)
    stage.jump(1.6 * HOUR)
    stage.until(4.5 * HOUR)
    assert stage.fired == [HOUR, 20 * HOUR]
    assert "reset" in (stage.record().fault or "")
    assert stage.steer("reset") is True
    stage.until(21.5 * HOUR)
    assert stage.fired[2:] == [at * HOUR for at in range(5, 22)]
    assert stage.record().fault is None


def test_a_changed_rule_is_not_silenced_by_the_watermark_of_the_old_one() -> None:
    stage = Stage()
    stage.declare()
    stage.jump(20.5 * HOUR)
    stage.jump(HOUR / 2)
    stage.declare(spec="every 1800")
    stage.until(2.1 * HOUR)
    assert stage.fired[1:] == [HOUR, 1.5 * HOUR, 2 * HOUR]


# ---------------------------------------------------------------------- refusals and operators
def test_a_firing_whose_class_is_missing_is_tried_again_and_comes_with_the_class() -> None:
    stage = Stage()
    stage.declare()
    found = again(stage, after=1.2 * HOUR)
    found.until(found.now + 2 * PATIENCE)
    assert "no class" in (found.record().fault or "")
    writes = len(found.writes)
    found.until(found.now + 5 * RETRY)
    assert len(found.writes) == writes, "and nothing is stored for that"
    found.handle(TypeRegistered(T))
    found.until(found.now)
    assert found.record().fault is None
    assert found.record().fired == HOUR


def test_a_firing_that_needs_a_poisoned_key_waits_until_it_is_cleared() -> None:
    stage = Stage()
    key = LockKey("k", LockMode.WRITE)
    stage.declare(new=NewProcedure(id="s", type_name="T", state=b"0", digest=b"d", locks=(key,)))
    stage.core._state.locks.poisons["k"] = PoisonRecord("k", "x", "x", 0.0, "broken")
    stage.jump(HOUR)
    stage.jump(2 * HOUR)
    assert "poisoned" in (stage.record().fault or "")
    assert stage.record().waiting == (2 * HOUR,), "they do not pile up"
    stage.handle(PoisonCleared("k", 1))
    stage.jump(2 * HOUR + RETRY)
    assert stage.record().fired == 2 * HOUR
    assert stage.record().fault is None


def test_a_pause_is_no_missed_time() -> None:
    stage = Stage()
    stage.declare(catch_up="all")
    stage.until(1.5 * HOUR)
    assert stage.steer("pause", reason="audit") is True
    stage.until(5.5 * HOUR)
    assert stage.record().paused == "audit"
    assert stage.steer("resume") is True
    assert stage.steer("resume") is False
    stage.until(7.5 * HOUR)
    assert stage.fired == [HOUR, 6 * HOUR, 7 * HOUR]


def test_a_removed_schedule_is_gone_and_its_firing_goes_on() -> None:
    stage = Stage()
    stage.declare()
    stage.until(HOUR, answers=False)
    assert stage.steer("remove") is True
    stage.until(5 * HOUR)
    assert stage.fired == [HOUR]
    assert "no schedule" in str(stage.steer("remove"))
    assert difference(stage) is None


def test_it_ends_at_its_last_moment() -> None:
    stage = Stage()
    stage.declare(until=2 * HOUR)
    stage.until(9 * HOUR)
    assert stage.fired == [HOUR, 2 * HOUR]
    assert stage.record().due is None
    assert stage.core.next_deadline() is None


def test_jitter_puts_off_the_start_and_not_the_instant() -> None:
    stage = Stage()
    stage.declare(jitter=600.0, deadline=1200.0)
    stage.until(HOUR + 700)
    (name, *_), *_ = stage.order
    assert name == firing_id("s", HOUR)
    assert heads_of(stage)[name].deadline == HOUR + 1200


@pytest.mark.parametrize("field", ["spec", "type_name", "timezone"])
def test_a_schedule_that_cannot_be_is_refused_where_it_is_declared(field) -> None:
    stage = Stage()
    wrong = stage.declare(**{field: {"spec": "cron 61 * * * *", "type_name": "U", "timezone": "Mars/Base"}[field]})
    assert isinstance(wrong, Exception)
    assert stage.core._state.schedules.records == {}
