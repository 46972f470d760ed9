"""`around_step`: the program's own context manager around each attempt of a step."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from actorproc import Config, Limits, Procedure, ProcedureExecutor, ProcedureManager, RetryPolicy, Status
from actorproc.cli.main import main
from actorproc.errors import WorkerBootFailed
from actorproc.procedure.authoring.context import StopStep
from actorproc.workers.child.runtime.around_step import AroundStep
from tests.kit.procedures import Order
from tests.kit.waiting import wait_until

HOOKS = r"""
import contextvars
import functools
import os
from contextlib import contextmanager

inside = contextvars.ContextVar("inside", default="nothing")


@contextmanager
def around(ctx):
    found = inside.get()
    inside.set(f"{ctx.step_name or ctx.step}.{ctx.attempt}")
    error = None
    try:
        yield
    except BaseException as raised:
        error = type(raised).__name__
        raise
    finally:
        with open(os.environ["HOOK_FILE"], "a") as file:
            file.write(f"{found} {ctx.mode.name} {ctx.step_name or ctx.step}.{ctx.attempt} {error}\n")


@contextmanager
def raises_on_entry(ctx):
    raise LookupError("no tracker")
    yield


@contextmanager
def raises_on_exit(ctx):
    yield
    raise LookupError("no tracker")


class Namespace:
    around = staticmethod(around)


async def coroutine(ctx): ...

def generator(ctx):
    yield

