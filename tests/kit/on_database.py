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
from tests.databases import database_or_skip, emptied, give_back
from tests.kit import on_hosts
from tests.kit.chosen_for_database import is_chosen

__all__ = ["EVERYWHERE", "ON_A_DIRECTORY", "in_a_database", "kind_of_store", "on_both_stores"]

EVERYWHERE = os.environ.get("ACTORPROC_TEST_STORE", "") == "postgres"
"""All tests that use these fixtures are to run on a database: at night."""
_FILES = re.compile(r"Lmdb|lmdb|data\.mdb|signing\.key|owner\.lock|subprocess|Popen|compact|DirectoryHome")

ON_A_DIRECTORY = {
    "test_odd_paths": """
        test_a_manager_whose_directory_was_moved_away_leaves_the_next_one_there_its_socket
    """,
    "test_public_face": """
        test_a_manager_shows_its_path_and_whether_it_runs
    """,
    "test_storage_trouble": """
        test_a_removed_directory_is_trouble_that_is_told_and_what_was_in_it_can_be_saved
    """,
    "test_store_reader": """
        test_a_closed_reader_says_so_and_unknown_ids_are_unknown
        test_a_killed_manager_is_not_taken_for_a_living_one
        test_a_newer_format_is_refused_and_left_alone
        test_a_reader_needs_no_manager_and_changes_nothing
        test_a_reader_reads_while_the_manager_commits
        test_a_reader_shows_the_same_as_the_manager_in_the_same_shape
        test_a_reader_survives_one_manager_and_sees_the_next
        test_what_is_no_store_of_ours_is_refused_with_what_to_do
        test_without_the_table_of_readers_none_is_made
    """,
}
"""Names of tests by their module that are about directories, of which their source does not tell by these words.

They move the directory away or remove it, show its path in words, or have the store of another process or of a helper
in it.
"""


@pytest.fixture
def in_a_database(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Each directory of a store is a schema of the private database; sockets and logs stay in it.

    Other processes than that of the test see a directory, and no store in it. A directory that has a store, as a
    backup does, is that store.
    """
    database_or_skip()  # its thread is there before those that a test counts
    places: dict[str, str] = {}
    made, opened, exists = DirectoryHome.__init__, DirectoryHome.store, DirectoryHome.exists

    def home_of(home: DirectoryHome) -> DatabaseHome:
        if home.words not in places:
            places[home.words] = emptied()
        return DatabaseHome(place_of(places[home.words]))

    def store(self: DirectoryHome, **options: Any) -> Any:
        if exists(self):
            return opened(self, **options)
        make_directory(self._directory, allow_any_filesystem=True)
        store = home_of(self).store(**options)
        if options.get("role") == "manager":
            self.spool = self._directory
        return store

    def init(self: DirectoryHome, directory: str) -> None:
        made(self, directory)
        if not exists(self):
            self.staging = ""

    monkeypatch.setattr(DirectoryHome, "__init__", init)
    monkeypatch.setattr(DirectoryHome, "store", store)
    for name in ("reader", "exists", "owner", "keys", "keep_key", "rotate_keys"):
        of_directory = getattr(DirectoryHome, name)

        def passed(
            self: DirectoryHome, *values: Any, name: str = name, of_directory: Any = of_directory, **options: Any
        ) -> Any:
            if exists(self):
                return of_directory(self, *values, **options)
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
        kinds = ["postgres"] if _is_for_databases(metafunc, module) else ["directory"]
    elif is_chosen(module, name):
        is_hosted = is_for_hosts and module in on_hosts.IN_EVERY_RUN
        kinds = ["directory", "postgres", *(["hosted"] if is_hosted else [])]
    else:
        return
    metafunc.parametrize("kind_of_store", kinds, indirect=True)


def _is_for_databases(metafunc: pytest.Metafunc, module: str) -> bool:
    """A test is about managers, and neither about the files of a directory nor about other processes that open it."""
    function = metafunc.function
    is_listed = function.__name__ in ON_A_DIRECTORY.get(module, "").split()
    return not is_listed and not _FILES.search(inspect.getsource(function))
