"""The main module of a worker has what came along from a script, and the script's top level runs once."""

import functools
import json
import multiprocessing
import subprocess
import sys
import tempfile

import pytest

from .trials.table import HERE

pytestmark = pytest.mark.processes

CELL = """
import sys, types
sys.argv[:] = sys.argv[1:]
sys.modules["__main__"] = main = types.ModuleType("__main__")
exec(compile(open(sys.argv[0], encoding="utf-8").read(), "<cell>", "exec"), main.__dict__)
"""
FILE = str(HERE / "main_names.py")
WAYS = {"script": [FILE], "module": ["-m", "main_names"], "cell": ["-c", CELL, FILE]}
ROWS = [
    "hints of a function",
    "hints of a class",
    "hints of a class made in the call",
    "hint that nothing has",
    "pydantic models",
    "pickled in the call",
    "unpickled in the call",
    "unpickled, not referred to",
    "source of a function",
    "source of a class",
    "file of main",
    *(f"{kind}, {method}" for kind in ("pool", "process pool") for method in multiprocessing.get_all_start_methods()),
    "a step of a procedure",
]
OF_A_FILE = ("source of a function", "source of a class", "file of main")


@functools.cache
def played(way):
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, *WAYS[way], f"{folder}/state"]
        run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=170, cwd=HERE)
    assert run.returncode == 0, run.stderr[-4000:]
    return json.loads(run.stdout), run.stderr


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("row", ROWS)
def test_a_call_finds_in_main_what_the_script_defines(row, way):
    outcome = played(way)[0][row]

    if way == "cell" and row in OF_A_FILE:
        assert outcome is not True  # there is no file
    else:
        assert outcome is True


@pytest.mark.parametrize("way", WAYS)
def test_the_top_level_of_the_script_runs_once(way):
    outcomes, printed = played(way)

    assert set(outcomes) == set(ROWS)
    assert printed.count("top level") == 1
