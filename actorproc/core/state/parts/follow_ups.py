"""Consequences of an event that are still to be carried out, before the decision is closed."""

from __future__ import annotations

__all__ = ["FollowUps"]


class FollowUps:
    """Part of the `EngineState`: empty between two decisions, but for `asking` and `stalled`."""

    def __init__(self) -> None:
        self.scopes_to_advance: dict[str, None] = {}
        """Tops of failure scopes to look at again."""
        self.retaken: dict[str, None] = {}
        """Retried roots whose trees hold again what they held: their members go on."""
        self.bereft: dict[str, None] = {}
        """Trees that gave up the last lock they held."""
        self.hurried: dict[str, None] = {}
        """Trees that were lent a higher priority: what is queued of them goes before others."""
        self.victims: dict[str, list[str]] = {}
        """Roots to fail for a cycle of lock waiting, with the cycle."""
        self.refused: dict[str, str] = {}
        """Procedures that asked for a poisoned key, with that key."""
        self.orphaned: dict[str, None] = {}
        """Procedures that end and whose outstanding children are to be aborted."""
        self.outlived: dict[str, None] = {}
        """Procedures that go on without their root, and were asked to abort when there was no way back for it."""
        self.overdue: dict[str, None] = {}
        """Procedures that were to be handed out after their deadline."""
        self.stalled: dict[str, frozenset[str]] = {}
        """Tops of failure scopes whose turn waits for locks that others hold, while another undo waits as well; with
        the scopes of the tree that stood still then."""
        self.searches: dict[str, None] = {}
        """Trees in which the undo under way may have come into a cycle of waiting: a scope stalled, or was bypassed."""
        self.asking: dict[str, None] = {}
        """Procedures to be asked whether they may be aborted."""
