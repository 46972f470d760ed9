"""Messages that a worker's runtime sends, without a worker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from actorproc.model.ids import StepToken, WorkerId
from actorproc.workers.child.runtime.worker_runtime import WorkerRuntime
from actorproc.workers.protocol.frames import FromWorker, Returned, Run, encode_frame


class SmallFrames:
    """A channel whose frames are small, and what was sent through it."""

    def __init__(self, max_frame: int) -> None:
        self.max_frame = max_frame
        self.sent: list[FromWorker] = []

    def send(self, messages: Sequence[FromWorker]) -> None:
        encode_frame(messages, self.max_frame)
        self.sent += messages


def test_a_worker_that_stops_gives_back_more_steps_with_long_ids_than_one_frame_can_hold():
    channel = SmallFrames(16 * 1024)
    nobody: Any = None
    worker_runtime = WorkerRuntime(channel, nobody)
    tokens = [StepToken(1, WorkerId(0, 1), f"{number:0255}", 1, 1) for number in range(255)]
    for token in tokens:
        worker_runtime.put(Run(token, "T", token.procedure, None, b"", "msgpack", 1))

    worker_runtime.stop()

    assert channel.sent == [Returned(token) for token in tokens]
