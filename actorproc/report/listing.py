"""Filters of a list of procedures, checked, and the index that the list is read from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from itertools import islice
from typing import Any, Self, TypeVar

import msgspec

from actorproc.errors import StoreDamaged, UnknownProcedure
from actorproc.model.exact import exact_text
from actorproc.model.ids import check_id
from actorproc.model.reports import Looked
from actorproc.model.rows.records import CHILD_STATES, ProcedureRecord
from actorproc.model.rows.tags import tag_of
from actorproc.model.states import TERMINAL, Phase, ProcedureState
from actorproc.store.base import RecordStore
from actorproc.support.durations import moment
from actorproc.support.search_texts import search_texts

__all__ = ["ListFilter", "children_by_state"]

_E = TypeVar("_E", bound=StrEnum)

_STATES_OF: dict[Phase, frozenset[ProcedureState]] = {
    Phase.QUEUED: frozenset({ProcedureState.RUNNABLE}),
    Phase.LOCKED_OUT: frozenset({ProcedureState.RUNNABLE}),
    Phase.RUNNING: frozenset({ProcedureState.RUNNABLE, ProcedureState.WAITING, ProcedureState.WAITING_TIMEOUT}),
    Phase.RETRYING: frozenset({ProcedureState.RUNNABLE}),
    Phase.STUCK: frozenset({ProcedureState.RUNNABLE}),
    Phase.SUSPENDED: frozenset({ProcedureState.WAITING}),
    Phase.SLEEPING: frozenset({ProcedureState.WAITING_TIMEOUT}),
    Phase.DONE: frozenset({ProcedureState.SUCCESS, ProcedureState.FAILED, ProcedureState.ROLLEDBACK}),
}
"""States a phase can have, for those where it narrows the search."""
_FEW = 256
"""Children that are read and sorted rather than looked for among the members of the tree."""
_LIVE = frozenset(ProcedureState) - TERMINAL
_UNSUCCESSFUL = frozenset(ProcedureState) - {ProcedureState.SUCCESS}
_LIVE_PHASES = frozenset(Phase) - {Phase.DONE}
_UNDONE_PHASES = frozenset({Phase.ROLLING_BACK, Phase.PAUSED, Phase.PARKED})
"""Phases that a finished member of a tree can have while it is being undone."""


class ListFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Filters of a list; None filters nothing. Make one with `of`."""

    states: frozenset[ProcedureState] | None = None
    phases: frozenset[Phase] | None = None
    type_name: str | None = None
    root: str | None = None
    parent: str | None = None
    tags: tuple[str, ...] = ()
    """All of them."""
    where: tuple[str, ...] = ()
    """Texts of searchable fields, all of them."""
    owner: str | None = None
    id_prefix: str = ""
    roots_only: bool = False
    troubled: bool = False
    created_since: float | None = None
    created_until: float | None = None
    updated_since: float | None = None
    updated_until: float | None = None
    newest_first: bool = False
    limit: int | None = None
    after: str | None = None

    @classmethod
    def of(
        cls,
        *,
        state: object = None,
        phase: object = None,
        limit: Any = None,
        tag: Any = None,
        where: Any = None,
        created_since: object = None,
        created_until: object = None,
        updated_since: object = None,
        updated_until: object = None,
        **others: Any,
    ) -> Self:
        """Check what a caller gave. Raises `TypeError`, `ValueError` or `InvalidId` naming the argument."""
        if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool) or limit < 0):
            msg = f"list(limit=…) is a number of procedures, at least 0, or None, not {limit!r:.60}"
            raise ValueError(msg)
        for name in ("type_name", "owner", "id_prefix"):
            text = others.get(name)
            if text is not None and not isinstance(text, str):
                msg = f"list({name}=…) is a string or None, not {text!r:.60}"
                raise TypeError(msg)
        for name in ("root", "parent", "after"):
            if others.get(name) is not None:
                others[name] = check_id(others[name])
        phases = _members(Phase, phase, "phase")
        return cls(
            states=_members(ProcedureState, state, "state") or _states_of(phases),
            phases=phases,
            limit=limit,
            tags=_tags(tag),
            where=_where(where),
            created_since=_moment(created_since, "created_since"),
            created_until=_moment(created_until, "created_until"),
            updated_since=_moment(updated_since, "updated_since"),
            updated_until=_moment(updated_until, "updated_until"),
            **{name: value for name, value in others.items() if value is not None},
        )

    def heads(self, store: RecordStore, looked: Looked | None = None) -> Iterator[ProcedureRecord]:
        """Stored heads that match all but the phases, in order.

        Args:
            store: The store.
            looked: Bounds the heads that are read where no index has just those that match. Default: no bound.

        Returns:
            The heads.

        Raises:
            UnknownProcedure: ``after`` is unknown.
        """
        if self.parent is not None:
            children = self._unfinished_children(store, self.parent) or self._many_children(store, self.parent)
            if children is not None:
                return children
            return self._in_order(store, (_sound(store, link.child) for link in store.children(self.parent)))
        if self.id_prefix:
            names = store.ids(self.id_prefix, None if looked is None else looked.most)
            if looked is None or len(names) < looked.most:
                return self._in_order(store, (_sound(store, name) for name in names))
        states = self.states
        if states is None and self.phases is not None and self.phases <= _LIVE_PHASES:
            if self.phases & _UNDONE_PHASES:
                return self._in_order(store, _live_and_undone(store))
            states = _LIVE
        if states is None and self.troubled:
            states = _UNSUCCESSFUL
        found = store.scan(
            state=states,
            type_name=self.type_name,
            root=self.root,
            tag=self.tags,
            where=self.where,
            after=self.after,
            reverse=self.newest_first,
            skip_damaged=True,
            looked=looked,
        )
        return (head for head in found if self.matches(head))

    def _unfinished_children(self, store: RecordStore, parent: str) -> Iterator[ProcedureRecord] | None:
        """Children that have not ended, without a look at those that have; None: their number is not certain."""
        head = _sound(store, parent)
        if (
            (self.states or frozenset()) | {ProcedureState.INITIALIZING} != _LIVE
            or self.newest_first
            or head is None
            or head.rolling
            or head.state in TERMINAL
        ):
            return None
        if head.pending == 0:
            return iter(())
        after = parent if self.after is None else self.after
        # As many as the latch of the parent counts; when it starts more meanwhile, the next look has them.
        found = (head for head in store.scan(state=_LIVE, after=after, skip_damaged=True) if head.parent == parent)
        return (head for head in islice(found, head.pending) if self.matches(head))

    def _many_children(self, store: RecordStore, parent: str) -> Iterator[ProcedureRecord] | None:
        """Children in order, read from the index of the tree while they are asked for; None: they are few."""
        head = _sound(store, parent)
        if head is None or head.children <= _FEW:
            return None
        after = parent if self.after is None and not self.newest_first else self.after
        members = store.scan(root=head.root, after=after, reverse=self.newest_first, skip_damaged=True)
        # Those of earlier generations are being removed.
        found: Iterator[ProcedureRecord] = (
            child for child in members if child.parent == parent and child.seq >= head.renewed
        )
        if self.after is None:
            found = islice(found, head.children)
        return (child for child in found if self.matches(child))

    def _in_order(self, store: RecordStore, found: Iterable[ProcedureRecord | None]) -> Iterator[ProcedureRecord]:
        """The heads of a few procedures in submit order."""
        place = None
        if self.after is not None:
            last = store.procedure(self.after)
            if last is None:
                raise UnknownProcedure(f"no procedure has the id {self.after!r}, so nothing comes after it")
            place = last.seq
        heads = [head for head in found if head is not None and self.matches(head)]
        heads.sort(key=lambda head: head.seq, reverse=self.newest_first)
        if place is None:
            return iter(heads)
        return (head for head in heads if (head.seq < place if self.newest_first else head.seq > place))

    def matches(self, head: ProcedureRecord) -> bool:
        """True if a head passes the filters, as far as it says."""
        return (
            (self.states is None or head.state in self.states)
            and (self.type_name is None or head.type_name == self.type_name)
            and (self.root is None or head.root == self.root)
            and (self.parent is None or head.parent == self.parent)
            and (not self.tags or all(tag in head.tags for tag in self.tags))
            and (not self.where or all(text in head.searchable for text in self.where))
            and (self.owner is None or head.owner == self.owner)
            and (not self.id_prefix or head.id.startswith(self.id_prefix))
            and (not self.roots_only or head.parent is None)
            and (not self.troubled or head.errors > 0 or head.crashes > 0)
            and (self.created_since is None or head.created_at >= self.created_since)
            and (self.created_until is None or head.created_at < self.created_until)
            and (self.updated_since is None or head.updated_at >= self.updated_since)
            and (self.updated_until is None or head.updated_at < self.updated_until)
        )


