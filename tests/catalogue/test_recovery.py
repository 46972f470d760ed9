"""Catalogue: what a restart finds and what it does again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from random import Random

import pytest

from actorproc import LockKey, Procedure, RetryPolicy, StateMachineProcedure, Status
from actorproc.errors import DuplicateProcedure, RetryLater, StorageUnavailable
from actorproc.model.states import Phase
from actorproc.store.memory import MemoryStore
from actorproc.store.rows.keys import head_key
from actorproc.store.rows.tables import Table
from tests.catalogue.kit import (
    RecordingStore,
    crash_at_every_commit,
    ending_of,
    live_through_crashes,
    note,
    noted,
    on_threads,
    refused,
)
from tests.kit.waiting import BOUND, wait_until

pytestmark = pytest.mark.processes


@dataclass
class Once(Procedure):
    folder: str

    def execute(self, ctx):
        note(self.folder, ctx.id, ctx.step)
        return Status.done(f"from step {ctx.step}")


@dataclass
class Level(Procedure):
    """A step before its child and a step after it; the child has a child, and so on."""

    folder: str
    below: int
    step: int = 0

    def execute(self, ctx):
        note(self.folder, self.below, ctx.step)
        self.step += 1
        if self.step == 1:
            return Status.executing()
        if self.step == 2 and self.below:
            return Status.suspended([(f"below-{self.below}", Level(self.folder, self.below - 1))])
        return Status.done([self.below, *(output for child in ctx.children.values() for output in child.output)])


def test_hbase_1_a_restart_with_an_empty_store_works(open_manager, folder):
    """Started and stopped with nothing in it, the directory serves the next start as if it were new."""
    for _ in range(2):
        manager = open_manager()
        assert manager.list() == []
        manager.stop()

    assert open_manager().run(Once(folder)) == "from step 1"


def test_hbase_2_an_unsaved_single_step_runs_once_more_and_its_result_outlives_restarts(folder):
    """The host dies with the result in hand: one repetition, and nothing moves in later restarts."""
    store, lives = live_through_crashes(Once(folder))
    logs = []
    for _ in range(3):
        store = store.next_life()
        with on_threads(store, [Once]) as manager:
            handle = manager.get("root")
            assert handle.result(BOUND) == "from step 1"
            logs.append((manager.steps("root"), handle.info()))

    assert lives == 2
    assert noted(folder) == ["root 1"] * 2
    assert logs[0] == logs[1] == logs[2]


def test_hbase_3_multi_step_recovery_crash_before_save_at_every_nesting_level(folder):
    """Three levels, the host dies before each record is saved: each step runs exactly twice, in order."""
    store, lives = live_through_crashes(Level(folder, 2))

    with on_threads(store.next_life(), [Level]) as manager:
        assert manager.get("root").result(BOUND) == [2, 1, 0]
    steps = ["2 1", "2 2", "1 1", "1 2", "0 1", "0 2", "1 3", "2 3"]
    assert noted(folder) == [line for line in steps for _ in range(2)]
    assert lives == len(steps) + 1


def test_hbase_3_multi_step_recovery_from_what_any_commit_leaves(folder):
    """The same tree, restarted from the store as it was before each commit of an undisturbed run."""
    crashes = crash_at_every_commit(Level(folder, 2), folder, lambda _, handle: ending_of(handle))

    assert crashes >= 8


class Place(Enum):
    A = 1
    B = 2


@dataclass
class Killer(StateMachineProcedure):
    """In each of its states it kills the host it belongs to, the first time it is there."""

    folder: str
    initial_state = Place.A

    def execute_from_state(self, ctx, state):
        if note(self.folder, state.name) == 1:
            os.kill(os.getppid(), signal.SIGKILL)
            time.sleep(30)
        return None if state is Place.B else Place(state.value + 1)


@dataclass
class Counting(Procedure):
    folder: str
    upto: int
    at: int = 0

    def execute(self, ctx):
        note(self.folder, ctx.id, self.at)
        time.sleep(0.004)
        self.at += 1
        return Status.executing() if self.at < self.upto else Status.done(self.at)


@dataclass
class Tries(Procedure):
    retry = RetryPolicy(max_attempts=5)

    def execute(self, ctx):
        raise RetryLater("not today", after=3600)


@dataclass
class Locked(Procedure):
    """Two steps under a lock, with a child in between."""

    folder: str
    name: str = "top"
    at: int = 0

    def lock_keys(self):
        return [LockKey.write("t")]

    def execute(self, ctx):
        note(self.folder, self.name, ctx.step)
        self.at += 1
        if self.at == 1 and self.name == "top":
            return Status.suspended([("child", Locked(self.folder, "child"))])
        return Status.executing() if self.at < 3 else Status.done(self.name)


class FailingAt(MemoryStore):
    """One commit, the `number`-th, is refused once; with `late` it was applied all the same."""

    def __init__(self, number, late):
        super().__init__()
        self.number, self.late, self.commits = number, late, 0

    def commit(self, writes, epoch, batch=0):
        self.commits += 1
        if self.commits == self.number:
            if self.late:
                super().commit(writes, epoch, batch)
            raise StorageUnavailable("no space left on device")
        super().commit(writes, epoch, batch)


def version_of(number, body, **names):
    """A class as one release of a program has it."""
    return type("Report", (Procedure,), {"type_name": "Report", "version": number, **body, **names})


def damage(store, table, key):
    """Flip one bit of a stored row."""
    row = store._rows.get(table, key)
    store._rows.put(table, key, row[:-1] + bytes([row[-1] ^ 1]))


HOST = """
import sys
sys.path[:0] = {path!r}
from actorproc import ProcedureManager
from actorproc.config import Config
from tests.catalogue.test_recovery import Killer
with ProcedureManager({state!r}, workers=1, procedures=[Killer], config=Config(spares=0)) as manager:
    manager.submit(Killer({folder!r}), "job").result(20)
