"""The engine state is a composition of parts; each field of a part is assigned in the part's own module alone.

Found in the syntax of the core's modules: attributes of a part that are assigned, changed or deleted elsewhere.
"""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import pytest

import actorproc.core
from actorproc.core.queues.timers import TimerQueue
from actorproc.core.state import engine_state
from actorproc.core.state.engine_state import EngineState

CORE = Path(actorproc.core.__file__).parent
PARTS = {name: type(getattr(EngineState(1), name)) for name in EngineState.__slots__}
OWNERS = {name: Path(inspect.getfile(part)) for name, part in PARTS.items()}
STATE = Path(engine_state.__file__)


def _part_of(node: ast.expr, aliases: dict[str, str]) -> str | None:
    """The part that an expression stands for, by its last name."""
    if isinstance(node, ast.Attribute):
        return node.attr if node.attr in PARTS else None
    if isinstance(node, ast.Name):
        return aliases.get(node.id, node.id if node.id in PARTS else None)
    return None


def _aliases(tree: ast.Module) -> dict[str, str]:
    """Names that a module gives to parts, also several at once."""
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            target, value = node.targets[0], node.value
            pairs = [(target, value)]
            if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
                pairs = list(zip(target.elts, value.elts, strict=True))
            for name, given in pairs:
                part = _part_of(given, {}) if isinstance(given, ast.Attribute) else None
                if isinstance(name, ast.Name) and part is not None:
                    found[name.id] = part
    return found


def _is_state(node: ast.expr) -> bool:
    return (isinstance(node, ast.Name) and node.id in {"state", "before"}) or (
        isinstance(node, ast.Attribute) and node.attr == "_state"
    )


def assigned(source: str, owned: frozenset[str] = frozenset()) -> list[str]:
    """Fields of parts, and parts of the state, that a module assigns; those of the parts it owns are left out."""
    tree = ast.parse(source)
    aliases = _aliases(tree)
    found = []
    for node in ast.walk(tree):
        object_, name = None, None
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del):
            object_, name = node.value, node.attr
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in {"setattr", "delattr"}:
            object_, name = node.args[0], ast.unparse(node.args[1]).strip("'")
        if object_ is None:
            continue
        part = _part_of(object_, aliases)
        if part is not None and part not in owned:
            found.append(f"{part}.{name}")
        elif _is_state(object_):
            found.append(f"state.{name}")
    return found


@pytest.mark.parametrize("module", sorted(CORE.rglob("*.py")), ids=lambda module: module.relative_to(CORE).as_posix())
def test_a_part_is_assigned_in_its_own_module_alone(module):
    owned = frozenset(name for name, owner in OWNERS.items() if owner == module)

    assert assigned(module.read_text(), owned) == []


def test_the_state_is_its_parts_and_each_has_a_module_of_its_own():
    state = EngineState(1)

    assert EngineState.__mro__ == (EngineState, object)
    assert not hasattr(state, "__dict__")
    assert len(set(OWNERS.values())) == len(PARTS)
    assert {name for name, owner in OWNERS.items() if owner.parent.name != "parts"} == {"timers"}
    assert PARTS["timers"] is TimerQueue


@pytest.mark.parametrize(
    "source",
    [
        "state.counters.next_seq += 1",
        "self._state.switches.paused = None",
        "workers.outdated |= other",
        "mine = state.residents\nmine.open_roots = 3",
        "a, b = state.ended, state.timers\na.removed = {}",
        "del state.decision.writes",
        "setattr(state.settings, 'quotas', quotas)",
        "state.locks = LockState()",
        "self._state.types: KnownTypes = other",
        "for state.follow_ups.asking in (): pass",
    ],
)
def test_the_look_finds_each_way_to_assign(source):
    assert len(assigned(source)) == 1


@pytest.mark.parametrize("source", ["state.residents.procs['a'] = head", "self.locks = 1", "record.parked = None"])
def test_the_look_leaves_contents_and_other_objects_alone(source):
    assert assigned(source) == []