def _live_and_undone(store: RecordStore) -> Iterator[ProcedureRecord]:
    """Heads that have not ended, and finished members of failing trees that are being undone."""
    failing: dict[str, None] = {}
    for head in store.scan(state=_LIVE, skip_damaged=True):
        if head.failing:
            failing[head.root] = None
        yield head
    for root in failing:
        for head in store.scan(root=root, skip_damaged=True):
            if head.undoing and head.state in TERMINAL:
                yield head


def children_by_state(store: RecordStore, record: ProcedureRecord) -> dict[str, int]:
    """Number of a procedure's children by state; those whose heads cannot be read count as "damaged"."""
    if record.child_states is not None:
        return {str(state): count for state, count in zip(CHILD_STATES, record.child_states, strict=False) if count}
    if record.children == record.succeeded:
        return {"SUCCESS": record.succeeded} if record.children else {}
    counts: dict[str, int] = {}
    if record.children:
        for link in store.children(record.id):
            try:
                child = store.procedure(link.child)
            except StoreDamaged:
                counts["damaged"] = counts.get("damaged", 0) + 1
                continue
            if child is not None:
                counts[str(child.state)] = counts.get(str(child.state), 0) + 1
    return counts


def _sound(store: RecordStore, name: str) -> ProcedureRecord | None:
    try:
        return store.procedure(name)
    except StoreDamaged:
        return None


