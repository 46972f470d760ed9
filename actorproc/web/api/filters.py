"""Filters of lists in queries and in bodies, with the names of the command line."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from actorproc.api.reader import StoreReader
from actorproc.model.reports import Looked
from actorproc.model.states import Phase, ProcedureState
from actorproc.report.info import ProcedureInfo
from actorproc.report.listing import ListFilter
from actorproc.support.search_texts import values_in
from actorproc.ui.command_words import whole_type
from actorproc.ui.views.rows import why_of
from actorproc.web.answers import ApiError
from actorproc.web.api.operations import LIMIT, Parameter

if TYPE_CHECKING:
    from actorproc.web.dashboard import Dashboard

__all__ = [
    "FILTERS",
    "LOOKED",
    "PAGING",
    "counted",
    "filter_of",
    "has_filter",
    "matching",
    "page_of",
    "refuse_hidden",
    "with_store",
]

SEARCHED = 1000
"""Rows that are searched for a text."""
COUNTED = 100_000
"""Rows that are counted."""
LOOKED = 20_000
"""Heads that are read for one page, where no index has just those that match."""
ALL_LOOKED = 200_000
"""Heads that are read to find all that match."""
_CHUNK = 256
_ENDED_WELL = frozenset({ProcedureState.SUCCESS, ProcedureState.ROLLEDBACK})
_NAMES = {
    "type": "type_name",
    "prefix": "id_prefix",
    "roots": "roots_only",
    "since": "created_since",
    "until": "created_until",
    "changed_since": "updated_since",
    "changed_until": "updated_until",
}
"""Names of arguments of `list` that differ from the names of the filters."""

FILTERS = (
    Parameter("state", "texts", "states; may be repeated, or separated by commas"),
    Parameter("phase", "texts", "phases; may be repeated, or separated by commas"),
    Parameter("type", "text", "name of the type, or the end of it"),
    Parameter("tag", "each", "tag: a word, or key=value; may be repeated"),
    Parameter("where", "each", "value of a searchable field, field=value, or field for none; may be repeated"),
    Parameter("owner", "text", "owner that the submit named"),
    Parameter("root", "text", "id of the root of a tree"),
    Parameter("parent", "text", "id of the parent"),
    Parameter("prefix", "text", "beginning of the id"),
    Parameter("q", "text", f"text in the id, type, tags, reason or error; looks at {SEARCHED} rows"),
    Parameter("since", "moment", "submitted at this time or later"),
    Parameter("until", "moment", "submitted before this time"),
    Parameter("changed_since", "moment", "changed at this time or later"),
    Parameter("changed_until", "moment", "not changed since this time"),
    Parameter("roots", "bool", "leave out children"),
    Parameter("troubled", "bool", "only what has failed or crashed at its present step"),
)
"""Parameters that choose procedures."""

PAGING = (
    Parameter("limit", "int", "greatest number of items", least=1, most=LIMIT, default=50),
    Parameter("after", "text", "`next` of the page before"),
)


def with_store(ask: Callable[[Any], Any]) -> Callable[[StoreReader], Any]:
    """A question to a reader that is answered by its store, which one thread reads at a time."""

    def locked(reader: StoreReader) -> Any:
        with reader._lock:
            return ask(reader._store)

    return locked


def has_filter(query: Mapping[str, Any]) -> bool:
    """Something narrows the choice."""
    return any(query.get(parameter.name) for parameter in FILTERS)


def refuse_hidden(board: Dashboard, query: Mapping[str, Any]) -> None:
    """Raise `ApiError` (422) for a search for values on a page that does not show them: its answer would tell them."""
    if query.get("where") and board.payloads.are_covered:
        raise ApiError(422, "where is refused: values are hidden or replaced on this page", "filter by tags")


def filter_of(reader: StoreReader, query: Mapping[str, Any], **others: Any) -> ListFilter:
    """The filter that a query says. Raises `ValueError`s that name the argument."""
    given = {_NAMES.get(p.name, p.name): query[p.name] for p in FILTERS if p.name in query and p.name != "q"}
    if "state" in given:
        given["state"] = [text.upper() for text in given["state"]]
    if "phase" in given:
        given["phase"] = [text.lower() for text in given["phase"]]
    if "where" in given:
        given["where"] = values_in(given["where"])
    if "type_name" in given:
        given["type_name"] = whole_type(given["type_name"], reader.types())
    return ListFilter.of(**given, **others)


def page_of(reader: StoreReader, query: Mapping[str, Any]) -> tuple[list[ProcedureInfo], str | None, int]:
    """One page of a list: the rows, the cursor of the next page, and the number of procedures that were looked at.

    A page may have fewer rows than there is room for, or none, and a next one all the same. So a filter that matches
    little or nothing is answered as soon as others.
    """
    limit, order = query["limit"], query.get("order", "trouble")
    if order not in ("trouble", "newest", "oldest"):
        raise ApiError(422, f"order is trouble, newest or oldest, not {order!r:.60}")
    phases = filter_of(reader, query).phases
    is_live = phases is not None and Phase.DONE not in phases  # of which the list knows where they are
    parts = [(frozenset(ProcedureState) - _ENDED_WELL), _ENDED_WELL] if order == "trouble" and not is_live else [None]
    part, after = _place(query.get("after"), len(parts))
    found: list[ProcedureInfo] = []
    looked, searched = Looked(LOOKED), 0
    while part < len(parts):
        wanted = filter_of(reader, query, newest_first=order != "oldest", after=after)
        states = parts[part]
        if states is not None:
            states = states if wanted.states is None else wanted.states & states
            if wanted.troubled and wanted.states is None:  # a success has no trouble
                states -= {ProcedureState.SUCCESS}
            wanted = msgspec.structs.replace(wanted, states=states)
        for info in _rows(reader, wanted, query, limit + 1 - len(found), looked) if states is None or states else ():
            searched += 1
            if _has_text(info, query.get("q")):
                if len(found) == limit:
                    return found, f"{part}.{found[-1].id}", searched
                found.append(info)
            if query.get("q") and searched >= SEARCHED:
                return found, f"{part}.{info.id}", searched
        if looked.cut_at is not None:
            return found, f"{part}.{looked.cut_at}", looked.count
        if len(found) == limit and part + 1 < len(parts):
            return found, f"{part + 1}.", searched
        part, after = part + 1, None
    return found, None, searched


def _place(cursor: str | None, parts: int) -> tuple[int, str | None]:
    if cursor is None:
        return 0, None
    part, dot, after = cursor.partition(".")
    if not dot or part not in [str(place) for place in range(parts)]:
        raise ApiError(422, f"after is the `next` of a page of this list, not {cursor!r:.60}")
    return int(part), after or None


def _rows(
    reader: StoreReader, wanted: ListFilter, query: Mapping[str, Any], limit: int, looked: Looked
) -> Iterator[ProcedureInfo]:
    """Rows in order: a page of them, or with a text to look for as many as are asked for."""
    if not query.get("q"):
        yield from reader.matching(msgspec.structs.replace(wanted, limit=limit), looked)
        return
    while True:
        chunk = reader.matching(msgspec.structs.replace(wanted, limit=_CHUNK), looked)
        yield from chunk
        if len(chunk) < _CHUNK or looked.cut_at is not None:
            return
        wanted = msgspec.structs.replace(wanted, after=chunk[-1].id)


def _has_text(info: ProcedureInfo, text: str | None) -> bool:
    if not text:
        return True
    return text.lower() in f"{info.id} {info.type_name} {' '.join(info.tags)} {why_of(info)}".lower()


def matching(reader: StoreReader, query: Mapping[str, Any], *, roots: bool = False) -> list[str]:
    """Ids of all that match, oldest first. Raises `ApiError` (422) when that are too many."""
    found: list[str] = []
    chosen = {**query, "roots": True} if roots else query
    wanted, looked = filter_of(reader, chosen), Looked(ALL_LOOKED)
    while True:
        chunk = reader.matching(msgspec.structs.replace(wanted, limit=_CHUNK), looked)
        found += [info.id for info in chunk if _has_text(info, chosen.get("q"))]
        if looked.cut_at is not None:
            msg = f"more than {ALL_LOOKED:,} procedures have to be looked at to find all that match"
            raise ApiError(422, msg, "narrow the filter by state, type, tag or root", count=len(found))
        if len(chunk) < _CHUNK:
            return found
        if len(found) > COUNTED:
            raise ApiError(422, f"more than {COUNTED:,} procedures match", "narrow the filter", count=COUNTED)
        wanted = msgspec.structs.replace(wanted, after=chunk[-1].id)


def counted(reader: StoreReader, query: Mapping[str, Any]) -> tuple[int, bool]:
    """Number of procedures that match, and whether it is exact: at most 100,000 are counted, of 200,000 looked at."""
    if set(query) <= {"state", "limit"} and (cheap := cheap_total(reader, query)) is not None:
        return cheap, True
    try:
        return len(matching(reader, query)), True
    except ApiError as error:
        if "count" not in error.body:
            raise
        return error.body["count"], False


def cheap_total(reader: StoreReader, query: Mapping[str, Any]) -> int | None:
    """Number of procedures that match, where counters of the store say it; else None."""
    given = {parameter.name for parameter in FILTERS if query.get(parameter.name)}
    if not given <= {"state"}:
        return None
    counts: dict[ProcedureState, int] = with_store(lambda store: store.count_states())(reader)
    states = filter_of(reader, query).states
    return sum(count for state, count in counts.items() if states is None or state in states)
