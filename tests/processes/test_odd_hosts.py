"""Programs of odd kinds: frozen ones, ones with patched threads, and ones that make errors of all warnings."""

import ast
import importlib.util
import subprocess
import sys
import types
from pathlib import Path

import pytest

import actorproc
from actorproc import Config, ProcedureManager, UsageError, freeze_support
from actorproc.workers.os import patched

pytestmark = pytest.mark.processes

# An executable that is the program, as PyInstaller and cx_Freeze make it; only the interpreter is not inside of it.
EXECUTABLE = """\
#!/bin/sh
exec {python} {program} "$@"
"""
FROZEN = """\
import multiprocessing, sys
sys.frozen, sys.executable = True, {executable!r}
with open({count!r}, "a", encoding="utf-8") as file:
    file.write("main" + chr(10))
import actorproc
from actorproc import Config, ProcedureExecutor

class Point:
    def __init__(self, x): self.x = x

def move(point): return Point(point.x + 1)

if __name__ == "__main__":
    {first}
    config = Config({config})
    with actorproc.ProcedureManager("state", workers=2, config=config) as manager, ProcedureExecutor(manager) as pool:
        moved = pool.submit(move, Point(1)).result(60)
        print(type(moved) is Point, moved.x, pool.submit(pow, 2, 3).result(60))
"""
REFUSED = "actorproc.errors.UsageError: this is a frozen program, and its workers would run its main program again"


def run_frozen(folder, first="pass", config="", *arguments):
    """Run it; the process that ended, and how often the main program ran."""
    program, executable, count = folder / "program.py", folder / "program", folder / "count"
    program.write_text(FROZEN.format(executable=str(executable), count=str(count), first=first, config=config))
    executable.write_text(EXECUTABLE.format(python=sys.executable, program=program))
    executable.chmod(0o755)
    command = [str(executable), *arguments]
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    return ran, len(count.read_text().splitlines())


def test_a_frozen_program_that_calls_freeze_support_runs_its_workers(tmp_path):
    ran, mains = run_frozen(tmp_path, "actorproc.freeze_support()", "spares=0")

    assert ran.stdout == "True 2 8\n", ran.stderr
    assert mains == 3  # itself and two workers


@pytest.mark.parametrize(
    "first",
    [
        pytest.param("pass", id="no call"),
        pytest.param("multiprocessing.freeze_support()", id="that of multiprocessing only"),
        pytest.param("config = sys.argv == ['never'] and actorproc.freeze_support()", id="a call that is not reached"),
    ],
)
def test_a_frozen_program_without_freeze_support_is_refused_and_does_not_multiply(first, tmp_path):
    ran, mains = run_frozen(tmp_path, first)

    assert REFUSED in ran.stderr
    assert "actorproc.freeze_support() first" in ran.stderr.splitlines()[-1]
    assert mains == 1


@pytest.mark.parametrize(
    ("first", "config"),
    [
        pytest.param("pass", f"executable={sys.executable!r}", id="Config(executable=…)"),
        pytest.param(f"multiprocessing.set_executable({sys.executable!r})", "", id="multiprocessing.set_executable"),
    ],
)
def test_a_frozen_program_may_name_an_interpreter(first, config, tmp_path):
    ran, mains = run_frozen(tmp_path, first, config)

    assert ran.stdout == "True 2 8\n", ran.stderr
    assert mains == 1


def test_the_mark_of_a_worker_means_nothing_to_other_programs(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["program", "--actorproc-worker", "1", "2"])

    assert freeze_support() is None
    assert sys.argv[1] == "--actorproc-worker"


# ---------------------------------------------------------------- patched threads
@pytest.mark.parametrize("package", ["gevent.monkey", "eventlet.patcher"])
@pytest.mark.parametrize("module", ["thread", "threading", "queue", "socket", "subprocess"])
def test_a_manager_among_patched_threads_says_so_at_once(package, module, monkeypatch, tmp_path):
    fake = types.SimpleNamespace(**{patched._ASKED[package]: lambda name: name == module})
    monkeypatch.setitem(sys.modules, package, fake)

    with pytest.raises(UsageError, match=rf"{package} has replaced {module} of this program.*ProcedureClient\("):
        ProcedureManager(tmp_path / "state", workers=1).start()

    assert not (tmp_path / "state").exists()


def test_patches_that_do_no_harm_are_no_reason(monkeypatch, tmp_path):
    monkeypatch.setitem(
        sys.modules, "gevent.monkey", types.SimpleNamespace(is_module_patched={"time", "os"}.__contains__)
    )

    with ProcedureManager(tmp_path / "state", workers=1) as manager:
        assert manager.health().status == "running"


@pytest.mark.skipif(importlib.util.find_spec("gevent") is None, reason="needs gevent")
def test_gevent_itself_is_asked(tmp_path):
    code = (
        "from gevent import monkey; monkey.patch_all(); import actorproc; actorproc.ProcedureManager('state').start()"
    )

    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=30, check=False
    )

    assert "UsageError: gevent.monkey has replaced" in ran.stderr


# ---------------------------------------------------------------- warnings that are errors
STRICT = """\
from actorproc import Limits, ProcedureExecutor, ProcedureManager, procedure

@procedure(limits=Limits(processes=4))
def add(ctx, value: int): return value + 1

if __name__ == "__main__":
    with ProcedureManager("state", workers=1) as manager, ProcedureExecutor(manager) as pool:
        print(manager.run(add(1)), pool.submit(pow, 2, 3).result(60), len(manager.workers()))
"""


@pytest.mark.parametrize(
    ("options", "environment"),
    [
        pytest.param(["-W", "error", "-X", "warn_default_encoding"], {}, id="options"),
        pytest.param(["-W", "error"], {"PYTHONWARNDEFAULTENCODING": "1"}, id="environment, of workers too"),
        pytest.param(["-W", "error", "-X", "dev", "-bb"], {}, id="development mode"),
    ],
)
def test_a_program_with_strict_warnings_starts(options, environment, tmp_path, monkeypatch):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    program = tmp_path / "program.py"
    program.write_text(STRICT)

    ran = subprocess.run(
        [sys.executable, *options, program], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )

    assert ran.stdout == "2 8 1\n", ran.stderr
    assert "Warning" not in ran.stderr


def test_no_text_file_is_opened_in_the_encoding_of_the_place():
    missing = [
        f"{file.name}:{node.lineno}"
        for file in Path(actorproc.__file__).parent.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        and (name := node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", ""))
        and (
            name in {"read_text", "write_text", "TextIOWrapper"}
            or (
                any(word.arg in {"text", "universal_newlines"} for word in node.keywords)
                and name in {"run", "Popen", "check_output"}
            )
        )
        and not any(word.arg == "encoding" for word in node.keywords)
    ]

    assert missing == []


def test_a_worker_ends_quietly_under_pythoninspect(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONINSPECT", "1")
    with ProcedureManager(tmp_path / "state", workers=1, config=Config(spares=0)) as manager:
        (worker,) = manager.workers()
        environment = Path(f"/proc/{worker.pid}/environ").read_bytes()

    assert b"PYTHONINSPECT" not in environment
