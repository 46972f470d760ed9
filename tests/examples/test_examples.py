"""Every example runs as its reader would run it: as a program, in a directory of its own."""

import collections
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(program, directory, *arguments):
    command = [sys.executable, "-W", "error", str(EXAMPLES / program), *arguments]
    environment = os.environ | {"PYTHONPATH": str(EXAMPLES.parent)}
    return subprocess.run(
        command, cwd=directory, env=environment, capture_output=True, text=True, timeout=90, check=False
    )


def words_of_the_json_package():
    """The answer of example 2, computed without it."""
    counts = collections.Counter()
    for path in Path(json.__file__).parent.glob("*.py"):
        counts.update(re.findall(r"\w+", path.read_text()))
    return counts


def test_schedules_fire_in_each_run_and_never_twice(tmp_path):
    runs = [run("13_schedules.py", tmp_path) for _ in range(2)]

    reports = []
    for done in runs:
        assert done.returncode == 0, done.stderr
        *made, first, second = done.stdout.splitlines()
        assert (first, second) == ("each-second has fired", "nightly has not fired yet")
        reports += made
    assert len(reports) == len(set(reports)) == 4


def test_hello_saga_prints_its_tracking_number_each_time_it_is_run(tmp_path):
    first = run("01_hello_saga.py", tmp_path)
    second = run("01_hello_saga.py", tmp_path)

    assert first.returncode == 0, first.stderr
    assert second.returncode == 0, second.stderr
    assert first.stdout.startswith("tracking-")
    assert second.stdout.startswith("tracking-")
    assert first.stdout != second.stdout  # two orders, two keys


@pytest.mark.processes
@pytest.mark.parametrize("arguments", [[], ["--crash"]], ids=["undisturbed", "every region kills its worker once"])
def test_create_table_makes_every_region_and_counts_right(tmp_path, arguments):
    ended = run("02_create_table/create_table.py", tmp_path, str(tmp_path), *arguments)

    assert ended.returncode == 0, ended.stderr
    expected = words_of_the_json_package()
    assert f"words: {len(expected)}\nleft: words words.catalog\n" == ended.stdout
    merged = collections.Counter()
    for region in (tmp_path / "words").glob("region-*.json"):
        merged.update(json.loads(region.read_text()))
    assert merged == expected


def test_create_table_leaves_nothing_behind_when_its_last_step_fails(tmp_path):
    ended = run("02_create_table/create_table.py", tmp_path, str(tmp_path), "--fail")

    assert ended.returncode == 0, ended.stderr
    assert "undone: " in ended.stdout
    assert "nobody wants this table" in ended.stdout
    assert ended.stdout.endswith("left:\n")


def test_every_example_is_run_by_a_test():
    told = "".join(path.read_text() for path in Path(__file__).parents[1].rglob("test_*.py"))

    programs = [path.relative_to(EXAMPLES).as_posix() for path in EXAMPLES.rglob("*.py")]

    assert programs
    # Of an example of several files the folder is run as a whole.
    assert [name for name in programs if Path(name).name not in told and name.partition("/")[0] not in told] == []
