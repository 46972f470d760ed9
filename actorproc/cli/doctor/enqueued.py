"""Findings of ``doctor`` about what applications enqueued: in a database, or in a copy of one."""

from __future__ import annotations

from typing import Any

__all__ = ["enqueued_findings"]


def enqueued_findings(report: dict[str, Any], typed: str) -> list[dict[str, Any]]:
    """Findings about rows that wait, and rows that were refused.

    Args:
        report: The report, with the facts and the owner.
        typed: The place, for commands to type.

    Returns:
        The findings.
    """
    from actorproc.ui.text import duration

    facts, found = report["facts"], []
    command = f"actorproc --path {typed} enqueued"
    if facts.get("enqueued"):
        age = duration(max(0.0, report["checked_at"] - facts["enqueued_since"]))
        says = f"enqueued procedures that wait for a manager: {facts['enqueued']}, the oldest for {age}"
        severity = "note" if report["owner"] is None else "warning"
        found.append({"severity": severity, "says": says, "command": command})
    if facts.get("enqueued_refused"):
        says = f"enqueued procedures that were refused: {facts['enqueued_refused']}; none is made of them"
        found.append({"severity": "warning", "says": says, "command": command})
    return found
