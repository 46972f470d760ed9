"""The judges of restarts and of kills by operators: each of their rules speaks when an episode breaks it, and not else."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from actorproc.model.ids import Mode
from actorproc.model.rows.records import AttemptRecord, ErrorInfo, ProcedureRecord
from actorproc.model.states import ProcedureState
from actorproc.testing.journal import JournalLine
from actorproc.testing.torture.orders.operating import KillJudge, RestartJudge

WORK = {"do": "work", "seconds": 0.0}
CHILD = {"type": "echo", "keys": [], "orders": [WORK]}
ECHO = {"type": "echo", "keys": [], "orders": [{**WORK, "children": [CHILD]}, WORK]}


def line(kind: str, **fields: object) -> JournalLine:
    return JournalLine(kind=kind, procedure="again-0", at=1, pid=1, **fields)


def durable(generation: int, state: str) -> JournalLine:
    return line("durable", mode=state, unit=str(generation) if generation > 1 else None)


LINES = [
    durable(1, "RUNNABLE"),
    durable(1, "SUCCESS"),
    line("generation-ended", step=1, text="1"),
    line("restarting"),
    line("restart-refused"),
    line("restarting"),
    durable(2, "RUNNABLE"),
    line("restarted"),
    durable(2, "SUCCESS"),
    line("generation-ended", step=2, text="2"),
]
WORLD = ("again-0/1.0", "again-0/1.1", "again-0/2.0", "again-0/2.1", "again-0.1/2.0")


def head(name: str, **fields: object) -> ProcedureRecord:
    made = ProcedureRecord(id=name, type_name="Echo", version=1, root="again-0", parent=None, seq=1)
    return replace(made, **{"state": ProcedureState.SUCCESS, "generation": 2, **fields})


HEADS = {"again-0": head("again-0"), "again-0.1": head("again-0.1", parent="again-0", generation=1)}


def judged(lines=LINES, heads=HEADS, world=WORLD, wanted=1):
    found: list[tuple[int, str]] = []
    judge = RestartJudge("again-0", ECHO, wanted, lambda number, text: found.append((number, text)))
    for one in lines:
        judge.read(one)
    judge.end(heads, world)
    return found


def test_a_restart_that_went_well_is_no_finding():
    assert judged() == []


def without(*places: int) -> list[JournalLine]:
    return [one for place, one in enumerate(LINES) if place not in places]


def instead(place: int, *others: JournalLine) -> list[JournalLine]:
    return [*LINES[:place], *others, *LINES[place + 1 :]]


@pytest.mark.parametrize(
    ("number", "words", "broken"),
    [
        (1, "before it is durable", {"lines": [*without(6, 7, 8)[:6], line("restarted"), *LINES[6:7], *LINES[8:]]}),
        (4, "goes back", {"lines": [*LINES, durable(1, "SUCCESS")]}),
        (4, "durable was 2", {"heads": {**HEADS, "again-0": head("again-0", generation=3)}}),
        (14, "follows 1, RUNNABLE", {"lines": without(1)}),
        (14, "follows 1, SUCCESS", {"lines": instead(6, durable(3, "RUNNABLE"))}),
        (20, "2 restarts were asked for", {"lines": instead(5, line("restarting"), line("restart-refused"))}),
        (20, "0 restarts were asked for", {"lines": without(3, 4, 5)}),
        (14, "gave 1", {"lines": instead(9, line("generation-ended", step=2, text="1"))}),
        (14, "is FAILED", {"heads": {**HEADS, "again-0": head("again-0", state=ProcedureState.FAILED)}}),
        (15, "is WAITING", {"heads": {**HEADS, "again-0": head("again-0", state=ProcedureState.WAITING)}}),
        (15, "2 restarts were wanted", {"wanted": 2}),
        (13, "has 3 members", {"heads": {**HEADS, "again-0.2": head("again-0.2", parent="again-0")}}),
        (13, "has 1 members", {"heads": {"again-0": HEADS["again-0"]}}),
        (3, "2.1", {"world": WORLD[:3]}),
    ],
)
def test_a_restart_that_breaks_a_promise_is_told(number, words, broken):
    assert [text for found, text in judged(**broken) if found == number and words in text]


def attempts(kind: str, attempt: int = 2) -> dict[str, list[AttemptRecord]]:
    error = ErrorInfo(kind, "X", "x", "", "again-0", 3)
    return {"again-0": [AttemptRecord("again-0", 3, Mode.EXECUTE, attempt, 1, 1.0, 2.0, 0, 1, 7, error)]}


@pytest.mark.parametrize(
    ("stored", "text", "is_told"),
    [
        (attempts("crash"), "step 3 (scan), attempt 2", True),
        (attempts("crash"), "step 3, attempt 2", True),
        (attempts("killed"), "step 3, attempt 2", False),
        (attempts("error"), "step 3, attempt 2", False),
        (attempts("crash"), "step 3, attempt 1", False),
        (attempts("crash"), "step 4, attempt 2", False),
        (attempts("crash"), "", False),
        (None, "step 3, attempt 2", False),
    ],
)
def test_an_attempt_that_an_operator_killed_is_no_crash(stored, text, is_told):
    found: list[tuple[int, str]] = []

    KillJudge(stored, lambda number, said: found.append((number, said))).read(line("operator-killed", text=text))

    assert [number for number, _ in found] == ([22] if is_told else [])
