"""What the store keeps of calls."""

from __future__ import annotations

import pytest

from actorproc import ProcedureExecutor, ProcedureManager, StoreReader
from tests.executor.calls import add

pytestmark = [pytest.mark.processes, pytest.mark.usefixtures("results_stay")]


def test_a_call_keeps_no_state_in_its_closing_record_and_has_no_digest(open_executor, tmp_path):
    executor = open_executor()
    futures = [executor.submit(add, 1, 2), executor.submit(add, 1, b"x" * 100_000), executor.submit_as("named", add, 1)]
    assert futures[0].result(30) == 3
    assert isinstance(futures[1].exception(30), TypeError)
    assert futures[2].result(30) == 1
    store = executor.manager._running().store

    for future, kept in ((futures[0], True), (futures[2], True)):
        first, closing = store.steps(future.id)
        assert (bool(first.state), closing.state, store.procedure(future.id).digest) == (kept, b"", b"")
        assert closing.output
    assert executor.submit_as("named", add, 7).result(30) == 1


def test_a_store_with_calls_is_sound_and_opened_again(open_executor, tmp_path):
    executor = open_executor()
    ids = [executor.submit(add, number, 1).id for number in range(20)]
    executor.shutdown()

    with StoreReader(tmp_path / "state") as reader:
        assert [reader.info(id_).state for id_ in ids] == ["SUCCESS"] * 20
        assert all(len(reader.steps(id_)) == 2 for id_ in ids)
    with ProcedureManager(tmp_path / "state", workers=1) as manager:
        executor = ProcedureExecutor(manager)
        assert [executor.get(id_).result(30) for id_ in ids] == list(range(1, 21))
        executor.shutdown()
