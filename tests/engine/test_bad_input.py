"""Wrong calls and wrong steps: each is told in a typed error, none harms the manager or the procedure after it."""

from __future__ import annotations

import logging
import math
import os
import re
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import actorproc
from actorproc import Context, LockKey, Procedure, RetryLater, Status, procedure
from actorproc.errors import (
    DuplicateProcedure,
    EngineError,
    InvalidId,
    InvalidStatus,
    ManagerStopped,
    ProcedureFailed,
    RemoteError,
    StateNotEncodable,
    StateTooLarge,
    UnknownProcedure,
    UsageError,
    WorkerCrashed,
)
from tests.kit.waiting import BOUND

pytestmark = pytest.mark.processes


@dataclass
class Good(Procedure):
    value: Any = "good"

    def execute(self, ctx):
        return Status.done(self.value)


@dataclass
class Wrong(Procedure):
    """Does what `STEPS` has under this name."""

    what: str

    def execute(self, ctx):
        return STEPS[self.what](ctx)


@procedure
def double(number: int) -> int:
    return 2 * number


class NoText(Exception):
    def __str__(self):
        raise RuntimeError("no text")


class Unprintable:
    def __repr__(self):
        raise RuntimeError("no repr")


def recurse(depth: int) -> int:
    return recurse(depth + 1)


def failing_children():
    yield Good()
    raise ValueError("the third child is missing")


def raises(error: Any):
    def step(ctx: Context):
        raise error() if callable(error) else error

    return step


