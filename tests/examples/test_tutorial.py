"""The tutorial, done as a reader does it: its programs as they stand, its commands, and the kill -9."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.waiting import wait_until

pytestmark = pytest.mark.processes

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "tutorial" / "index.md").read_text(encoding="utf-8")
PROGRAMS = dict(re.findall(r"^```python file=(\S+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
SLEEPS = re.compile(r"time\.sleep\(20\) +#")
TERMS = ("saga", "step", "state", "manager", "store", "worker", "undo", "lock", "child")


def environment():
    return os.environ | {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}


def start(folder, name):
    """A program of the page; where it sleeps for its reader, it sleeps until the file `go` is there."""
    text = SLEEPS.sub('while not __import__("os").path.exists("go"): time.sleep(0.01)  #', PROGRAMS[name])
    (folder / name).write_text(text)
    return subprocess.Popen(
        [sys.executable, "-W", "error", name], cwd=folder, env=environment(), text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def command(folder, *words):
    """What a command of the second terminal prints."""
    ended = subprocess.run(
        [sys.executable, "-m", "actorproc", *words], cwd=folder, env=environment(), capture_output=True, text=True,
        timeout=60, check=False,
    )  # fmt: skip
    return ended.stdout


def busy_worker(folder, step):
    """Pid of the worker that has this step in hand; None: none has."""
    for line in command(folder, "workers", "-o", "jsonl").splitlines():
        worker = json.loads(line)
        if worker["step_name"] == step:
            return worker["pid"]
    return None


def pid_at(folder, step):
    wait_until(lambda: busy_worker(folder, step))
    return busy_worker(folder, step)


def test_the_killed_step_runs_again_and_no_other(tmp_path):
    program = start(tmp_path, "order.py")
    os.kill(pid_at(tmp_path, "pack"), signal.SIGKILL)
    (tmp_path / "go").touch()
    said, complained = program.communicate(timeout=60)

    assert said == "book is on its way\n", complained
    assert "step 2 (pack) attempt 1: killed by signal 9 (SIGKILL)" in complained
    rows = [line.split() for line in command(tmp_path, "steps", "order-1").splitlines()]
    assert [row[1] for row in rows[1:]] == ["reserve", "pack", "ship", "-"]
    assert [row[6] for row in rows[1:]] == ["-", "1", "2", "1"]  # the record of `ship` tells how often `pack` ran


def test_the_killed_program_goes_on_and_an_order_that_has_ended_is_not_made_twice(tmp_path):
    program = start(tmp_path, "order.py")
    pid_at(tmp_path, "pack")
    program.kill()
    program.communicate(timeout=60)
    (tmp_path / "go").touch()

    for _ in range(2):
        again = start(tmp_path, "order.py")
        assert again.communicate(timeout=60)[0] == "book is on its way\n"
    rows = [line.split() for line in command(tmp_path, "steps", "order-1").splitlines()]
    assert [row[1] for row in rows[1:]] == ["reserve", "pack", "ship", "-"]


def test_the_failed_order_is_undone_as_the_page_says(tmp_path):
    said, _ = start(tmp_path, "refund.py").communicate(timeout=60)

    (shown,) = re.findall(r"^It prints:\n\n```text\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert said == shown


def test_the_second_order_waits_for_the_shelf_and_children_wrap(tmp_path):
    program = start(tmp_path, "shelf.py")
    pid_at(tmp_path, "take")
    why = command(tmp_path, "why", "order-4")
    (tmp_path / "go").touch()
    said, complained = program.communicate(timeout=60)

    assert (
        re.sub(r"[\d.]+ s$", "", why.splitlines()[0])
        == "order-4 (Order) waits for write of 'shelf/3' held by order-3 for "
    )
    assert said == "['book in paper', 'pen in paper'] ['lamp in paper']\n", complained
    assert re.findall(r"wrap +SUCCESS", command(tmp_path, "tree", "order-3")) == ["wrap  SUCCESS"] * 2


def test_the_page_introduces_nine_terms_and_lists_them():
    assert tuple(re.findall(r"^\| (\w+) \| [A-Z]", PAGE, re.MULTILINE)) == TERMS
    assert [term for term in TERMS if not re.search(rf"\*\*{term}s?\*\*", PAGE)] == []


def test_every_program_of_the_page_is_run_here():
    assert set(PROGRAMS) == {"order.py", "refund.py", "shelf.py"}
    assert len(SLEEPS.findall("".join(PROGRAMS.values()))) == 2
