"""Limits by key, running and queue limits: who waits for what, what a restart finds, and that nothing hangs."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from actorproc.core.coordinator import Coordinator
from actorproc.core.queues.key_limits import KeyLimits
from actorproc.errors import ManagerBusy
from actorproc.model.ids import Mode, WorkerId
from actorproc.model.messages.commands import RunStep
from actorproc.model.messages.events import AbortRequested, CrashReport, Tick, WorkerLost, WorkerReady
from actorproc.model.messages.outcomes import Advanced, Finished, Outcome, Slept, Suspended, Waited
from actorproc.model.policies import LockKey, Scheduling
from actorproc.model.rows.records import Admitted, NewProcedure, StartRecord
from actorproc.model.rows.snapshot import RecoverySnapshot
from actorproc.model.rows.writes import PutStart
from actorproc.model.states import Phase, ProcedureState
from actorproc.testing.histories.image import Image, compare_with_restored
from tests.core.stage import Stage, boom

DONE = Finished(state=b"", elapsed=1.0)


class Limited(Stage):
    """A stage with limits, whose store is followed write by write, so that it can be restarted."""

    def __init__(self, workers: int = 4, **terms: object) -> None:
        super().__init__(workers=0)
        self.terms = Scheduling(**terms)  # type: ignore[arg-type]
        self.slots = workers
        self.image = Image(RecoverySnapshot(1, 1, 1, [], [], [], [], [], []))
        self._start()

    def _start(self) -> None:
        self.inbox.clear()
        self.core, decision = Coordinator.restore(self.image.snapshot(), self.now, scheduling=self.terms)
        self.image.apply(decision.writes)
        self.register("T")
        for slot in range(self.slots):
            self.handle(WorkerReady(WorkerId(slot, 1)))

    def handle(self, event):  # type: ignore[no-untyped-def]
        decision = super().handle(event)
        if hasattr(self, "image"):
            self.image.apply(decision.writes)
            assert compare_with_restored(self.core, self.image) is None
        return decision

    def restart(self) -> None:
        self.image.epoch += 1
        self._start()

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.handle(Tick())

    def why(self, id: str) -> str:
        record = self.core.view(id)
        assert record is not None
        phase, reason = self.core.phase(record)
        assert phase is Phase.QUEUED
        return reason or ""


def _mail(stage: Stage, count: int, *keys: str) -> None:
    stage.submit(*(stage.new(f"m{number}", limit_keys=keys) for number in range(count)))


# ---------------------------------------------------------------------- concurrency
def test_only_as_many_procedures_of_a_key_run_as_the_limit_says() -> None:
    stage = Limited(concurrency={"smtp": 2})
    _mail(stage, 4, "smtp")
    stage.submit(stage.new("other"))

    assert sorted(stage.inbox) == ["m0", "m1", "other"]
    assert stage.why("m2") == "for a slot of 'smtp': 2 of 2 are taken"
    stage.answer("m0", DONE)
    assert sorted(stage.inbox) == ["m1", "m2", "other"]


def test_a_slot_is_held_over_steps_sleeps_retries_and_crashes() -> None:
    stage = Limited(concurrency={"smtp": 1})
    _mail(stage, 2, "smtp")
    for outcome in (Advanced(state=b"", elapsed=1.0), Slept(state=b"", seconds=5.0), boom(retryable=True, after=5.0)):
        stage.answer("m0", outcome)
        assert "m1" not in stage.inbox
        stage.pass_time(6.0)
        assert list(stage.inbox) == ["m0"]
    worker = stage.inbox.pop("m0").token.worker
    stage.handle(WorkerLost(worker, CrashReport(kind="signal", message="killed")))
    assert list(stage.inbox) == ["m0"]

    stage.answer("m0", DONE)
    assert list(stage.inbox) == ["m1"]


def test_after_a_restart_the_holders_hold_their_slots_again() -> None:
    stage = Limited(concurrency={"smtp": 1})
    _mail(stage, 3, "smtp")
    stage.answer("m0", Slept(state=b"", seconds=50.0))
    stage.restart()

    assert stage.inbox == {}
    stage.pass_time(60.0)
    assert list(stage.inbox) == ["m0"]
    stage.answer("m0", DONE)
    assert list(stage.inbox) == ["m1"]


def test_a_failed_procedure_gives_its_slot_to_the_next() -> None:
    stage = Limited(concurrency={"smtp": 1})
    _mail(stage, 2, "smtp")
    stage.answer("m0", boom())

    assert list(stage.inbox) == ["m1"]


def test_a_pattern_limits_each_key_that_begins_so_by_itself() -> None:
    stage = Limited(concurrency={"tenant/*": 1})
    stage.submit(*(stage.new(f"{tenant}{n}", limit_keys=(f"tenant/{tenant}",)) for tenant in "ab" for n in range(2)))

    assert sorted(stage.inbox) == ["a0", "b0"]


def test_who_needs_several_keys_is_not_overtaken_for_ever_by_those_that_need_one() -> None:
    stage = Limited(concurrency={"a": 1, "b": 1})
    stage.submit(stage.new("a0", limit_keys=("a",)), stage.new("b0", limit_keys=("b",)))
    stage.submit(stage.new("both", limit_keys=("a", "b")))
    stage.submit(*(stage.new(f"{key}{n}", limit_keys=(key,)) for n in range(1, 5) for key in "ab"))

    stage.answer("a0", DONE)
    assert "a1" not in stage.inbox  # the place is kept for the one that waits longest
    stage.answer("b0", DONE)
    assert list(stage.inbox) == ["both"]


def test_a_key_without_a_limit_limits_nobody() -> None:
    stage = Limited(concurrency={"smtp": 1})
    _mail(stage, 4, "ftp")

    assert len(stage.inbox) == 4


def test_the_higher_priority_gets_the_next_slot() -> None:
    stage = Limited(concurrency={"smtp": 1})
    _mail(stage, 2, "smtp")
    stage.submit(stage.new("urgent", priority=1, limit_keys=("smtp",)))
    stage.answer("m0", DONE)

    assert list(stage.inbox) == ["urgent"]


# ---------------------------------------------------------------------- no cycle of waiting over a slot
def test_a_parent_keeps_its_slot_while_its_children_work() -> None:
    stage = Limited(concurrency={"backup": 1})
    _mail(stage, 2, "backup")
    stage.answer("m0", Suspended(state=b"", children=(stage.new("child"),), elapsed=1.0))

    assert list(stage.inbox) == ["child"]
    stage.answer("child", DONE)
    assert list(stage.inbox) == ["m0"]


def test_a_parent_lends_its_slot_to_a_child_that_needs_the_same_one() -> None:
    stage = Limited(concurrency={"smtp": 1})
    _mail(stage, 1, "smtp")
    stage.answer("m0", Suspended(state=b"", children=(stage.new("child", limit_keys=("smtp",)),), elapsed=1.0))
    assert list(stage.inbox) == ["child"]
    stage.answer("child", DONE)
    stage.answer("m0", DONE)

    assert stage.state("m0") is ProcedureState.SUCCESS


def test_two_trees_that_need_two_keys_in_opposite_orders_both_end() -> None:
    stage = Limited(concurrency={"a": 1, "b": 1})
    stage.submit(stage.new("x", limit_keys=("a",)), stage.new("y", limit_keys=("b",)))
    stage.answer("x", Suspended(state=b"", children=(stage.new("x.b", limit_keys=("b",)),), elapsed=1.0))
    stage.answer("y", Suspended(state=b"", children=(stage.new("y.a", limit_keys=("a",)),), elapsed=1.0))
    for _ in range(4):
        for name in list(stage.inbox):
            stage.answer(name, DONE)

    assert stage.state("x") is stage.state("y") is ProcedureState.SUCCESS


def test_who_waits_for_a_lock_holds_no_slot_that_the_lock_holder_waits_for() -> None:
    stage = Limited(concurrency={"k": 1})
    stage.submit(stage.new("slotted", limit_keys=("k",)))
    stage.submit(stage.new("locker", locks=(LockKey.write("t"),)))
    stage.answer("locker", Suspended(state=b"", children=(stage.new("child", limit_keys=("k",)),), elapsed=1.0))
    stage.answer("slotted", Advanced(state=b"", acquire=(LockKey.write("t"),), elapsed=1.0))

    assert list(stage.inbox) == ["child"]
    for name in ("child", "locker", "slotted"):
        stage.answer(name, DONE)
    assert stage.state("slotted") is ProcedureState.SUCCESS


# ---------------------------------------------------------------------- rate
def test_a_rate_counts_each_start_once_in_a_sliding_window() -> None:
    stage = Limited(rate={"api": (2, 10.0)}, workers=8)
    _mail(stage, 5, "api")
    assert sorted(stage.inbox) == ["m0", "m1"]
    assert stage.why("m2") == "for the rate of 'api': 2 starts in 10 s"
    assert stage.core.next_deadline() == 10.0

    stage.answer("m0", Advanced(state=b"", elapsed=1.0))  # its second step is no start
    assert sorted(stage.inbox) == ["m0", "m1"]
    stage.pass_time(10.0)
    assert sorted(stage.inbox) == ["m0", "m1", "m2", "m3"]


def test_a_restart_does_not_open_the_window_again() -> None:
    stage = Limited(rate={"api": (2, 10.0)}, workers=8)
    _mail(stage, 4, "api")
    for name in ("m0", "m1"):
        stage.answer(name, DONE)
    stage.now = 5.0
    stage.restart()

    assert stage.inbox == {}
    stage.pass_time(5.0)
    assert sorted(stage.inbox) == ["m2", "m3"]


def test_starts_of_a_key_that_has_no_rate_any_more_hide_none_of_another_key() -> None:
    slots = KeyLimits(rate={"b": (1, 10.0)})

    slots.restore([], [StartRecord("a", 0, 1.0), StartRecord("b", 0, 2.0)])

    key = slots._key("b")
    assert key is not None
    assert key.open_at(3.0) == 12.0


def test_the_rows_of_a_rate_are_as_many_as_its_limit() -> None:
    stage = Limited(rate={"api": (3, 10.0)}, workers=1)
    _mail(stage, 20, "api")
    for number in range(20):
        if not stage.inbox:
            stage.pass_time(10.0)
        stage.answer(f"m{number}", DONE)

    places = {write.record.place for write in stage.writes if isinstance(write, PutStart)}
    assert places == {0, 1, 2}


def test_a_clock_that_is_set_back_does_not_close_the_window_for_longer_than_its_span() -> None:
    stage = Limited(rate={"api": (1, 10.0)})
    stage.now = 100_000.0
    _mail(stage, 1, "api")
    stage.now = 0.0
    stage.submit(stage.new("next", limit_keys=("api",)))

    assert stage.core.next_deadline() == 10.0
    stage.pass_time(10.0)
    assert "next" in stage.inbox


def test_a_window_that_closes_again_because_the_clock_is_set_back_opens_again() -> None:
    stage = Limited(workers=1, rate={"mail": (1, 10.0)})
    for name in ("one", "two"):
        stage.submit(stage.new(name, limit_keys=("mail",)))
    stage.pass_time(10.0)  # it is open, and the only worker is busy
    stage.now -= 5.0

    stage.answer("one", DONE)
    assert "two" not in stage.inbox
    assert stage.core.next_deadline() == 10.0

    stage.pass_time(5.0)
    assert "two" in stage.inbox


def test_concurrency_and_rate_hold_together() -> None:
    stage = Limited(concurrency={"api": 1}, rate={"api": (2, 10.0)})
    _mail(stage, 3, "api")
    assert list(stage.inbox) == ["m0"]
    stage.answer("m0", DONE)
    assert list(stage.inbox) == ["m1"]
    stage.answer("m1", DONE)
    assert stage.inbox == {}
    stage.pass_time(10.0)
    assert list(stage.inbox) == ["m2"]


# ---------------------------------------------------------------------- running and queued
def test_only_max_running_roots_run_and_their_children_are_never_held_up() -> None:
    stage = Limited(max_running=2, workers=8)
    stage.submit(*(stage.new(f"r{n}") for n in range(4)))
    stage.answer("r0", Suspended(state=b"", children=tuple(stage.new(f"c{n}") for n in range(5)), elapsed=1.0))

    assert sorted(stage.inbox) == ["c0", "c1", "c2", "c3", "c4", "r1"]
    assert stage.why("r2") == "for one of the 2 that run to end (Config.max_running)"
    stage.answer("r1", Slept(state=b"", seconds=100.0))
    assert "r2" not in stage.inbox  # who sleeps still runs
    for number in range(5):
        stage.answer(f"c{number}", DONE)
    stage.answer("r0", DONE)
    assert list(stage.inbox) == ["r2"]


def test_after_a_restart_those_that_ran_still_count_even_above_a_lower_limit() -> None:
    stage = Limited(max_running=3, workers=8)
    stage.submit(*(stage.new(f"r{n}") for n in range(6)))
    stage.terms = Scheduling(max_running=1)
    stage.restart()

    assert sorted(stage.inbox) == ["r0", "r1", "r2"]
    for name in ("r0", "r1"):
        stage.answer(name, DONE)
    assert sorted(stage.inbox) == ["r2"]
    stage.answer("r2", DONE)
    assert sorted(stage.inbox) == ["r3"]


def test_a_root_outside_that_is_aborted_leaves_the_lobby() -> None:
    stage = Limited(max_running=1)
    stage.submit(*(stage.new(f"r{n}") for n in range(3)))
    stage.handle(AbortRequested("r1", reply=9))
    stage.answer("r0", DONE)

    assert list(stage.inbox) == ["r2"]


def test_beyond_the_queue_limit_a_submit_is_refused_with_numbers() -> None:
    stage = Limited(max_running=1, max_queued=2)
    stage.submit(*(stage.new(f"r{n}") for n in range(3)))
    refused = stage.submit(stage.new("r3"))

    assert isinstance(refused.error, ManagerBusy)
    assert "3 submitted procedures are unfinished" in str(refused.error)
    assert "1 may run" in str(refused.error)
    assert "2 may be queued" in str(refused.error)


def test_the_queue_limit_lets_known_ids_children_and_retries_through() -> None:
    stage = Limited(max_queued=1)
    stage.submit(stage.new("r0"))
    assert stage.submit(stage.new("r0")).value == ("r0",)
    stage.answer("r0", Suspended(state=b"", children=tuple(stage.new(f"c{n}") for n in range(3)), elapsed=1.0))
    stage.answer("c0", boom(retryable=True, after=1.0))
    stage.restart()

    assert sorted(stage.inbox) == ["c1", "c2"]
    stage.pass_time(2.0)
    assert "c0" in stage.inbox
    for number in range(3):
        stage.answer(f"c{number}", DONE)
    stage.answer("r0", DONE)
    assert stage.submit(stage.new("r1")).error is None


def test_a_batch_is_refused_as_a_whole() -> None:
    stage = Limited(max_queued=2)

    assert stage.submit(*(stage.new(f"r{n}") for n in range(3))).error is not None
    assert stage.inbox == {}
    assert stage.submit(*(stage.new(f"r{n}") for n in range(2))).error is None


# ---------------------------------------------------------------------- everything at once
CAPACITIES = {"a": 1, "b": 2, "c": 1}


class Trees:
    """Random trees with slots, locks, waits and failures."""

    def __init__(self, stage: Limited, dice: random.Random) -> None:
        self.stage = stage
        self.dice = dice
        self.made = 0

    def fresh(self) -> NewProcedure:
        dice = self.dice
        self.made += 1
        keys = tuple(dice.sample(sorted(CAPACITIES), dice.randint(0, 2)))
        locks = (LockKey.write(dice.choice("xy")),) if dice.random() < 0.3 else ()
        return self.stage.new(f"p{self.made}", limit_keys=keys, locks=locks, priority=dice.randint(0, 2))

    def outcome(self, run: RunStep) -> Outcome:
        if run.token.mode is not Mode.EXECUTE:
            return DONE
        dice, throw = self.dice, self.dice.random()
        if throw < 0.25 and self.made < 60:
            return Suspended(state=b"", children=tuple(self.fresh() for _ in range(dice.randint(1, 3))), elapsed=1.0)
        if throw < 0.35:
            return Slept(state=b"", seconds=2.0)
        if throw < 0.45:
            return boom(retryable=dice.random() < 0.5, after=1.0)
        if throw < 0.55:
            return Waited(state=b"", event="e", timeout=3.0)
        return DONE if throw < 0.9 else Advanced(state=b"", elapsed=1.0)

    def move(self) -> None:
        """A restart, an answer, or the next thing that is due."""
        stage = self.stage
        if self.dice.random() < 0.02:
            stage.restart()
        if stage.inbox:
            name = self.dice.choice(sorted(stage.inbox))
            stage.answer(name, self.outcome(stage.inbox[name]))
        else:
            due = stage.core.next_deadline()
            assert due is not None, "nothing runs, nothing is due, and something is unfinished"
            stage.now = max(stage.now, due)
            stage.handle(Tick())


def _slots_held(stage: Limited) -> Counter[str]:
    holders = [record for record in stage.core._state.procs.values() if record.admitted & Admitted.SLOT]
    return Counter(key for record in holders for key in record.limit_keys)


@pytest.mark.parametrize("seed", range(40))
def test_random_trees_with_slots_locks_rates_and_failures_all_end(seed: int) -> None:
    dice = random.Random(seed)
    stage = Limited(
        workers=dice.randint(1, 4),
        concurrency=CAPACITIES,
        rate={"b": (2, 3.0)},
        max_running=dice.choice([None, 2]),
    )
    trees = Trees(stage, dice)
    stage.submit(*(trees.fresh() for _ in range(8)))
    for _ in range(3000):
        if not stage.core._state.open_roots and not stage.inbox:
            break
        trees.move()
        held = _slots_held(stage)
        assert all(held[key] <= count for key, count in CAPACITIES.items())

    state = stage.core._state
    assert (state.open_roots, state.key_limits.holders, len(state.key_limits), len(state.admission)) == (0, 0, 0, 0)
