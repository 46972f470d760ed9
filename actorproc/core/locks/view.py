"""The lock table as it is looked at: who holds, who waits, and who is in whose way. Nothing here changes it.

The rules are those of `table`. The wait-for graph, and the words that are told of locks, need no more than this.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from actorproc.core.locks.modes import CONFLICTS, COVERED, EXCLUSIVE, WEAKEST, Node, ancestors_of, needs_of
from actorproc.core.locks.request import Crowds, LockRequest, LockWaiter
from actorproc.core.locks.wait_list import Place
from actorproc.model.policies import LockKey, LockMode

__all__ = ["LockView"]

_BEHIND_ALL: Place = (1 << 63, "")


class LockView:
    """Read access to locks and requests; `LockTable` changes them."""

    def __init__(self) -> None:
        self._nodes: dict[str, Node] = {}
        self._keys: dict[str, dict[str, LockMode]] = {}
        self._waiting: dict[str, LockRequest] = {}
        self.crowds = Crowds()
        """Privileged waiters that are alike."""

    def keys_of(self, procedure: str) -> dict[str, LockMode]:
        """The keys a procedure holds."""
        return self._keys.get(procedure, {})

    def is_waiting(self, procedure: str) -> bool:
        """True if a request is queued."""
        return procedure in self._waiting

    def waiting(self) -> dict[str, LockRequest]:
        """All queued requests by procedure."""
        return self._waiting

    def queue(self) -> list[LockWaiter]:
        """All queued requests in the order of the queue: those whose trees hold locks first, each kind by age."""
        rows = sorted(self._waiting.values(), key=lambda row: (not row.privileged, row.ticket, row.procedure))
        return [LockWaiter(row.procedure, row.keys, row.needs, row.lineage, row.ticket, row.ahead) for row in rows]

    def holders(self) -> dict[str, dict[str, LockMode]]:
        """All held keys by procedure."""
        return self._keys

    def blockers(self, procedure: str) -> Iterator[str]:
        """Procedures that a queued request waits for: conflicting strangers, then earlier privileged waiters."""
        request = self._waiting[procedure]
        seen = set()
        for name in chain(self.holders_in_the_way(request), self._waiters_against(request)):
            if name not in seen:
                seen.add(name)
                yield name

    def holders_against(self, procedure: str, key: LockKey) -> Iterator[str]:
        """Strangers whose locks stand in the way of one key of a queued request; each once."""
        request = self._waiting[procedure]
        seen = set()
        for path, mask in needs_of((key,)).items():
            for name in self._strangers_on(path, mask, request):
                if name not in seen:
                    seen.add(name)
                    yield name

    def obstacles(self, procedure: str) -> list[str]:
        """As `blockers`, without those that are implied: what a waiter in front waits for, and its own crowd."""
        request = self._waiting[procedure]
        found = dict.fromkeys(self.holders_in_the_way(request))
        for path, mask in request.needs.items():
            node = self._nodes[path]
            conflicts = CONFLICTS[mask]
            if not node.privileged.asked.mask & conflicts or request.ahead or self._is_covered(request, path):
                continue
            own = (request.ticket, procedure) if request.privileged else _BEHIND_ALL
            for _, name in node.privileged.before(own):
                other = self._waiting[name]
                if other.crowd == request.crowd or not other.needs[path] & conflicts:
                    continue
                found[other.procedure] = None
                # It excludes all others, so it waits itself for all that are in front of it.
                if other.needs[path] & EXCLUSIVE and not other.ahead and not self._is_covered(other, path):
                    break
        return list(found)

    def is_in_the_way(self, keys: tuple[LockKey, ...]) -> bool:
        """True if a holder of these may stand in the way of a privileged waiter that did not wait for it before.

        Those in the wait lists of the same keys did. But not all are: whom an ancestor covers waits for holders only.
        """
        if self.crowds.is_one_family():
            return False
        return any(self._nodes[path].privileged.asked.mask & CONFLICTS[mask] for path, mask in needs_of(keys).items())

    def holders_in_the_way(self, request: LockRequest) -> Iterator[str]:
        """Strangers whose locks conflict with a request, queued or not; one may come more than once."""
        for path, mask in request.needs.items():
            yield from self._strangers_on(path, mask, request)

    def is_free(self, request: LockRequest) -> bool:
        """True if no holder stands in the way of it now."""
        for path, mask in request.needs.items():
            node = self._nodes.get(path)
            if node is None:
                continue
            conflicts = CONFLICTS[mask]
            if node.held.mask & conflicts and any(
                held & conflicts and holder not in request.lineage for holder, held in node.holders.items()
            ):
                return False
        return True

    # ------------------------------------------------------------------ inside
    def _strangers_on(self, path: str, mask: int, request: LockRequest) -> Iterator[str]:
        node = self._nodes.get(path)
        if node is not None and node.held.mask & CONFLICTS[mask]:
            for holder, held in node.holders.items():
                if held & CONFLICTS[mask] and holder not in request.lineage:
                    yield holder

    def _waiters_against(self, request: LockRequest) -> Iterator[str]:
        for path, mask in request.needs.items():
            node = self._nodes[path]
            conflicts = CONFLICTS[mask]
            if not node.privileged.asked.mask & conflicts or request.ahead or self._is_covered(request, path):
                continue
            for ticket, other in node.privileged.places():
                if ticket >= request.ticket and request.privileged:
                    break
                if other != request.procedure and self._waiting[other].needs[path] & conflicts:
                    yield other

    def _is_covered(self, request: LockRequest, path: str) -> bool:
        """True if the requester or an ancestor holds at least what is asked on this node or above it."""
        asked = request.needs[path]
        for place in (path, *ancestors_of(path)):
            node = self._nodes.get(place)
            if node is None:
                continue
            for holder in request.lineage:
                held = node.holders.get(holder, 0)
                if held and not asked & ~COVERED[held]:
                    return True
                # Every held bit implies the weakest one: an intention to write covers one to read on the same node.
                if held and place == path and (held | WEAKEST) & asked == asked:
                    return True
        return False
