"""Lines about one procedure: why it waits, its steps as a timeline, its tree, its fields, its output, its stack."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from actorproc.errors import ActorprocError, UnknownStep
from actorproc.ui.causes import cause_lines, error_lines
from actorproc.ui.text import ago, counted, duration, moment_of, plain_line, size_of
from actorproc.ui.top.look import Wanted
from actorproc.ui.views.timeline import Timeline, bar_text, timeline_of
from actorproc.ui.views.words import attempt_words, facts_of, step_words, tree_lines, value_lines

if TYPE_CHECKING:
    from actorproc.api.client import ProcedureClient
    from actorproc.api.reader import StoreReader
    from actorproc.report.info import ProcedureTree

__all__ = ["detail_lines"]

_Lines = Iterator[tuple[str, str]]
_RECORDS = 500
_LOG_LINES = 1000
_TREE = 500


def detail_lines(
    client: ProcedureClient | None, reader: StoreReader, wanted: Wanted, now: float, path: str | None
) -> _Lines:
    """Lines of one tab, each with the procedure that it is about, or "".

    Args:
        client: of the manager; None: no manager runs, or it does not answer.
        reader: of the store.
        wanted: the procedure and the tab.
        now: epoch seconds.
        path: of the store, for the commands that are shown; None: it is the usual one.
    """
    match wanted.detail:
        case "why":
            yield from _why(client, reader, wanted, now, path)
        case "steps":
            yield from _steps(reader, wanted, now)
        case "tree":
            tree = reader.tree(wanted.id, limit=_TREE)
            names = _names_of(tree)
            yield from ((line, next(names, "")) for line in tree_lines(tree))
        case "state":
            yield from _state(reader, wanted, now)
        case "logs":
            yield from _logs(client, reader, wanted)
        case "stack":
            yield from _stack(client, wanted)


def _names_of(tree: ProcedureTree) -> Iterator[str]:
    """Ids in the order of the lines of a tree."""
    yield tree.info.id
    for child in tree.children:
        yield from _names_of(child)
    if tree.omitted:
        yield ""


def _why(client: ProcedureClient | None, reader: StoreReader, wanted: Wanted, now: float, path: str | None) -> _Lines:
    source = reader if client is None else client
    info, cause = source.info(wanted.id), source.why(wanted.id)
    yield from ((line, "") for line in cause_lines(cause, path))
    for title, error in (("error", info.error), ("its undo fails", info.undo_error)):
        if error is not None:
            yield "", ""
            yield from ((line, "") for line in error_lines(title, error))
    yield "", ""
    for name, value in facts_of(info, now):
        yield f"{name:<12}{plain_line(value)}", ""


def _steps(reader: StoreReader, wanted: Wanted, now: float) -> _Lines:
    info = reader.info(wanted.id)
    steps, attempts = reader.steps(wanted.id), reader.attempts(wanted.id)
    timeline = timeline_of(info, steps, attempts, now)
    yield f"{counted(len(steps), 'record')} over {duration(max(0.0, timeline.end - timeline.start))}", ""
    yield from ((line, "") for line in _drawn(timeline, wanted.width))
    yield "", ""
    yield from ((plain_line(step_words(step, now)), "") for step in steps[-_RECORDS:][::-1])
    if attempts:
        yield "", ""
        yield "failed attempts", ""
        yield from ((plain_line(attempt_words(attempt, now)), "") for attempt in attempts[::-1])


def _drawn(timeline: Timeline, width: int) -> Iterator[str]:
    if timeline.bands:
        yield "more than 500 steps: how many began in each part of the time"
        for band in timeline.bands:
            if band.counts:
                yield f"{moment_of(band.start)}  " + ", ".join(f"{n} {kind}" for kind, n in band.counts.items())
        return
    names = [plain_line(f"{row.number} {row.name}".rstrip())[:20] for row in timeline.rows]
    room = max((len(name) for name in names), default=0)
    shown = list(zip(names, timeline.rows, strict=True))[-40:]
    for name, row in shown:
        tries = f" x{len(row.bars)}" if len(row.bars) > 1 else ""
        bar = bar_text(row, timeline.start, timeline.end, max(10, width - room - 6))
        yield f"{name:<{room}} {bar}{tries}"
    if shown:
        yield f"{'':<{room}} █ done  x failed  ! crashed  / killed  ◂ undone  ▶ running  · waiting"


def _state(reader: StoreReader, wanted: Wanted, now: float) -> _Lines:
    try:
        info = reader.state(wanted.id, wanted.record)
    except UnknownStep as error:
        yield plain_line(error), ""
        return
    where = f", at {info.position}" if info.position else ""
    words = f"record {info.number}{where}: {info.outcome} {ago(info.at, now)} ago, {size_of(info.size)}"
    yield plain_line(f"{words}   [ older  ] newer"), ""
    if info.state is not None:
        yield from ((line, "") for line in value_lines(info.state, "state", 100))
    elif info.missing and info.output is None:
        yield f"no state: {info.missing}", ""
    if info.output is not None:
        yield from ((line, "") for line in value_lines(info.output, "output", 100))
    for name, note in info.notes:
        yield from ((line, "") for line in value_lines(note, f"note {plain_line(name)}  ", 100))
    if info.changed:
        yield plain_line(f"changed     {', '.join(info.changed)}"), ""


def _logs(client: ProcedureClient | None, reader: StoreReader, wanted: Wanted) -> _Lines:
    entries = reader.logs(wanted.id) if client is None else client.logs(wanted.id)
    for entry in entries[-_LOG_LINES:]:
        yield plain_line(f"{moment_of(entry.at)[11:]} {entry.stream:<6} {entry.text}"), ""
    if not entries:
        yield "it has printed nothing that is kept", ""


def _stack(client: ProcedureClient | None, wanted: Wanted) -> _Lines:
    if client is None:
        yield "no manager answers, so no step of it runs or can be looked at", ""
        return
    try:
        text = client.stack(wanted.id)
    except ActorprocError as error:
        yield plain_line(error), ""
        return
    for line in text.rstrip().split("\n") if text else ("no step of it runs now",):
        yield plain_line(line), ""
