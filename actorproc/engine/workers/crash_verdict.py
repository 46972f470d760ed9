"""Crash attribution, the verdict on a death: the steps that are charged for it, and the report that is kept."""

from __future__ import annotations

import re

import msgspec

from actorproc.engine.pipeline.in_flight import WorkerEntry
from actorproc.model.crash_report import CrashReport
from actorproc.model.ids import StepToken

__all__ = ["CrashVerdict", "judge"]

_CRASHED_THREAD = re.compile(r"^Fatal Python error.*^Current thread 0x([0-9a-fA-F]+) ", re.MULTILINE | re.DOTALL)
_STDERR = 4 * 1024
"""Characters of stderr kept with a step: its end says most."""
_STACK = 12 * 1024
"""Characters of the stacks kept: the beginning names the thread that crashed."""


class CrashVerdict(msgspec.Struct, frozen=True):
    """The report, completed; `blamed` is the step that is known to be guilty, `crashed` says that some step is."""

    report: CrashReport
    blamed: StepToken | None
    crashed: bool


def judge(entry: WorkerEntry, report: CrashReport, now: float) -> CrashVerdict:
    """Look at a worker that died at `now` (monotonic) with these steps unanswered."""
    blamed = entry.killed if entry.killed is not None and entry.killed in entry.queue else None
    if blamed is not None and entry.why:
        report = msgspec.structs.replace(report, kind=entry.kind, message=entry.why)
    # Killed by us for a step whose answer came first: the answer wins, and no other step is charged.
    crashed = bool(entry.queue) and report.kind != "stopped" and (entry.killed is None or blamed is not None)
    if crashed and blamed is None and entry.is_threaded:
        blamed = _crashed_thread(entry, report)
    died_in = blamed if blamed is not None else next(iter(entry.queue), None)
    report = msgspec.structs.replace(
        report,
        stderr=report.stderr[-_STDERR:],
        stack=report.stack[:_STACK],
        duration=max(0.0, now - entry.started(died_in)) if died_in is not None else None,
    )
    return CrashVerdict(report, blamed, crashed)


def _crashed_thread(entry: WorkerEntry, report: CrashReport) -> StepToken | None:
    """Of several steps that ran at once, the one whose thread faulthandler names as the one that crashed."""
    current = _CRASHED_THREAD.search(report.stack)
    if current is None:
        return next(iter(entry.queue)) if len(entry.queue) == 1 else None
    return entry.step_on(int(current.group(1), 16))
