"""Doors of a manager: how a client's connection comes to be, and what is known of the other end.

A manager has an *entrance*, and a client a *way* to it. One kind is the Unix socket in a directory
(`actorproc.control.unix_door`), where the kernel names the user on the other end. The other one is the link
(`actorproc.control.link_door`), where both ends prove that they know a secret. Above a door there is a stream of bytes,
the same for both.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from actorproc.errors import UsageError

__all__ = ["Entrance", "Guest", "Stream", "Way"]


class Stream(Protocol):
    """A connection that carries bytes: one thread reads, one writes, any may end it."""

    def recv(self, size: int) -> bytes:
        """At most `size` bytes; b"" at the end. Raises `OSError`."""
        ...

    def sendall(self, data: bytes) -> None:
        """Send all of it. Raises `OSError`."""
        ...

    def hang_up(self) -> None:
        """End the connection: the threads at it notice. Idempotent."""
        ...

    def close(self) -> None:
        """Give the descriptor back, without a word to the other end. Idempotent."""
        ...


class Guest(Protocol):
    """A connection that has come in, whose client is not known yet."""

    def admit(self) -> Stream | None:
        """Find out who it is; on the thread of the connection, as that may take seconds.

        Returns:
            The stream; None: it is no client, and was handed over.

        Raises:
            OSError: The connection broke, or its client is not let in.
            NotAllowed: Its client is not let in; `turn_away` is to follow.
        """
        ...

    def turn_away(self, error: UsageError) -> None:
        """Say why it is not let in, as far as that can be said, and end it."""
        ...

    def hang_up(self) -> None:
        """End it, also in the middle of `admit`."""
        ...

    def close(self) -> None:
        """Give the descriptor back."""
        ...


class Entrance(Protocol):
    """The manager's end of a door."""

    words: str
    """The place, for messages."""
    take_host: Callable[[Any, str], object] | None
    """Called with the connection and the address of a host; None: none comes in here."""
    beat: float | None
    """Seconds of silence after which a client is to be sent a sign of life; None: the kernel tells it of a death."""

    def is_fit(self) -> bool:
        """This manager may still serve clients; else their connections are closed, and they look for the next one."""
        ...

    def check_types(self, names: set[str], knows: Callable[[str], bool]) -> None:
        """Refuse a submit of a type that this manager has never heard of, where nothing brings its class along.

        Raises:
            UnknownType: It is one.
        """
        ...

    def open(self) -> None:
        """Listen. Raises `OSError` and `EngineError`."""
        ...

    def accept(self) -> Guest:
        """Wait for a connection. Raises `OSError`, also when the entrance is closed."""
        ...

    def close(self) -> None:
        """Listen no more. Idempotent."""
        ...

    def forget(self) -> None:
        """Close what is open in a forked copy of the program."""
        ...


class Way(Protocol):
    """A client's end of a door."""

    words: str
    """The place, for messages."""
    longest_pause: float
    """Seconds at most between two tries to connect."""

    def connect(self, patience: float) -> Stream:
        """A connection to the manager that is there now.

        Args:
            patience: Seconds that it may take.

        Raises:
            OSError: There is none, or it does not answer; it may answer later.
            EngineError: The other end is no manager that may be trusted.
        """
        ...

    def greeted(self, stream: Stream, epoch: int) -> None:
        """Note that a manager answered, and its epoch; from now on its silence has another limit, or none."""
        ...

    def unanswered(self, waited: str) -> str:
        """Message for callers to whom no manager answers.

        Args:
            waited: How long, and the last error, in parentheses.
        """
        ...
