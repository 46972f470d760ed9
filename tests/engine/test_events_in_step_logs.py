"""The step log names the event that a procedure waited for, and has the payload that it took."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from actorproc import Procedure, Status, decode_value
from actorproc.cli.main import main

pytestmark = pytest.mark.processes


@dataclass
class Asks(Procedure):
    """Waits for two events, one of them in vain."""

    got: str = ""

    def execute(self, ctx):
        if not self.got and ctx.event is None:
            return Status.wait("approval")
        if ctx.event is not None:
            self.got = ctx.event["by"]
        return Status.done(self.got) if self.got == "ann" else Status.wait("second look")


def test_the_step_log_has_name_and_payload_of_each_event(open_manager, tmp_path, capsys):
    manager = open_manager(procedures=[Asks])
    handle = manager.submit(Asks(), id="asks")
    manager.signal("asks", {"by": "bob"})
    manager.publish("second look", {"by": "ann"})
    handle.result(60)

    log = manager.steps("asks")

    assert [step.awaits for step in log] == [None, "approval", "second look", None]
    assert [step.event_bytes is None for step in log] == [True, True, False, False]
    assert [decode_value(step.event)["by"] for step in log if step.event] == ["bob", "ann"]
    assert main(["--path", str(tmp_path / "state"), "-o", "table", "steps", "asks"]) == 0
    assert "wait for second look" in capsys.readouterr().out
