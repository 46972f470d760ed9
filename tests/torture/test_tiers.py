"""The tiers of long tests."""

from __future__ import annotations

import configparser
from pathlib import Path

import pytest

from tests.simulator import tiers
from tests.simulator.engine_on_database import sizes
from tests.simulator.tiers import TIERS, Part, main


def test_a_tier_runs_its_parts_and_says_how_each_went(monkeypatch, capfd):
    monkeypatch.setitem(
        TIERS, "nightly", (lambda seed, _scale: (Part("good", ("platform",)), Part("bad", ("nosuch",))),)
    )

    assert main(["nightly", "--seed", "3"]) == 1

    said = capfd.readouterr().out
    assert "nightly, seed 3:" in said
    assert "good: ok" in said
    assert "bad: FAILED" in said
    assert "2| " in said
    assert "No module named nosuch" in said


def test_what_cannot_be_tried_on_this_machine_is_told_and_is_no_failure(monkeypatch, capfd):
    monkeypatch.setitem(TIERS, "nightly", (tiers._power_cuts(10),))
    monkeypatch.setenv("PATH", "")

    assert main(["nightly"]) == 0

    said = capfd.readouterr().out
    assert "skipped: power cuts need root, loop devices and mkfs.ext4" in said
    assert "power cuts: skipped after " in said


@pytest.mark.parametrize("tier", TIERS)
def test_the_parts_of_a_tier_are_commands_there_are_and_differ_by_seed(tier):
    parts = [part for period in TIERS[tier] for part in period(1, 1.0)]
    others = [part for period in TIERS[tier] for part in period(2, 1.0)]

    assert not set(parts) & set(others)
    assert {part.arguments[0] for part in parts} == {
        "actorproc",
        "tests.simulator.core_sim.simulation",
        "tests.simulator.disk.torn_writes",
        "tests.simulator.disk.damage",
        "tests.simulator.disk.power_cuts",
        "tests.simulator.scenarios.core_lines",
        "tests.simulator.actor_sim",
        "tests.simulator.engine_on_database",
        "tests.simulator.engine_on_hosts",
        "tests.simulator.nightly_tests",
        "tests.simulator.cluster_torture",
    }


def test_a_night_fails_leaders_a_hundred_times_in_each_way():
    parts = [part for period in TIERS["nightly"] for part in period(1, 1.0)]
    (failures,) = [part.arguments[2] for part in parts if "--leaders" in part.arguments]
    named = sizes(int(failures))

    assert named == {
        "ACTORPROC_LEADER_FAILURES": "100",
        "ACTORPROC_STARTS": "200",
        "ACTORPROC_MANY": "300000",
        "ACTORPROC_CROWD": "200",
    }
    said = "".join(file.read_text() for file in (Path(__file__).parents[1] / "leaders").glob("*.py"))
    assert all(f'os.environ.get("{name}"' in said for name in named)


def test_a_short_night_finds_nothing(monkeypatch, capfd):
    monkeypatch.setitem(TIERS, "nightly", (tiers._simulation(1), tiers._torn_writes(200)))

    assert main(["nightly", "--seed", "900", "--scale", "0.02"]) == 0

    assert capfd.readouterr().out.count(": ok") == 4


def test_each_tier_is_an_environment_of_tox():
    settings = configparser.ConfigParser()
    settings.read(Path(__file__).parents[2] / "tox.ini")

    assert {f"testenv:{tier}" for tier in ("push", *TIERS)} <= set(settings.sections())
