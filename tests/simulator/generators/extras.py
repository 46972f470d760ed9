"""Extras of a random scenario: poison keys, small quotas, other ways to wait for children, more calls.

It is drawn beside the scenario, not with it, so that seeds that were kept because they once found something still
mean the same history: those are played ``plain``.
"""

from __future__ import annotations

from random import Random

import msgspec

from actorproc.model.policies import Quotas
from actorproc.model.rows.records import Wait
from tests.simulator.generators.programs import draw_locks
from tests.simulator.generators.scripts import ClientAction, Operation, Program, Scenario

__all__ = ["enrich"]

_PATHS = ("a", "a/b", "a/d", "e", "f")
"""Poison keys; all but the last conflict with locks."""


def enrich(scenario: Scenario, random: Random) -> Scenario:
    """The scenario with extras drawn from `random`; the bystander is left as it is."""
    maker = _Enricher(random, scenario.bystander)
    roots = {name: maker.program(program, is_root=True) for name, program in scenario.roots.items()}
    if maker.chance(0.6):
        roots["C"] = maker.latecomer(scenario)
    steps = sum(len(program.operations) for program in maker.programs.values())
    return msgspec.structs.replace(
        scenario,
        roots=roots,
        programs=maker.programs,
        steps=steps,
        actions=maker.actions(scenario.actions, roots),
        quotas=maker.quotas(),
    )


class _Enricher:
    def __init__(self, random: Random, bystander: str | None) -> None:
        self.random = random.random
        self.bystander = bystander
        self.programs: dict[str, Program] = {}
        """By type name, as changed."""

    def chance(self, probability: float) -> bool:
        return self.random() < probability

    def below(self, bound: int) -> int:
        return int(self.random() * bound)

    # ------------------------------------------------------------ programs
    def program(self, program: Program, *, is_root: bool = False) -> Program:
        """The program and all below it, each changed once."""
        name = program.meta.type_name
        known = self.programs.get(name)
        if known is not None:
            return known
        operations: list[Operation] = []
        poisons: tuple[str, ...] = ()
        if name != "T-bystander":
            risky = self.chance(0.3)
            poisons = self.keys() if risky and self.chance(0.5) else ()
            for operation in program.operations:
                operations += self.changed(operation, is_risky=risky, is_root=is_root)
        if any(operation.kind == "spawn" and operation.wait != "all" for operation in operations):
            # Outstanding children that cannot but fail would be tried for ever past the point of no return.
            operations = [msgspec.structs.replace(operation, no_return=False) for operation in operations]
        changed = msgspec.structs.replace(program, operations=tuple(operations) or program.operations, poisons=poisons)
        if changed.meta.lock_scope == "procedure" and name != "T-bystander" and self.chance(0.1):
            changed = msgspec.structs.replace(changed, meta=msgspec.structs.replace(changed.meta, lock_scope="step"))
        self.programs[name] = changed
        return changed

    def changed(self, operation: Operation, *, is_risky: bool, is_root: bool) -> list[Operation]:
        replace = msgspec.structs.replace
        if is_risky and operation.kind in {"go", "sleep", "wait"} and self.chance(0.5):
            operation = replace(operation, poisons=() if self.chance(0.5) else self.keys())
        if operation.kind == "go" and not operation.acquire and self.chance(0.1):
            operation = replace(operation, acquire=draw_locks(self.random))
        elif operation.kind == "done" and self.chance(0.04):
            # Past the point of no return only what works in the end can be undisturbed.
            operation = replace(operation, kind="done" if operation.no_return else "poison")
        elif operation.kind == "done" and is_root and self.chance(0.1):
            operation = replace(operation, no_return=True, flaky=6)
        if operation.kind != "spawn":
            return [operation]
        operation = replace(operation, children=tuple(self.program(child) for child in operation.children))
        if not self.chance(0.4):
            return [operation]
        wait: Wait = "any" if self.chance(0.5) else "each"
        operation = replace(operation, wait=wait, leave=self.chance(0.4))
        # It waits for the next child, once or twice more.
        again = Operation("spawn", operation.unit, wait=wait, leave=operation.leave)
        return [operation, *(again for _ in range(self.below(3)))]

    def keys(self) -> tuple[str, ...]:
        return (_PATHS[self.below(len(_PATHS))],)

    def latecomer(self, scenario: Scenario) -> Program:
        """A root that is submitted later, for a key that may be poisoned or taken by then."""
        model = scenario.roots["A"].meta
        meta = msgspec.structs.replace(model, type_name="T-late", on_child_failure="fail", rollback_supported=True)
        program = Program(meta, (Operation("go", ""), Operation("done", "")), draw_locks(self.random))
        self.programs[meta.type_name] = program
        return program

    # ------------------------------------------------------------ the outside
    def quotas(self) -> Quotas:
        if not self.chance(0.25):
            return Quotas()
        kind = self.below(3)
        if kind == 0:
            return Quotas(depth=1)
        return Quotas(children=1 + self.below(2)) if kind == 1 else Quotas(tree=2 + self.below(3))

    def actions(self, actions: tuple[ClientAction, ...], roots: dict[str, Program]) -> tuple[ClientAction, ...]:
        """More calls, each some time after the one before."""
        more = [*actions]
        if "C" in roots:
            more += [*self.naps(), ClientAction("submit", ("C",))]
        if self.chance(0.4):
            more += [*self.naps(), ClientAction("clear", (_PATHS[self.below(len(_PATHS))],))]
        if "C" in roots and self.chance(0.5):
            more += [*self.naps(), ClientAction("submit", ("C",))]
        if self.chance(0.15):
            names = [name for name in roots if name != self.bystander]
            more += [*self.naps(), ClientAction("force", (names[self.below(len(names))],))]
        if self.chance(0.15):
            more.append(ClientAction("signal", ("A",)))
        return tuple(more)

    def naps(self) -> list[ClientAction]:
        return [ClientAction("nap", ()) for _ in range(self.below(10))]
