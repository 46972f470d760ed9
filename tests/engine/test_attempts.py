"""Failed attempts as people see them: of a manager, a client, a reader, a stopped store, an export and an import."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass

import pytest

from actorproc import Procedure, ProcedureClient, RetryPolicy, Saga, Status, StoreReader, UnknownProcedure, step

pytestmark = pytest.mark.processes


@dataclass
class Flaky(Procedure):
    retry = RetryPolicy(max_attempts=9, base=0.001, jitter=0.0)

    def execute(self, ctx):
        if ctx.attempt < 4:
            raise ConnectionError(f"refused {ctx.attempt}")
        return Status.done()


class Dies(Saga):
    @step
    def prepare(self, ctx):
        return None

    @step
    def crunch(self, ctx):
        if ctx.attempt == 1:
            os.kill(os.getpid(), signal.SIGKILL)


def test_each_failed_attempt_tells_when_where_and_why(open_manager, tmp_path):
    manager = open_manager(workers=1)
    manager.submit(Flaky(), id="flaky").result(timeout=60)
    manager.submit(Dies(), id="dies").result(timeout=60)
    pid = next(row.pid for row in manager.steps("flaky") if row.pid)

    flaky = manager.attempts("flaky")
    (died,) = manager.attempts("dies")

    assert [(row.attempt, row.step, row.mode) for row in flaky] == [(n, 1, "execute") for n in (1, 2, 3)]
    assert [row.error.message for row in flaky] == ["refused 1", "refused 2", "refused 3"]
    assert all(row.pid == pid and row.slot == 0 and 0 <= row.duration < 30 for row in flaky)
    assert [row.ended_at for row in flaky] == sorted(row.ended_at for row in flaky)
    assert (died.step, died.step_name, died.attempt) == (2, "crunch", 1)
    assert died.error.crash is not None
    assert died.error.crash.signal == "SIGKILL"
    assert manager.attempts("dies", 1) == []
    assert manager.attempts("dies", 2) == [died]
    with pytest.raises(UnknownProcedure):
        manager.attempts("nothing")
    with ProcedureClient(tmp_path / "state") as client:
        assert client.attempts("flaky") == flaky
    manager.stop()
    with StoreReader(tmp_path / "state") as reader:
        assert reader.attempts("flaky") == flaky
        assert reader.attempts("dies") == [died]
    assert died.to_dict()["error"]["crash"]["signal"] == "SIGKILL"


def test_they_go_with_their_procedure(open_manager):
    manager = open_manager(workers=1)
    manager.submit(Flaky(), id="flaky").result(timeout=60)
    manager.delete("flaky")
    manager.submit(Dies(), id="flaky").result(timeout=60)

    assert [row.error.kind for row in manager.attempts("flaky")] == ["crash"]
