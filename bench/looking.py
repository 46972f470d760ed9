"""Processor time of looks at a store: single ones, a watch of all changes, and the live screen.

    python bench/looking.py [--quick] [--children 10000] [--finished 29000] [--rounds 30] [--unfinished 10000]

Milliseconds of processor time for one look of a `StoreReader` at a parent with many children and at filters over many
finished procedures, the least of several. The store is written directly, so that the figures are those of looking
alone. Then microseconds of the host's processor for a procedure while it is not watched, watched by digests, or watched
in every change; and percent of a core that `actorproc top` takes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

from common import fresh_directory, options, report
from screen import screen
from watched import watched

from actorproc import StoreReader
from actorproc.model.rows.records import ChildRecord, ProcedureRecord, StepKind, StepRecord
from actorproc.model.rows.writes import PutChild, PutProcedure, PutStep, Write
from actorproc.model.states import ProcedureState
from actorproc.store.lmdb.store import LmdbStore

SUCCESS, RUNNABLE, WAITING = ProcedureState.SUCCESS, ProcedureState.RUNNABLE, ProcedureState.WAITING
ROUNDS = 5


def _head(id: str, seq: int, state: ProcedureState, root: str = "", **fields: object) -> ProcedureRecord:
    ended = 3.0 if state is SUCCESS else None
    return ProcedureRecord(
        id=id, type_name="bench.T", version=1, root=root or id, seq=seq, state=state, finished_at=ended, **fields
    )  # type: ignore[arg-type]


def _writes(children: int, finished: int) -> Iterator[Write]:
    """A parent with one unfinished child, the last but one; and roots of which one in a hundred has not ended."""
    counts: dict[str, object] = {}
    if "child_states" in ProcedureRecord.__struct_fields__:
        counts["child_states"] = (1, 0, 0, children - 1, 0, 0)
    parent = {"children": children, "succeeded": children - 1, "pending": 1, **counts}
    yield PutProcedure(_head("parent", 1, WAITING, parent=None, **parent), None)
    yield PutStep(StepRecord("parent", 1, StepKind.STEP, 1.0, b"\x80"))
    for number in range(children):
        id, state = f"child-{number:05}", RUNNABLE if number == children - 2 else SUCCESS
        yield PutProcedure(_head(id, number + 2, state, "parent", parent="parent"), None)
        yield PutStep(StepRecord(id, 1, StepKind.STEP, 1.0, b"\x80"))
        yield PutChild(ChildRecord("parent", 1, number, id))
    for number in range(finished):
        id, state = f"root-{number:06}", RUNNABLE if number % 100 == 0 else SUCCESS
        yield PutProcedure(_head(id, children + number + 2, state, parent=None), None)
        yield PutStep(StepRecord(id, 1, StepKind.STEP, 1.0, b"\x80"))


def _fill(path: Path, children: int, finished: int) -> None:
    store = LmdbStore(path)
    epoch = store.own()
    batch: list[Write] = []
    for write in _writes(children, finished):
        batch.append(write)
        if len(batch) >= 5000:
            store.commit(batch, epoch)
            batch = []
    store.commit(batch, epoch)
    store.close()


def _looks(reader: StoreReader) -> dict[str, Callable[[], object]]:
    page = "child-00150"
    return {
        "info of the parent": lambda: reader.info("parent"),
        "list, with the parent on the page": lambda: reader.list(limit=50),
        "a page of its children": lambda: reader.list(parent="parent", limit=50),
        "a page in the middle": lambda: reader.list(parent="parent", after=page, limit=50),
        "why of the parent": lambda: reader.why("parent"),
        "tree --limit 1000": lambda: reader.tree("parent", limit=1000),
        "one state": lambda: reader.list(state="RUNNABLE", limit=50),
        "two states": lambda: reader.list(state=["RUNNABLE", "WAITING"], limit=50),
        "a phase (locked-out)": lambda: reader.list(phase="locked-out", limit=50),
        "a phase (parked)": lambda: reader.list(phase="parked", limit=50),
        "troubled": lambda: reader.list(troubled=True, limit=50),
    }


def _least(look: Callable[[], object]) -> float:
    best = float("inf")
    for _ in range(ROUNDS):
        began = time.process_time()
        look()
        best = min(best, time.process_time() - began)
    return best * 1000


def main() -> None:
    asked = options(
        __doc__,
        children=(10_000, 300),
        finished=(29_000, 200),
        rounds=(30, 1),
        procedures=(2000, 40),
        unfinished=(10_000, 20),
        seconds=(20.0, 1.0),
    )
    with fresh_directory() as folder:
        path = Path(folder) / "state"
        _fill(path, asked.children, asked.finished)
        with StoreReader(path) as reader:
            found = {name: round(_least(look), 2) for name, look in _looks(reader).items()}
    ways = watched(asked.rounds, asked.procedures)
    parts = screen(asked.unfinished, asked.seconds)
    lines = [f"{name:<36} {value:9.2f} ms" for name, value in found.items()]
    lines += [f"{way:<36} {one['us']:9.1f} us a procedure, x {one['ratio']:.3f}" for way, one in ways.items()]
    lines += [f"top, {name:<31} {value:9.2f}{'' if 'bytes' in name else ' %'}" for name, value in parts.items()]
    report("looking", {"milliseconds": found, "watched": ways, "top": parts}, lines)


if __name__ == "__main__":
    main()
