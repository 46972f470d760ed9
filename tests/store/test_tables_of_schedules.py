"""A store in a database that was made before there were schedules, or asks, gets their table from its next owner."""

from __future__ import annotations

import psycopg
import pytest

from actorproc.errors import EngineError
from actorproc.model.rows.records import NewProcedure
from actorproc.model.rows.schedules import ScheduleRecord
from actorproc.model.rows.writes import PutSchedule
from actorproc.store.postgres.failures import LATER_TABLES
from actorproc.store.postgres.reader import DatabaseReader
from actorproc.store.postgres.store import DatabaseStore


@pytest.fixture(params=["schedules"])
def old(database_url, request):
    store = DatabaseStore(database_url)
    store.own()
    store.close()
    with psycopg.connect(database_url.partition("?")[0], autocommit=True) as connection:
        connection.execute(f'DROP TABLE "{store.place.store}".{request.param}')
    yield database_url
    whole = DatabaseStore(database_url)  # the tests to come get this store emptied, which a missing table prevents
    whole.own()
    whole.close()


def test_the_next_owner_makes_the_table(old):
    store = DatabaseStore(old)
    epoch = store.own()
    row = ScheduleRecord(id="a", spec="every 60", new=NewProcedure(id="a", type_name="T", state=b"", digest=b"d"))
    store.commit([PutSchedule(row)], epoch)
    assert store.schedules() == (epoch, [row])
    store.close()


def test_a_reader_that_comes_before_says_what_is_missing(old):
    store = DatabaseReader(DatabaseStore(old).place)
    for read in (store.schedules, store.load, lambda: store.schedule("a")):
        with pytest.raises(EngineError, match=r"earlier version.* first manager of this version makes it"):
            read()
    store.close()


READS = {
    "schedules": lambda store: store.schedules(),
    "enqueued": lambda store: store.enqueued(),
    "replies": lambda store: store.replies("a"),
}


@pytest.mark.parametrize(("old", "read"), READS.items(), indirect=["old"], ids=READS)
def test_each_table_that_came_later_is_named_until_an_owner_has_made_it(old, read):
    assert set(READS) == set(LATER_TABLES)
    store = DatabaseReader(DatabaseStore(old).place)
    with pytest.raises(EngineError, match=r"earlier version.* first manager of this version makes it"):
        read(store)
    store.close()
    owner = DatabaseStore(old)
    owner.own()
    assert read(owner) in ([], (owner.epoch, []))
    owner.close()
