"""Readers and those who want to be alone, also when a reader is interrupted."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

import actorproc.store.lmdb.store as store_lmdb
from actorproc.store.lmdb.map_gate import MapGate
from tests.kit.waiting import BOUND, wait_until

ROOT = Path(store_lmdb.__file__).parents[3]


def alone(gate):
    """A thread that wants to be alone for a moment."""

    def be_alone():
        with gate.alone():
            pass

    thread = threading.Thread(target=be_alone, daemon=True)
    thread.start()
    return thread


def test_who_wants_to_be_alone_waits_for_those_inside():
    gate = MapGate()
    first, second = gate.enter(), gate.enter()
    thread = alone(gate)
    wait_until(lambda: gate._closed)

    first.leave()
    first.leave()
    assert thread.is_alive()
    second.leave()
    thread.join(BOUND)

    assert not thread.is_alive()


def test_a_reader_that_was_lost_on_its_way_keeps_nobody_waiting():
    gate = MapGate()
    lost = [gate.enter()]
    thread = alone(gate)
    wait_until(lambda: gate._closed)

    lost.clear()
    thread.join(BOUND)

    assert not thread.is_alive()


INTERRUPTED = """
import os, random, signal, sys, threading, time
from actorproc.store.lmdb.store import LmdbStore

store = LmdbStore(sys.argv[1])
store.own()
over = threading.Event()
armed = False

def strike(*_):
    global armed
    if armed:  # once, and never while one is being counted
        armed = False
        raise KeyboardInterrupt

signal.signal(signal.SIGINT, strike)

def interrupt():
    while not over.wait(random.random() * 0.001):
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

thread = threading.Thread(target=interrupt)
thread.start()
times = 0
while times < 1000:
    try:
        armed = True
        while True:
            store.procedure("p")
    except KeyboardInterrupt:
        times += 1
over.set()
thread.join()
store.close()
print("closed", times)
"""


def test_a_thousand_interrupted_reads_leave_nobody_inside(tmp_path):
    ended = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, str(tmp_path / "state")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=2 * BOUND,
        check=False,
    )

    assert ended.stdout == "closed 1000\n", ended.stderr


def test_a_signal_handler_may_read_in_the_middle_of_its_threads_coming_and_going():
    gate = MapGate()

    class Interrupted(set):
        def add(self, one):
            super().add(one)
            visit()

        def discard(self, one):
            visit()
            super().discard(one)

    def visit():
        usual, gate._inside = gate._inside, set()
        gate.enter().leave()
        assert not gate._inside
        gate._inside = usual

    def read():
        gate.enter().leave()

    gate._inside = Interrupted()
    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    thread.join(BOUND)

    assert not thread.is_alive()
    assert not gate._inside


def test_ctrl_c_while_one_waits_to_be_alone_opens_the_gate_again(monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    gate = MapGate()
    inside = gate.enter()
    monkeypatch.setattr(gate._changed, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt), gate.alone():
        pass
    monkeypatch.undo()

    inside.leave()
    gate.enter().leave()
    with gate.alone():
        pass
