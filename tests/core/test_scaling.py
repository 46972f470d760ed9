"""Extra workers when all are stuck, another number of workers, and the shares of classes of work."""

from __future__ import annotations

from actorproc.core.coordinator import Coordinator
from actorproc.core.queues.worker_table import STEAL_AFTER
from actorproc.model.ids import WorkerId
from actorproc.model.messages.commands import AddWorker, Reply, RetireWorker, TakeBack
from actorproc.model.messages.events import CrashReport, Resized, StepReturned, Tick, WorkerLost, WorkerReady
from actorproc.model.messages.outcomes import Advanced, Finished, Suspended, Waited
from actorproc.model.policies import Scheduling
from actorproc.model.rows.snapshot import RecoverySnapshot
from tests.core.harness import CoreHarness

DONE = Finished(state=b"", elapsed=1.0)


class Pool(CoreHarness):
    """A harness whose number of workers the core decides on, and classes of work A and B beside the plain T."""

    def __init__(self, workers: int, maximum: int = 0, **terms: object) -> None:
        super().__init__(workers=0)
        terms = {"workers": workers, "max_workers": maximum or 2 * workers, **terms}
        self.core, _ = Coordinator.restore(
            RecoverySnapshot(1, 1, 1, [], [], [], [], [], []),
            0.0,
            scheduling=Scheduling(**terms),  # type: ignore[arg-type]
        )
        self.register("T")
        self.register("A", work_class="a")
        self.register("B", work_class="b")
        for slot in range(workers):
            self.handle(WorkerReady(WorkerId(slot, 1)))

    def count(self, kind: type) -> int:
        return sum(isinstance(command, kind) for command in self.commands)

    def tick(self, seconds: float) -> None:
        self.now += seconds
        self.handle(Tick())

    def come_due(self, limit: float = 100.0) -> None:
        """Let the core's own deadlines pass, up to a time."""
        while (due := self.core.next_deadline()) is not None and due <= limit:
            self.now = max(self.now, due)
            self.handle(Tick())

    def gone(self, slot: int, incarnation: int = 1) -> None:
        report = CrashReport(kind="stopped", message="stopped")
        self.handle(WorkerLost(WorkerId(slot, incarnation), report, crashed=False))

    def submit_all(self, type_name: str, count: int) -> None:
        self.submit(*(self.new(f"{type_name}{n}", type_name) for n in range(count)))

    def running(self, type_name: str) -> int:
        return sum(name.startswith(type_name) for name in self.inbox)


# ---------------------------------------------------------------------- extra workers
def test_an_extra_worker_comes_when_all_are_stuck_and_work_waits() -> None:
    pool = Pool(2, stuck_after=10.0)
    pool.submit_all("T", 3)
    pool.tick(9.0)
    assert pool.count(AddWorker) == 0
    pool.come_due(10.0)
    assert pool.count(AddWorker) == 1

    pool.handle(WorkerReady(WorkerId(2, 1)))
    assert len(pool.inbox) == 3


def test_no_extra_worker_comes_while_nothing_waits() -> None:
    pool = Pool(2, stuck_after=10.0)
    pool.submit_all("T", 2)
    pool.come_due(1000.0)
    pool.tick(1000.0)
    assert pool.count(AddWorker) == 0


def test_no_extra_worker_comes_for_steps_that_run_beside_each_other() -> None:
    pool = Pool(1, stuck_after=10.0)
    pool.register("Beside", threads=2)
    pool.submit_all("Beside", 2)
    assert len(pool.inbox) == 2
    pool.come_due(1000.0)
    pool.tick(1000.0)
    assert pool.count(AddWorker) == 0


def test_a_step_behind_a_stuck_one_waits_also_when_the_worker_of_somebody_else_is_idle() -> None:
    pool = Pool(1, 2, stuck_after=10.0)
    pool.register("Own", dedicated=True)
    pool.submit(pool.new("own", "Own"))
    pool.handle(WorkerReady(WorkerId(7, 1), reserved="own"))
    pool.answer("own", Waited(state=b"", event="go"))
    pool.submit(pool.new("scout"))
    for _ in range(40):
        pool.answer("scout", Advanced(state=b"", elapsed=0.0))
    pool.answer("scout", Finished(state=b"", elapsed=0.0))
    pool.submit_all("T", 2)
    assert {pool.inbox[name].token.worker.slot for name in ("T0", "T1")} == {0}
    pool.come_due(pool.now + 100.0)
    assert pool.count(AddWorker) == 1


