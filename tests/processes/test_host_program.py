"""Settings of the program that every worker begins with, whenever it starts: those of the manager's start."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from actorproc import Config, Limits, ProcedureExecutor, ProcedureFailed, ProcedureManager, procedure

pytestmark = pytest.mark.processes
ROOT = Path(__file__).parents[2]


def surroundings():
    umask = os.umask(0)
    os.umask(umask)
    return {
        "pid": os.getpid(),
        "directory": str(Path.cwd()),
        "added": os.environ.get("ADDED_LATER"),
        "removed": os.environ.get("REMOVED_LATER"),
        "changed": os.environ.get("CHANGED_LATER"),
        "umask": umask,
        "arguments": list(sys.argv),
    }


@procedure
def look(ctx):
    return surroundings()


@procedure(limits=Limits(dedicated=True))
def look_alone(ctx):
    return surroundings()


@procedure
def crash_once(ctx):
    if not ctx.replayed:
        os.kill(os.getpid(), signal.SIGKILL)
    return surroundings()


def after_a_crash(manager):
    return manager.run(crash_once(), timeout=60)


def a_dedicated_one(manager):
    return manager.run(look_alone(), timeout=60)


def after_a_scaling(manager):
    manager.resize(2)
    manager.resize(1)
    return manager.run(look(), timeout=60)


def the_same_one(manager):
    return manager.run(look(), timeout=60)


@pytest.fixture
def program(tmp_path, monkeypatch):
    """A program whose settings may be changed."""
    (tmp_path / "work").mkdir()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("REMOVED_LATER", "there")
    monkeypatch.setenv("CHANGED_LATER", "before")
    monkeypatch.delenv("ADDED_LATER", raising=False)
    monkeypatch.setattr(sys, "argv", ["program.py", "--verbose", "naïve \udcff", ""])
    before = os.umask(0o027)
    yield tmp_path
    os.umask(before)


def change(monkeypatch, folder):
    monkeypatch.chdir(folder / "elsewhere")
    monkeypatch.setenv("ADDED_LATER", "yes")
    monkeypatch.setenv("CHANGED_LATER", "after")
    monkeypatch.delenv("REMOVED_LATER")
    os.umask(0o077)
    sys.argv[:] = ["other.py"]


@pytest.mark.parametrize("spares", [0, 1])
@pytest.mark.parametrize(
    ("way", "config"),
    [
        (the_same_one, {}),
        (after_a_crash, {}),
        (a_dedicated_one, {}),
        (after_a_scaling, {}),
        (the_same_one, {"recycle_steps": 1}),
    ],
    ids=["the first", "after a crash", "dedicated", "scaled", "recycled"],
)
def test_every_worker_begins_with_the_settings_of_the_managers_start(program, monkeypatch, way, config, spares):
    expected = {
        "directory": str(program / "work"), "added": None, "removed": "there", "changed": "before", "umask": 0o027,
        "arguments": ["program.py", "--verbose", "naïve \udcff", ""],
    }  # fmt: skip
    with ProcedureManager("store", workers=1, config=Config(spares=spares, **config)) as manager:
        change(monkeypatch, program)
        found = [manager.run(look(), timeout=60), way(manager), way(manager)]

    assert [{name: seen[name] for name in expected} for seen in found] == [expected] * 3


def test_every_worker_of_an_executor_begins_where_its_first_call_was_made(program, monkeypatch):
    with ProcedureExecutor("calls", max_workers=1) as executor:
        first = executor.submit(surroundings).result(60)
        change(monkeypatch, program)
        os.kill(first["pid"], signal.SIGKILL)
        second = executor.submit(surroundings).result(60)

    assert second["pid"] != first["pid"]
    assert first | {"pid": 0} == second | {"pid": 0}


@pytest.mark.parametrize("what", ["renamed", "removed"])
def test_a_directory_that_is_gone_is_the_directory_all_the_same(program, monkeypatch, what):
    with ProcedureManager(program / "store", workers=1, config=Config(spares=0)) as manager:
        first = manager.run(inode_of_directory(), timeout=60)
        monkeypatch.chdir(program / "elsewhere")
        if what == "renamed":
            (program / "work").rename(program / "renamed")
        else:
            (program / "work").rmdir()
        manager.run(crash_once_anywhere(), timeout=60)
        second = manager.run(inode_of_directory(), timeout=60)

    assert first == second


@procedure
def inode_of_directory(ctx):
    return Path().stat().st_ino


@procedure
def crash_once_anywhere(ctx):
    if not ctx.replayed:
        os.kill(os.getpid(), signal.SIGKILL)


def test_an_interpreter_with_a_relative_path_is_found_after_a_change_of_directory(program, monkeypatch):
    Path("python").symlink_to(sys.executable)
    config = Config(executable="./python", spares=0)
    with ProcedureManager(program / "store", workers=1, config=config) as manager:
        monkeypatch.chdir(program / "elsewhere")
        assert after_a_crash(manager)["directory"] == str(program / "work")


def test_a_stopped_manager_holds_no_directory_open(program):
    before = len(list(Path("/dev/fd").iterdir()))
    with ProcedureManager("store", workers=1) as manager:
        manager.run(look(), timeout=60)

    assert len(list(Path("/dev/fd").iterdir())) == before


# ---------------------------------------------------------------- arguments
SCRIPT = """
import json, sys
{change}
from actorproc import ProcedureExecutor
def arguments(): return sys.argv
if __name__ == "__main__":
    with ProcedureExecutor({store!r}, max_workers=1) as executor:
        print(json.dumps([executor.submit(arguments).result(60) == {expected}, executor.submit(arguments).result(60)]))
