"""Debounced submits in simulated histories: crashes, failed commits and clocks that jump, and the last one runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from actorproc.core.lifecycle import debounce, submit
from actorproc.core.scheduler import schedule
from actorproc.core.state import head
from actorproc.engine.pipeline.commit_cache import CommitCache
from actorproc.engine.pipeline.commit_pipeline import CommitPipeline
from actorproc.model.ids import debounced_key
from actorproc.model.rows.record_parts import TOKEN
from actorproc.model.rows.writes import PutProcedure
from tests.simulator.actor_sim.history import DEBOUNCES_FROM, ActorSimulation
from tests.simulator.core_sim.simulation import Simulation
from tests.simulator.generators.debounces import FIRST_SEED

BUDGET = 120
"""Histories that a planted bug may survive."""


def seen_in(journal) -> Counter[str]:
    """Number of times that something happened to debounced submits."""
    seen: Counter[str] = Counter()
    tokens: Counter[bytes] = Counter()
    for kind, *fields in journal:
        if kind == "debounce":
            tokens[fields[1].debounce.token] += 1
            seen["again"] += tokens[fields[1].debounce.token] > 1
        if kind == "commit":
            for write in fields[1]:
                mark = write.record.past and write.record.past.debounce if type(write) is PutProcedure else None
                if mark is not None:
                    seen["begun"] += not mark.waits
                    seen["replaced"] += mark.waits and len(mark.runs[0][1]) > TOKEN
                    seen["another run"] += mark.waits and len(mark.runs) > 1
    return seen


@pytest.mark.parametrize(
    ("player", "first", "histories"), [(Simulation, FIRST_SEED, 60), (ActorSimulation, DEBOUNCES_FROM, 20)]
)
def test_histories_with_debounced_submits_keep_their_promises(player, first, histories):
    seen: Counter[str] = Counter()
    for seed in range(first, first + histories):
        simulation = player(seed)
        assert simulation.run().violations == [], seed
        seen += seen_in(simulation.world.journal)
    assert {name for name, count in seen.items() if count >= 5} == {"again", "begun", "replaced", "another run"}


# ---------------------------------------------------------------------- planted bugs
def _a_repeated_submit_counts_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(debounce, "run_of", lambda *_: None)


def _the_first_state_stays(patch: pytest.MonkeyPatch) -> None:
    honest = submit._first_step
    patch.setattr(submit, "_first_step", lambda decision, new: _unless_taken(honest(decision, new), new))


def _unless_taken(write, new):
    if new.debounce is None or new.id.endswith(f":{int.from_bytes(new.debounce.token, 'big')}"):
        return write
    return replace(write, record=replace(write.record, state=b"0:1:0"))


def _the_wait_goes_on_from_the_first_submit(patch: pytest.MonkeyPatch) -> None:
    honest = head.wait_until
    patch.setattr(debounce.head, "wait_until", lambda record, at: honest(record, (at or 0.0) + 500.0))


def _it_begins_before_its_time(patch: pytest.MonkeyPatch) -> None:
    honest = schedule._ends_wait

    def ends_wait(state, record, due_at):
        return honest(state, record, due_at - 2.5 if record.past and record.past.debounce else due_at)

    patch.setattr(schedule, "_ends_wait", ends_wait)


def _one_that_waits_is_not_found(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(submit, "is_debounced", lambda _: False)


def _an_overdue_one_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(schedule, "end_debounces", lambda state: state.residents.overdue.clear())


BUGS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "a repeated submit counts again": _a_repeated_submit_counts_again,
    "the first state stays": _the_first_state_stays,
    "the wait is longer than asked": _the_wait_goes_on_from_the_first_submit,
    "it begins before its time": _it_begins_before_its_time,
    "one that waits is not found": _one_that_waits_is_not_found,
    "an overdue one is forgotten": _an_overdue_one_is_forgotten,
}


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found(bug, monkeypatch):
    BUGS[bug](monkeypatch)
    for number, seed in enumerate(range(FIRST_SEED, FIRST_SEED + BUDGET), 1):
        violations = Simulation(seed, check_every=1000).run().violations
        if violations:
            assert not [found for found in violations if "raised TypeError" in found.text]
            print(f"{bug}: after {number} histories: {violations[0].text}")  # noqa: T201 - shown with -rP
            return
    pytest.fail(f"not found in {BUDGET} histories")


def _the_old_state_stays_in_memory(patch: pytest.MonkeyPatch) -> None:
    honest = CommitCache._keep

    def keep(self, record, now):
        return True if record.procedure in self._states else honest(self, record, now)

    patch.setattr(CommitCache, "_keep", keep)
    patch.setattr(CommitCache, "committed", _committed_without_drop)


def _committed_without_drop(self, writes, now):
    self._removed.clear()
    for write in writes:
        if type(write).__name__ == "PutStep" and write.record.number == 1 and write.record.state:
            self._keep(write.record, now)


def _the_newest_run_is_not_looked_up(patch: pytest.MonkeyPatch) -> None:
    honest = CommitPipeline._load

    def load(self, ids):
        return (
            honest(self, tuple(id for id in ids if debounced_key(id) is None))
            if len(ids) > 1
            else (False if debounced_key(ids[0]) is not None else honest(self, ids))
        )

    patch.setattr(CommitPipeline, "_load", load)


BUGS_OF_THE_ENGINE: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "the old state stays in memory": _the_old_state_stays_in_memory,
    "the newest run is not looked up": _the_newest_run_is_not_looked_up,
}


@pytest.mark.parametrize("bug", BUGS_OF_THE_ENGINE)
def test_a_bug_planted_in_the_engine_is_found(bug, monkeypatch):
    BUGS_OF_THE_ENGINE[bug](monkeypatch)
    for number, seed in enumerate(range(DEBOUNCES_FROM, DEBOUNCES_FROM + BUDGET), 1):
        violations = ActorSimulation(seed).run().violations
        if violations:
            assert not [found for found in violations if "raised TypeError" in found.text]
            print(f"{bug}: after {number} histories: {violations[0].text}")  # noqa: T201 - shown with -rP
            return
    pytest.fail(f"not found in {BUDGET} histories")