def test_no_extra_worker_comes_for_a_class_that_might_not_use_it() -> None:
    pool = Pool(2, 4, stuck_after=10.0, reserved={"a": 2})
    pool.submit_all("B", 2)
    pool.submit_all("A", 1)
    assert (pool.running("A"), pool.running("B")) == (1, 1)
    pool.come_due(1000.0)
    pool.tick(1000.0)
    assert pool.count(AddWorker) == 0

    pool.submit(pool.new("A1", "A"))
    pool.tick(1.0)
    assert pool.count(AddWorker) == 1
    pool.handle(WorkerReady(WorkerId(2, 1)))
    assert (pool.running("A"), pool.running("B")) == (2, 1)


def test_no_extra_worker_comes_for_steps_behind_a_stuck_one_whose_class_might_not_use_it() -> None:
    pool = Pool(2, 4, stuck_after=10.0, reserved={"a": 2})
    pool.submit_all("A", 1)
    pool.submit(pool.new("scout", "B"))
    for _ in range(40):
        pool.answer("scout", Advanced(state=b"", elapsed=0.0))
    pool.answer("scout", Finished(state=b"", elapsed=0.0))
    pool.submit_all("B", 2)
    assert pool.running("B") == 2  # one of them behind the other
    pool.come_due(pool.now + 1000.0)
    assert pool.count(AddWorker) == 0


def test_one_worker_that_answers_holds_the_extra_one_back() -> None:
    pool = Pool(2, stuck_after=10.0)
    pool.submit_all("T", 2)
    pool.submit(pool.new("waits"))
    for _ in range(10):
        pool.tick(5.0)
        pool.answer("T1", Advanced(state=b"", elapsed=5.0))
        if "T1" not in pool.inbox:  # they take turns on the second worker
            pool.answer("waits", Advanced(state=b"", elapsed=0.5))
    assert pool.count(AddWorker) == 0


def test_there_are_never_more_than_max_workers() -> None:
    pool = Pool(1, 2, stuck_after=10.0)
    pool.submit_all("T", 5)
    pool.come_due(10.0)
    pool.handle(WorkerReady(WorkerId(1, 1)))
    pool.come_due(200.0)
    pool.tick(500.0)

    assert pool.count(AddWorker) == 1


def test_an_extra_worker_that_was_ordered_and_does_not_come_is_not_ordered_twice_above_the_limit() -> None:
    pool = Pool(1, 2, stuck_after=10.0)
    pool.submit_all("T", 2)
    for _ in range(10):
        pool.tick(10.0)

    assert pool.count(AddWorker) == 1


def test_steps_prefetched_behind_a_stuck_one_count_as_waiting_and_move_to_the_extra_worker() -> None:
    pool = Pool(1, 2, stuck_after=10.0)
    pool.submit(pool.new("scout"))
    for _ in range(40):
        pool.answer("scout", Advanced(state=b"", elapsed=0.0))
    pool.answer("scout", Finished(state=b"", elapsed=0.0))
    pool.submit_all("T", 2)
    assert len(pool.inbox) == 2
    pool.come_due(10.0)
    assert pool.count(AddWorker) == 1

    pool.handle(WorkerReady(WorkerId(1, 1)))
    pool.tick(STEAL_AFTER * 2)
    assert pool.count(TakeBack) == 1
    pool.handle(StepReturned(pool.inbox["T1"].token))
    assert pool.inbox["T1"].token.worker.slot == 1


def test_an_idle_extra_worker_goes_and_the_others_stay() -> None:
    pool = Pool(1, 2, stuck_after=10.0, extra_worker_idle=60.0)
    pool.submit_all("T", 2)
    pool.come_due(10.0)
    pool.handle(WorkerReady(WorkerId(1, 1)))
    for name in ("T0", "T1"):
        pool.answer(name, DONE)
    pool.tick(59.0)
    assert pool.count(RetireWorker) == 0
    pool.come_due(200.0)
    retired = [command for command in pool.commands if isinstance(command, RetireWorker)]
    assert [command.worker.slot for command in retired] == [1]

    pool.gone(1)
    pool.tick(1000.0)
    assert pool.count(RetireWorker) == 1
    assert pool.core.next_deadline() is None


