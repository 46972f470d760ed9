"""Damage that was found in the store."""

from __future__ import annotations

__all__ = ["DamageTable"]


class DamageTable:
    """Part of the `EngineState`: damaged procedures and records."""

    def __init__(self) -> None:
        self.procedures: dict[str, str] = {}
        """Procedures that cannot be trusted, with the reason; they are not resident."""
        self.schedules: dict[str, str] = {}
        """Schedules whose rows cannot be read, with the reason; they do not fire."""
        self.flaws: list[str] = []
        """Damaged records that belong to no procedure, and what is made of them; one sentence each."""
