"""Cells and lines of what was looked at: for the screen, and as plain text."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from actorproc.model.placement import offer_in_words
from actorproc.model.states import ProcedureState
from actorproc.report.hosts import HostInfo
from actorproc.ui.text import clipped, fitting, plain_line, size_of, width_of
from actorproc.ui.top.look import DETAILS, Look, Wanted
from actorproc.ui.views.failures import FailureGroup
from actorproc.ui.views.header import Header, sparkline
from actorproc.ui.views.rows import ProcedureRow
from actorproc.ui.views.tones import tone_of
from actorproc.ui.views.workers import WorkerRow

__all__ = [
    "GROUPS",
    "GROUPS_DROP",
    "HOSTS",
    "HOSTS_DROP",
    "PROCEDURES",
    "PROCEDURES_DROP",
    "WORKERS",
    "WORKERS_DROP",
    "Parts",
    "Row",
    "group_cells",
    "header_lines",
    "host_cells",
    "plain_look",
    "procedure_cells",
    "title_parts",
    "worker_cells",
]

WORKERS = ("SLOT", "PID", "CPU", "MEMORY", "FOR", "STEP", "PROCEDURE", "SAYS")
WORKERS_DROP = ("PID", "MEMORY", "STEP")
PROCEDURES = ("ID", "TYPE", "STATE", "PHASE", "STEP", "TRY", "AGE", "CHANGED", "WHY")
PROCEDURES_DROP = ("CHANGED", "TYPE", "TRY", "AGE", "STATE", "STEP")
GROUPS = ("COUNT", "TYPE", "STEP", "ERROR", "NEWEST", "MESSAGE")
GROUPS_DROP = ("NEWEST", "STEP")
HOSTS = ("HOST", "MACHINE", "STATE", "BUSY", "HEARD", "TRIP", "WAITING", "OFFERS", "ADDRESS")
HOSTS_DROP = ("WAITING", "TRIP", "OFFERS", "MACHINE")
_SPARKS = 20


Parts = tuple[tuple[str, str], ...]
"""A line: texts, each with the name of its style."""


class Row(NamedTuple):
    """A row of a table."""

    key: str
    """The procedure it is about; "" for none."""
    cells: tuple[str, ...]
    tones: tuple[str, ...] = ()
    """Names of the cells' styles; cells behind the last one are plain."""


def _age(seconds: float) -> str:
    """A span in one unit: it changes seldom, so few cells are drawn again."""
    for unit, name in ((86_400.0, "d"), (3600.0, "h"), (60.0, "m")):
        if seconds >= unit:
            return f"{int(seconds // unit)}{name}"
    return f"{max(0, int(seconds))}s"


def _said(progress: float | None, message: str) -> str:
    if progress is None:
        return message
    filled = round(max(0.0, min(1.0, progress)) * 10)
    return " ".join(filter(None, (f"{'█' * filled}{'·' * (10 - filled)} {progress:.0%}", message)))


# ---------------------------------------------------------------- rows
def worker_cells(workers: Iterable[WorkerRow]) -> list[Row]:
    """Rows of the table of workers."""
    return [
        Row(
            worker.procedure or "",
            (
                str(worker.slot),
                str(worker.pid),
                "-" if worker.cpu_percent is None else f"{worker.cpu_percent:.0f}%",
                size_of(worker.rss),
                "-" if worker.step_age is None else _age(worker.step_age),
                worker.step or "-",
                worker.procedure or worker.state,
                _said(worker.progress, worker.message) or worker.type_name,
            ),
            ("plain", "dim", "plain", "plain", "plain", "plain", worker.tone),
        )
        for worker in workers
    ]


def procedure_cells(rows: Iterable[ProcedureRow], at: float) -> list[Row]:
    """Rows of a table of procedures."""
    return [
        Row(
            row.id,
            (
                row.id,
                row.type_name,
                row.state,
                row.state if row.phase == "done" else row.phase,
                row.step,
                str(row.attempt),
                _age(at - row.created_at),
                _age(at - row.changed_at),
                _said(row.progress, row.why),
            ),
            ("plain", "dim", tone_of(row.state), row.tone),
        )
        for row in rows
    ]


def group_cells(groups: Iterable[FailureGroup], at: float) -> list[Row]:
    """Rows of the table of failures."""
    return [
        Row(
            group.ids[0],
            (
                str(group.count),
                group.type_name,
                group.step,
                group.error,
                f"{_age(at - group.newest_at)} ago",
                group.message,
            ),
            ("bold", "dim", "plain", "bad"),
        )
        for group in groups
    ]


def host_cells(hosts: Iterable[HostInfo]) -> list[Row]:
    """Rows of the table of worker hosts."""
    return [
        Row(
            "",
            (
                host.name,
                host.machine,
                host.state,
                f"{host.busy}/{host.workers}",
                f"{_age(host.silent_for)} ago",
                "-" if host.round_trip is None else f"{host.round_trip * 1000:.1f} ms",
                size_of(host.outstanding),
                offer_in_words(host.labels, host.resources) or "-",
                host.address,
            ),
            ("bold", "plain", {"joined": "good", "silent": "bad"}.get(host.state, "warn")),
        )
        for host in hosts
    ]


