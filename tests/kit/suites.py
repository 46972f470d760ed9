"""Runs of a conformance suite in a pytest of its own, and the number of failures of each class of tests."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path
from xml.etree import ElementTree as ET

__all__ = ["ROOT", "failures_by_class", "run_pytest"]

ROOT = Path(__file__).parents[2]
_BOUNDS = ("-o", "addopts=--import-mode=importlib", "-o", "timeout=20", "-o", "timeout_method=signal")
"""A fault may let a test wait for ever; that is a failure of this test, and the others go on."""


def run_pytest(*arguments: str, cwd: Path = ROOT, timeout: float = 170) -> subprocess.CompletedProcess[str]:
    """A pytest in a process of its own, with one process and no cache."""
    command = [sys.executable, "-m", "pytest", "-q", "--tb=no", "-p", "no:cacheprovider", "-p", "no:xdist"]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST")}
    return subprocess.run(
        [*command, *arguments],
        cwd=cwd, env=environment | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=timeout, check=False,
    )  # fmt: skip


def failures_by_class(path: str, folder: Path, *more: str) -> tuple[Counter[str], Counter[str]]:
    """Tests, and failures among them, by the name of their class."""
    ended = run_pytest(path, *more, f"--junitxml={folder / 'report.xml'}", *_BOUNDS)
    assert ended.returncode in {0, 1}, ended.stdout + ended.stderr
    names: defaultdict[str, set[str]] = defaultdict(set)
    failed: defaultdict[str, set[str]] = defaultdict(set)
    for case in ET.parse(folder / "report.xml").iter("testcase"):  # a test that failed twice is there twice
        kind = case.attrib["classname"].rpartition(".")[2].removeprefix("Test")
        names[kind].add(case.attrib["name"])
        if case.find("failure") is not None or case.find("error") is not None:
            failed[kind].add(case.attrib["name"])
    return Counter({kind: len(found) for kind, found in names.items()}), Counter(
        {kind: len(found) for kind, found in failed.items()}
    )
