"""Reads of the store that fail on the manager's thread: an outage that passes, and no bug."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import lmdb
import pytest

from actorproc import Procedure, Status
from actorproc.config import Config
from actorproc.errors import EngineError, StorageUnavailable, StoreDamaged, UnknownProcedure
from actorproc.store.lmdb.environment import ReadSnapshot
from actorproc.store.memory import MemoryStore
from tests.kit.waiting import wait_until

pytestmark = pytest.mark.processes

FAST = Config(commit_backoff=0.01, commit_backoff_cap=0.05)
READS = (
    *("procedure", "procedures", "tree", "step", "states", "ending", "children", "notes", "locks", "finished"),
    *("finished_tree", "finished_trees", "removed_members", "size"),
)
CALLERS = ("MainThread", "caller")


class FailingReads(MemoryStore):
    """Each read of the engine fails once, and works when it is asked for again; a caller's own reads work."""

    def __init__(self) -> None:
        super().__init__()
        self.failed: set[str] = set()
        self.seen: set[tuple[Any, ...]] = set()
        self.stays: Callable[[str], bool] = lambda _name: False
        """Names of reads that fail until this is changed."""
        self.works = True
        """It can be opened again."""

    def reopen(self) -> None:
        if not self.works:
            raise StorageUnavailable("the disk does not answer yet")
        super().reopen()

    def strike(self, name: str, asked: tuple[Any, ...]) -> None:
        if threading.current_thread().name.startswith(CALLERS):
            return
        if self.stays(name) or (name, *asked) not in self.seen:
            self.seen.add((name, *asked))
            self.failed.add(name)
            raise StorageUnavailable("the disk does not answer")


def _failing(name: str) -> Any:
    def read(self: FailingReads, *arguments: Any, **options: Any) -> Any:
        self.strike(name, tuple(map(repr, arguments)))
        return getattr(super(FailingReads, self), name)(*arguments, **options)

    return read


for _name in READS:
    setattr(FailingReads, _name, _failing(_name))


@dataclass
class Leaf(Procedure):
    number: int

    def execute(self, ctx):
        return Status.done(self.number)


@dataclass
class Family(Procedure):
    """Asks for all that a step may ask for."""

    seen: list = field(default_factory=list)

    def execute(self, ctx):
        if ctx.step == 1:
            ctx.remember("note", lambda: 7)
            return Status.suspended([("one", Leaf(1)), ("two", Leaf(2))])
        self.seen = [child.output for child in ctx.children.values()]
        other = ctx.query("one")
        return Status.done([self.seen, other["state"], ctx.remember("late", lambda: 8)])


@dataclass
class Sleeper(Procedure):
    def execute(self, ctx):
        return Status.sleep(0.05) if ctx.step == 1 else Status.done("woken")


@dataclass
class Waiter(Procedure):
    def execute(self, ctx):
        return Status.wait("go") if ctx.event is None else Status.done(ctx.event)


@dataclass
class Patient(Procedure):
    """Runs until its file is there."""

    file: str

    def execute(self, ctx):
        Path(self.file + ".begun").touch()
        wait_until(Path(self.file).exists)
        return Status.done(ctx.attempt)


@dataclass
class Twice(Procedure):
    """Two steps, each of which runs until its file is there."""

    file: str
    seen: list = field(default_factory=list)

    def execute(self, ctx):
        file = f"{self.file}.{ctx.step}"
        Path(file + ".begun").touch()
        wait_until(Path(file).exists)
        self.seen.append(ctx.step)
        return Status.executing() if ctx.step == 1 else Status.done(self.seen)


TYPES = [Leaf, Family, Sleeper, Waiter, Patient]


def _never(_name: str) -> bool:
    return False


