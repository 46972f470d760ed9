"""The report of a deploy check: what would go on, and what would be parked."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from actorproc.model.plain import plain_dict

__all__ = ["DeployFinding", "DeployReport", "Verdict"]

Verdict = Literal["goes-on", "parks", "parks-when-undone", "unknown"]


class DeployFinding(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict of these classes on the procedures of one type that stand at one step."""

    type_name: str
    step: str
    """The name of the step or state a saga or a machine stands before; the number of the step for others."""
    verdict: Verdict
    """``goes-on``; ``parks``; ``parks-when-undone``: it goes on, and a rollback would park it; ``unknown``: it cannot
    be told, because secrets were left out of an export."""
    reason: str
    """Reason why it would be parked, in the words of the worker; "" when it goes on."""
    count: int
    ids: tuple[str, ...]
    """The first five of them."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data that JSON can hold."""
        return plain_dict(self)


class DeployReport(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict of these classes on all unfinished procedures of a store."""

    checked: int
    """Procedures that were read."""
    findings: tuple[DeployFinding, ...]
    """By type, step and reason, in the order in which the first procedure of each was submitted."""

    @property
    def parks(self) -> tuple[DeployFinding, ...]:
        """The findings about what would be parked, now or when it is undone."""
        return tuple(found for found in self.findings if found.verdict in ("parks", "parks-when-undone"))

    @property
    def ok(self) -> bool:
        """Nothing would be parked."""
        return not self.parks

    def to_dict(self) -> dict[str, Any]:
        """Plain data that JSON can hold."""
        return plain_dict(self)
