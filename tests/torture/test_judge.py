"""The judge of the torture: each of its rules speaks when the lines, the store or the world of an episode break it."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from actorproc.model.rows.records import ExposedRecord, ProcedureRecord, StepKind, StepRecord
from actorproc.model.states import ProcedureState
from actorproc.procedure.values.codec import PLAIN
from actorproc.testing.journal import JournalLine
from actorproc.testing.torture import oracle
from actorproc.testing.torture.oracle import judge
from actorproc.testing.torture.orders.cancelling import CancelJudge
from actorproc.testing.torture.orders.reporting import judge_reports
from actorproc.testing.torture.plan import Plan, Root, Spec
from actorproc.testing.torture.record import SHOWN_KEY
from tests.simulator.rules.invariants import StoreDump, Violation

_WORK: Spec = {"type": "errand", "keys": [], "orders": [{"do": "work"}]}
_TREE: Spec = {**_WORK, "orders": [{"do": "fan", "children": [_WORK]}, {"do": "work"}]}
PLAN = Plan(seed=1, lives=(), roots=(Root("A", _TREE, ("SUCCESS",)), Root("U", _WORK, ("ROLLEDBACK",))))
WORLD = frozenset({"A/0", "A/1", "A.1/0"})
"""Files that are left when A has succeeded and U is rolled back."""


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without `check_journal`, which the judge begins with: that has tests of its own, and wants more lines."""
    monkeypatch.setattr(oracle, "check_journal", lambda *_: [])


def line(kind: str, id: str = "", **fields: object) -> JournalLine:
    return JournalLine(kind=kind, procedure=id, at=1, pid=1, **fields)


def durable(id: str, step: int, state: str = "RUNNABLE", *, records: int = 1, **fields: object) -> JournalLine:
    parent = "A" if id == "A.1" else None
    more = {"parent": parent, "root": parent or id, "epoch": 1, "attempt": 1, **fields}
    return line("durable", id, step=step, mode=state, state=str(records), **more)


def enter(id: str, step: int, mode: str = "execute", **fields: object) -> JournalLine:
    return line("enter", id, step=step, mode=mode, **{"epoch": 1, "attempt": 1, **fields})


LINES = [
    line("submitted", "A"),
    line("writing"),
    durable("A", 1),
    line("written"),
    line("acknowledged", "A"),
    enter("A", 1),
    durable("A", 2, "WAITING", records=2, attempt=0),
    durable("A.1", 1),
    enter("A.1", 1),
    durable("A.1", 1, "SUCCESS", records=2, text="ended"),
    durable("A", 2, records=2),
    enter("A", 2),
    durable("A", 2, "SUCCESS", records=3, text="ended"),
    line("output", "A", text="2"),
    line("resolved", "A", text="SUCCESS"),
    durable("U", 1),
    enter("U", 1),
    durable("U", 1, text="rolling"),
    enter("U", 1, "rollback"),
    durable("U", 1, "ROLLEDBACK", records=2, text="ended"),
]
"""A tree that succeeds, and a root that is undone."""


def head(id: str, state: str, **fields: object) -> ProcedureRecord:
    parent = "A" if id == "A.1" else None
    return ProcedureRecord(
        id=id, type_name="t", version=1, root=parent or id, parent=parent, seq=1, state=ProcedureState(state), **fields
    )


def dump(**states: str) -> StoreDump:
    known = {
        "A": "SUCCESS",
        "A.1": "SUCCESS",
        "U": "ROLLEDBACK",
        **{name.replace("_", "."): state for name, state in states.items()},
    }
    heads = {name: head(name, state) for name, state in known.items() if state}
    return StoreDump(heads, {name: [] for name in heads}, [], [])


def said(
    lines: list[JournalLine] = LINES, store: StoreDump | None = None, world: frozenset[str] = WORLD
) -> list[Violation]:
    return judge(PLAN, lines, dump() if store is None else store, world)


def without(place: int) -> list[JournalLine]:
    return LINES[:place] + LINES[place + 1 :]


