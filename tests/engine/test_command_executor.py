"""What is too long for one message to a worker; an end whose output cannot be read."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest

from actorproc.engine.messages import Ending
from actorproc.engine.pipeline.batch import CommitBatch
from actorproc.engine.pipeline.command_executor import CommandExecutor
from actorproc.engine.pipeline.commit_cache import CommitCache
from actorproc.engine.pipeline.in_flight import InFlightTable
from actorproc.engine.reply_router import ReplyRouter
from actorproc.engine.runtime.type_table import TypeTable
from actorproc.errors import StoreDamaged
from actorproc.model.ids import StepToken, WorkerId
from actorproc.model.messages.commands import Reply, Resolve, TakeBack
from actorproc.model.rows.records import ProcedureRecord, StepKind, StepRecord
from actorproc.model.states import ProcedureState
from actorproc.workers.protocol.frames import FrameError, TakeBackSteps
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
    names = ("pool", "store", "keep_promise", "hire", "worker_table")
    own = {
        "replies": ReplyRouter(),
        "in_flight": InFlightTable(),
        "types": TypeTable(),
        "newest": CommitCache(),
        "clock": HandClock(),
    }
    parts: dict[str, Any] = dict.fromkeys(names) | own | given
    return CommandExecutor(**parts)


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
