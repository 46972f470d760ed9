"""`actorproc ask`: the reply is printed, the same for the same id, and what stands in its way is told with a code."""

from __future__ import annotations

import json

import pytest

from actorproc import Procedure, ProcedureManager, Status
from actorproc.cli.main import main
from actorproc.cli.select.common import FAILED, OK, TIMED_OUT
from tests.kit.managers import LIGHT
from tests.kit.waiting import wait_until


class Clerk(Procedure):
    def execute(self, ctx):
        if ctx.ask_id is not None and ctx.event != "silence":
            ctx.reply({"heard": ctx.event})
        return Status.done() if ctx.event == "bye" else Status.wait("desk")


@pytest.fixture
def running(tmp_path):
    with ProcedureManager(tmp_path / "s", procedures=[Clerk], workers=1, **LIGHT) as manager:
        manager.submit(Clerk(), id="clerk-1")
        wait_until(lambda: manager.info("clerk-1").phase == "waiting")
        yield lambda *words: main(["--path", str(tmp_path / "s"), *words])


def test_a_reply_is_printed_and_an_id_counts_once(running, capsys):
    assert running("ask", "clerk-1", "desk", '{"a": 1}', "--id", "x", "--timeout", "30s") == OK
    assert json.loads(capsys.readouterr().out) == {"heard": {"a": 1}}
    assert running("ask", "clerk-1", "desk", "2", "--id", "x", "-o", "json") == OK
    said = json.loads(capsys.readouterr().out)
    assert (said["verb"], said["ok"], said["result"]) == ("ask", True, {"heard": {"a": 1}})


def test_what_gets_no_reply_is_told_with_its_code_and_what_to_type_next(running, capsys):
    assert running("ask", "clerk-1", "desk", '"silence"') == FAILED
    said = capsys.readouterr()
    assert "has no reply: the step that took it ended without" in said.out
    assert running("ask", "clerk-1", "other", "--id", "y", "--timeout", "0.01s") == TIMED_OUT
    said = capsys.readouterr()
    assert "the ask stands" in said.err
    assert "ask clerk-1 other --id y" in said.err

    def kept():
        assert running("signals", "-o", "json") == OK
        return json.loads(capsys.readouterr().out)["items"]

    (found,) = wait_until(kept)  # the time may be up before the ask is stored
    assert (found["ask"], found["dedup"], found["id"]) == ("other", "y", "clerk-1")
    assert running("withdraw", "--to", "clerk-1") == OK
    assert running("ask", "clerk-1", "desk", "no json") == 2


def test_a_kept_reply_is_given_where_no_manager_runs_and_nothing_is_sent(tmp_path, capsys):
    path = str(tmp_path / "s")
    with ProcedureManager(path, procedures=[Clerk], workers=1, **LIGHT) as manager:
        manager.submit(Clerk(), id="clerk-1").ask("desk", 1, 30, id="x")
    assert main(["--path", path, "ask", "clerk-1", "desk", "--id", "x"]) == OK
    assert json.loads(capsys.readouterr().out) == {"heard": 1}
    assert main(["--path", path, "ask", "clerk-1", "desk", "--id", "new"]) not in {OK, FAILED}
    assert "only a running one has 'a reply to an ask'" in capsys.readouterr().err
    assert main(["--path", path, "signals", "-o", "json"]) == OK
    assert json.loads(capsys.readouterr().out)["items"] == []