# ---------------------------------------------------------------- title
def title_parts(wanted: Wanted, look: Look | None, sort: str, filter_line: str) -> Parts:
    """The line above the rows of a pane.

    Args:
        wanted: The pane.
        look: Its rows; None: not known yet.
        sort: Order of the rows.
        filter_line: The filter as it was typed.

    Returns:
        The parts of the line.
    """
    match wanted.pane:
        case "now":
            count = "" if look is None else f"{len(look.rows)}{'+' if len(look.rows) >= wanted.limit else ''}"
            return (("now", "bold"), (f"  {count} in trouble, by {sort}", "dim"))
        case "procedures":
            count = "" if look is None else f"{len(look.rows)}{'+' if look.is_more else ''} rows, by {sort}"
            shown = f"  {filter_line}" if filter_line else "  unfinished and failed roots first"
            return (("procedures", "bold"), (shown, "calm" if filter_line else "dim"), (f"  {count}", "dim"))
        case "procedure":
            tabs = tuple((f" {name}", "bold" if name == wanted.detail else "dim") for name in DETAILS)
            return ((clipped(wanted.id, 40), "bold"), ("  ", "plain"), *tabs)
        case "hosts":
            count = "" if look is None else f"  {len(look.hosts)} that have joined"
            return (("hosts", "bold"), (count, "dim"))
        case _:
            return ((wanted.pane, "bold"),)


# ---------------------------------------------------------------- header
def header_lines(header: Header, at: float, *, is_paused: bool = False) -> list[Parts]:
    """Three lines: the manager, the procedures, and what is wrong.

    Args:
        header: what is known.
        at: epoch seconds of the look.
        is_paused: the screen is not refreshed.
    """
    clock = time.strftime("%H:%M:%S", time.localtime(at)) + (" held" if is_paused else "")
    return [
        ((clock, "warn" if is_paused else "dim"), ("  ", "plain"), (header.status, header.tone), *_manager(header)),
        tuple(_counts(header)),
        _third(header),
    ]


def _manager(header: Header) -> Iterator[tuple[str, str]]:
    if header.status == "no store":
        return
    if header.pid is None:
        yield ": no manager runs, verbs are applied to the stopped store", "dim"
        return
    up = "" if header.uptime is None else f", up {_age(header.uptime)}"
    yield f"  pid {header.pid}{up}", "dim"
    if header.workers:
        yield (
            f"  {header.busy}/{header.workers} busy, {header.queued} queued, {header.lock_waiting} wait for locks",
            "plain",
        )
    if header.hosts:
        yield f"  {header.hosts} host{'' if header.hosts == 1 else 's'}", "plain"
        if header.silent:
            yield f", {header.silent} silent", "bad"


def _counts(header: Header) -> Iterator[tuple[str, str]]:
    names = [name for name in (*map(str, ProcedureState), *header.counts) if header.counts.get(name)]
    for place, name in enumerate(dict.fromkeys(names)):
        yield ("  " if place else "") + f"{header.counts[name]:,} ", "plain"
        yield name, tone_of(name) if name == "FAILED" else "dim"
    if header.store_bytes is not None:
        yield f"  {size_of(header.store_bytes)}", "dim"


def _third(header: Header) -> Parts:
    if header.problems:
        more = f" (and {len(header.problems) - 1} more)" if len(header.problems) > 1 else ""
        return ((header.problems[0] + more, "bad" if header.tone == "bad" else "warn"),)
    if header.paused is not None:
        return ((f"paused: {header.paused or 'no reason given'}", "warn"),)
    rates = header.rates
    if rates is None or not rates.ended_series:
        return (("", "plain"),)
    return (
        (f"{rates.ended:.1f} ends/s ", "plain"),
        (sparkline(rates.ended_series, _SPARKS), "calm"),
        (f"  {rates.steps:.1f} steps/s ", "plain"),
        (sparkline(rates.steps_series, _SPARKS), "calm"),
        (f"  {rates.commits:.1f} commits/s", "dim"),
    )


# ---------------------------------------------------------------- plain text
def plain_look(look: Look, width: int | None = None) -> Iterator[str]:
    """One look as text: the header, the workers, what stands still, and failures in groups.

    Args:
        look: of the pane "now".
        width: columns; None: nothing is cut.
    """
    for line in header_lines(look.header, look.at):
        text = plain_line("".join(part for part, _ in line))
        if text:
            yield text
    for problem in look.header.problems[1:]:
        yield plain_line(problem)
    if look.trouble:
        yield plain_line(look.trouble)
    yield from _table("hosts", HOSTS, HOSTS_DROP, host_cells(look.hosts), width)
    yield from _table("workers", WORKERS, WORKERS_DROP, worker_cells(look.workers), width)
    rows = procedure_cells(look.rows, look.at)
    yield from _table("in trouble", PROCEDURES, PROCEDURES_DROP, rows, width)
    yield from _table("failures", GROUPS, GROUPS_DROP, group_cells(look.groups, look.at), width)


def _table(
    title: str, headings: Sequence[str], drop: Sequence[str], rows: Sequence[Row], width: int | None
) -> Iterator[str]:
    if not rows:
        return
    cells = [tuple(plain_line(cell) for cell in row.cells) for row in rows]
    kept = range(len(headings)) if width is None else fitting(headings, cells, width, drop)
    widths = {place: max(width_of(row[place]) for row in (headings, *cells)) for place in kept}
    yield ""
    yield title
    for row in (tuple(headings), *cells):
        yield "  ".join(row[place] + " " * (widths[place] - width_of(row[place])) for place in kept).rstrip()
