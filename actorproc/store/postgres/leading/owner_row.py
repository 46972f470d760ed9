"""The row of `leader`: who has a store, for how long, and where its door is."""

from __future__ import annotations

import json
import os
import socket
from typing import Any, NamedTuple

from actorproc.errors import StoreInUse
from actorproc.store.postgres.failures import DatabaseFailure
from actorproc.store.postgres.place import DatabasePlace
from actorproc.store.postgres.schema.statements import statements_of
from actorproc.store.postgres.sessions import Session, number, numbered
from actorproc.store.shared import Leader

__all__ = ["OWNERS_HERE", "DatabaseOwner", "DoorRow", "LeaderRow", "in_use", "owner_in", "patience_with", "read_leader"]

_WITHIN = 10.0
"""Seconds for a question about the owner."""
_PATIENCE = {"command": 10.0}
"""Seconds to wait for a living owner, by its role: one that is gone in a moment."""
_DEAD_OWNER = 5.0
"""Seconds to wait for the server to notice that an owner of this machine has ended."""
OWNERS_HERE: set[str] = set()
"""Titles of the owners of this process, from their lock on until they give it back."""


class DatabaseOwner(NamedTuple):
    """The process that has a store open."""

    pid: int
    host: str
    role: str = "manager"
    lease: float = 0.0
    """Seconds of its lease; 0: it does not say."""
    title: str = ""
    """Name of its sessions."""

    @property
    def words(self) -> str:
        """The owner as messages name it."""
        return f"process {self.pid} on {self.host}" if self.host else "another process"


class DoorRow(NamedTuple):
    """The door of an owner, as its row names it."""

    address: str
    pin: bytes
    secret: bytes


class LeaderRow(NamedTuple):
    """The row of `leader`."""

    epoch: int
    owner: DatabaseOwner | None
    left: float | None
    """Seconds of the lease that are left by the clock of the database; None: it was given back."""
    expires: int
    is_locked: bool
    address: str
    pin: bytes
    secret: bytes
    since: float

    @property
    def leads(self) -> bool:
        """The owner has not given the store back, and its lease or its lock lasts."""
        return self.owner is not None and self.left is not None and (self.left > 0 or self.is_locked)

    def leader(self) -> Leader | None:
        """The row for clients; None: the store has never had an owner, or it was given back."""
        if self.owner is None:
            return None
        left = self.left if self.left is not None else 0.0
        leads = self.leads and self.owner.role == "manager"
        return Leader(self.epoch, self.owner.words, self.address, self.pin, self.secret, self.since, left, leads=leads)


def read_leader(session: Session, place: DatabasePlace) -> LeaderRow | None:
    """The row of `leader`; None: the store was not made yet. A role that may only look is not shown the secret.

    Args:
        session: A session.
        place: The store.

    Returns:
        The row.

    Raises:
        DatabaseFailure: The database refuses.
    """
    asked = statements_of(place.schema).leader
    try:
        try:
            (answer,) = session.ask([(asked, (number(place.lock),))], _WITHIN)
        except DatabaseFailure as failure:
            if failure.state != "42501" or session.is_broken:
                raise
            shown = asked._replace(sql=asked.sql.replace(b"l.secret", b"NULL::bytea"))
            (answer,) = session.ask([(shown, (number(place.lock),))], _WITHIN)
    except DatabaseFailure as failure:
        if failure.state in {"42P01", "3F000"} and not session.is_broken:
            return None
        raise
    if not answer.ntuples:
        return None
    left = answer.get_value(0, 2)
    return LeaderRow(
        numbered(answer.get_value(0, 0)),
        owner_in(answer.get_value(0, 1)),
        None if left is None else numbered(left) / 1000,
        numbered(answer.get_value(0, 3)),
        bool(numbered(answer.get_value(0, 4))),
        (answer.get_value(0, 5) or b"").decode(errors="replace"),
        answer.get_value(0, 6) or b"",
        answer.get_value(0, 7) or b"",
        numbered(answer.get_value(0, 8)) / 1e6,
    )


def owner_in(value: bytes | None) -> DatabaseOwner | None:
    """The owner that a row of `leader` names; None: it names none."""
    if value is None:
        return None
    try:
        facts: dict[str, Any] = json.loads(value)
        lease = float(facts.get("lease", 0.0))
        title = str(facts.get("title", ""))
        return DatabaseOwner(int(facts["pid"]), str(facts["host"]), str(facts["role"]), lease, title)
    except (ValueError, KeyError, TypeError):
        return DatabaseOwner(0, "")


def patience_with(owner: DatabaseOwner | None) -> float:
    """Seconds to wait for an owner that has the lock.

    Args:
        owner: The owner; None: it is not known yet.

    Returns:
        The seconds; 0 for a manager that lives.
    """
    if owner is None:
        return _DEAD_OWNER
    if owner.host == socket.gethostname() and not _lives(owner):
        return _DEAD_OWNER
    return _PATIENCE.get(owner.role, 0.0)


def _lives(owner: DatabaseOwner) -> bool:
    if owner.pid == os.getpid():
        # An owner that was closed here may still stand in its row, and the server may not have seen its end.
        return owner.title in OWNERS_HERE
    try:
        os.kill(owner.pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def in_use(place: DatabasePlace, owner: DatabaseOwner | None) -> StoreInUse:
    """The error for a store that has another owner."""
    pid = owner.pid if owner is not None else 0
    is_here = owner is not None and owner.host == socket.gethostname()
    if is_here and pid == os.getpid():
        who, help_ = f"another manager of this process ({pid})", "use that one, stop it, or use another ?store=NAME"
    else:
        who = f"process {pid}" if pid else "another process"
        if owner is not None and owner.role == "command":
            who = f"a command ({who})"
        if owner is not None and owner.host and not is_here:
            who += f" on host {owner.host}"
        help_ = "stop it, or use another ?store=NAME"
        if owner is None or owner.role != "command":
            help_ = f"reach its manager through ProcedureClient({place.words!r}), {help_}"
    return StoreInUse(f"the store {place.words} is in use by {who}; {help_}", pid)
