"""Random procedure programs as data, and the pure interpreter that plays a step of one.

A program is a list of operations; the state of its procedure is ``position:counter:undo-phase`` in ASCII.
The interpreter is a function of (program, state, mode, unit, attempt), so a replayed step gives the same
answer: what differs between two runs of a history can only come from the engine.

Undo labels follow the two kinds of real procedures: a *saga* labels each step ("u0", "u1", ...; some steps
have nothing to undo), a *plain* procedure uses "" for all of it, and one without rollback uses None.
"""

from __future__ import annotations

from random import Random

import msgspec

from actorproc.model.ids import Mode
from actorproc.model.outcomes import (
    Advanced,
    Answered,
    Failed,
    Finished,
    Outcome,
    Poisoned,
    Slept,
    Suspended,
    Waited,
)
from actorproc.model.policies import Backoff, LockKey, LockMode, TypeMeta
from actorproc.model.records import ErrorInfo, NewProcedure, Wait

__all__ = ["ClientAction", "Operation", "Program", "Scenario", "make_scenario", "play", "program_of"]

INITIAL_STATE = b"0:0:0"
WALL_TIME = 3.0
"""Seconds after which a hanging step is killed."""
MIN_STEPS = 12
MIN_PROCEDURES = 3

_READ, _WRITE = LockMode.READ, LockMode.WRITE
_KEYS = tuple(LockKey(path, mode) for path in ("a", "a/b", "a/b/c", "a/d", "e") for mode in (_READ, _WRITE))
_RETRY = Backoff(max_attempts=5, base=0.5, cap=4.0)
_UNDO_RETRY = Backoff(max_attempts=4, base=0.5, cap=4.0)


class Operation(msgspec.Struct, frozen=True, gc=False):
    """What one step does. `kind` is one of go, sleep, wait, spawn, fatal, poison, done."""

    kind: str
    unit: str | None = None
    """Undo label of this step."""
    seconds: float = 0.0
    """go: `after`; sleep: how long; wait: time limit (0: none)."""
    persist: bool = True
    event: str = ""
    children: tuple[Program, ...] = ()
    wait: Wait = "all"
    leave: bool = False
    """spawn: outstanding children outlive their parent."""
    max_parallel: int | None = None
    acquire: tuple[LockKey, ...] = ()
    flaky: int = 0
    """The first attempts that fail with a retryable error."""
    hangs: int = 0
    """The first attempts that never answer: they need a wall-time kill."""
    note: bool = False
    """The step makes a write-ahead note before it goes on."""
    no_return: bool = False
    undo: str = "ok"
    """How the unit's undo goes: ok, twice (two rollback steps), flaky (one retry), broken (never works)."""


class Program(msgspec.Struct, frozen=True, gc=False):
    """A procedure type with its only program."""

    meta: TypeMeta
    operations: tuple[Operation, ...]
    locks: tuple[LockKey, ...] = ()
    allows_abort: bool = True
    timeout_goes_on: bool = False
    """What `on_timeout` answers: go on, or None (which fails the wait)."""
    deadline: float | None = None
    """Seconds from the submit."""


class ClientAction(msgspec.Struct, frozen=True, gc=False):
    """What the outside does once: kind is submit, abort, signal or conflict (a submit that must be refused)."""

    kind: str
    targets: tuple[str, ...]


class Scenario(msgspec.Struct, frozen=True, gc=False):
    """Everything of a history that is chosen before it begins."""

    roots: dict[str, Program]
    programs: dict[str, Program]
    """By type name."""
    actions: tuple[ClientAction, ...]
    bystander: str | None
    """A root that shares nothing with the others and must succeed whatever happens to them."""
    steps: int
    slots: int
    is_prefetching: bool
    """The core expects short steps from the beginning, so it hands out several at a time."""


def program_of(id: str, program: Program, *, now: float, fresh: bool = False) -> NewProcedure:  # noqa: A002
    """The submit of `program` under `id`."""
    return NewProcedure(
        id=id,
        fresh=fresh,
        type_name=program.meta.type_name,
        state=INITIAL_STATE,
        digest=program.meta.type_name.encode(),
        locks=program.locks,
        unit=program.operations[0].unit,
        deadline=None if program.deadline is None else now + program.deadline,
    )


# ---------------------------------------------------------------- playing one step
def play(program: Program, id: str, state: bytes, mode: Mode, unit: str | None, attempt: int) -> Outcome:  # noqa: A002
    """The answer of one handed-out step; a pure function."""
    if mode is Mode.ASK_ABORT:
        return Answered(allowed=program.allows_abort, state=state)
    position, counter, phase = (int(part) for part in state.split(b":"))
    if mode is Mode.ROLLBACK:
        return _undo(program, id, position, counter, phase, unit, attempt)
    if mode is Mode.ON_TIMEOUT:
        if program.timeout_goes_on:
            return Advanced(state=_state(position, counter + 1), unit=_unit_at(program, position))
        return Failed(state=state, error=ErrorInfo("wait-timeout", "WaitTimeout", "not in time"))
    first = position
    while True:
        operation = program.operations[position]
        if attempt <= operation.flaky:
            return Failed(state=state, error=ErrorInfo("error", "ConnectionError", "flaky"), retryable=True)
        steps = position - first + 1
        if not _goes_on_unsaved(program, position):
            return _forward(program, id, operation, position, counter, steps)
        position, counter = position + 1, counter + 1


