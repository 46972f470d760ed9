"""Features that users of other engines ask for: each row of the page names a test, and says no only with a reason."""

from __future__ import annotations

import inspect
import re
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from actorproc import Limits, Procedure, ProcedureHandle, ProcedureManager, ProcedureTree, Status, UsageError
from actorproc.procedure.runtime.classes import check_class
from tests.test_documents import broken_links, missing_tests

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "explanation" / "compared.md"
_, _, ASKED = PAGE.read_text(encoding="utf-8").partition("\n## What users of other engines ask for\n")
ROWS = {
    what.strip(): now.strip()
    for what, _where, now in (
        line.strip("|").split("|") for line in ASKED.splitlines() if line.startswith("| ") and "| Now |" not in line
    )
}
_NOW = re.compile(r"\*\*(yes|in part|no)\*\*: (.+?)<br>(`tests/.+)")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def options(call: Callable[..., object]) -> set[str]:
    return set(inspect.signature(call).parameters)


def files(name: str) -> bool:
    """A file of this name, in the project itself: environments and what was built have files of other packages."""
    folders = [path for path in ROOT.iterdir() if path.is_dir() and path.name[0] != "." and path.name != "build"]
    own = [path for path in folders if not (path / "pyvenv.cfg").exists()]
    return (ROOT / name).exists() or any(True for folder in own for _ in folder.rglob(name))


# What a row that says no, or in part, denies: true once it is there, and then the row is to be written anew.
DENIED: dict[str, Callable[[], bool]] = {
    "lists by fields of the state or the output": lambda: bool(
        options(ProcedureManager.list) & {"output", "where_output"}
    ),
    "Windows": lambda: any("Windows" in line for line in PROJECT["classifiers"]),
    "named queues, and workers for one of them": lambda: "queue" in options(ProcedureManager.submit),
    "progress of a tree as one number": lambda: hasattr(ProcedureTree, "progress"),
    "a package with complete metadata": lambda: bool(PROJECT.get("urls")),
    "a package of conda": lambda: files("meta.yaml"),
    "Docker, compose, Kubernetes": lambda: files("Chart.yaml") or files("Dockerfile"),
    "Dask": lambda: "dask" in PROJECT["optional-dependencies"],
    "magics and tables of a notebook": lambda: hasattr(ProcedureHandle, "_repr_html_"),
}
SHOWN = {"async functions as calls of the executor"}
"""Denied by the test that the row names."""


@pytest.mark.parametrize("what", ROWS)
def test_a_row_says_how_it_is_now_by_a_test_and_says_no_with_a_reason(what):
    said = _NOW.fullmatch(ROWS[what])

    assert said, ROWS[what]
    assert missing_tests(said[3]) == []
    assert said[1] == "yes" or len(said[2].split()) > 8
    assert (what in DENIED.keys() | SHOWN) == (said[1] != "yes")


def test_there_are_the_rows_of_both_tables_and_their_links_lead_somewhere():
    assert len(ROWS) > 60
    assert broken_links(PAGE) == []


@pytest.mark.parametrize("what", DENIED)
def test_what_a_row_denies_is_not_there(what):
    assert what in ROWS
    assert not DENIED[what]()


def refuses(limit: str, value: object) -> bool:
    """An async class with this limit cannot be registered."""

    class Waits(Procedure):
        limits = Limits(**{limit: value})

        async def execute(self, ctx):
            return Status.done()

    try:
        check_class(Waits, None)
    except UsageError as error:
        return f"Limits({limit}=" in str(error)
    return False


def test_the_how_to_of_async_steps_sorts_all_limits_as_classes_do():
    page = (ROOT / "docs" / "howto" / "async-steps.md").read_text(encoding="utf-8")
    (row,) = re.findall(r"^\| (`wall_time`.+) \| (.+) \|$", page, re.MULTILINE)
    may, may_not = (set(re.findall(r"`(\w+)`", cell)) for cell in row)
    values = {"dedicated": True, "threads": 2, "cpus": (0,), "on": ("gpu",), "resources": {"gpu": 1}, "memory": 2**30}
    refused = {name for name in Limits.__struct_fields__ if refuses(name, values.get(name, 5))}

    assert may_not == refused
    assert may == set(Limits.__struct_fields__) - refused
