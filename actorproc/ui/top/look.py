"""One look at a store: what is asked for, and what was found."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from actorproc.report.hosts import HostInfo
from actorproc.ui.views.failures import FailureGroup
from actorproc.ui.views.header import Header
from actorproc.ui.views.rows import ProcedureRow
from actorproc.ui.views.workers import WorkerRow

__all__ = ["DETAILS", "Detail", "Look", "Pane", "Wanted"]

Pane = Literal["now", "procedures", "locks", "activity", "hosts", "procedure"]
Detail = Literal["why", "steps", "tree", "state", "logs", "stack"]
DETAILS: tuple[Detail, ...] = ("why", "steps", "tree", "state", "logs", "stack")


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """A question: the part of the store that the screen shows."""

    pane: Pane = "now"
    filters: dict[str, Any] = {}
    """Arguments of `list`."""
    text: str = ""
    """Rows have it in their id, type or reason."""
    limit: int = 100
    id: str = ""
    """The procedure of the pane "procedure"."""
    detail: Detail = "why"
    record: int | None = None
    """Number of the record whose state is shown; None: the newest."""
    width: int = 80


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """An answer."""

    wanted: Wanted
    at: float
    """Epoch seconds."""
    header: Header
    workers: tuple[WorkerRow, ...] = ()
    hosts: tuple[HostInfo, ...] = ()
    rows: tuple[ProcedureRow, ...] = ()
    """Of the panes "now" (in trouble) and "procedures"."""
    is_more: bool = False
    """There are more rows than `Wanted.limit`."""
    groups: tuple[FailureGroup, ...] = ()
    lines: tuple[tuple[str, str], ...] = ()
    """Of the other panes: text, and the procedure that a line is about, or ""."""
    trouble: str = ""
    """Reason why this part could not be read."""
