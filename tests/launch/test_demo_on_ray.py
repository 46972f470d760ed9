"""The demo on a Ray cluster of three nodes: whatever is killed, it ends consistent, and nothing is left."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator

import psutil
import pytest

pytest.importorskip("ray", reason="Ray is not installed (extra ray)")

from tests.kit.demos import DemoRun, demo_run
from tests.kit.waiting import wait_until

pytestmark = [pytest.mark.ray, pytest.mark.processes, pytest.mark.timeout(420)]


def test_it_ends_consistent_and_leaves_nothing(tmp_path):
    with demo_run(tmp_path) as demo:
        process = demo.start("--cluster")
        told, _ = process.communicate(timeout=400)

        assert process.returncode == 0, told
        demo.check_consistent(told)
        # The work may be done before a node has a step, which is told. The test below kills one for certain.
        assert re.search(r"killed: .*1 node", told) or "not killed: node" in told, told
        demo.check_gone(told)


KINDS = {
    "a manager": r"demo_app\.service",
    "a host": r"^ray::HostActor",
    "a node": r"raylet/raylet ",
    "an agent of Ray": r"^ray::(Dashboard|RuntimeEnv)Agent",
    "the head of Ray": r"gcs_server",
    "the program that started Ray": r"demo_app\.ray_nodes",
}
"""Kinds of processes, by their command lines. Workers and those that wait to replace one have none of these."""


def kinds_of(demo: DemoRun, own: int) -> Iterator[tuple[str, psutil.Process]]:
    """The processes of a demo by kind, but the database's and its own."""
    for process in demo.processes():
        try:
            line, parents = " ".join(process.cmdline()), [process, *process.parents()]
            if process.pid == own or any("postgres" in parent.name() for parent in parents):
                continue
        except psutil.Error:
            continue
        yield next((kind for kind, pattern in KINDS.items() if re.search(pattern, line)), "a worker"), process


def test_any_process_but_those_of_the_database_may_be_killed(tmp_path):
    with demo_run(tmp_path, modules=360) as demo:
        process = demo.start("--cluster", "--no-chaos")
        said: list[str] = []
        reader = threading.Thread(target=lambda: said.extend(process.stdout))
        reader.start()
        wait_until(lambda: any("runs 2 hosts" in line for line in said), 200.0)
        killed = []
        for kind in ("a worker", *KINDS):
            wait_until(
                lambda kind=kind: kind in {one for one, _ in kinds_of(demo, process.pid)} or not reader.is_alive()
            )
            victims = [one for found, one in kinds_of(demo, process.pid) if found == kind]
            if victims:
                victims[len(victims) // 2].kill()
                killed.append(kind)
        process.wait(300)
        reader.join()
        process.stdout.close()

        told = "".join(said)
        assert process.returncode == 0, told
        assert "\nConsistent (" in told
        assert killed == ["a worker", *KINDS], told
        demo.check_gone(told)
