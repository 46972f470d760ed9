"""Wheel and sdist have metadata that an index takes and shows."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

pytest.importorskip("twine", reason="needs twine, of the extra docs")
pytest.importorskip("hatchling", reason="needs hatchling, of the extra dev")

ROOT = Path(__file__).parents[2]


def test_twine_has_nothing_to_say_of_a_release(tmp_path):
    command = [sys.executable, "-m", "hatchling", "build", "-d", tmp_path]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=150)
    files = sorted(tmp_path.iterdir())

    said = subprocess.run(
        [sys.executable, "-m", "twine", "--no-color", "check", "--strict", *files],
        capture_output=True, text=True, timeout=150, check=False,
    )  # fmt: skip

    assert said.returncode == 0, said.stdout + said.stderr
    assert said.stdout.count("PASSED") == len(files) == 2


def test_the_metadata_are_complete():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = (
        "description",
        "readme",
        "requires-python",
        "license",
        "license-files",
        "authors",
        "keywords",
        "classifiers",
    )

    assert [key for key in wanted if not project.get(key)] == []
    assert f"## [{project['version']}]" in (ROOT / "CHANGELOG.md").read_text()
