"""What procedures printed outlives the program that received it."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

import actorproc
from actorproc import Config, Procedure, Status
from actorproc.errors import UnknownProcedure
from actorproc.workers.output.log_buffer import LogBuffer
from actorproc.workers.output.spool import NEWER, OLDER, LogSpool, spooled
from actorproc.workers.protocol.log_entry import LogEntry


@dataclass
class Talk(Procedure):
    text: str
    times: int = 2
    done: int = 0

    def execute(self, ctx):
        self.done += 1
        print(f"{self.text} {self.done}")  # noqa: T201
        return Status.executing() if self.done < self.times else Status.done()


HOST = """
import os, sys
from actorproc import Procedure, ProcedureManager, Status

class Talk(Procedure):
    type_name = "Talk"
    def execute(self, ctx):
        print("from an earlier life")
        return Status.done()

manager = ProcedureManager(sys.argv[1], workers=1).start()
manager.submit(Talk(), id="talk").result(30)
while not manager.logs("talk"):
    pass
os._exit(9)
"""


def texts(entries):
    return [entry.text for entry in entries]


@pytest.mark.processes
def test_output_outlives_a_host_that_was_killed_and_is_shown_without_a_manager(open_manager, tmp_path):
    environment = os.environ | {"PYTHONPATH": str(Path(actorproc.__file__).parents[1])}
    state = tmp_path / "state"
    ran = subprocess.run([sys.executable, "-c", HOST, str(state)], env=environment, timeout=60, check=False)
    assert ran.returncode == 9

    with actorproc.StoreReader(state) as reader:
        assert texts(reader.logs("talk")) == ["from an earlier life"]
        with pytest.raises(UnknownProcedure):
            reader.logs("nobody")
    shown = subprocess.run(
        [sys.executable, "-m", "actorproc", "logs", "talk", "--path", str(state), "-o", "jsonl"],
        env=environment, capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert json.loads(shown.stdout)["text"] == "from an earlier life"
    manager = open_manager(state, workers=1)
    assert texts(manager.logs("talk")) == ["from an earlier life"]
    assert stat.S_IMODE((state / NEWER).stat().st_mode) == 0o600


@pytest.mark.processes
def test_output_of_both_lives_is_in_order_and_that_of_a_deleted_procedure_is_not_shown(open_manager, until):
    manager = open_manager(workers=1)
    manager.submit(Talk("first"), id="gone").result(30)
    until(lambda: len(manager.logs("gone")) == 2)
    manager.stop()
    manager.start()
    manager.submit(Talk("between"), id="kept").result(30)
    until(lambda: len(manager.logs("kept")) == 2)
    assert texts(manager.logs("gone")) == ["first 1", "first 2"]

    manager.delete("gone")
    with pytest.raises(UnknownProcedure):
        manager.logs("gone")


@pytest.mark.processes
def test_without_files_output_is_kept_for_one_life(open_manager, until, tmp_path):
    manager = open_manager(workers=1, config=Config(log_file_bytes=0))
    manager.submit(Talk("once"), id="talk").result(30)
    until(lambda: manager.logs("talk"))
    manager.stop()
    manager.start()

    assert manager.logs("talk") == []
    assert not (tmp_path / "state" / NEWER).exists()


def entry(text, at=1.0):
    return LogEntry(at=at, stream="stdout", text=text)


def test_the_files_never_exceed_their_share_and_keep_what_came_last(tmp_path):
    spool = LogSpool(tmp_path, 10_000)
    for number in range(500):
        spool.add(f"p{number % 2}", entry(f"line {number}", float(number)))
    spool.close()

    assert sum((tmp_path / name).stat().st_size for name in (NEWER, OLDER)) <= 10_000
    kept = texts(spooled(tmp_path, "p1"))
    assert kept[-1] == "line 499"
    assert len(kept) > 30
    assert kept == [f"line {number}" for number in range(501 - 2 * len(kept), 500, 2)]
    assert texts(spooled(tmp_path, "p1", before=499.0))[-1] == "line 497"
    assert texts(spooled(tmp_path, "p1", size=250)) == ["line 497", "line 499"]
    assert spooled(tmp_path, "nobody") == []


def test_a_torn_line_costs_itself_alone(tmp_path):
    spool = LogSpool(tmp_path, 100_000)
    spool.add("p", entry("whole"))
    spool.add("p", entry("torn"))
    spool.close()
    os.truncate(tmp_path / NEWER, (tmp_path / NEWER).stat().st_size - 5)

    again = LogSpool(tmp_path, 100_000)
    again.add("p", entry("after"))
    again.close()

    assert texts(spooled(tmp_path, "p")) == ["whole", "after"]


def test_a_directory_that_is_gone_costs_the_files_and_nothing_else(tmp_path):
    state = LogBuffer(directory=tmp_path / "nowhere", spool=1000)

    state.add("p", "stdout", "kept in memory")

    assert texts(state.lines("p")) == ["kept in memory"]
    state.close()


def test_what_left_memory_is_found_in_the_files_within_the_share_of_a_procedure(tmp_path):
    state = LogBuffer(per_procedure=1000, total=1000, directory=tmp_path, spool=100_000)
    for number in range(5):
        state.add("a", "stdout", f"a{number}")
    for number in range(9):
        state.add("b", "stdout", f"b{number}")  # the total is exceeded: a leaves memory

    assert texts(state.lines("a")) == [f"a{number}" for number in range(5)]
    assert texts(state.lines("b")) == [f"b{number}" for number in range(9)]
    state.close()