def test_each_read_may_fail_once_and_all_that_was_asked_for_is_done(open_manager, until, caplog):
    store = FailingReads()
    config = dataclasses.replace(FAST, retain_for=timedelta(seconds=0.1), sweep_interval=0.05)
    manager = open_manager(store=store, config=config, procedures=TYPES)

    refusals: list[str] = []

    def insist(verb: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Ask until the store is not in the way: a verb that comes in an outage is refused in words."""
        while True:
            try:
                return verb(*arguments, **options)
            except StorageUnavailable as error:
                refusals.append(str(error))
                until(lambda: manager.health().status != "storage-trouble")

    family = insist(manager.submit, Family(), "family")
    sleeper = insist(manager.submit, Sleeper(), "sleeper")
    waiter = insist(manager.submit, Waiter(), "waiter")
    assert family.result(60) == [[1, 2], "SUCCESS", 8]
    assert sleeper.result(60) == "woken"
    until(lambda: waiter.info().phase == "waiting")
    insist(manager.signal, "waiter", "go", "now")
    until(lambda: store.procedure("waiter") is None or store.procedure("waiter").finished_at)
    insist(manager.submit, Leaf(3), "leaf")
    with pytest.raises(UnknownProcedure):
        insist(manager.get("never").result, 10)
    until(lambda: "finished_trees" in store.failed and "finished" in store.failed)
    until(lambda: manager.health().ok)
    until(lambda: not store.ids(""))  # retention has removed all

    assert all("does not answer" in refusal for refusal in refusals)
    assert store.failed >= {"procedure", "children", "procedures", "states", "finished", "finished_trees"}
    assert [record for record in caplog.records if record.levelname == "CRITICAL"] == []


def test_an_event_whose_read_fails_comes_after_those_of_the_open_batch_and_behind_the_commit_under_way(
    open_manager, until
):
    store = FailingReads()
    manager = open_manager(store=store, config=FAST, procedures=TYPES)
    names = [f"leaf-{number}" for number in range(40)]
    handles, errors = [], []

    def insist() -> None:
        for number, name in enumerate(names):
            while True:
                try:
                    handles.append(manager.submit(Leaf(number), name))
                    break
                except StorageUnavailable as error:
                    errors.append(error)
                    until(lambda: manager.health().status != "storage-trouble")

    thread = threading.Thread(target=insist, name="caller")
    thread.start()
    thread.join(60)

    assert [handle.result(60) for handle in handles] == list(range(40))
    order = [head.id for head in store.scan()]
    assert order == names  # each once, in the order in which they were submitted
    assert manager.health().ok


def test_while_reads_fail_verbs_are_refused_in_words_and_running_steps_go_on(open_manager, until, tmp_path, caplog):
    store = FailingReads()
    manager = open_manager(store=store, config=FAST, procedures=TYPES)
    running = manager.submit(Patient(str(tmp_path / "running")))
    until(Path(tmp_path / "running.begun").exists)
    store.stays, store.works = (lambda name: name == "procedure"), False
    unheard = []

    def ask() -> None:
        unheard.append(manager.submit(Leaf(1), "named").result(60))

    asking = threading.Thread(target=ask, name="caller")
    asking.start()
    until(lambda: manager.health().status == "storage-trouble")

    with pytest.raises(StorageUnavailable, match="cannot be used at the moment and is retried: the disk does not"):
        manager.submit(Leaf(2))
    with pytest.raises(StorageUnavailable, match="cannot be used"):
        manager.delete("named")
    assert manager.metrics().lost_commits == 0
    assert manager.health().problems
    (tmp_path / "running").touch()  # its answer is kept
    store.stays, store.works = _never, True

    asking.join(60)
    assert unheard == [1]
    assert running.result(60) == 1
    until(lambda: manager.health().ok)
    assert sum("could not be read" in record.getMessage() for record in caplog.records) >= 1
    assert sum("works again" in record.getMessage() for record in caplog.records) >= 1


@pytest.mark.parametrize("drain", [False, True])
def test_a_stop_while_reads_fail_ends_and_what_was_kept_is_refused_in_words(open_manager, until, drain):
    store = FailingReads()
    manager = open_manager(store=store, config=dataclasses.replace(FAST, stop_timeout=0.2), procedures=TYPES)
    store.stays, store.works = (lambda name: name == "procedure"), False
    errors: list[Exception] = []

    def ask() -> None:
        try:
            manager.submit(Leaf(1), "named")
        except EngineError as error:
            errors.append(error)

    asking = threading.Thread(target=ask, name="caller")
    asking.start()
    until(lambda: manager.health().status == "storage-trouble")
    stopping = threading.Thread(target=lambda: manager.stop(drain=drain), name="caller")
    stopping.start()
    stopping.join(30)
    asking.join(30)

    assert not stopping.is_alive()
    assert [type(error) for error in errors] == [StorageUnavailable]  # it was not stored for certain
    assert store.ids("") == []


# ---------------------------------------------------------------- LMDB
@pytest.mark.parametrize(
    "error",
    [lmdb.DiskError("mdb_get: Input/output error"), lmdb.ReadersFullError("mdb_txn_begin"), lmdb.Error("EIO")],
    ids=lambda error: type(error).__name__,
)
def test_a_read_that_lmdb_refuses_once_is_an_outage(open_manager, until, monkeypatch, error):
    manager = open_manager(config=FAST, procedures=TYPES)
    left = [error]
    honest = ReadSnapshot.get

    def get(self: ReadSnapshot, *arguments: Any) -> bytes | None:
        if left and threading.current_thread().name.startswith(("ManagerActor", "actorproc-")):
            raise left.pop()
        return honest(self, *arguments)

    monkeypatch.setattr(ReadSnapshot, "get", get)
    assert manager.submit(Leaf(1), "named").result(60) == 1

    assert left == []
    until(lambda: manager.health().ok)


def test_a_page_that_lmdb_finds_corrupt_stops_one_procedure_and_not_the_engine(open_manager, until, monkeypatch):
    manager = open_manager(config=FAST, procedures=TYPES)
    manager.submit(Waiter(), "bad")
    manager.submit(Waiter(), "good")
    until(lambda: all(manager.get(name).info().phase == "waiting" for name in ("bad", "good")))
    manager.stop()
    manager = open_manager(config=FAST, procedures=TYPES)  # which leaves those that wait in the store
    honest = ReadSnapshot.get

    def get(self: ReadSnapshot, table: Any, key: bytes) -> bytes | None:
        if b"bad" in key and threading.current_thread().name.startswith(("ManagerActor", "actorproc-")):
            raise lmdb.CorruptedError("mdb_get: MDB_CORRUPTED: Located page was wrong type")
        return honest(self, table, key)

    monkeypatch.setattr(ReadSnapshot, "get", get)
    manager.publish("go", "now")

    with pytest.raises(StoreDamaged, match="wrong type"):
        manager.get("bad").result(60)
    assert manager.get("good").result(60) == "now"
    assert manager.run(Leaf(5)) == 5


# ---------------------------------------------------------------- a store that goes back
class GoesBack(MemoryStore):
    """As a database that failed over to a standby that was behind: the next commit fails, and earlier ones are gone."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: Any = None
        self.goes_back = False
        self.lost = 0, 0
        """The first and the last commit that are gone."""

    def remember(self) -> None:
        with self._rows:
            self.kept = self._rows.copy()

    def commit(self, writes: Any, epoch: int, batch: int = 0) -> None:
        if self.goes_back:
            self.goes_back = False
            last = self.load().batch
            self._rows = self.kept
            self.lost = self.load().batch + 1, last
            raise StorageUnavailable("the connection was lost")
        super().commit(writes, epoch, batch)


def test_commits_that_the_store_lost_are_told_with_their_numbers_and_work_goes_on_from_what_is_there(
    open_manager, until, tmp_path, caplog
):
    store = GoesBack()
    manager = open_manager(store=store, config=FAST, procedures=TYPES)
    running = manager.submit(Patient(str(tmp_path / "running")), "running")
    until(Path(tmp_path / "running.begun").exists)
    assert manager.run(Leaf(1), id="before") == 1
    store.remember()
    gone = manager.submit(Waiter(), "gone")
    until(lambda: gone.info().phase == "waiting")
    Path(tmp_path / "running.begun").unlink()
    waiting = manager._tree.watch("gone")
    until(lambda: "gone" in manager._tree._replies.ends.names())

    store.goes_back = True
    assert manager.run(Leaf(2), id="after") == 2

    told = [record.getMessage() for record in caplog.records if record.levelname == "CRITICAL"]
    first, last = store.lost
    assert first < last
    assert len(told) == 1
    assert f"lost the commits {first} to {last}, " in told[0]
    assert manager.metrics().lost_commits == last - first + 1
    assert f"actorproc_lost_commits_total {last - first + 1}" in manager.metrics().prometheus()
    assert type(waiting.exception(60)) is UnknownProcedure
    assert store.procedure("gone") is None
    until(
        Path(tmp_path / "running.begun").exists
    )  # its worker was killed, as it may have had a step that is not stored
    Path(tmp_path / "running").touch()
    assert running.result(60) == 2
    info = running.info()
    assert (info.crashes, info.errors) == (0, 0)
    until(lambda: manager.health().ok)


def test_an_answer_to_a_step_of_a_lost_commit_changes_nothing(open_manager, until, tmp_path):
    store = GoesBack()
    manager = open_manager(store=store, config=FAST, procedures=[*TYPES, Twice])
    handle = manager.submit(Twice(str(tmp_path / "twice")), "twice")
    until(Path(tmp_path / "twice.1.begun").exists)
    store.remember()
    Path(tmp_path / "twice.1").touch()
    until(Path(tmp_path / "twice.2.begun").exists)
    (tmp_path / "twice.1").unlink()
    (tmp_path / "twice.1.begun").unlink()

    store.goes_back = True
    assert manager.run(Leaf(2)) == 2
    until(Path(tmp_path / "twice.1.begun").exists)  # the first step runs again
    Path(tmp_path / "twice.2").touch()
    Path(tmp_path / "twice.1").touch()

    assert handle.result(60) == [1, 2]
    assert [step.number for step in store.steps("twice")] == [1, 2, 3]
