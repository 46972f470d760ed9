"""Pages of the children of one procedure, from any place, at a cost of the page alone."""

from __future__ import annotations

import threading
from collections import OrderedDict
from itertools import islice
from typing import Any

from actorproc.api.queries import StoredQueries
from actorproc.api.reader import StoreReader
from actorproc.report.info import ProcedureInfo
from actorproc.report.listing import ListFilter, children_by_state

__all__ = ["ChildPages"]

_PARENTS = 16
"""Parents whose children are known by id."""


class ChildPages:
    """Ids of the children of some parents, in order; read once, and again when there are more. Thread-safe."""

    def __init__(self) -> None:
        self._ids: OrderedDict[str, tuple[object, list[str]]] = OrderedDict()
        self._lock = threading.Lock()

    def page(self, reader: StoreReader, parent: str, *, state: list[str], offset: int, limit: int) -> dict[str, Any]:
        """One page of the children.

        Args:
            reader: Of the store.
            parent: Id of the parent.
            state: Only children in these states; empty: all.
            offset: Place of the first one.
            limit: Greatest number.

        Returns:
            The rows as ``infos``, with ``total`` and ``by_state``.
        """
        with reader._asking() as queries:
            head = queries.head(parent)
            by_state = children_by_state(queries._store, head)
            if not state or set(by_state) <= set(state):
                heads = queries._store.procedures(self._of(queries, head)[offset : offset + limit])
                return {"infos": queries._infos(tuple(heads)), "total": head.children, "by_state": by_state}
            total = sum(count for name, count in by_state.items() if name in state)
            infos: list[ProcedureInfo] = []
            if offset < total:
                wanted = ListFilter.of(parent=parent, state=state)
                found = tuple(islice(wanted.heads(queries._store), offset, min(offset + limit, total)))
                infos = queries._infos(found)
            return {"infos": infos, "total": total, "by_state": by_state}

    def _of(self, queries: StoredQueries, head: Any) -> list[str]:
        known = (head.seq, head.renewed, head.children)
        with self._lock:
            found = self._ids.get(head.id)
            if found is not None and found[0] == known:
                self._ids.move_to_end(head.id)
                return found[1]
        ids = [link.child for link in queries._store.children(head.id)]
        with self._lock:
            self._ids[head.id] = known, ids
            while len(self._ids) > _PARENTS:
                self._ids.popitem(last=False)
        return ids
