"""What the commit pipeline brings into memory before it decides, and what it decides about at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from actorproc.engine.pipeline.batch import CommitBatch
from actorproc.engine.pipeline.commit_pipeline import CommitPipeline
from actorproc.engine.pipeline.in_flight import InFlightTable
from actorproc.engine.runtime.type_table import TypeTable
from actorproc.errors import StoreDamaged
from actorproc.model.ids import WorkerId
from actorproc.model.messages.commands import Reply, RunStep
from actorproc.model.messages.events import Published, StepEnded, Submitted, Tick, TypeRegistered, WorkerReady
from actorproc.model.messages.outcomes import Finished
from actorproc.model.policies import Quotas, Retention, Scheduling, TypeMeta
from actorproc.model.rows.cold_trees import due_key
from actorproc.model.rows.records import NewProcedure, ProcedureRecord, UndoRecord
from actorproc.model.rows.snapshot import RecoverySnapshot
from actorproc.model.rows.writes import PutProcedure, Write
from actorproc.model.states import ProcedureState
from actorproc.store.memory import MemoryStore
from actorproc.store.rows.tables import Table
from actorproc.support.clock import SystemClock


class _Store:
    """Of one procedure the head cannot be read, of another one a child; the others are sound."""

    def procedure(self, id: str, *, removed: bool) -> ProcedureRecord | None:
        if id == "unreadable":
            raise StoreDamaged("not to be read", table="procedures", key=id, reason="not to be read")
        return None if id == "go" else self.tree(id)[0][0]

    def tree(self, root: str) -> tuple[list[ProcedureRecord], list[Any]]:
        return [
            ProcedureRecord(
                id=root,
                type_name="T",
                version=1,
                root=root,
                parent=None,
                seq=1,
                state=ProcedureState.WAITING,
                event="go",
                children=int(root == "incomplete"),
            )
        ], []


class _Persister:
    def __init__(self) -> None:
        self.commits: list[list[Write]] = []
        self.reopened = 0

    def commit(self, _number: int, writes: list[Write]) -> None:
        self.commits.append(writes)

    def reopen(self) -> None:
        self.reopened += 1


def _pipeline(snapshot: RecoverySnapshot, **parts: Any) -> CommitPipeline:
    unused: Any = None
    given: dict[str, Any] = {
        "store": unused,
        "store_port": unused,
        "in_flight": InFlightTable(),
        "act": unused,
        "stored": lambda _batch, _seconds: None,
        "mark": lambda: None,
        **parts,
    }
    return CommitPipeline(
        snapshot=snapshot,
        types=TypeTable(),
        clock=SystemClock(),
        quotas=Quotas(),
        retention=Retention(),
        scheduling=Scheduling(),
        **given,
    )


def test_ends_that_come_together_are_one_decision_of_the_open_batch_and_are_kept_when_its_commit_fails() -> None:
    store_port, acted = _Persister(), list[CommitBatch]()
    in_flight = InFlightTable()
    empty = RecoverySnapshot(1, 1, 1, [], [], [], [], [], [])
    pipeline = _pipeline(empty, store_port=store_port, in_flight=in_flight, act=lambda batch: acted.append(batch) or [])
    pipeline.handle(TypeRegistered(TypeMeta(type_name="T")))
    pipeline.handle(WorkerReady(WorkerId(0, 1)))
    pipeline.handle(WorkerReady(WorkerId(1, 1)))
    new = [NewProcedure(id=name, fresh=True, type_name="T", state=b"0", digest=b"d") for name in ("a", "b")]
    pipeline.handle(Submitted(tuple(new), reply=1))
    pipeline.close()
    pipeline.committed(1)
    tokens = [command.token for batch in acted for command in batch.commands if isinstance(command, RunStep)]

    for token in tokens:
        pipeline.take(StepEnded(token, Finished(state=b"1")))
    undecided = list(pipeline._open.writes)
    pipeline.decide()
    pipeline.decide()  # nothing is left to decide
    pipeline.close()
    pipeline.failed(2)

    assert not undecided
    ended = [write.record.id for write in store_port.commits[1] if isinstance(write, PutProcedure)]
    assert ended == ["a", "b"]
    assert store_port.reopened == 1
    assert pipeline._failed is not None
    assert [event.token for event in pipeline._failed.events if isinstance(event, StepEnded)] == tokens

    pipeline.take(StepEnded(tokens[0], Finished(state=b"1")))

    assert [type(event) for event in pipeline._kept] == [StepEnded]  # nothing is decided while the store is in trouble


def test_an_errand_whose_read_fails_leaves_the_next_ones_for_the_time_after_the_trouble() -> None:
    store_port, ran = _Persister(), list[str]()
    empty = RecoverySnapshot(1, 1, 1, [], [], [], [], [], [])
    pipeline = _pipeline(empty, store_port=store_port, in_flight=InFlightTable(), act=lambda _batch: [])
    new = NewProcedure(id="a", fresh=True, type_name="T", state=b"0", digest=b"d")
    pipeline.handle(TypeRegistered(TypeMeta(type_name="T")))
    pipeline.handle(Submitted((new,), reply=1))
    pipeline.close()
    pipeline.between_commits(lambda: (ran.append("first"), pipeline.suspend()))
    pipeline.between_commits(lambda: ran.append("second"))

    pipeline.committed(1)
    pipeline.between_commits(lambda: ran.append("third"))
    before = list(ran)
    pipeline.reopened(empty)

    assert (before, ran) == (["first"], ["first", "second", "third"])
    assert store_port.reopened == 1


@pytest.mark.parametrize("is_before", [False, True])
def test_a_read_that_fails_while_lost_commits_are_told_loses_no_event(is_before: bool) -> None:
    store_port, marks, fails = _Persister(), list[int](), [True]
    empty = RecoverySnapshot(1, 1, 1, [], [], [], [], [], [])

    def lost(_first: int, _last: int, _dropped: list[Any]) -> None:
        if is_before:
            pipeline.handle(Submitted((_new("c"),), reply=3))
        if fails.pop():
            pipeline.suspend()
        if not is_before:
            pipeline.handle(Submitted((_new("c"),), reply=3))

    pipeline = _pipeline(
        empty, store_port=store_port, act=lambda _batch: [], on_lost=lost, mark=lambda: marks.append(len(marks))
    )
    pipeline.handle(TypeRegistered(TypeMeta(type_name="T")))
    pipeline.handle(Submitted((_new("a"),), reply=1))
    pipeline.close()
    pipeline.committed(1)
    pipeline.handle(Submitted((_new("b"),), reply=2))
    pipeline.close()
    pipeline.failed(2)

    pipeline.reopened(empty)
    assert (pipeline.trouble, store_port.reopened) == (True, 2)
    marks.clear()
    pipeline.reopened(empty)

    assert marks == [0]  # the batch is to be closed
    assert [event.reply for event in pipeline._open.events if isinstance(event, Submitted)] == [2, 3]


def _new(id: str) -> NewProcedure:
    return NewProcedure(id=id, fresh=True, type_name="T", state=b"0", digest=b"d")


def test_a_signal_goes_to_the_first_waiter_that_can_be_read() -> None:
    snapshot = RecoverySnapshot(1, 1, 1, [], [], [], [], [], [])
    waiting = ("unreadable", "incomplete", "sound")
    snapshot.cold.listeners = [(number, "go", name) for number, name in enumerate(waiting)]
    stored: list[CommitBatch] = []
    pipeline = _pipeline(snapshot, store=_Store(), stored=lambda batch, _seconds: stored.append(batch))

    pipeline.handle(Published("go", b"1", 7))

    sound = pipeline.core.view("sound")
    assert sound is not None
    assert sound.payload == b"1"
    assert len(pipeline.core.damaged) == len(waiting) - 1
    assert pipeline._open.commands == [Reply(7)]


class _Counting(MemoryStore):
    """Counts its reads by name."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: Counter[str] = Counter()

    def procedure(self, id: str, *, removed: bool = False) -> ProcedureRecord | None:
        self.reads["procedure"] += 1
        return super().procedure(id, removed=removed)

    def procedures(self, ids: Sequence[str]) -> list[ProcedureRecord]:
        self.reads["procedures"] += 1
        return super().procedures(ids)

    def tree(self, root: str) -> tuple[list[ProcedureRecord], list[UndoRecord]]:
        self.reads["tree"] += 1
        return super().tree(root)


