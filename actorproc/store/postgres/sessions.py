"""Sessions of the database, each used by one thread at a time.

A session asks several statements in one round trip (libpq's pipeline). Every wait of it ends at a deadline: no setting
of the server helps against a connection that is half open.

Facts this rests on (libpq 15 to 18, psycopg 3.2.4 and later):

- All statements between two syncs are one transaction. After an error the rest of it is skipped up to the sync.
- A server that dies may leave the rest of a pipeline unsaid.
"""

from __future__ import annotations

import os
import select
import struct
import time
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple, Protocol

from actorproc.store.postgres.failures import DatabaseFailure

__all__ = [
    "ARRAY",
    "BYTES",
    "IDLE_LOOK",
    "NUMBER",
    "Answer",
    "Question",
    "Session",
    "SessionKind",
    "Statement",
    "array_of",
    "number",
    "numbered",
]

BYTES, NUMBER, ARRAY = 17, 20, 1001
"""Types of parameters: bytea, bigint, bytea[]."""

SessionKind = Literal["commit", "lock", "load", "look"]
"""commit: writes of the owner. lock: the advisory lock and the lease. load: reads of the owner. look: other reads."""

IDLE_LOOK = 2.0
"""Seconds after which the server ends an idle session that only looks: many clients must not use its connections up."""
_MOST_UNSENT = 4 << 20
"""Bytes of parameters after which is sent what there is."""
_pack_length = struct.Struct(">i").pack
_pack_number = struct.Struct(">q").pack


class Answer(Protocol):
    """Rows that answer a question; of psycopg."""

    @property
    def status(self) -> int: ...
    @property
    def ntuples(self) -> int: ...
    @property
    def nfields(self) -> int: ...

    def get_value(self, row_number: int, column_number: int) -> bytes | None: ...
    def error_field(self, fieldcode: int) -> bytes | None: ...
    def get_error_message(self) -> str: ...


Connection = Any
"""A `PGconn` of psycopg, which is loaded when the first session is opened."""

_TUPLES_OK, _COMMAND_OK, _PIPELINE_SYNC = 2, 1, 10
"""States of an answer (libpq's ExecStatusType)."""
_CONNECTION_BAD = 1
_MOST_EMPTY = 2
"""Times that libpq may say that there is no result before there is one."""
_SQLSTATE, _PRIMARY, _DETAIL, _TABLE, _COLUMN = ord("C"), ord("M"), ord("D"), ord("t"), ord("c")
"""Fields of an error."""


class Statement(NamedTuple):
    """A statement, prepared in a session when it is asked there first."""

    sql: bytes
    types: tuple[int, ...] = ()
    once: bool = False
    """It is not kept prepared."""


Question = tuple[Statement, tuple[bytes | None, ...]]
"""A statement with its parameters, in their binary forms."""


def number(value: int) -> bytes:
    """A bigint as a parameter."""
    return _pack_number(value)


def numbered(value: bytes | None) -> int:
    """A bigint of an answer; 0 for NULL."""
    return int.from_bytes(value, signed=True) if value is not None else 0


def array_of(values: Sequence[bytes | bytearray]) -> bytes:
    """A bytea[] as a parameter."""
    if not values:
        return b"\0\0\0\0\0\0\0\0\0\0\0\x11"
    parts: list[bytes | bytearray] = [b"\0\0\0\1\0\0\0\0\0\0\0\x11", _pack_length(len(values)), b"\0\0\0\1"]
    for value in values:
        parts.append(_pack_length(len(value)))
        parts.append(value)
    return b"".join(parts)


