"""`connect`: one object in a module, used by processes that are forked, spawned, killed, and by steps in workers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import actorproc
from actorproc import Config, ManagerStopped, Saga, connect, step
from tests.kit.waiting import BOUND

pytestmark = pytest.mark.processes
LIGHT = {"workers": 1, "config": Config(spares=0)}

MODULE = """
import os, sys, json
from actorproc import Config, connect, procedure, Procedure, Status

@procedure
def double(ctx, number: int) -> int:
    return 2 * number

@procedure
def ask_from_a_step(ctx, number: int) -> str:
    answer = hub.run(double(number), id=f"inner-{number}", timeout=60)
    return f"{answer} {hub.health().role}"

class Wait(Procedure):
    def execute(self, ctx):
        return Status.done(ctx.event) if ctx.step > 1 else Status.wait("go")

hub = connect(os.environ["STATE"], procedures=[double, ask_from_a_step, Wait], workers=2, config=Config(spares=0))
"""


@pytest.fixture
def place(tmp_path):
    (tmp_path / "shared.py").write_text(MODULE)
    return tmp_path


def program(place, text):
    environment = os.environ | {
        "STATE": str(place / "state"),
        "PYTHONPATH": f"{place}:{Path(actorproc.__file__).parents[1]}",
    }
    return subprocess.Popen(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", text],
        cwd=place, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip


def said(process, until=None):
    """What a program prints; with `until`, once it has printed so many lines it is let go."""
    lines = [process.stdout.readline() for _ in range(until or 0)]
    process.stdin.close()
    process.stdin = None
    out = "".join(lines) + process.communicate(timeout=2 * BOUND)[0]
    assert process.returncode == 0, out
    return out.splitlines()


def test_nothing_is_opened_before_the_first_use(tmp_path):
    hub = connect(tmp_path / "state", **LIGHT)
    assert not (tmp_path / "state").exists()
    assert hub.health().status == "stopped"
    hub.close()  # of what was never opened


def test_forked_processes_share_one_engine_and_a_step_in_a_worker_is_a_client(place):
    lines = said(
        program(
            place,
            """
import json, os, sys
from shared import hub, double, ask_from_a_step
pipe, end = os.pipe()
children = []
for number in range(3):
    pid = os.fork()
    if not pid:
        os.close(end)
        answer = hub.run(double(number), timeout=60)
        inner = hub.run(ask_from_a_step(10), id="asked", timeout=60)
        sys.stdout.write(json.dumps([number, answer, inner, hub.health().role]) + "\\n")
        sys.stdout.flush()
        os.read(pipe, 1)
        os._exit(0)
    children.append(pid)
sys.stdin.readline()
os.close(end)
for pid in children:
    os.waitpid(pid, 0)
""",
        ),
        until=3,
    )
    found = sorted(json.loads(line) for line in lines)
    assert [each[:3] for each in found] == [[n, 2 * n, "20 following"] for n in range(3)]
    assert [each[3] for each in found].count("leading") == 1


def test_a_copy_opens_one_of_its_own_and_handles_from_before_the_fork_work_in_it(place):
    lines = said(
        program(
            place,
            """
import logging, os, sys
logging.basicConfig(stream=sys.stdout, format="%(levelname)s %(message)s")
from shared import hub, double
before = hub.submit(double(21), id="before")
print(before.result(60), flush=True)
pid = os.fork()
if not pid:
    again = hub.submit(double(4), id="behind")
    print("child", before.result(60), again.result(60), hub.health().role, flush=True)
    os._exit(0)
os.waitpid(pid, 0)
pid = os.fork()
if not pid:
    os._exit(0)
os.waitpid(pid, 0)
print("parent", hub.get("behind").result(60), hub.health().role, flush=True)
hub.close()
""",
        )
    )
    warnings = [line for line in lines if line.startswith("WARNING") and "forks" in line]
    assert len(warnings) == 1
    assert "<string>:5" in warnings[0]
    assert [line for line in lines if not line.startswith("WARNING")] == [
        "42",
        "child 42 8 following",
        "parent 8 leading",
    ]


def test_copies_that_are_made_in_the_middle_of_commits_are_not_held_up(place):
    lines = said(
        program(
            place,
            """
import os, signal, sys, threading
from shared import hub, double
hub.run(double(1), timeout=60)
is_over = threading.Event()
def commit():
    while not is_over.is_set():
        hub.run(double(2), timeout=60)
threads = [threading.Thread(target=commit) for _ in range(2)]
for thread in threads:
    thread.start()
for number in range(12):
    pid = os.fork()
    if not pid:
        signal.alarm(60)
        os._exit(hub.run(double(number), timeout=60))
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
is_over.set()
for thread in threads:
    thread.join()
