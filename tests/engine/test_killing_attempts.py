"""`kill` ends one attempt of a step that hangs, in a real worker."""

from __future__ import annotations

import re
import time

import pytest

from actorproc import ProcedureClient, Saga, step
from tests.kit.waiting import wait_until

pytestmark = pytest.mark.processes


class Hangs(Saga):
    @step
    def prepare(self, ctx):
        return None

    @step
    def hang(self, ctx):
        while ctx.attempt == 1:
            time.sleep(0.01)


def test_a_hung_step_is_killed_runs_again_and_is_told_of(open_manager, tmp_path):
    manager = open_manager(workers=1)
    handle = manager.submit(Hangs(), id="hangs")
    wait_until(lambda: any(worker.step_name == "hang" for worker in manager.workers()))
    (busy,) = [worker for worker in manager.workers() if worker.step_name == "hang"]

    with ProcedureClient(tmp_path / "state") as client:
        assert client.kill("hangs", reason="no answer for an hour") is True
    handle.result(timeout=60)

    (attempt,) = manager.attempts("hangs")
    assert (attempt.step_name, attempt.attempt, attempt.pid) == ("hang", 1, busy.pid)
    assert attempt.error.kind == "killed"
    assert attempt.error.crash is not None
    assert attempt.error.crash.kind == "killed"
    (asked,) = manager.audit("hangs")
    assert (asked.verb, asked.reason, asked.detail) == ("kill", "no answer for an hour", "step 2 (hang), attempt 1")
    assert manager.kill("hangs") is False
    counts = next(iter(manager.metrics().steps.values()))
    assert (counts.killed, counts.crashed, counts.failed) == (1, 0, 0)
    assert re.search(
        r'^actorproc_steps_killed_total\{type=".*Hangs"\} 1$', manager.metrics().prometheus(), re.MULTILINE
    )
    assert attempt.error.message == "killed by operator"
    info = manager.info("hangs")
    assert (info.errors, info.crashes, str(info.state)) == (0, 0, "SUCCESS")
