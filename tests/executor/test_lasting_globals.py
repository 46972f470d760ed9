"""Globals of a script live as long as its worker: each program's apart, fresh in a new worker, shared with procedures."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap

import pytest

pytestmark = pytest.mark.processes


def played(tmp_path, program, name="program.py"):
    """What a program of this text prints, as JSON. It begins with a counter, and ends with ``calls(executor)``."""
    head = """
        import json, os, signal, sys
        from actorproc import ProcedureExecutor, ProcedureManager, procedure

        counter = 0

        def count():
            global counter
            counter += 1
            return counter
    """
    file = tmp_path / name
    file.write_text(textwrap.dedent(head) + textwrap.dedent(program))
    run = subprocess.run(
        [sys.executable, str(file), str(tmp_path / "state")], capture_output=True, text=True, check=False, timeout=120
    )
    assert run.returncode == 0, run.stderr[-4000:]
    return json.loads(run.stdout)


def test_a_new_worker_begins_with_the_globals_of_the_program(tmp_path):
    program = """
        def die():
            if counter:
                os.kill(os.getpid(), signal.SIGKILL)
            return counter

        with ProcedureExecutor(sys.argv[1], max_workers=1) as executor:
            before = [executor.submit(count).result(60) for _ in range(3)]
            print(json.dumps([before, executor.submit(die).result(60), executor.submit(count).result(60)]))
    """
    assert played(tmp_path, program) == [[1, 2, 3], 0, 1]


def test_steps_of_procedures_and_calls_share_the_globals_of_their_script(tmp_path):
    program = """
        @procedure
        def counted(ctx):
            return count()

        @procedure
        def counted_too(ctx):
            return count()

        with ProcedureManager(sys.argv[1], workers=1) as manager:
            executor = ProcedureExecutor(manager)
            run = manager.run
            print(json.dumps([run(counted()), run(counted()), run(counted_too()), executor.submit(count).result(60)]))
    """
    assert played(tmp_path, program) == [1, 2, 3, 4]


def test_each_program_has_globals_of_its_own_in_the_workers_of_a_service(tmp_path):
    program = """
        import pathlib, subprocess
        from actorproc import ProcedureClient

        @procedure
        def counted(ctx):
            return count()

        def as_client(path):
            with ProcedureClient(path) as client:
                print(json.dumps([client.run(counted(), timeout=60) for _ in range(2)]))

        if sys.argv[2:]:
            as_client(sys.argv[1])
            sys.exit()

        other = pathlib.Path(__file__).with_name("other.py")
        other.write_text(pathlib.Path(__file__).read_text().replace("counter += 1", "counter -= 1"))
        with ProcedureManager(sys.argv[1], workers=1) as manager:
            executor = ProcedureExecutor(manager)
            found = [executor.submit(count).result(60)]
            run = subprocess.run([sys.executable, other, sys.argv[1], "client"], stdout=subprocess.PIPE, check=True)
            found += json.loads(run.stdout), executor.submit(count).result(60)
            print(json.dumps(found))
    """
    assert played(tmp_path, program) == [1, [-1, -2], 2]


def test_what_an_initializer_set_is_not_replaced_by_what_the_program_has(tmp_path):
    program = """
        model = None

        def load():
            global model
            model = f"loaded by {os.getpid()}"

        def used():
            return model == f"loaded by {os.getpid()}"

        with ProcedureExecutor(sys.argv[1], max_workers=1, initializer=load) as executor:
            found = [executor.submit(used).result(60)]
            load()
            found += [executor.submit(used).result(60), executor.submit(lambda: used()).result(60)]
            print(json.dumps(found))
    """
    assert played(tmp_path, program) == [True, True, True]


def test_a_call_that_is_made_later_has_the_values_of_its_submit(tmp_path):
    program = """
        import threading

        def wait(path):
            while not os.path.exists(path):
                pass

        def seen():
            return limit, cache

        limit, cache, gate = 1, {}, sys.argv[1] + ".open"
        with ProcedureExecutor(sys.argv[1], max_workers=1) as executor:
            executor.submit(wait, gate)
            first = executor.submit(seen)
            limit, cache["new"] = 2, True
            second = executor.submit(seen)
            open(gate, "w").close()
            print(json.dumps([first.result(60), second.result(60)]))
    """
    assert played(tmp_path, program) == [[1, {}], [2, {"new": True}]]
