"""Rows of workers, with the part of a core that each one used since the look before."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from actorproc.ui.text import plain_line
from actorproc.ui.views.tones import Tone, tone_of
from actorproc.workers.base import WorkerInfo

__all__ = ["WorkerMeter", "WorkerRow"]


class WorkerRow(msgspec.Struct, frozen=True, kw_only=True):
    """A worker process and the step in it."""

    slot: int
    pid: int
    state: str
    tone: Tone
    procedure: str | None
    type_name: str
    step: str
    step_age: float | None
    queued: int
    cpu_percent: float | None
    """Of one core, since the look before; None: this is the first look at the process."""
    rss: int | None
    restarts: int
    progress: float | None
    message: str


class WorkerMeter:
    """Makes rows of workers, and remembers the processor time that each had used."""

    def __init__(self) -> None:
        self._before: dict[tuple[int, int, int], tuple[float, float]] = {}

    def rows(self, workers: Iterable[WorkerInfo], at: float) -> list[WorkerRow]:
        """Rows at a moment, in order of slots.

        Args:
            workers: as a manager or client tells them.
            at: Seconds of a clock that never jumps.

        Returns:
            A row for each.
        """
        before, self._before = self._before, {}
        found = []
        for worker in sorted(workers, key=lambda worker: (worker.slot, worker.incarnation)):
            process = (worker.slot, worker.incarnation, worker.pid)
            percent = None
            if worker.cpu is not None:
                then, used = before.get(process, (at, worker.cpu))
                self._before[process] = at, worker.cpu
                if at > then:
                    percent = max(0.0, (worker.cpu - used) / (at - then) * 100)
            found.append(_row(worker, percent))
        return found


def _row(worker: WorkerInfo, percent: float | None) -> WorkerRow:
    step = "" if worker.step is None else " ".join(filter(None, (str(worker.step), worker.step_name)))
    return WorkerRow(
        slot=worker.slot,
        pid=worker.pid,
        state=worker.state,
        tone=tone_of(worker.state),
        procedure=worker.procedure,
        type_name=(worker.type_name or "").rpartition(".")[2],
        step=step,
        step_age=worker.step_age,
        queued=worker.queued,
        cpu_percent=percent,
        rss=worker.rss,
        restarts=worker.restarts,
        progress=worker.progress,
        message=plain_line(worker.message or ""),
    )
