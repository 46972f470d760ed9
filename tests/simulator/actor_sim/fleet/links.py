"""Played connections between agents and the manager that leads, and sessions over them, with the real ends of links."""

from __future__ import annotations

from collections.abc import Callable

from actorproc.workers.link.resume import CHUNK, LinkEnd, LinkFault
from tests.simulator.actor_sim.clockwork import SimulatedClock
from tests.simulator.core_sim.world import World

__all__ = ["PlayedSession", "PlayedStream", "Wire", "connected"]


class Wire:
    """One connection. What is sent over it arrives at once, or never."""

    def __init__(self, world: World, clock: SimulatedClock) -> None:
        self.world = world
        self.clock = clock
        self.broke_at: float | None = None
        """Monotonic seconds; None: it has not broken."""
        self.sessions: list[PlayedSession] = []
        """The ends that have begun with it."""
        self.unnoticed: list[PlayedSession] = []
        """Ends that are to hear that it has broken."""

    @property
    def is_alive(self) -> bool:
        """Bytes arrive."""
        return self.broke_at is None

    def cut(self) -> None:
        """Break it; each end hears of that later. What an end sends in this moment may be lost."""
        if self.broke_at is not None:
            return
        self.broke_at = self.clock.monotonic()
        self.unnoticed = [session for session in self.sessions if session.wire is self]
        for session in self.unnoticed:
            if self.world.random() < 0.5:
                session.end.take(CHUNK)

    def moves(self) -> list[Callable[[], None]]:
        """Ends that have something to send, or to hear of."""
        if self.is_alive:
            return [session.carry for session in self.sessions if session.wire is self and session.has_data]
        return [session.learn for session in self.unnoticed if session.wire is self]


class PlayedStream:
    """One end of a connection, as the first messages of agent and leader need it."""

    silence = stuck = 0.0

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self.peer: PlayedStream
        self.data = bytearray()
        """Bytes that have arrived."""
        self.answered: Callable[[], None] | None = None
        """Lets the other end hear what was said, before its answer is read."""

    def sendall(self, data: bytes) -> None:
        """Send, or break."""
        if not self.wire.is_alive:
            raise BrokenPipeError("the connection is broken")
        self.peer.data += data

    def recv(self, size: int, until: float | None = None) -> bytes:
        """Bytes that have arrived."""
        del until
        if self.answered is not None:
            answered, self.answered = self.answered, None
            answered()
        taken = bytes(self.data[:size])
        del self.data[:size]
        if not taken:
            raise ConnectionResetError("the connection is broken")
        return taken

    def hang_up(self) -> None:
        """End the connection."""
        self.wire.cut()

    def close(self) -> None:
        """There is no descriptor."""


def connected(world: World, clock: SimulatedClock) -> tuple[PlayedStream, PlayedStream]:
    """Both ends of a new connection."""
    wire = Wire(world, clock)
    one, other = PlayedStream(wire), PlayedStream(wire)
    one.peer, other.peer = other, one
    return one, other


class PlayedSession:
    """A `LinkSession` without its threads: bytes go over when the history says so."""

    def __init__(
        self, hear: Callable[[bytes], None], on_break: Callable[[OSError], None], clock: SimulatedClock
    ) -> None:
        self.end = LinkEnd()
        self.wire: Wire | None = None
        self.received_bytes = self.sent_bytes = self.resumes = self.late_beats = 0
        self._hear = hear
        self._on_break = on_break
        self._clock = clock
        self._heard = clock.monotonic()
        self._closed = False

    # ------------------------------------------------------------ facts, as `LinkSession` has them
    @property
    def silent_for(self) -> float:
        """Seconds since the last byte from the other end."""
        if self.wire is not None and self.wire.is_alive:
            return 0.0
        broke_at = self.wire.broke_at if self.wire is not None else None
        return self._clock.monotonic() - max(self._heard, broke_at or 0.0)

    unheard_for = silent_for
    """Signs of life go both ways as long as the connection is there."""

    @property
    def is_connected(self) -> bool:
        """There is a connection, and it is not known to be broken."""
        return self.wire is not None

    @property
    def is_full(self) -> bool:
        """More waits for the other end than should."""
        return self.end.is_full

    @property
    def outstanding(self) -> int:
        """Bytes that the other end has not acknowledged."""
        return self.end.outstanding

    def unacknowledged(self) -> list[bytes]:
        """The messages that the other end may not have."""
        return list(self.end.unacknowledged())

    # ------------------------------------------------------------ connections
    def attach(self, stream: PlayedStream, received: int, since: float | None = None) -> None:
        """Go on over this connection."""
        del since
        if self._closed or self.wire is not None:
            raise LinkFault("the session has ended, or has a connection")
        self.end.resume(received)
        self._heard = self._clock.monotonic()
        self.resumes += bool(self.received_bytes)
        self.wire = stream.wire
        self.wire.sessions.append(self)
        if not self.wire.is_alive:
            self.wire.unnoticed.append(self)

    def detach(self) -> int:
        """Leave the present connection."""
        wire = self._left()
        if wire is not None:
            wire.cut()
        return self.end.broke()

    def learn(self) -> None:
        """Hear that the connection has broken."""
        wire = self._left()
        assert wire is not None
        wire.unnoticed.remove(self)
        self.end.broke()
        self._on_break(ConnectionResetError("the connection is broken"))

    def _left(self) -> Wire | None:
        wire = self.wire
        if wire is not None:
            self._heard = max(self._heard, wire.broke_at if wire.broke_at is not None else self._clock.monotonic())
            self.wire = None
        return wire

    def hang_up(self) -> None:
        """Break the present connection."""
        if self.wire is not None:
            self.wire.cut()

    def close(self) -> None:
        """End the session."""
        self._closed = True
        wire = self._left()
        if wire is not None:
            wire.cut()

    def forget(self) -> None:
        """There is no descriptor."""

    # ------------------------------------------------------------ data
    def put(self, lane: int, message: bytes, *, may_drop: bool = False) -> bool:
        """Queue a message."""
        return self.end.put(lane, message, may_drop=may_drop)

    @property
    def has_data(self) -> bool:
        """Something is to be sent."""
        return bool(self.end._again or self.end._lanes or self.end.has_news)

    def beat(self) -> None:
        """Send a sign of life, which acknowledges what was received."""
        if self.wire is not None and self.wire.is_alive:
            self.end.beat(self._clock.monotonic())

    def carry(self) -> None:
        """Something of what is to be sent arrives: a frame, or all that there are."""
        wire = self.wire
        assert wire is not None
        data = self.end.take(1 if wire.world.random() < 0.5 else CHUNK)
        self.sent_bytes += len(data)
        for peer in [session for session in wire.sessions if session is not self and session.wire is wire]:
            peer.take_in(data)

    def take_in(self, data: bytes) -> None:
        """Hear what has arrived."""
        wire = self.wire
        self.received_bytes += len(data)
        try:
            for message in self.end.feed(data, self._clock.monotonic()):
                self._hear(message)
        except LinkFault as error:
            if self.wire is wire and wire is not None:
                wire.cut()
                self._left()
                wire.unnoticed.remove(self)
                self.end.broke()
                self._on_break(error)

    def flush(self, within: float) -> bool:
        """Have all of it arrive, as long as the connection is there."""
        del within
        while self.outstanding and self.wire is not None and self.wire.is_alive:
            before = self.outstanding
            self.beat()
            for session in list(self.wire.sessions):
                if session.wire is not None and session.has_data:
                    session.carry()
            if self.outstanding == before and not self.has_data:
                break
        return not self.outstanding
