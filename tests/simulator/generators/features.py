"""Features of a random scenario beside the extras: limits, priorities, classes of work, dedicated workers.

Drawn beside the scenario and its extras, so that seeds that were kept before there was any of this mean what they
meant.
"""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec

from actorproc.model.policies import Retention, Scheduling, TypeMeta
from tests.simulator.generators.scripts import ClientAction, Operation, Program, Scenario

__all__ = ["BATCH_CLASS", "LIMIT_KEYS", "add_features", "changed_meta"]

LIMIT_KEYS = ("slot/a", "slot/b", "rate")
"""Keys of limits; those of concurrency are configured by a pattern."""
BATCH_CLASS = "batch"
_HANGS = 0.06
_SHARED_KEY = "f"
"""A poison key that no lock conflicts with, so that several may poison it at once."""


def add_features(scenario: Scenario, random: Random, cancelling: Random) -> Scenario:
    """The scenario with features drawn from `random`; the bystander is left as it is.

    `cancelling` draws what concerns running steps whose undo is decided.
    """
    maker = _FeatureMaker(random, cancelling)
    roots = {name: maker.program(program) for name, program in scenario.roots.items()}
    scenario = msgspec.structs.replace(
        scenario,
        roots=roots,
        programs=maker.programs,
        scheduling=maker.scheduling(scenario.slots),
        retention=maker.retention(),
        is_gated=maker.chance(0.15),
    )
    if maker.chance(0.25):
        scenario = _with_generations(scenario)
    return maker.forget_signals(scenario)


def _with_generations(scenario: Scenario) -> Scenario:
    """The same with roots that begin a second generation from their last step but one, where that is a plain one."""
    roots = {}
    for name, program in scenario.roots.items():
        operations = program.operations
        if name != scenario.bystander and len(operations) > 2 and operations[-2].kind == "go":
            again = msgspec.structs.replace(operations[-2], kind="again", persist=True, seconds=0.0, acquire=())
            roots[name] = msgspec.structs.replace(program, operations=(*operations[:-2], again, operations[-1]))
    programs = {program.meta.type_name: program for program in roots.values()}
    return msgspec.structs.replace(scenario, roots=scenario.roots | roots, programs=scenario.programs | programs)


def changed_meta(meta: TypeMeta, trait: str) -> TypeMeta:
    """A class with one trait changed: its class of work ("class"), "threads", "own" worker, or `abort` ("asks").

    An asynchronous one becomes a plain one instead of getting threads or a worker of its own, which it cannot have.
    """
    if meta.tasks and trait in {"threads", "own"}:
        return msgspec.structs.replace(meta, tasks=0)
    changes: dict[str, dict[str, Any]] = {
        "class": {"work_class": BATCH_CLASS if meta.work_class == "default" else "default"},
        "threads": {"threads": 3 - meta.threads},
        "own": {"dedicated": not meta.dedicated},
        "asks": {"asks_abort": not meta.asks_abort},
    }
    return msgspec.structs.replace(meta, **changes[trait])


class _FeatureMaker:
    def __init__(self, random: Random, cancelling: Random) -> None:
        self.random = random.random
        self.cancelling = cancelling.random
        self.programs: dict[str, Program] = {}
        self.is_limited = self.chance(0.4)
        self.is_classed = self.chance(0.2)
        self.shares_poison = self.chance(0.3)

    def chance(self, probability: float) -> bool:
        return self.random() < probability

    def below(self, bound: int) -> int:
        return int(self.random() * bound)

    def program(self, program: Program) -> Program:
        """The program and all below it, each changed once."""
        name = program.meta.type_name
        known = self.programs.get(name)
        if known is not None:
            return known
        if name == "T-bystander":
            self.programs[name] = program
            return program
        meta = msgspec.structs.replace(
            program.meta,
            work_class=BATCH_CLASS if self.is_classed and self.chance(0.5) else "default",
            dedicated=self.chance(0.08),
            threads=2 if self.chance(0.1) else 1,
            abort_grace=3.0 * self.cancelling() if self.cancelling() < 0.15 else None,
        )
        keys = tuple(key for key in LIMIT_KEYS if self.chance(0.3)) if self.is_limited else ()
        changed = msgspec.structs.replace(
            program,
            meta=meta,
            operations=tuple(self.operation(operation) for operation in program.operations),
            priority=self.below(3) if self.chance(0.3) else 0,
            limit_keys=keys,
        )
        self.programs[name] = changed
        return changed

    def operation(self, operation: Operation) -> Operation:
        if operation.kind == "spawn":
            children = tuple(self.program(child) for child in operation.children)
            return msgspec.structs.replace(operation, children=children)
        if operation.kind == "go" and self.cancelling() < _HANGS:
            operation = msgspec.structs.replace(operation, hangs=1)
        if self.shares_poison and operation.kind in {"go", "sleep", "wait"} and self.chance(0.3):
            return msgspec.structs.replace(operation, poisons=(_SHARED_KEY,) if self.chance(0.6) else ())
        return operation

    def scheduling(self, slots: int) -> Scheduling:
        """Limits of everything that procedures share."""
        crowd = 1 + self.below(2) if self.chance(0.15) else None
        return Scheduling(
            max_running=crowd,
            max_queued=1 if crowd is not None and self.chance(0.3) else 1_000_000,
            concurrency={"slot/*": 1 + self.below(2)} if self.is_limited else {},
            rate={"rate": (1 + self.below(2), 1.0 + 5.0 * self.random())} if self.is_limited else {},
            shares={BATCH_CLASS: 0.5} if self.is_classed else {},
            reserved={BATCH_CLASS: 1} if self.is_classed and self.chance(0.5) else {},
            workers=slots,
            max_workers=slots + 1 if self.chance(0.1) else slots,
            stuck_after=1.0,
            extra_worker_idle=2.0,
            abort_grace=3.0 * self.cancelling() if self.cancelling() < 0.3 else None,
        )

    def forget_signals(self, scenario: Scenario) -> Scenario:
        """Signals that none takes: events have an age limit, some are withdrawn, and one has no receiver."""
        actions = [*scenario.actions]
        retention = scenario.retention
        if self.chance(0.2):
            retention = msgspec.structs.replace(retention, signals_seconds=5.0 * self.random())
            actions += [ClientAction("nap", ()), ClientAction("sweep", ())]
        if self.chance(0.1):
            options = ("event0",) if self.chance(0.5) else ("A", "id")
            actions += [ClientAction("nap", ()), ClientAction("withdraw", options)]
        if self.chance(0.05):
            actions.append(ClientAction("signal", ("nobody",)))
        return msgspec.structs.replace(scenario, actions=tuple(actions), retention=retention)

    def retention(self) -> Retention:
        """Retention of finished trees; mostly for ever."""
        if not self.chance(0.35):
            return Retention()
        return Retention(
            seconds=10.0 * self.random() if self.chance(0.7) else None,
            count=self.below(2) if self.chance(0.3) else None,
            failed_seconds=20.0 * self.random() if self.chance(0.4) else None,
            acknowledged_seconds=2.0 * self.random(),
        )
