"""What is too long for one message to a worker."""

from __future__ import annotations

from typing import Any

from actorproc.actors.dispatch import Dispatcher
from actorproc.actors.ledger import Ledger
from actorproc.actors.types import TypeTable
from actorproc.model.ids import StepToken, WorkerId
from actorproc.workers.frames import FrameError, TakeBackSteps

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


def test_steps_are_asked_back_in_several_messages_when_one_would_be_too_long():
    pool = ShortMessages()
    nobody: Any = None
    dispatcher = Dispatcher(
        pool=pool,  # type: ignore[arg-type]
        store=nobody,
        ledger=Ledger(),
        types=TypeTable(),
        replies=nobody,
        waiters=nobody,
        clock=nobody,
        hire=nobody,
        staff=nobody,
    )
    tokens = tuple(StepToken(1, WORKER, f"p{number}", 1, 1) for number in range(5))

    dispatcher.post(WORKER, TakeBackSteps(tokens))

    assert sum(pool.sent, ()) == tokens
