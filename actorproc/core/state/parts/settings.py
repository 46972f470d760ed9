"""Settings in force."""

from __future__ import annotations

from actorproc.model.policies import Quotas, Retention, Scheduling

__all__ = ["DEFAULT_QUOTAS", "DEFAULT_RETENTION", "DEFAULT_SCHEDULING", "Settings"]

DEFAULT_QUOTAS = Quotas()
DEFAULT_RETENTION = Retention()
DEFAULT_SCHEDULING = Scheduling()


class Settings:
    """Part of the `EngineState`: settings of the configuration; `scheduling` is as the last resize left it."""

    def __init__(self, scheduling: Scheduling) -> None:
        self.scheduling = scheduling
        self.quotas = DEFAULT_QUOTAS
        self.retention = DEFAULT_RETENTION

    def put_in_force(self, quotas: Quotas, retention: Retention) -> None:
        """Set the quotas and the retention of the configuration."""
        self.quotas = quotas
        self.retention = retention

    def reschedule(self, scheduling: Scheduling) -> None:
        """Set the scheduling that a resize asked for."""
        self.scheduling = scheduling
