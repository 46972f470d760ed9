"""Groups of a random scenario beside the extras: parents that suspend again and again, and other calls.

Elsewhere a parent spawns once and at most waits for the rest. Here it waits for the next one in a loop
(`Status.suspended([])`), has further children join those that are outstanding, runs steps of its own in between
while children end, and begins another group when all of one have ended and were seen. Beside that the pool of workers
is made smaller and larger, classes are registered anew with another trait, roots have delays, and steps yield.

It is drawn from a stream of its own, and only for seeds from `FIRST_SEED` on, so that seeds that were kept before
there was any of this mean what they meant.
"""

from __future__ import annotations

from random import Random

import msgspec

from actorproc.model.policies import LockKey, Quotas, TypeMeta
from actorproc.model.rows.records import Wait
from tests.simulator.generators.programs import draw_locks
from tests.simulator.generators.scripts import WALL_TIME, ClientAction, Operation, Program, Scenario

__all__ = ["FIRST_SEED", "add_groups"]

FIRST_SEED = 5_000_000_000
"""The first seed of a history that has them."""
_MOST_OPERATIONS = 9
"""A program grows no longer than this: names of children have one digit for the step they come from."""

_TRAITS = ("class", "threads", "own", "asks")
_REPLACED = {"go", "fatal"}
"""Kinds of operations in the middle of a program that give way to a suspend."""


def add_groups(scenario: Scenario, random: Random) -> Scenario:
    """The scenario with further groups of children drawn from `random`; the bystander is left as it is."""
    maker = _GroupMaker(random, scenario)
    roots = {name: maker.root(program) for name, program in scenario.roots.items()}
    steps = sum(len(program.operations) for program in maker.programs.values())
    # Small quotas end most parents of several groups before they have had them.
    quotas = scenario.quotas if maker.chance(0.3) else Quotas()
    return msgspec.structs.replace(
        scenario,
        roots=roots,
        programs=maker.programs,
        steps=steps,
        quotas=quotas,
        actions=(*scenario.actions, *maker.resizes(), *maker.changes()),
    )


