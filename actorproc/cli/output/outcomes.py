"""Outcome of a verb for one subject: a row for people, an object for programs."""

from __future__ import annotations

from typing import Any

from actorproc.cli.output.output import Column
from actorproc.ui.text import plain_line

__all__ = ["DRY_RUN", "columns_of_outcomes", "outcome"]

DRY_RUN = "would be done (dry run)"


def outcome(
    subject: str | None,
    verb: str,
    result: Any = None,
    *,
    error: str | None = None,
    applied: str | None = None,
) -> dict[str, Any]:
    """An ``outcome`` as JSON shows it. `applied`: to whom it was said, the "manager" or the "stopped store"."""
    return {
        "id": subject,
        "verb": verb,
        "ok": error is None,
        "result": result if error is None else None,
        "error": error,
        "applied_to": applied,
    }


def columns_of_outcomes(subject: str = "ID") -> list[Column]:
    """Columns of outcomes, for people."""
    return [
        (subject, lambda row: row["id"]),
        ("VERB", lambda row: row["verb"]),
        ("RESULT", lambda row: plain_line(row["result"] if row["ok"] else f"refused: {row['error']}")),
    ]
