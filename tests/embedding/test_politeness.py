"""What an embedded engine leaves alone, and where it can live."""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.processes

HERE = Path(__file__).parent

COMPARE = """
import atexit, gc, json, locale, logging, os, resource, signal, sys, threading, warnings

def facts():
    loggers = {name: (logger.level, len(logger.handlers), logger.propagate)
               for name, logger in logging.root.manager.loggerDict.items()
               if isinstance(logger, logging.Logger) and not name.startswith(("actorproc", "asyncio", "concurrent"))}
    return {
        "signals": {int(number): repr(signal.getsignal(number)) for number in signal.valid_signals()},
        "wakeup": signal.set_wakeup_fd(-1),
        "environ": dict(os.environ),
        "cwd": os.getcwd(),
        "umask": (os.umask(0o22), os.umask(0o22))[1],
        "argv": list(sys.argv),
        "path": list(sys.path),
        "hooks": [repr(hook) for hook in (sys.excepthook, threading.excepthook, sys.unraisablehook, sys.displayhook)],
        "stdio": [id(stream) for stream in (sys.stdin, sys.stdout, sys.stderr)],
        "root": (logging.root.level, len(logging.root.handlers), logging.raiseExceptions),
        "loggers": {name: loggers[name] for name in loggers if name in LOGGERS} if LOGGERS else loggers,
        "filters": len(warnings.filters),
        "switch": sys.getswitchinterval(),
        "recursion": sys.getrecursionlimit(),
        "locale": locale.setlocale(locale.LC_ALL),
        "limits": {name: resource.getrlimit(getattr(resource, name)) for name in ("RLIMIT_NOFILE", "RLIMIT_CORE")},
        "atexit": atexit._ncallbacks(),
        "mask": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
        "collector": (gc.isenabled(), gc.get_threshold(), gc.get_debug(), len(gc.callbacks)),
    }

LOGGERS = set()
import actorproc.api.manager, actorproc.executor, actorproc.embedding  # what libraries do when imported is theirs
os.umask(0o22)
before = facts()
LOGGERS = set(before["loggers"])
from actorproc import Procedure, Status

class Hello(Procedure):
    def execute(self, ctx):
        return Status.done("hello")

with actorproc.api.manager.ProcedureManager("state", workers=1) as manager:
    assert manager.run(Hello()) == "hello"
    manager.submit_many([Hello() for _ in range(1000)])  # the collector pauses meanwhile
    with actorproc.executor.ProcedureExecutor(manager) as executor:
        assert executor.submit(abs, -1).result(30) == 1
    during = facts()
after = facts()
print(json.dumps([name for name in before if not before[name] == during[name] == after[name]]))
print(json.dumps([threading.active_count(), threading.main_thread().is_alive()]))
"""


def test_handlers_hooks_environment_and_logging_of_the_host_stay_as_they_are(program):
    ended = program(COMPARE)

    assert ended.returncode == 0, ended.stderr
    changed, (threads, _) = [json.loads(line) for line in ended.stdout.splitlines()]
    assert changed == []
    assert threads == 1
    assert ended.stderr == ""


def test_an_import_of_the_package_registers_no_exit_hook(program):
    ended = program(
        "import atexit, pykka, lmdb, msgspec, psutil, cloudpickle, concurrent.futures.process, asyncio\n"
        "before = atexit._ncallbacks()\n"
        "import actorproc.api.manager, actorproc.executor, actorproc.embedding\n"
        "print(atexit._ncallbacks() - before)\n"
    )

    assert (ended.stdout, ended.stderr) == ("0\n", "")


def test_a_host_that_forgot_to_stop_ends_at_once_also_with_an_executor(program):
    ended = program(
        "from actorproc.api.manager import ProcedureManager\n"
        "from actorproc.executor import ProcedureExecutor\n"
        "manager = ProcedureManager('state', workers=1).start()\n"
        "executor = ProcedureExecutor(manager)\n"
        "print(executor.submit(abs, -3).result(30))\n"
    )

    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "3\n", "")


