"""Result of a replay: the end of the step this time, and how it compares with the stored one."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from actorproc.model.plain import plain_dict
from actorproc.report.states import StateChange

__all__ = ["ReplayResult"]


class ReplayResult(msgspec.Struct, frozen=True, kw_only=True):
    """One step, run again. Nothing of it is stored."""

    procedure: str
    type_name: str
    step: int
    """Number of the record from which it ran."""
    step_name: str | None
    undo: bool
    outcome: str
    """End of the step in words: "executing", "done", "failed: ValueError: …"."""
    verdict: Literal["same", "differs", "nothing stored", "not replayable"]
    """Result of the comparison with the state and outcome that are stored after the step."""
    reason: str
    """In words: what differs, or why it cannot be replayed or compared."""
    changes: tuple[StateChange, ...] = ()
    """Changes of its state by the step."""
    differences: tuple[StateChange, ...] = ()
    """Places where the state after it differs from the stored one (`before`: stored, `after`: now)."""
    children: tuple[str, ...] = ()
    """Children that it would start: id and type."""
    locks: tuple[str, ...] = ()
    """Locks that it would take for its next step."""
    remembered: tuple[str, ...] = ()
    """Keys of `ctx.remember` that have no stored value, so it was made anew."""
    refused: tuple[str, ...] = ()
    """Uses of the network and of processes that were refused."""
    written: tuple[str, ...] = ()
    """Files outside of the temporary directory that it opened for writing, or changed."""
    traceback: str = ""

    @property
    def same(self) -> bool:
        """It did not end in another way than what is stored."""
        return self.verdict in ("same", "nothing stored")

    def to_dict(self) -> dict[str, Any]:
        """Plain data that JSON can hold."""
        return plain_dict(self)
