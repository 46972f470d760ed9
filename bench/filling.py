"""Stores of a given shape, written straight through `LmdbStore.commit`, for benches whose question begins afterwards.

What is written is what the engine itself would have written for these procedures; it only skips the running of steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from actorproc.model.rows.records import ProcedureRecord, StepKind, StepRecord
from actorproc.model.rows.writes import PutProcedure, PutStep, Was, Write
from actorproc.model.states import ProcedureState
from actorproc.store.lmdb.store import LmdbStore

DIGEST = b"0123456789abcdef"
_SLICE = 5_000


def name_of(number: int) -> str:
    """An id as long as a UUID, in submit order."""
    return f"{number:08d}-7000-8000-9000-{number:012d}"


def fill(
    path: str, count: int, rows_of: Callable[[int], Iterable[Write]], *, last: Callable[[], object] = lambda: None
) -> None:
    """Write what `rows_of` says of each of `count` procedures. `last` is called before the store is closed."""
    store = LmdbStore(path, durability="process")
    epoch = store.own()
    try:
        for first in range(1, count + 1, _SLICE):
            writes: list[Write] = []
            for number in range(first, min(first + _SLICE, count + 1)):
                writes += rows_of(number)
            store.commit(writes, epoch)
        last()
    finally:
        store.close()


def head(number: int, type_name: str, now: float, **fields: object) -> ProcedureRecord:
    """The head of a lone procedure, waiting for its first step unless `fields` say otherwise."""
    name = name_of(number)
    known: dict[str, object] = {
        "id": name,
        "type_name": type_name,
        "version": 1,
        "root": name,
        "parent": None,
        "seq": number,
        "created_at": now,
        "updated_at": now,
        "digest": DIGEST,
        "epoch": 1,
    }
    return ProcedureRecord(**{**known, **fields})  # type: ignore[arg-type]


def asleep(type_name: str, now: float, wakes_at: float) -> Callable[[int], Iterator[Write]]:
    """Its first step said `Status.sleep`."""

    def rows(number: int) -> Iterator[Write]:
        name = name_of(number)
        for place in (1, 2):
            yield PutStep(StepRecord(procedure=name, number=place, kind=StepKind.STEP, at=now, state=b"\x80"))
        due = wakes_at + number * 0.001
        state = ProcedureState.WAITING_TIMEOUT
        yield PutProcedure(head(number, type_name, now, step=2, records=2, state=state, due_at=due), None)

    return rows


def listening(type_name: str, now: float) -> Callable[[int], Iterator[Write]]:
    """Its first step said `Status.wait` for an event of its own."""

    def rows(number: int) -> Iterator[Write]:
        name = name_of(number)
        for place in (1, 2):
            yield PutStep(StepRecord(procedure=name, number=place, kind=StepKind.STEP, at=now, state=b"\x80"))
        state, event = ProcedureState.WAITING, f"approved-{number}"
        yield PutProcedure(head(number, type_name, now, step=2, records=2, state=state, event=event), None)

    return rows


def half_finished(type_name: str, state: bytes, updates: int, now: float) -> Callable[[int], Iterator[Write]]:
    """HBase's loader shape: `updates` records with this state; every other procedure has ended with the last."""

    def rows(number: int) -> Iterator[Write]:
        name = name_of(number)
        is_over = number % 2 == 0
        for place in range(1, updates + 1):
            is_last = is_over and place == updates
            kind = StepKind.COMMIT if is_last else StepKind.STEP
            yield PutStep(StepRecord(procedure=name, number=place, kind=kind, at=now, state=b"" if is_last else state))
        first = head(number, type_name, now)
        if is_over:
            done = head(
                number,
                type_name,
                now,
                step=updates,
                records=updates,
                state=ProcedureState.SUCCESS,
                finished_at=now + number * 1e-6,
            )
            yield PutProcedure(first, None)
            yield PutProcedure(done, Was(first.state, None, None))
        else:
            yield PutProcedure(head(number, type_name, now, step=updates, records=updates), None)

    return rows
