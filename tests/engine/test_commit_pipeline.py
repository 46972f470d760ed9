"""What the commit pipeline brings into memory before it decides, and what it decides about at once."""

from __future__ import annotations

from typing import Any

from actorproc.engine.pipeline.batch import CommitBatch
from actorproc.engine.pipeline.commit_pipeline import CommitPipeline
from actorproc.engine.pipeline.in_flight import InFlightTable
from actorproc.engine.runtime.type_table import TypeTable
from actorproc.errors import StoreDamaged
from actorproc.model.ids import WorkerId
from actorproc.model.messages.commands import Reply, RunStep
from actorproc.model.messages.events import Published, StepEnded, Submitted, TypeRegistered, WorkerReady
from actorproc.model.messages.outcomes import Finished
from actorproc.model.policies import Quotas, Retention, Scheduling, TypeMeta
from actorproc.model.rows.records import NewProcedure, ProcedureRecord
from actorproc.model.rows.snapshot import RecoverySnapshot
from actorproc.model.rows.writes import PutProcedure, Write
from actorproc.model.states import ProcedureState
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
        "in_flight": unused,
        "act": unused,
        "stored": lambda _batch, _seconds: None,
        **parts,
    }
    return CommitPipeline(
        snapshot=snapshot,
        types=TypeTable(),
        clock=SystemClock(),
        quotas=Quotas(),
        retention=Retention(),
        scheduling=Scheduling(),
        mark=lambda: None,
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
