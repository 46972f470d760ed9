"""What is too long for one message to a worker; an end whose output cannot be read."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from concurrent.futures import Future
from typing import Any

import pytest
from msgspec.structs import replace

from actorproc.engine.messages import Ending
from actorproc.engine.pipeline.batch import CommitBatch
from actorproc.engine.pipeline.command_executor import CommandExecutor
from actorproc.engine.pipeline.commit_cache import CommitCache
from actorproc.engine.pipeline.in_flight import InFlightTable
from actorproc.engine.reply_router import ReplyRouter
from actorproc.engine.runtime.type_table import TypeTable
from actorproc.errors import StoreDamaged
from actorproc.model.ids import StepToken, WorkerId
from actorproc.model.messages.commands import Reply, Resolve, RunStep, TakeBack
from actorproc.model.messages.events import WorkerReady
from actorproc.model.rows.records import ProcedureRecord, StepKind, StepRecord
from actorproc.model.rows.writes import PutStep
from actorproc.model.states import ProcedureState
from actorproc.procedure.runtime.class_shipping import definition_of
from actorproc.procedure.runtime.type_runtime import TypeRuntime
from actorproc.store.memory import MemoryStore
from actorproc.store.rows.step_log import step_key
from actorproc.store.rows.tables import Table
from actorproc.testing.pool_suite.steps import Count
from actorproc.testing.store_suite import Writes
from actorproc.workers.protocol.frames import FrameError, Run, TakeBackSteps
from tests.kit.clocks import HandClock

WORKER = WorkerId(0, 1)


class ShortMessages:
    """A pool whose messages name two steps at most."""

    def __init__(self) -> None:
        self.sent: list[tuple[StepToken, ...]] = []

    def send(self, _worker: WorkerId, messages: tuple[TakeBackSteps, ...]) -> None:
        (message,) = messages
        if len(message.tokens) > 2:
            raise FrameError("too long")
        self.sent.append(message.tokens)


def dispatcher_of(**given: Any) -> CommandExecutor:
    names = ("pool", "store", "keep_promise", "watch_later", "hire", "worker_table")
    own = {
        "replies": ReplyRouter(),
        "in_flight": InFlightTable(),
        "types": TypeTable(),
        "newest": CommitCache(),
        "clock": HandClock(),
    }
    parts: dict[str, Any] = dict.fromkeys(names) | own | given
    return CommandExecutor(definition_for=lambda _host, definition: definition, **parts)


class OneEnd:
    """A store with one procedure that has ended; reading the record that closes it gives, or raises, `closing`."""

    def __init__(self, closing: StepRecord | StoreDamaged | None) -> None:
        self.closing = closing
        head = {"id": "p", "type_name": "t", "version": 1, "root": "p", "parent": None, "seq": 1, "records": 2}
        self.head = ProcedureRecord(**head, state=ProcedureState.SUCCESS)

    def procedure(self, _id: str) -> ProcedureRecord:
        return self.head

    def step(self, _id: str, _number: int) -> StepRecord | None:
        if isinstance(self.closing, StoreDamaged):
            raise self.closing
        return self.closing


def end_told(store: OneEnd) -> Future[Ending]:
    """What those who wait for the procedure are told when the core says that it has ended."""
    replies = ReplyRouter()
    future: Future[Ending] = Future()
    replies.ends.begin("p", future)
    batch = CommitBatch()
    batch.commands.append(Resolve("p", ProcedureState.SUCCESS))
    dispatcher_of(store=store, replies=replies).act(batch)
    return future


def test_who_waits_for_an_end_keeps_its_output_and_not_its_last_state():
    closing = StepRecord(procedure="p", number=2, kind=StepKind.COMMIT, at=1.0, state=bytes(1000), output=b"out")
    store = OneEnd(closing)

    assert end_told(store).result(0) == Ending(store.head, b"out")


def test_an_output_that_cannot_be_read_is_an_error_and_not_an_output_of_none():
    damaged = StoreDamaged("the record fails its checksum")

    with pytest.raises(StoreDamaged) as raised:
        end_told(OneEnd(damaged)).result(0)

    assert raised.value is damaged
    with pytest.raises(StoreDamaged, match="the record that closes p is missing"):
        end_told(OneEnd(None)).result(0)


def test_steps_are_asked_back_in_several_messages_when_one_would_be_too_long():
    pool = ShortMessages()
    dispatcher = dispatcher_of(pool=pool)
    tokens = tuple(StepToken(1, WORKER, f"p{number}", 1, 1) for number in range(5))

    dispatcher.post(WORKER, TakeBackSteps(tokens))

    assert sum(pool.sent, ()) == tokens


def test_callers_are_told_when_everything_is_with_the_workers():
    class Both(ShortMessages):
        ends = None

        def settle(self, number: int, _value: object) -> None:
            told.append((number, len(self.sent)))

    told: list[tuple[int, int]] = []
    both = Both()
    batch = CommitBatch()
    token = StepToken(1, WORKER, "p", 1, 1)
    batch.commands += [Reply(1), TakeBack(WORKER, (token,)), Reply(2)]

    dispatcher_of(pool=both, replies=both).act(batch)

    assert told == [(1, 1), (2, 1)]


class Sends:
    """A pool that keeps what is sent."""

    def __init__(self) -> None:
        self.sent: list[Any] = []

    def send(self, _worker: WorkerId, messages: Sequence[Any]) -> None:
        self.sent += messages

    def runs(self) -> list[tuple[str, bytes | None]]:
        return [(message.token.procedure, message.state) for message in self.sent if type(message) is Run]


class Counting(MemoryStore):
    """Counts the snapshots in which states are read."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: list[int] = []

    def step(self, id: str, number: int) -> StepRecord | None:
        self.reads.append(1)
        return super().step(id, number)

    def states(self, wanted: Sequence[tuple[str, int]]) -> dict[tuple[str, int], StepRecord]:
        self.reads.append(len(wanted))
        return super().states(wanted)


