"""The lifecycle table is the only truth about states; the documentation's diagram is drawn from it."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from actorproc.core.rules import HANDLERS
from actorproc.core.state.transitions import TRANSITIONS, Trigger, draw_mermaid, move
from actorproc.errors import InternalError
from actorproc.model.messages.events import Event
from actorproc.model.rows.records import ProcedureRecord
from actorproc.model.states import TERMINAL, ProcedureState


def _record(state: ProcedureState) -> ProcedureRecord:
    return ProcedureRecord(id="p", type_name="T", version=1, root="p", parent=None, seq=1, state=state)


@pytest.mark.parametrize("state", list(ProcedureState))
@pytest.mark.parametrize("trigger", list(Trigger))
def test_every_state_moves_as_the_table_says_and_in_no_other_way(state: ProcedureState, trigger: Trigger) -> None:
    record = _record(state)

    if trigger in TRANSITIONS[state]:
        move(record, trigger)
        assert record.state is TRANSITIONS[state][trigger]
    else:
        with pytest.raises(InternalError, match=f"{state}.*{trigger.value}"):
            move(record, trigger)
        assert record.state is state


def test_every_state_is_reachable_and_every_one_that_is_not_terminal_can_be_left() -> None:
    reached = {ProcedureState.INITIALIZING} | {target for row in TRANSITIONS.values() for target in row.values()}

    assert reached == set(ProcedureState)
    assert all(TRANSITIONS[state] for state in ProcedureState if state not in TERMINAL)
    assert {*TRANSITIONS[ProcedureState.FAILED]} == {Trigger.RETRIED, Trigger.BYPASSED}
    assert {*TRANSITIONS[ProcedureState.ROLLEDBACK]} == {Trigger.RETRIED}


def test_the_diagram_in_the_documentation_is_drawn_from_the_table() -> None:
    page = Path(__file__).parents[2] / "docs" / "explanation" / "lifecycle.md"

    assert f"```mermaid\n{draw_mermaid()}```" in page.read_text()


def test_every_event_has_somebody_who_decides_on_it():
    assert set(HANDLERS) == set(get_args(Event))
