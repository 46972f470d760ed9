"""Keys that the owner of a store in a database knows: a scan that uses them finds what one of the whole index does."""

from __future__ import annotations

import contextlib
import random

import pytest

from actorproc.errors import StorageUnavailable
from actorproc.model.rows.records import RemovalRecord
from actorproc.model.rows.writes import DeleteProcedure, DeleteRemoval, PutRemoval
from actorproc.model.states import ProcedureState
from actorproc.store.postgres.connecting import connect
from actorproc.store.postgres.known_keys import MOST_KEYS, TABLES, KnownKeys
from actorproc.store.postgres.place import place_of
from actorproc.store.postgres.reader import DatabaseReader
from actorproc.store.postgres.sessions import Session, Statement
from actorproc.store.postgres.store import DatabaseStore
from actorproc.store.rows.layout import STATE_INDEX
from actorproc.store.rows.tables import Table

SUCCESS, RUNNABLE, FAILED = ProcedureState.SUCCESS, ProcedureState.RUNNABLE, ProcedureState.FAILED
STATES = [RUNNABLE, SUCCESS, FAILED]
RANGES = [(table, b"") for table in sorted(TABLES)] + [STATE_INDEX[state] for state in STATES]


@pytest.fixture
def database(database_url):
    """An owned store in a database."""
    store = DatabaseStore(database_url)
    store.own()
    yield store
    store.close()


def scanned(view, which, **how):
    return list(view.scan(*which, **how))


class Changes:
    """Commits of procedures that come, above and below those that are there, change and go."""

    def __init__(self, chance, make):
        self._chance, self._make = chance, make
        self._heads = {}
        self._seq = 1000

    def some(self):
        chance = self._chance
        writes = [write for _ in range(chance.randint(0, 5)) if (write := self._one()) is not None]
        if chance.random() < 0.2:
            writes.append(PutRemoval(RemovalRecord("p1", 1.0)) if chance.random() < 0.5 else DeleteRemoval("p1"))
        return writes

    def _one(self):
        chance, heads = self._chance, self._heads
        if heads and chance.random() < 0.55:
            head = heads.pop(chance.choice(sorted(heads)))
            if chance.random() < 0.6:
                return DeleteProcedure(head)
            change, head = self._make.change(head, state=chance.choice(STATES), finished_at=chance.random() * 100)
            heads[head.id] = head
            return change
        self._seq += 1
        number = self._seq if chance.random() < 0.6 else chance.randint(1, 900)
        name = f"p{number}"
        if name in heads:
            return None
        heads[name] = self._make.head(name, number, tags=("t",))
        return self._make.put(heads[name])


@pytest.mark.parametrize("seed", range(4))
def test_scans_of_the_owner_find_what_those_of_a_reader_find(database, database_url, make, seed):
    """Commits, and scans of each kind, in snapshots that are left open over some of the commits."""
    chance = random.Random(seed)
    changes = Changes(chance, make)
    with DatabaseReader(place_of(database_url)) as reader, contextlib.ExitStack() as opened:
        held = []
        for batch in range(1, 41):
            database.commit(changes.some(), 1, batch)
            if batch % 5 == 0:
                views = [opened.enter_context(opens()) for opens in (database._view, reader.rows)]
                for view in views:
                    view.get(Table.ORDER, b"")  # its snapshot begins
                held = [*held, views][-2:]
            with database._view() as now, reader.rows() as plain:
                for which in chance.sample(RANGES, 4):
                    place = chance.choice([key for key, _ in scanned(plain, which)] or [None])
                    how = {"reverse": chance.random() < 0.4, "after": chance.choice([None, None, place])}
                    for one, other in ((now, plain), *held):
                        assert scanned(one, which, **how) == scanned(other, which, **how), (which, how)
                        assert one.is_empty(which[0]) is other.is_empty(which[0])
            if chance.random() < 0.3:
                opened.close()
                held = []


