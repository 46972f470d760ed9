"""Durability and isolation of a store: what other objects, other threads and copies see of a commit."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from actorproc.errors import Deposed, NotAllowed
from actorproc.model.rows.writes import DeletePoison, DeleteProcedure, Write
from actorproc.model.states import ProcedureState
from actorproc.store.base import ProcedureStore
from actorproc.testing.store_suite.base import MakeStore, SuiteFixtures, ids
from actorproc.testing.store_suite.writes import Writes

__all__ = ["DurabilityCases"]

_BATCHES, _ROWS = 40, 25


class DurabilityCases(SuiteFixtures):
    """Commits are seen whole, by every object and every thread."""

    def test_another_object_over_the_same_rows_finds_what_was_committed(
        self, store: ProcedureStore, make: type[Writes], make_store: MakeStore
    ) -> None:
        store.commit([make.new("a", 1), make.step("a", 1), make.lock("x", "a")], 1, 3)
        name = store.store_id
        store.close()

        other = make_store()
        try:
            assert other.own() == 2
            assert (ids(other.scan()), ids(other.load().procedures)) == (["a"], ["a"])
            assert [record.number for record in other.steps("a")] == [1]
            assert [lock.path for lock in other.locks()] == ["x"]
            assert (other.store_id, other.load().epoch, other.load().last_batch) == (name, 2, 3)
            with pytest.raises(Deposed):
                other.commit([make.new("b", 2)], 1)
            other.commit([make.new("b", 2)], 2)
        finally:
            other.close()

    def test_the_writes_of_one_batch_are_applied_in_their_order(
        self, store: ProcedureStore, make: type[Writes]
    ) -> None:
        put, delete = make.poison("x"), DeletePoison("x")

        store.commit([put, delete], 1)
        assert store.poisons() == []
        store.commit([delete, put], 1)
        assert store.poisons() == [put.record]
        store.commit([delete, put, delete], 1)
        assert store.poisons() == []
        store.commit([put, delete, put], 1)
        assert store.poisons() == [put.record]

    def test_a_procedure_that_is_removed_and_made_anew_in_one_batch_has_the_new_rows_only(
        self, store: ProcedureStore, make: type[Writes]
    ) -> None:
        old = make.head("a", 1, records=3, tags=("old",))
        store.commit([make.put(old), *(make.step("a", number) for number in (1, 2, 3)), make.note("a", 1, "k")], 1)

        store.commit([DeleteProcedure(old), make.new("a", 2, tags=("new",)), make.step("a", 1)], 1)

        assert [record.number for record in store.steps("a")] == [1]
        assert store.notes("a") == []
        assert (ids(store.scan(tag="old")), ids(store.scan(tag="new"))) == ([], ["a"])
        assert store.load().damage == []

    def test_threads_that_read_see_each_commit_whole_or_not_at_all(
        self, store: ProcedureStore, make: type[Writes]
    ) -> None:
        seen: list[tuple[int, int]] = []
        failed: list[BaseException] = []
        is_over = threading.Event()

        def read() -> None:
            try:
                while not is_over.is_set():
                    heads = store.load().procedures
                    seen.append((len(heads), len({head.owner for head in heads})))
            except BaseException as error:  # noqa: BLE001 - told to the test
                failed.append(error)

        readers = [threading.Thread(target=read) for _ in range(2)]
        for reader in readers:
            reader.start()
        try:
            for batch in range(_BATCHES):
                writes: list[Write] = []
                for row in range(_ROWS):
                    number = batch * _ROWS + row + 1
                    writes.append(make.new(f"p{number}", number, owner=str(batch)))
                store.commit(writes, 1)
        finally:
            is_over.set()
            for reader in readers:
                reader.join()

        assert failed == []
        assert [found for found in seen if found[0] != found[1] * _ROWS] == []
        assert len(store.load().procedures) == _BATCHES * _ROWS

    def test_states_are_counted(self, store: ProcedureStore, make: type[Writes]) -> None:
        heads = [
            make.head(f"p{n}", n, state=ProcedureState.FAILED if n % 3 == 0 else ProcedureState.RUNNABLE)
            for n in range(1, 8)
        ]
        store.commit([make.put(head) for head in heads], 1)
        store.commit([make.change(heads[0], state=ProcedureState.WAITING)[0]], 1)

        assert store.count_states() == {
            ProcedureState.FAILED: 2,
            ProcedureState.RUNNABLE: 4,
            ProcedureState.WAITING: 1,
        }

    def test_ids_are_found_by_their_beginning(self, store: ProcedureStore, make: type[Writes]) -> None:
        store.commit([make.new(name, n) for n, name in enumerate(("b", "ab", "a", "abc", "ba"), 1)], 1)

        assert store.ids("a") == ["a", "ab", "abc"]
        assert store.ids("ab") == ["ab", "abc"]
        assert store.ids("") == ["a", "ab", "abc", "b", "ba"]
        assert store.ids("x") == []

    def test_several_heads_come_in_the_order_asked_for_without_those_that_are_unknown(
        self, store: ProcedureStore, make: type[Writes]
    ) -> None:
        store.commit([make.new(name, n) for n, name in enumerate(("a", "b", "c"), 1)], 1)

        assert ids(store.procedures(["c", "missing", "a", "c"])) == ["c", "a", "c"]
        assert store.procedures([]) == []

    def test_several_records_of_step_logs_are_read_at_once_without_those_that_are_missing(
        self, store: ProcedureStore, make: type[Writes]
    ) -> None:
        store.commit([make.step(name, number) for name in ("a", "ab", "b") for number in (1, 2, 300)], 1)
        wanted = [("b", 300), ("a", 1), ("a", 3), ("missing", 1), ("ab", 2), ("a", 1)]

        found = store.states(wanted)

        assert set(found) == {("b", 300), ("a", 1), ("ab", 2)}
        assert all(record == store.step(id, number) for (id, number), record in found.items())
        assert store.states([]) == {}

    def test_a_backup_is_made_in_a_new_directory_or_refused(
        self, store: ProcedureStore, make: type[Writes], tmp_path: Path
    ) -> None:
        store.commit([make.new("a", 1)], 1)
        try:
            report = store.backup(tmp_path / "copy")
        except NotAllowed:
            assert not (tmp_path / "copy").exists()
            return

        assert (tmp_path / "copy").is_dir()
        assert report.copied_from == store.store_id != report.store_id
        with pytest.raises(NotAllowed):
            store.backup(tmp_path / "copy")
