"""The glossary defines each term once, in order, and modules and classes are named by its terms and plain words."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture import sources

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
ENTRIES = re.findall(r"^- \*\*(.+?)\*\*: (.+(?:\n  .+)*)", PAGE, re.MULTILINE)
TERMS = [term for term, _ in ENTRIES]


def test_every_bullet_is_an_entry():
    assert len(ENTRIES) == len(re.findall(r"^- ", PAGE, re.MULTILINE)) > 0


def test_terms_are_in_alphabetical_order_and_each_is_there_once():
    plain = [term.replace("-", " ").casefold() for term in TERMS]

    assert plain == sorted(set(plain))


@pytest.mark.parametrize(("term", "text"), ENTRIES, ids=TERMS)
def test_a_definition_has_short_sentences_one_to_a_line(term, text):
    sentences = [line.strip() for line in text.splitlines()]

    assert len(sentences) <= 3
    for sentence in sentences:
        assert sentence.endswith(".")
        assert len(sentence.split()) <= 25, f"{term}: {len(sentence.split())} words"


def test_references_lead_to_terms():
    referred = {term for _, text in ENTRIES for term in re.findall(r"See \*(.+?)\*", text)}

    assert referred - set(TERMS) == set()


def test_architecture_and_readme_link_to_it():
    assert "(../glossary.md)" in (ROOT / "docs" / "explanation" / "architecture.md").read_text(encoding="utf-8")
    assert "(docs/glossary.md)" in (ROOT / "README.md").read_text(encoding="utf-8")


# ---------------------------------------------------------------- names in the code
ROOMS = ("core", "engine", "store", "workers")
"""Rooms whose modules and classes are named for concepts of the engine."""
_PLAIN = """
    acquire add address ahead all answer argument asked assembled assembly back backup base began begin belong booted
    borrowed bounded by cache caller cancellation certificate cgroup children claim claimed clock close code codec combining committed committing
    compaction connecting container count counter credential cross crowd dangling data database define describe described died
    dir disk dispatched down draining end ended ending entry environment error exceeded exit explain fact failed farewell fault
    filling filter find finding finish forget forgettable forwarder frozen full gate gc glance gone guard guest halt hand
    folded held hello hook hosted housekeeping ids info intake interpreter interrupt isolated joined kept killer killing
    known lag late launch layout leadership leading learn leaving left lifecycle limiter line listener listening
    live lmdb loading local look loss lost main mark marker memory metric move moving need offspring on opened order
    os out output outside owned part pass patched patience peer pending pipe place plan poison postgres postponed prepare
    prepared process processor program promise protocol put quarantine query question quick read reader reading
    ready receiver recipe recovered reference refused register rejected remain remote removal remove reopen reopened
    replace report resolved result resume retire returned role rolling rule runtime said sampled sampler scaling schema send
    sender service set setting settled shared shutdown signing skipped stack stand standard start started statement
    status stop stopwatch storage stream subscribe subscriber subscription succeeded sweep switches system take
    taker target to tool tracker transfer trigger trouble unsubscribe until up upkeep ups usage verify view waiter waiting
    wake wanted warm warning watched welcome whole window work
"""
PLAIN = frozenset(_PLAIN.split())
"""Words of names that need no definition, in the singular. A word that is a concept of its own goes into the glossary."""
_RETIRED = """
    agenda aftermath backlog ballast book books ceiling census courier crew desk drawing facade floor gathering
    gauge hindered keeping ledger lobby looking looks outlet persister plant planted plants ring roster sampling
    shelf sights spared staff staffing stage stages standing surroundings switchboard telling timekeeper
    tormentor trust wear workforce workplace
"""
RETIRED = frozenset(_RETIRED.split())
"""Names that parts of the engine had, each replaced by a term: as part of a name they would say something else."""
KEPT = {
    "backlog": "RetentionHealth.backlog and the metric made of it: removals that are late",
    "retention_backlog": "the metric",
}
"""Names with such a word in its ordinary meaning."""


def singular(word: str) -> str:
    for end, other in (("ies", "y"), ("sses", "ss"), ("s", "")):
        if word.endswith(end) and len(word) > 3:
            return word.removesuffix(end) + other
    return word


def words(name: str) -> list[str]:
    """The words of a name in snake case or camel case."""
    return [word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)]


def names_in(text: str) -> Iterator[str]:
    """Classes, functions, parameters, attributes and variables that a module makes."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


KNOWN = {form for term in TERMS for word in re.split(r"[\s-]", term.lower()) for form in (word, singular(word))}


def undefined(name: str) -> list[str]:
    """Words of a name that are neither defined nor plain."""
    return [word for word in words(name) if not {word, singular(word)} & (KNOWN | PLAIN)]


def retired(name: str) -> bool:
    return name.strip("_") not in KEPT and bool(RETIRED & set(words(name)))


def test_rooms_modules_and_classes_of_the_engine_are_named_by_terms_and_plain_words():
    found = {}
    for room in ROOMS:
        for path in sources(ROOT / "actorproc" / room):
            classes = [node.name for node in ast.parse(path.read_text()).body if isinstance(node, ast.ClassDef)]
            parts = path.relative_to(ROOT / "actorproc").with_suffix("").parts
            for name in (*parts, *(name for name in classes if not name.startswith("_"))):
                if name != "__init__" and (unknown := undefined(name)):
                    found[name] = unknown

    assert found == {}, "define the word in docs/glossary.md, or add it to PLAIN if it needs no definition"


@pytest.mark.parametrize("tree", ["actorproc", "tests/simulator"])
def test_no_retired_name_comes_back(tree):
    found = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in sources(ROOT / tree)
        for name in {path.stem, *names_in(path.read_text())}
        if retired(name)
    }

    assert found == set()


def test_plain_words_are_no_terms_and_terms_are_not_retired():
    terms = {term.lower() for term in TERMS}

    assert PLAIN & terms == set()
    assert RETIRED & (terms | PLAIN) == set()


@pytest.mark.parametrize(
    ("name", "is_retired"),
    [
        ("Switchboard", True),
        ("_ring", True),
        ("on_staff", True),
        ("StageHost", True),
        ("HeldPersister", True),
        ("string", False),
        ("_StringField", False),
        ("staged_files", False),
        ("backlog", False),
        ("_book_of", True),
    ],
)
def test_a_retired_name_is_known_by_its_words(name, is_retired):
    assert retired(name) is is_retired


@pytest.mark.parametrize(
    ("name", "unknown"),
    [("WaitForGraph", []), ("run_queue", []), ("KeyLimits", []), ("Flurbs", ["flurbs"]), ("lock_wizard", ["wizard"])],
)
def test_a_word_that_is_neither_defined_nor_plain_is_noticed(name, unknown):
    assert undefined(name) == unknown
