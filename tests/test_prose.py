"""Docstrings and comments of the package name things: headlines begin with them, and no process is called somebody."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture import sources

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "actorproc"

HEADLINES = 0
"""Module headlines that may open with a relative."""
HEADLESS = 0
"""Docstrings of classes, functions and attributes that may open with a relative."""
PERSONS = 0
"""Words for persons in all code of the package."""
LONGEST = 30
"""Words that a sentence of a docstring may have; new ones have 25 at most."""

_RELATIVE = re.compile(
    r"(what(ever)?|who(ever|m|se)?|whether|which(ever)?|how(ever)?|where(ver)?|when(ever)?|why|that|those)\b",
    re.IGNORECASE,
)
_SUBJECTLESS = re.compile(r"(what(ever)?|who(ever|m|se)?|whether|which(ever)?|that which)\b(?!:)", re.IGNORECASE)
_NO_PROSE = re.compile(r" · |[├└─]|====|----|\S {3,}\S|  ·  ")
"""Drawings, tables, and lists that are set in one paragraph."""
_PARTS = re.compile(r"\n\s*\n *(?:[-*] |(?:Args|Returns|Raises|Yields):\n *)?|\n\s*[-*] |\n +(?=[\w*, ]+: )")
_STOPS = re.compile(r"""(?<=[.!?:])["”)`]*\s+(?=[A-Z`"(*])""")
_PERSON = re.compile(r"\b(no(body|[\s-]+one)|some(body|one)|any(body|one)|every(body|one)|whoever)\b", re.IGNORECASE)


def headline(text: str) -> str:
    """The first line of a module's docstring; empty if it has none."""
    docstring = ast.get_docstring(ast.parse(text))
    return docstring.splitlines()[0] if docstring else ""


def docstrings(text: str) -> list[str]:
    """The first line of every text that stands as a statement of its own: of modules, classes, functions, attributes."""
    return [
        node.value.value.strip().partition("\n")[0]
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    ]


