"""What the documentation points at is there: tests by their names, pages and headings by their links."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("bench/*.md"), *ROOT.glob("examples/*.md")])

_TEST = re.compile(r"\b((?:actorproc/testing|tests)/[\w/.-]+\.py)(?:::(\w+))?")
_BARE_TEST = re.compile(r"`(test_\w+)(?:\.py)?`")
_LINK = re.compile(r"(?<!!)\[[^\]\n]*\]\(([^()\s]+)\)")
_CODE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


@cache
def names_in(path: Path) -> frozenset[str]:
    tree = ast.parse(path.read_text())
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


@cache
def all_names() -> frozenset[str]:
    """Every test and every file of tests, without its folder."""
    files = list((ROOT / "tests").rglob("test_*.py"))
    return frozenset({path.stem for path in files}).union(*(names_in(path) for path in files))


@cache
def anchors_in(path: Path) -> frozenset[str]:
    """The names by which headings are linked: lower case, hyphens for spaces, no other punctuation."""
    headings = re.findall(r"^#+ (.+)$", _CODE.sub("", path.read_text()), re.MULTILINE)
    return frozenset(re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings)


def missing_tests(text: str) -> list[str]:
    found = []
    for file, name in _TEST.findall(text):
        path = ROOT / file
        if not path.is_file() or (name and name not in names_in(path)):
            found.append(f"{file}::{name}" if name else file)
    return found + [name for name in _BARE_TEST.findall(text) if name not in all_names()]


def broken_links(page: Path) -> list[str]:
    found = []
    for link in _LINK.findall(_CODE.sub("", page.read_text())):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        if not target.exists() or (anchor and anchor not in anchors_in(target)):
            found.append(link)
    return found


def test_there_are_pages_to_check():
    assert {"README.md", "glossary.md", "catalogue.md", "compared.md"} <= {page.name for page in PAGES}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_test_a_page_names_exists(page):
    assert missing_tests(page.read_text()) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_relative_link_of_a_page_leads_somewhere(page):
    assert broken_links(page) == []


def test_a_name_that_is_wrong_is_noticed(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# One\n[a](page.md#one) [b](other.md) [c](#two) [d](https://example.org/x)\n")

    assert broken_links(page) == ["other.md", "#two"]
    assert missing_tests("`tests/test_documents.py::test_nothing`, `tests/no.py`, `test_nowhere`, `test_kit.py`") == [
        "tests/test_documents.py::test_nothing",
        "tests/no.py",
        "test_nowhere",
        "test_kit",
    ]


@pytest.mark.parametrize("page", ["evidence/catalogue.md", "compared.md"])
def test_no_row_of_a_comparison_has_an_empty_cell(page):
    rows = [line for line in (ROOT / "docs" / "explanation" / page).read_text().splitlines() if line.startswith("|")]

    assert len(rows) > 20
    assert [row for row in rows if not all(cell.strip() for cell in row.strip("|").split("|"))] == []


def test_every_feature_that_is_compared_names_a_test_of_ours():
    four_engines = (
        (ROOT / "docs" / "explanation" / "compared.md")
        .read_text()
        .partition("\n## What users of other engines ask for")[0]
    )
    lines = four_engines.splitlines()
    rows = [line for line in lines if line.startswith("| ") and not line.startswith(("| Feature", "| What it is"))]

    assert len(rows) > 100
    assert [row for row in rows if not re.search("`(tests|actorproc/testing)/", row)] == []


def rows_of_bugs() -> list[list[str]]:
    """The cells of the table of bugs: what it was, found by, seed and test, fixed in."""
    table = (ROOT / "docs" / "reliability" / "bugs.md").read_text()
    lines = [line for line in table.splitlines() if line.startswith("| ") and not line.startswith("| bug |")]
    return [[cell.strip() for cell in line.strip("|").replace("\\|", "/").split("|")] for line in lines]


def test_every_bug_has_a_seed_or_a_test_that_is_run_and_a_version():
    files = ("simulation/test_histories.py", "simulation/test_actor_simulation.py", "damage/test_mutations.py")
    kept = "".join((ROOT / "tests" / file).read_text() for file in files)
    rows = rows_of_bugs()

    assert len(rows) > 200
    assert [row for row in rows if len(row) != 4 or not re.fullmatch(r"\d+\.\d+\.\d+", row[3])] == []
    lost = []
    for bug, _, where, _ in rows:
        seeds = re.findall(r"(?<!episode )\b\d{3,}\b", re.sub(r"`tests/[^`]*`", "", where))
        lost += [seed for seed in seeds if not re.search(rf"\b{seed}\b", kept)]
        lost += [] if seeds or _TEST.search(where) else [bug]
    assert lost == []
