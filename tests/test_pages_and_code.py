"""What the pages list is what the code has: commands, options, phases, kinds, tables, names of settings, and numbers."""

from __future__ import annotations

import argparse
import dataclasses
import re
from functools import cache
from pathlib import Path
from typing import get_args

import pytest

from actorproc import Config, Context, Limits, ProcedureClient, ProcedureHandle, ProcedureInfo, RetryPolicy, Status
from actorproc.cli.main import COMMANDS, build_parser
from actorproc.cli.select import common
from actorproc.model.states import Phase
from actorproc.report.changes import EventKind, WorkerEventKind
from actorproc.report.schema.document import KINDS as OBJECTS
from actorproc.store.rows.tables import Table
from actorproc.testing import InlineManager
from actorproc.testing.torture.faults import TortureFault
from docs._extensions.tables import TABLES
from tests.simulation.test_core_lines import LINES
from tests.simulation.test_seeded_bugs import BUGS, HOST_BUGS, NEW_CODE_BUGS
from tests.simulator.disk.damaged_stores import KINDS as DAMAGES
from tests.simulator.scenarios.small_scenarios import SMALL_SCENARIOS

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("bench/*.md"), *ROOT.glob("examples/*.md")])
WORDS = {6: "six", 9: "nine", 16: "sixteen", 17: "seventeen", 18: "eighteen", 19: "nineteen"}

# Where an attribute is written as `owner.name`: what the owner has.
OWNERS = {
    "Config": {"from_env", *(field.name for field in dataclasses.fields(Config))},
    "Limits": set(Limits.__struct_fields__),
    "RetryPolicy": set(RetryPolicy.__struct_fields__),
    "Status": set(dir(Status)),
    "ctx": {*dir(Context)},
    "handle": set(dir(ProcedureHandle)),
    "info()": {*ProcedureInfo.__struct_fields__, "to_dict"},
    "manager": set(dir(InlineManager)),
    "ProcedureManager": set(dir(InlineManager)),
    "client": set(dir(ProcedureClient)),
}


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text()


def first_cells(text: str, heading: str) -> list[str]:
    """The words in the first column of the table below the line that begins so."""
    table = text.partition(f"\n{heading}")[2].partition("\n\n")[0]
    return [word for line in table.splitlines()[2:] for word in re.findall(r"`([^`]+)`", line.split("|")[1])]


def options_of(parser: argparse.ArgumentParser) -> set[str]:
    return {text for action in parser._actions for text in action.option_strings if text.startswith("--")}


@pytest.fixture(scope="module")
def commands() -> dict[str, argparse.ArgumentParser]:
    (found,) = (action for action in build_parser()._actions if isinstance(action, argparse._SubParsersAction))
    return dict(found.choices)


def test_every_command_is_on_the_page_of_the_command_line():
    text = page("reference/command-line.md")

    assert [name for name in COMMANDS if not re.search(rf"(actorproc |`){name}\b", text)] == []


def test_every_option_is_on_that_page_and_every_option_on_it_is_one(commands):
    told = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", page("reference/command-line.md")))
    known = {name: options_of(parser) for name, parser in commands.items()}
    elsewhere = {"run", "demo", "torture"}  # on pages of their own

    assert {name: left for name in known.keys() - elsewhere if (left := known[name] - told - {"--output"})} == {}
    assert told - options_of(build_parser()) - set().union(*known.values()) == set()
    assert {
        option for option in known["run"] - {"--help"} if option not in page("reference/managers/service.md")
    } == set()


def test_every_exit_code_is_on_that_page():
    rows = page("reference/command-line.md").partition("| exit code |")[2].partition("\n\n")[0]
    told = {int(code) for line in rows.splitlines()[2:] for code in re.findall(r"\d+", line.split("|")[1])}
    named = (common.OK, common.FAILED, common.USAGE, common.NOT_FOUND, common.UNREACHABLE, common.REFUSED)

    assert told == {*named, common.TIMED_OUT, 130, 141}


def test_every_phase_kind_and_table_is_listed_where_the_pages_say_so():
    rows = re.findall(r"^\| `(\w+)` \| `([a-z-]+)` \|", TABLES["events"](), re.MULTILINE)
    kinds = {owner: {kind for name, kind in rows if name == owner} for owner in ("ProcedureEvent", "WorkerEvent")}

    assert first_cells(page("explanation/lifecycle.md"), "| phase |") == [phase.value for phase in Phase]
    assert kinds == {"ProcedureEvent": set(get_args(EventKind)), "WorkerEvent": set(get_args(WorkerEventKind))}
    assert set(first_cells(page("reference/json.md"), "| kind |")) == set(OBJECTS)
    assert set(first_cells(page("reference/store-format.md"), "| database |")) == {table.label for table in Table}


