"""Workers do not outlive their host, whatever they are doing."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from pool_listener import is_gone

from tests.kit.waiting import once_within, wait_until

SCRIPT = Path(__file__).parent / "modules" / "doomed_host.py"
ROOT = Path(__file__).resolve().parents[2]


def started(*what: str) -> tuple[subprocess.Popen[str], list[int]]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    host = subprocess.Popen(
        [sys.executable, str(SCRIPT), *what], stdout=subprocess.PIPE, text=True, env=environment, start_new_session=True
    )
    assert host.stdout is not None
    named = [int(pid) for pid in host.stdout.readline().split()]
    children = Path(f"/proc/{host.pid}/task")
    spares = [int(pid) for task in children.iterdir() for pid in (task / "children").read_text().split()]
    return host, sorted({*named, *spares})


@pytest.mark.parametrize(
    "what",
    [("idle",), ("busy_python",), ("busy_c",), ("grandchild", "group"), ("forked_child",), ("swallow",)],
    ids="-".join,
)
def test_nothing_is_left_a_second_after_the_host_was_killed(what: tuple[str, ...]) -> None:
    def outlived() -> float:
        host, pids = started(*what)
        assert pids

        host.kill()
        began = time.monotonic()
        host.wait()

        wait_until(lambda: all(map(is_gone, pids)))
        took = time.monotonic() - began
        assert host.stdout is not None
        host.stdout.close()
        return took

    once_within(1.0, outlived)


def test_a_host_that_exits_without_closing_its_pool_leaves_nothing() -> None:
    program = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from pool_listener import Listener\n"
        "host = Listener(spares=0); print(host.pid(host.boot()))\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}

    done = subprocess.run(
        [sys.executable, "-c", program, str(SCRIPT.parent)],
        check=False,
        capture_output=True,
        text=True,
        env=environment,
        timeout=60,
    )

    assert done.returncode == 0, done.stderr
    wait_until(lambda: is_gone(int(done.stdout)))