class Session:
    """One connection; made by `connect`."""

    def __init__(self, connection: Connection, kind: SessionKind, pid: int, version: int) -> None:
        self._connection = connection
        self.kind: SessionKind = kind
        self.pid = pid
        """Process of the server, by its own word."""
        self.version = version
        self.is_broken = False
        self.idle_since = 0.0
        """Monotonic seconds since when no view uses it; of no meaning while one does."""
        self._process = os.getpid()
        self._names: dict[Statement, bytes] = {}
        self._last_name = 0
        self._owed: deque[list[Statement | None]] = deque()
        """Answers that are to come: for each sync the statements that are prepared, and None for each question."""
        self._poll = select.poll()
        self._socket = int(connection.socket)
        self._poll.register(self._socket, select.POLLIN)
        connection.nonblocking = 1
        connection.enter_pipeline_mode()

    def ask(self, questions: Sequence[Question], within: float) -> list[Answer]:
        """Ask all in one round trip and one transaction; the answers in order.

        Raises `DatabaseFailure`; when the session `is_broken` then, what became of the questions is not known.
        """
        until = time.monotonic() + within
        self.send(questions, until)
        while len(self._owed) > 1:
            self._receive(until)
        return self._receive(until)

    def tell(self, questions: Sequence[Question], within: float) -> None:
        """Send these, whose answers are read before those of the next `ask`."""
        self.send(questions, time.monotonic() + within)

    def send(self, questions: Sequence[Question], until: float) -> None:
        """Send these as one transaction."""
        if self.is_broken:
            raise DatabaseFailure("the session has failed before", "08003")
        names = self._names
        connection = self._connection
        owed: list[Statement | None] = []
        unsent = 0
        try:
            for statement, values in questions:
                if statement.once:
                    connection.send_query_params(statement.sql, values, statement.types, (1,) * len(values), 1)
                    owed.append(None)
                    continue
                name = names.get(statement)
                if name is None:
                    self._last_name += 1
                    name = names[statement] = b"s%d" % self._last_name
                    connection.send_prepare(name, statement.sql, statement.types)
                    owed.append(statement)
                connection.send_query_prepared(name, values, (1,) * len(values), 1)
                owed.append(None)
                unsent += sum(map(len, filter(None, values)))
                if unsent > _MOST_UNSENT:  # libpq would keep all of it
                    unsent = 0
                    self._flush(until)
            connection.pipeline_sync()
            self._owed.append(owed)
            self._flush(until)
        except DatabaseFailure:
            raise
        except Exception as error:
            raise self._broken(error) from error

    def _flush(self, until: float) -> None:
        """Send what libpq has, and take what comes meanwhile: neither end waits for the other."""
        connection = self._connection
        while connection.flush():
            self._wait(until, is_writing=True)
            connection.consume_input()

    def _receive(self, until: float) -> list[Answer]:
        """Answers to what was sent up to the next sync."""
        owed = self._owed.popleft()
        answers: list[Answer] = []
        failed: Answer | None = None
        count = 0
        try:
            for answer in self._arriving(until):
                if answer.status not in (_TUPLES_OK, _COMMAND_OK):
                    failed = failed or answer
                    continue
                if count < len(owed) and owed[count] is None:
                    answers.append(answer)
                count += 1
        except DatabaseFailure as lost:
            if failed is not None:  # the server said why before it went
                raise _failure_of(failed, self._connection) from lost
            raise
        if failed is None:
            return answers
        for statement in owed[count:]:
            if statement is not None:
                self._names.pop(statement, None)
        raise _failure_of(failed, self._connection)

    def _arriving(self, until: float) -> Iterator[Answer]:
        """Results up to the next sync. The session `is_broken` when they end without one."""
        connection = self._connection
        empty = 0
        while True:
            try:
                while connection.is_busy():
                    self._wait(until)
                    connection.consume_input()
                answer = connection.get_result()
            except DatabaseFailure:
                raise
            except Exception as error:
                raise self._broken(error) from error
            if answer is not None:
                empty = 0
                if answer.status == _PIPELINE_SYNC:
                    return
                yield answer
                continue
            empty += 1
            if empty > _MOST_EMPTY or connection.status == _CONNECTION_BAD:
                # A server that dies may leave the rest unsaid, and libpq says "nothing" for ever.
                raise self._broken("the connection was lost")

    def _wait(self, until: float, *, is_writing: bool = False) -> None:
        rest = until - time.monotonic()
        if rest <= 0:
            raise self._broken("the database did not answer in time")
        if is_writing:
            self._poll.modify(self._socket, select.POLLIN | select.POLLOUT)
        self._poll.poll(rest * 1000 + 1)
        if is_writing:
            self._poll.modify(self._socket, select.POLLIN)

    def hear(self, within: float, waker: int) -> bool:
        """Wait for a notification (LISTEN) while nothing is asked.

        Args:
            within: Seconds to wait at most.
            waker: The reading end of a pipe; a byte in it ends the wait, and is taken out.

        Returns:
            True if one or more came.

        Raises:
            DatabaseFailure: The session has ended.
        """
        if self._has_heard():
            return True
        self._poll.register(waker, select.POLLIN)
        try:
            ready = dict(self._poll.poll(within * 1000 + 1))
        finally:
            self._poll.unregister(waker)
        if waker in ready:
            os.read(waker, 64)
        if self._socket not in ready:
            return False
        try:
            self._connection.consume_input()
        except Exception as error:
            raise self._broken(error) from error
        return self._has_heard()

    def _has_heard(self) -> bool:
        found = False
        while self._connection.notifies() is not None:
            found = True
        return found

    @property
    def may_be_ended(self) -> bool:
        """The server ends it soon, or has, as it was idle."""
        return self.kind == "look" and time.monotonic() - self.idle_since > IDLE_LOOK / 2

    @property
    def is_encrypted(self) -> bool:
        """The connection is one of TLS."""
        return bool(self._connection.ssl_in_use)

    def fileno(self) -> int:
        """The socket, to wait for."""
        return self._socket

    def _broken(self, reason: Answer | Exception | str) -> DatabaseFailure:
        self.is_broken = True
        failure = _failure_of(reason, self._connection)
        self.close()
        return failure

    def close(self) -> None:
        """End the session. Idempotent; in a forked copy nothing is sent."""
        self.is_broken = True
        if self._process == os.getpid():
            self._connection.finish()


def _failure_of(reason: Answer | Exception | str, connection: Connection) -> DatabaseFailure:
    if isinstance(reason, str):
        said = connection.get_error_message() if connection.status == _CONNECTION_BAD else ""
        return DatabaseFailure(said or reason, "08006")
    if isinstance(reason, Exception):
        return DatabaseFailure(str(reason), "")

    def field(name: int) -> str:
        return (reason.error_field(name) or b"").decode(errors="replace")

    text = field(_PRIMARY) or reason.get_error_message()
    detail = field(_DETAIL) if field(_SQLSTATE) != "23502" else ""
    return DatabaseFailure(
        f"{text} ({detail})" if detail else text,
        field(_SQLSTATE),
        table=field(_TABLE),
        column=field(_COLUMN),
    )
