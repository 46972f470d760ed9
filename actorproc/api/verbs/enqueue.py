"""Enqueueing: a procedure is handed over in a transaction of the application, and created by the manager that leads.

The application needs neither a manager nor a client, and no key of the store: what it writes is one row.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from typing import Any, Unpack

from actorproc.api.verbs.submit import SubmitOptions, checked_terms, described
from actorproc.config import Config
from actorproc.engine.arguments import check_flag
from actorproc.errors import StateTooLarge, UsageError
from actorproc.model.rows.enqueued import EnqueuedRecord, waiting_key
from actorproc.procedure.authoring.procedure import Procedure
from actorproc.procedure.runtime.engine_side import TypeRegistry, TypeRuntime
from actorproc.procedure.values.members import option
from actorproc.store.postgres.borrowed import (
    BorrowedStatement,
    asked,
    asked_async,
    facts_in,
    place_named,
    put_row,
    transaction_facts,
)
from actorproc.store.postgres.place import DEFAULT_STORE
from actorproc.store.rows import codec
from actorproc.store.rows.tables import Table

__all__ = ["enqueue", "enqueue_async"]

_RANDOM = 8
_types = TypeRegistry()


def enqueue(
    connection: Any,
    procedure: Procedure[Any],
    id: str | None = None,
    *,
    store: str = DEFAULT_STORE,
    notify: bool = True,
    max_state: int = Config.max_state,
    **options: Unpack[SubmitOptions],
) -> str:
    """Hand a procedure over in the transaction of this connection: it is committed with it, or not at all.

    The manager that leads the store creates the procedure after the commit, once, whichever process is killed
    meanwhile. While none leads, it waits in the store. Nothing is committed or rolled back here.

    Args:
        connection: A connection of psycopg 3 or psycopg2, a ``Connection`` or ``Session`` of SQLAlchemy, or
            ``django.db.connection``; to the database of the store.
        procedure: An instance of a class whose state is stored as data, and which the manager knows.
        id: Its name for ever. Default: None, a new id.
        store: Name of the store, which is that of its schema; or its URL. Default: ``"actorproc"``.
        notify: Have the leader woken by the commit (``NOTIFY``). False is needed in a transaction that is prepared
            (two-phase commit): then the leader finds it within two seconds. Default: True.
        max_state: Greatest size of its state in bytes; the manager has a limit of its own. Default:
            `Config.max_state`.
        **options: Those of `ProcedureManager.submit` but ``debounce``. Times from now are counted by the clock of the
            database.

    Returns:
        The id, for `ProcedureClient.get` once the transaction is committed.

    Raises:
        EngineError: The database has no such store, one of an earlier version, or one that was moved; or the
            transaction is read-only.
        NotAllowed: The role may not enqueue (``actorproc grants``).
        StateNotEncodable: Its state cannot be stored.
        StateTooLarge: Its state takes more bytes than ``max_state``.
        UsageError: Its class, or the id, is wrong; its state is a pickle; or it is to be debounced.
        ValueError: A time makes no sense.
        TypeError: An option is of the wrong kind, or it is no connection that is known here.
    """
    writing = _writing(procedure, id, store, notify, max_state, options)
    question = next(writing)
    while True:
        try:
            question = writing.send(asked(connection, question))
        except StopIteration as done:
            return str(done.value)


async def enqueue_async(
    connection: Any,
    procedure: Procedure[Any],
    id: str | None = None,
    *,
    store: str = DEFAULT_STORE,
    notify: bool = True,
    max_state: int = Config.max_state,
    **options: Unpack[SubmitOptions],
) -> str:
    """Hand a procedure over as `enqueue` does, in the transaction of a connection whose methods are awaited.

    Args:
        connection: An ``AsyncConnection`` of psycopg 3, or an ``AsyncConnection`` or ``AsyncSession`` of SQLAlchemy.
        procedure: As of `enqueue`.
        id: As of `enqueue`. Default: None, a new id.
        store: As of `enqueue`. Default: ``"actorproc"``.
        notify: As of `enqueue`. Default: True.
        max_state: As of `enqueue`. Default: `Config.max_state`.
        **options: Those of `ProcedureManager.submit`.

    Returns:
        The id.

    Raises:
        ActorprocError: As of `enqueue`.
        TypeError: As of `enqueue`.
        ValueError: As of `enqueue`.
    """
    writing = _writing(procedure, id, store, notify, max_state, options)
    question = next(writing)
    while True:
        try:
            question = writing.send(await asked_async(connection, question))
        except StopIteration as done:
            return str(done.value)


class _DatabaseClock:
    """Shows the time at which the database answered."""

    def __init__(self, at: float) -> None:
        self._at = at

    def wall(self) -> float:
        return self._at

    def monotonic(self) -> float:
        return self._at


def _writing(
    procedure: Procedure[Any], id: str | None, store: str, notify: bool, max_state: int, options: SubmitOptions
) -> Generator[BorrowedStatement, Any, str]:
    """The statements that enqueue a procedure, each of which is sent its answer; returns the id."""
    check_flag(notify, "notify")
    place = place_named(store)
    if options.get("debounce") is not None:
        raise UsageError("what is enqueued has its id at once, and a debounced submit may get that of an earlier one")
    runtime = _runtime_of(procedure)
    facts = facts_in((yield transaction_facts(place)), place)
    new = described(runtime, procedure, id, checked_terms(_DatabaseClock(facts.at), **options))
    if len(new.state) > max_state:
        msg = (
            f"the state of {new.type_name} has {len(new.state)} bytes; max_state is {max_state}. Keep large data in a "
            "table of your own, or a file, and its place in the state"
        )
        raise StateTooLarge(msg)
    key = waiting_key(facts.at, os.urandom(_RANDOM))
    value = codec.encode(Table.ENQUEUED, key, EnqueuedRecord(key=key, at=facts.at, new=new))
    yield put_row(place, key, value, notify=notify)
    return new.id


def _runtime_of(procedure: Procedure[Any]) -> TypeRuntime:
    if isinstance(procedure, Procedure) and option(type(procedure), "codec") == "pickle":
        msg = (
            f"the state of {type(procedure).__qualname__} is a pickle, which is signed with a key of the store, and "
            "applications have none: give its fields types that are stored as data, or submit it through a client"
        )
        raise UsageError(msg)
    return _types.for_object(procedure)