"""


def test_hbase_28_the_same_key_after_a_restart_is_the_same_procedure(folder):
    """Finished, restarted, submitted again with its id: the old output, and nothing runs."""
    store = MemoryStore()
    with on_threads(store) as manager:
        assert manager.submit(Once(folder), "key").result(BOUND) == "from step 1"
    with on_threads(store.clone()) as manager:
        assert manager.submit(Once(folder), "key").result(BOUND) == "from step 1"
        assert isinstance(refused(lambda: manager.submit(Once("another"), "key")), DuplicateProcedure)

    assert noted(folder) == ["key 1"]


def test_hbase_29_the_same_key_while_it_runs_and_after_a_crash(folder):
    """From what any commit leaves, submitting once more with the same id joins the procedure that is there."""
    store = RecordingStore()
    with on_threads(store, [Counting]) as manager:
        handles = [manager.submit(Counting(folder, 3), "key") for _ in range(3)]
        assert [handle.result(BOUND) for handle in handles] == [3] * 3
    for image, _ in store.images:
        with on_threads(image) as manager:
            assert manager.submit(Counting(folder, 3), "key").result(BOUND) == 3
            assert len(manager.list()) == 1


def test_hbase_36_a_batch_is_accepted_as_a_whole_or_not_at_all(folder):
    """In what each commit leaves there are none of the ten or all of them, and all of them finish."""
    store = RecordingStore()
    with on_threads(store, [Once], workers=2) as manager:
        for handle in manager.submit_many((f"batch-{n}", Once(folder)) for n in range(10)):
            handle.result(BOUND)

    assert {sum(1 for _ in image.scan()) for image, _ in store.images} == {0, 10}
    image = next(image for image, _ in store.images if any(image.scan()))
    with on_threads(image, [Once]) as manager:
        assert {ending_of(manager.get(f"batch-{n}"))[0] for n in range(10)} == {"SUCCESS"}


def half_way(folder, table):
    """A parent that waits for three leaves, as a host left it, and one bad record: a leaf's head or an undo unit."""
    from tests.catalogue.test_children import Fan

    store = RecordingStore()
    with on_threads(store, [Fan]) as manager:
        manager.submit(Fan(folder, 3), "tree").result(BOUND)
    image = next(image for image, _ in store.images if image.procedure("leaf-0") is not None)
    key = head_key("leaf-1") if table is Table.PROCEDURES else next(iter(image._rows.scan(Table.UNDO)))[0]
    damage(image, table, key)
    return image, Fan


@pytest.mark.parametrize("table", [Table.PROCEDURES, Table.UNDO], ids=["head", "undo-unit"])
def test_hbase_39_a_tree_with_a_bad_record_stands_still_as_a_whole_and_the_others_run(folder, table):
    """One damaged member or undo unit stops its tree, says why to whoever asks, and stops nobody else."""
    image, kind = half_way(folder, table)
    ran = noted(folder)

    with on_threads(image, [kind]) as manager:
        assert manager.run(Once(folder), id="other") == "from step 1"
        info = manager.info("leaf-0")
        assert info.phase is Phase.PARKED
        assert "damage" in info.reason or "missing" in info.reason
        assert "stands still" in str(refused(lambda: manager.abort("tree")))

    assert noted(folder) == [*ran, "other 1"]


