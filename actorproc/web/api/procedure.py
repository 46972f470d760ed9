"""Handlers of one procedure: all about it, its cause, steps, states, children, output, stack and timeline."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from actorproc.api.reader import StoreReader
from actorproc.errors import UnknownProcedure, UsageError
from actorproc.model.plain import plain_dict
from actorproc.report.audit import AuditInfo
from actorproc.report.schema.shape import iso
from actorproc.report.states import changes_between
from actorproc.report.why import Cause
from actorproc.ui.causes import cause_lines, effect_of, typed_repair
from actorproc.ui.procedure_detail import detail_of, locks_of, values_of
from actorproc.ui.text import plain_line
from actorproc.ui.views.timeline import timeline_of
from actorproc.web.answers import ApiError, listed, object_of, shaped_all

if TYPE_CHECKING:
    from actorproc.web.api.operations import CheckedRequest
    from actorproc.web.dashboard import Dashboard

__all__ = [
    "attempts",
    "audit",
    "children",
    "detail",
    "diff",
    "locks",
    "logs",
    "output",
    "removed",
    "stack",
    "state",
    "states",
    "step",
    "steps",
    "timeline",
    "tree",
    "why",
]

_VALUES = ("input", "fields", "output", "exposed")
_READING = frozenset({"show", "steps", "why", "tree", "status", "stack", "list", "logs", "poisons", "doctor"})
"""Commands among the repairs that only look."""


def removed(reader: StoreReader, id: str, error: UnknownProcedure) -> ApiError | None:
    """The answer for a procedure that was removed, of which requests are still noted; None: nothing is known of it."""
    try:
        rows = reader.audit(id)
    except (UnknownProcedure, UsageError):
        return None
    return ApiError(
        410,
        f"{error}: it was removed, and only what operators asked of it is kept",
        code="removed",
        audit=shaped_all("audit", rows),
    )


def _of(board: Dashboard, asked: CheckedRequest, ask: Callable[[StoreReader, str], Any]) -> Any:
    """The store's answer about the procedure that the path names."""
    id = asked.path["id"]

    def told(reader: StoreReader) -> Any:
        try:
            return ask(reader, id)
        except UnknownProcedure as error:
            known = removed(reader, id, error)
            if known is None:
                raise
            raise known from error

    return board.source.read(told)


def detail(board: Dashboard, asked: CheckedRequest) -> dict[str, Any]:
    """All about it."""

    def ask(reader: StoreReader, id: str) -> dict[str, Any]:
        info = board.source.known(lambda source: source.info(id))
        states = reader.states(id)
        found = detail_of(
            info,
            reader.steps(id),
            locks_of(id, reader.locks()),
            reader.audit(id),
            reader.attempts(id),
            values_of(states),
        )
        return board.payloads.cover(object_of("procedure-detail", found), *_VALUES)

    found: dict[str, Any] = _of(board, asked, ask)
    return found


def why(board: Dashboard, asked: CheckedRequest) -> dict[str, Any]:
    """Reasons for its standstill, with the repairs as requests."""
    cause: Cause = _of(board, asked, lambda _, id: board.source.known(lambda source: source.why(id)))
    path = board.source.option
    found = object_of("cause", cause)
    found["lines"] = [plain_line(line) for line in cause_lines(cause, path)]
    found["repairs_to_do"] = list(_repairs(cause, path))
    return found


def _repairs(cause: Cause, path: str | None) -> Iterator[dict[str, Any]]:
    """Repairs of the whole chain, each once: what may be asked of the API, and the command."""
    told: set[str] = set()
    for link in _links(cause):
        for repair in link.repairs:
            if repair in told:
                continue
            told.add(repair)
            words = _words(repair)
            says = plain_line(effect_of(repair))
            verb = words[1] if len(words) > 1 and words[0] == "actorproc" else ""
            values = [word for word in words[2:] if not word.startswith("-")]
            flags = {word[2:].replace("-", "_"): True for word in words[2:] if word.startswith("--")}
            yield {
                "verb": verb,
                "id": values[0] if values else None,
                "flags": flags,
                "says": says,
                "command": typed_repair(repair, path),
                "looks": verb in _READING or not verb,
            }


def _links(cause: Cause) -> Iterator[Cause]:
    yield cause
    for below in cause.causes:
        yield from _links(below)


def _words(repair: str) -> list[str]:
    try:
        return shlex.split(repair)
    except ValueError:
        return []


def steps(board: Dashboard, asked: CheckedRequest) -> dict[str, Any]:
    """Its step log."""
    rows = _of(board, asked, lambda reader, id: reader.steps(id))
    return _paged("step", rows, asked)


def attempts(board: Dashboard, asked: CheckedRequest) -> dict[str, Any]:
    """Its failed attempts."""
    rows = _of(board, asked, lambda reader, id: reader.attempts(id, asked.query.get("step")))
    return _paged("attempt", rows, asked)


def audit(board: Dashboard, asked: CheckedRequest) -> dict[str, Any]:
    """Requests of operators about it, also once it was removed."""
    rows: list[AuditInfo] = board.source.read(lambda reader: reader.audit(asked.path["id"]))
    return _paged("audit", rows, asked)


def _paged(kind: str, rows: list[Any], asked: CheckedRequest) -> dict[str, Any]:
    limit, start = asked.query["limit"], asked.query.get("offset", 0)
    shown = rows[start : start + limit]
    after = str(start + limit) if len(rows) > start + limit else None
    return listed(kind, shaped_all(kind, shown), next=after, total=len(rows), offset=start)


