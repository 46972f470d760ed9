"""How much of what the engine adds to a bare pipeline are its records? The pipeline of `bare.py`, which stores them.

    python bench/recorded.py [--in-flight 64,256] [--total 25000] [--tasks 10000] [--calls 10000] [--workers 2]

Beside the bare pipeline and the engine stands one that decides as little as the former, and stores what the latter
stores: procedures are described with their ids and digests, calls are signed, heads and step log are the engine's, with
the indexes that listings read, in the engine's store. (What the engine's workers sign stands here unsigned, and as
long.) It is what an engine in Python with these records would reach if its decisions, its messages and its supervision
cost nothing, and if it decided, as this one does, between two commits and not during one.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from typing import Any

import bare
import executor
from bare import STEP, Bare, Commit, Live, encode
from common import middle, options, raw_commits_per_second, report
from steps import Count, flood, steps_of

from actorproc.model.messages.events import NewProcedure
from actorproc.model.rows.records import ProcedureRecord, StepKind, StepRecord
from actorproc.model.rows.writes import PutProcedure, PutStep, Was
from actorproc.model.states import ProcedureState
from actorproc.procedure.authoring.call import Call
from actorproc.procedure.encoding.signing import seal
from actorproc.procedure.runtime.type_runtime import TypeRuntime
from actorproc.store.committer import coalesce
from actorproc.store.lmdb.store import LmdbStore

_COUNT = TypeRuntime.of_class(Count)
_CALL = TypeRuntime.of_class(Call, signing_key=bytes(32))
_EMPTY_CALL = _CALL.describe(Call(b"")).state
_SEAL = bytes(len(seal(b"", "", bytes(32))))
LINES = {"bare": "a bare pipeline", "recorded": "with the engine's records", "engine": "actorproc"}


@dataclass(slots=True)
class Described(Live):
    """One whose head is the engine's."""

    new: NewProcedure | None = None
    head: ProcedureRecord | None = None


class Recorded(Bare):
    """The bare pipeline with the engine's descriptions, records and store."""

    def _open(self, folder: str) -> None:
        self._store_of_records = LmdbStore(folder)
        self._epoch = self._store_of_records.own()
        self._number = 0
        self._blank = ProcedureRecord(
            id="", type_name=Count.type_name, version=1, root="", parent=None, seq=0, child_states=()
        )
        self._seq = 1

    def _close(self) -> None:
        self._store_of_records.close()

    def _commit(self, commit: Commit) -> None:
        self._number += 1
        self._store_of_records.commit(coalesce([*commit.steps, *commit.heads]), self._epoch, self._number)

    def live(self, name: str, kind: int, content: Any, end: Callable[[bytes], object]) -> Described:
        plain = super().live(name, kind, content, end)
        new = _COUNT.describe(Count(content), id=name) if kind == STEP else _CALL.describe(Call(content), id=name)
        return Described(name, kind, plain.state, end, new=new)

    def _note_new(self, live: Described, commit: Commit) -> None:
        new, head, now = live.new, copy(self._blank), time.time()
        head.id = head.root = new.id
        head.type_name, head.digest = new.type_name, new.digest
        head.seq, head.epoch = self._seq, self._epoch
        head.created_at = head.updated_at = now
        self._seq += 1
        live.head = head
        commit.heads.append(PutProcedure(copy(head), None))
        commit.steps.append(
            PutStep(StepRecord(new.id, 1, StepKind.STEP, now, new.state, new.codec, new.version, "submitted"))
        )

    def _note_handed_out(self, live: Described, worker: int, commit: Commit) -> None:
        live.head.attempt = 1
        commit.heads.append(PutProcedure(copy(live.head), _was(live.head)))

    def _note_step(self, live: Described, worker: int, state: bytes, commit: Commit, *, is_last: bool) -> None:
        was, head, now = _was(live.head), live.head, time.time()
        head.attempt, head.step, head.records, head.updated_at = 0, head.step + 1, head.records + 1, now
        if is_last:
            head.state, head.finished_at = ProcedureState.SUCCESS, now
            new = live.new
            last, output = (state, encode(live.step)) if live.kind == STEP else (_EMPTY_CALL, _SEAL + state)
            ends = (StepKind.COMMIT, now, last, new.codec, 1, "done", None, 1, worker, 1, None, output)
        else:
            ends = (StepKind.STEP, now, state, "data", 1, "executing", None, 1, worker, 1)
        commit.steps.append(PutStep(StepRecord(live.id, head.records, *ends)))
        commit.heads.append(PutProcedure(copy(head), was))


def _was(head: ProcedureRecord) -> Was:
    return Was(head.state, head.due_at, head.finished_at)


def pipeline(kind: type[Bare], given) -> dict[str, float]:
    found = {
        str(number): bare.flood(number, steps_of(number, given.total), given.workers, kind=kind)
        for number in given.in_flight
    }
    found["tasks"] = bare.flood(given.tasks, 1, given.workers, kind=kind)
    return found | {"calls": bare.calls(given.calls, given.workers, kind=kind)}


def engine(given) -> dict[str, float]:
    found = {str(number): flood(number, steps_of(number, given.total), given.workers) for number in given.in_flight}
    found["tasks"] = flood(given.tasks, 1, given.workers)
    return found | {"calls": executor.queued(given.calls, given.workers)}


def main() -> None:
    given = options(
        __doc__,
        in_flight=((64, 256), (64,)),
        workers=(2, 2),
        total=(25_000, 2_000),
        tasks=(10_000, 500),
        calls=(10_000, 500),
        repeat=(3, 1),
    )
    raw = raw_commits_per_second(0.5)
    rounds: dict[str, list[dict[str, float]]] = {name: [] for name in LINES}
    for _ in range(given.repeat):  # side by side, so that a slow moment of the machine slows all of them
        rounds["bare"].append(pipeline(Bare, given))
        rounds["recorded"].append(pipeline(Recorded, given))
        rounds["engine"].append(engine(given))
    usual = {name: middle(found) for name, found in rounds.items()}
    shown = {"tasks": "procedures of one step", "calls": "calls, queued"}
    lines = [f"{'':26}" + "".join(f"{line:>28}" for line in LINES.values())]
    for what in usual["engine"]:
        name = shown.get(what, f"{what} in flight, steps")
        lines.append(f"{name:26}" + "".join(f"{usual[one][what]:25,.0f} /s" for one in LINES))
    report("recorded", {"raw_commits_per_s": raw, "per_s": usual, "rounds": rounds, "workers": given.workers}, lines)


if __name__ == "__main__":
    main()
