"""Looking into a store from another process, or when no manager runs it."""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys

import pytest

import actorproc
from actorproc import EngineError, Phase, StoreFormat, UnknownProcedure
from actorproc.store.lmdb.store import LmdbStore

pytestmark = pytest.mark.processes

LIFE = """
import sys, time
from dataclasses import dataclass
from actorproc import LockKey, Procedure, ProcedureManager, Status

@dataclass
class Family(Procedure):
    depth: int
    asked: bool = False

    def execute(self, ctx):
        if self.asked or self.depth == 0:
            return Status.done(self.depth)
        self.asked = True
        return Status.suspended([Family(self.depth - 1), Family(self.depth - 1)])

@dataclass
class Wants(Procedure):
    key: str

    def lock_keys(self):
        return [LockKey.write(self.key)]

    def execute(self, ctx):
        return Status.wait("word")

@dataclass
class Sits(Procedure):
    def execute(self, ctx):
        ctx.heartbeat(0.5, "sitting")
        time.sleep(600)

if __name__ == "__main__":
    with ProcedureManager(sys.argv[1], workers=2) as manager:
        manager.submit(Wants("a/b"), "holder", owner="ann", tags=["red"])
        manager.submit(Family(2), "tree").result(30)
        while manager.info("holder").phase != "waiting":
            time.sleep(0.005)
        manager.submit(Wants("a"), "queuer")
        manager.submit(Sits(), "sitter")
        while manager.info("sitter").phase != "running":
            time.sleep(0.005)
        print("ready", flush=True)
        for line in sys.stdin:
            if line.strip() == "show":
                import json
                from actorproc.api.reader import StoreReader
                shown = {
                    "list": [info.to_dict() for info in manager.list()],
                    "tree": manager.tree("tree").to_dict(),
                    "steps": [row.to_dict() for row in manager.steps("tree")],
                    "locks": [lock.to_dict() for lock in manager.locks()],
                    "poisons": [poison.to_dict() for poison in manager.poisons()],
                }
                print(json.dumps(shown), flush=True)
            elif line.strip() == "work":
                for number in range(200):
                    manager.submit(Family(1), f"more-{number:03}").result(30)
                print("worked", flush=True)
            elif line.strip() == "stop":
                manager.stop(drain=False, timeout=10)
                print("stopped", flush=True)
"""


