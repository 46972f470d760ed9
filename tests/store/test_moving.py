"""Moves of a store between a directory and a database."""

from __future__ import annotations

import os

import msgspec
import pytest

from actorproc.cli.main import main
from actorproc.errors import EngineError, NotAllowed, StoreInUse, UsageError
from actorproc.model.rows.writes import PutStep
from actorproc.store.home import home_of
from actorproc.store.rows import codec
from actorproc.store.rows.layout import EPOCH, MOVED_TO
from actorproc.store.rows.tables import Table
from actorproc.store.tools.moving import move, take_mark_off
from tests.databases import new_store
from tests.store.test_transfer import check_crowd, crowd


@pytest.fixture
def directory(tmp_path, make):
    """A stopped store with a long value in a file, and a key."""
    place = home_of(tmp_path / "store")
    store = place.store()
    store.own()
    place.keep_key(b"k" * 32)
    long = PutStep(msgspec.structs.replace(make.step("a", 2).record, state=os.urandom(5 << 20)))
    store.commit([make.new("a", 1, records=2), make.step("a", 1), long, make.new("b", 2), make.step("b", 1)], 1, 5)
    store.close()
    return place


def rows_of(home, *, but=()):
    with home.reader() as store, store.rows() as rows:
        return {
            table.label: [
                (key, codec.decode(table, key, value) if table is Table.STEPS else value)
                for key, value in rows.scan(table)
                if key not in but
            ]
            for table in Table
        }


def test_a_store_goes_into_a_database_and_back_row_by_row(directory, tmp_path, make):
    before = rows_of(directory, but=(EPOCH, b"batch", b"last_batch"))
    database = home_of(new_store())
    back = home_of(tmp_path / "back")

    report = move(directory, database)

    assert (report.procedures, report.target) == (2, database.words)
    assert rows_of(database, but=(EPOCH, b"batch", b"last_batch")) == before
    assert database.keys() == (b"k" * 32,)
    with directory.reader() as old, database.reader() as new:
        assert new.epoch == old.epoch
        assert new.store_id == old.store_id

    move(database, back)

    assert rows_of(back, but=(EPOCH, b"batch", b"last_batch")) == before
    assert back.keys() == (b"k" * 32,)
    store = back.store()
    with database.reader() as reader:
        assert store.own() == reader.epoch + 1
    store.commit([make.new("c", 3)], store.epoch, 1)
    assert [head.id for head in store.scan()] == ["a", "b", "c"]
    store.close()


def test_fields_tags_debounces_and_asks_are_found_in_a_database_and_back(tmp_path):
    there = crowd()
    places = [home_of(tmp_path / "store"), home_of(new_store()), home_of(tmp_path / "back")]
    store = places[0].store()
    store.commit(there.writes, store.own(), 1)
    store.close()

    for place, following in zip(places, [*places[1:], None], strict=True):
        with place.reader() as reader:
            check_crowd(reader, there)
        if following is not None:
            move(place, following)
    assert rows_of(places[2], but=(EPOCH, b"batch", b"last_batch")) == rows_of(
        places[1], but=(EPOCH, b"batch", b"last_batch", MOVED_TO)
    )


def test_no_manager_starts_on_a_store_that_was_moved_until_that_is_undone(directory, make):
    database = home_of(new_store())
    move(directory, database)

    with pytest.raises(EngineError, match=r"was moved to postgresql://.*--undo"):
        directory.store().own()
    with directory.reader() as reader, reader.rows() as rows:
        assert rows.get(Table.META, MOVED_TO) is not None

    take_mark_off(directory)

    store = directory.store()
    store.own()
    store.close()


def test_a_moved_database_is_closed_as_well(directory, tmp_path):
    database = home_of(new_store())
    move(directory, database)
    move(database, home_of(tmp_path / "back"))

    with pytest.raises(EngineError, match="was moved to"):
        database.store().own()
    take_mark_off(database)
    store = database.store()
    store.own()
    store.close()


def test_a_move_overwrites_nothing_and_needs_both_ends_for_itself(directory, tmp_path):
    database = home_of(new_store())
    held = database.store()
    held.own()
    with pytest.raises((NotAllowed, StoreInUse)):
        move(directory, database)
    held.close()
    with pytest.raises(NotAllowed, match="already"):
        move(directory, database)
    with pytest.raises(UsageError, match="backup"):
        move(directory, home_of(tmp_path / "other"))
    owner = directory.store()
    owner.own()  # nothing of the above has marked it
    with pytest.raises(StoreInUse):
        move(directory, home_of(new_store()))
    owner.close()
    with pytest.raises(EngineError, match="there is no store"):
        move(home_of(tmp_path / "nothing"), home_of(new_store()))


def test_the_command_moves_and_undoes(directory, capsys):
    url = new_store()

    assert main(["move", directory.words, url, "--dry-run"]) == 0
    assert not home_of(url).exists()
    assert main(["move", directory.words, url]) == 0
    assert "2 procedures" in capsys.readouterr().out
    assert main(["list", "--path", url, "-o", "name"]) == 0
    assert sorted(capsys.readouterr().out.split()) == ["a", "b"]
    assert main(["move", "--undo", directory.words]) == 0
    assert main(["move", directory.words]) == 2
    assert main(["move", "--undo", directory.words, url]) == 2
