"""Debounced submits under torture: keys that each life submits several times, what runs for them, and the judge.

Each submit of a key has a number of its own, which is the state of what it submits. A run leaves files with its
number, so what ran shows. A run keeps no journal: its id is the engine's.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from random import Random
from typing import TYPE_CHECKING, Any

from actorproc.errors import ManagerBusy, ManagerStopped, OutcomeUnknown, StorageUnavailable
from actorproc.model.rows.cold_trees import debounce_of
from actorproc.model.states import ProcedureState
from actorproc.procedure.authoring.context import Context
from actorproc.procedure.authoring.status import Status
from actorproc.testing.histories.evidence import StoreDump, Violation
from actorproc.testing.journal import JournalLine
from actorproc.testing.torture.orders.roots import Debounced
from actorproc.testing.torture.orders.sturdy import Sturdy

if TYPE_CHECKING:
    from actorproc.testing.torture.orders.roots import Root
    from actorproc.testing.torture.record import EpisodeJournal

__all__ = ["Calm", "draw_debounced", "judge_debounces", "runs_of", "submit_many"]


# ------------------------------------------------------------ steps
class Calm(Sturdy):
    """Two steps, which leave files with the number of the submit that runs."""

    def __init__(self, folder: str, orders: list[dict[str, Any]], keys: list[list[str]]) -> None:
        super().__init__(folder, orders, keys)
        self.number = 0
        self.done = 0

    def execute(self, ctx: Context) -> Status:
        at, self.done = self.done, self.done + 1
        self.leave(ctx, f"{self.number}.{at}")
        return Status.executing() if self.done < len(self.orders) else Status.done(self.number)


# ------------------------------------------------------------ plans
def draw_debounced(chance: Random) -> tuple[dict[str, Any], Debounced]:
    """The spec of a procedure for a key, and the times of its submits."""
    within = round(chance.uniform(0.03, 0.12), 3)
    pauses = tuple(round(chance.uniform(0.0, 1.8 * within), 3) for _ in range(chance.randint(3, 6)))
    at_most = round(3 * within, 3) if chance.random() < 0.5 else None
    return {"type": "calm", "orders": [{"do": "work"}] * 2, "keys": []}, Debounced(within, at_most, pauses)


# ------------------------------------------------------------ callers
def submit_many(manager: Any, journal: EpisodeJournal, root: Root, procedure: Any) -> None:
    """Submit a key as often as each life does, one submit after the other. Its numbers go on from life to life."""
    assert root.debounce is not None
    number = sum(line.kind == "calling" and line.procedure == root.id for line in journal.lines())
    terms: dict[str, Any] = {"within": root.debounce.within, "at_most": root.debounce.at_most}
    for pause in root.debounce.pauses:
        time.sleep(pause)
        number += 1
        procedure.number = number
        journal.note("calling", procedure=root.id, step=number)
        try:
            handle = manager.submit(procedure, debounce=root.id, **terms)
        except (StorageUnavailable, ManagerBusy):
            journal.note("call-refused", procedure=root.id, step=number)
        except OutcomeUnknown:
            continue
        except ManagerStopped:
            return
        else:
            journal.note("called", procedure=root.id, step=number, unit=handle.id)


# ------------------------------------------------------------ judging
def runs_of(dump: StoreDump) -> dict[str, str]:
    """Keys by the ids of debounced roots."""
    marks = {id: debounce_of(head) for id, head in dump.heads.items()}
    return {id: mark.key for id, mark in marks.items() if mark is not None}


def judge_debounces(lines: Iterable[JournalLine], dump: StoreDump, world: Iterable[str]) -> Iterator[Violation]:
    """Broken promises of the number 33: one run for each wait, of the last submit that is durable, and each once."""
    runs = runs_of(dump)
    granted: dict[str, int] = {}
    """Number of the last submit that was acknowledged, by its run."""
    open_: set[tuple[str, int]] = set()
    """Submits whose outcome their callers do not know."""
    waits: dict[str, str] = {}
    """Keys of the runs that wait, by their ids."""
    for line in lines:
        call = line.procedure, line.step
        match line.kind:
            case "calling":
                open_.add(call)
            case "call-refused":
                open_.discard(call)
            case "called":
                open_.discard(call)
                run = line.unit or ""
                if runs.get(run) != line.procedure:
                    yield Violation(
                        33, f"submit {line.step} of {line.procedure} is acknowledged, and no run {run} is there"
                    )
                granted[run] = max(granted.get(run, 0), line.step)
            case "durable" if line.procedure in runs and line.text == "waits":
                waits[line.procedure] = runs[line.procedure]
            case "durable":
                waits.pop(line.procedure, None)
            case "written" | "loaded" if len(set(waits.values())) < len(waits):
                yield Violation(33, f"two runs wait for one key: {waits}")
    yield from _judge_runs(runs, granted, open_, dump, world)


def _judge_runs(
    runs: dict[str, str],
    granted: dict[str, int],
    open_: set[tuple[str, int]],
    dump: StoreDump,
    world: Iterable[str],
) -> Iterator[Violation]:
    left: dict[str, set[str]] = {}
    for name in world:
        owner, _, file = name.partition("/")
        left.setdefault(owner, set()).add(file)
    ran: dict[tuple[str, int], str] = {}
    for run, key in runs.items():
        state = dump.heads[run].state
        if state is not ProcedureState.SUCCESS:
            yield Violation(33, f"{run} of {key} is {state} at the end")
            continue
        files = sorted(left.get(run, ()))
        number = int(files[0].partition(".")[0]) if files else 0
        if files != [f"{number}.0", f"{number}.1"]:
            yield Violation(33, f"{run} of {key} has left {files}, and one submit leaves two")
            continue
        last = granted.get(run, 0)
        if number != last and not (number > last and (key, number) in open_):
            yield Violation(33, f"{run} of {key} ran submit {number}, and the last one that was granted is {last}")
        if (before := ran.setdefault((key, number), run)) != run:
            yield Violation(33, f"submit {number} of {key} ran as {before} and as {run}")
