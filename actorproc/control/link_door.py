"""The door over links: the manager listens on an address, and clients find it through the leader's row."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable

from actorproc.errors import EngineError, NotAllowed, UnknownType, UsageError
from actorproc.store.home import Home
from actorproc.store.shared import Leader
from actorproc.workers.link.addresses import dialled_address
from actorproc.workers.link.handshake import LinkRole
from actorproc.workers.link.listener import LinkGuest, LinkListener, dial
from actorproc.workers.link.stream import LinkStream

__all__ = ["LinkEntrance", "LinkWay"]

_SOONEST = 0.5
"""Seconds for a connection to a leader whose lease is about to end."""
_DIAL = 3.0
"""Seconds for one connection: a leader that is frozen may have a successor meanwhile."""
_BEATS = 5
"""Signs of life in the seconds of silence that mean a death."""


class LinkEntrance:
    """A manager's end of the door over links.

    Args:
        listener: Listens already: its address is in the leader's row.
        newer: Called with the highest epoch that a client has seen.
        words: The place, for messages. Default: "the listener for links".
        is_fit: Says whether this manager may still lead; if it may not, its links are closed. Default: it always may.
    """

    def __init__(
        self,
        listener: LinkListener,
        newer: Callable[[int], object],
        words: str = "the listener for links",
        is_fit: Callable[[], bool] = lambda: True,
    ) -> None:
        self.words = words
        self.is_fit = is_fit
        self.take_host: Callable[[LinkStream, str], object] | None = None
        self.beat: float | None = listener.silence / _BEATS
        self._listener = listener
        self.newer = newer

    @property
    def certificate_days(self) -> float | None:
        """Days for which the user's certificate is still valid; None: none was given."""
        return self._listener.certificate.days_left

    def open(self) -> None:
        """Nothing: it listens already. Connections that came meanwhile wait in the backlog."""

    def check_types(self, names: set[str], knows: Callable[[str], bool]) -> None:
        """Refuse a type that no module of this machine is known to have."""
        unknown = sorted(name for name in names if not knows(name))
        if unknown:
            msg = (
                f"the manager that leads, process {os.getpid()} on {socket.gethostname()}, does not know the type "
                f"{', '.join(unknown)}: register it there (procedures=[…]), as its workers run it, or have a program "
                "that knows it take the lead"
            )
            raise UnknownType(msg)

    def accept(self) -> GuestByLink:
        """Wait for a connection."""
        return GuestByLink(self._listener.accept(), self)

    def close(self) -> None:
        """Listen no more."""
        self._listener.close()

    def forget(self) -> None:
        """Close the socket in a forked copy."""
        self._listener.forget()


class GuestByLink:
    """A connection to the listener for links."""

    def __init__(self, guest: LinkGuest, entrance: LinkEntrance) -> None:
        self._guest = guest
        self._entrance = entrance
        self.hang_up = guest.hang_up
        self.close = guest.close

    def admit(self) -> LinkStream | None:
        """Have it prove that it knows the secret. A host is handed over, and is no client."""
        stream = self._guest.admit()
        peer, entrance = self._guest.peer, self._entrance
        if peer is None or peer.role is not LinkRole.HOST:
            if peer is not None:
                entrance.newer(peer.epoch)
            return stream
        if entrance.take_host is None:
            raise ConnectionRefusedError("this manager takes no hosts")
        self.hang_up = self.close = _not_ours
        entrance.take_host(stream, self._guest.address)
        return None

    def turn_away(self, error: UsageError) -> None:
        """End it: one that has proved nothing is told nothing."""
        self._guest.refuse(ConnectionRefusedError(str(error)))


def _not_ours() -> None:
    """The connection belongs to others now."""


class LinkWay:
    """Way of a client to the manager that leads.

    Each connection begins with a look at the leader's row. So it follows a change of leaders, and of certificates.

    Args:
        home: The home of the store.
        role: The role to connect in.
    """

    longest_pause = 2.0
    """As each try asks the database, which other clients ask too."""

    def __init__(self, home: Home, role: LinkRole = LinkRole.CLIENT) -> None:
        self.words = home.words
        self._home = home
        self._role = role
        self._name = socket.gethostname()
        self.highest = 0
        """Highest epoch seen."""
        self._last: Leader | None = None
        """The leader that was connected last. To this one a host comes back while there is no other."""

    def connect(self, patience: float) -> LinkStream:
        """Connect to the leader of this moment."""
        try:
            leader = self._home.leader()
        except EngineError as error:  # the database is away: it may come back
            leader = self._last if self._role is LinkRole.HOST else None
            if leader is None:
                raise ConnectionError(str(error)) from error
        else:
            if leader is None or not (leader.leads or self._may_come_back(leader)):
                raise ConnectionRefusedError("no manager leads at the moment")
        if not leader.address:
            msg = f"the manager that leads ({leader.owner}) lets no process in; see Config.control"
            raise EngineError(msg)
        if not leader.secret:
            msg = (
                f"this login may only look at the store {self.words}: it may not read the secret of {leader.owner}, "
                "which leads. Verbs need the role of the managers; `actorproc grants` shows the roles"
            )
            raise NotAllowed(msg)
        host, port = dialled_address(leader.address)
        self.highest = max(self.highest, leader.epoch)
        try:
            stream = dial(
                host,
                port,
                secret=leader.secret,
                pin=leader.pin,
                role=self._role,
                epoch=self.highest,
                name=self._name,
                within=min(patience, _DIAL, max(_SOONEST, leader.lease)),
            )
        except OSError as error:
            msg = f"{leader.owner}, which leads, does not answer at {leader.address.partition('@')[0]}: {error}"
            raise ConnectionError(msg) from error
        self._last = leader
        return stream

    def _may_come_back(self, leader: Leader) -> bool:
        """True for a host of a leader that could not renew its lease, and that has no successor yet."""
        last = self._last
        is_known = last is not None and last.epoch == leader.epoch and bool(leader.address)
        return is_known and self._role is LinkRole.HOST

    def greeted(self, stream: object, epoch: int) -> None:  # noqa: ARG002 - the handshake said its limit
        """Note the epoch."""
        self.highest = max(self.highest, epoch)

    def unanswered(self, waited: str) -> str:
        """Message with the leader, as its row names it."""
        try:
            leader = self._home.leader()
        except EngineError:
            return f"the leader of the store {self.words} cannot be looked up {waited}"
        if leader is not None and leader.leads:
            where = leader.address.partition("@")[0]
            here = f"{leader.owner} leads the store {self.words} and does not answer at {where} {waited}"
            return f"{here}. Its address is set with Config(listen=…) and Config(advertise=…)"
        here = f"no manager leads the store {self.words} {waited}"
        return f"{here}. Start one, or give the client more patience"
