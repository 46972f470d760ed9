"""Directories that are stores in a database: tests of managers on directories run on PostgreSQL, unchanged."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Iterator
from typing import Any

import pytest

from actorproc.store.directory import make_directory
from actorproc.store.home import DirectoryHome
from actorproc.store.postgres.home import DatabaseHome
from actorproc.store.postgres.place import place_of
from tests.databases import emptied, give_back
from tests.kit import on_hosts
from tests.kit.chosen_for_database import is_chosen

__all__ = ["EVERYWHERE", "in_a_database", "kind_of_store", "on_both_stores"]

EVERYWHERE = os.environ.get("ACTORPROC_TEST_STORE", "") == "postgres"
"""All tests that use these fixtures are to run on a database: at night."""
_FILES = re.compile(r"Lmdb|lmdb|data\.mdb|signing\.key|owner\.lock|subprocess|Popen|compact|DirectoryHome")


@pytest.fixture
def in_a_database(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Each directory of a store is a schema of the private database; sockets and logs stay in it.

    Other processes than that of the test see a directory, and no store in it.
    """
    places: dict[str, str] = {}

    def home_of(home: DirectoryHome) -> DatabaseHome:
        if home.words not in places:
            places[home.words] = emptied()
        return DatabaseHome(place_of(places[home.words]))

    def store(self: DirectoryHome, **options: Any) -> Any:
        make_directory(self._directory, allow_any_filesystem=True)
        made = home_of(self).store(**options)
        if options.get("role") == "manager":
            self.spool = self._directory
        return made

    made = DirectoryHome.__init__

    def init(self: DirectoryHome, directory: str) -> None:
        made(self, directory)
        self.staging = ""

    monkeypatch.setattr(DirectoryHome, "__init__", init)
    monkeypatch.setattr(DirectoryHome, "store", store)
    for name in ("reader", "exists", "owner", "keys", "keep_key", "rotate_keys"):

        def passed(self: DirectoryHome, *values: Any, name: str = name, **options: Any) -> Any:
            return getattr(home_of(self), name)(*values, **options)

        monkeypatch.setattr(DirectoryHome, name, passed)
    yield
    for url in places.values():
        give_back(url)


@pytest.fixture(autouse=True)
def kind_of_store(request: pytest.FixtureRequest) -> str:
    """Kind of place where the directories, or the workers, of a test are. Used by all: pytest drops it else."""
    kind: str = getattr(request, "param", "directory")
    if kind == "postgres":
        request.getfixturevalue("in_a_database")
    elif kind == "hosted":
        request.getfixturevalue("on_a_host")
    return kind


def on_both_stores(metafunc: pytest.Metafunc) -> None:
    """Have a chosen test run on each kind of store, some on hosts as well.

    With `EVERYWHERE` each test runs once, on the database, if it can; with that of `on_hosts` with workers on a host.

    Args:
        metafunc: The test, from the hook `pytest_generate_tests` of a folder.
    """
    module = metafunc.module.__name__.rpartition(".")[2]
    name = metafunc.function.__name__
    is_for_hosts = on_hosts.is_for_hosts(module, name)
    if on_hosts.EVERYWHERE:
        kinds = ["hosted"] if is_for_hosts else ["directory"]
    elif EVERYWHERE:
        kinds = ["postgres"] if _names_no_file(metafunc) else ["directory"]
    elif is_chosen(module, name):
        is_hosted = is_for_hosts and module in on_hosts.IN_EVERY_RUN
        kinds = ["directory", "postgres", *(["hosted"] if is_hosted else [])]
    else:
        return
    metafunc.parametrize("kind_of_store", kinds, indirect=True)


def _names_no_file(metafunc: pytest.Metafunc) -> bool:
    """A test is about managers, and neither about the files of a directory nor about other processes that open it."""
    return not _FILES.search(inspect.getsource(metafunc.function))
