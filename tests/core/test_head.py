"""A head's fields have one place each where they change: found in the syntax of the core's modules."""

from __future__ import annotations

import ast
from collections.abc import Collection
from pathlib import Path

import pytest

import actorproc.core
from actorproc.core.state import head
from actorproc.model.rows.records import ErrorInfo, Interrupted, ProcedureRecord
from actorproc.model.states import ProcedureState

CORE = Path(actorproc.core.__file__).parent
OWNER = CORE / "state" / "head.py"
MOVER = CORE / "state" / "transitions.py"


def assigned(module: Path, owned: Collection[str] = head.OWNED) -> list[tuple[int, str]]:
    """Lines and names of the owned fields that a module assigns, changes or deletes, of whatever object."""
    found = []
    for node in ast.walk(ast.parse(module.read_text())):
        is_target = isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del)
        if is_target and node.attr in owned:
            found.append((node.lineno, node.attr))
        is_set = (
            isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in {"setattr", "delattr"}
        )
        if is_set and isinstance(node.args[1], ast.Constant) and node.args[1].value in owned:
            found.append((node.lineno, node.args[1].value))
    return found


@pytest.mark.parametrize("module", sorted(CORE.rglob("*.py")), ids=lambda module: module.relative_to(CORE).as_posix())
def test_a_field_of_a_head_is_assigned_in_one_module_alone(module):
    assert module == OWNER or not assigned(module)


def test_the_state_of_a_head_is_changed_by_a_move_alone():
    assert {module for module in CORE.rglob("*.py") if assigned(module, {"state"})} == {MOVER}
    assert len(assigned(MOVER, {"state"})) == 1


def test_each_owned_field_is_a_field_that_the_owner_assigns():
    assert set(head.OWNED) <= set(ProcedureRecord.__struct_fields__)
    assert {name for _, name in assigned(OWNER)} == set(head.OWNED)


@pytest.mark.parametrize(
    "source", ["record.error = None", "a = record.attempt = 1", "record.errors += 1", "x, member.due_at = 1, 2",
               "del record.error", "setattr(record, 'crashes', 1)"]
)  # fmt: skip
def test_the_look_finds_each_way_to_assign(source, tmp_path):
    module = tmp_path / "module.py"
    module.write_text(source)

    assert len(assigned(module)) == 1


def plain() -> ProcedureRecord:
    return ProcedureRecord(id="p", type_name="t", version=1, root="p", parent=None, seq=1)


CAUSE = ErrorInfo("step", "ValueError", "no")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("state", ProcedureState.WAITING),
        ("rolling", True),
        ("undoing", 3),
        ("aborting", True),
        ("bypassing", True),
        ("error", CAUSE),
        ("parked", "its class is unknown"),
        ("due_at", 1.0),
        ("event", "go"),
        ("pending", 1),
        ("limit_keys", ("k",)),
        ("admitted", 1),
        ("stuck", 2),
        ("run", 2),
        ("locked", False),
    ],
)
def test_a_head_is_plain_until_something_befalls_it(field, value):
    record = plain()
    assert head.is_plain(record)

    setattr(record, field, value)

    assert not head.is_plain(record)


def test_the_next_step_counts_from_nothing_and_the_first_error_stays_the_first():
    record = plain()
    head.count_attempt(record)
    head.count_error(record, 5.0)
    head.count_error(record, 9.0)
    head.count_crash(record)
    head.fail_with(record, CAUSE)
    assert (record.attempt, record.errors, record.crashes, record.first_error_at) == (1, 2, 1, 5.0)

    head.begin_step(record, 0)

    assert (record.attempt, record.errors, record.crashes, record.first_error_at, record.error) == (0, 0, 0, None, None)


def test_a_step_of_a_failing_scope_leaves_the_reason_for_the_failure():
    record = plain()
    record.rolling = True
    head.fail_with(record, CAUSE)

    head.begin_step(record, 0)

    assert record.error is CAUSE


@pytest.mark.parametrize(("tried", "attempts"), [(4, 2), (3, 0)])
def test_an_undo_that_was_begun_goes_on_counting_its_attempts_and_another_one_begins_to(tried, attempts):
    record = plain()
    record.tried, record.undo_step = tried, 7
    head.keep_attempts(record, 2)
    head.count_error(record, 1.0)
    head.wait_until(record, 3.0)

    head.begin_unit(record, 4)

    assert (record.tried, record.attempt, record.errors, record.due_at) == (4, attempts, 0, None)


def test_what_was_interrupted_is_taken_once():
    record, intended = plain(), Interrupted(ProcedureState.WAITING, "go")
    head.interrupt(record, intended)

    assert head.take_interrupted(record) is intended
    assert head.take_interrupted(record) is None