def fork_and_return(ctx: Context):
    pid = os.fork()
    if pid == 0:
        return Status.done("the copy")
    return Status.done(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


def fork_and_raise(ctx: Context):
    pid = os.fork()
    if pid == 0:
        raise ValueError("the copy")
    return Status.done(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


def start_threads(ctx: Context):
    for _ in range(20):
        threading.Thread(target=time.sleep, args=(5,), daemon=True).start()
    return Status.done("started")


def log_by_hand(ctx: Context):
    for logger in (logging.getLogger(), ctx.log):
        logger.handle(logging.makeLogRecord({"msg": "no name\ud800", "levelno": 30.5}))
    return Status.done("logged")


def print_much(ctx: Context):
    sys.stdout.write("x" * 10_000_000)
    sys.stderr.write("\n".join(["y" * 80] * 100_000))
    return Status.done("printed")


def change_process(ctx: Context):
    os.chdir("/")
    os.umask(0)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.stdout.close()
    return Status.done("changed")


STEPS: dict[str, Any] = {
    "returns None": lambda ctx: None,
    "returns a text": lambda ctx: "done",
    "returns an exception": lambda ctx: ValueError("x"),
    "returns the class Status": lambda ctx: Status,
    "returns a function": lambda ctx: Status.done,
    "sleeps for ever": lambda ctx: Status.sleep(math.inf),
    "sleeps nan": lambda ctx: Status.sleep(math.nan),
    "sleeps backwards": lambda ctx: Status.sleep(-1),
    "goes on after no time": lambda ctx: Status.executing(after=math.nan),
    "acquires a number": lambda ctx: Status.executing(acquire=5),
    "acquires a text": lambda ctx: Status.executing(acquire=["a/b"]),
    "waits for a lone surrogate": lambda ctx: Status.wait("\ud800"),
    "waits for nothing": lambda ctx: Status.wait(""),
    "waits for too long a name": lambda ctx: Status.wait("é" * 200),
    "poisons a lone surrogate": lambda ctx: Status.poisoned(["\ud800"], "x"),
    "poisons a bad path": lambda ctx: Status.poisoned(["a//b"], "x"),
    "poisons without an error": lambda ctx: Status.poisoned(["k"], None),
    "retries in the past": raises(lambda: RetryLater(after=-1)),
    "retries at no time": raises(lambda: RetryLater(after=math.nan)),
    "retries never": raises(lambda: RetryLater(after=math.inf)),
    "retries at a text": raises(lambda: RetryLater(after="soon")),  # type: ignore[arg-type]
    "no children": lambda ctx: Status.suspended(None),
    "None for a child": lambda ctx: Status.suspended([None]),
    "a class for a child": lambda ctx: Status.suspended([Good]),
    "a function for a child": lambda ctx: Status.suspended([double]),
    "a child without a list": lambda ctx: Status.suspended(Good()),
    "twins": lambda ctx: Status.suspended([("twin", Good()), ("twin", Good())]),
    "a child with a bad id": lambda ctx: Status.suspended([("a b", Good())]),
    "a child like its parent": lambda ctx: Status.suspended([(ctx.id, Good())]),
    "a child with an id in use": lambda ctx: Status.suspended([("taken", Good())]),
    "a child that cannot be stored": lambda ctx: Status.suspended([Good(object())]),
    "failing children": lambda ctx: Status.suspended(failing_children()),
    "an output that cannot be kept": lambda ctx: Status.done(lambda: 1),
    "an output that is too large": lambda ctx: Status.done("x" * (17 << 20)),
    "asks for number 5": lambda ctx: ctx.query(5),
    "asks for nobody": lambda ctx: ctx.query("nobody"),
    "remembers under a number": lambda ctx: ctx.remember(5, lambda: 1),
    "remembers a lone surrogate": lambda ctx: ctx.remember("\ud800", lambda: 1),
    "remembers an object": lambda ctx: ctx.remember("key", object),
    "beats with a number": lambda ctx: ctx.heartbeat(0.5, 5),
    "beats without a number": lambda ctx: ctx.heartbeat(math.nan),
    "beats without end": lambda ctx: ctx.heartbeat(10**400),
    "beats with a word": lambda ctx: ctx.heartbeat("half"),
    "locks a lone surrogate": lambda ctx: Status.executing(acquire=[LockKey.write("\ud800")]),
    "recurses": lambda ctx: recurse(0),
    "exits": lambda ctx: sys.exit(3),
    "is interrupted": raises(KeyboardInterrupt),
    "closes the generator": raises(GeneratorExit),
    "has no text": raises(NoText),
    "has a lone surrogate": raises(ValueError("\ud800")),
    "has a name with a lone surrogate": raises(lambda: type("E", (Exception,), {"__qualname__": "E\udc80"})("x")),
    "has an unprintable argument": raises(lambda: ValueError(Unprintable())),
    "has a message of 10 MB": raises(lambda: ValueError("x" * 10_000_000)),
    "dies": lambda ctx: os._exit(7),
    "aborts": lambda ctx: os.abort(),
    "closes its descriptors": lambda ctx: os.closerange(3, 4096),
    "forks and returns": fork_and_return,
    "forks and raises": fork_and_raise,
    "starts threads": start_threads,
    "prints 10 MB": print_much,
    "changes its process": change_process,
    "logs a lone surrogate": lambda ctx: ctx.log.warning("\ud800") or Status.done("logged"),
    "logs a record made by hand": log_by_hand,
    "beats with a long message": lambda ctx: ctx.heartbeat(0.5, "x" * (70 << 20)) or Status.done("beaten"),
}


def check_next(manager: actorproc.ProcedureManager) -> None:
    """The manager is well, and the procedure after this one runs."""
    assert manager.run(Good()) == "good"
    assert manager.health().status == "running"


# ---------------------------------------------------------------- what a step may do wrong
WRONG_STEPS = {
    "InvalidStatus": {
        "returns None": "Wrong returned None where a Status is due",
        "returns a text": "returned 'done'",
        "returns an exception": "returned the exception ValueError",
        "returns the class Status": "returned the class Status",
        "returns a function": "returned Status.done, which was not called",
        "sleeps for ever": "finite and not negative, not inf",
        "sleeps nan": "finite and not negative, not nan",
        "sleeps backwards": "finite and not negative, not -1",
        "goes on after no time": "executing",
        "acquires a number": "a list of LockKey values, not 5",
        "acquires a text": "LockKey.write",
        "waits for a lone surrogate": "1 to 255 bytes",
        "waits for nothing": "1 to 255 bytes",
        "waits for too long a name": "1 to 255 bytes",
        "poisons a lone surrogate": "surrogate",
        "poisons a bad path": "empty segment",
        "poisons without an error": "an exception or a text, not None",
        "retries in the past": "finite and not negative, or None, not -1",
        "retries at no time": "not nan",
        "retries never": "not inf",
        "retries at a text": "not 'soon'",
        "no children": "iterable of children",
        "None for a child": "child 0 of Status.suspended is None",
        "a class for a child": "child 0",
        "a function for a child": "child 0",
        "a child without a list": r"write Status.suspended\(\[child\]\)",
        "twins": "two children of Status.suspended have the id 'twin'",
    },
    "InvalidId": {"a child with a bad id": "'a b' is not valid", "asks for number 5": "id 5 is not valid"},
    "UsageError": {
        "a child like its parent": "in use already",
        "a child with an id in use": "child id taken is in use already",
    },
    "UnknownProcedure": {"asks for nobody": "no procedure has the id 'nobody'"},
    "StateNotEncodable": {
        "a child that cannot be stored": "Good.value: a value of builtins.object cannot be kept",
        "an output that cannot be kept": "Wrong output: a function is code, which is never stored",
        "remembers an object": r"remember\('key'\)",
    },
    "StateTooLarge": {"an output that is too large": r"Wrong output takes 1782\d+ bytes; the limit is"},
    "TypeError": {
        "remembers under a number": "takes a text as its key, not 5",
        "remembers a lone surrogate": "takes a text as its key",
        "beats with a number": "is a text or None, not 5",
        "beats without end": "is a number from 0 to 1 or None, not 1000",
        "beats with a word": "is a number from 0 to 1 or None, not 'half'",
    },
    "ValueError": {
        "failing children": "the third child is missing",
        "beats without a number": "must be finite",
        "locks a lone surrogate": "holds a lone surrogate",
        "has a lone surrogate": r"\\ud800",
        "has an unprintable argument": "its text is not available",
        "has a message of 10 MB": "characters left out",
    },
    "NoText": {"has no text": "its text is not available: RuntimeError"},
    "E": {"has a name with a lone surrogate": "x"},
    "RecursionError": {"recurses": "maximum recursion depth"},
    "SystemExit": {"exits": "3"},
    "KeyboardInterrupt": {"is interrupted": ""},
    "GeneratorExit": {"closes the generator": ""},
}


@pytest.mark.parametrize("kind", WRONG_STEPS)
def test_a_wrong_step_fails_with_its_reason_and_the_next_procedure_runs(kind, open_manager):
    manager = open_manager(workers=1)
    manager.run(Good(), id="taken")
    pids = {worker.pid for worker in manager.workers()}

    for what, says in WRONG_STEPS[kind].items():
        handle = manager.submit(Wrong(what))
        failure = handle.exception(BOUND)

        assert isinstance(failure, ProcedureFailed), what
        assert isinstance(failure.cause, RemoteError), (what, failure)
        assert kind in failure.cause.type_name, (what, failure)
        assert failure.step == 1
        assert len(str(failure)) < 200_000
        assert re.search(says, str(failure.cause)), (what, failure)
        assert (handle.info().crashes, handle.info().attempt <= 1) == (0, True), what
        check_next(manager)
    assert {worker.pid for worker in manager.workers()} == pids, "a wrong status costs no worker"


@pytest.mark.parametrize("what", ["dies", "aborts", "closes its descriptors"])
def test_a_step_that_ruins_its_process_is_charged_and_the_next_procedure_runs(what, open_manager):
    manager = open_manager(workers=1)

    failure = manager.submit(Wrong(what)).exception(BOUND)

    assert isinstance(failure.cause, WorkerCrashed)
    assert "for the 3rd time in step 1" in str(failure.cause)
    check_next(manager)


@pytest.mark.parametrize(
    ("what", "output"),
    [
        ("forks and returns", 0),
        ("forks and raises", 1),
        ("starts threads", "started"),
        ("prints 10 MB", "printed"),
        ("changes its process", "changed"),
        ("logs a lone surrogate", "logged"),
        ("logs a record made by hand", "logged"),
        ("beats with a long message", "beaten"),
    ],
)
def test_a_step_with_side_effects_on_its_process_harms_nobody(what, output, open_manager):
    manager = open_manager(workers=1)

    assert manager.submit(Wrong(what)).result(BOUND) == output

    check_next(manager)
    assert manager.submit(Wrong(what)).result(BOUND) == output


# ---------------------------------------------------------------- what a caller may do wrong
def test_a_bad_id_is_refused_wherever_an_id_is_given(open_manager):
    manager = open_manager(workers=1)

    for bad in ("a" * 129, "é", "..", "", "a\0b", "a/b", "a\n", " a", "\ud800", 5, b"a", 1.5):
        calls = (
            lambda bad=bad: manager.submit(Good(), id=bad),
            lambda bad=bad: manager.submit_many([("fine", Good()), (bad, Good())]),
            lambda bad=bad: manager.get(bad),
            lambda bad=bad: manager.info(bad),
            lambda bad=bad: manager.steps(bad),
            lambda bad=bad: manager.abort(bad),
            lambda bad=bad: manager.list(after=bad),
            lambda bad=bad: manager.list(root=bad),
        )
        for call in calls:
            with pytest.raises(InvalidId, match="use 1 to 128 letters, digits or any of"):
                call()
    with pytest.raises(UnknownProcedure, match="fine"):
        manager.info("fine")
    check_next(manager)


def test_what_is_no_procedure_cannot_be_submitted(open_manager):
    manager = open_manager(workers=1)
    refused = {
        Good: "Good is a class; submit an object of it",
        double: "is a function; call it",
        None: "None is no procedure",
        "text": "is no procedure",
        Status.done(): "is no procedure",
        Procedure: "is a class",
    }

    for wrong, says in refused.items():
        with pytest.raises(UsageError, match=says):
            manager.submit(wrong)
        with pytest.raises(UsageError, match=says):
            manager.submit_many([Good(), wrong])
    for unprintable in (Unprintable(), Procedure()):
        with pytest.raises(UsageError, match="is no procedure"):
            manager.submit(unprintable)
    with pytest.raises(TypeError, match="pairs, not a tuple of 3"):
        manager.submit_many([("a", Good(), 1)])
    with pytest.raises(DuplicateProcedure, match="one"):
        manager.submit_many([("one", Good(1)), ("one", Good(2))])
    assert [info.id for info in manager.list()] == []
    check_next(manager)


def test_options_of_submit_are_checked(open_manager):
    manager = open_manager(workers=1)
    wrong = {
        "delay": [math.nan, math.inf, -1, "x", True, timedelta(seconds=-1), 1e300, 10**400, timedelta.max],
        "deadline": [
            *("x", math.nan, math.inf, 1e300, -(10**400), timedelta.max),
            datetime.min,  # noqa: DTZ901 - cannot be told in epoch seconds
        ],
        "priority": [10**30, -(10**30), "x", 1.5, None],
        "tags": ["abc", [5], ["x" * 1000], [None], ["\ud800"], [""]],
        "owner": [5, "", "\ud800", "x" * 5000],
    }

    for name, values in wrong.items():
        for value in values:
            with pytest.raises((TypeError, ValueError), match=name.rstrip("s")):
                manager.submit(Good(), **{name: value})

    assert manager.list() == []
    assert manager.submit(Good(), delay=timedelta(days=365_000)).wait(0.05) is False
    check_next(manager)


def test_filters_of_list_are_checked(open_manager):
    manager = open_manager(workers=1)

    for wrong in ({"limit": -1}, {"limit": "x"}, {"tag": 5}, {"owner": 5}, {"type_name": 5}, {"state": "NONE"}):
        with pytest.raises((TypeError, ValueError)):
            manager.list(**wrong)
    assert manager.list(limit=0) == []


def test_a_time_limit_of_a_wait_may_be_any_number(open_manager):
    manager = open_manager(workers=1)
    handle = manager.submit(Good())

    assert handle.result(math.inf) == "good"
    assert handle.wait(1e300) is True
    assert manager.submit(Good(), delay=60).wait(-1) is False
    for wrong in (math.nan, "x", True):
        with pytest.raises(TypeError, match="a number of seconds"):
            handle.result(wrong)


def test_a_state_that_cannot_be_kept_is_refused_by_class_and_field(open_manager):
    manager = open_manager(workers=1)
    cycle: list[Any] = []
    cycle.append(cycle)

    for value in (object(), lambda: 1, threading.Lock(), sys, Good, Unprintable(), {Unprintable(): 1}, cycle):
        with pytest.raises(StateNotEncodable, match=r"Good\.value"):
            manager.submit(Good(value))
    # Who says it hangs on whether another manager of this process permits more.
    told = r"Good (takes|has) 1782\d+ bytes; (the limit|Config\.max_state) is 16777216"
    with pytest.raises(StateTooLarge, match=told):
        manager.submit(Good("x" * (17 << 20)))
    assert manager.list() == []
    check_next(manager)


def test_parts_of_a_manager_that_are_none_are_refused_when_it_is_made(tmp_path):
    wrong = {
        "store": (5, "state", tmp_path),
        "clock": (5, time, object()),
    }

    for name, values in wrong.items():
        for value in values:
            with pytest.raises(TypeError, match=f"{name} is a"):
                actorproc.ProcedureManager(tmp_path / "state", **{name: value})


def test_a_manager_that_does_not_run_says_so(tmp_path):
    manager = actorproc.ProcedureManager(tmp_path / "state", workers=1)

    with pytest.raises(ManagerStopped, match="not started"):
        manager.submit(Good())
    with manager:
        handle = manager.submit(Good())
    calls = (
        lambda: manager.submit(Good()),
        lambda: manager.info(handle.id),
        manager.list,
        handle.info,
        lambda: manager.submit_many([Good()]),
    )
    for call in calls:
        with pytest.raises(ManagerStopped, match="stopped; call start"):
            call()
    assert manager.health().status == "stopped"


def test_settings_of_a_manager_are_checked(tmp_path):
    for wrong in (0, -1, 1.5, "2", True):
        with pytest.raises((TypeError, ValueError), match="workers"):
            actorproc.ProcedureManager(tmp_path, workers=wrong)
    for path in (None, 5, ""):
        with pytest.raises((TypeError, ValueError)):
            actorproc.ProcedureManager(path)


@pytest.mark.parametrize(
    ("path", "says"),
    [("file", "is no directory"), ("file/below", "Not a directory"), ("x" * 300, "name too long"), ("link", "link")],
)
def test_a_path_that_can_be_no_store_is_refused(path, says, tmp_path):
    (tmp_path / "file").write_text("precious")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")

    with pytest.raises(EngineError, match=says):
        actorproc.ProcedureManager(tmp_path / path, workers=1).start()

    assert (tmp_path / "file").read_text() == "precious"


def test_files_of_others_in_the_directory_are_left_alone(tmp_path, open_manager):
    (tmp_path / "notes.txt").write_text("precious")

    manager = open_manager(tmp_path, workers=1)

    check_next(manager)
    assert (tmp_path / "notes.txt").read_text() == "precious"


WITHOUT_RIGHTS = """
import os, sys
from actorproc import EngineError, ProcedureManager
import actorproc.api.home.assembly  # its files may be out of reach as well, afterwards, like the store's
import actorproc.store.lmdb.store
if os.geteuid() == 0:
    os.setgid(65534)
    os.setuid(65534)
try:
    ProcedureManager(sys.argv[1], workers=1).start()
except EngineError as error:
    print(error)
"""


def test_a_directory_without_permission_is_refused_with_what_to_do(tmp_path):
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o500)
    source = str(Path(actorproc.__file__).parents[1])

    told = subprocess.run(
        [sys.executable, "-c", WITHOUT_RIGHTS, str(closed / "state")],
        env={**os.environ, "PYTHONPATH": source},
        capture_output=True,
        text=True,
        timeout=BOUND,
        check=True,
    )

    assert "Permission denied" in told.stdout, told
    assert "permissions of its parents" in told.stdout or "this user may write" in told.stdout


# ---------------------------------------------------------------- what an earlier run may have left
def test_a_type_nobody_registers_is_parked_with_its_reason_and_goes_on_when_known(tmp_path, open_manager, until):
    manager = open_manager()
    manager.pause()
    manager.submit(Wrong("starts threads"), id="unknown")
    manager.stop()

    again = open_manager()
    info = again.info("unknown")
    assert (info.phase, info.state) == ("parked", "RUNNABLE")
    assert Wrong.type_name in info.reason
    assert [listed.id for listed in again.list()] == ["unknown"]
    again.resume()
    check_next(again)

    again.register(Wrong)
    assert again.get("unknown").result(BOUND) == "started"


class Mute(Exception):
    def __str__(self):
        raise Mute


@dataclass
class Closed(Procedure):
    """Cannot be loaded."""

    what: str

    @classmethod
    def load(cls, data):
        raise Mute if b"mute" in data else ValueError("not \udcff")

    def execute(self, ctx):
        return Status.done()


@pytest.mark.parametrize(("what", "says"), [("mute", "its text is not available"), ("surrogate", r"not \udcff")])
def test_a_state_that_is_refused_without_usable_words_is_parked_and_costs_no_worker(what, says, open_manager, until):
    manager = open_manager(workers=1)
    manager.run(Good())
    pids = {worker.pid for worker in manager.workers()}

    manager.submit(Closed(what), id="closed")

    until(lambda: manager.info("closed").phase == "parked")
    assert says in manager.info("closed").reason
    check_next(manager)
    assert {worker.pid for worker in manager.workers()} == pids


@dataclass
class Family(Procedure):
    size: int

    def execute(self, ctx):
        if ctx.step == 1:
            return Status.suspended(Good(number) for number in range(self.size))
        return Status.done(sum(outcome.output for outcome in ctx.children.values()))


def test_many_children_at_once_are_no_trouble(open_manager):
    manager = open_manager()

    assert manager.submit(Family(2_000)).result(60) == sum(range(2_000))
    check_next(manager)


def test_invalid_status_is_raised_where_the_mistake_is():
    with pytest.raises(InvalidStatus, match="soon"):
        RetryLater(after="soon")  # type: ignore[arg-type]
    assert RetryLater(after=timedelta(seconds=2)).after == 2.0


@pytest.mark.parametrize(
    "wrong",
    [
        {"config": {"spares": 0}},
        {"preload": "json"},
        {"preload": [5]},
        {"preload": 5},
        {"procedures": Procedure},
        {"procedures": 5},
        {"environment": "clients"},
        {"on_fatal": 5},
        {"on_event": 5},
        {"durability": "none"},
    ],
    ids=str,
)
def test_a_manager_that_is_made_wrongly_says_so_at_once(tmp_path, wrong):
    with pytest.raises((TypeError, ValueError), match=f"^{next(iter(wrong))} is "):
        actorproc.ProcedureManager(tmp_path, **wrong)


def test_a_lock_key_of_the_constructors_making_is_refused_and_the_manager_lives(open_manager):
    class Locked(Procedure):
        def lock_keys(self):
            return [LockKey("a", "write")]

        def execute(self, ctx):
            return Status.done()

    manager = open_manager()
    with pytest.raises(UsageError, match=r"LockKey\.write"):
        manager.submit(Locked())

    assert manager.submit(Good()).result(BOUND) == "good"


@pytest.mark.parametrize(
    ("workers", "most", "words"),
    [
        (0, None, "at least one worker"),
        (1000, None, "workers=1000: a machine has at most 999"),
        (8, 1000, "max_workers=1000: a machine has at most 999"),
        (8, 4, "less than workers=8"),
    ],
)
def test_a_number_of_workers_that_a_machine_cannot_have_is_refused(tmp_path, workers, most, words):
    with pytest.raises(ValueError, match=words):
        actorproc.ProcedureManager(tmp_path / "store", workers=workers, max_workers=most)

    assert list(tmp_path.iterdir()) == []


def test_a_machine_may_have_all_the_workers_that_there_are_slots_for(tmp_path):
    assert actorproc.ProcedureManager(tmp_path / "store", workers=999)._max_slots == 999
    assert actorproc.ProcedureManager(tmp_path / "store", workers=600)._max_slots == 999
