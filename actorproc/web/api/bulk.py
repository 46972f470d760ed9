"""A verb on all that match: counted and agreed on first, then done one by one, with an outcome of each."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.datastructures import QueryParams

from actorproc.errors import ActorprocError
from actorproc.ui.command_words import in_command_words
from actorproc.ui.verbs import VERBS
from actorproc.web.answers import ApiError, error_of, object_of
from actorproc.web.api.acting import VerbBody, act, outcome_of
from actorproc.web.api.filters import FILTERS, has_filter, matching, refuse_hidden
from actorproc.web.api.operations import given_of

if TYPE_CHECKING:
    from actorproc.web.api.operations import CheckedRequest
    from actorproc.web.dashboard import Dashboard

__all__ = ["BulkBody", "BulkRun", "bulk"]

_NAMED = 20
_MOST = 10_000
"""Ids that one request may name."""


class BulkBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A verb, what it is for, and how many procedures that were when the user agreed."""

    verb: str
    filter: dict[str, Any] | None = None
    """Names and values as in the query of the list; not with ids."""
    ids: list[str] | None = None
    flags: dict[str, bool] = {}
    reason: str | None = None
    dry_run: bool = False
    expect: int | None = None
    """Number that was agreed on; needed unless it is a dry run."""
    slack: int = 0
    """Difference that is agreed to as well."""


class BulkRun:
    """Outcomes of one run, as they come; iterated in a thread. `stop` ends it after the present one."""

    def __init__(self, board: Dashboard, body: BulkBody, ids: list[str], by: str) -> None:
        self._board, self._body, self._ids, self._by = board, body, ids, by
        self._stopped = threading.Event()

    def stop(self) -> None:
        """Do no more of them. Results so far stay."""
        self._stopped.set()

    def __iter__(self) -> Iterator[dict[str, Any]]:
        done = failed = 0
        verb = VerbBody(reason=self._body.reason, **self._body.flags)
        source = self._board.source
        for id in self._ids:
            if self._stopped.is_set():
                break
            try:
                result, applied = source.steer(
                    lambda engine, id=id: act(engine, self._body.verb, id, verb, self._by)  # type: ignore[misc]
                )
                done += 1
                yield outcome_of(id, self._body.verb, result, applied=applied)
            except (ActorprocError, ValueError, TypeError, OSError) as error:
                failed += 1
                yield outcome_of(id, self._body.verb, error=in_command_words(str(error), source.option))
                if error_of(error, None).status == 503:
                    break
        yield object_of("bulk", {"count": len(self._ids), "done": done, "failed": failed, "dry_run": False, "ids": []})


def bulk(board: Dashboard, asked: CheckedRequest) -> dict[str, Any] | BulkRun:
    """Look what a verb would be done to, or begin with it."""
    body = msgspec.convert(asked.body, BulkBody)
    known = VERBS.get(body.verb)
    if known is None:
        raise ApiError(422, f"there is no verb {body.verb!r:.60} for many", f"the verbs are {', '.join(VERBS)}")
    for flag in body.flags:
        if flag not in known.flags:
            raise ApiError(422, f"{body.verb} takes no {flag!r:.60}")
    ids = _chosen(board, body, roots=known.is_for_roots)
    if body.dry_run:
        fields = {"count": len(ids), "ids": ids[:_NAMED], "done": 0, "failed": 0, "dry_run": True}
        return object_of("bulk", fields)
    if body.expect is None:
        raise ApiError(422, "expect is the number of procedures that was agreed on", "ask with dry_run first")
    if abs(len(ids) - body.expect) > max(0, body.slack):
        says = f"{len(ids)} procedures match now, and {body.expect} were agreed on"
        raise ApiError(409, says, "look again, and agree to the new number", code="count-changed", count=len(ids))
    return BulkRun(board, body, ids, asked.user)


def _chosen(board: Dashboard, body: BulkBody, *, roots: bool) -> list[str]:
    if (body.ids is None) == (body.filter is None):
        raise ApiError(422, "give ids or a filter, and not both")
    if body.ids is not None:
        if len(body.ids) > _MOST:
            raise ApiError(422, f"{len(body.ids):,} ids are too many; {_MOST:,} are the most", "give a filter")
        return list(dict.fromkeys(body.ids))
    pairs = [
        (name, str(int(item)) if isinstance(item, bool) else str(item))
        for name, value in (body.filter or {}).items()
        for item in (value if isinstance(value, list) else [value])
        if item is not None
    ]
    query = given_of(FILTERS, QueryParams(pairs))
    if not has_filter(query):
        raise ApiError(422, "a filter that narrows nothing is refused", "choose a state, a type, a tag or a text")
    refuse_hidden(board, query)
    return board.source.read(lambda reader: matching(reader, query, roots=roots), slow=True)
