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
from actorproc.testing.histories.image import Image
from tests.core.harness import CoreHarness, boom
from tests.simulator.core_sim.restored import compare_with_restored

DONE = Finished(state=b"", elapsed=1.0)


class Limited(CoreHarness):
    """A harness with limits, whose store is followed write by write, so that it can be restarted."""

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


def _mail(harness: CoreHarness, count: int, *keys: str) -> None:
    harness.submit(*(harness.new(f"m{number}", limit_keys=keys) for number in range(count)))


# ---------------------------------------------------------------------- concurrency
def test_only_as_many_procedures_of_a_key_run_as_the_limit_says() -> None:
    harness = Limited(concurrency={"smtp": 2})
    _mail(harness, 4, "smtp")
    harness.submit(harness.new("other"))

    assert sorted(harness.inbox) == ["m0", "m1", "other"]
    assert harness.why("m2") == "for a slot of 'smtp': 2 of 2 are taken"
    harness.answer("m0", DONE)
    assert sorted(harness.inbox) == ["m1", "m2", "other"]


def test_a_slot_is_held_over_steps_sleeps_retries_and_crashes() -> None:
    harness = Limited(concurrency={"smtp": 1})
    _mail(harness, 2, "smtp")
    for outcome in (Advanced(state=b"", elapsed=1.0), Slept(state=b"", seconds=5.0), boom(retryable=True, after=5.0)):
        harness.answer("m0", outcome)
        assert "m1" not in harness.inbox
        harness.pass_time(6.0)
        assert list(harness.inbox) == ["m0"]
    worker = harness.inbox.pop("m0").token.worker
    harness.handle(WorkerLost(worker, CrashReport(kind="signal", message="killed")))
    assert list(harness.inbox) == ["m0"]

    harness.answer("m0", DONE)
    assert list(harness.inbox) == ["m1"]


def test_after_a_restart_the_holders_hold_their_slots_again() -> None:
    harness = Limited(concurrency={"smtp": 1})
    _mail(harness, 3, "smtp")
    harness.answer("m0", Slept(state=b"", seconds=50.0))
    harness.restart()

    assert harness.inbox == {}
    harness.pass_time(60.0)
    assert list(harness.inbox) == ["m0"]
    harness.answer("m0", DONE)
    assert list(harness.inbox) == ["m1"]


def test_a_failed_procedure_gives_its_slot_to_the_next() -> None:
    harness = Limited(concurrency={"smtp": 1})
    _mail(harness, 2, "smtp")
    harness.answer("m0", boom())

    assert list(harness.inbox) == ["m1"]


def test_a_pattern_limits_each_key_that_begins_so_by_itself() -> None:
    harness = Limited(concurrency={"tenant/*": 1})
    harness.submit(
        *(harness.new(f"{tenant}{n}", limit_keys=(f"tenant/{tenant}",)) for tenant in "ab" for n in range(2))
    )

    assert sorted(harness.inbox) == ["a0", "b0"]


def test_who_needs_several_keys_is_not_overtaken_for_ever_by_those_that_need_one() -> None:
    harness = Limited(concurrency={"a": 1, "b": 1})
    harness.submit(harness.new("a0", limit_keys=("a",)), harness.new("b0", limit_keys=("b",)))
    harness.submit(harness.new("both", limit_keys=("a", "b")))
    harness.submit(*(harness.new(f"{key}{n}", limit_keys=(key,)) for n in range(1, 5) for key in "ab"))

    harness.answer("a0", DONE)
    assert "a1" not in harness.inbox  # the place is kept for the one that waits longest
    harness.answer("b0", DONE)
    assert list(harness.inbox) == ["both"]


def test_a_key_without_a_limit_limits_nobody() -> None:
    harness = Limited(concurrency={"smtp": 1})
    _mail(harness, 4, "ftp")

    assert len(harness.inbox) == 4