class _GroupMaker:
    def __init__(self, random: Random, scenario: Scenario) -> None:
        self.random = random.random
        self.model = scenario.roots["A"].meta
        self.programs: dict[str, Program] = {}
        """By type name, as changed, and the new ones."""
        self.leaves: list[Program] = []
        """New ones, that may be used again."""

    def chance(self, probability: float) -> bool:
        return self.random() < probability

    def below(self, bound: int) -> int:
        return int(self.random() * bound)

    # ------------------------------------------------------------ parents
    def root(self, program: Program) -> Program:
        """The program and all below it; it may be submitted with a delay."""
        changed = self.program(program)
        if program.meta.type_name != "T-bystander" and self.chance(0.15):
            changed = msgspec.structs.replace(changed, delay=4 * self.random())
            self.programs[program.meta.type_name] = changed
        return changed

    def program(self, program: Program) -> Program:
        """The program and all below it, each changed once."""
        name = program.meta.type_name
        known = self.programs.get(name)
        if known is not None:
            return known
        operations = self.operations(program)
        if operations:
            meta = program.meta
            if self.chance(0.6):
                meta = msgspec.structs.replace(meta, on_child_failure="resume")
            # Outstanding children that cannot but fail would be tried for ever past the point of no return.
            forward = tuple(msgspec.structs.replace(operation, no_return=False) for operation in operations)
            program = msgspec.structs.replace(program, meta=meta, operations=forward)
        self.programs[name] = program
        return program

    def operations(self, program: Program) -> list[Operation]:
        """The operations of a parent as changed; none when it has no children."""
        changed: list[Operation] = []
        has_spawned = False
        last = program.operations[-1]
        room = _MOST_OPERATIONS - len(program.operations)
        for operation in program.operations:
            if operation.kind == "spawn":
                children = tuple(self.program(child) for child in operation.children)
                first = msgspec.structs.replace(operation, children=children)
                changed.append(self.waiting(first) if not has_spawned and self.chance(0.6) else first)
                has_spawned = True
                further = min(room, self.below(4))
                room -= further
                changed += [self.further(operation) for _ in range(further)]
            elif has_spawned and operation is not last and operation.kind in _REPLACED and self.chance(0.7):
                changed.append(self.spawn(operation))
            else:
                changed.append(operation)
        return changed if has_spawned else []

    def further(self, after: Operation) -> Operation:
        """One more operation behind a spawn: mostly a spawn, else a step while children run."""
        if self.chance(0.2):
            seconds = self.random() if self.chance(0.4) else 0.0
            return Operation("go", after.unit, seconds=seconds, yields=self.chance(0.5))
        return self.spawn(after)

    def spawn(self, place: Operation) -> Operation:
        """A suspend in this place: for the next of those that are outstanding, or with some more of them."""
        draw = self.random()
        count = 0 if draw < 0.5 else 1 if draw < 0.8 else 2
        children = tuple(self.child() for _ in range(count))
        return self.waiting(
            Operation("spawn", place.unit, children=children, flaky=place.flaky, undo=place.undo, note=place.note)
        )

    def waiting(self, operation: Operation) -> Operation:
        draw = self.random()
        wait: Wait = "each" if draw < 0.5 else "any" if draw < 0.75 else "all"
        limit = 1 + self.below(2) if self.chance(0.25) else None
        return msgspec.structs.replace(operation, wait=wait, leave=self.chance(0.35), max_parallel=limit)

    # ------------------------------------------------------------ the outside
    def resizes(self) -> list[ClientAction]:
        """The pool of workers is made smaller or larger, some time after all that was asked before."""
        found = []
        for _ in range(1 + self.below(3) if self.chance(0.3) else 0):
            found += [*self.naps(), ClientAction("resize", (str(1 + self.below(3)),))]
        return found

    def changes(self) -> list[ClientAction]:
        """Classes are registered anew, with another trait."""
        names = [name for name in self.programs if name != "T-bystander"]
        found = []
        for _ in range(1 + self.below(3) if self.chance(0.3) else 0):
            trait = _TRAITS[self.below(len(_TRAITS))]
            found += [*self.naps(), ClientAction("anew", (names[self.below(len(names))], trait))]
        return found

    def naps(self) -> list[ClientAction]:
        return [ClientAction("nap", ()) for _ in range(self.below(6))]

    # ------------------------------------------------------------ children
    def child(self) -> Program:
        if self.leaves and self.chance(0.3):
            return self.leaves[self.below(len(self.leaves))]
        made = self.leaf()
        self.leaves.append(made)
        self.programs[made.meta.type_name] = made
        return made

    def leaf(self) -> Program:
        """A short program without children; it ends at once, soon, or late."""
        style = self.below(3)  # 0 plain, 1 no rollback, 2 saga
        units = ["" if style == 0 else None if style == 1 else f"u{position}" for position in range(3)]
        operations = [self.simple(unit) for unit in units[: self.below(3)]]
        kind = "fatal" if self.chance(0.12) else "done"
        operations.append(Operation(kind, units[len(operations)], flaky=1 if self.chance(0.08) else 0))
        locks: tuple[LockKey, ...] = draw_locks(self.random) if self.chance(0.25) else ()
        meta = TypeMeta(
            type_name=f"T-more{len(self.leaves)}",
            retry=self.model.retry,
            rollback_retry=self.model.rollback_retry,
            rollback_supported=style != 1,
            lock_scope="step" if self.chance(0.1) else "procedure",
            wall_time=WALL_TIME,
            asks_abort=self.chance(0.2),
            retries_overtime=len(self.leaves) % 2 == 0,
        )
        return Program(meta, tuple(operations), locks, allows_abort=self.chance(0.7))

    def simple(self, unit: str | None) -> Operation:
        draw = self.random()
        if draw < 0.5:
            return Operation("go", unit, persist=self.chance(0.8), yields=self.chance(0.2))
        if draw < 0.9:
            return Operation("sleep", unit, seconds=3 * self.random())
        return Operation("wait", unit, seconds=6 * self.random() if self.chance(0.5) else 0.0, event="event0")
