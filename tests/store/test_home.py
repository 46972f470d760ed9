"""Homes of stores: all that a path stands for is found through one module, and a URL is refused in words."""

from __future__ import annotations

import ast
import os
import pathlib
from pathlib import Path

import pytest

import actorproc
from actorproc import Config, ProcedureClient, ProcedureExecutor, ProcedureManager, StoreReader
from actorproc.api.stopped import StoppedStore
from actorproc.errors import EngineError, NotAllowed, StoreInUse, UsageError
from actorproc.store.home import DirectoryHome, home_of
from actorproc.workers.output.log_buffer import LogBuffer
from actorproc.workers.output.spool import spooled

PACKAGE = Path(actorproc.__file__).parent
MAY_NAME_IT = [
    "store/home.py",
    "store/tools/moving.py",
    "testing/torture/injection.py",
    "testing/torture/seeded_bugs.py",
]
"""The home, and the torture, whose faults and bugs are those of the store on disk."""

URLS = [
    "mariadb://user:secret@host/name",
    "cockroachdb://host",
    "redis://host:6379/0",
    "s3://bucket",
    "s3://bucket/folder",
    "file:///var/lib/shop",
    "sqlite+pysqlite:///x.db",
    "HTTP://host/",
    b"mysql://host/name",
    Path("mysql://user:secret@host/name"),
    pathlib.PurePosixPath("redis://host"),
]


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty working directory, which stays empty."""
    place = tmp_path / "here"
    place.mkdir()
    monkeypatch.chdir(place)
    return place


def names_in(path):
    """Names that a module imports, and attributes that it reads."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom | ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.Name):
            yield node.id


def test_the_home_alone_names_the_class_of_the_store_on_disk_and_of_its_reader():
    found = [
        name
        for path in sorted(PACKAGE.rglob("*.py"))
        if not (name := path.relative_to(PACKAGE).as_posix()).startswith("store/lmdb/")
        and {"LmdbStore", "LmdbReader"} & set(names_in(path))
    ]

    assert found == MAY_NAME_IT


@pytest.mark.parametrize("url", URLS, ids=str)
@pytest.mark.parametrize(
    "make",
    [home_of, ProcedureManager, ProcedureClient, ProcedureExecutor, StoreReader, StoppedStore],
    ids=lambda make: make.__name__,
)
def test_a_url_is_refused_with_what_is_supported_and_without_its_password(here, make, url):
    with pytest.raises(UsageError, match="the path of a directory, such as 'state'") as refused:
        make(url)

    scheme = os.fsdecode(url).partition(":")[0]
    assert str(refused.value).startswith(f"{scheme}://… is a URL")
    assert "secret" not in str(refused.value)
    assert not list(here.iterdir())


def test_a_database_url_that_went_through_pathlib_is_refused(here):
    with pytest.raises(UsageError, match="give the URL as a text") as refused:
        home_of(Path("postgresql://user:secret@host/name"))

    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("jdbc:postgresql://host/name", "^jdbc:postgresql://… is a URL, .*such as postgresql://db/app"),
        (Path("jdbc:mysql://user:secret@host/name"), "^jdbc:mysql://… is a URL"),
        (" postgresql://user:secret@host/name", "' ' before it: give the URL alone"),
        ('"postgresql://user:secret@host/name"', "before it: give the URL alone"),
        ("\n mysql://user:secret@host/name", "before it: give the URL alone"),
        (str(Path("postgresql://user:secret@host/name")), "one slash of two: give the URL as a text"),
        ("Postgres:/user:secret@host/name", "one slash of two: give the URL as a text"),
    ],
    ids=str,
)
def test_what_is_nearly_a_url_makes_no_directory(here, given, words):
    with pytest.raises(UsageError, match=words) as refused:
        ProcedureManager(given)

    assert "secret" not in str(refused.value)
    assert not list(here.iterdir())


@pytest.mark.parametrize("make", [home_of, ProcedureManager, ProcedureClient, StoppedStore], ids=lambda it: it.__name__)
def test_the_url_of_a_database_is_taken_and_nothing_is_opened_or_loaded(here, make):
    made = make("postgresql://user:secret@host/name?store=shop")

    assert "secret" not in repr(made)
    assert not list(here.iterdir())