def test_a_forked_copy_of_the_host_is_told_and_the_host_goes_on(program):
    ended = program(
        "import os, warnings\n"
        "warnings.simplefilter('ignore', DeprecationWarning)\n"
        "from actorproc import ManagerStopped, Procedure, ProcedureManager, Status\n"
        "class Hello(Procedure):\n"
        "    def execute(self, ctx): return Status.done(os.getpid())\n"
        "with ProcedureManager('state', workers=1) as manager:\n"
        "    manager.run(Hello())\n"
        "    pid = os.fork()\n"
        "    if not pid:\n"
        "        try:\n"
        "            manager.submit(Hello())\n"
        "        except ManagerStopped as refused:\n"
        "            print(refused, flush=True)\n"
        "        with ProcedureManager('own', workers=1) as own:\n"  # one of its own is fine
        "            assert own.run(Hello()) != pid\n"
        "        os._exit(0)\n"
        "    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0\n"
        "    assert manager.run(Hello()) != os.getpid()\n"
    )

    assert ended.returncode == 0, ended.stderr
    assert "forked child" in ended.stdout
    assert "after the fork" in ended.stdout


WITHOUT_STANDARD_FILES = """
import fcntl, os, sys
told = fcntl.fcntl(1, fcntl.F_DUPFD, 50)
os.closerange(0, 3)  # as after `program <&- >&- 2>&-`
from actorproc import Procedure, ProcedureManager, StoreReader, Status
from actorproc.store.memory import MemoryStore
class Hello(Procedure):
    def execute(self, ctx): return Status.done("hello")
def look():
    for fd in range(3):
        os.write(told, os.readlink("/proc/self/fd/%d" % fd).encode() + b"\\n")
how = "{how}"
if how == "reader":
    StoreReader("state").close()
    look()
else:
    with ProcedureManager("state", workers=1, store=MemoryStore() if how == "memory" else None) as manager:
        assert manager.run(Hello()) == "hello"
        look()
"""


@pytest.mark.parametrize("how", ["disk", "memory", "reader"])
def test_a_program_without_standard_files_writes_nothing_of_its_own_into_the_store(program, how):
    if how == "reader":
        assert (
            program("from actorproc import ProcedureManager as M\nM('state', workers=1).start().stop()").returncode == 0
        )

    ended = program(WITHOUT_STANDARD_FILES.replace("{how}", how))

    assert (ended.returncode, ended.stdout) == (0, "/dev/null\n" * 3)


def test_a_handle_in_a_forked_copy_of_the_host_does_not_wait_for_ever(program):
    ended = program(
        "import asyncio, os, signal, warnings\n"
        "warnings.simplefilter('ignore', DeprecationWarning)\n"
        "from actorproc import ManagerStopped, Procedure, ProcedureManager, Status\n"
        "class Sleeps(Procedure):\n"
        "    def execute(self, ctx): return Status.sleep(600)\n"
        "class Ends(Procedure):\n"
        "    def execute(self, ctx): return Status.done('ended')\n"
        "async def wait(handle): return await handle\n"
        "with ProcedureManager('state', workers=1) as manager:\n"
        "    handle = manager.submit(Sleeps())\n"
        "    assert not handle.wait(0)\n"  # so it has a future
        "    known = manager.submit(Ends())\n"
        "    assert known.result() == 'ended'\n"
        "    pid = os.fork()\n"
        "    if not pid:\n"
        "        signal.alarm(30)\n"
        "        for use in (handle.result, handle.wait, handle.exception, handle.done, lambda: asyncio.run(wait(handle))):\n"
        "            try:\n"
        "                use()\n"
        "            except ManagerStopped as refused:\n"
        "                print(refused, flush=True)\n"
        "        assert known.result() == 'ended'\n"
        "        os._exit(0)\n"
        "    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0\n"
        "    assert not handle.wait(0)\n"
    )

    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.count("forked child") == 5


