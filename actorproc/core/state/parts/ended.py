"""Finished trees: those whose results were taken, and those that are on their way out."""

from __future__ import annotations

from actorproc.model.rows.records import ProcedureRecord, RemovalRecord

__all__ = ["EndedTrees"]


class EndedTrees:
    """Part of the `EngineState`: finished trees that were acknowledged or are being removed."""

    def __init__(self) -> None:
        self.acknowledged: dict[str, float] = {}
        """Finished roots whose results were taken, and when, the first first."""
        self.removals: dict[str, RemovalRecord] = {}
        """Trees that are half removed, by root."""
        self.shedding: dict[str, ProcedureRecord] = {}
        """Ended children of earlier generations (`Status.again`), which are removed in slices; not resident."""
        self.removed: dict[str, int] = {}
        """Procedures removed in batches that may not be stored yet: what the store has of them is void."""

    def settle(self, batch: int) -> None:
        """Note that this batch is stored, with what it removed."""
        self.removed = {name: removed for name, removed in self.removed.items() if removed > batch}