class Host:
    """A manager in another process."""

    def __init__(self, folder):
        self.path = folder / "state"
        script = folder / "life.py"
        script.write_text(LIFE)
        self.process = subprocess.Popen(
            [sys.executable, str(script), str(self.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        assert self.process.stdout.readline() == "ready\n"

    def tell(self, word):
        self.process.stdin.write(f"{word}\n")
        self.process.stdin.flush()

    def ask(self, word):
        self.tell(word)
        return self.process.stdout.readline().strip()


@pytest.fixture
def host(tmp_path):
    host = Host(tmp_path)
    yield host
    host.process.kill()
    host.process.wait(30)
    host.process.stdin.close()
    host.process.stdout.close()


def timeless(shown):
    """Without what differs between two moments, and what only a running manager knows."""
    for info in (*shown["list"], *_infos(shown["tree"])):
        for name in ("reason", "progress", "message"):
            info.pop(name)
    for lock in shown["locks"]:
        lock.pop("age")
    return shown


def _infos(tree):
    yield tree["info"]
    for child in tree["children"]:
        yield from _infos(child)


def shown_by(reader):
    return {
        "list": [info.to_dict() for info in reader.list()],
        "tree": reader.tree("tree").to_dict(),
        "steps": [row.to_dict() for row in reader.steps("tree")],
        "locks": [lock.to_dict() for lock in reader.locks()],
        "poisons": [poison.to_dict() for poison in reader.poisons()],
    }


def test_a_reader_shows_the_same_as_the_manager_in_the_same_shape(host):
    there = json.loads(host.ask("show"))

    with actorproc.StoreReader(host.path) as reader:
        here = json.loads(json.dumps(shown_by(reader)))
        assert timeless(here) == timeless(there)
        assert reader.owner().pid == host.process.pid
        assert reader.info("sitter").phase is Phase.RUNNING
        assert reader.info("queuer").reason == "waits for write of 'a'"
        (lock,) = reader.locks()
        assert [waiter.procedure for waiter in lock.waiters] == ["queuer"]
        assert [info.id for info in reader.list(phase="locked-out")] == ["queuer"]
        assert [info.id for info in reader.list(tag="red", owner="ann")] == ["holder"]


def test_a_reader_reads_while_the_manager_commits(host):
    with actorproc.StoreReader(host.path) as reader:
        host.tell("work")
        sizes = []
        while not sizes or sizes[-1] < 200:
            trees = reader.list(id_prefix="more-", roots_only=True)
            sizes.append(len(trees))
            for info in trees[-3:]:
                log = reader.steps(info.id)
                assert [row.number for row in log] == list(range(1, len(log) + 1))
                assert reader.tree(info.id).size in {1, 3}
        assert host.process.stdout.readline() == "worked\n"

    assert sizes == sorted(sizes)


def test_a_reader_needs_no_manager_and_changes_nothing(host):
    assert host.ask("stop") == "stopped"
    before = files_in(host.path)

    with actorproc.StoreReader(host.path) as reader:
        stats = reader.stats()
        assert reader.owner() is None
        assert reader.info("sitter").phase is Phase.QUEUED
        assert len(reader.list(root="tree")) == 7
        assert stats.states == {"RUNNABLE": 2, "WAITING": 1, "SUCCESS": 7}
        assert (stats.procedures, stats.locks, stats.poisons, stats.epoch) == (10, 1, 0, 1)
        assert stats.file_bytes >= stats.used_bytes > 0
        assert json.loads(json.dumps(stats.to_dict()))["store_id"] == stats.store_id

    assert files_in(host.path) == before


def test_without_the_table_of_readers_none_is_made(host):
    assert host.ask("stop") == "stopped"
    (host.path / "lock.mdb").unlink()
    before = files_in(host.path)

    with actorproc.StoreReader(host.path) as reader:
        assert len(reader.list()) == 10

    assert files_in(host.path) == before


def files_in(path):
    return {
        file.name: file.read_bytes() if file.name == "data.mdb" else file.stat().st_size
        for file in sorted(path.iterdir())
    }


def test_a_killed_manager_is_not_taken_for_a_living_one(host):
    with actorproc.StoreReader(host.path) as reader:
        assert reader.owner() is not None
        host.process.kill()
        host.process.wait(30)

        assert reader.owner() is None
        assert reader.info("sitter").phase is Phase.QUEUED


def test_a_reader_survives_one_manager_and_sees_the_next(host):
    with actorproc.StoreReader(host.path) as reader:
        host.process.kill()
        host.process.wait(30)
        code = "import sys; from actorproc import ProcedureManager; ProcedureManager(sys.argv[1], workers=1).start().stop()"
        subprocess.run([sys.executable, "-c", code, str(host.path)], check=True, timeout=60)

        assert reader.stats().epoch == 2
        assert len(reader.list()) == 10


def test_what_is_no_store_of_ours_is_refused_with_what_to_do(tmp_path):
    with pytest.raises(EngineError, match="there is no store"):
        actorproc.StoreReader(tmp_path / "nothing")
    (tmp_path / "empty").mkdir(mode=0o700)
    with pytest.raises(EngineError, match="no store"):
        actorproc.StoreReader(tmp_path / "empty")
    path = stored(tmp_path / "loose")
    path.chmod(0o777)
    with pytest.raises(EngineError, match="chmod go-w"):
        actorproc.StoreReader(path)


def test_a_newer_format_is_refused_and_left_alone(tmp_path, monkeypatch):
    monkeypatch.setattr("actorproc.store.lmdb.store.FORMAT", 99)
    path = stored(tmp_path / "newer")
    monkeypatch.undo()
    before = files_in(path)

    with pytest.raises(StoreFormat, match="99"):
        actorproc.StoreReader(path)

    assert files_in(path) == before


def stored(path):
    store = LmdbStore(path, map_size=1 << 20)
    store.own()
    store.close()
    return path


def test_in_the_process_of_the_manager_it_sees_what_the_manager_sees(open_manager, tmp_path):
    manager = open_manager(workers=1)

    with actorproc.StoreReader(tmp_path / "state") as reader:
        assert reader.list() == manager.list() == []
        assert reader.stats().owner.pid == os.getpid()


def test_a_closed_reader_says_so_and_unknown_ids_are_unknown(tmp_path):
    path = stored(tmp_path / "state")
    reader = actorproc.StoreReader(path)
    with pytest.raises(UnknownProcedure, match="nobody"):
        reader.info("nobody")
    reader.close()
    reader.close()

    with pytest.raises(EngineError, match="not open"):
        reader.list()


@pytest.mark.parametrize("name", ["list", "info", "tree", "steps", "locks", "poisons"])
def test_what_a_reader_offers_is_called_as_the_managers(name):
    assert inspect.signature(getattr(actorproc.StoreReader, name)) == inspect.signature(
        getattr(actorproc.ProcedureManager, name)
    )