def _goes_on_unsaved(program: Program, position: int) -> bool:
    """Whether the step said `persist=False` and the next one may run under the same token."""
    operation = program.operations[position]
    if operation.kind != "go" or operation.persist or operation.seconds or operation.acquire:
        return False
    # A step with an undo unit of its own, or past the point of no return, must be announced before it runs.
    following = program.operations[position + 1]
    return following.unit in {None, operation.unit} and not following.no_return


def _forward(
    program: Program,
    id: str,  # noqa: A002
    operation: Operation,
    position: int,
    counter: int,
    steps: int,
) -> Outcome:
    kind = operation.kind
    if kind == "done":
        return Finished(state=_state(position, counter + 1), steps=steps, output=b"%s=%d" % (id.encode(), counter))
    if kind == "fatal":
        return Failed(state=_state(position, counter), error=ErrorInfo("error", "ValueError", "fatal"))
    if kind == "poison":
        error = ErrorInfo("poisoned", "Poisoned", "told so")
        return Poisoned(state=_state(position, counter), steps=steps, keys=(f"own/{id}",), error=error)
    after = _state(position + 1, counter + 1)
    following = program.operations[position + 1]
    unit, no_return = following.unit, following.no_return
    if kind == "go":
        return Advanced(
            state=after,
            unit=unit,
            no_return=no_return,
            steps=steps,
            persist=operation.persist,
            after=operation.seconds,
            acquire=operation.acquire,
        )
    if kind == "sleep":
        return Slept(state=after, unit=unit, no_return=no_return, steps=steps, seconds=operation.seconds)
    if kind == "wait":
        limit = operation.seconds or None
        return Waited(state=after, unit=unit, no_return=no_return, steps=steps, event=operation.event, timeout=limit)
    children = tuple(
        NewProcedure(
            id=f"{id}.{position}{index}",
            type_name=child.meta.type_name,
            state=INITIAL_STATE,
            digest=child.meta.type_name.encode(),
            locks=child.locks,
            unit=child.operations[0].unit,
        )
        for index, child in enumerate(operation.children)
    )
    return Suspended(
        state=after,
        unit=unit,
        no_return=no_return,
        steps=steps,
        children=children,
        wait=operation.wait,
        on_parent_end="leave" if operation.leave else "abort",
        max_parallel=operation.max_parallel,
    )


def _undo(
    program: Program,
    id: str,  # noqa: A002
    position: int,
    counter: int,
    phase: int,
    unit: str | None,
    attempt: int,
) -> Outcome:
    how = next((item.undo for item in program.operations if item.unit == unit and item.undo != "ok"), "ok")
    if how == "broken" or (how == "flaky" and attempt <= 1):
        error = ErrorInfo("error", "OSError", f"undo of {unit!r} in {id}")
        return Failed(state=_state(position, counter, phase), error=error, retryable=True)
    if how == "twice" and phase == 0:
        return Advanced(state=_state(position, counter + 1, 1))
    return Finished(state=_state(position, counter + 1, 0))


def _state(position: int, counter: int, phase: int = 0) -> bytes:
    return b"%d:%d:%d" % (position, counter, phase)


def _unit_at(program: Program, position: int) -> str | None:
    return program.operations[position].unit


