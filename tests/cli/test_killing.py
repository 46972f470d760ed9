"""`actorproc kill`: it ends an attempt, or says that there is none and what to do."""

from __future__ import annotations

import time
from dataclasses import dataclass

import pytest

from actorproc import Procedure, ProcedureManager, Status
from actorproc.cli.main import main
from tests.kit.managers import LIGHT
from tests.kit.waiting import wait_until

pytestmark = pytest.mark.processes


@dataclass
class Naps(Procedure):
    """Hangs in its first attempt, or sleeps, or is done."""

    way: str

    def execute(self, ctx):
        while self.way == "hang" and ctx.attempt == 1:
            time.sleep(0.01)
        return Status.sleep(600) if self.way == "sleep" else Status.wait("go") if self.way == "wait" else Status.done()


def killed(capsys, path, name, *arguments):
    capsys.readouterr()
    code = main(["--path", str(path), "-o", "table", "kill", name, *arguments])
    return code, capsys.readouterr().out


def test_a_kill_ends_the_attempt_or_is_refused_with_the_reason_and_the_next_command(tmp_path, capsys):
    path = tmp_path / "state"
    with ProcedureManager(path, workers=1, procedures=[Naps], **LIGHT) as manager:
        manager.submit(Naps("hang"), "hangs")
        wait_until(lambda: manager.info("hangs").phase == "running")
        code, said = killed(capsys, path, "hangs", "--reason", "no answer")
        assert (code, "its attempt ends, and the step runs again" in said) == (0, True)
        manager.get("hangs").result(60)
        for way in ("sleep", "wait"):
            manager.submit(Naps(way), way)
        wait_until(lambda: [manager.info(way).phase for way in ("sleep", "wait")] == ["sleeping", "waiting"])

        for name, words in (
            ("hangs", "it has ended SUCCESS"),
            ("sleep", "it is sleeping"),
            ("wait", f"actorproc --path {path} why wait"),
        ):
            code, said = killed(capsys, path, name)
            assert code == 5
            assert "refused: no worker has a step of it, so there is nothing to kill" in said
            assert words in said
        assert [row.verb for row in manager.audit_log()] == ["kill"]
    code, said = killed(capsys, path, "wait")
    assert (code, "no manager runs here; start one with actorproc run" in said) == (4, True)
    assert killed(capsys, path, "nobody")[0] == 3
