"""Ends of a link without I/O: each message arrives once and whole, wherever connections are cut."""

from __future__ import annotations

import random

import pytest

from actorproc.workers.link import resume
from actorproc.workers.link.resume import CAP, CHUNK, LinkEnd, LinkFault


def pour(sender: LinkEnd, receiver: LinkEnd) -> list[bytes]:
    """Everything that the sender has for now."""
    messages = []
    while data := sender.take():
        messages += receiver.feed(data)
    return messages


def reconnect(one: LinkEnd, other: LinkEnd) -> None:
    of_one, of_other = one.broke(), other.broke()
    one.resume(of_other)
    other.resume(of_one)


def messages_of(random_: random.Random, count: int) -> list[tuple[int, bytes]]:
    sizes = (1, 7, 100, 16_383, 16_384, 16_385, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK + 5)
    return [
        (random_.randrange(4), number.to_bytes(2) + random_.randbytes(random_.choice(sizes[: random_.choice((3, 10))])))
        for number in range(count)
    ]


def test_messages_arrive_in_the_order_of_their_lane():
    one, other = LinkEnd(), LinkEnd()
    sent = messages_of(random.Random(1), 200)
    for lane, message in sent:
        one.put(lane, message)
    arrived = pour(one, other)
    assert sorted(arrived) == sorted(message for _, message in sent)
    for lane in range(4):
        own = [message for at, message in sent if at == lane]
        assert [message for message in arrived if message in set(own)] == own


@pytest.mark.parametrize("size", [1, 2, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK, 2 * CHUNK + 1])
def test_a_message_of_any_size_arrives_whole(size):
    one, other = LinkEnd(), LinkEnd()
    message = random.Random(size).randbytes(size)
    one.put(5, message)
    assert pour(one, other) == [message]
    assert one.outstanding == size  # until the other end has said that it is there
    other.beat(0.0)
    pour(other, one)
    assert one.outstanding == 0


def test_a_short_message_passes_long_ones_of_other_lanes():
    one, other = LinkEnd(), LinkEnd()
    one.put(1, bytes(16 * CHUNK))
    one.put(2, bytes(16 * CHUNK))
    one.take()
    one.put(3, b"short")
    frames = 0
    while not (found := other.feed(one.take(1))):
        frames += 1
    assert found == [b"short"]
    assert frames <= 3, "it waited for more than a chunk of each lane before it"


def test_a_short_message_waits_for_a_long_one_of_its_own_lane():
    one, other = LinkEnd(), LinkEnd()
    one.put(1, b"a" * 3 * CHUNK)
    one.put(1, b"b")
    assert [message[:1] for message in pour(one, other)] == [b"a", b"b"]


def test_bytes_may_come_one_by_one():
    one, other = LinkEnd(), LinkEnd()
    sent = [b"x", b"yy" * 300, b"z"]
    for message in sent:
        one.put(1, message)
    one.beat(1.0)
    arrived = [found for byte in one.take() for found in other.feed(bytes((byte,)))]
    assert arrived == sent


def test_a_cut_at_every_byte_loses_nothing_and_repeats_nothing():
    sent = [(1, b"first"), (2, b"of another lane"), (3, b"t"), (1, b"second" * 20)]

    def begun() -> tuple[LinkEnd, LinkEnd, bytes]:
        one, other = LinkEnd(), LinkEnd()
        one.put(9, b"before")
        assert pour(one, other) == [b"before"]
        for lane, message in sent:
            one.put(lane, message)
        one.beat(0.0)
        return one, other, one.take()

    length = len(begun()[2])
    for cut in range(length + 1):
        one, other, data = begun()
        arrived = other.feed(data[:cut])
        reconnect(one, other)
        arrived += pour(one, other)
        assert arrived == [message for _, message in sent], f"cut after byte {cut}"


def test_a_cut_in_the_middle_of_resending_loses_nothing(monkeypatch):
    monkeypatch.setattr(resume, "CHUNK", 8)
    message, rest = bytes(range(60)), b"and one more"
    for first in range(0, 200, 3):
        for second in range(0, 200, 3):
            one, other = LinkEnd(), LinkEnd()
            one.put(1, message)
            one.put(2, rest)
            arrived = other.feed(one.take(1000)[:first])
            reconnect(one, other)
            arrived += other.feed(one.take(1000)[:second])
            reconnect(one, other)
            arrived += pour(one, other)
            assert sorted(arrived) == sorted([message, rest])


