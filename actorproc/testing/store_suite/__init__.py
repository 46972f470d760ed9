"""Conformance suite of stores: the promises of `ProcedureStore` as tests, for authors of a store.

Subclass `StoreSuite` in a test module, and override the fixture ``make_store``::

    class TestMyStore(StoreSuite):
        @pytest.fixture
        def make_store(self, tmp_path):
            return lambda: MyStore(tmp_path / "store")

Each test gets an empty store. When ``make_store()`` is called a second time in a test, the object it returns must find
the rows that the first one has committed. Methods of the subclass add tests, and override those of the suite.
"""

from __future__ import annotations

from actorproc.testing.store_suite.base import MakeStore
from actorproc.testing.store_suite.commits import CommitCases
from actorproc.testing.store_suite.durability import DurabilityCases
from actorproc.testing.store_suite.queries import QueryCases
from actorproc.testing.store_suite.records import RecordCases
from actorproc.testing.store_suite.removal import RemovalCases
from actorproc.testing.store_suite.schedules import ScheduleCases
from actorproc.testing.store_suite.writes import Writes

__all__ = ["MakeStore", "StoreSuite", "Writes"]


class StoreSuite(RecordCases, QueryCases, CommitCases, RemovalCases, ScheduleCases, DurabilityCases):
    """Every promise of a store. Subclass it, and override the fixture ``make_store``."""