number = 7
"""


@pytest.fixture
def hooks(tmp_path, monkeypatch):
    """A module that workers find, and the lines that its hook has written."""
    name = f"hooks_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(HOOKS.replace("\\\\n", "\n"))
    monkeypatch.syspath_prepend(tmp_path)
    file = tmp_path / "lines"
    file.touch()
    monkeypatch.setenv("HOOK_FILE", str(file))
    yield name, lambda: file.read_text().splitlines()
    sys.modules.pop(name, None)


class Stone(Order):
    """Is undone after two attempts of its second step."""

    retry = RetryPolicy(max_attempts=2, base=0.001, jitter=0.0, retry_on=(ValueError,))
    item: str = "stone"


@dataclass
class Chain(Procedure):
    """Has steps that need no record of their own."""

    stage: int = 0

    def execute(self, ctx):
        self.stage += 1
        return Status.executing(persist=False) if self.stage < 3 else Status.done(self.stage)


@dataclass
class Waits(Procedure):
    """Is asked before it is aborted; a wait that takes too long calls it."""

    def execute(self, ctx):
        return Status.wait("never", timeout=0.01)

    def on_timeout(self, ctx):
        return Status.done("late")


@dataclass
class Leaks(Procedure):
    """Sets what the hook has set, and waits for the others."""

    limits = Limits(threads=8)
    module: str
    other: int

    def execute(self, ctx):
        inside = sys.modules[self.module].inside
        before = inside.get()
        inside.set(f"leaked by {self.other}")
        time.sleep(0.01)
        return Status.done(before)


@dataclass
class Awaits(Procedure):
    """The same in a task; one of them waits for its cancellation."""

    limits = Limits(grace=60)
    module: str
    is_long: bool = False

    async def execute(self, ctx):
        inside = sys.modules[self.module].inside
        before = inside.get()
        inside.set("leaked")
        if self.is_long:
            Path(f"{os.environ['HOOK_FILE']}.long").touch()  # noqa: ASYNC240 - a file is all that is shared
        await asyncio.sleep(600 if self.is_long else 0.01)
        return Status.done([before, inside.get()])


@pytest.mark.processes
def test_each_attempt_step_and_undo_is_run_inside_and_its_exception_is_seen(hooks, open_manager):
    name, lines = hooks
    manager = open_manager(workers=1, around_step=f"{name}:Namespace.around")

    manager.submit(Stone(), "order").wait(60)
    assert manager.run(Chain(), timeout=60) == 3
    assert manager.run(Waits(), timeout=60) == "late"
    with ProcedureExecutor(manager) as executor:
        assert executor.submit(len, "abc").result(60) == 3

    assert lines() == [
        "nothing EXECUTE pay.1 None",
        "nothing EXECUTE ship.1 ValueError",
        "nothing EXECUTE ship.2 ValueError",
        "nothing ROLLBACK pay.1 None",
        "nothing EXECUTE 1.1 None",
        "nothing EXECUTE 2.1 None",
        "nothing EXECUTE 3.1 None",
        "nothing EXECUTE 1.1 None",
        "nothing ON_TIMEOUT 2.1 None",
        "nothing EXECUTE 1.1 None",
    ]


@pytest.mark.processes
def test_what_a_step_leaves_in_its_context_is_not_there_for_the_next_one(hooks, open_manager):
    name, lines = hooks
    manager = open_manager(workers=1, around_step=f"{name}:around")

    handles = manager.submit_many([Leaks(name, number) for number in range(24)])

    assert {handle.result(60) for handle in handles} == {"1.1"}
    assert {line.split()[0] for line in lines()} == {"nothing"}


@pytest.mark.processes
def test_async_steps_are_run_inside_in_their_own_tasks_also_one_that_is_cancelled(hooks, open_manager, tmp_path):
    name, lines = hooks
    manager = open_manager(workers=1, around_step=f"{name}:around")

    long = manager.submit(Awaits(name, is_long=True))
    wait_until((tmp_path / "lines.long").exists)
    beside = manager.submit_many([Awaits(name) for _ in range(8)])
    assert [handle.result(60) for handle in beside] == [["1.1", "leaked"]] * 8
    manager.abort(long.id)
    assert long.wait(60)
    assert manager.run(Awaits(name), timeout=60) == ["1.1", "leaked"]

    ended = ["nothing EXECUTE 1.1 None"]
    assert lines() == [*ended * 8, "nothing EXECUTE 1.1 CancelledError", *ended]


@pytest.mark.processes
@pytest.mark.parametrize("hook", ["raises_on_entry", "raises_on_exit"])
def test_what_the_hook_raises_is_logged_or_fails_the_step(hooks, open_manager, caplog, hook):
    name, _ = hooks
    manager = open_manager(workers=1, around_step=f"{name}:{hook}")

    assert [manager.run(Chain(), timeout=60) for _ in range(3)] == [3, 3, 3]
    wait_until(lambda: "around_step" in caplog.text)
    manager.stop()

    told = [record for record in caplog.records if "around_step" in record.getMessage()]
    assert len(told) == 1  # nine steps within ten seconds
    assert (told[0].levelname, told[0].name) == ("ERROR", f"actorproc.procedure.{Chain.type_name}")
    assert "LookupError: no tracker" in told[0].exc_text


@pytest.mark.processes
@pytest.mark.parametrize("hook", ["raises_on_entry", "raises_on_exit"])
def test_it_fails_the_step_where_that_is_asked_for(hooks, open_manager, hook):
    name, _ = hooks
    manager = open_manager(workers=1, around_step=f"{name}:{hook}", around_step_errors="fail")

    handle = manager.submit(Quick())
    handle.wait(60)

    assert manager.info(handle.id).error.message == "no tracker"


@dataclass
class Quick(Procedure):
    retry = RetryPolicy(max_attempts=1)

    def execute(self, ctx):
        return Status.done()


@pytest.mark.processes
@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("no_such_module_anywhere:f", "no_such_module_anywhere"),
        ("{}:missing", "missing"),
        ("{}:number", "function that makes a context manager"),
        ("{}:coroutine", "function that makes a context manager"),
        ("{}:generator", "without @contextmanager"),
    ],
)
def test_a_hook_that_cannot_be_loaded_is_an_error_of_the_start(hooks, open_manager, function, said):
    named = function.format(hooks[0])

    with pytest.raises(WorkerBootFailed, match="around_step") as raised:
        open_manager(workers=1, around_step=named)

    assert said in str(raised.value)


@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        (len, TypeError, "name of a function"),
        (b"a:b", TypeError, "name of a function"),
        ("module", ValueError, "module:function"),
        ("module:", ValueError, "module:function"),
        (":function", ValueError, "module:function"),
        ("a.py:b", None, ""),
        ("a-b:c", ValueError, "module:function"),
        ("a:b:c", ValueError, "module:function"),
        ("__main__:hook", ValueError, "put it into a module"),
    ],
)
def test_a_name_that_is_none_is_told_where_it_is_given(tmp_path, given, error, said):
    if error is None:
        ProcedureManager(tmp_path, around_step=given)
        return
    with pytest.raises(error, match=said):
        ProcedureManager(tmp_path, around_step=given)
    with pytest.raises(ValueError, match="around_step_errors"):
        ProcedureManager(tmp_path, around_step_errors="raise")


@pytest.mark.processes
def test_without_a_hook_a_worker_loads_nothing_of_it(open_manager):
    manager = open_manager(workers=1)

    with ProcedureExecutor(manager) as executor:  # not a class of this module, which loads it
        loaded = executor.submit(eval, "list(__import__('sys').modules)").result(60)

    words = ("around_step", "opentelemetry", "sentry", "structlog", "prometheus", "actorproc.logging")
    assert [name for name in loaded if any(word in name for word in words)] == []


HANGS_AT_EXIT = """
import atexit, threading

