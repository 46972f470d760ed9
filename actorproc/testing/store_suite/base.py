"""Fixtures that every part of the store suite uses."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator

import pytest

from actorproc.errors import StoreInUse
from actorproc.model.rows.records import ProcedureRecord
from actorproc.store.base import ProcedureStore
from actorproc.testing.store_suite.writes import Writes

__all__ = ["MakeStore", "SuiteFixtures", "ids"]

MakeStore = Callable[[], ProcedureStore]
"""Makes an object over the rows of one test: empty at first, and at each further call those of before."""


def ids(heads: Iterable[ProcedureRecord]) -> list[str]:
    """The ids of heads, in their order."""
    return [head.id for head in heads]


class SuiteFixtures:
    """Fixtures of the store suite. An author's class overrides `make_store`."""

    @pytest.fixture
    def make_store(self) -> MakeStore:
        """A function that makes a store of no rows; called again, a second object over the same rows."""
        msg = f"{type(self).__name__} needs a fixture `make_store`: see actorproc.testing.store_suite"
        raise NotImplementedError(msg)

    @pytest.fixture
    def store(self, make_store: MakeStore) -> Iterator[ProcedureStore]:
        """An owned store of no rows, with epoch 1."""
        made = make_store()
        assert made.own() == 1
        yield made
        made.close()

    @pytest.fixture
    def depose(self, make_store: MakeStore) -> Iterator[Callable[[ProcedureStore], None]]:
        """A function that makes another owner of the rows of a store, while that has an owner.

        The fixture of the suite makes a second object the owner. A store that refuses a second owner as long as the
        first one lives, or whose objects have copies of the rows, overrides it: else the case is skipped.
        """
        others: list[ProcedureStore] = []

        def take_over(store: ProcedureStore) -> None:
            before = store.epoch
            others.append(make_store())
            with contextlib.suppress(StoreInUse):
                others[-1].own()
            if store.epoch == before:
                pytest.skip("a second object is no second owner of the same rows: override the fixture `depose`")

        yield take_over
        for other in others:
            other.close()

    @pytest.fixture
    def make(self) -> type[Writes]:
        """Writes by short names."""
        return Writes
