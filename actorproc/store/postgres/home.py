"""Home of a store in a database.

Nothing of it loads psycopg before a method is called: a module with a manager at its top is imported by workers too.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from actorproc.errors import EngineError, StorageUnavailable
from actorproc.store.directory import make_directory
from actorproc.store.home_base import Home
from actorproc.store.postgres.place import DatabasePlace
from actorproc.store.reading import Durability, OwnerRole, ReadingStore, StoreOwner
from actorproc.store.shared import Leader
from actorproc.store.signing_key import keys_in, rotated
from actorproc.support.clock import MeasuredClock

if TYPE_CHECKING:
    from actorproc.store.postgres.reader import DatabaseReader
    from actorproc.store.postgres.sessions import Session
    from actorproc.store.postgres.store import DatabaseStore

__all__ = ["DatabaseHome"]

_LARGEST = 512 << 20
"""Bytes of a value; PostgreSQL takes 1 GB for a field, and as much for a message."""
_BACKOFF_CAP = 0.5
"""Seconds: a database that was restarted takes commits at once, while a full disk has to be freed first."""
_SECRETS = ("PGPASSWORD", "PGSSLPASSWORD")
_WITHIN = 10.0


class DatabaseHome(Home):
    """A schema of a PostgreSQL database.

    The door of the manager that leads is where the leader's row says. The log spool is in a directory of this user, on
    the machine of the process.

    Args:
        place: The database and the name of the store.
    """

    largest_value = _LARGEST
    backoff_cap = _BACKOFF_CAP
    is_near = False
    staging = ""

    def __init__(self, place: DatabasePlace) -> None:
        self.place = place
        self.words = place.words
        self.secrets = (*_SECRETS, "ACTORPROC_PATH") if place.has_password else _SECRETS
        self.door = None
        self.spool = _local(place)
        self._clock = MeasuredClock()

    def clock(self) -> MeasuredClock:
        """The clock of the database as the stores of this home measure it; until then that of this machine."""
        return self._clock

    def store(
        self,
        *,
        role: OwnerRole = "manager",
        durability: Durability = "power",
        allow_any_filesystem: bool = False,
        lease: float | None = None,
    ) -> DatabaseStore:
        from actorproc.store.postgres.leading.leadership import LEASE  # noqa: PLC0415 - nothing loads psycopg before
        from actorproc.store.postgres.store import DatabaseStore  # noqa: PLC0415 - as above

        if role == "manager" and self.spool is not None:
            try:
                make_directory(self.spool, allow_any_filesystem=True)
            except EngineError:
                self.spool = None
        return DatabaseStore(
            self.place,
            role=role,
            durability=durability,
            allow_unsynced=allow_any_filesystem,
            clock=self._clock,
            lease=LEASE if lease is None else lease,
        )

    def reader(
        self, *, allow_any_filesystem: bool = False, even_damaged: bool = False, patience: float = 0.0
    ) -> ReadingStore:
        del allow_any_filesystem, even_damaged
        return self._reader(patience)

    def _reader(self, patience: float = 0.0, *, whole: bool = True) -> DatabaseReader:
        from actorproc.store.postgres.reader import DatabaseReader  # noqa: PLC0415 - as above

        return DatabaseReader(self.place, patience, whole=whole)

    def exists(self) -> bool:
        with contextlib.suppress(EngineError), self._reader():
            return True
        return False

    def owner(self) -> StoreOwner | None:
        with self._reader() as reader:
            return reader.any_owner()

    def leader(self) -> Leader | None:
        with self._reader(whole=False) as reader:
            row = reader.leader_row()
        return None if row is None else row.leader()

    def may_write(self) -> bool:
        with self._reader() as reader:
            return reader.may_write()

    def candidates(self) -> tuple[str, ...]:
        with self._reader() as reader:
            return reader.candidates()

    def is_suspended(self, owner: StoreOwner) -> bool:
        from actorproc.store.lmdb.owner_lock import is_suspended  # noqa: PLC0415 - as above

        return owner.host == socket.gethostname() and is_suspended(owner)

    def keys(self) -> tuple[bytes, ...]:
        try:
            with self._reader() as reader:
                return keys_in(reader.signing_keys())
        except StorageUnavailable as error:
            if getattr(error.__cause__, "state", "") == "42501":
                return ()  # not for a role that only looks
            raise  # there may be keys
        except EngineError:
            return ()

    def keep_key(self, key: bytes) -> tuple[bytes, ...]:
        with self._reader() as reader:
            known = keys_in(reader.signing_keys())
        return known or self._keep((key,), is_first=True)  # of two who come at once the first wins

    def rotate_keys(self, *, forget: bool = False) -> tuple[bytes, ...]:
        with self._reader() as reader:
            known = keys_in(reader.signing_keys())
        return self._keep(rotated(() if forget else known))

    def _keep(self, keys: tuple[bytes, ...], *, is_first: bool = False) -> tuple[bytes, ...]:
        from actorproc.store.postgres.connecting import connect, new_title  # noqa: PLC0415 - as above
        from actorproc.store.postgres.failures import DatabaseFailure, explained  # noqa: PLC0415 - as above
        from actorproc.store.postgres.schema.statements import statements_of  # noqa: PLC0415 - as above

        session: Session | None = None
        try:
            session = connect(self.place, "commit", new_title(self.place, "keys"))
            statements = statements_of(self.place.schema)
            keep = statements.add_keys if is_first else statements.keep_keys
            session.ask([(keep, (b"".join(keys),))], _WITHIN)
            (answer,) = session.ask([(statements.keys, ())], _WITHIN)
        except DatabaseFailure as failure:
            raise explained(failure, f"storing the signing key of {self.words}") from failure
        finally:
            if session is not None:
                session.close()
        return keys_in(answer.get_value(0, 0) or b"")


def _local(place: DatabasePlace) -> Path:
    """The directory of this user for what belongs to the store and stays on this machine."""
    name = f"{place.store}-{hashlib.blake2b(place.words.encode(), digest_size=8).hexdigest()}"
    base = os.environ.get("XDG_STATE_HOME", "")
    if not base.startswith("/"):
        home = os.path.expanduser("~")  # noqa: PTH111 - without one it stays "~", where pathlib raises
        base = f"{home}/.local/state" if home.startswith("/") and os.access(home, os.W_OK) else ""
    return Path(base, "actorproc", name) if base else Path(tempfile.gettempdir(), f"actorproc-{os.geteuid()}", name)