def test_the_higher_priority_gets_the_next_slot() -> None:
    harness = Limited(concurrency={"smtp": 1})
    _mail(harness, 2, "smtp")
    harness.submit(harness.new("urgent", priority=1, limit_keys=("smtp",)))
    harness.answer("m0", DONE)

    assert list(harness.inbox) == ["urgent"]


# ---------------------------------------------------------------------- no cycle of waiting over a slot
def test_a_parent_keeps_its_slot_while_its_children_work() -> None:
    harness = Limited(concurrency={"backup": 1})
    _mail(harness, 2, "backup")
    harness.answer("m0", Suspended(state=b"", children=(harness.new("child"),), elapsed=1.0))

    assert list(harness.inbox) == ["child"]
    harness.answer("child", DONE)
    assert list(harness.inbox) == ["m0"]


def test_a_parent_lends_its_slot_to_a_child_that_needs_the_same_one() -> None:
    harness = Limited(concurrency={"smtp": 1})
    _mail(harness, 1, "smtp")
    harness.answer("m0", Suspended(state=b"", children=(harness.new("child", limit_keys=("smtp",)),), elapsed=1.0))
    assert list(harness.inbox) == ["child"]
    harness.answer("child", DONE)
    harness.answer("m0", DONE)

    assert harness.state("m0") is ProcedureState.SUCCESS


def test_two_trees_that_need_two_keys_in_opposite_orders_both_end() -> None:
    harness = Limited(concurrency={"a": 1, "b": 1})
    harness.submit(harness.new("x", limit_keys=("a",)), harness.new("y", limit_keys=("b",)))
    harness.answer("x", Suspended(state=b"", children=(harness.new("x.b", limit_keys=("b",)),), elapsed=1.0))
    harness.answer("y", Suspended(state=b"", children=(harness.new("y.a", limit_keys=("a",)),), elapsed=1.0))
    for _ in range(4):
        for name in list(harness.inbox):
            harness.answer(name, DONE)

    assert harness.state("x") is harness.state("y") is ProcedureState.SUCCESS


def test_who_waits_for_a_lock_holds_no_slot_that_the_lock_holder_waits_for() -> None:
    harness = Limited(concurrency={"k": 1})
    harness.submit(harness.new("slotted", limit_keys=("k",)))
    harness.submit(harness.new("locker", locks=(LockKey.write("t"),)))
    harness.answer("locker", Suspended(state=b"", children=(harness.new("child", limit_keys=("k",)),), elapsed=1.0))
    harness.answer("slotted", Advanced(state=b"", acquire=(LockKey.write("t"),), elapsed=1.0))

    assert list(harness.inbox) == ["child"]
    for name in ("child", "locker", "slotted"):
        harness.answer(name, DONE)
    assert harness.state("slotted") is ProcedureState.SUCCESS


# ---------------------------------------------------------------------- rate
def test_a_rate_counts_each_start_once_in_a_sliding_window() -> None:
    harness = Limited(rate={"api": (2, 10.0)}, workers=8)
    _mail(harness, 5, "api")
    assert sorted(harness.inbox) == ["m0", "m1"]
    assert harness.why("m2") == "for the rate of 'api': 2 starts in 10 s"
    assert harness.core.next_deadline() == 10.0

    harness.answer("m0", Advanced(state=b"", elapsed=1.0))  # its second step is no start
    assert sorted(harness.inbox) == ["m0", "m1"]
    harness.pass_time(10.0)
    assert sorted(harness.inbox) == ["m0", "m1", "m2", "m3"]


def test_a_restart_does_not_open_the_window_again() -> None:
    harness = Limited(rate={"api": (2, 10.0)}, workers=8)
    _mail(harness, 4, "api")
    for name in ("m0", "m1"):
        harness.answer(name, DONE)
    harness.now = 5.0
    harness.restart()

    assert harness.inbox == {}
    harness.pass_time(5.0)
    assert sorted(harness.inbox) == ["m2", "m3"]