def test_what_was_removed_is_not_read_again_while_a_snapshot_holds_it(database, database_url, make):
    """Pages of an index from vacuum's view: how many the next scans read does not grow with what was removed."""
    many = 3000
    holder = connect(place_of(database_url), "look", "a snapshot")
    look = Statement(b"SELECT 1", once=True)
    database.commit([make.new("old", 1)], 1, 1)
    holder.ask([(Statement(b"BEGIN ISOLATION LEVEL REPEATABLE READ", once=True), ()), (look, ())], 10.0)
    heads = [make.head(f"p{n}", n, state=SUCCESS, finished_at=1.0 * n) for n in range(2, many)]
    database.commit([make.put(head) for head in heads], 1, 2)
    database.commit([DeleteProcedure(head) for head in heads], 1, 3)
    reads = [
        lambda: list(database.scan()),
        lambda: list(database.scan(reverse=True)),
        lambda: list(database.scan(state=RUNNABLE)),
        lambda: list(database.scan(type_name="shop.Order")),
        lambda: database.finished(limit=10),
    ]
    session = connect(place_of(database_url), "look", "counts")
    total = Statement(
        b"SELECT sum(idx_tup_read)::bigint FROM pg_stat_user_tables JOIN pg_stat_user_indexes USING (relid) "
        b"WHERE pg_stat_user_tables.schemaname = '" + database.place.store.encode() + b"'",
        once=True,
    )
    flush = Statement(b"SELECT pg_stat_force_next_flush()", once=True)

    def rows_read(read):
        def now():
            for reading in database._pool._free:
                reading.ask([(flush, ())], 10.0)
            (answer,) = session.ask([(total, ())], 10.0)
            return int.from_bytes(answer.get_value(0, 0), signed=True)

        before = now()
        read()
        return now() - before

    for read in reads:
        read()
        assert rows_read(read) < 20
    assert rows_read(lambda: [head.id for head in database.scan()]) < 20
    session.close()
    holder.close()


def test_nothing_is_known_of_a_commit_whose_outcome_is_not(database, make, monkeypatch):
    database.commit([make.new("b", 2)], 1, 1)
    assert [head.id for head in database.scan()] == ["b"]
    plain = Session.ask

    def lost(session, questions, within):
        answers = plain(session, questions, within)
        if session.kind == "commit":
            raise session._broken("the answer is lost")
        return answers

    monkeypatch.setattr(Session, "ask", lost)
    with pytest.raises(StorageUnavailable):
        database.commit([make.new("a", 1)], 1, 2)
    monkeypatch.undo()
    assert [head.id for head in database.scan()] == ["a", "b"]

    database.reopen()

    assert [head.id for head in database.scan()] == ["a", "b"]


class Rows:
    """The rows of a commit."""

    def __init__(self, *keys):
        self._keys = sorted(keys)

    def keys_of(self, table):
        return self._keys if table is Table.ORDER else []


def committed(known, *keys):
    known.begin(Rows(*keys))
    known.done()


def test_a_snapshot_older_than_what_was_learned_does_not_use_it():
    known = KnownKeys()
    committed(known, b"a")
    old = known.enter()
    committed(known)  # removes "a"
    new = known.enter()

    assert known.learn(Table.ORDER, b"", [], b"\xff", new)

    assert known.known(Table.ORDER, b"", old) is None
    assert known.known(Table.ORDER, b"", new) == ([], b"\xff")


def test_a_commit_under_way_counts_as_not_shown_and_as_shown():
    known = KnownKeys()
    known.begin(Rows(b"b"))
    seen = known.enter()

    assert known.learn(Table.ORDER, b"", [b"a"], b"\xff", seen)

    assert known.known(Table.ORDER, b"", seen) is None  # the commit may remove what this snapshot shows
    known.done()
    assert known.known(Table.ORDER, b"", known.enter()) == ([b"a", b"b"], b"\xff")


def test_a_snapshot_that_is_too_old_or_shows_too_much_teaches_nothing():
    known = KnownKeys()
    old = known.enter()
    for _ in range(300):
        committed(known, b"a")

    assert not known.learn(Table.ORDER, b"", [], b"\xff", old)
    assert not known.learn(Table.ORDER, b"", [b"%d" % n for n in range(MOST_KEYS + 1)], b"\xff", known.enter())
    assert known.known(Table.ORDER, b"", known.enter()) is None


def test_a_range_that_grows_is_cut_at_its_end():
    known = KnownKeys()
    assert known.learn(Table.ORDER, b"", [], b"\xff", known.enter())
    keys = [b"%05d" % n for n in range(2 * MOST_KEYS + 1)]

    committed(known, *keys)

    assert known.known(Table.ORDER, b"", known.enter()) == (keys[:MOST_KEYS], keys[MOST_KEYS])
    committed(known, b"99999", b"00000x")
    assert known.known(Table.ORDER, b"", known.enter())[0][1] == b"00000x"