def before(place: int, *more: JournalLine) -> list[JournalLine]:
    return [*LINES[:place], *more, *LINES[place:]]


def instead(place: int, **changed: object) -> list[JournalLine]:
    return [*LINES[:place], replace(LINES[place], **changed), *LINES[place + 1 :]]


BROKEN: dict[str, tuple[int, str, Callable[[], list[Violation]]]] = {
    "acknowledged first": (
        1,
        "is acknowledged before it is durable",
        lambda: said(before(1, line("acknowledged", "A"))),
    ),
    "another end was told": (14, "is told to have ended as FAILED", lambda: said(instead(14, text="FAILED"))),
    "another value is remembered": (
        9,
        "remembers",
        lambda: said([*LINES, line("noted", "A", step=1, text="1"), line("noted", "A", step=1, text="2")]),
    ),
    "it stands still": (15, "A is stuck", lambda: said([*LINES, line("stalled", "A", text="is stuck")])),
    "a worker is left": (18, "process 7", lambda: said([*LINES, line("orphan", text="process 7")])),
    "another recovery leads elsewhere": (16, "two ends", lambda: said([*LINES, line("unsound", text="two ends")])),
    "fewer records are durable": (4, "A goes back from", lambda: said(instead(10, state="1"))),
    "an end was none": (14, "U was ROLLEDBACK and is RUNNABLE", lambda: said([*LINES, durable("U", 1, records=2)])),
    "what was durable is not read back": (
        4,
        "A was durable",
        lambda: said(before(5, line("loaded", epoch=2)), dump(A="RUNNABLE")),
    ),
    "a stranger runs": (5, "runs and is not durable", lambda: said([*LINES, enter("X", 1)])),
    "an undo runs and nothing failed": (5, "no failure of its tree is durable", lambda: said(without(17))),
    "a step runs again": (6, "although its result is durable", lambda: said(before(11, enter("A", 1)))),
    "a step runs before its record": (5, "runs before that is durable", lambda: said(before(6, enter("A", 2)))),
    "an attempt runs before it is counted": (
        5,
        "runs before that is durable",
        lambda: said(instead(11, attempt=2)),
    ),
    "a parent goes on before its child": (12, "goes on before the end of A.1", lambda: said(without(9))),
    "who was refused is there": (
        20,
        "was refused, and it is in the store",
        lambda: said([line("submitted", "A"), line("refused", "A")]),
    ),
    "it has not ended": (15, "is RUNNABLE at the end", lambda: said(store=dump(A="RUNNABLE"))),
    "it ended otherwise": (14, "its orders allow SUCCESS", lambda: said(store=dump(A="ROLLEDBACK"))),
    "something was not undone": (11, "there is still U/0", lambda: said(world=WORLD | {"U/0"})),
    "a child is missing": (13, "has 1 members, its orders say 2", lambda: said(store=dump(A_1=""))),
    "a step left nothing": (3, "left 2 files, its orders say 3", lambda: said(world=WORLD - {"A/1"})),
    "the output is another": (14, "A gave {'3'}", lambda: said(instead(13, text="3"))),
}


def test_an_episode_in_which_all_is_well_breaks_nothing() -> None:
    assert said() == []


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_broken_on_purpose_is_seen(name: str) -> None:
    number, words, found = BROKEN[name]

    assert [violation for violation in found() if violation.number == number and words in violation.text]


def test_no_rule_of_the_judge_stays_silent() -> None:
    texts = [(violation.number, violation.text) for _, _, found in BROKEN.values() for violation in found()]
    places = []
    for node in ast.walk(ast.parse(Path(oracle.__file__).read_text())):
        match node:
            case ast.Call(
                func=ast.Attribute(attr="say") | ast.Name("Violation"),
                args=[ast.Constant(number), ast.JoinedStr(parts)],
            ):
                words = (re.escape(part.value) if isinstance(part, ast.Constant) else ".*" for part in parts)
                places.append((number, re.compile("".join(words), re.DOTALL)))

    assert len(places) > 15
    assert [
        (number, words.pattern)
        for number, words in places
        if not any(number == other and words.fullmatch(text) for other, text in texts)
    ] == []