# ---------------------------------------------------------------------- resize
def test_a_larger_pool_gets_the_missing_workers_and_a_smaller_one_loses_idle_ones_first() -> None:
    pool = Pool(2)
    pool.submit_all("T", 1)
    pool.handle(Resized(4, None, reply=7))
    assert pool.count(AddWorker) == 2
    for slot in (2, 3):
        pool.handle(WorkerReady(WorkerId(slot, 1)))
    busy = pool.inbox["T0"].token.worker.slot

    pool.handle(Resized(1, None, reply=8))
    retired = {command.worker.slot for command in pool.commands if isinstance(command, RetireWorker)}
    assert retired == {0, 1, 2, 3} - {busy}
    assert [command.reply for command in pool.commands if isinstance(command, Reply)][-2:] == [7, 8]


def test_a_worker_that_is_ready_only_when_the_pool_is_smaller_again_goes_at_once() -> None:
    pool = Pool(1)
    pool.submit_all("T", 1)
    pool.handle(Resized(3, None, reply=7))
    pool.handle(WorkerReady(WorkerId(1, 1)))
    pool.handle(Resized(1, None, reply=8))
    assert pool.count(RetireWorker) == 1

    pool.handle(WorkerReady(WorkerId(2, 1)))

    assert pool.count(RetireWorker) == 2
    assert pool.commands[-1] == RetireWorker(WorkerId(2, 1))
    # One that is wanted again stays.
    for slot in (1, 2):
        pool.gone(slot, 1)
    pool.handle(Resized(2, None, reply=9))
    pool.handle(WorkerReady(WorkerId(3, 1)))
    assert pool.count(RetireWorker) == 2


def test_a_smaller_pool_keeps_the_worker_that_is_there_and_not_the_slot_that_has_none() -> None:
    pool = Pool(2)
    pool.gone(1, 1)

    pool.handle(Resized(1, None, reply=7))

    assert pool.count(RetireWorker) == 0
    assert pool.core.vacated == (1,)
    pool.gone(0, 1)
    pool.handle(WorkerReady(WorkerId(0, 2)))  # the next one of the slot that is kept
    assert pool.count(RetireWorker) == 0
    pool.handle(WorkerReady(WorkerId(1, 2)))
    assert pool.commands[-1] == RetireWorker(WorkerId(1, 2))
    pool.gone(1, 2)
    pool.handle(Resized(2, None, reply=8))
    assert pool.count(AddWorker) == 1


def test_a_slot_that_has_no_worker_is_wanted_again_when_the_pool_is_made_larger_again() -> None:
    pool = Pool(2)
    pool.gone(1, 1)
    pool.handle(Resized(1, None, reply=7))

    pool.handle(Resized(2, None, reply=8))
    pool.handle(WorkerReady(WorkerId(1, 2)))

    assert pool.count(RetireWorker) == pool.count(AddWorker) == 0


def test_after_a_failed_commit_the_living_workers_count_and_no_slot_that_went_before() -> None:
    pool = Pool(2)
    living = tuple((WorkerReady(WorkerId(slot, 1)), ()) for slot in (0, 3))

    pool.core, _ = Coordinator.restore(
        RecoverySnapshot(1, 1, 1, [], [], [], [], [], []),
        0.0,
        workers=living,
        scheduling=Scheduling(workers=2, max_workers=4),
    )
    pool.handle(Resized(3, None, reply=7))

    assert pool.count(AddWorker) == 1
    pool.handle(WorkerReady(WorkerId(4, 1)))
    pool.handle(Resized(1, None, reply=8))
    assert pool.count(RetireWorker) == 2


def test_workers_whose_slots_are_not_numbered_in_a_row_are_not_counted_twice() -> None:
    pool = Pool(0)
    pool.core, _ = Coordinator.restore(
        RecoverySnapshot(1, 1, 1, [], [], [], [], [], []), 0.0, scheduling=Scheduling(workers=2, max_workers=2)
    )
    # Slot 1 was given to the worker of one procedure, before a commit failed that knew of none of them yet.
    for slot in (0, 2):
        pool.handle(WorkerReady(WorkerId(slot, 1)))

    pool.handle(Resized(1, None, reply=9))

    assert pool.count(RetireWorker) == 1


