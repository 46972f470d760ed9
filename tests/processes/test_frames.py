"""Frames cut out of a stream of bytes."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, strategies as st

from actorproc.model.ids import StepToken, WorkerId
from actorproc.workers.protocol.frames import (
    FrameBuffer,
    FrameError,
    Returned,
    Stop,
    decode_from_worker,
    decode_to_worker,
    encode_frame,
)

TOKEN = StepToken(1, WorkerId(0, 1), "p", 1, 1)


@given(st.lists(st.binary(max_size=300), max_size=20), st.lists(st.integers(1, 50), min_size=1, max_size=20))
def test_frames_come_out_whole_however_the_stream_is_cut(bodies: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(struct.pack(">I", len(body)) + body for body in bodies)
    buffer = FrameBuffer()

    found: list[bytes] = []
    position = index = 0
    while position < len(stream):
        size = cuts[index % len(cuts)]
        found += buffer.feed(stream[position : position + size])
        position, index = position + size, index + 1

    assert found == bodies
    assert not buffer.is_partial


def test_half_a_frame_at_the_end_is_partial() -> None:
    buffer = FrameBuffer()

    assert list(buffer.feed(encode_frame([Stop()])[:-1])) == []
    assert buffer.is_partial


def test_a_length_beyond_the_maximum_is_refused_after_the_good_frames_before_it() -> None:
    good = encode_frame([Returned(TOKEN)])
    buffer = FrameBuffer(max_frame=100)

    bodies = buffer.feed(good + struct.pack(">I", 101))

    assert decode_from_worker(next(bodies)) == [Returned(TOKEN)]
    with pytest.raises(FrameError, match="announces 101 bytes"):
        next(bodies)


def test_bytes_that_are_no_messages_are_a_frame_error_on_either_side() -> None:
    for decode in (decode_from_worker, decode_to_worker):
        with pytest.raises(FrameError, match="no frame"):
            decode(b"\xc1")


def test_a_message_of_the_wrong_direction_is_a_frame_error() -> None:
    with pytest.raises(FrameError):
        decode_from_worker(encode_frame([Stop()])[4:])


def test_a_frame_longer_than_agreed_is_not_made() -> None:
    with pytest.raises(FrameError, match="exceeds the maximum of 4"):
        encode_frame([Returned(TOKEN)], max_frame=4)