def sentences(text: str) -> Iterator[str]:
    """Sentences of all docstrings; drawings and tables are left out."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            for part in _PARTS.split(inspect.cleandoc(node.value.value)):
                if not _NO_PROSE.search(part):
                    yield from _STOPS.split(" ".join(part.split()))


def is_subjectless(sentence: str) -> bool:
    """True of a sentence that begins with a relative and is no question."""
    return _SUBJECTLESS.match(sentence) is not None and not sentence.rstrip('"').endswith("?")


def opens_with_relative(line: str) -> bool:
    return _RELATIVE.match(line.lstrip("`*\"' ")) is not None


def persons(text: str) -> list[str]:
    """Words that make a person of a process, a row or a thread."""
    return [found[0] for found in _PERSON.finditer(text)]


def test_headlines_of_modules_name_their_thing():
    headlines = {str(path.relative_to(ROOT)): headline(path.read_text(encoding="utf-8")) for path in sources(PACKAGE)}
    headless = {file: line for file, line in headlines.items() if opens_with_relative(line)}

    assert len(headless) <= HEADLINES, headless


def test_every_module_has_a_headline():
    assert [str(path) for path in sources(PACKAGE) if not headline(path.read_text(encoding="utf-8"))] == []


def test_docstrings_name_their_thing():
    headless = [
        f"{path.relative_to(ROOT)}: {line}"
        for path in sources(PACKAGE)
        for line in docstrings(path.read_text(encoding="utf-8"))
        if opens_with_relative(line)
    ]

    assert len(headless) <= HEADLESS, headless


def test_docstrings_of_all_kinds_are_found():
    text = '"""a"""\nclass B:\n  """b"""\n  c = 1\n  """c\n  more"""\n  def d(self):\n    """d"""\n    return "e"\n'

    assert sorted(docstrings(text)) == ["a", "b", "c", "d"]


def test_each_sentence_of_a_docstring_begins_with_its_subject():
    found = [
        f"{path.relative_to(ROOT)}: {sentence}"
        for path in sources(PACKAGE)
        for sentence in sentences(path.read_text(encoding="utf-8"))
        if is_subjectless(sentence)
    ]

    assert found == []


@pytest.mark.parametrize(
    "page",
    ["CONTRIBUTING.md", "docs/explanation/architecture.md", "docs/glossary.md", "docs/explanation/evidence/testing.md"],
)
def test_each_sentence_of_the_pages_about_the_code_begins_with_its_subject(page):
    text = re.sub(r"```.*?```", "", (ROOT / page).read_text(encoding="utf-8"), flags=re.DOTALL)
    parts = [part for part in re.split(r"\n\s*\n|\n(?=[-*|] ?|\d+\. )", text) if not part.startswith("|")]
    told = [sentence.lstrip("*- ") for part in parts for sentence in _STOPS.split(" ".join(part.split()))]

    assert len(told) > 20
    assert [sentence for sentence in told if is_subjectless(sentence)] == []


def test_no_sentence_of_a_docstring_is_longer_than_a_reader_can_hold():
    found = [
        f"{path.relative_to(ROOT)}: {sentence}"
        for path in sources(PACKAGE)
        for sentence in sentences(path.read_text(encoding="utf-8"))
        if len(sentence.split()) > LONGEST
    ]

    assert found == []


@pytest.mark.parametrize(
    ("docstring", "expected"),
    [
        ("One. Two: three.", ["One.", "Two: three."]),
        ("One\n    goes on. Two!\n\n    Three", ["One goes on.", "Two!", "Three"]),
        ("Kinds:\n\n    - one;\n    - two.", ["Kinds:", "one;", "two."]),
        (
            "Do it.\n\n    Args:\n        a: The one.\n        bee: The other.",
            ["Do it.", "a:", "The one.", "bee:", "The other."],
        ),
        ("One.\n\n    a     b\n    c     d", ["One."]),
        ("A tree:\n\n    ├── one", ["A tree:"]),
    ],
)
def test_sentences_of_a_docstring_are_found(docstring, expected):
    assert list(sentences(f'"""{docstring}"""')) == expected


@pytest.mark.parametrize(
    ("sentence", "subjectless"),
    [
        ("What is kept is the name.", True),
        ("Who waits is refused.", True),
        ("Whether it lasts is for others.", True),
        ("Which of them is settled.", True),
        ("Why this order?", False),
        ("what: the name of an argument.", False),
        ("``what`` names it.", False),
        ("What is kept?", False),
        ("While it runs, nothing is kept.", False),
        ("The name is kept.", False),
    ],
)
def test_a_sentence_without_a_subject_is_seen(sentence, subjectless):
    assert is_subjectless(sentence) is subjectless


def test_processes_rows_and_threads_are_no_persons():
    counted = {str(path.relative_to(ROOT)): len(persons(path.read_text(encoding="utf-8"))) for path in sources(PACKAGE)}

    assert sum(counted.values()) <= PERSONS, {file: count for file, count in counted.items() if count}


@pytest.mark.parametrize(
    ("line", "is_headless"),
    [
        ("What a worker says.", True),
        ("Who waits for a lock.", True),
        ("Whose undo units do not run.", True),
        ("Whether a step may run.", True),
        ("``which`` of them", True),
        ("How steps are counted.", True),
        ("Where modules are found.", True),
        ("When a worker is started.", True),
        ("whoever waits", True),
        ("Whatever is left.", True),
        ("Whole trees in one read.", False),
        ("Undo units that a rollback skips.", False),
        ("Assembly of an engine.", False),
        ("Thatched roofs.", False),
        ("Showers of messages.", False),
        ("", False),
    ],
)
def test_a_headline_is_headless_by_its_first_word(line, is_headless):
    assert opens_with_relative(line) is is_headless


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Nobody waits", ["Nobody"]),
        ("no\n    one waits for someone", ["no\n    one", "someone"]),
        ("Whoever, anybody, no-one", ["Whoever", "anybody", "no-one"]),
        ("none, some, one, who, anything, somebody_else", []),
    ],
)
def test_words_for_persons_are_found_across_lines(text, found):
    assert persons(text) == found