def test_hbase_39_the_parent_of_a_damaged_child_can_be_shown_and_listed(folder):
    """The damaged head cannot be shown, but all that is sound can."""
    image, kind = half_way(folder, Table.PROCEDURES)

    with on_threads(image, [kind]) as manager:
        assert manager.info("tree").phase is Phase.PARKED
        assert "tree" in [info.id for info in manager.list()]


def test_hbase_39_one_damaged_procedure_does_not_hide_all_the_others_from_list():
    """The sound procedures can be listed, and the damaged one is named with its reason."""
    store = MemoryStore()
    with on_threads(store, [Tries]) as manager:
        manager.submit_many([("bad", Tries()), ("good", Tries())], delay=1000)
    image = store.clone()
    damage(image, Table.PROCEDURES, head_key("bad"))

    with on_threads(image, [Tries]) as manager:
        assert manager.info("good").phase is Phase.QUEUED
        assert "good" in [info.id for info in manager.list()]
        assert any("bad" in problem for problem in manager.health().problems)


def test_iotdb_94_the_host_is_killed_once_in_every_state(open_manager, folder, tmp_path):
    """A real host, killed in each state by the step that runs there; each state runs exactly twice."""
    script = HOST.format(path=sys.path, state=str(tmp_path / "state"), folder=folder)
    command = [sys.executable, "-c", script]
    ends = [subprocess.run(command, timeout=BOUND, check=False).returncode for _ in Place]

    manager = open_manager(procedures=[Killer])
    assert manager.get("job").result(BOUND) is None

    assert ends == [-signal.SIGKILL] * 2
    assert noted(folder) == ["A", "A", "B", "B"]
    assert manager.info("job").crashes == 0