@pytest.mark.parametrize("url", ["s3://bucket", "file:///tmp/copy", Path("s3://bucket")], ids=str)
def test_a_backup_goes_to_no_url(here, url):
    store = home_of("state").store()
    store.own()
    try:
        with pytest.raises(UsageError, match="a backup is a directory"):
            store.backup(url)
        with home_of("state").reader() as reader, pytest.raises(UsageError, match="a backup is a directory"):
            reader.backup(url)
    finally:
        store.close()

    assert [path.name for path in here.iterdir()] == ["state"]


@pytest.mark.parametrize("path", ["state", "a:b", "a:/b", "C:/x", "1://x", "://x", "x", ".", "a/b://c", "ä://x"])
def test_any_other_text_is_the_path_of_a_directory(here, path):
    assert home_of(path).words == os.fspath(here / path)


def test_a_directory_that_is_called_as_a_scheme_can_be_given_as_a_path(here):
    (here / "data:").mkdir()

    assert home_of(Path("data:/x")).words == os.fspath(here / "data:" / "x")
    (here / "postgresql:").mkdir()

    assert home_of("postgresql:/x").words == os.fspath(here / "postgresql:" / "x")


def test_an_empty_path_is_refused():
    with pytest.raises(ValueError, match="is empty"):
        home_of("")


@pytest.mark.parametrize("path", [None, 7, ["state"]])
def test_what_is_no_path_is_refused(path):
    with pytest.raises(TypeError):
        home_of(path)


def test_a_relative_path_stays_where_it_was_when_the_program_moves(here, tmp_path, monkeypatch):
    home = home_of("state")
    monkeypatch.chdir(tmp_path)
    home.store().own()

    assert (here / "state" / "data.mdb").exists()


class TestTheHomeOfADirectory:
    @pytest.fixture
    def home(self, tmp_path) -> DirectoryHome:
        return home_of(tmp_path / "state")

    def test_touches_nothing_before_it_is_used(self, home, tmp_path):
        assert (home.exists(), home.owner(), home.keys()) == (False, None, ())
        assert not list(tmp_path.iterdir())
        with pytest.raises(EngineError):
            home.reader()
        assert not list(tmp_path.iterdir())

    def test_opens_the_store_for_its_owner_and_for_readers(self, home, tmp_path):
        store = home.store()
        assert store.own() == 1
        try:
            assert home.exists()
            assert (home.owner().pid, home.owner().role) == (os.getpid(), "manager")
            assert not home.is_suspended(home.owner())
            with home.reader() as reader:
                assert (reader.store_id, reader.epoch, reader.owner().pid) == (store.store_id, 1, os.getpid())
                assert reader.path == tmp_path / "state"
                assert reader.facts()["procedures"] == 0
            with pytest.raises(StoreInUse):
                home.store(role="command").own()
        finally:
            store.close()
        assert home.owner() is None

    def test_keeps_the_keys_that_sign_states(self, home):
        home.store().own()

        assert home.keep_key(b"k" * 32) == home.keep_key(b"x" * 32) == home.keys() == (b"k" * 32,)
        rotated = home.rotate_keys()
        assert home.keys() == rotated
        assert rotated[1:] == (b"k" * 32,)
        assert home.rotate_keys(forget=True) == home.keys()
        assert len(home.keys()) == 1

    def test_is_where_the_spool_the_socket_and_the_staged_outputs_are(self, home, tmp_path):
        place = tmp_path / "state"
        assert (home.door, home.spool, home.staging) == (place, place, os.fspath(place / "blobs"))
        place.mkdir()
        buffer = LogBuffer(1 << 20, 1 << 20, directory=home.spool, spool=1 << 20)
        buffer.add("p", "stdout", "hello")

        assert [entry.text for entry in spooled(home.spool, "p")] == ["hello"]

    @pytest.mark.processes
    def test_has_the_socket_of_a_running_manager(self, home):
        with ProcedureManager(home.words, workers=1, config=Config(spares=0)):
            assert (home.door / "control.sock").is_socket()
            with ProcedureClient(home.words) as client:
                assert client.health().status == "running"
        with StoppedStore(home.words) as stopped:
            assert stopped.list() == []
            with pytest.raises(NotAllowed):
                stopped.backup(home.words)
