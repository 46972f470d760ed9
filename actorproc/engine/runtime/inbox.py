"""Inboxes for Pykka's threading actor: one made in C, and one whose actor may run on the thread that brings a message.

`queue.Queue` wakes its reader through a condition in Python, which costs some 20 microseconds per message, several
times per durable step. `queue.SimpleQueue` has the same three methods Pykka uses. The hook is Pykka's own ("internal
method for implementors of new actor types"), and the dependency is pinned below the next major version.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

import pykka
from pykka._envelope import Envelope
from pykka.messages import _ActorStop

from actorproc.engine.runtime.inbox_ear import Ear, InboxEar

if TYPE_CHECKING:
    from pykka._actor import ActorInbox

__all__ = ["CombiningInbox", "QuickActor"]


_UNHEARD = 64
"""Messages after which it is listened to the ear although more are waiting."""


class CombiningInbox:
    """Pykka's inbox protocol for an actor that works for other parts while it waits, and is lent threads.

    The actor's own thread does in `get` what must be done without the turn. It listens at its ear, which may be the
    pool's, and does the jobs of the store. While it is away at that for long, the pool's thread stands in for it.

    To wake the actor's thread costs more than most of its messages, above all where the interpreter lock has to change
    hands. So a thread that brings one is lent to the actor instead, as in flat combining (Hendler, Incze, Shavit and
    Tzafrir, 2010). The thread that handles a message holds the *turn*. There is one turn, so the actor runs on one
    thread at a time. That is its own, mostly, or the pool's with an answer or a death.

    A class that "needs the manager's turn" has no lock. It must not keep anything per thread (thread-locals, LMDB
    write transactions), as two calls of it may come on two threads. Messages of one thread stay in their order:
    `deliver` goes round the queue only when nothing is in it and the turn is free.
    """

    __slots__ = (
        "_due",
        "_ear",
        "_has_turn",
        "_messages",
        "_moved",
        "_turn",
        "_unheard",
        "_work",
        "end",
        "go_on",
        "handle",
        "is_hearing",
        "own_thread",
        "wake",
    )

    def __init__(self) -> None:
        self._messages: deque[Any] = deque()
        self._ear: Ear = InboxEar()
        self.wake = self._ear.wake
        """Tells the actor's own thread, from any other, that there is something to do."""
        self._turn = threading.Lock()
        self._has_turn = False
        """The actor's own thread has the turn: from one `get` to the next."""
        self._unheard = 0
        self._moved: list[bool] = []
        """Not empty: it has another ear than a moment ago."""
        self._due: tuple[Collection[object], ...] = (self._messages, self._moved)
        """The places where something waits that is to be done."""
        self.own_thread = 0
        """Number of the actor's own thread."""
        self.handle: Callable[[Any], None] | None = None
        """Handler of a message that is delivered; None: the actor is not lent a thread. It must not raise."""
        self.is_hearing = False
        """The actor's own thread handles what its ear has heard: more may come before it can rest."""
        self.go_on: Callable[[object], None] = _nothing
        """As `handle`, on the actor's own thread. It is given None when all that was heard at once has been handled."""
        self.end: Callable[[], None] = _end_nothing
        """Ends the actor, and with it perhaps what waits for the store; on another thread while its own is away."""
        self._work: Callable[[], bool] | None = None

    def work_off(self, jobs: Collection[object], work: Callable[[], bool]) -> None:
        """Have the actor's own thread do these jobs without the turn; `work` does the next one."""
        self._due, self._work = (*self._due, jobs), work

    # ------------------------------------------------------------ any thread
    def put(self, envelope: Any, /) -> None:
        """Leave a message for the actor's own thread."""
        try:
            self._messages.append(envelope)
            self.wake()
        except BaseException:  # Ctrl-C between the two: the message may be there, and would be heard with the next one
            self.wake()
            raise

    @property
    def waiting(self) -> Collection[object]:
        """The messages that wait."""
        return self._messages

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

    def bring(self, message: object) -> bool:
        """As `deliver`, for what came of a job: on the actor's own thread it waits for the turn."""
        if threading.get_ident() != self.own_thread:
            return self.deliver(message)
        with self._turn:
            self.go_on(message)
            return True

    def listen_at(self, ear: Ear) -> None:
        """Have the actor listen there from now on."""
        self._ear, self.wake, before = ear, ear.wake, self._ear
        self._moved.append(True)
        ear.attend(self.relieve)
        before.quit()
        before.wake()

    def relieve(self) -> None:
        """Handle what waits on this thread, while the actor's own is away. Its end has a thread to itself."""
        messages = self._messages
        while messages and self._turn.acquire(blocking=False):
            try:
                handle = self.handle
                if handle is None or not messages:
                    return
                envelope = messages.popleft()
                if isinstance(envelope.message, _ActorStop):
                    self._end(envelope)
                    return
                handle(envelope.message)
                if envelope.reply_to is not None:
                    envelope.reply_to.set(None)
            finally:
                self._turn.release()

    def _end(self, envelope: Any) -> None:
        def end() -> None:
            self.end()
            if envelope.reply_to is not None:
                envelope.reply_to.set(None)
            self.handle = None  # the rest is for its own thread, which leaves by this once it is back
            self.put(Envelope(_ActorStop()))

        try:
            threading.Thread(target=end, name="actorproc-end", daemon=True).start()
        except RuntimeError:  # the system has no more threads: the actor's own will do it
            self._messages.appendleft(envelope)

    # ------------------------------------------------------------ the actor's own thread
    def get(self) -> Any:
        """The next message, waiting for it. For the actor's own thread, which is through with the one before."""
        if self._has_turn:
            self._has_turn = False
            self._turn.release()
        messages = self._messages
        while True:
            if self._work is not None and self._work():
                self._unheard = _UNHEARD
            if messages and self._unheard < _UNHEARD:
                self._turn.acquire()
                if messages:
                    self._unheard += 1
                    self._has_turn = True
                    return messages.popleft()
                self._turn.release()  # it was relieved of it
            self._hear()

    def quit(self) -> None:
        """Listen no more, nor work."""
        self._work = self.handle = None
        self._due = (self._messages, self._moved)
        self.go_on, self.end = _nothing, _end_nothing
        self._ear.quit()

    def _hear(self) -> None:
        self._unheard = 0
        self._moved.clear()
        ear = self._ear
        if ear.is_over:
            self._ear = ear = InboxEar()
            self.wake = ear.wake
        heard = ear.listen(self._due)
        if not heard:
            return
        self.is_hearing = True
        try:
            for key, mask in heard:
                ear.handle(key.data, mask)
        except BaseException as error:  # noqa: BLE001 - it ends the pool, on its own thread
            ear.failed(error)
        finally:
            self.is_hearing = False
            ear.lock.release()
        with self._turn:
            self.go_on(None)


def _nothing(_: object) -> None:
    """The actor has ended, or has not begun."""


def _end_nothing() -> None:
    """As `_nothing`."""


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
