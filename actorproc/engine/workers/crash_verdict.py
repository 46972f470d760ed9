"""Crash attribution, the verdict on a death: the steps that are charged for it, and the report that is kept."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from actorproc.engine.pipeline.in_flight import Cancellation, WorkerEntry
from actorproc.model.crash_report import HOST_LOST, CrashReport
from actorproc.model.ids import StepToken
from actorproc.workers.protocol.crash_marks import crashed_thread

__all__ = ["CrashVerdict", "judge"]

_NONE: Mapping[StepToken, Cancellation] = {}
_OF_OUR_CLOCK = ("timeout", "heartbeat-limit")
"""Limits that are passed by the manager's clock, whatever its host does."""
_STDERR = 4 * 1024
"""Characters of stderr kept with a step: its end says most."""
_STACK = 12 * 1024
"""Characters of the stacks kept: the beginning names the thread that crashed."""


class CrashVerdict(msgspec.Struct, frozen=True):
    """The report, completed; `blamed` is the step that is known to be guilty, `crashed` says that some step is."""

    report: CrashReport
    blamed: StepToken | None
    crashed: bool


def judge(
    entry: WorkerEntry, report: CrashReport, now: float, orders: Mapping[StepToken, Cancellation] = _NONE
) -> CrashVerdict:
    """Look at a worker that died at `now` (monotonic) with these steps unanswered, and orders to end some of them."""
    # A step that passed a limit while its host was silent may have ended in time: for it no kill was asked for.
    is_unknown = report.kind == HOST_LOST and entry.kind in _OF_OUR_CLOCK
    killed, is_blocked = (None, False) if is_unknown else (entry.killed, entry.is_blocked)
    blamed = killed if killed is not None and killed in entry.queue else None
    if blamed is not None and entry.why:
        report = msgspec.structs.replace(report, kind=entry.kind, message=entry.why)
    if is_blocked and blamed is not None:
        blamed, report = _blocker(entry, report, blamed, orders)
    # Killed by us for a step whose answer came first: the answer wins, and no other step is charged.
    crashed = bool(entry.queue) and report.kind != "stopped" and (killed is None or blamed is not None)
    if is_blocked and blamed is None:
        crashed = _was_lost_before(entry)  # then each runs alone next
    elif crashed and blamed is None and report.task is not None:
        blamed = entry.step_on(report.task)
        # Nothing ran, and no thread says that it crashed: the end came from outside, unless it comes again and again.
        crashed = blamed is not None or "Fatal Python error" in report.stack or _was_lost_before(entry)
    elif crashed and blamed is None and entry.is_threaded:
        blamed = _crashed_thread(entry, report)
    died_in = blamed if blamed is not None else next(iter(entry.queue), None)
    report = msgspec.structs.replace(
        report,
        stderr=report.stderr[-_STDERR:],
        stack=report.stack[:_STACK],
        task=None,
        duration=max(0.0, now - entry.started(died_in)) if died_in is not None else None,
    )
    return CrashVerdict(report, blamed, crashed)


def _blocker(
    entry: WorkerEntry, report: CrashReport, late: StepToken, orders: Mapping[StepToken, Cancellation]
) -> tuple[StepToken | None, CrashReport]:
    """The step that kept the event loop from ending `late`, and the report of that; None: it cannot be told."""
    found = entry.step_on(report.task) if report.task else None
    if found == late:
        return found, report
    order = orders.get(found) if found is not None else None
    if order is not None and order.kind:
        return found, msgspec.structs.replace(report, kind=order.kind, message=order.why)
    step = entry.queue[late].step_in_words
    why = f"it blocked the event loop of its worker: {step} of {late.procedure}, beside it, was to end and could not"
    return found, msgspec.structs.replace(report, kind="loop-blocked", message=why)


def _was_lost_before(entry: WorkerEntry) -> bool:
    return any(token.attempt > 1 for token in entry.queue)


def _crashed_thread(entry: WorkerEntry, report: CrashReport) -> StepToken | None:
    """Of several steps that ran at once, the one whose thread faulthandler names as the one that crashed."""
    thread = crashed_thread(report.stack)
    if thread is None:
        return next(iter(entry.queue)) if len(entry.queue) == 1 else None
    return entry.step_on(thread)
