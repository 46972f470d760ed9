"""Cells that run again: in an interactive session a manager takes over from the one that was made there before."""

import subprocess
import sys
import textwrap

import pytest

pytestmark = pytest.mark.processes

SETUP = """
import threading, time
from actorproc import Config, ProcedureExecutor, ProcedureManager, StoreInUse, procedure
from actorproc.errors import ManagerStopped

def slow(value): time.sleep(0.3); return value

@procedure
def add(ctx, value: int): time.sleep(0.3); return value + 1

def refused(make):
    try: make().start()
    except StoreInUse: return "refused"
    return "taken over"

def later(call):
    got = []
    thread = threading.Thread(target=lambda: got.append(call()))
    thread.start()
    def join(): thread.join(60); return got
    return join
"""
MANAGER = 'manager = ProcedureManager("state", workers=1).start()'
EXECUTOR = 'executor = ProcedureExecutor("state", max_workers=1)'

# Cells, and what the last one prints.
AGAIN = {
    "a manager, its handles, waits under way, futures and callbacks": (
        [
            MANAGER,
            """
            handles = [manager.submit(add(value)) for value in range(4)]
            waiting, future, called, first = later(handles[3].result), handles[2].future(), [], manager
            handles[3].add_done_callback(lambda handle: called.append(handle.result()))
            """,
            MANAGER,
            """
            print([handle.result() for handle in handles], waiting(), future.result(60), len(called) < 2)
            print(first.run(add(4)), first.get(handles[0].id).result(), first.health().status, "running" in repr(first))
            """,
        ],
        "[1, 2, 3, 4] [4] 3 True\n5 1 running True",
    ),
    "a manager of which the name is gone": ([MANAGER, "del manager", MANAGER, "print(manager.run(add(1)))"], "2"),
    "a manager that was stopped": ([MANAGER, "manager.stop()", MANAGER, "print(manager.run(add(1)))"], "2"),
    "three runs: what waits since the first goes on through the third": (
        [
            MANAGER,
            "first, handles = manager, [manager.submit(add(value)) for value in range(5)]; wait = later(handles[4].result)",
            MANAGER,
            MANAGER,
            "print(wait(), first.run(add(7)), [handle.result() for handle in handles])",
        ],
        "[5] 8 [1, 2, 3, 4, 5]",
    ),
    "a type that only the first manager knows": (
        [
            'manager = ProcedureManager("state", workers=1, procedures=[add]).start()',
            "first = manager; handles = [manager.submit(add(value)) for value in range(2)]",
            """
            @procedure(name="other")
            def other(ctx): return "other"
            """,
            MANAGER,
            "print(first.run(other()), [handle.result() for handle in handles])",
        ],
        "other [1, 2]",
    ),
    "stopping the first does not stop the second": (
        [MANAGER, "first = manager", MANAGER, "first.stop(); print(manager.run(add(1)), first.run(add(2)))"],
        "2 3",
    ),
    "starting the first again is no change": (
        [MANAGER, "first = manager", MANAGER, "first.start(); print(manager.run(add(1)), first.run(add(2)))"],
        "2 3",
    ),
    "the second stopped, the first started": (
        [MANAGER, "first = manager", MANAGER, "manager.stop()", "print(first.start().run(add(1)))"],
        "2",
    ),
    "a with block": (
        [
            MANAGER,
            "first = manager",
            'with ProcedureManager("state", workers=1) as manager: print(manager.run(add(1)))',
        ],
        "2",
    ),
    "an executor with calls under way": (
        [
            EXECUTOR,
            "first, futures = executor, [executor.submit(slow, value) for value in range(4)]; futures[3].durable() and None",
            EXECUTOR,
            "print(executor.submit(slow, 9).result(), [f.result() for f in futures], first.submit(slow, 8).result())",
        ],
        "9 [0, 1, 2, 3] 8",
    ),
    "an executor of which the name is gone": (
        [
            EXECUTOR,
            "futures = [executor.submit(slow, value) for value in range(3)]; futures[2].durable() and None",
            "del executor",
            EXECUTOR,
            "print(executor.submit(slow, 9).result(), [future.result() for future in futures])",
        ],
        "9 [0, 1, 2]",
    ),
    "an executor that is just being shut down": (
        [
            EXECUTOR,
            "futures = [executor.submit(slow, value) for value in range(3)]; executor.shutdown(wait=False)",
            EXECUTOR,
            "print(executor.submit(slow, 9).result(), [future.result() for future in futures])",
        ],
        "9 [0, 1, 2]",
    ),
    "calls that are not stored yet": (
        [
            EXECUTOR,
            "executor.submit(slow, 0).result() and None",
            """
            futures = [executor.submit(slow, value) for value in range(3)]
            second = ProcedureExecutor("state", max_workers=1)
            futures.append(second.submit(slow, 9))
            futures += [executor.submit(slow, 10)]
            print([future.result() for future in futures])
            """,
        ],
        "[0, 1, 2, 9, 10]",
    ),
    "a manager in place of an executor": (
        [
            EXECUTOR,
            "futures = [executor.submit(slow, value) for value in range(3)]; futures[2].durable() and None",
            MANAGER,
            "print(manager.run(add(1)), [future.result() for future in futures])",
        ],
        "2 [0, 1, 2]",
    ),
    "one statement makes two": (
        ['made = [refused(lambda: ProcedureManager("state", workers=1)) for _ in range(2)]; print(made)'],
        "['taken over', 'refused']",
    ),
    "a thread makes the second": (
        [MANAGER, 'print(later(lambda: refused(lambda: ProcedureManager("state", workers=1)))())'],
        "['refused']",
    ),
    "a second one that does not start": (
        [
            MANAGER,
            "first, wait = manager, later(lambda: type(manager.submit(add(1)).exception()).__name__)",
            'bad = ProcedureManager("state", workers=1, preload=["no_such_module"])',
            """
            try: bad.start()
            except Exception as error: print(type(error).__name__)
            """,
            "print(first.start().run(add(2)))",
        ],
        "WorkerBootFailed\n3",
    ),
}