def executor_with(count: int, *, without: Iterable[str] = ()) -> tuple[CommandExecutor, Counting, Sends]:
    """An executor with one worker, and a store with the first records of so many procedures."""
    store, pool, in_flight, types = Counting(), Sends(), InFlightTable(), TypeTable()
    store.own()
    names = [f"p{number}" for number in range(count)]
    store.commit([Writes.step(name, 1) for name in names if name not in set(without)], 1)
    types.put(definition_of(TypeRuntime.of_class(Count), 1))
    in_flight.join(WorkerReady(WORKER))
    return dispatcher_of(pool=pool, store=store, in_flight=in_flight, types=types), store, pool


def steps_of(names: Iterable[str], *, warm: Container[str] = ()) -> CommitBatch:
    batch = CommitBatch()
    type_name = TypeRuntime.of_class(Count).type_name
    for name in names:
        token = StepToken(1, WORKER, name, 1, 1)
        batch.commands.append(RunStep(token, type_name, name in warm, name, None, False, False, None, 0, record=1))
    return batch


def test_states_of_a_batch_are_read_in_few_snapshots_and_sent_in_the_order_of_the_steps():
    executor, store, pool = executor_with(100)
    names = [f"p{number}" for number in range(100)]

    assert executor.act(steps_of(names)) == []

    assert pool.runs() == [(name, b"state") for name in names]
    assert store.reads == [32, 32, 32, 4]


def test_a_lone_step_is_read_by_itself():
    executor, store, pool = executor_with(2)

    executor.act(steps_of(["p0"]))
    executor.act(steps_of(["p1"]))

    assert [name for name, _ in pool.runs()] == ["p0", "p1"]
    assert store.reads == [1, 1]


def test_a_state_that_is_at_hand_is_not_read():
    executor, store, pool = executor_with(4)
    newest = executor._newest
    newest.committed([Writes.step("p1", 1)], 0.0)
    batch = steps_of(["p0", "p1", "p2", "p3"], warm={"p2"})

    executor.act(batch)

    assert pool.runs() == [("p0", b"state"), ("p1", b"state"), ("p2", None), ("p3", b"state")]
    assert store.reads == [2]


@pytest.mark.parametrize("lost", [["p0"], ["p3"], ["p0", "p5"], [f"p{number}" for number in range(6)]], ids=len)
def test_a_state_that_is_lost_parks_its_own_procedure_only(lost):
    executor, _, pool = executor_with(6, without=lost)
    names = [f"p{number}" for number in range(6)]

    events = executor.act(steps_of(names))

    assert [name for name, _ in pool.runs()] == [name for name in names if name not in lost]
    assert [event.token.procedure for event in events] == lost
    assert all("is missing from the store" in event.outcome.reason for event in events)


def test_a_state_that_is_damaged_parks_its_own_procedure_only():
    executor, store, pool = executor_with(4)
    rows = store._rows._tables[Table.STEPS]
    key = step_key("p2", 1)
    rows[key] = rows[key][:-1] + bytes([rows[key][-1] ^ 1])

    (event,) = executor.act(steps_of(["p0", "p1", "p2", "p3"]))

    assert [name for name, _ in pool.runs()] == ["p0", "p1", "p3"]
    assert event.token.procedure == "p2"
    assert "checksum" in event.outcome.reason


def test_what_was_read_ahead_is_not_kept_for_a_later_batch():
    executor, store, pool = executor_with(3)
    batch = steps_of(["p0", "p1", "p2"])
    gone = batch.commands[1]
    batch.commands[1] = replace(gone, token=replace(gone.token, worker=WorkerId(9, 1)))
    executor.act(batch)
    store.commit([PutStep(replace(Writes.step("p1", 1).record, state=b"newer"))], 1)

    executor.act(steps_of(["p1", "p2"]))

    assert pool.runs() == [("p0", b"state"), ("p2", b"state"), ("p1", b"newer"), ("p2", b"state")]
