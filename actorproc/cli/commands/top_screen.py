"""One look of ``top``: health, workers, and what stands still."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from actorproc.cli.commands.inspect import what_of
from actorproc.cli.output.text import Columns, clipped, duration, plain_line, size_of
from actorproc.model.states import Phase

if TYPE_CHECKING:
    from actorproc.api.client import ProcedureClient

__all__ = ["screen_of"]

_ROWS = 20
_SHOWN = (Phase.STUCK, Phase.RETRYING, Phase.ROLLING_BACK, Phase.LOCKED_OUT, Phase.PARKED, Phase.PAUSED)


def screen_of(client: ProcedureClient) -> list[str]:
    """The lines of a look."""
    health = client.health()
    metrics = client.metrics()
    lines = [
        (
            f"{time.strftime('%H:%M:%S')}  {health.status}, up {duration(metrics.uptime)}, "
            f"{health.busy} of {metrics.workers} workers busy, {metrics.queued} queued, "
            f"{metrics.lock_waiting} wait for locks, {metrics.commits} commits, {size_of(metrics.store_used_bytes)}"
        )
    ]
    lines += [plain_line(problem) for problem in health.problems]
    workers = Columns(("SLOT", "PID", "PROCEDURE", "STEP", "FOR", "CPU", "MEMORY"))
    lines += [
        "",
        *workers.lines(
            (
                worker.slot,
                worker.pid,
                worker.procedure or "-",
                "-" if worker.step is None else worker.step,
                "-" if worker.step_age is None else duration(worker.step_age),
                "-" if worker.cpu is None else duration(worker.cpu),
                size_of(worker.rss),
            )
            for worker in client.workers()
        ),
    ]
    waiting = client.list(phase=_SHOWN, limit=_ROWS)
    if waiting:
        table = Columns(("ID", "PHASE", "STEP", "TRY", "WHY"))
        rows = ((i.id, i.phase, i.step, i.attempt, clipped(plain_line(what_of(i)), 80)) for i in waiting)
        lines += ["", *table.lines(rows)]
    return lines
