"""State of a manager, for a supervisor of the host."""

from __future__ import annotations

from typing import Any

import msgspec

from actorproc.model.plain import plain_dict
from actorproc.report.hosts import HostInfo

__all__ = ["Health", "RetentionHealth", "SlotHealth"]


class SlotHealth(msgspec.Struct, frozen=True, kw_only=True):
    """One worker slot; `reason` says why it is backing off or parked."""

    slot: int
    state: str
    """booting, running, backing-off, parked."""
    incarnation: int
    restarts: int
    reason: str | None


class RetentionHealth(msgspec.Struct, frozen=True):
    """Backlog in the removal of finished procedures, measured by what `Config` says."""

    backlog: int = 0
    """Finished roots that should be gone and have not been looked at yet; counted once a second."""
    lag: float = 0.0
    """Seconds by which the oldest of them is overdue; 0 between two passes."""
    is_behind: bool = False
    """So late that the store grows: more ends than is removed, or the removal has just begun to catch up."""

    def in_words(self) -> str:
        """One sentence."""
        return (
            f"retention is behind: {self.backlog} finished procedures should have been removed, the oldest of them "
            f"{self.lag:.0f} s ago; submit less, or raise Config.retain_for"
        )


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """A report that a supervisor of the host can act on; times in seconds.

    `status` is one of:

    - "running", "paused" or "stopped";
    - "gated": started with the gate closed, to be opened with `open`;
    - "degraded": some worker slots are parked, or damaged procedures stand still;
    - "storage-trouble": commits are refused and retried;
    - "failed": no worker can be started any more;
    - "broken": a bug stopped the manager;
    - "stopping": it waits for the steps that run, and hands out no others.
    """

    status: str
    problems: tuple[str, ...]
    """One sentence each, saying what is wrong; empty when all is well."""
    slots: tuple[SlotHealth, ...]
    busy: int
    """Workers with a step in them."""
    queued: int
    """Steps handed to workers and waiting behind another one."""
    commits: int
    last_commit: float
    slowest_commit: float
    stale_results: int
    """Answers dropped because their step had been given to another worker."""
    paused: str | None = None
    """Reason for which an operator paused it; None: it is not paused."""
    limits: str = "none"
    """Enforcement of `Limits.memory_hard`: "cgroup" by the kernel, "rlimit" by sampling; "none" when stopped."""

    process_limits: str = "none"
    """Protection against a fork bomb in a step with `Limits.processes` until the host's next look, ten times a second:
    "cgroup" and "rlimit" are of the kernel; "sampling": nothing does; "none" when stopped."""
    retention: RetentionHealth = RetentionHealth()
    """Backlog in the removal of finished procedures."""
    types: tuple[str, ...] = ()
    """Names of the types whose classes are registered; procedures of other types are parked."""
    role: str | None = None
    """With a store that several machines share: "leading", or "following" the manager that does; else None."""
    leader: str | None = None
    """The manager that leads, by process, machine and epoch; None: it is not known, or the store is a directory."""
    certificate_days: float | None = None
    """Days for which the certificate of `Config.tls` is still valid, as links show it; None: none was given."""
    hosts: tuple[HostInfo, ...] = ()
    """The worker hosts that have joined; one that is silent is named in `problems`, and changes no `status`."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data that JSON can hold."""
        return plain_dict(self)

    @property
    def ok(self) -> bool:
        """Everything works as it should."""
        return self.status in {"running", "paused", "gated", "stopping"}

    @classmethod
    def stopped(cls, *problems: str) -> Health:
        """The report of a manager that is not running.

        Args:
            problems: Sentences that say why, when it ended by itself.

        Returns:
            The report.
        """
        return cls(
            status="stopped",
            problems=problems,
            slots=(),
            busy=0,
            queued=0,
            commits=0,
            last_commit=0.0,
            slowest_commit=0.0,
            stale_results=0,
        )
