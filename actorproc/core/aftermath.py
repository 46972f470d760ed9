"""Facts kept in memory about trees that have finished."""

from __future__ import annotations

from actorproc.model.policies import Retention
from actorproc.model.records import ProcedureRecord, RemovalRecord

__all__ = ["Aftermath"]

_RETENTION = Retention()


class Aftermath:
    """Part of the `Book`: how long finished trees are kept, and those that are on their way out."""

    def __init__(self) -> None:
        self.retention = _RETENTION
        self.acknowledged: dict[str, float] = {}
        """Finished roots whose results were taken, and when, the first first."""
        self.removals: dict[str, RemovalRecord] = {}
        """Trees that are half removed, by root."""
        self.shedding: dict[str, ProcedureRecord] = {}
        """Ended children of earlier generations (`Status.again`), which are removed in slices; not resident."""
        self.removed: dict[str, int] = {}
        """Procedures removed in batches that may not be stored yet: what the store has of them is void."""
