"""Random trees with locks and failures, and an undo that is followed by hand: no deadlock, no leak, strictly backwards.

Unlike the random histories, nothing is disturbed here, trees are small enough to shrink, and what must be true is
computed from the order of executions alone, without the checker.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import HealthCheck, given, settings, strategies as st

from actorproc.model.ids import Mode
from actorproc.model.messages.outcomes import Finished
from actorproc.model.policies import Backoff, LockKey, LockMode, TypeMeta
from actorproc.model.rows.records import ProcedureRecord
from actorproc.model.states import TERMINAL, ProcedureState
from tests.simulator.core_sim.faults import FaultPlan
from tests.simulator.core_sim.simulation import Simulation
from tests.simulator.core_sim.world import World
from tests.simulator.generators.scripts import ClientAction, Operation, Program, Scenario

RETRY = Backoff(max_attempts=6, base=0.5, cap=4.0)
PATHS = ("a", "a/b", "a/b/c", "a/d", "e")

keys = st.builds(LockKey, st.sampled_from(PATHS), st.sampled_from(list(LockMode)))
locks = st.lists(keys, max_size=2, unique_by=lambda key: key.path).map(tuple)
plain_steps = st.one_of(
    st.builds(lambda acquire, undo: ("go", acquire, undo), locks, st.sampled_from(["ok", "twice", "flaky"])),
    st.builds(lambda seconds: ("sleep", seconds, "ok"), st.sampled_from([0.5, 2.0])),
)


class NoFaults(FaultPlan):
    """Nothing goes wrong but what the programs do."""

    def fires(self, kind: object) -> bool:
        del kind
        return False


@st.composite
def trees(draw: Any, depth: int = 0) -> dict[str, Any]:
    """One node of a tree as plain data, so that it shrinks."""
    node = {
        "steps": draw(st.lists(plain_steps, max_size=2)),
        "locks": draw(locks),
        "step_scope": draw(st.booleans()) and draw(st.booleans()),
        "fails": draw(st.integers(0, 4)) == 0,
        "resumes": draw(st.booleans()),
        "children": [],
    }
    if depth < 2:
        node["children"] = draw(st.lists(trees(depth + 1), max_size=3 - depth))
    return node


class Builder:
    """Programs of a node and all below it; each has a type of its own."""

    def __init__(self) -> None:
        self.programs: dict[str, Program] = {}

    def program(self, node: dict[str, Any]) -> Program:
        children = tuple(self.program(child) for child in node["children"])
        operations = []
        for kind, detail, undo in node["steps"]:
            unit = f"u{len(operations)}"
            if kind == "go":
                operations.append(Operation("go", unit, acquire=detail, undo=undo))
            else:
                operations.append(Operation("sleep", unit, seconds=detail))
        if children:
            operations.append(Operation("spawn", f"u{len(operations)}", children=children))
        operations.append(Operation("fatal" if node["fails"] else "done", f"u{len(operations)}"))
        if node["fails"]:
            operations.append(Operation("done"))
        meta = TypeMeta(
            type_name=f"T{len(self.programs)}",
            retry=RETRY,
            rollback_retry=RETRY,
            rollback_supported=True,
            on_child_failure="resume" if node["resumes"] else "fail",
            lock_scope="step" if node["step_scope"] else "procedure",
        )
        program = Program(meta, tuple(operations), node["locks"])
        self.programs[meta.type_name] = program
        return program


def play(nodes: list[dict[str, Any]], slots: int, seed: int) -> Simulation:
    builder = Builder()
    roots = {name: builder.program(node) for name, node in zip("ABC", nodes, strict=False)}
    scenario = Scenario(
        roots=roots,
        programs=builder.programs,
        actions=tuple(ClientAction("submit", (name,)) for name in roots),
        bystander=None,
        steps=0,
        slots=slots,
        is_prefetching=False,
    )
    world = World(seed, scenario)
    world.plan = NoFaults(world.rng)
    simulation = Simulation(seed, world=world)
    assert simulation.run().violations == []
    return simulation


def is_below(name: str, top: str) -> bool:
    return name == top or name.startswith(top + ".")


def those_that_gave_up(heads: dict[str, ProcedureRecord]) -> set[str]:
    """Who failed is undone: all of its tree, or the branch below the one that resumes; with one exception.

    An undo that needs again, for its step, what a tree that undoes as well has taken meanwhile: no order helps.
    """
    given_up = {head.id for head in heads.values() if head.state is ProcedureState.FAILED}
    for name in given_up:
        tree = [head for head in heads.values() if head.root == heads[name].root]
        assert any(head.lock_scope == "step" for head in tree), f"{name} could have been undone"
        errors = {head.error.type_name for head in tree if head.error is not None}
        assert "DeadlockDetected" in errors, f"{name} could have been undone: {heads[name].error}"
    return given_up


@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(st.lists(trees(), min_size=1, max_size=3), st.integers(1, 3), st.integers(0, 1000))
def test_trees_end_with_no_lock_and_are_undone_strictly_backwards(
    nodes: list[dict[str, Any]], slots: int, seed: int
) -> None:
    simulation = play(nodes, slots, seed)
    store, journal = simulation.world.store, simulation.world.journal
    heads = {head.id: head for head in store.scan()}

    # No deadlock is left, and no lock.
    assert {head.id for head in heads.values() if head.state not in TERMINAL} == set()
    assert store.locks() == []
    given_up = those_that_gave_up(heads)
    began: dict[str, list[tuple[str, str]]] = {}
    undone: Counter[tuple[str, str]] = Counter()
    for kind, *fields in journal:
        if kind not in {"enter", "exit"}:
            continue
        token, unit = fields[0], fields[1]
        root = token.procedure[0]
        stack = began.setdefault(root, [])
        if token.mode is Mode.EXECUTE and kind == "enter":
            place = int(fields[2].split(b":")[0])
            program = simulation.world.scenario.programs[heads[token.procedure].type_name]
            entry = (token.procedure, program.operations[place].unit or "")
            if entry not in stack:
                assert not undone[entry], f"{entry} runs again after its undo"
                stack.append(entry)
        elif token.mode is Mode.ROLLBACK and kind == "enter":
            entry = (token.procedure, unit)
            assert not undone[entry], f"{entry} is undone again after its record"
            # Nothing of its own branch that began later is still to be undone.
            later = stack[stack.index(entry) + 1 :]
            undone_late = [other for other in later if is_below(other[0], entry[0]) and other[0] not in given_up]
            assert not undone_late, (entry, stack)
        elif token.mode is Mode.ROLLBACK and isinstance(fields[2], Finished):
            undone[token.procedure, unit] += 1
            stack.remove((token.procedure, unit))

    # What was rolled back has nothing left, what succeeded has lost nothing.
    left = Counter(entry[0] for stack in began.values() for entry in stack)
    for head in heads.values():
        if head.state is ProcedureState.ROLLEDBACK:
            assert left[head.id] == 0, head.id
        elif head.id not in given_up:
            assert not [entry for entry in undone if entry[0] == head.id], head.id


@settings(max_examples=60, deadline=None)
@given(st.permutations(["a", "e", "f"]), st.permutations(["a", "e", "f"]), st.integers(1, 3), st.integers(0, 1000))
def test_two_trees_that_take_the_same_keys_in_any_order_both_end(
    first: list[str], second: list[str], slots: int, seed: int
) -> None:
    def node(order: list[str]) -> dict[str, Any]:
        steps = [("go", (LockKey.write(path),), "ok") for path in order[1:]]
        start = (LockKey.write(order[0]),)
        traits = {"step_scope": False, "fails": False, "resumes": False, "children": []}
        return {"steps": steps, "locks": start, **traits}

    simulation = play([node(first), node(second)], slots, seed)
    states = [head.state for head in simulation.world.store.scan()]

    assert ProcedureState.SUCCESS in states
    assert set(states) <= {ProcedureState.SUCCESS, ProcedureState.ROLLEDBACK}
    if first == second:
        assert set(states) == {ProcedureState.SUCCESS}
    assert simulation.world.store.locks() == []