def test_the_numbers_in_the_page_about_tests_are_those_of_the_tests():
    text = page("explanation/evidence/testing.md")

    assert f"**every** place of {len(SMALL_SCENARIOS)} small scenarios" in text
    assert f"its recovery, on {len(SMALL_SCENARIOS)} scenarios, {WORDS[len(LINES)]} of them in every run" in text
    assert f"seeds {len(BUGS) + len(NEW_CODE_BUGS) + len(HOST_BUGS)} bugs" in text
    assert f"in {WORDS[len(DAMAGES)]} ways" in text
    assert f"{WORDS[len(TortureFault)]} kinds of faults" in text


OURS = [path for path in PAGES if path.parent.name != "bench"]
"""The others speak of other engines' contexts too."""


@pytest.mark.parametrize("path", OURS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_attribute_that_a_page_names_is_there(path):
    text = re.sub(r"info\([^)]*\)", "info()", path.read_text())
    named = {
        (owner, name)
        for owner in OWNERS
        for name in re.findall(rf"(?<![\w./]){re.escape(owner)}\.([a-z]\w*[a-z])(?![\w…])", text)
    }

    assert sorted(f"{owner}.{name}" for owner, name in named if name not in OWNERS[owner]) == []


@cache
def variables_read() -> frozenset[str]:
    """Environment variables that the code or its tests ask for."""
    sources = [*ROOT.glob("actorproc/**/*.py"), *ROOT.glob("tests/**/*.py"), *ROOT.glob("bench/*.py")]
    settings = {f"ACTORPROC_{field.name.upper()}" for field in dataclasses.fields(Config)}  # by Config.from_env
    return frozenset(
        name for path in sources for name in re.findall(r"""["'](ACTORPROC_[A-Z_]+)["']""", path.read_text())
    ).union(settings)


@cache
def source_of(module: str) -> str:
    """The text of a module or a package that is a command, with the options that campaigns share."""
    path = ROOT / module.replace(".", "/")
    files = sorted(path.rglob("*.py")) if path.is_dir() else [path.with_suffix(".py")]
    source = "".join(file.read_text() for file in files)
    if "campaign_command" in source:
        source += (ROOT / "tests/simulator/core_sim/campaigns.py").read_text()
    return source


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_program_option_and_variable_that_a_page_names_is_there(path):
    text = path.read_text()

    for module, words in re.findall(r"python -m (actorproc[\w.]*)([^`\n#]*)", text):
        source = source_of(module)
        assert [option for option in re.findall(r"--[a-z-]+", words) if f'"{option}"' not in source] == [], module
    for program in re.findall(r"python (bench/\w+\.py)", text):
        assert (ROOT / program).is_file(), program
    assert set(re.findall(r"ACTORPROC_[A-Z_]*[A-Z]", text)) <= variables_read()


PATH = re.compile(r"`([\w.-]+(?:/[\w.-]+)*/(?:[\w-]+\.\w+)?)`")


@cache
def tree() -> frozenset[str]:
    """Files and folders of the package, each also by the ends of its path: a page may name a room within a room."""
    paths = [
        path.relative_to(ROOT).parts for path in (ROOT / "actorproc").rglob("*") if "__pycache__" not in path.parts
    ]
    return frozenset("/".join(parts[first:]) for parts in paths for first in range(len(parts)))


def missing_paths(text: str) -> list[str]:
    """Files and folders that a page names and that are not there."""
    return [path for path in PATH.findall(text) if not (ROOT / path).exists() and path.rstrip("/") not in tree()]


@pytest.mark.parametrize("name", ["CONTRIBUTING.md", "docs/explanation/architecture.md"])
def test_every_path_that_a_page_about_the_code_names_is_there(name):
    text = (ROOT / name).read_text()

    assert len(PATH.findall(text)) > 20
    assert missing_paths(text) == []


def test_a_path_that_is_not_there_would_be_noticed():
    text = "`core/`, `core/rules.py` and `actorproc/core/rules.py`, but `core/rulez.py` and `nowhere/`; `a/b` is none"

    assert missing_paths(text) == ["core/rulez.py", "nowhere/"]


PLACED = re.findall(r"`(\w+)` (?:of|in) `(actorproc/[\w/]+\.py)`", (ROOT / "CONTRIBUTING.md").read_text())


@pytest.mark.parametrize(("name", "path"), PLACED)
def test_every_name_that_contributing_places_in_a_file_is_there(name, path):
    assert re.search(rf"\b{name}\b", (ROOT / path).read_text())


def test_a_name_that_nobody_has_would_be_noticed():
    assert "retain_forever" not in OWNERS["Config"]
    assert {"event", "env", "children", "idempotency_key"} <= OWNERS["ctx"]
    assert first_cells("x\n| kind |\n|---|\n| `a`, `b` | c |\n\n| `d` |", "| kind |") == ["a", "b"]