# ---------------------------------------------------------------- cancelled steps
def _cancelled(*events: tuple[float, str, dict[str, object]]) -> list[Violation]:
    """What is said of lines of one procedure at these seconds."""
    found: list[Violation] = []
    judge_ = CancelJudge(lambda number, text: found.append(Violation(number, text)))
    for at, kind, fields in events:
        said = {"procedure": "c", "root": "r", **fields}
        judge_.read(JournalLine(kind=kind, at=int(at * 1e9), pid=5, **said))  # type: ignore[arg-type]
    return found


_ROLLING = {"mode": "RUNNABLE", "text": "rolling"}
_SOON = [(0.0, "listening", {}), (0.1, "durable", _ROLLING), (0.2, "heard", {})]
_LATE = [*_SOON[:2], (1.5, "heard", {})]
_DEAF = [(0.0, "tick", {}), (0.1, "durable", _ROLLING), (1.0, "tick", {})]


@pytest.mark.parametrize(
    ("events", "numbers"),
    [
        (_SOON, []),
        (_LATE, [22]),
        ([*_SOON[:2], (1.5, "exit", {})], [22]),
        ([*_SOON[:2], (0.3, "killing", {}), (9.0, "exit", {})], []),
        ([*_SOON[:2], (0.3, "loaded", {}), (9.0, "exit", {})], []),
        ([*_SOON[:2], (0.3, "lag", {"text": "0.9"}), (1.5, "heard", {})], []),
        ([*_SOON[:2], (0.3, "fault", {"mode": "disk full for a while"}), (1.5, "heard", {})], []),
        ([(0.0, "lag", {"text": "9.0"}), *_LATE], [22]),
        (_DEAF, []),
        ([*_DEAF, (1.6, "tick", {})], [22]),
        ([(0.0, "tick", {}), (9.0, "tick", {})], []),
        ([(0.0, "tick", {}), (0.1, "forced", {"procedure": "r"}), (1.1, "tick", {}), (1.4, "tick", {})], [22]),
        ([(0.0, "tick", {}), (0.1, "forced", {"procedure": "other"}), (3.0, "tick", {})], []),
    ],
)
def test_who_is_told_or_killed_too_late_is_found(events, numbers) -> None:
    assert [violation.number for violation in _cancelled(*events)] == numbers


# ---------------------------------------------------------------- reports of steps
_GIVEN = {"step": 2, "attempt": 3, "mode": "execute"}


@pytest.mark.parametrize(
    ("given", "is_wrong"),
    [
        ('["execute", null, 2, 2]', False),
        ('["execute", null, 2, 3]', True),
        ('["execute", null, 1, 1]', True),
        ('["rollback", null, 2, 1]', True),
        ('["execute", "pay", 2, 1]', True),
    ],
)
def test_an_attempt_that_was_given_the_heartbeat_of_another_step_is_found(given: str, is_wrong: bool) -> None:
    found = list(judge_reports([line("given", "A", text=given, **_GIVEN)], dump()))

    assert [violation.number for violation in found] == ([26] if is_wrong else [])


@pytest.mark.parametrize(
    ("shown", "slot", "is_wrong"),
    [
        (["execute", 2, 3], 0, False),
        (["execute", 2, 2], 0, True),
        (["rollback", 2, 3], 0, True),
        (None, 0, True),
        (None, -1, False),
    ],
)
def test_an_end_that_was_stored_without_what_its_step_showed_is_found(shown, slot, is_wrong) -> None:
    store = dump()
    store.steps["A"] = [StepRecord("A", 3, StepKind.COMMIT, 1.0, attempts=3, slot=slot)]
    store.exposed = {} if shown is None else {"A": [ExposedRecord("A", SHOWN_KEY, PLAIN.encode(shown), 1.0)]}

    found = list(judge_reports([enter("A", 2)], store))

    assert [violation.number for violation in found] == ([26] if is_wrong else [])
