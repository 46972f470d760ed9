"""Dozens of edits of a program between two runs of one store, with procedures that stand at every step of it.

Whatever the edit: no step is done twice, nothing is undone, no result is lost, and what is parked says what to write.
Then the older code comes back, and the newer again: what was parked goes on as if nothing had been.
"""

from __future__ import annotations

import logging

import pytest

from tests.engine.edited_lines import EDITS, HAS_OTHER_STEPS, OTHERS
from tests.engine.edits import FAMILY, FAMILY_STANDS, FAMILY_STEPS, MACHINE, PLAIN, SAGA, STANDS, STEPS, Program

PROGRAMS = {
    "saga": (SAGA, STANDS),
    "machine": (MACHINE, STANDS),
    "plain": (PLAIN, STANDS),
    "family": (FAMILY, FAMILY_STANDS),
}
CASES = [("saga", name) for name in EDITS] + [(kind, name) for kind, edits in OTHERS.items() for name in edits]


@pytest.fixture(autouse=True)
def _in_silence(caplog):
    caplog.set_level(logging.CRITICAL, logger="actorproc")


def changes_of(kind, name):
    return EDITS[name] if kind == "saga" else OTHERS[kind][name]


@pytest.mark.parametrize(("kind", "name"), CASES)
def test_an_edit_repeats_undoes_and_loses_nothing_and_what_it_parks_goes_on_with_the_older_code(kind, name):
    program = Program(*PROGRAMS[kind])
    try:
        today = program.edited(*changes_of(kind, name))
        program.begin()

        after_edit = program.go_on(today)
        assert program.wrong(after_edit) == []

        gone_back = program.go_on(program.text)
        assert program.wrong(gone_back) == []
        parked = [each for each, seen in after_edit.items() if seen.is_parked]
        assert [each for each in parked if gone_back[each].is_parked] == []
        assert program.not_once(parked, FAMILY_STEPS if kind == "family" else STEPS) == []

        again = program.go_on(today)
        assert program.wrong(again) == []
        assert {each: seen for each, seen in again.items() if seen != gone_back[each]} == {}
    finally:
        program.close()


STEPWISE = [name for name in EDITS if name not in HAS_OTHER_STEPS]


@pytest.mark.parametrize("name", STEPWISE)
def test_the_same_edit_taken_back_repeats_undoes_and_loses_nothing_either(name):
    program = Program(SAGA)
    try:
        newer = program.edited(*EDITS[name])
        program.begin(newer)

        older = program.go_on(program.text)
        assert program.wrong(older) == []
        parked = [each for each, seen in older.items() if seen.is_parked]

        again = program.go_on(newer)
        assert program.wrong(again, is_over=True) == []
        assert program.not_once(parked) == []
    finally:
        program.close()