def test_starts_of_a_key_that_has_no_rate_any_more_hide_none_of_another_key() -> None:
    slots = KeyLimits(rate={"b": (1, 10.0)})

    slots.restore([], [StartRecord("a", 0, 1.0), StartRecord("b", 0, 2.0)])

    key = slots._key("b")
    assert key is not None
    assert key.open_at(3.0) == 12.0


def test_the_rows_of_a_rate_are_as_many_as_its_limit() -> None:
    harness = Limited(rate={"api": (3, 10.0)}, workers=1)
    _mail(harness, 20, "api")
    for number in range(20):
        if not harness.inbox:
            harness.pass_time(10.0)
        harness.answer(f"m{number}", DONE)

    places = {write.record.place for write in harness.writes if isinstance(write, PutStart)}
    assert places == {0, 1, 2}


def test_a_clock_that_is_set_back_does_not_close_the_window_for_longer_than_its_span() -> None:
    harness = Limited(rate={"api": (1, 10.0)})
    harness.now = 100_000.0
    _mail(harness, 1, "api")
    harness.now = 0.0
    harness.submit(harness.new("next", limit_keys=("api",)))

    assert harness.core.next_deadline() == 10.0
    harness.pass_time(10.0)
    assert "next" in harness.inbox


def test_a_window_that_closes_again_because_the_clock_is_set_back_opens_again() -> None:
    harness = Limited(workers=1, rate={"mail": (1, 10.0)})
    for name in ("one", "two"):
        harness.submit(harness.new(name, limit_keys=("mail",)))
    harness.pass_time(10.0)  # it is open, and the only worker is busy
    harness.now -= 5.0

    harness.answer("one", DONE)
    assert "two" not in harness.inbox
    assert harness.core.next_deadline() == 10.0

    harness.pass_time(5.0)
    assert "two" in harness.inbox


def test_concurrency_and_rate_hold_together() -> None:
    harness = Limited(concurrency={"api": 1}, rate={"api": (2, 10.0)})
    _mail(harness, 3, "api")
    assert list(harness.inbox) == ["m0"]
    harness.answer("m0", DONE)
    assert list(harness.inbox) == ["m1"]
    harness.answer("m1", DONE)
    assert harness.inbox == {}
    harness.pass_time(10.0)
    assert list(harness.inbox) == ["m2"]


# ---------------------------------------------------------------------- running and queued
def test_only_max_running_roots_run_and_their_children_are_never_held_up() -> None:
    harness = Limited(max_running=2, workers=8)
    harness.submit(*(harness.new(f"r{n}") for n in range(4)))
    harness.answer("r0", Suspended(state=b"", children=tuple(harness.new(f"c{n}") for n in range(5)), elapsed=1.0))

    assert sorted(harness.inbox) == ["c0", "c1", "c2", "c3", "c4", "r1"]
    assert harness.why("r2") == "for one of the 2 that run to end (Config.max_running)"
    harness.answer("r1", Slept(state=b"", seconds=100.0))
    assert "r2" not in harness.inbox  # who sleeps still runs
    for number in range(5):
        harness.answer(f"c{number}", DONE)
    harness.answer("r0", DONE)
    assert list(harness.inbox) == ["r2"]


def test_after_a_restart_those_that_ran_still_count_even_above_a_lower_limit() -> None:
    harness = Limited(max_running=3, workers=8)
    harness.submit(*(harness.new(f"r{n}") for n in range(6)))
    harness.terms = Scheduling(max_running=1)
    harness.restart()

    assert sorted(harness.inbox) == ["r0", "r1", "r2"]
    for name in ("r0", "r1"):
        harness.answer(name, DONE)
    assert sorted(harness.inbox) == ["r2"]
    harness.answer("r2", DONE)
    assert sorted(harness.inbox) == ["r3"]


def test_a_root_outside_that_is_aborted_leaves_the_lobby() -> None:
    harness = Limited(max_running=1)
    harness.submit(*(harness.new(f"r{n}") for n in range(3)))
    harness.handle(AbortRequested("r1", reply=9))
    harness.answer("r0", DONE)

    assert list(harness.inbox) == ["r2"]


