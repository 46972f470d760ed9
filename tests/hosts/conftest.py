"""Stores in a database for managers and their hosts, with the files of both in the folder of the test."""

from __future__ import annotations

import pytest

from tests.databases import database_or_skip, new_store


@pytest.fixture(autouse=True)
def state_home(tmp_path, monkeypatch) -> None:
    """Files that managers and hosts keep on their machine are kept with the test."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state-home"))


@pytest.fixture
def url() -> str:
    """The URL of a store that was never there."""
    database_or_skip()
    return new_store()
