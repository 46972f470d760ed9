"""Async steps in simulated histories: cancelled, in workers that die, beside others, and the promises to them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from msgspec.structs import replace

from actorproc.core import coordinator
from actorproc.core.queues.worker_table import WorkerTable
from actorproc.core.results import worker_loss
from actorproc.engine.pipeline.task_cancellation import TaskCancellation
from actorproc.model.messages.outcomes import Finished, Stopped
from tests.simulator.actor_sim.coverage_goals import ActorGoal, goals_in
from tests.simulator.actor_sim.history import TASKS, TASKS_ON_HOSTS, ActorSimulation
from tests.simulator.core_sim.campaigns import in_turn
from tests.simulator.core_sim.simulation import Simulation
from tests.simulator.generators.tasks import FIRST_ON_HOSTS, FIRST_SEED, has_tasks
from tests.simulator.rules.judge import Entry

BUDGET = 200
"""Histories that a planted bug may survive."""
OF_CORE = [*in_turn(range(FIRST_SEED, FIRST_SEED + BUDGET), range(FIRST_ON_HOSTS, FIRST_ON_HOSTS + BUDGET))]
OF_ACTORS = [*in_turn(TASKS[:BUDGET], TASKS_ON_HOSTS[:BUDGET])]


def seen_in(journal: Iterable[Entry]) -> Counter[str]:
    """Number of times that something happened to async steps."""
    seen: Counter[str] = Counter()
    for kind, *fields in journal:
        if kind == "task":
            seen["one at a time" if fields[1] == 1 else "several at a time"] += 1
        elif kind == "exit" and isinstance(fields[2], Stopped):
            seen["cancelled"] += 1
    return seen


@pytest.mark.parametrize(("player", "seeds"), [(Simulation, OF_CORE[:80]), (ActorSimulation, OF_ACTORS[:30])])
def test_histories_with_async_steps_keep_their_promises(player, seeds):
    seen: Counter[str] = Counter()
    for seed in seeds:
        simulation = player(seed)
        assert simulation.run().violations == [], seed
        seen += seen_in(simulation.world.journal)
    assert {name for name, count in seen.items() if count >= 5} == {"one at a time", "several at a time", "cancelled"}


def test_workers_of_the_actor_simulation_die_for_async_steps_that_do_not_end():
    seen: Counter[ActorGoal] = Counter()
    for seed in OF_ACTORS[:30]:
        simulation = ActorSimulation(seed)
        simulation.run()
        seen += goals_in(simulation.world.journal)
    assert seen[ActorGoal.SWALLOWED] >= 3


def test_other_histories_have_none():
    assert not any(map(has_tasks, (1, 10**9, FIRST_SEED - 1, FIRST_ON_HOSTS - 1, 65_000_000_000, 85_000_000_000)))


# ---------------------------------------------------------------------- planted bugs
def _a_cancelled_step_counts_as_done(patch: pytest.MonkeyPatch) -> None:
    honest = coordinator.Coordinator.handle

    def handle(self, event, now):
        outcome = getattr(event, "outcome", None)
        if isinstance(outcome, Stopped):
            event = replace(event, outcome=Finished(state=b"0:1:0", output=b"", steps=1))
        return honest(self, event, now)

    patch.setattr(coordinator.Coordinator, "handle", handle)


def _plain_steps_join_async_ones(patch: pytest.MonkeyPatch) -> None:
    def choose(threads, workers, is_task):
        del is_task
        open_ = [one for one in workers if one.reserved is None and not one.leaving]
        busy = [one for one in open_ if one.threaded and len(one.queue) < threads]
        return next(iter([*busy, *(one for one in open_ if not one.queue)]), None)

    patch.setattr(WorkerTable, "_choose_threaded", staticmethod(choose))


def _more_run_than_may(patch: pytest.MonkeyPatch) -> None:
    honest = WorkerTable._choose_threaded
    patch.setattr(
        WorkerTable,
        "_choose_threaded",
        staticmethod(lambda threads, workers, is_task: honest(threads + 5, list(map(_with_room, workers)), is_task)),
    )


def _with_room(worker):
    for item in worker.queue.values():
        if item.is_task and item.threads > 1:
            item.threads = 8
    return worker


def _the_first_is_guilty(patch: pytest.MonkeyPatch) -> None:
    def guilty(workers, items, event):
        del workers
        return items[0] if items and event.crashed else None

    patch.setattr(worker_loss, "_guilty", guilty)


def _a_cancelled_step_stays_in_hand(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(coordinator, "on_stopped", lambda *_: None)


def _an_undone_step_is_charged(patch: pytest.MonkeyPatch) -> None:
    def charge(state, record, item, report):
        item.forced = None
        honest(state, record, item, report)

    honest = worker_loss._charge
    patch.setattr(worker_loss, "_charge", charge)


OF_THE_CORE: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "a cancelled step counts as done": _a_cancelled_step_counts_as_done,
    "plain steps join async ones": _plain_steps_join_async_ones,
    "more async steps run in a worker than may": _more_run_than_may,
    "the first step of a dead worker is guilty": _the_first_is_guilty,
    "a cancelled step stays in hand": _a_cancelled_step_stays_in_hand,
    "a step that was cancelled for its undo is charged": _an_undone_step_is_charged,
}


def found(bug: Callable[[pytest.MonkeyPatch], None], patch: pytest.MonkeyPatch, player: Any, seeds: list[int]) -> str:
    """Words that tell after how many histories, and as which promise, a planted bug was found."""
    bug(patch)
    for number, seed in enumerate(seeds, 1):
        violations = player(seed).outcome().violations
        if violations:
            assert not [one for one in violations if "raised TypeError" in one.text or "raised NameError" in one.text]
            return f"after {number} histories, as promise {violations[0].number}: {violations[0].text}"
    pytest.fail(f"not found in {len(seeds)} histories")


@pytest.mark.parametrize("bug", OF_THE_CORE)
def test_a_bug_planted_in_the_core_is_found(bug, monkeypatch):
    print(f"{bug}: {found(OF_THE_CORE[bug], monkeypatch, Simulation, OF_CORE)}")  # noqa: T201 - shown with -rP


# ---------------------------------------------------------------------- planted bugs of the engine
def _tasks_are_killed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TaskCancellation, "cancel", lambda *_: False)


def _no_time_to_end(patch: pytest.MonkeyPatch) -> None:
    honest = TaskCancellation.cancel

    def cancel(self, entry, command, kind, why, grace):
        return honest(self, entry, command, kind, why, min(grace, 1e-9))

    patch.setattr(TaskCancellation, "cancel", cancel)


def _those_that_go_on_may(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TaskCancellation, "kill_outstaying", lambda *_: None)


OF_THE_ENGINE: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "workers are killed for async steps at once": _tasks_are_killed,
    "an async step gets no time to end": _no_time_to_end,
    "an async step that does not end goes on": _those_that_go_on_may,
}


@pytest.mark.parametrize("bug", OF_THE_ENGINE)
def test_a_bug_planted_in_the_engine_is_found(bug, monkeypatch):
    print(f"{bug}: {found(OF_THE_ENGINE[bug], monkeypatch, ActorSimulation, OF_ACTORS)}")  # noqa: T201 - shown with -rP
