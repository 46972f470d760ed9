"""Errors that callers get: of the engine's own classes also at a root, documented ones for what cannot be read."""

from __future__ import annotations

import os
import threading
import time
import traceback
from dataclasses import dataclass, make_dataclass
from enum import Enum

import pytest

from actorproc import (
    ActorprocError,
    DeadlineExceeded,
    DeadlockDetected,
    Limits,
    LockTimeout,
    Procedure,
    ProcedureAborted,
    ProcedureManager,
    ProcedureParked,
    RemoteError,
    Status,
    StepTimeout,
    UnknownType,
    ValueNotDecodable,
    WaitTimeout,
    WorkerCrashed,
)
from actorproc.model.rows.records import ErrorInfo
from actorproc.report.failures import cause_of
from actorproc.store.memory import MemoryStore
from actorproc.testing.inline import InlineManager
from tests.kit.managers import LIGHT
from tests.kit.waiting import BOUND, wait_until


# ---------------------------------------------------------------- the class of a cause
@dataclass
class Leaf(Procedure):
    how: str

    limits = Limits(crashes=1, wall_time=0.5)

    def execute(self, ctx):
        if self.how == "crash":
            os.abort()
        if self.how == "timeout":
            time.sleep(BOUND)
        if self.how == "wait":
            return Status.wait("nothing", timeout=0.01)
        raise ValueError("plain")


@dataclass
class Inner(Procedure):
    how: str

    def execute(self, ctx):
        return Status.suspended([(f"leaf-{self.how}", Leaf(self.how))])


@dataclass
class Outer(Procedure):
    how: str

    def execute(self, ctx):
        return Status.suspended([(f"inner-{self.how}", Inner(self.how))])


def test_the_cause_at_a_root_is_of_the_members_class_with_its_crash_report_and_id(tmp_path):
    causes = {}
    with ProcedureManager(tmp_path / "s", workers=2, **LIGHT) as manager:
        for how in ("crash", "timeout", "wait", "plain"):
            failure = manager.submit(Outer(how), how).exception(BOUND)
            causes[how] = failure.cause
            assert f"leaf-{how}" in str(failure.cause)
            assert (failure.cause.procedure, failure.cause.step) == (f"leaf-{how}", 2 if how == "wait" else 1)
            own = manager.get(f"leaf-{how}").exception(BOUND).cause
            assert type(own) is type(failure.cause)
    assert {how: type(cause) for how, cause in causes.items()} == {
        "crash": WorkerCrashed,
        "timeout": StepTimeout,
        "wait": WaitTimeout,
        "plain": RemoteError,
    }
    assert causes["crash"].signal == "SIGABRT"
    assert "os.abort" in causes["crash"].stack or "execute" in causes["crash"].stack
    assert causes["crash"].duration is not None
    assert causes["timeout"].kind == "timeout"
    assert causes["plain"].type_name == "ValueError"


@pytest.mark.parametrize(
    "kind", [WorkerCrashed, StepTimeout, WaitTimeout, DeadlineExceeded, LockTimeout, DeadlockDetected]
)
def test_a_childs_engine_error_is_of_its_class(kind):
    cause = cause_of(ErrorInfo("child", kind.__name__, "leaf (Leaf) failed", procedure="leaf", step=3))
    assert type(cause) is kind
    assert (cause.procedure, cause.step) == ("leaf", 3)


@pytest.mark.parametrize("name", ["app.WorkerCrashed", "actorproc.errors.StepTimeout", "ValueError"])
def test_a_users_error_of_the_same_name_is_no_error_of_the_engine(name):
    assert type(cause_of(ErrorInfo("child", name, "it raised that itself"))) is RemoteError
    assert type(cause_of(ErrorInfo("error", name, "it raised that itself"))) is RemoteError


def test_an_error_is_printed_once():
    with InlineManager([Leaf]) as manager:
        waiting = manager.submit(Leaf("wait"), "waiting")
        manager.finish(waiting)
        plain = manager.submit(Leaf("plain"), "plain").exception(BOUND)
        aborted = manager.submit(Leaf("wait"), "aborted", delay=3600)
        manager.abort("aborted")
        for failure, text in (
            (waiting.exception(BOUND), "no signal for 'nothing' came in time"),
            (aborted.exception(BOUND), "aborted on request"),
        ):
            assert "".join(traceback.format_exception(failure)).count(text) == 1
        assert isinstance(aborted.exception(BOUND), ProcedureAborted)
        printed = "".join(traceback.format_exception(plain))
        assert printed.count("direct cause") == 0
        assert printed.count("ValueError: plain") == 2  # in the headline, and at the end of the remote traceback


# ---------------------------------------------------------------- outputs whose classes changed
class Color(Enum):
    RED = "red"
    BLUE = "blue"


def _dataclass(name, *fields):
    made = make_dataclass(name, fields)
    made.__module__ = __name__
    return made


def _enum(*members):
    made = Enum("Color", {member.upper(): member for member in members})
    made.__module__, made.__qualname__ = __name__, "Color"
    return made


