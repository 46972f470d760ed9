"""Each how-to is played: its files, its commands, its outputs; and each is on the list of the how-tos."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.databases import database_or_skip
from tests.kit.page_runner import files_of, play, sessions_of

pytestmark = pytest.mark.processes

HOWTOS = Path(__file__).parents[2] / "docs" / "howto"
PAGES = sorted(path for path in HOWTOS.glob("*.md") if path.name != "index.md")
NEEDS = {
    "django": ["django"],
    "enqueue-in-your-transaction": ["psycopg"],
    "fastapi": ["fastapi", "uvicorn"],
    "progress-in-a-web-page": ["starlette", "uvicorn"],
    "schedules": ["cronsim"],
    "web-processes": ["fastapi", "gunicorn", "uvicorn"],
}
"""Packages of the extra dev that a page is about."""


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_a_how_to_runs_as_it_stands(path, tmp_path, monkeypatch):
    for package in NEEDS.get(path.stem, ()):
        pytest.importorskip(package, reason="needs the extra dev")
    if "DATABASE_URL" in path.read_text(encoding="utf-8"):
        monkeypatch.setenv("DATABASE_URL", database_or_skip().url("public").partition("?")[0])

    differences = play(path.read_text(encoding="utf-8"), tmp_path)

    assert differences == [], (tmp_path / "errors").read_text()[-3000:]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_a_how_to_has_a_program_and_a_command(path):
    text = path.read_text(encoding="utf-8")

    assert files_of(text)
    assert sessions_of(text)
    assert len(text.splitlines()) < 130
    unnamed = re.findall(r"^```python$", text, re.MULTILINE)
    assert len(unnamed) <= (1 if path.stem == "debug" else 0)  # a variant in words


def test_the_list_has_every_how_to_twice_in_a_table_and_in_the_tree():
    index = (HOWTOS / "index.md").read_text(encoding="utf-8")
    names = sorted(path.stem for path in PAGES)

    assert len(names) >= 20
    assert sorted(re.findall(r"\]\(([\w-]+)\.md\)", index)) == names
    assert sorted(re.findall(r"^([a-z-]+)$", index.partition("{toctree}")[2], re.MULTILINE)) == names


def test_an_output_that_differs_is_noticed(tmp_path):
    page = "```sh file=say.sh\necho one; echo two 17\n```\n\n```console\n$ bash say.sh\none\ntwo …\n$ echo three\nfour\n```\n"

    assert play(page, tmp_path) == [("echo three", "four", "three\n")]