def _tags(given: Any) -> tuple[str, ...]:
    """Tags as they are stored."""
    if given is None or isinstance(given, str):
        return () if given is None else (exact_text(given),)
    found: list[Any] = []
    if isinstance(given, Iterable):
        found = [tag_of(*pair) for pair in given.items()] if isinstance(given, Mapping) else list(given)
    parts = (*given.keys(), *given.values()) if isinstance(given, Mapping) else found
    if not isinstance(given, Iterable) or not all(isinstance(part, str) for part in parts):
        msg = f"list(tag=…) is a tag, a list of them, a dict of keys and values, or None, not {given!r:.60}"
        raise TypeError(msg)
    return tuple(map(exact_text, found))


def _where(given: Any) -> tuple[str, ...]:
    """Texts of searchable fields, of their values by name."""
    if given is None:
        return ()
    if not isinstance(given, Mapping):
        msg = f"list(where=…) is a dict of fields and their values, or None, not {given!r:.60}"
        raise TypeError(msg)
    return search_texts(given)


def _states_of(phases: frozenset[Phase] | None) -> frozenset[ProcedureState] | None:
    if phases is None or not phases <= _STATES_OF.keys():
        return None
    return frozenset[ProcedureState]().union(*(_STATES_OF[phase] for phase in phases))


def _members(kind: type[_E], given: object, name: str) -> frozenset[_E] | None:
    """One member, or several, of an enum; by value too."""
    if given is None:
        return None
    if isinstance(given, str):
        return frozenset({_member(kind, given, name)})
    if not isinstance(given, Iterable):
        msg = f"list({name}=…) is a {kind.__name__}, several of them, or None, not {given!r:.60}"
        raise TypeError(msg)
    return frozenset(_member(kind, member, name) for member in given)


def _member(kind: type[_E], given: Any, name: str) -> _E:
    try:
        return kind(given)
    except ValueError:
        known = ", ".join(repr(member.value) for member in kind)
        msg = f"list({name}=…) knows no {given!r:.60}; it is one of {known}, or several of them"
        raise ValueError(msg) from None


def _moment(given: object, name: str) -> float | None:
    """Epoch seconds."""
    return None if given is None else moment(given, f"list({name}=…)")
