"""Import contracts cover every module of the tree: a module planted anywhere breaks those it offends."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "actorproc"
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
HOMES = {
    library: set(contract["allowed_importers"])
    for contract in CONTRACTS
    if contract["type"] == "protected"
    for library in contract["protected_modules"]
}
"""Each library that has a home, with the packages that may import it."""
EVERYWHERE = {"msgspec"}
"""Libraries that any module may import."""
IN_PURE_ROOMS = {
    *("__future__", "bisect", "collections", "copy", "dataclasses", "enum", "functools", "hashlib", "heapq"),
    *("itertools", "json", "math", "msgspec", "operator", "re", "struct", "sys", "typing", "zlib"),
}
"""What rooms without a clock, threads, chance and I/O may import from outside of the package."""


def rooms() -> list[str]:
    """Names of all entries of the package that are packages."""
    return sorted(entry.parent.name for entry in PACKAGE.glob("*/__init__.py"))


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    return grimp.build_graph("actorproc", include_external_packages=True, cache_dir=None)


def outside(graph: grimp.ImportGraph) -> set[str]:
    return {module for module in graph.modules if module.partition(".")[0] != "actorproc"}


def test_every_library_has_a_home_in_a_contract(graph):
    libraries = {module for module in outside(graph) if module not in sys.stdlib_module_names}

    assert libraries - EVERYWHERE - HOMES.keys() == set()
    assert HOMES.keys() - outside(graph) == set()


def test_every_home_is_used(graph):
    unused = {
        (contract["name"], home)
        for contract in CONTRACTS
        if contract["type"] == "protected"
        for home in contract["allowed_importers"]
        if not any(
            f"{module}.".startswith(f"{home}.")
            for library in contract["protected_modules"]
            for module in graph.find_modules_that_directly_import(library)
        )
    }

    assert unused == set()


def test_rules_of_layers_name_every_room_and_are_exhaustive():
    (layers,) = [found for found in CONTRACTS if found["type"] == "layers" and found["containers"] == ["actorproc"]]
    named = {name for layer in layers["layers"] for name in layer.replace("|", " ").split()}

    assert layers["exhaustive"] is True
    assert set(layers["exhaustive_ignores"]) == {"__main__"}
    assert named >= set(rooms())


def test_pure_rooms_import_nothing_else_from_outside(graph):
    (pure,) = [contract for contract in CONTRACTS if contract["name"].startswith("The core and the model")]
    excused = {tuple(edge.split(" -> ")) for edge in pure["ignore_imports"]}

    found = {
        (module, library)
        for library in outside(graph)
        for module in graph.find_modules_that_directly_import(library)
        if any(f"{module}.".startswith(f"{room}.") for room in pure["source_modules"])
        if library not in IN_PURE_ROOMS
    }

    assert found == excused


@pytest.fixture(scope="module")
def verdict(tmp_path_factory) -> str:
    """What the linter says of a copy of the tree with a module in each room, and one beside them, that imports each library."""
    copy = tmp_path_factory.mktemp("copy")
    shutil.copytree(PACKAGE, copy / "actorproc", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", copy)
    for folder in ["", *rooms()]:
        (copy / "actorproc" / folder / "planted.py").write_text("".join(f"import {name}\n" for name in HOMES))
    for room in ("core", "model"):
        (copy / "actorproc" / room / "planted_clock.py").write_text("import time\n")
    linter = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    ended = subprocess.run(
        [sys.executable, "-c", linter, "--no-cache", "--verbose"],
        cwd=copy, env=os.environ | {"PYTHONPATH": str(copy), "COLUMNS": "400"}, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert ended.returncode == 1, ended.stdout + ended.stderr
    return ended.stdout


def is_at_home(room: str, library: str) -> bool:
    return f"actorproc.{room}" in HOMES[library]


@pytest.mark.parametrize("library", sorted(HOMES))
def test_a_new_module_in_any_room_may_import_a_library_only_in_its_home(verdict, library):
    reported = {room for room in ["", *rooms()] if f"{planted(room)} -> {library} " in verdict}

    assert reported == {room for room in ["", *rooms()] if not is_at_home(room, library)}


def planted(room: str) -> str:
    return f"actorproc.{room}.planted" if room else "actorproc.planted"


def test_a_new_module_beside_the_rooms_has_to_be_given_a_layer(verdict):
    missing = verdict.partition("not listed as layers:")[2].partition("(Since")[0]
    assert missing.split() == ["-", "actorproc.planted"]


@pytest.mark.parametrize("room", ["core", "model"])
def test_a_clock_in_a_pure_room_is_seen(verdict, room):
    assert f"actorproc.{room}.planted_clock -> time" in verdict