@pytest.mark.parametrize("seed", range(20))
def test_many_cuts_of_both_directions(seed, monkeypatch):
    monkeypatch.setattr(resume, "CHUNK", 64)
    chance = random.Random(seed)
    ends = LinkEnd(cap=4096), LinkEnd(cap=4096)
    sent: tuple[list[list[bytes]], ...] = ([[], [], []], [[], [], []])
    arrived: tuple[list[bytes], ...] = ([], [])
    wires = [b"", b""]
    for _ in range(3000):
        side = chance.randrange(2)
        match chance.randrange(10):
            case 0 | 1 | 2:
                lane = chance.randrange(3)
                message = bytes((side, lane)) + len(sent[side][lane]).to_bytes(4) + bytes(chance.randrange(200))
                sent[side][lane].append(message)
                ends[side].put(lane, message)
            case 3:
                ends[side].beat(0.0)
            case 4 | 5:
                wires[side] += ends[side].take(chance.randrange(1, 300))
            case 6 | 7 | 8:
                cut = chance.randrange(len(wires[side]) + 1)
                arrived[side].extend(ends[1 - side].feed(wires[side][:cut]))
                wires[side] = wires[side][cut:]
            case _ if chance.random() < 0.3:
                wires = [b"", b""]
                reconnect(*ends)
    reconnect(*ends)
    for _ in range(200):  # no more than the cap is under way at a time
        for side in (0, 1):
            ends[side].beat(0.0)
            arrived[side].extend(pour(ends[side], ends[1 - side]))
    for side in (0, 1):
        for lane in range(3):
            assert [message for message in arrived[side] if message[1] == lane] == sent[side][lane]
        assert ends[side].outstanding == 0


def test_no_more_than_the_cap_is_kept_for_a_silent_end():
    one = LinkEnd()
    for _ in range(300):
        one.put(1, bytes(CHUNK))
    taken = 0
    while data := one.take():
        taken += len(data)
    assert CAP <= taken < CAP + 2 * CHUNK
    assert one.is_full
    assert not one.put(1, b"a line of a log", may_drop=True)
    assert one.dropped == 1
    assert one.put(1, b"an answer")


def test_what_waited_leaves_when_the_other_end_takes_up_reading():
    one, other = LinkEnd(cap=8 * CHUNK), LinkEnd()
    sent = [bytes((n,)) * CHUNK for n in range(40)]
    for message in sent:
        one.put(1, message)
    arrived = []
    for _ in range(10):
        arrived += pour(one, other)
        pour(other, one)  # it acknowledges by itself
    other.beat(0.0)
    pour(other, one)
    arrived += pour(one, other)
    assert arrived == sent


def test_signs_of_life_measure_the_round_trip():
    one, other = LinkEnd(), LinkEnd()
    one.beat(10.0)
    other.feed(one.take(), 500.0)
    assert other.has_news
    one.feed(other.take(), 10.25)
    assert one.round_trip == 0.25
    assert not one.has_news


@pytest.mark.parametrize(
    "data",
    [
        b"\xff" * 17,
        b"GET / HTTP/1.1\r\n\r\n",
        (CHUNK + 1).to_bytes(4) + bytes(13),
        bytes(4) + b"\x09" + bytes(12),
        bytes(4) + b"\x02" + bytes(4) + (1).to_bytes(8),  # an acknowledgement of what was never sent
    ],
    ids=["noise", "http", "too long", "unknown kind", "acknowledges too much"],
)
def test_what_is_no_frame_is_a_fault(data):
    with pytest.raises(LinkFault):
        LinkEnd().feed(data)


@pytest.mark.parametrize("received", [-1, 3, 1 << 40])
def test_an_end_that_received_what_was_never_sent_cannot_resume(received):
    one, other = LinkEnd(), LinkEnd()
    one.put(1, b"a")
    one.put(1, b"b")
    pour(one, other)
    one.broke()
    with pytest.raises(LinkFault):
        one.resume(received)


def test_an_end_that_forgot_what_it_acknowledged_cannot_resume():
    one, other = LinkEnd(), LinkEnd()
    for _ in range(300):
        one.put(1, b"a")
    pour(one, other)
    pour(other, one)
    one.broke()
    with pytest.raises(LinkFault):
        one.resume(0)


@pytest.mark.parametrize("size", [0, 11])
def test_messages_that_cannot_be_sent_are_refused(size):
    with pytest.raises(ValueError, match=f"{size} bytes"):
        LinkEnd(largest=10).put(0, bytes(size))


def test_a_message_without_end_is_a_fault(monkeypatch):
    one, other = LinkEnd(), LinkEnd(largest=3 * CHUNK)
    one.put(1, bytes(10 * CHUNK))
    with pytest.raises(LinkFault, match="more than"):
        pour(one, other)
