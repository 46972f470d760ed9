"""Two builds of the same sources are the same bytes, whoever makes them, where and when."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

pytest.importorskip("hatchling", reason="needs hatchling, of the extra dev")

ROOT = Path(__file__).parents[1]
SOURCES = ("actorproc", "bench", "docs", "examples", "tests")


def built(sources, target, umask):
    """Digests of the wheel and the sdist of these sources, by name."""
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-t", "wheel", "-d", target],
        cwd=sources,
        env={**os.environ, "SOURCE_DATE_EPOCH": "1700000000"},
        umask=umask,
        check=True,
        capture_output=True,
        timeout=150,
    )
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in sorted(target.iterdir())}


def copy_of(target):
    """The sources elsewhere, with other times and modes."""
    target.mkdir()
    ignored = shutil.ignore_patterns("__pycache__", ".*", "*.pyc")
    for name in SOURCES:
        shutil.copytree(ROOT / name, target / name, ignore=ignored, copy_function=shutil.copyfile)
    for file in (
        *ROOT.glob("*.md"),
        *(ROOT / name for name in ("LICENSE", "pyproject.toml", "requirements-dev.txt", "tox.ini", ".gitignore")),
    ):
        shutil.copyfile(file, target / file.name)
    for number, file in enumerate(sorted(target.rglob("*"))):
        if file.is_file():
            os.utime(file, (1_600_000_000 + number, 1_600_000_000 + number))
            file.chmod(0o600 if number % 2 else 0o644)
    return target


def test_s20_wheel_and_sdist_are_reproducible(tmp_path):
    one = built(copy_of(tmp_path / "one"), tmp_path / "dist-one", 0o022)
    other = built(copy_of(tmp_path / "other"), tmp_path / "dist-other", 0o077)

    assert len(one) == 2
    assert one == other


def test_s20_the_test_environment_is_locked_by_hashes():
    locked = (ROOT / "requirements-dev.txt").read_text()
    pins = re.findall(r"^([a-z0-9.-]+)==\S+ \\$", locked, re.MULTILINE)

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [
        *project["dependencies"],
        *project["optional-dependencies"]["dev"],
        *project["optional-dependencies"]["cli"],
    ]
    assert {re.match(r"[a-z0-9-]+", line)[0] for line in wanted} <= set(pins)
    assert locked.count("--hash=sha256:") >= len(pins)
