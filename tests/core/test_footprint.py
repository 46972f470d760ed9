"""Bytes of memory for each procedure that waits, counted and not timed."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from actorproc.core.coordinator import Coordinator
from actorproc.model.ids import new_id
from actorproc.model.messages.events import StepEnded, Submitted, TypeRegistered
from actorproc.model.messages.outcomes import Slept, Waited
from actorproc.model.policies import TypeMeta
from actorproc.model.rows.records import ProcedureRecord
from actorproc.model.rows.writes import PutProcedure
from actorproc.model.states import ProcedureState
from actorproc.store.memory import MemoryStore
from tests.core.harness import CoreHarness

COUNT = 20_000
FEW = 5_000
ASLEEP = 240
"""Bytes of a sleeper: one entry of 80 bytes, its place in a heap, and in a set that may be mostly free."""
LISTENING = 330
"""Bytes of who waits for an event of its own: the event, the id, one entry of a dictionary."""
UNTOUCHED = 950
"""Bytes of who waits for its next step since the start: the head, and a place in the cold run queue."""
QUEUED = 2200
"""Bytes of who waits for its first step: the whole head, and its place in the queue."""


@contextmanager
def counting() -> Iterator[Callable[[], int]]:
    """Gives a function that says how many bytes were allocated since and are still in use."""
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]

    def held() -> int:
        gc.collect()
        return tracemalloc.get_traced_memory()[0] - before

    try:
        yield held
    finally:
        tracemalloc.stop()


def _store(**fields: object) -> MemoryStore:
    store = MemoryStore()
    epoch = store.own()
    writes = []
    for number in range(1, COUNT + 1):
        id = new_id()
        known = {name: value(number) if callable(value) else value for name, value in fields.items()}
        record = ProcedureRecord(
            id=id, type_name="T", version=1, root=id, parent=None, seq=number, digest=b"d" * 16, **known
        )
        writes.append(PutProcedure(record, None))
    store.commit(writes, epoch)
    return store


@pytest.mark.parametrize(
    ("fields", "bound"),
    [
        ({"state": ProcedureState.WAITING_TIMEOUT, "due_at": lambda number: 1e9 + number}, ASLEEP),
        ({"state": ProcedureState.WAITING, "event": lambda number: f"approved-{number}"}, LISTENING),
        ({}, QUEUED),
    ],
    ids=["asleep", "listening", "queued"],
)
def test_a_start_keeps_few_bytes_of_each_procedure(fields, bound):
    store = _store(**fields)

    with counting() as held:
        core, _ = Coordinator.restore(store.load(whole=False), 0.0)
        core.handle(TypeRegistered(TypeMeta(type_name="T")), 0.0)
        core.settle(core.seal())

        assert held() / COUNT <= bound


def test_who_waits_for_its_turn_after_a_start_is_one_head() -> None:
    store = _store()

    with counting() as held:
        core, _ = Coordinator.restore(store.load(whole=False), 0.0, types=(TypeMeta(type_name="T"),))
        core.settle(core.seal())

        assert core.queued == COUNT
        assert held() / COUNT <= UNTOUCHED


@pytest.mark.parametrize(
    ("outcome", "bound"),
    [
        (lambda number: Slept(state=b"s", seconds=1e6 + number), ASLEEP),
        (lambda number: Waited(state=b"s", event=f"approved-{number}", timeout=None), LISTENING),
    ],
    ids=["asleep", "listening"],
)
def test_a_procedure_that_begins_to_wait_leaves_few_bytes_in_memory(outcome, bound):
    harness = CoreHarness(workers=1)

    with counting() as held:
        for number in range(FEW):
            harness.handle(Submitted((harness.new(new_id()),), reply=1))
            run = harness.inbox.popitem()[1]
            harness.handle(StepEnded(run.token, outcome(number)))
            harness.core.settle(harness.core.seal())
            for told in (harness.writes, harness.commands, harness.order):
                told.clear()

        assert held() / FEW <= bound