def _buy(value, *uses):
    class Buy(Procedure):
        def execute(self, ctx):
            return Status.done(value)

    Buy.uses = uses
    Buy.__module__, Buy.__qualname__, Buy.type_name = __name__, "Buy", "shop.Buy"
    return Buy


RECEIPT = _dataclass("Receipt", ("total", int), ("memo", str))
CHANGES = {
    "a field was removed": (RECEIPT(5, "x"), [RECEIPT], [_dataclass("Receipt", ("total", int))]),
    "a class was renamed": (RECEIPT(5, "x"), [RECEIPT], [_dataclass("Bill", ("total", int), ("memo", str))]),
    "a class is not named any more": ([RECEIPT(5, "x")], [RECEIPT], []),
    "a member of an enum was renamed": (Color.RED, [Color], [_enum("crimson", "blue")]),
    "a class became an enum": (RECEIPT(5, "x"), [RECEIPT], [_enum("red")]),
    "deep inside": ({"a": [(RECEIPT(5, "x"),)]}, [RECEIPT], [_dataclass("Receipt", ("total", int))]),
}


@pytest.mark.parametrize("change", CHANGES)
def test_an_output_whose_classes_changed_is_a_documented_error_that_names_the_procedure(change):
    value, before, after = CHANGES[change]
    store = MemoryStore()
    buy = _buy(value, *before)
    with InlineManager([buy], store=store) as manager:
        assert manager.run(buy(), "b1", timeout=BOUND) == value
    again = _buy(value, *after)
    with InlineManager([again], store=store) as manager:
        for call in (
            lambda: manager.get("b1").result(BOUND),
            lambda: manager.submit(again(), "b1").result(BOUND),
            lambda: manager.run(again(), "b1", timeout=BOUND),
        ):
            with pytest.raises(
                ValueNotDecodable, match=r"output of b1 \(shop.Buy\).*changed since.*ask again"
            ) as caught:
                call()
            assert isinstance(caught.value, ActorprocError)
            assert isinstance(caught.value, ValueError)
        assert manager.get("b1").exception(BOUND) is None
    with InlineManager([], store=store) as manager, pytest.raises(UnknownType, match=r"output of b1 .*'shop.Buy'"):
        manager.get("b1").result(BOUND)
    with InlineManager([_buy(value, *before)], store=store) as manager:
        assert manager.get("b1").result(BOUND) == value


@dataclass
class Asks(Procedure):
    def execute(self, ctx):
        return Status.wait("go") if ctx.event is None else Status.done()


@dataclass
class Reads(Procedure):
    """Reads what its child gave."""

    def execute(self, ctx):
        if ctx.step == 1:
            return Status.suspended([("child", _buy(RECEIPT(5, "x"), RECEIPT)()), ("other", Asks())])
        return Status.done([child.output for child in ctx.children.values()])


def test_a_procedure_whose_step_meets_such_a_value_is_parked_and_its_callers_are_told():
    store = MemoryStore()
    with InlineManager([Reads, Asks, _buy(RECEIPT(5, "x"), RECEIPT)], store=store, workers=2) as manager:
        manager.submit(Reads(), "reads")
        wait_until(lambda: manager.info("reads").children == {"SUCCESS": 1, "WAITING": 1})
    changed = _buy(None, _dataclass("Receipt", ("total", int)))
    with InlineManager([Reads, Asks, changed], store=store) as manager:
        manager.signal("other", 1)
        with pytest.raises(ProcedureParked, match="has a field 'memo' that the class does not have"):
            manager.get("reads").exception(BOUND)


# ---------------------------------------------------------------- the phase up to the end
class HeldStore(MemoryStore):
    """A store whose commits wait while it is held."""

    def __init__(self) -> None:
        super().__init__()
        self.free = threading.Event()
        self.free.set()
        self.waits = threading.Event()

    def commit(self, writes, epoch, batch=0):
        if not self.free.is_set():
            self.waits.set()
        assert self.free.wait(BOUND)
        super().commit(writes, epoch, batch)


@dataclass
class Ends(Procedure):
    fails: bool = False

    def execute(self, ctx):
        GO.wait(BOUND)
        if self.fails:
            raise ValueError("it fails")
        return Status.done()


GO = threading.Event()


@pytest.mark.parametrize("fails", [False, True])
def test_a_procedure_is_running_until_its_end_is_stored(fails):
    store = HeldStore()
    GO.clear()
    with InlineManager([Ends], store=store) as manager:
        handle = manager.submit(Ends(fails), "p")
        wait_until(lambda: manager.info("p").phase == "running")
        store.free.clear()
        GO.set()
        assert store.waits.wait(BOUND)
        try:
            for _ in range(20):
                info = manager.info("p")
                assert (info.state, info.phase) == ("RUNNABLE", "running")
                assert [found.phase for found in manager.list()] == ["running"]
                assert manager.why("p").kind == "running"
        finally:
            store.free.set()
        assert (handle.exception(BOUND) is None) is not fails
        assert manager.info("p").phase == "done"
