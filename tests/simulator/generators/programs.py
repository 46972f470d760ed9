"""Programs of a random history: one tree, often a rival for its locks, sometimes a bystander.

Seeds that once found something are kept, so what is drawn here must not change; new ideas go into `extras`.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from actorproc.model.policies import Backoff, LockKey, LockMode, TypeMeta
from actorproc.model.rows.records import Wait
from tests.simulator.generators.scripts import WALL_TIME, ClientAction, Operation, Program, Scenario

__all__ = ["MIN_PROCEDURES", "MIN_STEPS", "draw_locks", "make_scenario"]

MIN_STEPS = 12
MIN_PROCEDURES = 3

_READ, _WRITE = LockMode.READ, LockMode.WRITE
_KEYS = tuple(LockKey(path, mode) for path in ("a", "a/b", "a/b/c", "a/d", "e") for mode in (_READ, _WRITE))
_RETRY = Backoff(max_attempts=5, base=0.5, cap=4.0)
_UNDO_RETRY = Backoff(max_attempts=4, base=0.5, cap=4.0)


class _ProgramMaker:
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
            best_effort=len(self.programs) % 7 == 3,
            retries_overtime=len(self.programs) % 2 == 0,
            keep_steps=1 + len(self.programs) % 2 if len(self.programs) % 5 in {1, 2} else None,
        )
        deadline = 5.0 + 20.0 * random() if depth == 0 and random() < 0.04 else None
        program = Program(
            meta,
            tuple(operations),
            locks,
            allows_abort=random() < 0.7,
            timeout_goes_on=random() < 0.5,
            deadline=deadline,
        )
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
        return () if self.random() >= probability else draw_locks(self.random)


def draw_locks(random: Callable[[], float]) -> tuple[LockKey, ...]:
    """One or two keys of the few that all procedures of a history share."""
    first = _KEYS[int(random() * len(_KEYS))]
    if random() < 0.7:
        return (first,)
    second = _KEYS[int(random() * len(_KEYS))]
    return (first, second) if second.path != first.path else (first,)


def make_scenario(random: Random) -> Scenario:
    """Draw a history's programs: one tree of 3 procedures or more and 12 steps or more, often a rival for its locks."""
    maker = _ProgramMaker(random)
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


def _actions(maker: _ProgramMaker, roots: dict[str, Program]) -> tuple[ClientAction, ...]:
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
        actions.append(ClientAction("publish", (f"event{number}",)))
    if maker.chance(0.1):
        actions.append(ClientAction("signal", ("A",)))
    return tuple(actions)
