"""Judge of what steps under torture report: the values they show, and the heartbeat that the next attempt is given."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from actorproc.model.rows.records import ProcedureRecord, StepRecord
from actorproc.model.states import ProcedureState
from actorproc.procedure.values.codec import PLAIN
from actorproc.testing.histories.evidence import StoreDump, Violation
from actorproc.testing.journal import JournalLine
from actorproc.testing.torture.record import SHOWN_KEY

__all__ = ["judge_reports"]


def judge_reports(lines: Iterable[JournalLine], dump: StoreDump) -> Iterator[Violation]:
    """Broken promises of the number 26."""
    entered = set()
    for line in lines:
        if line.kind == "enter" and line.mode == "execute":
            entered.add(line.procedure)
        elif line.kind == "given":
            mode, unit, step, attempt = json.loads(line.text)
            if (mode, unit, step) != (line.mode, line.unit, line.step) or attempt >= line.attempt:
                place = f"{line.mode} {line.unit} of {line.procedure}, step {line.step}, attempt {line.attempt}"
                yield Violation(26, f"{place} was given the heartbeat of {line.text}")
    for id, head in dump.heads.items():
        if id in entered and head.state is ProcedureState.SUCCESS and dump.steps[id]:
            yield from _judge_end(head, dump.steps[id][-1], dump)


def _judge_end(head: ProcedureRecord, closing: StepRecord, dump: StoreDump) -> Iterator[Violation]:
    """The value that the last step showed came into the store with the end of its last attempt."""
    if closing.slot < 0:
        return  # it was bypassed
    shown = next((row.value for row in (dump.exposed or {}).get(head.id, ()) if row.key == SHOWN_KEY), b"\x90")
    found = PLAIN.decode(shown)
    if len(found) != 3 or (found[0], found[2]) != ("execute", closing.attempts):
        yield Violation(26, f"{head.id} ended with attempt {closing.attempts} of its last step, and shows {found}")
