"""The right to write a store: its advisory lock, its lease, and the epoch that every commit is fenced by.

Two things keep a second owner out: the advisory lock, which the server gives back when the session of its holder ends,
and the lease in the row of `leader`. Neither is trusted by a commit, which looks at the epoch in its own transaction.
Only the clock of the database counts.

The lock has a session of its own, by which a thread renews the lease.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from typing import Any, Literal, NamedTuple

from actorproc.errors import StoreDamaged, StoreFormat, StoreInUse
from actorproc.model.ids import new_id
from actorproc.store.postgres.connecting import connect
from actorproc.store.postgres.failures import DatabaseFailure
from actorproc.store.postgres.place import DatabasePlace
from actorproc.store.postgres.schema import create, statements_of
from actorproc.store.postgres.sessions import BYTES, NUMBER, Question, Session, Statement, array_of, number, numbered
from actorproc.store.rows import codec
from actorproc.store.rows.layout import FORMAT, FORMAT_KEY, LAST_BATCH, STORE_ID, meta_of
from actorproc.store.rows.tables import Table
from actorproc.support.engine_log import engine_logger

__all__ = ["LEASE", "DatabaseOwner", "Leadership", "Role", "check_format", "owner_in"]

_log = engine_logger("actorproc.store")

Role = Literal["manager", "command"]
LEASE = 5.0
"""Seconds for which an owner holds the store without a word."""
_WITHIN = 10.0
"""Seconds for a question about the owner."""
_PAUSE = 0.05
_PATIENCE = {"command": 10.0}
"""Seconds to wait for a living owner, by its role: one that is gone in a moment."""
_DEAD_OWNER = 5.0
"""Seconds to wait for the server to notice that an owner of this machine has ended."""

_TRY = Statement(b"SELECT pg_try_advisory_lock($1)::int::bigint", (NUMBER,))


class DatabaseOwner(NamedTuple):
    """The process that has a store open."""

    pid: int
    host: str
    role: str = "manager"


class Leadership:
    """The lock and the lease of one owner, from `take` to `give_back`.

    Args:
        place: The store.
        title: `application_name` of all sessions of this owner.
        role: "command" for an owner that is done in a moment.
        lease: Seconds for which the store is held without a renewal.
    """

    def __init__(self, place: DatabasePlace, title: str, role: Role = "manager", *, lease: float = LEASE) -> None:
        self._place = place
        self._title = title
        self._role = role
        self._lease = lease
        self._session: Session | None = None
        self._turn = threading.Lock()
        """Held by the thread that uses the session."""
        self._ending = threading.Event()
        self._keeper: threading.Thread | None = None
        self.epoch = 0
        """Of this owner; 0 before `claim`."""
        self.regained = 0
        """Number of times that the lock was taken again because its session had ended."""

    def take(self) -> None:
        """Take the advisory lock. Raises `StoreInUse`, `DatabaseFailure`, `EngineError`."""
        self._session = connect(self._place, "lock", self._title)
        try:
            self._wait_for_lock(self._session)
        except BaseException:
            self._session.close()
            self._session = None
            raise

    def _wait_for_lock(self, session: Session) -> None:
        begun = time.monotonic()
        while not self._try(session):
            owner = self._found_owner(session)
            if time.monotonic() - begun >= _patience_with(owner):
                raise in_use(self._place, owner)
            time.sleep(_PAUSE)

    def _try(self, session: Session) -> bool:
        (answer,) = session.ask([(_TRY, (number(self._place.lock),))], _WITHIN)
        return bool(numbered(answer.get_value(0, 0)))

    def _found_owner(self, session: Session) -> DatabaseOwner | None:
        if not _is_made(session, self._place):
            return None
        question = (statements_of(self._place.schema).leader, (number(self._place.lock),))
        (answer,) = session.ask([question], _WITHIN)
        return owner_in(answer.get_value(0, 1)) if answer.ntuples else None

    def claim(self, session: Session) -> tuple[int, str]:
        """Make the tables where there are none, and raise the epoch; with the lock held.

        Args:
            session: The session of commits.

        Returns:
            The new epoch, and the `store_id`.

        Raises:
            StoreFormat: The schema is no store, or one of another format.
            StoreDamaged: The store has no id.
            DatabaseFailure: The database refuses.
        """
        place, schema = self._place, self._place.schema
        if not _is_made(session, place):
            _make(session, place)
        check_format(session, place)
        begin, end = (Statement(word) for word in (b"BEGIN", b"COMMIT"))
        # Waits for the commit of an owner before that has met its fence, and lets no other one pass.
        hold = Statement(f"SELECT epoch FROM {schema}.leader FOR UPDATE".encode())
        found = session.ask([(begin, ()), (hold, ()), (statements_of(schema).numbers, ())], _WITHIN)[2]
        epoch, last = numbered(found.get_value(0, 0)) + 1, numbered(found.get_value(0, 1))
        take = Statement(
            f"UPDATE {schema}.leader SET epoch = $1, owner = $2, since = clock_timestamp(), pids = ARRAY[$3, $4], "
            f"address = NULL, certificate = NULL, secret = NULL, code = NULL, "
            f"expires = clock_timestamp() + $5 * interval '1 millisecond'".encode(),
            (NUMBER, BYTES, NUMBER, NUMBER, NUMBER),
        )
        lock_pid = self._session.pid if self._session is not None else 0
        lease = number(int(self._lease * 1000))
        drop = Statement(f"DELETE FROM {schema}.batch".encode())
        first = Statement(f"INSERT INTO {schema}.batch (epoch, n) VALUES ($1, 0)".encode(), (NUMBER,))
        put = statements_of(schema).tables[Table.META].put
        ids = statements_of(schema).tables[Table.META].get
        answers = session.ask(
            [
                (take, (number(epoch), self._about_us(), number(session.pid), number(lock_pid), lease)),
                (drop, ()),
                (first, (number(epoch),)),
                (put, _one(LAST_BATCH, codec.encode(Table.META, LAST_BATCH, last))),
                (ids, (STORE_ID,)),
                (end, ()),
            ],
            _WITHIN,
        )
        value = answers[4].get_value(0, 0) if answers[4].ntuples else None
        if value is None:
            raise codec.damaged(Table.META, STORE_ID, "the row is missing")
        self.epoch = epoch
        self._start_keeper()
        return epoch, str(meta_of(STORE_ID, value))

    def _about_us(self) -> bytes:
        about = {"host": socket.gethostname(), "pid": os.getpid(), "role": self._role, "title": self._title}
        return json.dumps(about).encode()

    def check(self) -> None:
        """Have the lock again if its session has ended. Raises `StoreInUse`, `DatabaseFailure`."""
        try:
            self._renew()
        except DatabaseFailure:
            self._renew()

    # ------------------------------------------------------------ the lease
    def _start_keeper(self) -> None:
        self._ending.clear()
        keeper = self._keeper = threading.Thread(target=self._keep, name="actorproc-lease", daemon=True)
        keeper.start()

    def _keep(self) -> None:
        """Renew the lease until the end. No error ends it: what is lost is told by the fence of the next commit."""
        while not self._ending.wait(self._lease / 3):
            try:
                self._renew()
            except Exception as error:  # noqa: BLE001 - as the docstring says
                _log.debug("the lease of %s was not renewed: %s", self._place.words, error)

    def _renew(self) -> None:
        renew = Statement(
            f"UPDATE {self._place.schema}.leader SET expires = clock_timestamp() + $1 * interval '1 millisecond' "
            "WHERE epoch = $2".encode(),
            (NUMBER, NUMBER),
        )
        with self._turn:
            session = self._session
            if session is None or session.is_broken:
                session = self._regain()
            session.ask([(renew, (number(int(self._lease * 1000)), number(self.epoch)))], self._lease)

    def _regain(self) -> Session:
        session = connect(self._place, "lock", self._title)
        owner: DatabaseOwner | None = None
        try:
            has_lock = self._try(session)
            owner = None if has_lock else self._found_owner(session)
        except BaseException:
            session.close()
            raise
        if not has_lock:
            session.close()
            raise in_use(self._place, owner)
        self._session = session
        self.regained += 1
        return session

    def give_back(self) -> None:
        """End the lease and the session of the lock. Idempotent."""
        self._ending.set()
        keeper, self._keeper = self._keeper, None
        if keeper is not None and keeper is not threading.current_thread():
            keeper.join()
        session, self._session = self._session, None
        if session is not None and not session.is_broken and self.epoch:
            end = Statement(
                f"UPDATE {self._place.schema}.leader SET owner = NULL, pids = NULL, expires = '-infinity' "
                "WHERE epoch = $1".encode(),
                (NUMBER,),
            )
            try:
                session.ask([(end, (number(self.epoch),))], self._lease)
            except DatabaseFailure as failure:
                _log.debug("the lease of %s was not given back: %s", self._place.words, failure)
        if session is not None:
            session.close()
        self.epoch = 0

    def forget(self) -> None:
        """In a forked copy: nothing is told to the server."""
        self._session = self._keeper = None
        self.epoch = 0


def owner_in(value: bytes | None) -> DatabaseOwner | None:
    """The owner that a row of `leader` names; None: it names none."""
    if value is None:
        return None
    try:
        facts: dict[str, Any] = json.loads(value)
        return DatabaseOwner(int(facts["pid"]), str(facts["host"]), str(facts["role"]))
    except (ValueError, KeyError, TypeError):
        return DatabaseOwner(0, "")


def _patience_with(owner: DatabaseOwner | None) -> float:
    if owner is None:
        return _DEAD_OWNER
    if owner.host == socket.gethostname() and not _lives(owner.pid):
        return _DEAD_OWNER
    return _PATIENCE.get(owner.role, 0.0)


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
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


# ------------------------------------------------------------ the tables
def _one(key: bytes, value: bytes) -> tuple[bytes, bytes]:
    return array_of([key]), array_of([value])


def _is_made(session: Session, place: DatabasePlace) -> bool:
    name = f"{place.schema}.leader".replace("'", "''")
    is_there = Statement(f"SELECT (to_regclass('{name}') IS NOT NULL)::int::bigint".encode())
    (answer,) = session.ask([(is_there, ())], _WITHIN)
    return bool(numbered(answer.get_value(0, 0)))


def _make(session: Session, place: DatabasePlace) -> None:
    questions: list[Question] = [(Statement(statement.encode(), once=True), ()) for statement in create(place)]
    put = statements_of(place.schema).tables[Table.META].put
    for key, value in ((FORMAT_KEY, FORMAT), (STORE_ID, new_id())):
        questions.append((put, _one(key, codec.encode(Table.META, key, value))))
    try:
        session.ask(questions, _WITHIN)
    except DatabaseFailure as failure:
        if failure.state in {"42P07", "42710"}:
            raise StoreFormat(
                f"the schema {place.store!r} of {place.words} has tables of another program in it ({failure.text}); "
                "it was not changed. Give another ?store=NAME"
            ) from failure
        raise


def check_format(session: Session, place: DatabasePlace) -> None:
    """Raise `StoreFormat` unless the tables are a store of the format known here, or `StoreDamaged`."""
    try:
        (answer,) = session.ask([(statements_of(place.schema).tables[Table.META].get, (FORMAT_KEY,))], _WITHIN)
    except DatabaseFailure as failure:
        if failure.state in {"42P01", "42703"}:
            raise StoreFormat(
                f"the schema {place.store!r} of {place.words} is no actorproc store ({failure.text}); it was not "
                "changed. Give another ?store=NAME"
            ) from failure
        raise
    value = answer.get_value(0, 0) if answer.ntuples else None
    if value is None:
        raise StoreDamaged(f"the store {place.words} does not say its format; restore a backup", reason="no format")
    found = codec.decode(Table.META, FORMAT_KEY, value)
    if found != FORMAT:
        raise StoreFormat(
            f"the store {place.words} has format {found} and this actorproc knows format {FORMAT}; it was not changed. "
            "Open it with the actorproc that wrote it"
            + (", or a later one" if found > FORMAT else "; it can export it")
        )