def state(board: Dashboard, asked: CheckedRequest) -> dict[str, Any]:
    """Its fields, now or at a record."""
    number = asked.query.get("step")
    found = _of(board, asked, lambda reader, id: reader.state(id, number))
    return _state(board, found)


def step(board: Dashboard, asked: CheckedRequest) -> dict[str, Any]:
    """One record: the fields, and the numbers of its neighbours."""
    text = asked.path["n"]
    if not text.isdecimal() or len(text) > 9:
        raise ApiError(422, f"a record has a number, not {text!r:.60}")
    number = int(text)

    def ask(reader: StoreReader, id: str) -> tuple[Any, list[int]]:
        return reader.state(id, number), [row.number for row in reader.steps(id)]

    found, numbers = _of(board, asked, ask)
    return _state(board, found) | {
        "previous": max((n for n in numbers if n < number), default=None),
        "next": min((n for n in numbers if n > number), default=None),
    }


def states(board: Dashboard, asked: CheckedRequest) -> dict[str, Any]:
    """Its fields at each record."""
    limit, start = asked.query["limit"], asked.query.get("offset", 0)
    rows = _of(board, asked, lambda reader, id: reader.states(id))
    shown = [_state(board, row) for row in rows[start : start + limit]]
    after = str(start + limit) if len(rows) > start + limit else None
    return listed("state", shown, next=after, total=len(rows), offset=start)


def _state(board: Dashboard, found: Any) -> dict[str, Any]:
    return board.payloads.cover(object_of("state", found.to_dict()), "state", "output", "notes")


def diff(board: Dashboard, asked: CheckedRequest) -> dict[str, Any]:
    """Differences between two records."""
    first, second = asked.query.get("first"), asked.query.get("second")
    if first is None or second is None:
        raise ApiError(422, "a difference needs first and second, the numbers of two records")
    pair = _of(board, asked, lambda reader, id: (reader.state(id, first), reader.state(id, second)))
    changes = [plain_dict(change) for change in changes_between(*map(board.payloads.compared, pair))]
    if board.payloads.mode == "hidden":
        changes = [change | {"before": "(hidden)", "after": "(hidden)"} for change in changes]
    return object_of("diff", {"procedure": asked.path["id"], "first": first, "second": second, "changes": changes})


def output(board: Dashboard, asked: CheckedRequest) -> dict[str, Any]:
    """Its output; null while it has none."""

    def ask(reader: StoreReader, id: str) -> tuple[Any, str]:
        return values_of(reader.states(id))["output"], reader.info(id).type_name

    found, type_name = _of(board, asked, ask)
    value = None if found is None else board.payloads.shown(type_name, "output", found.plain())
    return object_of("output", {"id": asked.path["id"]}) | {"output": value}


def children(board: Dashboard, asked: CheckedRequest) -> dict[str, Any]:
    """A page of its children, from any place."""
    limit, offset = asked.query["limit"], asked.query["offset"]
    chosen = [text.upper() for text in asked.query.get("state", [])]
    page = _of(
        board,
        asked,
        lambda reader, id: board.children.page(reader, id, state=chosen, offset=offset, limit=limit),
    )
    rows = [board.payloads.cover(row, "exposed") for row in shaped_all("procedure", page["infos"])]
    after = str(offset + limit) if page["total"] > offset + limit else None
    return listed("procedure", rows, next=after, total=page["total"], offset=offset, by_state=page["by_state"])


def tree(board: Dashboard, asked: CheckedRequest) -> dict[str, Any]:
    """The procedure and all below it."""
    found = _of(board, asked, lambda reader, id: reader.tree(id, limit=asked.query["limit"]))
    answer = object_of("tree", found)
    pending = [answer]
    while pending:
        node = pending.pop()
        board.payloads.cover(node["info"], "exposed")
        pending += node["children"]
    return answer


def logs(board: Dashboard, asked: CheckedRequest) -> dict[str, Any]:
    """Its prints and log records, after a place that an answer before has told."""
    id, limit = asked.path["id"], asked.query["limit"]
    _of(board, asked, lambda reader, name: reader.info(name))
    found = board.source.known(lambda source: source.logs(id))
    items, after = board.logs_after(found, asked.query.get("after"), limit)
    return listed("log", shaped_all("log", items), next=after)


def stack(board: Dashboard, asked: CheckedRequest) -> dict[str, Any]:
    """The Python stack of its running step; "" when none runs."""
    id = asked.path["id"]
    _of(board, asked, lambda reader, name: reader.info(name))
    return object_of("stack", {"id": id, "stack": board.source.live(lambda engine: engine.stack(id))})


def locks(board: Dashboard, asked: CheckedRequest) -> dict[str, Any]:
    """Locks that it holds or waits for."""
    found = _of(board, asked, lambda reader, id: (reader.info(id), locks_of(id, reader.locks())))[1]
    return listed("lock", shaped_all("lock", found[: asked.query["limit"]]), total=len(found))


def timeline(board: Dashboard, asked: CheckedRequest) -> dict[str, Any]:
    """Its steps and attempts as bars."""

    def ask(reader: StoreReader, id: str) -> dict[str, Any]:
        info = reader.info(id)
        held = [lock.since for lock in locks_of(id, reader.locks()) if lock.holder == id] if info.locks else []
        locked_at = min(filter(None, held), default=None)
        found = plain_dict(timeline_of(info, reader.steps(id), reader.attempts(id), time.time(), locked_at))
        parts = (part for row in found["rows"] for part in (*row["bars"], *row["waits"]))
        for band in (found, *found["bands"], *parts):
            band["start"], band["end"] = iso(band["start"]), iso(band["end"])
        return found

    return object_of("timeline", {"procedure": asked.path["id"], **_of(board, asked, ask)})
