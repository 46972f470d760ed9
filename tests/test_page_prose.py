"""Pages are read once: short sentences, and no process, row or thread is called somebody."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import pytest

from tests.test_documents import PAGES
from tests.test_prose import docstrings, persons

ROOT = Path(__file__).parents[1]
MEDIAN, NINTH_TENTH = 16, 25
"""Words of a sentence: the median of a page, and the 90th percentile."""
NOT_YET = {
    "docs/explanation/architecture.md": (17, 31),
    "docs/reference/store-format.md": (19, 36),
}
"""Pages that have still to be mended, with their figures, which may only fall."""
LAB_BOOKS = {"bench/PROFILES.md", *(f"docs/reliability/{name}.md" for name in ("bugs", "changes", "runs"))}
"""Pages that are no reading matter: what was measured, found and run. Their sentences may be long."""
READ = [page for page in PAGES if page.relative_to(ROOT).as_posix() not in LAB_BOOKS]
FEW = 10
"""Sentences below which figures say nothing; then none is longer than the ninth tenth of others by more than this."""

_FENCE = re.compile(r"^(`{3,}).*?^\1`*$|<!--.*?-->", re.MULTILINE | re.DOTALL)
_PART = re.compile(r"\n\s*\n|\n(?=\s*[-*] |\s*\d+\. |#|\|)")
_STOP = re.compile(r"""(?<=[.!?:])["”)`*]*\s+(?=[A-Z`"(*\[])""")
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def prose(text: str) -> Iterator[str]:
    """Sentences outside of programs, headings and tables; a link is its label."""
    for part in _PART.split(_FENCE.sub("", text)):
        words = " ".join(part.split())
        if words and not words.startswith(("#", "|")):
            yield from filter(None, _STOP.split(re.sub(r"^([-*]|\d+\.) ", "", _LINK.sub(r"\1", words))))


def figures(text: str) -> tuple[int, float, int]:
    """Number of sentences, median of their words, and the 90th percentile."""
    lengths = sorted(len(sentence.split()) for sentence in prose(text))
    return (len(lengths), median(lengths), lengths[len(lengths) * 9 // 10]) if lengths else (0, 0, 0)


@pytest.mark.parametrize("page", READ, ids=name_of)
def test_sentences_of_a_page_are_short(page):
    count, middle, ninth_tenth = figures(page.read_text(encoding="utf-8"))
    most = NOT_YET.get(name_of(page), (MEDIAN, NINTH_TENTH))

    if count >= FEW:
        assert middle <= most[0]
    assert ninth_tenth <= most[1] + (FEW if count < FEW else 0)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_a_page_speaks_of_processes_rows_and_operators_and_of_no_persons(page):
    text = re.sub(r"`[^`\n]*`", "", _FENCE.sub("", page.read_text(encoding="utf-8")))

    assert persons(text) == []
    assert re.findall(r"^\| Who\b.*", text, re.MULTILINE) == [], "rows name their thing"


def test_docstrings_of_the_tests_of_the_engine_speak_of_no_persons():
    found = {
        path.name: words
        for path in sorted((ROOT / "tests" / "engine").glob("*.py"))
        if (words := [word for line in docstrings(path.read_text(encoding="utf-8")) for word in persons(line)])
    }

    assert found == {}


def test_a_page_that_is_mended_leaves_the_list():
    kept = {page: figures((ROOT / page).read_text(encoding="utf-8"))[1:] for page in NOT_YET}

    assert {
        page for page, (middle, ninth_tenth) in kept.items() if middle <= MEDIAN and ninth_tenth <= NINTH_TENTH
    } == set()


def test_sentences_of_a_page_are_found():
    text = "# A title\n\nOne two.  Three\n[four](x.md#y).\n\n- five `six`: Seven.\n- eight\n\n| a | b |\n\n```sh\nno prose\n```\n"

    assert list(prose(text)) == ["One two.", "Three four.", "five `six`:", "Seven.", "eight"]