def _sleeping(number: int, **fields: Any) -> PutProcedure:
    name = f"p{number}"
    head = {"id": name, "type_name": "T", "version": 1, "root": name, "parent": None, "seq": number, **fields}
    return PutProcedure(ProcedureRecord(**head, state=ProcedureState.WAITING_TIMEOUT, due_at=1.0), None)


@pytest.mark.parametrize("is_damaged", [False, True])
def test_procedures_that_are_due_together_are_read_together(is_damaged: bool) -> None:
    store = _Counting()
    epoch = store.own()
    several = [_sleeping(1), *(_sleeping(number) for number in range(2, 101)), _sleeping(101, undo_next=2)]
    store.commit(several, epoch, 1)
    snapshot = RecoverySnapshot(epoch, 102, 1, [], [], [], [], [], [])
    snapshot.cold.due = [due_key(1.0, write.record.id) for write in several]
    pipeline = _pipeline(snapshot, store=store)
    if is_damaged:
        store._rows.put(Table.PROCEDURES, b"p50", b"no record")

    pipeline.handle(Tick())

    assert [pipeline.core.view(f"p{number}") is None for number in (1, 50, 100, 101)] == [
        False,
        is_damaged,
        False,
        False,
    ]
    if is_damaged:  # which one it is can be told one by one
        assert len(pipeline.core.damaged) == 1
    else:
        assert store.reads == {"procedures": 1, "tree": 1}  # the one with something to undo


def test_ids_of_the_callers_own_are_looked_up_together() -> None:
    store = _Counting()
    pipeline = _pipeline(RecoverySnapshot(store.own(), 1, 1, [], [], [], [], [], []), store=store)
    pipeline.handle(TypeRegistered(TypeMeta(type_name="T")))
    new = [NewProcedure(id=f"own-{number}", type_name="T", state=b"0", digest=b"d") for number in range(1000)]

    pipeline.handle(Submitted(tuple(new), reply=1))

    assert store.reads == {"procedures": 1}
