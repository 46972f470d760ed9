"""Colours of the looks at one procedure and at the store: they repeat what words say, and only terminals get them."""

from __future__ import annotations

import re

import pytest

from tests.cli.test_terminal import on_a_terminal

pytestmark = pytest.mark.processes

CODES = re.compile(r"\x1b\[\d+m")
RED, GREEN, YELLOW, CYAN, BOLD = "\x1b[31m", "\x1b[32m", "\x1b[33m", "\x1b[36m", "\x1b[1m"


@pytest.fixture(scope="module", autouse=True)
def _jobs(place):
    place("submit", "jobs:add", "a=1", "b=2", "--id", "fine", "--wait")
    place("submit", "jobs:Fails", "message=FAILED is only a word here", "--id", "fails", "--wait")
    place("submit", "jobs:Parent", "--id", "parent")
    place("submit", "jobs:Half", "mended=/no/such/file", "--id", "half")
    place.until(lambda: place.state("half") == "FAILED" and place.phase("parent") == "suspended")


SHOWN = {
    "status": (["status"], [f"{GREEN}running\x1b[0m", f"{RED}2 FAILED\x1b[0m", f"{RED}poisoned\x1b[0m"]),
    "show what failed": (
        ["show", "fails"],
        [f"{RED}FAILED, done\x1b[0m", f"{RED}ValueError: FAILED is only a word here\x1b[0m", f"{BOLD}error ("],
    ),
    "show what succeeded": (["show", "fine"], [f"{GREEN}SUCCESS, done\x1b[0m"]),
    "show what waits": (["show", "parent"], [f"{CYAN}WAITING, suspended\x1b[0m: for 2 of its children"]),
    "tree": (["tree", "parent"], [f"{CYAN}WAITING suspended\x1b[0m, step 2", f"{CYAN}WAITING waiting\x1b[0m"]),
    "why it failed": (["why", "fails"], [f"{RED}fails (Fails) ended FAILED", f"{BOLD}actorproc retry fails\x1b[0m"]),
    "why it waits": (["why", "parent"], [f"{BOLD}actorproc signal parent.0\x1b[0m"]),
}


@pytest.mark.parametrize("name", SHOWN)
def test_colours_say_what_the_words_say(place, name):
    arguments, wanted = SHOWN[name]

    painted = place.said("--color", "always", *arguments)
    plain = place.said(*arguments)

    assert [part for part in wanted if part not in painted] == []
    assert "\x1b" not in plain
    ages = re.compile(r"\d+(?:\.\d+)? ?(?:m?s|m|h|d)\b")
    assert ages.sub("", CODES.sub("", painted)) == ages.sub("", plain)


@pytest.mark.parametrize("name", SHOWN)
@pytest.mark.parametrize("environment", [{"NO_COLOR": "1"}, {"TERM": "dumb"}, {}])
def test_terminals_get_them_unless_they_do_not_want_them(place, name, environment, monkeypatch):
    for variable, value in environment.items():
        monkeypatch.setenv(variable, value)
    dumb = environment.get("TERM") == "dumb"
    arguments = [*SHOWN[name][0], "--color", "never"] if dumb else SHOWN[name][0]

    shown = on_a_terminal(place, *arguments).decode()

    assert (CODES.search(shown) is not None) == (not environment)


def test_the_wide_list_is_as_short_as_the_other_one_unless_all_is_asked_for(place):
    short, everything = place.said("list", "-o", "wide"), place.said("list", "--all", "-o", "wide")

    assert "parent.0" not in short
    assert "parent.0" in everything
    assert "PARENT" not in short.splitlines()[0].split()
