"""Requests of operators, as they are shown: who asked for what, when and why."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from actorproc.errors import UnknownProcedure
from actorproc.model.plain import plain_dict
from actorproc.model.rows.records import AuditRecord
from actorproc.store.base import RecordStore
from actorproc.support.durations import moment

__all__ = ["AuditFilter", "AuditInfo", "audit_log", "audit_of"]


class AuditInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Something an operator asked for and was granted."""

    id: str | None
    """The procedure, which may have been removed since; None: the manager itself."""
    at: float
    """Epoch seconds (UTC)."""
    verb: str
    """abort, kill, retry, bypass, rollback, pause, resume, signal, ask, publish, withdraw, acknowledge, clear-poison,
    delete."""
    reason: str | None
    detail: str
    """With what: by force, which key, which procedure was deleted, from where a retry went on."""
    by: str | None = None
    """Name of the one who asked, as it was given: by default that of the user whose process it was."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data that JSON can hold."""
        return plain_dict(self)


class AuditFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Choice among requests; times in epoch seconds. Fields that are None, or empty, leave nothing out."""

    since: float | None = None
    until: float | None = None
    verbs: frozenset[str] = frozenset()
    by: str | None = None
    limit: int | None = None

    @classmethod
    def of(cls, since: object, until: object, verb: object, by: object, limit: Any) -> AuditFilter:
        """Check what a caller gave. Raises `TypeError` or `ValueError` naming the argument."""
        if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool) or limit < 0):
            msg = f"audit_log(limit=…) is a number of requests, at least 0, or None, not {limit!r:.60}"
            raise ValueError(msg)
        if by is not None and not isinstance(by, str):
            msg = f"audit_log(by=…) is a name, not {by!r:.60}"
            raise TypeError(msg)
        given = () if verb is None else (verb,) if isinstance(verb, str) else verb
        verbs = frozenset(given) if isinstance(given, Iterable) else None
        if verbs is None or not all(isinstance(name, str) for name in verbs):
            msg = f"audit_log(verb=…) is the name of a verb, or several, not {verb!r:.60}"
            raise TypeError(msg)
        return cls(
            since=None if since is None else moment(since, "audit_log(since=…)"),
            until=None if until is None else moment(until, "audit_log(until=…)"),
            verbs=verbs,
            by=by,
            limit=limit,
        )

    def among(self, requests: Iterable[AuditInfo]) -> list[AuditInfo]:
        """Chosen requests, in their order."""
        return [request for request in requests if self._has(request)][: self.limit]

    def _has(self, request: AuditInfo) -> bool:
        return (
            (self.since is None or request.at >= self.since)
            and (self.until is None or request.at < self.until)
            and (not self.verbs or request.verb in self.verbs)
            and (self.by is None or request.by == self.by)
        )


def audit_of(store: RecordStore, id: str) -> list[AuditInfo]:
    """Requests for one procedure, in order. Of one that was removed, what the log of all requests has.

    Raises `UnknownProcedure` when neither is there.
    """
    if store.procedure(id) is not None:
        return [_info_of(row) for row in store.audit(id)]
    found = [_info_of(row) for row in store.audit("") if row.procedure == id]
    if not found:
        msg = f"no procedure has the id {id!r}"
        raise UnknownProcedure(msg)
    return found


def audit_log(store: RecordStore, *, manager_only: bool = False) -> list[AuditInfo]:
    """All requests, the newest first; `manager_only`: without the copies of what procedures have rows of."""
    return [_info_of(row) for row in reversed(store.audit("")) if not (manager_only and row.copy_of)]


def _info_of(row: AuditRecord) -> AuditInfo:
    name = row.target or row.procedure or None
    return AuditInfo(id=name, at=row.at, verb=row.verb, reason=row.reason, detail=row.detail, by=row.by)