def hang():
    open({file!r}, "a").write("x")
    threading.Event().wait()

atexit.register(hang)
"""


@pytest.mark.processes
def test_an_exit_hook_that_hangs_ends_with_its_worker_and_is_charged_to_nothing(open_manager, tmp_path, monkeypatch):
    name, file = f"exporter_{tmp_path.name.replace('-', '_')}", tmp_path / "left"
    (tmp_path / f"{name}.py").write_text(HANGS_AT_EXIT.format(file=str(file)))
    monkeypatch.syspath_prepend(tmp_path)
    events = []
    config = Config(spares=0, recycle_steps=1)
    manager = open_manager(workers=1, preload=[name], config=config, on_event=events.append)

    assert [manager.run(Chain(), timeout=60) for _ in range(2)] == [3, 3]
    wait_until(lambda: [event.kind for event in events].count("worker-recycled") == 2)
    manager.stop()

    assert file.read_text().startswith("xx")  # SDKs flush there, and a collector may be down
    assert "worker-died" not in {event.kind for event in events}


# ---------------------------------------------------------------- in this process
class Log:
    """Stands for a context: keeps what is logged."""

    def __init__(self):
        self.log = self
        self.errors = []

    def error(self, text, *args, exc_info):
        self.errors.append((text % args, exc_info))


def around_with(make, monkeypatch, *, fails=False):
    monkeypatch.setattr(sys.modules[__name__], "hook_under_test", make, raising=False)
    monkeypatch.setitem(sys.modules, "around_step_test", sys.modules[__name__])
    return AroundStep("around_step_test:hook_under_test", fails=fails)


@contextmanager
def swallows(ctx):
    with suppress(BaseException):
        yield


@contextmanager
def replaces(ctx):
    try:
        yield
    except BaseException as error:
        raise OSError("another") from error


def fail(error):
    raise error


@pytest.mark.parametrize("make", [swallows, replaces])
@pytest.mark.parametrize("error", [ValueError("own"), SystemExit(3), StopStep(), KeyboardInterrupt()], ids=repr)
@pytest.mark.parametrize("fails", [False, True])
def test_the_error_of_a_step_stays_its_error(monkeypatch, make, error, fails):
    ctx = Log()

    with pytest.raises(type(error)) as raised:
        around_with(make, monkeypatch, fails=fails).run(ctx, lambda: fail(error))

    assert raised.value is error
    assert len(ctx.errors) == (make is replaces)


class NoManager:
    pass


class Stops:
    """Is told to stop while it is entered or left."""

    def __init__(self, at):
        self.at = at

    def __enter__(self):
        if self.at == "entry":
            raise StopStep

    def __exit__(self, *_):
        if self.at == "exit":
            raise StopStep


@pytest.mark.parametrize("at", ["entry", "exit"])
@pytest.mark.parametrize("attempt", [lambda: 1, lambda: fail(ValueError("own"))], ids=["ends", "raises"])
def test_a_request_to_stop_passes(monkeypatch, at, attempt):
    ctx = Log()

    with pytest.raises(StopStep):
        around_with(lambda _: Stops(at), monkeypatch).run(ctx, attempt)

    assert ctx.errors == []


def test_errors_of_a_broken_hook_are_told_now_and_then(monkeypatch):
    now, ctx = [100.0], Log()
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    around = around_with(lambda _: NoManager(), monkeypatch)

    assert [around.run(ctx, lambda: 7) for _ in range(5)] == [7] * 5
    now[0] += 11
    around.run(ctx, lambda: 7)

    first, second = ctx.errors
    assert "which is no context manager" in str(first[1])
    assert "(4 errors of it before this one were not logged)" in second[0]


# ---------------------------------------------------------------- the command
@pytest.mark.parametrize("given", ["nothing", "__main__:f", "a:b c"])
def test_a_name_of_a_hook_that_is_none_is_told_by_the_command(given, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["run", "shop", "--around-step", given])

    assert ended.value.code == 2
    assert "--around-step" in capsys.readouterr().err


def test_a_manager_of_its_own_takes_no_hook_from_the_command(tmp_path, monkeypatch, capsys):
    (tmp_path / "made_by_itself.py").write_text(
        "from actorproc import ProcedureManager\nmanager = ProcedureManager('state')\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))

    assert main(["run", "made_by_itself", "--around-step", "a:b"]) == 2
    assert "--around-step out" in capsys.readouterr().err