def test_beyond_the_queue_limit_a_submit_is_refused_with_numbers() -> None:
    harness = Limited(max_running=1, max_queued=2)
    harness.submit(*(harness.new(f"r{n}") for n in range(3)))
    refused = harness.submit(harness.new("r3"))

    assert isinstance(refused.error, ManagerBusy)
    assert "3 submitted procedures are unfinished" in str(refused.error)
    assert "1 may run" in str(refused.error)
    assert "2 may be queued" in str(refused.error)


def test_the_queue_limit_lets_known_ids_children_and_retries_through() -> None:
    harness = Limited(max_queued=1)
    harness.submit(harness.new("r0"))
    assert harness.submit(harness.new("r0")).value == ("r0",)
    harness.answer("r0", Suspended(state=b"", children=tuple(harness.new(f"c{n}") for n in range(3)), elapsed=1.0))
    harness.answer("c0", boom(retryable=True, after=1.0))
    harness.restart()

    assert sorted(harness.inbox) == ["c1", "c2"]
    harness.pass_time(2.0)
    assert "c0" in harness.inbox
    for number in range(3):
        harness.answer(f"c{number}", DONE)
    harness.answer("r0", DONE)
    assert harness.submit(harness.new("r1")).error is None


def test_a_batch_is_refused_as_a_whole() -> None:
    harness = Limited(max_queued=2)

    assert harness.submit(*(harness.new(f"r{n}") for n in range(3))).error is not None
    assert harness.inbox == {}
    assert harness.submit(*(harness.new(f"r{n}") for n in range(2))).error is None


# ---------------------------------------------------------------------- everything at once
CAPACITIES = {"a": 1, "b": 2, "c": 1}


class Trees:
    """Random trees with slots, locks, waits and failures."""

    def __init__(self, harness: Limited, dice: random.Random) -> None:
        self.harness = harness
        self.dice = dice
        self.made = 0

    def fresh(self) -> NewProcedure:
        dice = self.dice
        self.made += 1
        keys = tuple(dice.sample(sorted(CAPACITIES), dice.randint(0, 2)))
        locks = (LockKey.write(dice.choice("xy")),) if dice.random() < 0.3 else ()
        return self.harness.new(f"p{self.made}", limit_keys=keys, locks=locks, priority=dice.randint(0, 2))

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
        harness = self.harness
        if self.dice.random() < 0.02:
            harness.restart()
        if harness.inbox:
            name = self.dice.choice(sorted(harness.inbox))
            harness.answer(name, self.outcome(harness.inbox[name]))
        else:
            due = harness.core.next_deadline()
            assert due is not None, "nothing runs, nothing is due, and something is unfinished"
            harness.now = max(harness.now, due)
            harness.handle(Tick())


def _slots_held(harness: Limited) -> Counter[str]:
    holders = [record for record in harness.core._state.residents.procs.values() if record.admitted & Admitted.SLOT]
    return Counter(key for record in holders for key in record.limit_keys)


@pytest.mark.parametrize("seed", range(40))
def test_random_trees_with_slots_locks_rates_and_failures_all_end(seed: int) -> None:
    dice = random.Random(seed)
    harness = Limited(
        workers=dice.randint(1, 4),
        concurrency=CAPACITIES,
        rate={"b": (2, 3.0)},
        max_running=dice.choice([None, 2]),
    )
    trees = Trees(harness, dice)
    harness.submit(*(trees.fresh() for _ in range(8)))
    for _ in range(3000):
        if not harness.core._state.residents.open_roots and not harness.inbox:
            break
        trees.move()
        held = _slots_held(harness)
        assert all(held[key] <= count for key, count in CAPACITIES.items())

    state = harness.core._state
    assert (
        state.residents.open_roots,
        state.queues.key_limits.holders,
        len(state.queues.key_limits),
        len(state.queues.admission),
    ) == (0, 0, 0, 0)
