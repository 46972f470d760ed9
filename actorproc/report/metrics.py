"""Counters and histograms of an engine at one moment, and their text for Prometheus."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import msgspec

from actorproc.model.crash_report import KINDS_OF_DEATH
from actorproc.model.plain import plain_dict
from actorproc.report.hosts import HOST_STATES, HostInfo

__all__ = [
    "CONTENT_TYPE",
    "NO_MANAGER",
    "OTHER",
    "STATUSES",
    "TYPES",
    "Histogram",
    "Metrics",
    "ProcedureCounts",
    "StepCounts",
]

STATUSES = (
    *("running", "paused", "gated", "degraded", "storage-trouble"),
    *("failed", "broken", "stopping", "stopped"),
)
"""Values of `Health.status`."""
TYPES = 200
"""Types that are told apart."""
OTHER = "other"
"""Name of all further types."""
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""Of the text for Prometheus, which refuses others."""
NO_MANAGER = """\
# HELP actorproc_manager_up 1: a manager runs.
# TYPE actorproc_manager_up gauge
actorproc_manager_up 0
"""
"""Text for Prometheus where no manager answers."""


class Histogram(msgspec.Struct, frozen=True, kw_only=True):
    """Counts by size."""

    bounds: tuple[float, ...]
    """Upper bounds of the buckets, growing; each bound belongs to its bucket."""
    counts: tuple[int, ...]
    """Per bucket, one more than there are bounds: the last one has no upper bound."""
    sum: float

    @property
    def count(self) -> int:
        """Number of observations."""
        return sum(self.counts)

    def quantile(self, part: float) -> float:
        """The upper bound of the bucket in which this part (0 to 1) of all is reached; NaN when there are none."""
        wanted, seen = part * self.count, 0
        for bound, count in zip((*self.bounds, math.inf), self.counts, strict=True):
            seen += count
            if count and seen >= wanted:
                return bound
        return math.nan


class ProcedureCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Procedures of one type since the manager started, children included."""

    submitted: int = 0
    succeeded: int = 0
    failed: int = 0
    rolledback: int = 0


class StepCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Steps of one type since the manager started, undo steps included."""

    run: int
    """Steps that were answered, well or not."""
    failed: int
    """Answered steps that raised."""
    retried: int
    """Answered steps that ran as a second or later attempt."""
    crashed: int
    """Steps that took their worker along, time limits included."""
    killed: int
    """Attempts that an operator ended (`kill`); they are no crashes."""
    seconds: Histogram
    """Seconds that they ran in their workers."""
    queue_seconds: Histogram
    """Seconds that they waited for a worker before."""


