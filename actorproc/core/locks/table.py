"""Hierarchical read/write locks, granted all at once, first come first served.

Theory. A key ``a/b/c`` asks for a mode on its own node and for an intention on every ancestor node
(multi-granularity locking). Modes are bits: IS, IX (intentions), S (read), X (write).

* A request is granted when no *stranger* holds a conflicting mode on any node it needs. The requester's
  own ancestors are no strangers (Moss's nested transactions). A finished child's locks move to its parent, so locks
  that a tree took stay with it, open to its relatives only.
* A request waits behind every earlier waiter it conflicts with, so writers do not starve. The ticket says which one is
  earlier, since after a restart the waiters ask again in the order in which their classes are registered.
* Keys that an ancestor covers already are granted at once. *Privileged* requests go before the others: those of trees
  that hold locks, as long as they do, and those of undos. Their waiting for newcomers would only lengthen the queue.
* Freed nodes are rescanned from the oldest waiter on, and only when a mode vanished from the node, so a
  long queue costs nothing while it cannot move. When waiters withdraw, that is left to `drain`: a whole tree
  may do so at once.

The table knows procedures and trees as strings. It grants and queues; it wakes none: `drain` says which were granted.
Questions that change nothing are answered in `view`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain

from actorproc.core.locks.modes import CONFLICTS, EXCLUSIVE, Node, needs_of
from actorproc.core.locks.request import LockRequest, LockWaiter
from actorproc.core.locks.view import LockView
from actorproc.core.locks.wait_list import Place
from actorproc.model.policies import LockKey, LockMode

__all__ = ["CONFLICTS", "LockRequest", "LockTable", "LockWaiter", "needs_of"]


class LockTable(LockView):
    """Grants, queues and releases locks; see the module's theory."""

    def __init__(self) -> None:
        super().__init__()
        self._masks: dict[str, dict[str, int]] = {}
        self._granted: list[str] = []
        self._aheads = 0
        """Waiters that wait for holders only."""
        self._freed: dict[str, None] = {}
        """Nodes that waiters withdrew from: something may be possible there now."""
        self.has_released = False
        """Set when a holder gave something up; the reader of this flag clears it."""

    # ------------------------------------------------------------------ asking
    def request(self, request: LockRequest) -> bool:
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
            self.crowds.leave(waiting)
            self.crowds.join(waiting, is_holder=procedure in self._keys)

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
        """The waiter's tree holds no locks any more: it queues with the others, by age."""
        request = self._waiting[procedure]
        self._dequeue(request)
        request.privileged = request.ahead = False
        self._enqueue(request)
        self._freed.update(dict.fromkeys(request.needs))

    def look_again(self, procedure: str) -> None:
        """An ancestor of the waiter was granted something: perhaps it blocks none any more, nor waits behind one."""
        request = self._waiting.get(procedure)
        if request is not None and self.is_free(request) and not self._must_queue(request):
            self._dequeue(request)
            self._grant(request)
            self._granted.append(procedure)

    def leave_wait_lists(self, procedure: str) -> bool:
        """A privileged waiter waits for holders only from now on, not for other waiters; False when it did already."""
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

    def join_wait_lists(self, procedure: str) -> None:
        """Undo `leave_wait_lists` of one that waits still."""
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
        """`drain` may find a procedure."""
        return bool(self._freed or self._granted)

    def drain(self) -> list[str]:
        """Procedures granted by releases, withdrawals and promotions since the last call, in order."""
        while self._freed:
            freed, self._freed = self._freed, {}
            self._rescan(freed)
        granted, self._granted = self._granted, []
        return granted

    # ------------------------------------------------------------------ inside
    def _must_queue(self, request: LockRequest) -> bool:
        """True if a waiter that came before conflicts with it on a node no ancestor covers."""
        if request.ahead:
            return False
        for path, mask in request.needs.items():
            node = self._nodes.get(path)
            if node is None:
                continue
            in_front = node.privileged.asked.mask | (0 if request.privileged else node.ordinary.asked.mask)
            is_behind = in_front & CONFLICTS[mask] and not self._is_covered(request, path)
            if is_behind and self._has_in_front(node, path, request):
                return True
        return False

    def _has_in_front(self, node: Node, path: str, request: LockRequest) -> bool:
        """True when a request with a conflict stands before it here; an old ticket goes before a newer one."""
        conflicts = CONFLICTS[request.needs[path]]
        queue = node.privileged if request.privileged else node.ordinary
        if not request.privileged and node.privileged.asked.mask & conflicts:
            return True
        if queue.last[0] < request.ticket:
            return True  # the usual newcomer: all that wait came before
        for ticket, other in queue.places():
            if ticket >= request.ticket:
                break
            if self._waiting[other].needs[path] & conflicts:
                return True
        return False

    def _grant(self, request: LockRequest) -> None:
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

    def _enqueue(self, request: LockRequest) -> None:
        self._waiting[request.procedure] = request
        self._aheads += request.ahead
        if request.privileged:
            self.crowds.join(request, is_holder=request.procedure in self._keys)
        place = (request.ticket, request.procedure)
        for path, mask in request.needs.items():
            self._node(path).join(place, mask, privileged=request.privileged)

    def _dequeue(self, request: LockRequest) -> None:
        del self._waiting[request.procedure]
        self._aheads -= request.ahead
        if request.privileged:
            self.crowds.leave(request)
        place = (request.ticket, request.procedure)
        for path, mask in request.needs.items():
            node = self._nodes[path]
            node.leave(place, mask, privileged=request.privileged)
            self._drop_if_empty(path, node)

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
                    if mask & EXCLUSIVE and not self._aheads:
                        break  # it excludes all requests behind it
                else:
                    passed |= mask

    def _ordinary_head(self, path: str, node: Node) -> list[Place]:
        """The oldest ordinary waiters, up to the first that excludes all behind it."""
        head = []
        for place in node.ordinary.places():
            head.append(place)
            if self._waiting[place[1]].needs[path] & EXCLUSIVE:
                break
        return head
