"""Inboxes for Pykka's threading actor: one made in C, and one whose actor may run on the thread that brings a message.

`queue.Queue` wakes its reader through a condition in Python, which costs some 20 microseconds per message, several
times per durable step. `queue.SimpleQueue` has the same three methods Pykka uses. The hook is Pykka's own ("internal
method for implementors of new actor types"), and the dependency is pinned below the next major version.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pykka

if TYPE_CHECKING:
    from pykka._actor import ActorInbox

__all__ = ["CombiningInbox", "QuickActor"]


class CombiningInbox:
    """Pykka's inbox protocol, and `deliver`: an idle actor handles a message on the thread that brings it.

    To wake the actor's thread costs more than most of its messages, above all where the interpreter lock has to change
    hands. So the thread that brings one is lent to the actor instead, as in flat combining (Hendler, Incze, Shavit and
    Tzafrir, 2010). The thread that handles a message holds the *turn*. There is one turn, so the actor runs on one
    thread at a time. That is its own, the pool's with an answer or a death, or the store's with the end of a commit.

    A class that "needs the manager's turn" has no lock. It must not keep anything per thread (thread-locals, LMDB
    write transactions), as two calls of it may come on two threads. Messages of one thread stay in their order:
    `deliver` goes round the queue only when nothing is in it and the turn is free.
    """

    __slots__ = ("_arrivals", "_has_turn", "_messages", "_turn", "handle")

    def __init__(self) -> None:
        self._messages: deque[Any] = deque()
        self._arrivals: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._turn = threading.Lock()
        self._has_turn = False
        """The actor's own thread has the turn: from one `get` to the next."""
        self.handle: Callable[[Any], None] | None = None
        """Handler of a message that is delivered; None: the actor is not lent a thread. It must not raise."""

    def put(self, envelope: Any, /) -> None:
        """Leave a message for the actor's own thread."""
        try:
            self._messages.append(envelope)
        finally:  # also when Ctrl-C comes between the two: else this thread's messages would all be heard one too late
            self._arrivals.put(None)

    def get(self) -> Any:
        """The next message, waiting for it. For the actor's own thread, which is through with the one before."""
        if self._has_turn:
            self._has_turn = False
            self._turn.release()
        while True:
            self._arrivals.get()
            self._turn.acquire()
            if self._messages:
                self._has_turn = True
                return self._messages.popleft()
            self._turn.release()  # an arrival whose message there was no memory for

    def empty(self) -> bool:
        """Nothing waits."""
        return not self._messages

    def deliver(self, message: object) -> bool:
        """Have the actor handle a message on this thread, here and now; False: it is busy, and has to be told."""
        if self._messages or not self._turn.acquire(blocking=False):
            return False
        try:
            handle = self.handle
            if handle is None:
                return False
            handle(message)
            return True
        finally:
            self._turn.release()


class QuickActor(pykka.ThreadingActor):
    """A daemon-threaded actor whose inbox is a `queue.SimpleQueue`."""

    use_daemon_thread = True

    @staticmethod
    def _create_actor_inbox() -> ActorInbox:
        inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
        return inbox

    def _start_actor_loop(self) -> None:
        try:
            super()._start_actor_loop()
        except BaseException:  # Ctrl-C while its thread starts: the caller gets no reference to stop it with
            self.actor_ref.stop(block=False)
            raise
