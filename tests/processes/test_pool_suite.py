"""The conformance suite of pools finds every seeded fault, and none in a sound pool."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading

import pytest

from actorproc.model.ids import StepToken, WorkerId
from actorproc.workers.child.output import stacks
from tests.kit.suites import ROOT, failures_by_class, run_pytest
from tests.processes.broken_pools import BROKEN, SOUND


@pytest.mark.nightly
def test_each_planted_fault_fails_the_suite_and_a_sound_pool_passes(tmp_path):
    tests, failures = failures_by_class("tests/processes/broken_pools.py", tmp_path)

    assert len(BROKEN) >= 15
    assert [failures[kind.__name__] for kind in SOUND] == [0]
    assert [kind.__name__ for kind in BROKEN if not failures[kind.__name__]] == []
    assert len({tests[kind.__name__] for kind in SOUND + BROKEN}) == 1, "each ran the whole suite"


def test_a_suite_without_a_pool_says_what_it_needs(tmp_path):
    (tmp_path / "test_forgotten.py").write_text(
        "from actorproc.testing.pool_suite import PoolSuite\nclass TestMine(PoolSuite):\n    pass\n"
    )

    ended = run_pytest("--tb=line", "-k", "boots", cwd=tmp_path)

    assert ended.returncode == 1
    assert "TestMine needs a fixture `make_pool`" in ended.stdout


def test_workers_that_load_the_steps_of_the_suite_load_no_pytest():
    code = "import sys, actorproc.testing.pool_suite.steps; sys.exit('pytest' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


def test_no_garbage_is_collected_while_the_frames_of_all_threads_are_taken(monkeypatch):
    """On Python 3.11 the interpreter dead-locks when a collection begins in there."""
    plain, seen = sys._current_frames, []

    def frames():
        seen.append(gc.isenabled())
        return plain()

    monkeypatch.setattr(sys, "_current_frames", frames)
    token = StepToken(1, WorkerId(0, 1), "p", 1, 1)

    assert "in frames" in stacks.text_of({token: threading.get_ident()}, token)
    assert (seen, gc.isenabled()) == ([False], True)