DRIVER = {
    # What IPython does with a cell.
    "cells": "import sys; sys.ps1 = 'In : '\nfor cell in {cells!r}: exec(compile(cell, '<cell>', 'exec'), globals())",
    "console": (
        "import code, sys\nsys.ps1 = '>>> '\nconsole = code.InteractiveConsole(globals())\n"
        "for cell in {cells!r}: console.runcode(compile(cell, '<console>', 'exec'))"
    ),
    "script": "for cell in {cells!r}: exec(compile(cell, '<cell>', 'exec'), globals())",
}


def run_cells(folder, cells, way):
    cells = [SETUP, *map(textwrap.dedent, cells), "manager = globals().get('manager'); manager and manager.stop()"]
    program = folder / "program.py"
    program.write_text(DRIVER[way].format(cells=cells))
    return subprocess.run(
        [sys.executable, str(program)], cwd=folder, capture_output=True, text=True, timeout=120, check=False
    )


@pytest.mark.parametrize("case", AGAIN)
def test_running_a_cell_again_takes_over_from_what_it_made(case, tmp_path):
    cells, printed = AGAIN[case]

    ran = run_cells(tmp_path, cells, "cells")

    assert ran.stdout.strip() == printed, ran.stderr
    assert ran.returncode == 0


def test_a_console_is_interactive_too(tmp_path):
    cells, printed = AGAIN["a manager of which the name is gone"]

    assert run_cells(tmp_path, cells, "console").stdout.strip() == printed


def test_the_repl_is_interactive_too(tmp_path):
    lines = [
        "from actorproc import ProcedureManager, procedure",
        "@procedure",
        "def add(ctx, value: int): return value + 1",
    ]
    lines += ["", MANAGER, MANAGER, "print(manager.run(add(1)))", "manager.stop()"]
    ran = subprocess.run(
        [sys.executable, "-i", "-q"],
        input="\n".join(lines) + "\n",
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert ran.stdout.strip() == "2", ran.stderr


@pytest.mark.parametrize("case", ["a manager of which the name is gone", "an executor with calls under way"])
def test_elsewhere_a_second_one_is_refused(case, tmp_path):
    ran = run_cells(tmp_path, AGAIN[case][0], "script")

    assert "StoreInUse" in ran.stderr
    assert "use that one, stop it, or use another directory" in ran.stderr
