"""Pykka actors without a thread each: all of Pykka's hooks for new actor types are overridden here, and only here.

A `DispatchedActor` is an ordinary actor to code that tells or asks it. Its inbox, instead of waking a thread of its
own, puts the actor in line at a `Dispatcher`. The thread that calls `Dispatcher.run` executes one message per place
in the line. So ten thousand actors cost ten thousand small objects and one thread, and messages are handled in the
order in which they were sent, to whichever actor. One actor is never on two threads at once because one
dispatcher is run by one thread.

Differences from a `ThreadingActor`, on purpose:

- it is not in `pykka.ActorRegistry`: `stop_all()` in user code would wait for an actor that waits for user code;
- a BaseException (a `sys.exit()` in user code) stops this actor and no other; Pykka stops every actor of the process;
- exceptions named by the dispatcher as its own (`passing`) go to the caller of `run`.
"""

from __future__ import annotations

import itertools
import sys
import threading
from collections import deque
from typing import Any, Self, cast

import pykka
from pykka import ActorDeadError, ActorRef, messages
from pykka._envelope import Envelope

__all__ = ["DispatchedActor", "Dispatcher"]

_numbers = itertools.count(1)
_OF_PYKKA = frozenset((messages._ActorStop, messages.ProxyCall, messages.ProxyGetAttr, messages.ProxySetAttr))
"""Messages that are handled by Pykka; all others go to `on_receive`."""


class Dispatcher:
    """A line of actors with messages, worked off by the thread that calls `run`.

    `passing` are exceptions that end `run` instead of an actor.
    """

    def __init__(self, passing: tuple[type[BaseException], ...] = ()) -> None:
        self.passing = passing
        self._line: deque[DispatchedActor] = deque()

    def schedule(self, actor: DispatchedActor) -> None:
        """One more message waits for this actor. Any thread."""
        self._line.append(actor)

    def run(self) -> None:
        """Handle messages until none waits."""
        line = self._line
        while line:
            line.popleft()._handle_next()


class _Inbox:
    """Pykka's inbox protocol; putting a message in puts the actor in line."""

    __slots__ = ("_envelopes", "owner")

    def __init__(self) -> None:
        self._envelopes: deque[Envelope[Any]] = deque()
        self.owner: DispatchedActor | None = None

    def put(self, envelope: Envelope[Any], /) -> None:
        self._envelopes.append(envelope)
        owner = self.owner
        if owner is None:
            if envelope.reply_to is not None:
                _refuse(envelope)
            return
        owner.dispatcher.schedule(owner)

    def get(self) -> Envelope[Any]:
        return self._envelopes.popleft()

    def empty(self) -> bool:
        return not self._envelopes


class _Flag:
    """Part of an event that Pykka needs. No thread can wait for it: the waiting one may have to set it."""

    __slots__ = ("is_on",)

    def __init__(self) -> None:
        self.is_on = False

    def is_set(self) -> bool:
        return self.is_on

    def set(self) -> None:
        self.is_on = True


class DispatchedActor(pykka.Actor):
    """Base of actors that share the thread of a dispatcher. Start with ``SomeActor.start(dispatcher, …)``.

    The code that starts it keeps the actor alive by keeping a reference to the actor, not only to its `ActorRef`.
    """

    def __init__(self, dispatcher: Dispatcher) -> None:
        # All that Pykka's own __init__ does, without a UUID and a condition variable for each actor: most of a worker's
        # actors live for one step, which those two would make a fifth longer.
        self.actor_urn = f"urn:actorproc:{next(_numbers)}"
        self.actor_inbox = inbox = self._create_actor_inbox()
        self.stopped = stopped = _Flag()
        """`actor_stopped`, to be read without a call: it handles no message any more."""
        self.actor_stopped = cast("threading.Event", stopped)
        self._actor_ref = ActorRef(self)
        self.dispatcher = dispatcher
        inbox.owner = self

    @classmethod
    def start(cls, *args: Any, **kwargs: Any) -> ActorRef[Self]:
        """Make the actor and run its `on_start`, here and now."""
        return cls.create(*args, **kwargs).actor_ref

    @classmethod
    def create(cls, *args: Any, **kwargs: Any) -> Self:
        """As `start`, for the one who is to keep the actor alive."""
        actor = cls(*args, **kwargs)
        actor._start_actor_loop()
        return actor

    @staticmethod
    def _create_actor_inbox() -> _Inbox:
        return _Inbox()

    @staticmethod
    def _create_future() -> pykka.Future[Any]:
        return pykka.ThreadingFuture()

    def _start_actor_loop(self) -> None:
        self._actor_loop_setup()

    def receive(self, message: Any) -> None:
        """`tell`, and `run` of the dispatcher. For its thread: what waits for nothing needs no place in the line."""
        if not (self.dispatcher._line or self.stopped.is_on):
            self._handle(message, None)
        else:
            self.actor_ref.tell(message)
            self.dispatcher.run()

    def _handle_next(self) -> None:
        inbox = self.actor_inbox
        if inbox.empty():
            return  # emptied when the actor stopped
        envelope = inbox.get()
        self._handle(envelope.message, envelope.reply_to)

    def _handle(self, message: Any, reply_to: pykka.Future[Any] | None) -> None:
        try:
            is_plain = type(message) not in _OF_PYKKA
            response = self.on_receive(message) if is_plain else self._handle_receive(message)
        except self.dispatcher.passing:
            raise
        except BaseException as error:  # noqa: BLE001 - one actor's failure, whatever it is, ends no other actor
            self._fail(reply_to, error)
        else:
            if reply_to is not None:
                reply_to.set(response)
        if self.stopped.is_on:
            self._actor_loop_teardown()
            cast("_Inbox", self.actor_inbox).owner = None

    def _fail(self, reply_to: pykka.Future[Any] | None, error: BaseException) -> None:
        # As Pykka does: who asked gets the exception and the actor lives; a told message's failure ends the actor.
        if reply_to is not None:
            reply_to.set_exception()
            if isinstance(error, Exception):
                return
        self._handle_failure(*sys.exc_info())
        try:
            self.on_failure(*sys.exc_info())
        except Exception:  # noqa: BLE001 - as Pykka does
            self._handle_failure(*sys.exc_info())

    def _stop(self) -> None:
        self.actor_stopped.set()
        self.on_stop()


def _refuse(envelope: Envelope[Any]) -> None:
    error = ActorDeadError("the actor stopped before handling the message")
    assert envelope.reply_to is not None
    envelope.reply_to.set_exception((ActorDeadError, error, None))
