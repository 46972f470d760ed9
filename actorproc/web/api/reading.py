"""Handlers of lists and of the whole store: status, procedures, locks, workers, activity, types, metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from actorproc.api.reader import StoreReader
from actorproc.model.plain import plain_dict
from actorproc.model.policies import is_nested
from actorproc.model.reports import Looked
from actorproc.model.states import TERMINAL, ProcedureState
from actorproc.report.listing import ListFilter
from actorproc.report.schema.document import document
from actorproc.report.step_log import attempt_info_of
from actorproc.ui.command_words import whole_type
from actorproc.ui.stored_status import stored_status, unfinished_status, unregistered_types
from actorproc.ui.views.failures import failure_groups
from actorproc.ui.views.wait_graph import wait_graph_of
from actorproc.web.answers import ApiError, listed, object_of, shaped_all
from actorproc.web.api.filters import LOOKED, cheap_total, counted, page_of, refuse_hidden, with_store

if TYPE_CHECKING:
    from actorproc.web.api.operations import CheckedRequest
    from actorproc.web.dashboard import Dashboard

__all__ = [
    "activity",
    "count",
    "deaths",
    "failures",
    "graph",
    "hosts",
    "live_part",
    "locks",
    "metrics",
    "poisons",
    "procedures",
    "prometheus",
    "schema",
    "signals",
    "status",
    "type_detail",
    "types",
    "workers",
]

_FAILED = 200
"""Failed procedures that are put into groups: the newest ones."""
_SOME = 20
_DEATHS = 200
_LIVE = tuple(state for state in ProcedureState if state not in TERMINAL)


def status(board: Dashboard, asked: CheckedRequest) -> dict[str, Any]:
    """State of the store and of its manager."""
    del asked
    unfinished = board.kept("status", lambda: board.source.read(with_store(unfinished_status), slow=True))
    found = board.source.read(with_store(lambda store: stored_status(store, unfinished)))
    look = board.source.look()
    if look.health is not None:
        found["health"] = plain_dict(look.health)
        found["unregistered"] = unregistered_types(found["types"], look.health.types)
    return object_of("status", {**found, **live_part(board)})


def live_part(board: Dashboard) -> dict[str, Any]:
    """Facts that the manager tells of itself, as plain data."""
    look = board.source.look()
    metrics = look.metrics
    return {
        "manager": look.state,
        "live": look.is_up,
        "status": look.health.status if look.health is not None else None,
        "pid": look.pid,
        "host": look.host,
        "says": look.says,
        "do": look.do,
        "uptime": metrics.uptime if metrics is not None else None,
        "busy": metrics.workers_busy if metrics is not None else 0,
        "workers": metrics.workers if metrics is not None else 0,
        "queued": metrics.queued if metrics is not None else 0,
        "rates": plain_dict(look.rates),
    }


def failures(board: Dashboard, asked: CheckedRequest) -> dict[str, Any]:
    """Failed procedures in groups."""
    del asked
    groups = board.kept(
        "failures",
        lambda: board.source.read(
            lambda reader: failure_groups(reader.list(state=ProcedureState.FAILED, newest_first=True, limit=_FAILED)),
            slow=True,
        ),
    )
    return listed("failure-group", shaped_all("failure-group", groups))


def procedures(board: Dashboard, asked: CheckedRequest) -> dict[str, Any]:
    """One page of the list."""

    refuse_hidden(board, asked.query)

    def ask(reader: StoreReader) -> dict[str, Any]:
        infos, after, looked = page_of(reader, asked.query)
        rows = [board.payloads.cover(row, "exposed") for row in shaped_all("procedure", infos)]
        return listed("procedure", rows, next=after, total=cheap_total(reader, asked.query), searched=looked)

    return board.source.read(ask)


def count(board: Dashboard, asked: CheckedRequest) -> dict[str, Any]:
    """Number of procedures that match."""
    refuse_hidden(board, asked.query)
    number, is_exact = board.source.read(lambda reader: counted(reader, asked.query), slow=True)
    return object_of("count", {"count": number, "is_exact": is_exact})


def locks(board: Dashboard, asked: CheckedRequest) -> dict[str, Any]:
    """The lock table."""
    found = board.source.read(lambda reader: reader.locks())
    key = asked.query.get("key")
    if key is not None:
        found = [lock for lock in found if is_nested(lock.path, key)]
    if asked.query.get("waited"):
        found = [lock for lock in found if lock.waiters]
    return listed("lock", shaped_all("lock", found[: asked.query["limit"]]), total=len(found))


def graph(board: Dashboard, asked: CheckedRequest) -> dict[str, Any]:
    """The wait-for graph of the locks."""
    del asked
    found = wait_graph_of(board.source.read(lambda reader: reader.locks()))
    return object_of("wait-graph", {**plain_dict(found), "roots": list(found.roots)})


def poisons(board: Dashboard, asked: CheckedRequest) -> dict[str, Any]:
    """Keys that are poisoned."""
    found = board.source.read(lambda reader: reader.poisons())
    return listed("poison", shaped_all("poison", found[: asked.query["limit"]]), total=len(found))


def signals(board: Dashboard, asked: CheckedRequest) -> dict[str, Any]:
    """Signals and events that no procedure has taken."""
    found = board.source.read(lambda reader: reader.signals())
    return listed("signal", shaped_all("signal", found[: asked.query["limit"]]), total=len(found))


def workers(board: Dashboard, asked: CheckedRequest) -> dict[str, Any]:
    """Workers, with the part of a core that each one used; none when no manager answers.

    With a manager in this process `slots` is the number that it was asked for: without those of hosts, dedicated and
    extra ones.
    """
    del asked
    is_up, own = board.source.look().is_up, board.source.manager
    rows = board.workers() if is_up else []
    return listed("worker", rows, total=len(rows), live=is_up, slots=None if own is None else own._slots)


def hosts(board: Dashboard, asked: CheckedRequest) -> dict[str, Any]:
    """Worker hosts that have joined the manager; none when no manager answers."""
    del asked
    rows = board.hosts()
    return listed("host", rows, total=len(rows), live=board.source.look().is_up)


def deaths(board: Dashboard, asked: CheckedRequest) -> dict[str, Any]:
    """Workers that died with a step in hand, the newest first, and the number of all deaths by cause."""
    found = board.kept("deaths", lambda: board.source.read(with_store(lambda store: store.deaths(_DEATHS)), slow=True))
    look = board.source.look()
    by_cause = look.metrics.worker_deaths if look.metrics is not None else {}
    rows = shaped_all("attempt", map(attempt_info_of, found[: asked.query["limit"]]))
    return listed("attempt", rows, by_cause=by_cause)


def activity(board: Dashboard, asked: CheckedRequest) -> dict[str, Any]:
    """Requests of operators, the newest first."""
    given, limit = asked.query, asked.query["limit"]
    start = _offset(given.get("after"))
    found = board.source.read(
        lambda reader: reader.audit_log(
            since=given.get("since"),
            until=given.get("until"),
            verb=given.get("verb"),
            by=given.get("by"),
            limit=start + limit + 1,
        )
    )
    shown = found[start : start + limit]
    return listed("audit", shaped_all("audit", shown), next=str(start + limit) if len(found) > start + limit else None)


def _offset(cursor: str | None) -> int:
    if cursor is None:
        return 0
    if not cursor.isdecimal() or len(cursor) > 9:
        raise ApiError(422, f"after is the `next` of a page of this list, not {cursor!r:.60}")
    return int(cursor)


def types(board: Dashboard, asked: CheckedRequest) -> dict[str, Any]:
    """Types of stored procedures, with the number of those that have not ended."""
    del asked
    unfinished = board.kept("status", lambda: board.source.read(with_store(unfinished_status), slow=True))
    look = board.source.look()
    known = look.health.types if look.health is not None else ()
    names = dict.fromkeys((*board.source.read(lambda reader: reader.types()), *known))
    counts = look.metrics.procedures if look.metrics is not None else {}
    rows = [
        {
            "type_name": name,
            "unfinished": unfinished["types"].get(name, 0),
            "registered": name in known if look.is_up else None,
            "since_start": plain_dict(counts[name]) if name in counts else None,
        }
        for name in sorted(names)
    ]
    return listed("type", shaped_all("type", rows), total=len(rows))


def type_detail(board: Dashboard, asked: CheckedRequest) -> dict[str, Any]:
    """One type: durations of its steps, its failures, and what runs."""
    look = board.source.look()

    def ask(reader: StoreReader) -> dict[str, Any]:
        known = reader.types()
        name = whole_type(asked.path["type"], known)
        if name not in known and not (look.health is not None and name in look.health.types):
            raise ApiError(404, f"no procedure has the type {name!r:.120}", "types are listed by /api/v1/types")
        wanted = ListFilter.of(type_name=name, state=ProcedureState.FAILED, newest_first=True, limit=_FAILED)
        failed = reader.matching(wanted, Looked(LOOKED))
        live = reader.matching(ListFilter.of(type_name=name, state=_LIVE, limit=_SOME), Looked(LOOKED))
        return {
            "type_name": name,
            "failures": shaped_all("failure-group", failure_groups(failed)),
            "unfinished": [board.payloads.cover(row, "exposed") for row in shaped_all("procedure", live)],
        }

    found = board.source.read(ask, slow=True)
    metrics = look.metrics
    steps = [] if metrics is None else _durations(metrics, found["type_name"])
    counts = None if metrics is None else metrics.procedures.get(found["type_name"])
    return object_of("type-detail", {}) | {
        **found,
        "steps": steps,
        "since_start": None if counts is None else plain_dict(counts),
    }


def _durations(metrics: Any, name: str) -> list[dict[str, Any]]:
    named = metrics.named_steps.get(name) or ({"": metrics.steps[name]} if name in metrics.steps else {})
    return [
        {
            "step": step,
            "run": counts.run,
            "failed": counts.failed,
            "retried": counts.retried,
            "crashed": counts.crashed,
            "mean": counts.seconds.sum / counts.seconds.count if counts.seconds.count else None,
            "p50": _finite(counts.seconds.quantile(0.5)),
            "p99": _finite(counts.seconds.quantile(0.99)),
        }
        for step, counts in named.items()
    ]


def _finite(value: float) -> float | None:
    return value if value == value and abs(value) != float("inf") else None  # noqa: PLR0124 - NaN is unlike itself


def metrics(board: Dashboard, asked: CheckedRequest) -> dict[str, Any]:
    """Counters and histograms of the manager."""
    del asked
    return object_of("metrics", board.source.live(lambda engine: engine.metrics(whole=True)))


def prometheus(board: Dashboard, streams: int) -> str:
    """The manager's metrics for a scraper, and those of the page itself."""
    text = board.source.exposition()
    text += "# HELP actorproc_web_streams Open streams of live events.\n# TYPE actorproc_web_streams gauge\n"
    return text + f"actorproc_web_streams {streams}\n"


def schema(board: Dashboard, asked: CheckedRequest) -> dict[str, Any]:
    """The JSON Schema of all objects."""
    del board, asked
    return document()
