"""The demo on a Ray cluster of three nodes: a node, agents, workers and the leader are killed; nothing is left."""

from __future__ import annotations

import re

import pytest

pytest.importorskip("ray", reason="Ray is not installed (extra ray)")

from tests.kit.demos import demo_run

pytestmark = [pytest.mark.ray, pytest.mark.processes, pytest.mark.timeout(420)]


def test_it_ends_consistent_and_leaves_nothing(tmp_path):
    with demo_run(tmp_path) as demo:
        process = demo.start("--cluster")
        told, _ = process.communicate(timeout=400)

        assert process.returncode == 0, told
        demo.check_consistent(told)
        assert re.search(r"killed: .*1 node", told)
        assert "2 agents" in told
        demo.check_gone(told)
