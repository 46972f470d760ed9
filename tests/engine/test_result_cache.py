"""Ends that came a moment ago wait in memory for callers: few, and never those of another procedure."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from actorproc import Procedure, ProcedureManager, Status
from actorproc.engine.messages import Ending
from actorproc.engine.pipeline.commit_cache import CommitCache
from actorproc.errors import ProcedureFailed, UnknownProcedure
from actorproc.model.rows.records import ProcedureRecord, RemovalRecord
from actorproc.model.rows.writes import DeleteProcedure, PutRemoval
from actorproc.model.states import ProcedureState
from tests.kit.waiting import wait_until


def end(procedure, *, output=b"\x01", state=ProcedureState.SUCCESS, parent=None):
    head = {"id": procedure, "type_name": "t", "version": 1, "root": parent or procedure, "seq": 1}
    return Ending(ProcedureRecord(**head, parent=parent, state=state), output)


def test_the_newest_ends_are_kept():
    ends = CommitCache(most_ends=2)

    for name in "abc":
        ends.note_end(end(name))

    assert [ends.end(name) for name in "abc"] == [None, end("b"), end("c")]
    ends.forget()
    assert ends.end("c") is None


@pytest.mark.parametrize(
    "other",
    [
        end("p", output=b"x" * 1025),
        end("p", parent="root"),
        end("p", state=ProcedureState.FAILED),
        end("p", state=ProcedureState.ROLLEDBACK),
    ],
    ids=["large", "of a child", "may be retried", "may be retried as well"],
)
def test_only_ends_that_are_small_and_stay_as_they_are(other):
    ends = CommitCache()

    ends.note_end(other)

    assert ends.end("p") is None


@pytest.mark.parametrize(
    "removal", [DeleteProcedure(end("p").record), PutRemoval(RemovalRecord("p", 1.0))], ids=["at once", "in parts"]
)
def test_what_is_removed_has_not_ended(removal):
    ends = CommitCache()
    ends.note_end(end("p"))
    ends.note_end(end("other"))

    ends.committed([removal], 0.0)
    assert ends.end("p") is None
    assert ends.end("other") is not None

    ends.note_end(end("p"))  # by the same commit
    assert ends.end("p") is None

    ends.committed([], 0.0)
    ends.note_end(end("p"))  # by a later one: it is another procedure
    assert ends.end("p") is not None


# ---------------------------------------------------------------------- in a manager
@dataclass
class Give(Procedure):
    what: str

    def execute(self, ctx):
        if self.what == "fail":
            raise ValueError(self.what)
        return Status.done(self.what)


@pytest.fixture
def manager(tmp_path):
    with ProcedureManager(tmp_path / "store", procedures=[Give], workers=1) as manager:
        yield manager


def test_results_are_read_from_memory_a_moment_later_and_from_the_store_for_ever(manager, tmp_path):
    handles = manager.submit_many([Give(f"number {number}") for number in range(20)])
    handles[-1].wait(30)
    wait_until(lambda: manager._tree.recent_end(handles[0].id) is not None)

    assert [handle.result(30) for handle in handles] == [f"number {number}" for number in range(20)]
    assert all(handle.done() for handle in handles)
    manager.stop()
    with ProcedureManager(tmp_path / "store", procedures=[Give], workers=1) as again:
        assert again._tree.recent_end(handles[0].id) is None
        assert again.get(handles[0].id).result(30) == "number 0"


def test_who_gets_the_id_of_a_deleted_procedure_gets_its_own_end(manager):
    handles = [manager.submit(Give("first"), id="p"), manager.submit(Give("other"))]
    handles[1].result(30)
    wait_until(lambda: manager._tree.recent_end("p") is not None)

    assert manager.delete("p")
    with pytest.raises(UnknownProcedure):
        manager.get("p").result(30)
    manager.submit(Give("second"), id="p")

    assert manager.get("p").result(30) == "second"


def test_one_that_failed_and_is_retried_has_not_ended(manager):
    handle = manager.submit(Give("fail"), id="p")
    with pytest.raises(ProcedureFailed):
        handle.result(30)

    again = manager.retry("p")

    assert manager._tree.recent_end("p") is None
    with pytest.raises(ProcedureFailed):
        again.result(30)


def test_callbacks_and_awaiting_of_an_end_at_hand(manager):
    import asyncio

    handles = [manager.submit(Give("one"), id="p"), manager.submit(Give("other"))]
    handles[1].result(30)
    wait_until(lambda: manager._tree.recent_end("p") is not None)
    called = []

    async def wait():
        return await manager.get("p")

    assert asyncio.run(wait()) == "one"
    handle = manager.get("p")
    handle.add_done_callback(called.append)
    wait_until(lambda: called == [handle])
    assert handle.exception(0) is None
    assert handle.wait(0)
