"""Rows that applications enqueued, where their store is copied, moved, exported or diagnosed before they are taken."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from actorproc import ProcedureManager, StoreReader
from actorproc.cli.main import main
from actorproc.errors import EngineError, StorageUnavailable
from actorproc.model.rows.enqueued import refused_key
from actorproc.model.rows.writes import DeleteEnqueued, PutEnqueued
from actorproc.postgres import enqueue
from actorproc.store.home import home_of
from actorproc.store.postgres.place import place_of
from actorproc.store.postgres.store import DatabaseStore
from actorproc.store.tools import moving
from actorproc.store.tools.moving import move, take_mark_off
from tests.databases import new_store
from tests.engine.test_enqueue import Mail, Unknown, dsn, output
from tests.kit.managers import LIGHT
from tests.kit.waiting import wait_until

psycopg = pytest.importorskip("psycopg", reason="needs the extra postgres")

pytestmark = pytest.mark.processes


@pytest.fixture
def url(monkeypatch, tmp_path):
    """A stopped store in which one row waits, and one was refused."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state-home"))
    url = new_store()
    store = DatabaseStore(url)
    epoch = store.own()
    put(url, "refused", Unknown())
    (row,) = store.enqueued()
    kept = replace(row, key=refused_key(row.key), refused="no class is registered", error="UnknownType", refused_at=1.0)
    store.commit([DeleteEnqueued(row.key), PutEnqueued(kept)], epoch, 1)
    store.close()
    put(url, "waits", Mail("w"))
    return url


def put(url, id, procedure):
    with psycopg.connect(dsn(url)) as connection:
        enqueue(connection, procedure, id=id, store=place_of(url).store)


def states(place):
    with StoreReader(place) as reader:
        return {row.id: row.state for row in reader.enqueued()}


BOTH = {"waits": "waiting", "refused": "refused"}


@pytest.mark.parametrize("how", ["a backup", "a move", "a move there and back"])
def test_what_waits_goes_along_with_a_copy_and_is_taken_there(how, url, tmp_path, capsys):
    place = str(tmp_path / "copy")
    if how == "a backup":
        with StoreReader(url) as reader:
            reader.backup(place)
    else:
        move(home_of(url), home_of(place))
    if how == "a move there and back":
        back = new_store()
        move(home_of(place), home_of(back))
        place = back
    capsys.readouterr()
    assert states(place) == BOTH
    assert main(["doctor", "--path", place]) == 0
    shown = capsys.readouterr().out
    assert "enqueued procedures that wait for a manager: 1," in shown
    assert "enqueued procedures that were refused: 1;" in shown
    with StoreReader(place) as reader:
        assert "waits for" in reader.why("waits").says
    if how != "a move":
        return  # one start of a manager is enough
    with ProcedureManager(place, procedures=[Mail, Unknown], workers=1, **LIGHT) as manager:
        assert output(manager, "waits") == "w: "
        assert output(manager, "refused") == "sent"
        wait_until(lambda: manager.enqueued() == [])


def test_a_store_that_was_moved_takes_no_more_rows_until_the_mark_is_taken_off(url, tmp_path):
    move(home_of(url), home_of(tmp_path / "copy"))

    with psycopg.connect(dsn(url)) as connection:
        with pytest.raises(EngineError, match=r"was moved elsewhere.*--undo"):
            enqueue(connection, Mail("x"), id="late", store=place_of(url).store)
        assert connection.execute("SELECT 1").fetchone() == (1,)  # the transaction can go on
        key, value = b"w" + bytes(16), b"as by a program that has asked before"
        with pytest.raises(psycopg.errors.CheckViolation):
            connection.execute(f"INSERT INTO {place_of(url).schema}.enqueued VALUES (%s, %s)", (key, value))
    take_mark_off(home_of(url))
    put(url, "later", Mail("x"))
    assert states(url) == {**BOTH, "later": "waiting"}


def test_a_transaction_that_has_enqueued_and_is_not_over_stops_a_move_which_changes_nothing(url, tmp_path):
    with psycopg.connect(dsn(url)) as connection:
        enqueue(connection, Mail("x"), id="open", store=place_of(url).store)
        with pytest.raises(StorageUnavailable, match="has enqueued into this store is under way"):
            move(home_of(url), home_of(tmp_path / "copy"))
    assert not (tmp_path / "copy").exists()
    assert states(url) == {**BOTH, "open": "waiting"}
    put(url, "after", Mail("x"))
    move(home_of(url), home_of(tmp_path / "copy"))
    assert set(states(tmp_path / "copy")) == {"waits", "refused", "open", "after"}


@pytest.mark.parametrize("is_killed", [False, True], ids=["it fails", "it is killed"])
def test_a_move_that_comes_to_no_end_lets_applications_enqueue_again(is_killed, url, tmp_path, monkeypatch):
    def fails(*_):
        raise OSError("no room")

    monkeypatch.setattr(moving, "_compare", fails)
    if is_killed:
        monkeypatch.setattr(DatabaseStore, "mark_moved", fails)  # nothing is done after the failure either
    with pytest.raises(OSError, match="no room"):
        move(home_of(url), home_of(tmp_path / "copy"))
    monkeypatch.undo()

    if is_killed:
        with pytest.raises(EngineError, match="next start of a manager"):
            put(url, "later", Mail("x"))
    store = DatabaseStore(url)
    store.own()
    put(url, "later", Mail("x"))
    store.close()
    assert states(url) == {**BOTH, "later": "waiting"}


def test_an_export_says_what_of_the_store_is_not_in_it(url, tmp_path, capsys):
    assert main(["export", "--all", "--path", url]) == 0
    told = capsys.readouterr()
    assert json.loads(told.out)["trees"] == []
    assert "were not exported: 1 that wait and 1 that were refused" in told.err
    good = tmp_path / "good.json"
    assert main(["doctor", "--path", url, "--export-good", str(good)]) == 0
    assert "were not exported: 1 that wait and 1 that were refused" in capsys.readouterr().err

    copy = tmp_path / "copy"
    with StoreReader(url) as reader:
        reader.backup(copy)
    assert main(["export", "--all", "--skip-damaged", "--path", str(copy)]) == 0
    assert "were not exported: 1 that wait and 1 that were refused" in capsys.readouterr().err
    empty = DatabaseStore(new_store())
    empty.own()
    empty.close()
    assert main(["export", "--all", "--path", empty.place.words]) == 0
    assert "not exported" not in capsys.readouterr().err
