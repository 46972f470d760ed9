"""The verdict on a death: a step that was lost with its host is not charged for a limit that passed in the silence."""

from __future__ import annotations

import pytest

from actorproc.engine.pipeline.in_flight import InFlightTable
from actorproc.engine.workers.crash_verdict import judge
from actorproc.model.crash_report import CrashReport
from actorproc.model.ids import Mode, StepToken, WorkerId
from actorproc.model.messages.commands import RunStep
from actorproc.model.messages.events import WorkerReady

WORKER = WorkerId(1000, 1)
TOKEN = StepToken(1, WORKER, "p", 1, 1, Mode.EXECUTE)


@pytest.mark.parametrize(
    ("asked_for", "died_of", "is_blamed", "kind"),
    [
        ("timeout", "timeout", True, "timeout"),
        ("timeout", "signal", True, "timeout"),
        ("timeout", "host-lost", False, "host-lost"),
        ("heartbeat-limit", "host-lost", False, "host-lost"),
        ("heartbeat-limit", "heartbeat-limit", True, "heartbeat-limit"),
        # Its host had told of these, or an operator wants them: they are so whatever became of the host.
        ("cpu-limit", "host-lost", True, "cpu-limit"),
        ("memory-limit", "host-lost", True, "memory-limit"),
        ("process-limit", "host-lost", True, "process-limit"),
        ("killed", "host-lost", True, "killed"),
        ("", "host-lost", False, "host-lost"),
        ("", "signal", False, "signal"),
    ],
)
def test_a_limit_of_the_managers_own_clock_is_no_fault_of_a_step_that_was_lost_with_its_host(
    asked_for, died_of, is_blamed, kind
):
    table = InFlightTable()
    table.join(WorkerReady(WORKER, host="h1"))
    entry = table.hand_out(RunStep(TOKEN, "T", False, "p", None, False, False, None, 0), 0.0)
    if asked_for:
        entry.killed, entry.kind, entry.why = TOKEN, asked_for, "it was to end"

    verdict = judge(entry, CrashReport(kind=died_of, message="it is gone"), 5.0)

    assert verdict.crashed
    assert (verdict.blamed == TOKEN, verdict.report.kind) == (is_blamed, kind)
