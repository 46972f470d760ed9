"""Long states that come beside the frames which speak of them."""

from __future__ import annotations

import os
import socket
import threading
from typing import Any

import pytest

from actorproc.config import Config
from actorproc.model.ids import StepToken, WorkerId
from actorproc.workers.child.runtime.channel import WorkerChannel
from actorproc.workers.protocol.attachments import LONG, Attachments, in_pieces
from actorproc.workers.protocol.frames import (
    DEFAULT_MAX_FRAME,
    FrameBuffer,
    FrameError,
    Run,
    Stop,
    ToWorker,
    decode_to_worker,
    encode_frame,
)

HERE = WorkerId(0, 1)


def token(name: str) -> StepToken:
    return StepToken(1, HERE, name, 1, 1)


def run(name: str, state: bytes | None, **more: Any) -> Run:
    return Run(token(name), "T", name, None, state, "pickle", 1, **more)


def long_state(mark: bytes, more: int = 0) -> bytes:
    return mark * LONG + b"." * more


def received(stream: bytes, cut: int) -> list[ToWorker]:
    """The messages of a stream that arrives in pieces of so many bytes, as a worker receives it."""
    attachments = Attachments()
    frames = FrameBuffer(begin_attachment=attachments.begin)
    messages: list[ToWorker] = []
    at = 0
    while at < len(stream):
        room = attachments.room
        size = min(cut, len(stream) - at) if room is None else min(cut, len(room), len(stream) - at)
        if room is not None:
            room[:size] = stream[at : at + size]
            attachments.came(size)
        else:
            for body in frames.feed(stream[at : at + size]):
                came = decode_to_worker(body)
                attachments.give_to(came)
                messages += came
        at += size
    assert attachments.room is None
    assert not attachments.are_here
    return messages


@pytest.mark.parametrize("cut", [1 << 20, 70_001, 4096, 5])
def test_long_states_arrive_with_their_messages_however_the_stream_is_cut(cut):
    short, one, two = b"s" * 10, long_state(b"1"), long_state(b"2", more=3)
    messages = [run("a", short), run("b", one), Stop(), run("c", two), run("d", None)]
    stream = b"".join([*in_pieces(messages, DEFAULT_MAX_FRAME), *in_pieces([run("e", one)], DEFAULT_MAX_FRAME)])

    found = received(stream, cut)

    told: list[Any] = [message.state for message in found if not isinstance(message, Stop)]
    states = [None if state is None else bytes(state) for state in told]
    assert [type(message) for message in found] == [Run, Run, Stop, Run, Run, Run]
    assert states == [short, one, two, None, one]


def test_long_states_arrive_where_frames_may_be_as_long_as_a_length_can_say():
    state = long_state(b"1")
    attachments = Attachments()
    frames = FrameBuffer(2**31 - 1, begin_attachment=attachments.begin)

    (body,) = frames.feed(b"".join(in_pieces([run("a", state)], 2**31 - 1)))
    (message,) = decode_to_worker(body)
    attachments.give_to([message])

    assert isinstance(message, Run)
    assert message.state == state
    with pytest.raises(ValueError, match="less than 2 GiB"):
        Config(max_frame=2**31)


def test_a_long_state_is_sent_from_where_it_is():
    state = long_state(b"x")

    pieces = in_pieces([run("a", state)], DEFAULT_MAX_FRAME)

    assert any(piece is state for piece in pieces)
    assert sum(map(len, pieces)) < len(state) + 500


def test_a_state_longer_than_a_frame_may_be_is_refused_and_so_is_its_announcement():
    state = long_state(b"x", more=1)

    with pytest.raises(FrameError, match=f"state of {len(state)} bytes"):
        in_pieces([run("a", state)], LONG)
    stream = b"".join(in_pieces([run("a", state)], DEFAULT_MAX_FRAME))
    buffer = FrameBuffer(LONG, Attachments().begin)
    with pytest.raises(FrameError, match="announces"):
        list(buffer.feed(stream))
    with pytest.raises(FrameError, match="announces"):  # the host takes no attachments
        list(FrameBuffer().feed(stream))


def test_a_step_whose_state_did_not_come_is_a_frame_error():
    (message,) = decode_to_worker(encode_frame([run("a", None, is_attached=True)])[4:])

    with pytest.raises(FrameError, match="did not come"):
        Attachments().give_to([message])


def test_a_worker_receives_a_long_state_through_its_channel():
    host, end = socket.socketpair()
    guard: Any = None
    channel = WorkerChannel(end.detach(), guard)
    state = os.urandom(3 * LONG)
    pieces = in_pieces([run("a", state), Stop()], DEFAULT_MAX_FRAME)
    sender = threading.Thread(target=host.sendall, args=(b"".join(pieces),))
    sender.start()

    messages = channel.receive()

    sender.join()
    host.close()
    assert messages is not None
    assert [type(message) for message in messages] == [Run, Stop]
    assert messages[0].state == state  # type: ignore[union-attr]
    assert channel.receive() is None
    channel._socket.close()