hub.close()
""",
        )
    )
    assert lines == [str(2 * number) for number in range(12)]


def test_a_connection_that_is_closed_says_nothing_about_a_fork(place):
    lines = said(
        program(
            place,
            """
import logging, os, sys
logging.basicConfig(stream=sys.stdout, format="%(levelname)s %(message)s")
from shared import hub, double
print(hub.run(double(1), timeout=60), flush=True)
hub.close()
pid = os.fork()
if not pid:
    os._exit(0)
os.waitpid(pid, 0)
""",
        )
    )
    assert not [line for line in lines if "forks" in line]
    assert "2" in lines


def test_nothing_of_the_parent_is_open_in_a_copy(place):
    lines = said(
        program(
            place,
            """
import os
from shared import hub, double
hub.run(double(1), id="x1", timeout=60)
pid = os.fork()
if not pid:
    assert hub.run(double(4), timeout=60) == 8
    assert hub.get("x1").result(60) == 2
    hub.close()
    found = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            found.add(os.readlink(f"/proc/self/fd/{name}"))
        except OSError:
            pass
    print([each for each in found if os.environ["STATE"] in each], flush=True)
    os._exit(0)
os.waitpid(pid, 0)
hub.close()
""",
        )
    )
    assert lines == ["[]"]


FIRST = """
import sys, threading
from shared import hub, Wait
handle = hub.submit(Wait(), id="wait")
print(hub.health().role, flush=True)
waited = []
waiter = threading.Thread(target=lambda: waited.append(handle.result(60)))
waiter.start()
sys.stdin.readline()
hub.close()
waiter.join(60)
print(waited, flush=True)
"""
SECOND = """
import sys, time
from shared import hub
print(hub.get("wait").done(), hub.health().role, flush=True)
while hub.health().role != "leading":
    time.sleep(0.02)
hub.signal("wait", "done")
print(hub.get("wait").result(60), flush=True)
sys.stdin.readline()
hub.close()
"""


@pytest.mark.parametrize("ends", ["close", "kill"])
def test_callers_and_clients_go_on_through_the_next_leader(place, ends):
    leader = program(place, FIRST)
    assert leader.stdout.readline().strip() == "leading"
    follower = program(place, SECOND)
    assert follower.stdout.readline().strip() == "False following"
    if ends == "kill":
        leader.kill()
    else:
        leader.stdin.write("\n")
        leader.stdin.flush()
    assert follower.stdout.readline().strip() == "done"
    if ends == "close":
        assert said(leader) == ["['done']"]
    else:
        leader.communicate(timeout=BOUND)
    assert said(follower) == []


def test_a_client_only_waits_for_a_leader_and_says_when_none_comes(tmp_path):
    hub = connect(tmp_path / "state", lead=False, patience=0.2)
    with pytest.raises(ManagerStopped):
        hub.submit(Fixed(1))
    with connect(tmp_path / "state", **LIGHT) as leader:
        assert hub.run(Fixed(2), timeout=BOUND) == 3
        assert (leader.health().role, hub.health().role) == ("leading", "following")
    hub.close()
    with pytest.raises(ManagerStopped, match="start"):
        hub.submit(Fixed(1))


class Fixed(Saga[int]):
    number: int

    @step
    def only(self, ctx):
        return self.number + 1


def test_it_is_opened_again_after_a_close_by_start_alone(tmp_path):
    hub = connect(tmp_path / "state", **LIGHT)
    assert hub.run(Fixed(1), timeout=BOUND) == 2
    hub.close()
    with pytest.raises(ManagerStopped, match="start"):
        hub.info("x")
    with hub:
        assert hub.run(Fixed(2), timeout=BOUND) == 3


def test_threads_that_use_it_first_at_the_same_moment_open_it_once(tmp_path):
    hub = connect(tmp_path / "state", **LIGHT)
    answers = []
    threads = [threading.Thread(target=lambda n=n: answers.append(hub.run(Fixed(n), timeout=BOUND))) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(BOUND)
    assert sorted(answers) == list(range(1, 9))
    assert hub.health().role == "leading"
    hub.close()


@pytest.mark.parametrize(
    "options, error, words",  # noqa: PT006
    [
        ({"patience": "soon"}, TypeError, "soon"),
        ({"store": object()}, TypeError, "path or a URL"),
        ({"workers": 0}, ValueError, "workers"),
        ({"colour": 1}, TypeError, "colour"),
        ({"procedures": [int]}, Exception, "int"),
    ],
)
def test_wrong_arguments_are_refused_at_once(tmp_path, options, error, words):
    with pytest.raises(error, match=words):
        connect(tmp_path / "state", **options)
