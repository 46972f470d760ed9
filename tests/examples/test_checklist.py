"""The list of what to check before production: each line has a command or a setting that is there, and a page."""

from __future__ import annotations

import argparse
import dataclasses
import re
from pathlib import Path

import pytest

from actorproc import Config, Limits, RetryPolicy
from actorproc.cli.main import COMMANDS, build_parser
from docs._extensions.tables import TABLES
from tests.kit.page_runner import sessions_of

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "howto" / "deploy" / "checklist.md").read_text(encoding="utf-8")
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE.splitlines()
    if line.startswith("| ") and not line.startswith("| check |")
]
PLAYED = {"doctor", "backup", "status", "list", "poisons", "metrics", "check", "run"}
"""Commands of the lists that the page types itself; `torture` and `web` have tests and pages of their own."""


def parts(row: list[str]) -> list[str]:
    """Commands and settings of a line."""
    return re.findall(r"`([^`]+)`", row[1])


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0][:40])
def test_a_line_of_the_list_is_one_sentence_with_a_command_or_a_setting_and_a_page(row):
    check, _, pages = row

    assert re.fullmatch(r"[A-Z][^.]+\.", check)
    assert parts(row)
    assert re.findall(r"\]\([^)]+\.md(?:#[\w-]+)?\)", pages)


def test_commands_of_the_list_are_commands_and_the_page_types_them():
    named = {words.split()[1] for row in ROWS for words in parts(row) if words.startswith("actorproc ")} - {"--version"}
    typed = {
        name for command, _ in sessions_of(PAGE) for name in re.findall(r"\bactorproc ([a-z-]+)", command)
    }  # fmt: skip

    assert named <= set(COMMANDS)
    assert named - {"torture", "web"} == PLAYED <= typed


def test_options_of_the_list_are_options_of_commands():
    (commands,) = (action for action in build_parser()._actions if isinstance(action, argparse._SubParsersAction))
    known = {
        text for parser in commands.choices.values() for action in parser._actions for text in action.option_strings
    }
    named = {option for row in ROWS for words in parts(row) for option in re.findall(r"--[a-z-]+", words)}

    assert named - known == {"--version"}


def test_settings_of_the_list_are_settings_with_the_defaults_that_it_names():
    fields = {field.name: field.default for field in dataclasses.fields(Config)}
    said = {row[1].split("`")[1]: row[1] for row in ROWS if "unless you say otherwise" in row[1]}

    assert {name: fields[name] for name in said} == {
        "max_queued": 1_000_000,
        "allow_any_filesystem": False,
        "retain_for": 7 * 86400,
    }
    assert "(1,000,000 " in said["max_queued"]
    assert "(False " in said["allow_any_filesystem"]
    assert "(7 days " in said["retain_for"]
    for owner in (Limits, RetryPolicy):
        named = set(re.findall(rf"`{owner.__name__}\((\w+)=", PAGE))
        assert named
        assert named <= set(owner.__struct_fields__)
    assert Limits().wall_time is None, "there is no limit without one"


def test_what_the_list_asks_of_a_supervisor_is_in_the_unit_and_less_than_it_waits():
    unit = (DOCS / "howto" / "deploy" / "systemd.md").read_text(encoding="utf-8")
    asked = [words for row in ROWS if "systemd.md" in row[2] for words in parts(row)]

    assert [words for words in asked if words not in unit] == []
    assert int(re.search(r"--stop-timeout (\d+)s", unit)[1]) < int(re.search(r"TimeoutStopSec=(\d+)", unit)[1])


def test_metrics_that_the_page_looks_at_are_there():
    named = set(re.findall(r"actorproc_[a-z_]+", PAGE))

    assert named
    assert [name for name in named if name not in TABLES["metrics"]()] == []
