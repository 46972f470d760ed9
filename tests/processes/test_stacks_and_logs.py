"""Stacks of running steps, and what procedures print and log."""

from __future__ import annotations

import logging
import os
import tracemalloc
from collections.abc import Callable

import pytest
from pool_listener import Listener
from steps_under_test import Count, Do

from actorproc.workers.output.log_buffer import LINE_LENGTH, LogBuffer
from actorproc.workers.output.pipe import OutputPipe
from actorproc.workers.protocol.frames import Ended
from actorproc.workers.protocol.markers import UNOWNED, MarkReader, OutputOwner, mark
from tests.kit.waiting import wait_until


@pytest.mark.parametrize("how", ["busy_python", "busy_c", "swallow"])
def test_the_stack_of_a_running_step_is_told_while_it_runs(host: Listener, how: str) -> None:
    worker = host.boot()
    run = host.start(worker, Do(how))
    host.heartbeat(worker)

    stack = host.pool.stack(run.token)

    assert f"do_{how}" in stack
    assert "steps_under_test.py" in stack
    host.pool.kill(worker)


def test_a_stack_that_was_asked_for_is_not_taken_for_a_later_crash(host: Listener) -> None:
    worker = host.boot()
    run = host.start(worker, Do("busy_c"))
    host.heartbeat(worker)
    assert "do_busy_c" in host.pool.stack(run.token)

    host.pool.kill(worker)

    assert host.died(worker).report.stack == ""


def test_a_step_that_is_over_has_no_stack(host: Listener) -> None:
    worker = host.boot()
    run = host.start(worker, Count(1))
    host.next_message(Ended, worker)

    wait_until(lambda: host.pool.stack(run.token) == "")
    host.pool.kill(worker)
    host.died(worker)
    assert host.pool.stack(run.token) == ""


def texts(host: Listener, name: str) -> list[tuple[str, str]]:
    return sorted((entry.stream, entry.text) for entry in host.pool.logs(name))


def test_what_each_procedure_says_is_kept_by_stream_and_by_procedure(host: Listener) -> None:
    worker = host.boot()
    host.finish(worker, Do("speak", "one"), name="first")
    host.finish(worker, Do("whisper", "two"), name="second")
    host.finish(worker, Do("speak", "three"), name="third")

    def said(text: str) -> list[tuple[str, str]]:
        return [
            ("log", f"{text} logged"),
            ("stderr", f"{text} complained"),
            ("stdout", f"{text} by a child"),
            ("stdout", f"{text} printed"),
        ]

    wait_until(lambda: len(texts(host, "third")) == 4)
    assert texts(host, "first") == said("one")
    assert texts(host, "second") == [("stdout", "two raw")]
    assert texts(host, "third") == said("three")
    record = next(entry for entry in host.pool.logs("first") if entry.stream == "log")
    assert record.level == 30
    assert record.at > 0


def test_the_last_words_of_a_dead_worker_are_kept_and_have_no_marks(host: Listener) -> None:
    worker = host.boot()
    host.start(worker, Do("complain", "the end"), name="doomed")

    assert host.died(worker).report.stderr == "the end\n"
    assert texts(host, "doomed") == [("stderr", "the end")]


def test_of_a_long_line_the_beginning_is_kept_however_it_was_printed() -> None:
    read, write = os.pipe()
    lines: list[str] = []
    pipe = OutputPipe(read, label="worker 0", level=logging.DEBUG)
    pipe.keep = lambda owner, stream, line: lines.append(line)
    with os.fdopen(write, "wb", buffering=0) as end:
        for piece in (b"HEAD", b"a" * 20_000, b"b" * 20_000, b"TAIL\n", b"HEAD" + b"c" * 50_000 + b"\nnext\n"):
            end.write(piece)
            pipe.read()
    pipe.read_rest()
    os.close(read)
    log_buffer = LogBuffer()
    for line in lines:
        log_buffer.add("p", "stdout", line)

    kept = [entry.text for entry in log_buffer.lines("p")]
    assert [(text[:5], text[-6:], len(text)) for text in kept[:2]] == [
        ("HEADa", " [...]", LINE_LENGTH),
        ("HEADc", " [...]", LINE_LENGTH),
    ]
    assert kept[2:] == ["next"]


def test_a_flood_is_kept_within_its_share(listen: Callable[..., Listener]) -> None:
    host = listen(log_buffer=LogBuffer(per_procedure=10_000))
    worker = host.boot()

    host.finish(worker, Do("print", "10"))

    def kept() -> int:
        return sum(len(entry.text) + 100 for entry in host.pool.logs("p"))

    wait_until(kept)
    assert 0 < kept() <= 10_000


def test_procedures_that_were_silent_longest_give_way() -> None:
    log_buffer = LogBuffer(per_procedure=1000, total=2500)
    for name in ("a", "b", "c"):
        for number in range(10):
            log_buffer.add(name, "stdout", f"line {number} of {name}")

    assert log_buffer.lines("a") == []
    assert [entry.text for entry in log_buffer.lines("c")][-1] == "line 9 of c"


def test_many_procedures_that_print_a_line_each_take_no_more_memory_than_the_total() -> None:
    total = 1_000_000
    tracemalloc.start()
    try:
        log_buffer = LogBuffer(total=total)
        for number in range(5000):
            log_buffer.add(f"procedure-{number}", "stdout", f"line of {number}")
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert log_buffer.lines("procedure-4999")
    assert used < 1.2 * total


def test_marks_are_taken_out_wherever_the_stream_is_cut() -> None:
    one, two = (
        OutputOwner("id-1", 3, 2, "root", "shop.Auftrag \u00e4\u20ac", "re serve"),
        OutputOwner("id:2", 1, 1, "id:2", "T", ""),
    )
    stream = f"before{mark(one)}mine\n{mark(UNOWNED)}nobody's\x1e\n{mark(two)}yours".encode()
    whole = list(MarkReader().feed(stream))

    for cut in range(len(stream)):
        reader = MarkReader()
        pieces = [*reader.feed(stream[:cut]), *reader.feed(stream[cut:]), reader.rest()]
        joined: dict[OutputOwner, bytes] = {}
        for owner, piece in pieces:
            joined[owner] = joined.get(owner, b"") + piece
        assert joined == {UNOWNED: b"beforenobody's\x1e\n", one: b"mine\n", two: b"yours"}
    assert [owner for owner, _ in whole] == [UNOWNED, one, UNOWNED, two]


@pytest.mark.parametrize(
    "text", ["\x1eid-1\x1e", "\x1e/1.1///\x1e", "\x1eid/x.1/r//\x1e", "\x1eid/1.1/r/0g/\x1e", "\x1e \x1e"]
)
def test_what_only_looks_like_a_mark_is_text(text: str) -> None:
    reader = MarkReader()

    pieces = [*reader.feed(f"{text}\n".encode()), reader.rest()]

    assert b"".join(piece for _, piece in pieces) == f"{text}\n".encode()
    assert {owner for owner, _ in pieces} == {UNOWNED}


def test_names_of_any_length_fit_into_a_mark() -> None:
    owner = OutputOwner("p" * 128, 10**17, 10**8, "r" * 128, "\u20ac" * 255, "n" * 255)
    reader = MarkReader()

    ((found, text),) = reader.feed(f"{mark(owner)}x".encode())

    assert (found.procedure, found.step, found.attempt, found.root, text) == (*owner[:4], b"x")
    assert found.type_name == "\u20ac" * 100
    assert found.step_name == "n" * 255
