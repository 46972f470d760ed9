"""Base of procedures under torture that keep no journal: files in the world alone show what of them ran."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from actorproc.procedure.authoring.context import Context
from actorproc.procedure.authoring.procedure import Procedure
from actorproc.procedure.declaring.policies import Limits, RetryPolicy

__all__ = ["PATIENT", "STURDY", "Sturdy"]

STURDY = Limits(crashes=100_000)
PATIENT = RetryPolicy(max_attempts=100_000, base=0.005, cap=0.02, jitter=0.0)
"""With `STURDY`: no kill and no error is the last one that a step is allowed."""


class Sturdy(Procedure):
    """Procedure that goes on whatever kills it, and leaves files in the world.

    Args:
        folder: Folder of the episode.
        orders: Work of the steps, one order for each.
        keys: Locks, as of all procedures under torture.
    """

    limits: ClassVar[Limits] = STURDY
    retry: ClassVar[RetryPolicy] = PATIENT

    def __init__(self, folder: str, orders: list[dict[str, Any]], keys: list[list[str]]) -> None:
        self.folder = folder
        self.orders = orders
        self.keys = keys

    def leave(self, ctx: Context, name: str) -> None:
        """Leave a file with this name."""
        place = Path(self.folder) / "world" / ctx.id
        place.mkdir(parents=True, exist_ok=True)
        (place / name).touch()
