"""The glossary defines each term once, in order, in short sentences, and refers to terms that it has."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

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
    assert "(glossary.md)" in (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    assert "(docs/glossary.md)" in (ROOT / "README.md").read_text(encoding="utf-8")
