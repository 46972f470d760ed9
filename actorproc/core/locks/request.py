"""Lock requests: one request, as it waits and as it is shown, and crowds of requests that are alike."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from actorproc.core.locks.modes import needs_of
from actorproc.model.policies import LockKey

__all__ = ["Crowds", "LockRequest", "LockWaiter"]

_Crowd = tuple[str, str, tuple[LockKey, ...]]
"""Tree, parent (the procedure itself when it is like no other), keys."""


class LockRequest:
    """One procedure's wish for all its keys."""

    __slots__ = ("ahead", "crowd", "keys", "lineage", "needs", "parent", "privileged", "procedure", "ticket", "tree")

    def __init__(
        self,
        procedure: str,
        tree: str,
        keys: tuple[LockKey, ...],
        lineage: frozenset[str],
        ticket: int,
        privileged: bool,
        ahead: bool = False,
        parent: str | None = None,
    ) -> None:
        self.procedure = procedure
        self.tree = tree
        self.keys = keys
        self.lineage = lineage
        """The procedure and its ancestors: their locks are no obstacle."""
        self.ticket = ticket
        self.privileged = privileged
        self.ahead = ahead
        """Waits for holders only, never for waiters: an undo must not queue behind newcomers."""
        self.needs = needs_of(keys)
        self.parent = parent
        self.crowd: _Crowd = (tree, procedure, keys)


class LockWaiter(NamedTuple):
    """A queued request as it is shown; nothing in it changes later."""

    procedure: str
    keys: tuple[LockKey, ...]
    needs: Mapping[str, int]
    """Mode bits per node, intentions on ancestors included."""
    lineage: frozenset[str]
    """The procedure and its ancestors: their locks are no obstacle."""
    ticket: int
    """Place in the first-come first-served order; tickets are durable."""
    ahead: bool


class Crowds:
    """Privileged waiters: those of one tree with the same parent and the same keys, that hold nothing, are a crowd.

    They wait for the same holders and behind each other, so a search for cycles looks at one of them.
    """

    def __init__(self) -> None:
        self._crowds: dict[str, dict[_Crowd, dict[str, None]]] = {}
        """By tree and crowd, oldest request first."""
        self._families: dict[tuple[str, str], int] = {}
        """Numbers of waiters by tree and parent."""

    def of(self, tree: str) -> list[str]:
        """The youngest of each crowd of a tree: it waits for all that the others wait for."""
        return [next(reversed(crowd)) for crowd in self._crowds.get(tree, {}).values()]

    def is_one_family(self) -> bool:
        """True if all are children of one parent that hold nothing: none waits for another."""
        return len(self._families) <= 1

    def join(self, request: LockRequest, *, is_holder: bool) -> None:
        """A privileged request begins to wait; one that holds something already is like no other."""
        procedure = request.procedure
        is_like_others = request.parent is not None and not request.ahead and not is_holder
        parent = request.parent if is_like_others and request.parent is not None else procedure
        request.crowd = (request.tree, parent, request.keys)
        self._crowds.setdefault(request.tree, {}).setdefault(request.crowd, {})[procedure] = None
        family = request.tree, parent
        self._families[family] = self._families.get(family, 0) + 1

    def leave(self, request: LockRequest) -> None:
        """A request that joined waits no more."""
        crowds = self._crowds[request.tree]
        del crowds[request.crowd][request.procedure]
        if not crowds[request.crowd]:
            del crowds[request.crowd]
            if not crowds:
                del self._crowds[request.tree]
        family = request.crowd[:2]
        self._families[family] -= 1
        if not self._families[family]:
            del self._families[family]
