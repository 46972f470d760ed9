"""Pages of the reference name every public object once, and tables of the code can be made without Sphinx."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

import actorproc
from actorproc import Config, embedding, executor, testing
from actorproc.cli.main import COMMANDS
from docs._extensions.drawings import DRAWINGS
from docs._extensions.tables import TABLES, in_words

ROOT = Path(__file__).parents[1]
API = ROOT / "docs" / "reference" / "api"
LISTED = [
    f"{module}.{name}"
    for page in sorted(API.glob("*.md"))
    for module, block in re.findall(
        r"^\.\. currentmodule:: (\S+)\n((?:(?!\.\. currentmodule).*\n)*)", page.read_text(), re.MULTILINE
    )
    for name in re.findall(r"^\.\. auto\w+:: (\w+)$", block, re.MULTILINE)
]


@pytest.mark.parametrize("package", [actorproc, executor, testing, embedding], ids=lambda package: package.__name__)
def test_each_public_name_is_on_one_page_of_the_api(package):
    wanted = {f"{package.__name__}.{name}" for name in package.__all__}

    known = {*LISTED, *(f"{package.__name__}.{name}" for name in actorproc.__all__ if f"actorproc.{name}" in LISTED)}

    assert wanted - known == set()


def test_pages_of_the_api_list_nothing_twice():
    assert len(LISTED) == len(set(LISTED)) > 100


def test_every_table_that_a_page_asks_for_is_made_and_every_one_is_asked_for():
    pages = (ROOT / "docs" / "reference").glob("*.md")
    asked = [name for page in pages for name in re.findall(r"^```\{generated\} (\S+)$", page.read_text(), re.MULTILINE)]

    assert sorted(asked) == sorted(TABLES)


def test_the_reference_of_settings_has_each_with_its_default_in_the_order_of_the_class():
    rows = re.findall(r"^\| `(\w+)` \| ([^|]+) \| [^|]+ \|$", TABLES["settings"](), re.MULTILINE)
    named = (
        (API.parent / "settings.md")
        .read_text()
        .partition("\nThe ten that most programs look at:\n")[2]
        .partition(".\n")[0]
    )

    assert rows == [
        (field.name, in_words(field.name, getattr(Config(), field.name), str(field.type)))
        for field in dataclasses.fields(Config)
    ]
    assert len(re.findall(r"`\w+`", named)) == 10
    assert set(re.findall(r"`(\w+)`", named)) <= {name for name, _ in rows}


def test_the_reference_of_commands_has_every_command_and_no_empty_cell():
    text = TABLES["commands"]()

    assert [name for name in COMMANDS if f"### actorproc {name}\n" not in text] == []
    assert [line for line in text.splitlines() if line.startswith("| ") and line.endswith("|  |")] == []


def test_every_example_is_on_its_page():
    text = TABLES["examples"]()
    programs = [path for path in (ROOT / "examples").rglob("*.py") if path.name != "__init__.py"]

    assert [path for path in programs if path.read_text() not in text] == []


def test_drawings_are_those_of_their_program():
    pictures = ROOT / "docs" / "pictures"

    assert {name: draw() for name, draw in DRAWINGS.items()} == {
        path.name: path.read_text(encoding="utf-8") for path in pictures.glob("*.svg")
    }


def test_the_readme_is_short_and_the_changelog_has_a_line_for_each_change():
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").partition("\n## ")[2].splitlines()

    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) < 100
    assert [line for line in changes if line and not line.startswith(("- ", "## ", "### ", "["))] == []
    assert {line for line in changes if line.startswith("### ")} <= {
        "### Added",
        "### Changed",
        "### Fixed",
        "### Removed",
    }