"""


@pytest.mark.parametrize("way", ["script", "module", "text"])
@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ("", "sys.argv"),
        ("sys.argv += ['--verbose']", "sys.argv"),
        ("import pathlib; sys.argv = ['x', pathlib.Path('/a'), 3]", "['x', '/a', '3']"),
        ("sys.argv = []", "[]"),
        ("sys.argv = ('a', 'b')", "['-c']"),
        ("del sys.argv", "['-c']"),
    ],
)
def test_a_worker_has_the_arguments_of_the_program(tmp_path, way, change, expected):
    text = SCRIPT.format(change=change, store=str(tmp_path / "calls"), expected=expected)
    (tmp_path / "prog.py").write_text(text)
    how = {"script": ["prog.py"], "module": ["-m", "prog"], "text": ["-c", text]}[way]
    run = subprocess.run(
        [sys.executable, *how, "one", "--two=ü"],
        capture_output=True, text=True, check=False, timeout=60, cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip

    assert run.stdout.startswith("[true, "), (run.stdout, run.stderr)


# ---------------------------------------------------------------- warning filters
class Odd(UserWarning):
    """A category of a module."""


def warn(category=UserWarning, text="a text"):
    warnings.warn(text, category, stacklevel=1)
    return "went on"


@procedure
def warns(ctx, kind: str, text: str = "a text"):
    if kind == "fork":  # as Python 3.12 warns of a fork beside the worker's own thread
        return warn(DeprecationWarning, "This process (pid=1) is multi-threaded, use of fork() may lead to deadlocks")
    return warn({"user": UserWarning, "odd": Odd}[kind], text)


@pytest.mark.parametrize(
    ("filters", "kind", "raises"),
    [
        ([("error",)], "user", True),
        ([("ignore",)], "user", False),
        ([("error", "", UserWarning)], "user", True),
        ([("error", "", DeprecationWarning)], "user", False),
        ([("error", "", Odd)], "odd", True),
        ([("error", "", Odd)], "user", False),
        ([("error", "", Warning), ("ignore", "", Odd)], "odd", False),
        ([("ignore", "", Odd), ("error", "", Warning)], "odd", True),
        ([("error", "A TEXT")], "user", True),
        ([("error", "another")], "user", False),
        ([("error", "", UserWarning, r".*test_host_program")], "user", True),
        ([("error", "", UserWarning, "elsewhere")], "user", False),
        ([("error", "", UserWarning, "", 1)], "user", False),
        ([("error",)], "fork", False),
    ],
)
def test_the_warning_filters_of_the_program_hold_in_its_workers(tmp_path, filters, kind, raises):
    with warnings.catch_warnings():
        warnings.resetwarnings()
        for entry in filters:
            warnings.filterwarnings(*entry)
        with ProcedureManager(tmp_path / "store", workers=1) as manager:
            for crash in (False, True):
                if crash:
                    manager.run(crash_once_anywhere(), timeout=60)
                if raises:
                    with pytest.raises(ProcedureFailed, match="a text"):
                        manager.run(warns(kind), timeout=60)
                else:
                    assert manager.run(warns(kind), timeout=60) == "went on"


CATEGORY = """
import sys, warnings
from actorproc import ProcedureExecutor
class Mine(UserWarning): pass
class Below(Mine): pass
def warn(text): warnings.warn(text, {category}); return "went on"
warnings.simplefilter("error", {given})
with ProcedureExecutor({store!r}, max_workers=1) as executor:
    print(type(executor.submit(warn, "a").exception(60)).__name__)
"""


@pytest.mark.parametrize(
    ("given", "category", "outcome"),
    [("Mine", "Mine", "Mine"), ("Mine", "Below", "Below"), ("Below", "Mine", "NoneType")],
)
def test_a_category_of_a_script_is_known_by_its_name(tmp_path, given, category, outcome):
    text = CATEGORY.format(given=given, category=category, store=str(tmp_path / "calls"))
    (tmp_path / "prog.py").write_text(text)
    run = subprocess.run(
        [sys.executable, "prog.py"], capture_output=True, text=True, check=False, timeout=60, cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip

    assert run.stdout == f"{outcome}\n", run.stderr


def test_filters_that_were_put_in_by_hand_do_no_harm(tmp_path):
    with warnings.catch_warnings():
        warnings.filters[:0] = [("error", None, "no class", None, 0), ("odd", re.compile(b"x"), Odd, None, 0)]
        with ProcedureManager(tmp_path / "store", workers=1) as manager:
            warnings.filters[:2] = []
            assert manager.run(look(), timeout=60)["pid"] != os.getpid()