# ---------------------------------------------------------------- making programs
class _Maker:
    """Draws the programs of one history."""

    def __init__(self, random: Random) -> None:
        self.random = random.random
        self.programs: dict[str, Program] = {}
        self.steps = 0

    def chance(self, probability: float) -> bool:
        return self.random() < probability

    def below(self, bound: int) -> int:
        return int(self.random() * bound)

    def program(self, depth: int, steps: int, *, children: int = 0, trouble: float = 1.0) -> Program:
        """One program of at least `steps` steps; spawns `children` children once when asked to."""
        random = self.random
        style = self.below(4)  # 0 plain, 1 no rollback, 2 and 3 saga
        spawn_at = self.below(steps - 1) if children else -1
        operations = []
        for position in range(steps):
            unit = "" if style == 0 else None if style == 1 or random() < 0.15 else f"u{position}"
            if position == steps - 1:
                kind = "fatal" if random() < 0.12 * trouble else "poison" if random() < 0.02 * trouble else "done"
                # Past the point of no return only a last step that works in the end can be undisturbed.
                no_return = kind == "done" and depth == 0 and random() < 0.1
                operations.append(Operation(kind, unit, flaky=self.flaky(0.08), undo=self.undo(), no_return=no_return))
            elif position == spawn_at:
                operations.append(self.spawn(unit, depth, children))
            else:
                operations.append(self.simple(unit))
        self.steps += steps
        locks = self.locks(0.45)
        meta = TypeMeta(
            type_name=f"T{len(self.programs)}",
            retry=_RETRY,
            rollback_retry=_UNDO_RETRY,
            rollback_supported=style != 1,
            on_child_failure="resume" if children and random() < 0.3 else "fail",
            undo_children=random() >= 0.08,
            lock_scope="step" if random() < 0.1 else "procedure",
            wall_time=WALL_TIME,
            asks_abort=random() < 0.2,
            has_on_timeout=random() < 0.3,
        )
        deadline = 5.0 + 20.0 * random() if depth == 0 and random() < 0.04 else None
        program = Program(meta, tuple(operations), locks, random() < 0.7, random() < 0.5, deadline)
        self.programs[meta.type_name] = program
        return program

    def simple(self, unit: str | None) -> Operation:
        random = self.random
        kind = random()
        flaky, undo = self.flaky(0.08), self.undo()
        if kind < 0.70:
            return Operation(
                "go",
                unit,
                seconds=random() if random() < 0.08 else 0.0,
                persist=random() >= 0.2,
                acquire=self.locks(1.0) if random() < 0.06 else (),
                flaky=flaky,
                hangs=1 if random() < 0.02 else 0,
                note=random() < 0.08,
                undo=undo,
            )
        if kind < 0.85:
            return Operation("sleep", unit, seconds=4 * random(), flaky=flaky, undo=undo)
        if kind < 0.97:
            limit = 2.0 + 10 * random() if random() < 0.4 else 0.0
            return Operation("wait", unit, seconds=limit, event=f"event{self.below(2)}", flaky=flaky, undo=undo)
        return Operation("fatal", unit, undo=undo)

    def spawn(self, unit: str | None, depth: int, children: int) -> Operation:
        random = self.random
        wait: Wait = "all" if random() < 0.85 else "any" if random() < 0.5 else "each"
        nested = 1 if depth == 0 and random() < 0.25 else 0
        made = tuple(self.program(depth + 1, 2 + self.below(3), children=nested) for _ in range(children))
        if random() < 0.2:
            made = (*made, made[0])  # two of one kind, with the same locks
        limit = 1 + self.below(2) if random() < 0.2 else None
        leave = wait != "all" and random() < 0.4
        return Operation("spawn", unit, children=made, wait=wait, max_parallel=limit, leave=leave, undo=self.undo())

    def flaky(self, probability: float) -> int:
        return 1 + self.below(2) if self.random() < probability else 0

    def undo(self) -> str:
        draw = self.random()
        return "ok" if draw < 0.8 else "twice" if draw < 0.9 else "flaky" if draw < 0.98 else "broken"

    def locks(self, probability: float) -> tuple[LockKey, ...]:
        if self.random() >= probability:
            return ()
        first = _KEYS[self.below(len(_KEYS))]
        if self.random() < 0.7:
            return (first,)
        second = _KEYS[self.below(len(_KEYS))]
        return (first, second) if second.path != first.path else (first,)


def make_scenario(random: Random) -> Scenario:
    """Draw a history's programs: one tree of 3 procedures or more and 12 steps or more, often a rival for its locks."""
    maker = _Maker(random)
    roots = {"A": maker.program(0, 4 + maker.below(2), children=2 + maker.below(2))}
    if maker.chance(0.5) or maker.steps < MIN_STEPS:
        roots["B"] = maker.program(0, max(3, MIN_STEPS - maker.steps), trouble=0.5)
    bystander = None
    if maker.chance(0.15):
        bystander = "Z"
        meta = TypeMeta(type_name="T-bystander", rollback_supported=True, crashes=100)
        quiet = tuple(Operation(kind) for kind in ("go", "go", "done"))
        roots["Z"] = maker.programs["T-bystander"] = Program(meta, quiet, (LockKey("bystander", _WRITE),))
        maker.steps += len(quiet)
    actions = _actions(maker, roots)
    return Scenario(
        roots=roots,
        programs=maker.programs,
        actions=actions,
        bystander=bystander,
        steps=maker.steps,
        slots=1 + maker.below(3),
        is_prefetching=maker.chance(0.4),
    )


def _actions(maker: _Maker, roots: dict[str, Program]) -> tuple[ClientAction, ...]:
    names = tuple(roots)
    if len(names) > 1 and maker.chance(0.2):
        actions = [ClientAction("submit", names)]
    else:
        actions = [ClientAction("submit", (name,)) for name in names]
    if maker.chance(0.1):
        actions.append(ClientAction("conflict", ("A",)))
    if maker.chance(0.15):
        actions.append(ClientAction("abort", ("B" if "B" in roots and maker.chance(0.5) else "A",)))
    for number in range(maker.below(3)):
        actions.append(ClientAction("signal", (f"event{number}",)))
    if maker.chance(0.1):
        actions.append(ClientAction("signal", ("A",)))
    return tuple(actions)
