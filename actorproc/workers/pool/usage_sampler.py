"""Sampler of what limited steps use while they run: the part of their limits that only their machine can see to.

CPU time and memory of a worker and its descendants are measured, and their number is counted. A worker whose GIL is
held by C code can watch nothing, and rlimits of CPU time count from the start of the process, not of the step.
"""

from __future__ import annotations

from collections.abc import Callable

from actorproc.model.ids import StepToken
from actorproc.model.names import step_in_words
from actorproc.model.policies import StepLimits
from actorproc.workers.base import WorkerExceeded
from actorproc.workers.os.cgroups import Cgroups
from actorproc.workers.os.process_count import started_by
from actorproc.workers.os.timers import PoolTimers
from actorproc.workers.os.usage import family_usage
from actorproc.workers.pool.worker_link import WatchedStep, WorkerLink

__all__ = ["UsageSampler"]

_INTERVAL = 0.1
"""Seconds between two samples of a limited step."""


class UsageSampler:
    """Samples steps with ``cpu_time``, ``memory_hard`` or ``processes``, and limits their memory by the kernel.

    Used under the pool's lock.

    Args:
        timers: The timers of that thread.
        cgroups: The control groups of the pool.
        tell: Called once for a step that uses more than it may.
    """

    def __init__(self, timers: PoolTimers, cgroups: Cgroups, tell: Callable[[WorkerExceeded], None]) -> None:
        self._timers = timers
        self._cgroups = cgroups
        self._tell = tell
        self._links: list[WorkerLink] = []
        """Workers with a step that is watched, or that was at the last look."""

    def begin(self, link: WorkerLink | None, token: StepToken, limits: StepLimits) -> None:
        """Watch a step from now on; one that has been answered already is not."""
        if link is None or link.dead or link.process is None or token not in link.given:
            return
        self._guard(link, limits.memory_hard)
        link.watched = WatchedStep(token, limits)
        if not self._links:
            self._timers.after(_INTERVAL, self._look)
        if link not in self._links:
            self._links.append(link)
        self._sample(link, link.watched)

    def end(self, link: WorkerLink) -> None:
        """Let a worker go whose step has ended: the next one may use what it likes."""
        link.watched = None
        self._guard(link, None)

    def _guard(self, link: WorkerLink, size: int | None) -> None:
        """Set the limit of the kernel on a worker and what it starts, in bytes; None lifts it."""
        if size != link.guarded and self._cgroups.memory is not None and link.process is not None and not link.dead:
            self._cgroups.memory.limit(link.process.pid, size)
        link.guarded = size

    def _look(self) -> None:
        self._links = [link for link in self._links if link.watched is not None and not link.dead]
        for link in self._links:
            if link.watched is not None:
                self._sample(link, link.watched)
        if self._links:
            self._timers.after(_INTERVAL, self._look)

    def _sample(self, link: WorkerLink, step: WatchedStep) -> None:
        used = family_usage(link.process.pid) if link.process is not None else None
        if used is None or link.worker is None or step.is_told:
            return
        cpu, rss = used
        link.note(rss, link.oom_before)
        if step.cpu_before is None:
            step.cpu_before = cpu
        words = step_in_words(step.token.step, link.owner_of(step.token).step_name)
        excess = _judge(step.limits, words, cpu - step.cpu_before, rss) or self._count(link, step.limits, words)
        if excess is not None:
            step.is_told = True
            self._tell(WorkerExceeded(link.worker, step.token, *excess))

    def _count(self, link: WorkerLink, limits: StepLimits, step: str) -> tuple[str, str] | None:
        """Excess of processes that the step has started; None: it has no such limit, or keeps to it."""
        count = self._processes(link) if limits.processes is not None else None
        if count is None or limits.processes is None or count <= limits.processes:
            return None
        why = f"killed in {step} because it had started {count} processes that lived, "
        return "process-limit", f"{why}more than its limit of {limits.processes}"

    def _processes(self, link: WorkerLink) -> int | None:
        """Number of processes that a worker has started and that live; None when that cannot be told."""
        if link.process is None:
            return None
        inside = self._cgroups.pids.processes(link.process.pid) if self._cgroups.pids is not None else None
        return max(filter(None, (inside, started_by(link.process.pid))), default=None)


def _judge(limits: StepLimits, step: str, cpu: float, rss: int) -> tuple[str, str] | None:
    """Kind and words of an excess in CPU seconds since the begin of the step, or in resident bytes."""
    if limits.memory_hard is not None and rss > limits.memory_hard:
        why = (
            f"killed in {step} because it and the processes below it held {rss / 1e6:.0f} MB of memory, "
            f"more than its memory_hard of {limits.memory_hard / 1e6:.0f} MB"
        )
        return "memory-limit", why
    if limits.cpu_time is not None and cpu > limits.cpu_time:
        return "cpu-limit", f"{step} used {cpu:.1f} s of CPU time, more than its cpu_time of {limits.cpu_time:g} s"
    return None
