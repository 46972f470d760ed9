"""Many small disturbed histories: the engine's promises hold in each of them.

10,000 by default, in pieces that the processes of xdist share; ``ACTORPROC_HISTORIES=400`` for a quick look.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter

import msgspec
import pytest

from actorproc.model.policies import Quotas, Scheduling
from tests.simulator.actor_sim.disk import LOSSES_FROM, READS_FROM
from tests.simulator.actor_sim.history import HOSTS_FROM, perform
from tests.simulator.core_sim import simulation
from tests.simulator.core_sim.campaigns import in_turn
from tests.simulator.core_sim.faults import FaultKind
from tests.simulator.core_sim.histories import History
from tests.simulator.core_sim.simulation import main, run_campaign, simulate
from tests.simulator.core_sim.world import World
from tests.simulator.generators import asks, editions, hosts
from tests.simulator.generators.groups import FIRST_SEED
from tests.simulator.generators.programs import MIN_PROCEDURES, MIN_STEPS
from tests.simulator.generators.requests import FIRST_ANEW, FIRST_REPORTS, FIRST_RESTARTS
from tests.simulator.rules.invariants import Violation
from tests.simulator.rules.sometimes import Goal, goals_in

HISTORIES = int(os.environ.get("ACTORPROC_HISTORIES", "10000"))
PIECE = 200
"""Histories of one test."""

_FULL = [
    5645,
    22517,
    23163,
    26381,
    27428,
    47975,
    101093,
    102737,
    104079,
    105132,
    117849,
    120504,
    120820,
    3100955,
    7300489,
    3108262,
    7305429,
    7308403,
    41497,
    778504,
    60009310,
    3350023235,
    3350001915,
    3350034125,
    3300002647,
    3350038580,
    3351062312,
    3351067358,
    3351068234,
    3352068285,
    3390023919,
    3390024440,
    4151006633,
    4250105496,
    4300022006,
    4300211340,
    4700088128,
    4750090406,
    4750123790,
    4800018227,
    5000040532,
    5000058316,
    5200005754,
    5200384708,
    5200465913,
    5300069215,
    5300107651,
    5800004625,
    9850018171,
    9850069351,
    9950080704,
    10050105787,
    10550050603,
    40000504212,
    65000000609,
    7000284,
    70000000629,
    100000000401,
    100000001229,
]
"""Seeds with all features that once found something, in the engine or in the checker."""


def _story(seed: int) -> str:
    """What a failing test shows: the violations and how to see the whole history again."""
    history = simulate(seed)
    lines = [f"invariant {violation.number}: {violation.text}" for violation in history.violations]
    return "\n".join([f"python -m tests.simulator.core_sim.simulation --replay {seed}", *lines])


# The last tenths but one: parents that suspend again and again, and new code as well; the last ones restart,
# report, have hosts, and lose them.
@pytest.mark.parametrize(
    "first",
    [
        *range(1, HISTORIES - HISTORIES // 10 * 8 + 1, PIECE),
        *range(FIRST_SEED, FIRST_SEED + HISTORIES // 10, PIECE),
        *range(editions.FIRST_SEED, editions.FIRST_SEED + HISTORIES // 10, PIECE),
        *range(FIRST_RESTARTS, FIRST_RESTARTS + HISTORIES // 10, PIECE),
        *range(FIRST_REPORTS, FIRST_REPORTS + HISTORIES // 10, PIECE),
        *range(asks.FIRST_SEED, asks.FIRST_SEED + HISTORIES // 10, PIECE),
        *range(FIRST_ANEW, FIRST_ANEW + HISTORIES // 10, PIECE),
        *range(hosts.FIRST_SEED, hosts.FIRST_SEED + HISTORIES // 10, PIECE),
        *range(hosts.FIRST_LONE, hosts.FIRST_LONE + HISTORIES // 10, PIECE),
    ],
)
def test_every_disturbed_history_keeps_every_promise(first: int) -> None:
    campaign = run_campaign(first, seconds=300.0, histories=PIECE)

    assert [_story(history.seed) for history in campaign.failed] == []
    assert campaign.histories + campaign.weak == PIECE
    assert campaign.histories >= PIECE * 0.7


def test_the_same_seed_gives_the_same_trace() -> None:
    digests = [simulate(seed).digest for seed in range(1, 21)]

    assert [simulate(seed).digest for seed in range(1, 21)] == digests


def test_the_trace_does_not_depend_on_the_hash_seed_of_the_interpreter() -> None:
    program = (
        "from tests.simulator.core_sim.simulation import simulate\n"
        "print([simulate(s).digest for s in (*range(1, 41), *range(80000000001, 80000000041))])"
    )

    def run(hash_seed: str) -> bytes:
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        return subprocess.run([sys.executable, "-c", program], env=environment, check=True, capture_output=True).stdout

    assert run("1") == run("2")


def test_each_kind_of_fault_is_effective_many_times() -> None:
    faults: Counter[FaultKind] = Counter()
    of_core = (range(1, 401), range(editions.FIRST_SEED, editions.FIRST_SEED + 60))
    # The core reads nothing, and owns nothing: its shell does.
    of_shell = (
        range(READS_FROM, READS_FROM + 100),
        range(LOSSES_FROM, LOSSES_FROM + 60),
        range(HOSTS_FROM, HOSTS_FROM + 200),
    )
    for seed in in_turn(*of_core, *of_shell):
        is_of_core = any(seed in seeds for seeds in of_core)
        faults.update((simulate(seed, check_every=1000) if is_of_core else perform(seed)).faults)
        if all(faults[kind] >= 5 for kind in FaultKind):
            break

    rare = {kind.name: faults[kind] for kind in FaultKind if faults[kind] < 5}
    assert rare == {}


def test_every_history_has_a_tree_of_three_procedures_and_twelve_steps() -> None:
    for seed in range(1, 101):
        scenario = World(seed).scenario

        assert len(scenario.programs) >= MIN_PROCEDURES
        assert scenario.steps >= MIN_STEPS


def test_scenarios_reach_every_kind_of_step_and_trait() -> None:
    kinds: Counter[str] = Counter()
    for seed in range(1, 301):
        for program in World(seed).scenario.programs.values():
            kinds.update(operation.kind for operation in program.operations)
            kinds.update(f"undo {operation.undo}" for operation in program.operations)
            kinds[f"child failure {program.meta.on_child_failure}"] += 1
            kinds[f"lock scope {program.meta.lock_scope}"] += 1
            kinds[f"keeps children {not program.meta.undo_children}"] += 1

    wanted = {"go", "sleep", "wait", "spawn", "fatal", "poison", "done", "undo twice", "undo flaky", "undo broken"}
    wanted |= {"child failure resume", "lock scope step", "keeps children True"}
    assert wanted <= kinds.keys()


def test_one_history_can_be_replayed_by_its_seed(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["--replay", "7"])

    assert code == 0
    assert capsys.readouterr().out.strip() == simulate(7).trace


def test_a_history_that_fails_is_told_of_while_the_campaign_goes_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    honest = simulation.simulate
    said = []

    def failing(seed: int) -> History:
        said.append(capsys.readouterr().out)
        history = honest(seed)
        return msgspec.structs.replace(history, violations=[Violation(15, "made up")]) if seed == 5 else history

    monkeypatch.setattr(simulation, "simulate", failing)

    assert main(["--seed", "4", "--seconds", "300", "--keep", "1"]) == 1

    assert said == ["", ""]
    assert capsys.readouterr().out.startswith("seed 5: invariant 15: made up\ntrace of seed 5:\n")


@pytest.mark.parametrize("seed", [718, 14693, 73126, 805765, 905866, 928139, 951807, 955984])
def test_histories_that_once_broke_a_promise_keep_it(seed: int) -> None:
    # Found before random scenarios had extras.
    assert simulate(seed, drawn="plain").violations == []


@pytest.mark.parametrize("seed", [1632, 1785, 30010082, 20006091, 20013630, 20020360, 20022196, 20026485])
def test_histories_with_extras_that_once_broke_a_promise_keep_it(seed: int) -> None:
    # Found before there were operators, limits and retention in random histories.
    assert simulate(seed, drawn="extras").violations == []


@pytest.mark.parametrize("seed", _FULL)
def test_histories_with_all_features_that_once_broke_a_promise_keep_it(seed: int) -> None:
    assert simulate(seed).violations == []


def test_everything_worth_seeing_happens_in_random_histories() -> None:
    seen: Counter[Goal] = Counter()
    firsts = (FIRST_SEED, editions.FIRST_SEED, FIRST_RESTARTS, FIRST_REPORTS, asks.FIRST_SEED)
    for seed in in_turn(range(1, 601), *(range(first, first + 60) for first in firsts)):
        seen += goals_in(simulate(seed, check_every=1000).journal)
        if all(map(seen.get, Goal)):
            break

    assert [sight.value for sight in Goal if not seen[sight]] == []


def test_an_old_history_of_a_seed_has_nothing_that_came_later() -> None:
    for seed in range(1, 51):
        plain, rich, full = (World(seed, drawn=drawn).scenario for drawn in ("plain", "extras", "all"))

        assert plain.quotas == Quotas()
        assert plain.scheduling == rich.scheduling == Scheduling()
        assert rich.actions == full.actions[: len(rich.actions)]
        assert not any(program.poisons for program in plain.programs.values())
        assert plain.programs.keys() <= rich.programs.keys()