class Metrics(msgspec.Struct, frozen=True, kw_only=True):
    """One snapshot of an engine. Counters start at 0 with the manager; times in seconds, sizes in bytes."""

    at: float
    """Epoch seconds (UTC)."""
    uptime: float
    procedures: dict[str, ProcedureCounts]
    """By type."""
    steps: dict[str, StepCounts]
    """By type."""
    named_steps: dict[str, dict[str, StepCounts]]
    """By type and name of the step ("undo reserve": its undo), of classes whose steps have names; 200 at most.

    All further ones are "other" of the type "other"."""
    replayed: int
    """Steps handed out a second time because their first answer never came."""
    stale_results: int
    """Answers dropped because their step had been given to another worker."""
    lost_commits: int
    """Commits that were durable, and that the store had no more when it was opened again."""
    clock_jumps: int
    """Jumps, by more than a second, of a clock that is the store's own, as that of a database is."""
    commits: int
    commit_seconds: Histogram
    """From the request of a commit to its word."""
    batch_events: Histogram
    """Number of events in one commit."""
    batch_writes: Histogram
    """Records stored by one commit."""
    queued: int
    """Procedures that could run now if a worker had room."""
    in_hand: int
    """Steps in workers' hands."""
    lock_waiting: int
    """Procedures that wait for locks now."""
    lock_waits: Histogram
    """Seconds of the waits for locks that are over."""
    workers: int
    workers_busy: int
    worker_restarts: int
    store_bytes: int
    """Size of the store's file."""
    store_used_bytes: int
    """Of that, what is in use; the rest is used again before the file grows."""
    store_procedures: int
    watchers: int
    events_lost: int
    """Lifecycle events dropped because logs or hooks were too slow."""
    retention_backlog: int
    """Finished roots that should have been removed and have not been looked at yet."""
    retention_lag: float
    """Seconds by which the oldest of them is overdue."""
    version: str
    """Version of this package."""
    python: str
    """Version of the interpreter."""
    health: str
    """The status that `Health` gives."""
    commit_trouble: float
    """Seconds for which commits have been refused; 0: they are not."""
    poisoned_keys: int
    queue_age: float
    """Seconds that the procedure has waited for a worker which waits longest."""
    control_clients: int
    """Programs that are connected through the control socket."""
    worker_deaths: dict[str, int]
    """By cause: the kind of the crash report, "killed" by an operator included."""
    worker_cpu: dict[int, float]
    """Seconds of processor time that the present worker of each slot has used."""
    worker_resident: dict[int, int]
    """Bytes of memory that it has resident."""
    states: dict[str, int] | None
    """Procedures by state, of a `whole` snapshot; else None."""
    phases: dict[str, int] | None
    """Unfinished procedures by phase, of a `whole` snapshot of at most 20,000 of them; else None."""
    oldest_unfinished: dict[str, float] | None
    """Seconds since the oldest unfinished procedure of each type was submitted; None as for `phases`."""
    epoch: int = 0
    """Number of owners that the store has had."""
    leads: bool = True
    """This manager leads, as that of a directory does; False: it follows another one."""
    takeovers: int = 0
    """Number of times that this manager became the leader of a store that several machines share."""
    deposed: int = 0
    """Number of times that another manager took the lead from this one."""
    late_renewals: int = 0
    """Renewals of this manager's lease that came later than half a lease after the one before."""
    slots_parked: int = 0
    """Slots of workers that rest, as their workers failed too often."""
    regained_locks: int = 0
    """Number of times that this manager, while it led, took the lock of the store again as its session had ended."""
    store_round_trip: float | None = None
    """Seconds of the last renewal of this manager's lease in the database; None: it does not lead, or needs none."""
    hosts: tuple[HostInfo, ...] = ()
    """The worker hosts that have joined."""
    host_losses: int = 0
    """Worker hosts that were lost: silent for too long, broken, or not there again after a change of leaders."""
    adopted_steps: int = 0
    """Steps that hosts went on with when this manager became the leader."""
    link_resumes: int = 0
    """Times that the link with a host broke, and went on over a new connection."""
    spans_dropped: int = 0
    """Spans of `tracing=` that were dropped, as `Tracing.dropped` counts them."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data that JSON can hold, in this order of fields."""
        return plain_dict(self)

    def prometheus(self) -> str:
        """The text of Prometheus' exposition format (content type ``text/plain; version=0.0.4; charset=utf-8``)."""
        return "".join(f"{line}\n" for line in self._lines())

    def _lines(self) -> Iterator[str]:
        yield from self._counter_lines()
        yield from self._level_lines()
        yield from self._host_lines()

    def _level_lines(self) -> Iterator[str]:
        """Lines of gauges with labels, and of what concerns workers."""
        yield from _head("build_info", "gauge", "Always 1; the labels say what runs.")
        yield _sample("build_info", 1, version=self.version, python=self.python)
        yield from _head("manager_up", "gauge", "1: a manager runs.")
        yield _sample("manager_up", 1)
        yield from _head("health", "gauge", "1 for the status that health() gives, 0 for each other one.")
        for status in STATUSES:
            yield _sample("health", status == self.health, status=status)
        for name, values, label, help_text in (
            ("procedures", self.states, "state", "Procedures in the store by state."),
            ("procedures_by_phase", self.phases, "phase", "Unfinished procedures by phase."),
            (
                "oldest_unfinished_seconds",
                self.oldest_unfinished,
                "type",
                "Seconds since the oldest unfinished procedure of a type was submitted.",
            ),
            ("worker_resident_bytes", self.worker_resident, "slot", "Bytes resident of the worker in a slot."),
        ):
            if values is not None:
                yield from _head(name, "gauge", help_text)
                for key, value in values.items():
                    yield _sample(name, value, **{label: str(key)})
        yield from _head("worker_cpu_seconds_total", "counter", "Processor time of the present worker of a slot.")
        for slot, seconds in self.worker_cpu.items():
            yield _sample("worker_cpu_seconds_total", seconds, slot=str(slot))
        yield from _head("worker_deaths_total", "counter", "Workers that died, by the kind of their crash report.")
        # All of them from the start: an increase to 1 of a series that was not there before is none to Prometheus.
        for cause, count in {**dict.fromkeys(KINDS_OF_DEATH, 0), **self.worker_deaths}.items():
            yield _sample("worker_deaths_total", count, cause=cause)

    def _host_lines(self) -> Iterator[str]:
        """Lines about worker hosts."""
        yield from _head("hosts", "gauge", "Worker hosts by state.")
        for state in HOST_STATES:
            yield _sample("hosts", sum(host.state == state for host in self.hosts), state=state)
        for name, field, help_text in (
            ("host_workers", "workers", "Worker processes of a host."),
            ("host_workers_busy", "busy", "Worker processes of a host with a step in them."),
            ("host_silence_seconds", "silent_for", "Seconds since a host was heard of last."),
            ("host_round_trip_seconds", "round_trip", "Seconds of the last sign of life of a host and its answer."),
            ("host_outstanding_bytes", "outstanding", "Bytes that a host has not acknowledged."),
        ):
            yield from _head(name, "gauge", help_text)
            for host in self.hosts:
                if (value := getattr(host, field)) is not None:
                    yield _sample(name, value, host=host.name)
        yield from _head("store_round_trip_seconds", "gauge", "Seconds of the last renewal of the lease.")
        if self.store_round_trip is not None:
            yield _sample("store_round_trip_seconds", self.store_round_trip)

    def _counter_lines(self) -> Iterator[str]:
        yield from _head("procedures_total", "counter", "Procedures by type and by what became of them.")
        for name, counts in sorted(self.procedures.items()):
            for event in ("submitted", "succeeded", "failed", "rolledback"):
                yield _sample("procedures_total", getattr(counts, event), type=name, event=event)
        for event, help_text in (
            ("run", "Steps that were answered."),
            ("failed", "Steps that raised."),
            ("retried", "Steps that ran as a second or later attempt."),
            ("crashed", "Steps that took their worker along."),
            ("killed", "Attempts that an operator ended."),
        ):
            yield from _head(f"steps_{event}_total", "counter", help_text)
            for name, steps in sorted(self.steps.items()):
                yield _sample(f"steps_{event}_total", getattr(steps, event), type=name)
        yield from _head("step_seconds", "histogram", "Seconds of steps in their workers.")
        for name, steps in sorted(self.steps.items()):
            yield from _buckets("step_seconds", steps.seconds, type=name)
        yield from _head("step_queue_seconds", "histogram", "Seconds that steps waited for a worker.")
        for name, steps in sorted(self.steps.items()):
            yield from _buckets("step_queue_seconds", steps.queue_seconds, type=name)
        yield from _head("step_duration_seconds", "histogram", "Seconds of steps in their workers, by name.")
        for name, named in self.named_steps.items():
            for step, steps in named.items():
                yield from _buckets("step_duration_seconds", steps.seconds, type=name, step=step)
        for name, value, help_text in (
            ("steps_replayed_total", self.replayed, "Steps handed out again because no answer came."),
            ("stale_results_total", self.stale_results, "Answers dropped because their step was given to another."),
            ("clock_jumps_total", self.clock_jumps, "Jumps of the store's clock."),
            ("lost_commits_total", self.lost_commits, "Durable commits that the store has lost."),
            ("takeovers_total", self.takeovers, "Times that this manager became the leader of a shared store."),
            ("deposed_total", self.deposed, "Times that another manager took the lead from this one."),
            ("late_renewals_total", self.late_renewals, "Renewals of the lease that came after more than half of it."),
            ("regained_locks_total", self.regained_locks, "Locks of a shared store that were taken again."),
            ("host_losses_total", self.host_losses, "Worker hosts that were lost."),
            ("adopted_steps_total", self.adopted_steps, "Steps that hosts went on with under this leader."),
            ("link_resumes_total", self.link_resumes, "Links with hosts that went on over a new connection."),
            ("worker_restarts_total", self.worker_restarts, "Workers that were replaced."),
            ("events_lost_total", self.events_lost, "Lifecycle events dropped because logs or hooks were too slow."),
            ("spans_dropped_total", self.spans_dropped, "Spans dropped because their exporter hung or raised."),
        ):
            yield from _head(name, "counter", help_text)
            yield _sample(name, value)
        for name, histogram, help_text in (
            ("commit_seconds", self.commit_seconds, "Seconds of commits."),
            ("batch_events", self.batch_events, "Events in one commit."),
            ("batch_writes", self.batch_writes, "Records stored by one commit."),
            ("lock_wait_seconds", self.lock_waits, "Seconds procedures waited for locks."),
        ):
            yield from _head(name, "histogram", help_text)
            yield from _buckets(name, histogram)
        for name, level, help_text in (
            ("uptime_seconds", self.uptime, "Seconds since the manager started."),
            (
                "leader",
                int(self.leads),
                "1 for a manager that leads, as that of a directory does; 0 for one that follows.",
            ),
            ("epoch", self.epoch, "Epoch of the store."),
            ("queued", self.queued, "Procedures that could run if a worker had room."),
            ("queue_age_seconds", self.queue_age, "Seconds that the one has waited for a worker which waits longest."),
            ("poisoned_keys", self.poisoned_keys, "Keys that failed procedures left poisoned."),
            ("commit_trouble_seconds", self.commit_trouble, "Seconds for which commits have been refused; 0: none is."),
            ("control_clients", self.control_clients, "Programs connected through the control socket."),
            ("steps_in_hand", self.in_hand, "Steps in workers' hands."),
            ("lock_waiting", self.lock_waiting, "Procedures that wait for locks."),
            ("workers", self.workers, "Worker processes."),
            ("workers_busy", self.workers_busy, "Worker processes with a step in them."),
            ("slots_parked", self.slots_parked, "Slots that rest, as their workers failed too often."),
            ("store_bytes", self.store_bytes, "Size of the store's file."),
            ("store_used_bytes", self.store_used_bytes, "Bytes of the store in use."),
            ("store_procedures", self.store_procedures, "Procedures in the store, finished ones included."),
            ("watchers", self.watchers, "Open watches."),
            ("retention_backlog", self.retention_backlog, "Finished procedures that should have been removed."),
            ("retention_lag_seconds", self.retention_lag, "Seconds by which the oldest of them is overdue."),
        ):
            yield from _head(name, "gauge", help_text)
            yield _sample(name, level)


def _head(name: str, kind: str, help_text: str) -> Iterator[str]:
    yield f"# HELP actorproc_{name} {help_text}"
    yield f"# TYPE actorproc_{name} {kind}"


def _sample(name: str, value: float, **labels: str) -> str:
    shown = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
    return f"actorproc_{name}{{{shown}}} {value:.17g}" if shown else f"actorproc_{name} {value:.17g}"


def _buckets(name: str, histogram: Histogram, **labels: str) -> Iterator[str]:
    total = 0
    for bound, count in zip((*histogram.bounds, math.inf), histogram.counts, strict=True):
        total += count
        yield _sample(f"{name}_bucket", total, **labels, le="+Inf" if math.isinf(bound) else f"{bound:g}")
    yield _sample(f"{name}_sum", histogram.sum, **labels)
    yield _sample(f"{name}_count", total, **labels)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
