"""Campaigns of the actor simulation, and the command line."""

from __future__ import annotations

import sys
from collections import Counter

from tests.simulator.actor_sim.coverage_goals import ActorGoal, goals_in
from tests.simulator.actor_sim.hazards import CHANCES
from tests.simulator.actor_sim.history import perform
from tests.simulator.core_sim.campaigns import campaign_command, run_histories
from tests.simulator.core_sim.histories import Campaign, History

__all__ = ["main", "run_campaign"]


def run_campaign(first_seed: int, *, seconds: float, histories: int | None = None, keep: int = 20) -> Campaign:
    """Histories of consecutive seeds until the CPU `seconds` or the number is used up, or `keep` have failed."""
    return run_histories(perform, first_seed, seconds=seconds, histories=histories, keep=keep)


def main(arguments: list[str] | None = None) -> int:
    """The command line; exit code 1 when a history violated an invariant."""
    seen: Counter[ActorGoal] = Counter()

    def look(history: History) -> None:
        seen.update(goals_in(history.journal))

    description = "Play seeded histories with faults against the real manager and supervisor, on one thread."
    code = campaign_command(
        "tests.simulator.actor_sim", description, perform, arguments, kinds=CHANCES, on_history=look
    )
    for sight in ActorGoal if seen else ():
        sys.stdout.write(f"  {seen[sight]:>8}  {sight}\n")
    return code