def test_accumulo_69_ten_racing_submits_of_one_id_are_one_procedure(folder):
    """Ten threads, one id, one start: ten handles of one procedure that ran once."""
    with on_threads(MemoryStore(), workers=2) as manager:
        gate = threading.Barrier(10)
        outputs = []

        def submit():
            gate.wait()
            outputs.append(manager.submit(Once(folder), "one").result(BOUND))

        threads = [threading.Thread(target=submit) for _ in range(10)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(BOUND)

        assert outputs == ["from step 1"] * 10
        assert len(manager.list()) == 1
    assert noted(folder) == ["one 1"]


def test_accumulo_71_ten_procedures_held_by_dead_workers_are_all_taken_over(open_manager, folder, until):
    """Both workers die with ten procedures in hand or in line: all of them end, each step at most once more."""
    manager = open_manager(workers=2)
    handles = manager.submit_many((f"p{n}", Counting(folder, 8)) for n in range(10))
    until(lambda: len(noted(folder)) >= 10)

    for worker in manager.workers():
        os.kill(worker.pid, signal.SIGKILL)

    assert [handle.result(BOUND) for handle in handles] == [8] * 10
    lines = noted(folder)
    assert len(lines) - len(set(lines)) <= 2, "only the two steps that ran are repeated"
    assert len(set(lines)) == 80


def test_greptime_79_each_kind_of_outcome_leaves_the_records_it_should(folder):
    """Submitted, executing, done; a step that asks not to be saved leaves none; a failure closes with a rollback."""
    from tests.catalogue.test_rollback import Three
    from tests.catalogue.test_waiting import Naps

    with on_threads(MemoryStore()) as manager:
        for procedure, name in (
            (Counting(folder, 2), "saved"),
            (Naps(0.001, before=2), "skips"),
            (Three(folder), "bad"),
        ):
            manager.submit(procedure, name).wait(BOUND)
        kinds = {name: [step.kind.name for step in manager.steps(name)] for name in ("saved", "skips", "bad")}
        numbers = [step.number for step in manager.steps("skips")]

    assert kinds["saved"] == ["STEP", "STEP", "COMMIT"]
    assert kinds["skips"] == ["STEP", "STEP", "COMMIT"]
    assert numbers[0] == 1
    assert kinds["bad"] == ["STEP"] * 3 + ["ROLLBACK"] * 4


def test_greptime_86_after_a_stop_nothing_runs_and_nothing_is_lost(open_manager, folder):
    """Stopped in the middle, nothing more is noted; the next start ends the work."""
    first = open_manager()
    first.submit(Counting(folder, 40), "job")
    wait_until(lambda: len(noted(folder)) > 3)
    first.stop(drain=False)
    stopped = noted(folder)
    second = open_manager(procedures=[Counting])

    assert second.get("job").result(BOUND) == 40
    lines = noted(folder)
    assert lines[: len(stopped)] == stopped
    assert len(lines) <= 41, "at most the step that was cut off ran again"


@pytest.mark.parametrize("late", [False, True], ids=["lost", "applied"])
def test_uncovered_a_commit_fails_at_each_write_in_turn(folder, late):
    """Whichever commit the disk refuses, and whether or not it took it: same output, same order, nothing twice."""
    counted = FailingAt(0, late)
    with on_threads(counted, [Locked]) as manager:
        assert manager.submit(Locked(folder), "root").result(BOUND) == "top"
    undisturbed = noted(folder)
    for number in range(1, counted.commits + 1):
        Path(folder, "ledger").unlink()
        with on_threads(FailingAt(number, late), [Locked]) as manager:
            assert manager.submit(Locked(folder), "root").result(BOUND) == "top"
            assert manager.locks() == []
        assert noted(folder) == undisturbed, f"commit {number}"


def test_uncovered_a_pending_retry_keeps_its_count_and_its_due_time_across_a_restart(open_manager):
    """An hour to wait is not begun anew, and the attempts made are not forgotten."""
    first = open_manager()
    handle = first.submit(Tries(), "later")
    wait_until(lambda: handle.info().phase is Phase.RETRYING)
    before = handle.info()
    first.stop()

    after = open_manager(procedures=[Tries]).info("later")

    assert (after.phase, after.errors, after.attempt, after.due_at) == (
        Phase.RETRYING,
        1,
        before.attempt,
        before.due_at,
    )


def test_uncovered_a_corrupt_latest_record_parks_and_never_falls_back_to_an_older_one(folder):
    """An older step is no substitute: it would run again what has been done. Its procedure stands still, others run."""
    store = RecordingStore()
    with on_threads(store, [Counting]) as manager:
        manager.submit(Counting(folder, 4), "job").result(BOUND)
    image = [image for image, _ in store.images if image.procedure("job") is not None][-1]
    last = image.steps("job")[-1]
    keys = [key for key, _ in image._rows.scan(Table.STEPS)]
    damage(image, Table.STEPS, max(keys))
    ran = noted(folder)

    with on_threads(image, [Counting]) as manager:
        assert manager.run(Once(folder), id="other") == "from step 1"
        wait_until(lambda: manager.info("job").phase is Phase.PARKED)
        assert manager.info("job").reason

    assert last.number > 1
    assert noted(folder) == [*ran, "other 1"]


def test_uncovered_code_changes_between_two_starts_and_the_stored_state_is_migrated(open_manager):
    """Version 1 counted pages, version 2 keeps a list of them; what version 1 left waiting ends in version 2."""

    def wait_with_pages(self, ctx):
        self.pages = 3
        return Status.wait("go") if ctx.event is None else Status.done(self.pages)

    def finish(self, ctx):
        return Status.done(self.pages)

    def migrate(cls, data, from_version):
        assert from_version == 1
        return {"pages": list(range(data["pages"]))}

    old = version_of(1, {"execute": wait_with_pages, "__module__": __name__, "__qualname__": "<locals>.Report"})
    new = version_of(
        2, {"execute": finish, "__module__": __name__, "__qualname__": "<locals>.Report"}, migrate=classmethod(migrate)
    )
    first = open_manager()
    first.submit(old(), "report")
    wait_until(lambda: first.info("report").phase is Phase.WAITING)
    first.stop()

    second = open_manager(procedures=[new])
    second.signal("report")

    assert second.get("report").result(BOUND) == [0, 1, 2]


def test_uncovered_a_soak_of_random_kills_repeats_at_most_the_steps_that_were_killed(open_manager, folder):
    """Workers are killed at random; the ledger outside shows no step left out and no more repeated than kills."""
    random = Random(11)
    manager = open_manager(workers=2)
    handles = manager.submit_many((f"p{n}", Counting(folder, 12)) for n in range(6))
    kills = 0
    while kills < 4 and not all(handle.done() for handle in handles):
        seen = len(noted(folder))
        wait_until(lambda seen=seen: len(noted(folder)) > seen + 3 or all(handle.done() for handle in handles))
        workers = [worker for worker in manager.workers() if worker.pid]
        if workers:
            os.kill(random.choice(workers).pid, signal.SIGKILL)
            kills += 1

    assert [handle.result(BOUND) for handle in handles] == [12] * 6
    lines = noted(folder)
    assert len(set(lines)) == 72
    assert len(lines) - 72 <= kills