SESSION = """
from actorproc import ProcedureManager, Saga, step, procedure
from actorproc.executor import ProcedureExecutor
manager = ProcedureManager("state", workers=1).start()
@procedure
def double(number): return 2 * number

manager.run(double(21))
class Order(Saga):
    item: str
    @step
    def ship(self, ctx): return f"{self.item} shipped"

manager.run(Order("book"))
@procedure
def double(number): return 200 * number

manager.run(double(21))
executor = ProcedureExecutor(manager)
list(executor.map(lambda number: number + 1, [1, 2, 3]))
executor.shutdown()
manager.stop()
print("the" + " end")
exit()
"""


def test_it_works_at_the_prompt_of_a_real_terminal_where_classes_are_typed_and_typed_again(tmp_path):
    """Through a pty, as a person would; ctrl-C at the prompt reaches no worker."""
    main, secondary = pty.openpty()
    environment = os.environ | {"PYTHONPATH": str(HERE.parents[1]), "TERM": "dumb", "PYTHON_BASIC_REPL": "1"}
    with subprocess.Popen(
        [sys.executable, "-i", "-q"], stdin=secondary, stdout=secondary, stderr=secondary, cwd=tmp_path,
        env=environment, start_new_session=True,
    ) as prompt:  # fmt: skip
        os.close(secondary)
        shown = ""
        try:
            for line in SESSION.splitlines():
                shown += _until_prompt(main)
                os.write(main, line.encode() + b"\n")
            shown += _read(main, lambda text: "the end" in text)
            assert prompt.wait(30) == 0
        finally:
            prompt.kill()
            os.close(main)

    lines = shown.replace("\r", "").splitlines()
    assert [line for line in ("42", "'book shipped'", "4200", "[2, 3, 4]", "the end") if line not in lines] == [], shown
    assert "Traceback" not in shown


def _until_prompt(descriptor):
    return _read(descriptor, lambda text: text.endswith((">>> ", "... ")))


def _read(descriptor, is_enough):
    text, deadline = "", time.monotonic() + 30
    while not is_enough(text):
        assert time.monotonic() < deadline, text
        if select.select([descriptor], [], [], 0.1)[0]:
            try:
                text += os.read(descriptor, 4096).decode()
            except OSError:  # the other end is closed: the program has ended
                break
    return text


def test_an_interactive_console_inside_a_program_works_as_a_notebook_does(program):
    """`code.InteractiveInterpreter` runs each cell in a namespace of its own, which is no module of anybody."""
    ended = program(
        "import code\n"
        "cells = ['from actorproc import ProcedureManager, Saga, step',\n"
        "         'class Order(Saga):\\n    item: str\\n    @step\\n"
        "    def ship(self, ctx): return self.item + price()\\n',\n"
        "         'def price(): return \" for 3\"\\n',\n"
        "         'manager = ProcedureManager(\"state\", workers=1).start()',\n"
        "         'print(manager.run(Order(\"book\")))', 'manager.stop()']\n"
        "console = code.InteractiveInterpreter({'__name__': '__main__'})\n"
        "for cell in cells:\n"
        "    console.runsource(cell, symbol='exec')\n"
    )

    assert (ended.stdout, ended.stderr) == ("book for 3\n", "")


def test_tests_of_a_host_run_in_parallel_processes_each_with_an_engine(tmp_path):
    (tmp_path / "test_host.py").write_text(
        "import pytest\n"
        "from actorproc import ProcedureManager, procedure\n"
        "@procedure\n"
        "def double(number): return 2 * number\n"
        "@pytest.mark.parametrize('number', range(4))\n"
        "def test_double(number, tmp_path):\n"
        "    with ProcedureManager(tmp_path, workers=1) as manager:\n"
        "        assert manager.run(double(number)) == 2 * number\n"
    )

    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", "2", "-p", "no:cacheprovider", "test_host.py"], cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(HERE.parents[1])}, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip

    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "4 passed" in ended.stdout
