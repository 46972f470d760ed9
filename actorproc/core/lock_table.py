"""Hierarchical read/write locks, granted all at once, first come first served.

Theory. A key ``a/b/c`` asks for a mode on its own node and for an intention on every ancestor node
(multi-granularity locking). Modes are bits: IS, IX (intentions), S (read), X (write).

* A request is granted when no *stranger* holds a conflicting mode on any node it needs. The requester's
  own ancestors are no strangers (Moss's nested transactions), and a finished child's locks move to its
  parent, so what a tree once took stays with the tree and is open to its relatives only.
* A request waits behind every earlier waiter it conflicts with, so writers do not starve; tickets say who is earlier,
  since after a restart the waiters ask again in the order in which their classes are registered. Two
  exceptions: keys an ancestor covers already are granted whoever waits, and *privileged* requests (their
  tree holds locks, as long as it does, or they are to undo) go before the others, because making them wait for
  newcomers would only lengthen the queue.
* Freed nodes are rescanned from the oldest waiter on, and only when a mode vanished from the node, so a
  long queue costs nothing while it cannot move. When waiters withdraw, that is left to `drain`: a whole tree
  may do so at once.
* Waiters of one tree with the same parent and the same keys are a *crowd*: they wait for the same holders and
  in line for each other, so whoever looks for cycles looks at one of them.

The table knows procedures and trees as strings. It grants and queues; it wakes nobody: `drain` says who was granted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import NamedTuple

from actorproc.core.lines import Place
from actorproc.core.lock_nodes import CONFLICTS, IS, IX, Node, S, X, ancestors_of, needs_of
from actorproc.model.policies import LockKey, LockMode

__all__ = ["CONFLICTS", "LockTable", "LockWaiter", "Request", "needs_of"]

_BEHIND_ALL: Place = (1 << 63, "")
_Crowd = tuple[str, str, tuple[LockKey, ...]]
"""Tree, parent (the procedure itself when it is like no other), keys."""


class Request:
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


class LockTable:
    """Grants, queues and releases locks; see the module's theory."""

    def __init__(self) -> None:
        self._nodes: dict[str, Node] = {}
        self._keys: dict[str, dict[str, LockMode]] = {}
        self._masks: dict[str, dict[str, int]] = {}
        self._waiting: dict[str, Request] = {}
        self._granted: list[str] = []
        self._aheads = 0
        """Waiters that wait for holders only."""
        self._freed: dict[str, None] = {}
        """Nodes that waiters withdrew from: something may be possible there now."""
        self.has_released = False
        """Set when a holder gave something up; whoever looks for that takes it back."""
        self._crowds: dict[str, dict[_Crowd, dict[str, None]]] = {}
        """Privileged waiters by tree and crowd, oldest request first."""
        self._families: dict[tuple[str, str], int] = {}
        """Privileged waiters by tree and parent."""

    # ------------------------------------------------------------------ asking
    def request(self, request: Request) -> bool:
        """Grant at once (True) or queue (False)."""
        if self.is_free(request) and not self._must_queue(request):
            self._grant(request)
            return True
        self._enqueue(request)
        return False

    def hold(self, procedure: str, path: str, mode: LockMode) -> None:
        """Put a lock in place unasked: a grant read back from the store, or one that moved to a parent."""
        keys = (LockKey(path, mode),)
        self._add(procedure, keys, needs_of(keys))
        waiting = self._waiting.get(procedure)
        if waiting is not None and waiting.privileged:  # it is one of a crowd no more: others of it may wait for it
            self._leave_crowd(waiting)
            self._join_crowd(waiting)

    def withdraw(self, procedure: str) -> None:
        """Give up waiting. Idempotent."""
        request = self._waiting.get(procedure)
        if request is not None:
            self._dequeue(request)
            self._freed.update(dict.fromkeys(request.needs))

    def promote(self, procedure: str) -> None:
        """The waiter's tree holds locks now: it goes before those whose trees hold none."""
        request = self._waiting.get(procedure)
        if request is not None and not request.privileged:
            self._dequeue(request)
            request.privileged = True
            if self.is_free(request) and not self._must_queue(request):
                self._grant(request)
                self._granted.append(procedure)
            else:
                self._enqueue(request)

    def demote(self, procedure: str) -> None:
        """The waiter's tree holds no locks any more: it stands in line with the others, by age."""
        request = self._waiting[procedure]
        self._dequeue(request)
        request.privileged = request.ahead = False
        self._enqueue(request)
        self._freed.update(dict.fromkeys(request.needs))

    def look_again(self, procedure: str) -> None:
        """An ancestor of the waiter was granted something: perhaps it stands in nobody's way any more, nor in line."""
        request = self._waiting.get(procedure)
        if request is not None and self.is_free(request) and not self._must_queue(request):
            self._dequeue(request)
            self._grant(request)
            self._granted.append(procedure)

    def leave_line(self, procedure: str) -> bool:
        """A waiter waits for holders only from now on, no longer for other waiters; False when it did already."""
        request = self._waiting[procedure]
        if request.ahead:
            return False
        self._dequeue(request)
        request.ahead = True
        if self.is_free(request):
            self._grant(request)
            self._granted.append(procedure)
        else:
            self._enqueue(request)
        return True

    def join_line(self, procedure: str) -> None:
        """Undo `leave_line` of one that waits still."""
        request = self._waiting[procedure]
        self._dequeue(request)
        request.ahead = False
        self._enqueue(request)

    # ------------------------------------------------------------------ giving up
    def release(self, procedure: str) -> list[str]:
        """Give up all keys of a holder; return the paths that were held. Idempotent."""
        keys = self._keys.pop(procedure, None)
        if not keys:
            return []
        self.has_released = True
        freed = []
        for path, mask in self._masks.pop(procedure).items():
            node = self._nodes[path]
            del node.holders[procedure]
            if node.frees(mask, vanished=node.held.remove(mask)):
                freed.append(path)
            self._drop_if_empty(path, node)
        self._rescan(freed)
        return list(keys)

    def reduce(self, procedure: str, kept: dict[str, LockMode]) -> None:
        """Give up all keys of a holder but `kept`, which it holds already, in these modes."""
        self.has_released = True
        before = self._masks[procedure]
        after = needs_of(LockKey(path, mode) for path, mode in kept.items())
        freed = []
        for path, mask in before.items():
            wanted = after.get(path, 0)
            if wanted != mask:
                node = self._nodes[path]
                del node.holders[procedure]
                gone = node.held.remove(mask)
                if wanted:
                    node.holders[procedure] = wanted
                    node.held.add(wanted)
                if node.frees(mask, vanished=gone):
                    freed.append(path)
                self._drop_if_empty(path, node)
        self._keys[procedure] = dict(kept)
        self._masks[procedure] = after
        self._rescan(freed)

    @property
    def has_news(self) -> bool:
        """`drain` may find somebody."""
        return bool(self._freed or self._granted)

    def drain(self) -> list[str]:
        """Procedures granted by releases, withdrawals and promotions since the last call, in order."""
        while self._freed:
            freed, self._freed = self._freed, {}
            self._rescan(freed)
        granted, self._granted = self._granted, []
        return granted

    # ------------------------------------------------------------------ looking
    def keys_of(self, procedure: str) -> dict[str, LockMode]:
        """The keys a procedure holds."""
        return self._keys.get(procedure, {})

    def is_waiting(self, procedure: str) -> bool:
        """Whether a request is queued."""
        return procedure in self._waiting

    def waiting(self) -> dict[str, Request]:
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
        """Whom a queued request waits for: conflicting strangers, then earlier privileged waiters."""
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
            if not node.privileged_waiting.mask & conflicts or request.ahead or self._is_covered(request, path):
                continue
            own = (request.ticket, procedure) if request.privileged else _BEHIND_ALL
            for _, name in node.privileged.before(own):
                other = self._waiting[name]
                if other.crowd == request.crowd or not other.needs[path] & conflicts:
                    continue
                found[other.procedure] = None
                # It excludes everybody, so it waits itself for all that are in front of it.
                if other.needs[path] & X and not other.ahead and not self._is_covered(other, path):
                    break
        return list(found)

    def crowds(self, tree: str) -> list[str]:
        """The youngest of each crowd of a tree's privileged waiters: it waits for all that the others wait for."""
        return [next(reversed(crowd)) for crowd in self._crowds.get(tree, {}).values()]

    def is_one_family(self) -> bool:
        """Whether all privileged waiters are children of one parent that hold nothing: none waits for another."""
        return len(self._families) <= 1

    def is_in_the_way(self, keys: tuple[LockKey, ...]) -> bool:
        """Whether a holder of these may stand in the way of a privileged waiter that did not wait for it before.

        Those in line for the same keys did. But not all are: whom an ancestor covers waits for holders only.
        """
        if self.is_one_family():
            return False
        return any(self._nodes[path].privileged_waiting.mask & CONFLICTS[mask] for path, mask in needs_of(keys).items())

    # ------------------------------------------------------------------ inside
    def holders_in_the_way(self, request: Request) -> Iterator[str]:
        """Strangers whose locks conflict with a request, queued or not; one may come more than once."""
        for path, mask in request.needs.items():
            yield from self._strangers_on(path, mask, request)

    def _strangers_on(self, path: str, mask: int, request: Request) -> Iterator[str]:
        node = self._nodes.get(path)
        if node is not None and node.held.mask & CONFLICTS[mask]:
            for holder, held in node.holders.items():
                if held & CONFLICTS[mask] and holder not in request.lineage:
                    yield holder

    def _waiters_against(self, request: Request) -> Iterator[str]:
        for path, mask in request.needs.items():
            node = self._nodes[path]
            conflicts = CONFLICTS[mask]
            if not node.privileged_waiting.mask & conflicts or request.ahead or self._is_covered(request, path):
                continue
            for ticket, other in node.privileged.places():
                if ticket >= request.ticket and request.privileged:
                    break
                if other != request.procedure and self._waiting[other].needs[path] & conflicts:
                    yield other

    def is_free(self, request: Request) -> bool:
        """Whether no holder stands in the way of it now."""
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

    def _must_queue(self, request: Request) -> bool:
        """Whether a waiter that came before conflicts with it on a node no ancestor covers."""
        if request.ahead:
            return False
        for path, mask in request.needs.items():
            node = self._nodes.get(path)
            if node is None:
                continue
            in_front = node.privileged_waiting.mask | (0 if request.privileged else node.ordinary_waiting.mask)
            is_in_line = in_front & CONFLICTS[mask] and not self._is_covered(request, path)
            if is_in_line and self._has_in_front(node, path, request):
                return True
        return False

    def _has_in_front(self, node: Node, path: str, request: Request) -> bool:
        """Whether somebody with a conflict stands before it here; an old ticket goes before a newer one."""
        conflicts = CONFLICTS[request.needs[path]]
        queue = node.privileged if request.privileged else node.ordinary
        if not request.privileged and node.privileged_waiting.mask & conflicts:
            return True
        if queue.last[0] < request.ticket:
            return True  # the usual newcomer: whoever waits came before
        for ticket, other in queue.places():
            if ticket >= request.ticket:
                break
            if self._waiting[other].needs[path] & conflicts:
                return True
        return False

    def _is_covered(self, request: Request, path: str) -> bool:
        """Whether the requester or an ancestor holds at least what is asked on this node or above it."""
        asked = request.needs[path]
        for place in (path, *ancestors_of(path)):
            node = self._nodes.get(place)
            if node is None:
                continue
            for holder in request.lineage:
                held = node.holders.get(holder, 0)
                if held & X or (held & S and not asked & (IX | X)):
                    return True
                # Every held mode implies the weakest one, so an ancestor's IX covers an IS on the same node.
                if held and place == path and (held | IS) & asked == asked:
                    return True
        return False

    def _grant(self, request: Request) -> None:
        self._add(request.procedure, request.keys, request.needs)

    def _add(self, procedure: str, added: Iterable[LockKey], needs: Mapping[str, int]) -> None:
        keys = self._keys.setdefault(procedure, {})
        masks = self._masks.setdefault(procedure, {})
        for key in added:
            if keys.get(key.path, 0) < key.mode:
                keys[key.path] = key.mode
        for path, mask in needs.items():
            before = masks.get(path, 0)
            if before | mask != before:
                node = self._node(path)
                if before:
                    node.held.remove(before)
                masks[path] = node.holders[procedure] = before | mask
                node.held.add(before | mask)

    def _node(self, path: str) -> Node:
        node = self._nodes.get(path)
        if node is None:
            node = self._nodes[path] = Node()
        return node

    def _drop_if_empty(self, path: str, node: Node) -> None:
        if node.is_empty:
            del self._nodes[path]

    def _enqueue(self, request: Request) -> None:
        self._waiting[request.procedure] = request
        self._aheads += request.ahead
        if request.privileged:
            self._join_crowd(request)
        for path, mask in request.needs.items():
            node = self._node(path)
            if request.privileged:
                node.privileged.join((request.ticket, request.procedure))
                node.privileged_waiting.add(mask)
            else:
                node.ordinary.join((request.ticket, request.procedure))
                node.ordinary_waiting.add(mask)

    def _dequeue(self, request: Request) -> None:
        del self._waiting[request.procedure]
        self._aheads -= request.ahead
        if request.privileged:
            self._leave_crowd(request)
        for path, mask in request.needs.items():
            node = self._nodes[path]
            if request.privileged:
                node.privileged.leave((request.ticket, request.procedure))
                node.privileged_waiting.remove(mask)
            else:
                node.ordinary.leave((request.ticket, request.procedure))
                node.ordinary_waiting.remove(mask)
            self._drop_if_empty(path, node)

    def _join_crowd(self, request: Request) -> None:
        procedure = request.procedure
        is_like_others = request.parent is not None and not request.ahead and procedure not in self._keys
        parent = request.parent if is_like_others and request.parent is not None else procedure
        request.crowd = (request.tree, parent, request.keys)
        self._crowds.setdefault(request.tree, {}).setdefault(request.crowd, {})[procedure] = None
        family = request.tree, parent
        self._families[family] = self._families.get(family, 0) + 1

    def _leave_crowd(self, request: Request) -> None:
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

    def _rescan(self, paths: Iterable[str]) -> None:
        """Grant what became possible on these nodes, privileged first, oldest first."""
        for path in list(paths):
            node = self._nodes.get(path)
            if node is None:
                continue
            passed = 0
            ordinary = self._ordinary_head(path, node)
            for _, procedure in chain(node.privileged.walk(), ordinary):
                request = self._waiting.get(procedure)
                if request is None or path not in request.needs:
                    continue
                mask = request.needs[path]
                goes_first = request.ahead or self._is_covered(request, path)
                is_overtaking = passed & CONFLICTS[mask] and not goes_first
                if not is_overtaking and self.is_free(request) and not self._must_queue(request):
                    self._dequeue(request)
                    self._grant(request)
                    self._granted.append(procedure)
                    if mask & X and not self._aheads:
                        break  # it excludes everybody behind it
                else:
                    passed |= mask

    def _ordinary_head(self, path: str, node: Node) -> list[Place]:
        """The oldest ordinary waiters, up to the first that excludes all behind it."""
        head = []
        for place in node.ordinary.places():
            head.append(place)
            if self._waiting[place[1]].needs[path] & X:
                break
        return head