def test_a_retired_worker_gets_no_further_step_and_a_running_one_is_finished_where_it_runs() -> None:
    pool = Pool(2)
    pool.submit_all("T", 4)
    running = dict(pool.inbox)
    pool.handle(Resized(1, None, reply=7))
    (retired,) = {command.worker for command in pool.commands if isinstance(command, RetireWorker)}
    for name in running:
        pool.answer(name, DONE)

    assert all(run.token.worker != retired for run in pool.inbox.values())
    assert pool.resolved().keys() >= running.keys()
    pool.gone(retired.slot, retired.incarnation)
    pool.handle(Resized(2, None, reply=8))
    assert pool.count(AddWorker) == 1


# ---------------------------------------------------------------------- shares
def test_a_class_gets_no_more_than_its_share_while_another_one_wants_workers() -> None:
    pool = Pool(4, shares={"a": 0.5, "b": 0.5})
    pool.submit_all("A", 10)
    assert pool.running("A") == 4  # nobody else wanted them
    pool.submit_all("B", 10)
    for name in [name for name in pool.inbox if name.startswith("A")]:
        pool.answer(name, DONE)

    assert (pool.running("A"), pool.running("B")) == (2, 2)


def test_every_class_gets_one_worker_at_least() -> None:
    pool = Pool(2, shares={"a": 0.01})
    pool.submit_all("B", 1)
    pool.submit_all("A", 5)
    pool.submit_all("T", 5)
    for _ in range(4):
        name = next(name for name in pool.inbox if not name.startswith("A"))
        pool.answer(name, DONE)

    assert pool.running("A") == 1


def test_a_class_that_has_nothing_yet_comes_before_one_that_has_its_share() -> None:
    pool = Pool(2, shares={"a": 0.5, "b": 0.5})
    pool.submit_all("A", 6)
    pool.submit_all("B", 3)

    pool.answer("A0", DONE)

    assert (pool.running("A"), pool.running("B")) == (1, 1)


def test_one_class_without_a_reservation_is_enough_outside_those_that_have_one() -> None:
    pool = Pool(3, reserved={"a": 2})
    pool.submit_all("T", 1)
    pool.submit_all("B", 5)
    assert (pool.running("T"), pool.running("B")) == (1, 0)

    pool.submit_all("A", 5)

    assert pool.running("A") == 2


def test_a_reserved_worker_is_kept_free() -> None:
    pool = Pool(3, reserved={"a": 1})
    pool.submit_all("B", 10)
    assert pool.running("B") == 2
    pool.submit_all("A", 3)

    assert (pool.running("A"), pool.running("B")) == (1, 2)


def test_reservations_never_take_the_last_worker_from_the_others() -> None:
    pool = Pool(1, reserved={"a": 5})
    pool.submit_all("B", 2)

    assert pool.running("B") == 1


def test_a_class_of_long_steps_does_not_hold_up_another_one() -> None:
    pool = Pool(2, shares={"a": 0.5})
    pool.submit_all("T", 1)
    pool.submit_all("A", 5)
    for _ in range(6):  # T goes on and on, A hangs
        pool.answer("T0", Advanced(state=b"", elapsed=1.0))
        assert pool.running("T") == 1
        assert pool.running("A") == 1


def test_a_worker_holds_steps_of_one_class_and_stealing_honours_the_shares() -> None:
    pool = Pool(2, reserved={"a": 1})
    pool.submit(pool.new("B-scout", "B"))
    for _ in range(40):
        pool.answer("B-scout", Advanced(state=b"", elapsed=0.0))
    pool.answer("B-scout", Finished(state=b"", elapsed=0.0))
    pool.submit_all("B", 3)
    assert len({run.token.worker for run in pool.inbox.values()}) == 1  # prefetched: the other one is reserved
    pool.submit_all("A", 1)
    assert len({run.token.worker for run in pool.inbox.values()}) == 2
    pool.answer("A0", DONE)

    # The idle worker is kept for A: nothing is asked back, and no deadline is in the past for ever.
    pool.tick(1.0)
    assert pool.count(TakeBack) == 0
    assert (pool.core.next_deadline() or pool.now + 1) > pool.now


def test_children_use_the_share_of_their_own_class() -> None:
    pool = Pool(4, shares={"a": 0.25})
    pool.submit_all("T", 1)
    pool.submit(pool.new("T-more"), pool.new("T-most"))
    pool.answer("T0", Suspended(state=b"", children=tuple(pool.new(f"A{n}", "A") for n in range(4)), elapsed=1.0))
    pool.submit(*(pool.new(f"T-late{n}") for n in range(4)))
    for name in [name for name in pool.inbox if name.startswith("A")]:
        pool.answer(name, DONE)

    assert pool.running("A") <= 1
