"""Waiting for what is parked: calls say so after a grace, callbacks and futures wait on, and the log tells of both."""

from __future__ import annotations

import asyncio
import logging
import math
import subprocess
import sys
import textwrap
import threading
import time
from dataclasses import dataclass, field

import pytest

from actorproc import (
    Config,
    EngineError,
    LockKey,
    ManagerStopped,
    Procedure,
    ProcedureClient,
    ProcedureManager,
    ProcedureParked,
    ResultTimeout,
    Saga,
    Status,
    as_completed,
    step,
)
from actorproc.store.memory import MemoryStore
from actorproc.testing.inline import InlineManager
from tests.kit.managers import LIGHT
from tests.kit.waiting import BOUND, outcome_of, wait_until

SOON = Config(spares=0, parked_grace=0.0)


@dataclass
class Child(Procedure):
    key: str = ""

    def lock_keys(self):
        return [LockKey.write(self.key)] if self.key else []

    def execute(self, ctx):
        return Status.wait("go") if ctx.event is None else Status.done("child")

    def rollback(self, ctx):
        return None


@dataclass
class Other(Child):
    """As a child, of a class that is known in the second life."""


@dataclass
class Runs(Procedure):
    """A child that needs no signal."""

    key: str = ""

    def lock_keys(self):
        return [LockKey.write(self.key)] if self.key else []

    def execute(self, ctx):
        return Status.done("ran")


@dataclass
class Parent(Procedure):
    children: list[str]
    wait: str = "all"
    max_parallel: int | None = None

    uses = (Child, Other, Runs)

    def execute(self, ctx):
        if ctx.step > 1:
            return Status.done(sorted(ctx.children))
        made = []
        for n, word in enumerate(self.children):
            kind, _, key = word.partition(":")
            made.append((f"{ctx.id}.{n}", {"child": Child, "other": Other, "runs": Runs}[kind](key)))
        return Status.suspended(made, wait=self.wait, max_parallel=self.max_parallel)

    def rollback(self, ctx):
        return None


@dataclass
class Grand(Procedure):
    def execute(self, ctx):
        return Status.suspended([("middle", Parent(["child"]))]) if ctx.step == 1 else Status.done()


KNOWN = [Parent, Other, Runs, Grand]


class KnownParent(Parent):
    """The parent without its `uses`: the class of the child is not known with it."""

    uses = ()
    type_name = Parent.type_name


def second_life(store, *classes, **options):
    return InlineManager(classes, store=store, config=options.pop("config", SOON), **options)


def left_behind(*roots):
    """A store with these, each as far as it goes by itself."""
    store = MemoryStore()
    with InlineManager([*KNOWN, Child], store=store, workers=2) as manager:
        for name, root in roots:
            manager.submit(root, name)
        wait_until(lambda: all(info.phase in {"waiting", "suspended", "done", "locked-out", "queued"} for info in
                               manager.list()) and manager.list(phase="waiting"))  # fmt: skip
    return store


def told(call):
    """What a call raises about a procedure that is parked."""
    error = outcome_of(call)
    assert isinstance(error, ProcedureParked), error
    assert isinstance(error, EngineError)
    assert error.id in str(error)
    assert error.member in str(error)
    assert error.reason in str(error)
    assert error.repair in str(error)
    return error


# ---------------------------------------------------------------- which calls
CALLS = {
    "result": lambda manager, name: manager.get(name).result(),
    "result with a limit": lambda manager, name: manager.get(name).result(BOUND),
    "exception": lambda manager, name: manager.get(name).exception(),
    "wait": lambda manager, name: manager.get(name).wait(),
    "wait with a limit": lambda manager, name: manager.get(name).wait(BOUND),
    "await": lambda manager, name: asyncio.run(_awaited(manager.get(name))),
    "submit again": lambda manager, name: manager.submit(Other(), name).result(),
    "run": lambda manager, name: manager.run(Other(), name),
}


async def _awaited(handle):
    return await handle


@pytest.mark.parametrize("call", CALLS)
def test_every_call_that_waits_for_a_parked_procedure_says_so(call):
    store = left_behind(("job", Other()))
    with second_life(store) as manager:
        # Submitting it registers the class; it is refused then, and parked for that.
        if call in {"submit again", "run"}:
            manager._types.register_loader(Other.type_name, _refuses)
            manager.signal("job", 1)
        error = told(lambda: CALLS[call](manager, "job"))
        assert (error.id, error.member) == ("job", "job")


def _refuses(data):
    raise ValueError("it takes no old states")


def test_a_class_that_is_registered_later_lets_it_go_on():
    store = left_behind(("job", Other()))
    with second_life(store) as manager:
        handle = manager.get("job")
        told(handle.result)
        manager.register(Other)
        manager.signal("job", 1)
        assert handle.result(BOUND) == "child"  # the same handle


def test_another_procedure_of_the_same_id_is_parked_anew():
    store = left_behind(("job", Other()))
    with second_life(store) as manager:
        manager._types.register_loader(Other.type_name, _refuses)
        manager.signal("job", 1)
        told(lambda: manager.get("job").result())
        assert manager.bypass("job", force=True)
        assert manager.get("job").wait(BOUND)
        assert manager.delete("job")
        again = manager.submit(Other(), "job")
        told(again.result)


# ---------------------------------------------------------------- which procedures
TREES = {
    "a child": (Parent(["child"]), "root", "root.0"),
    "one of its children": (Parent(["other", "child", "runs"]), "root", "root.1"),
    "any of one": (Parent(["child"], wait="any"), "root", "root.0"),
    "each of one": (Parent(["child"], wait="each"), "root", "root.0"),
    "a grandchild": (Grand(), "root", "middle.0"),
    "a sibling that max_parallel keeps back": (Parent(["child", "runs"], max_parallel=1), "root.1", "root.0"),
    "a sibling that waits for its lock": (Parent(["child:a", "runs:a"]), "root.1", "root.0"),
}


@pytest.mark.parametrize("tree", TREES)
def test_what_waits_for_a_parked_member_of_its_tree_says_which(tree):
    root, waited, member = TREES[tree]
    with second_life(left_behind(("root", root)), KnownParent, Other, Runs, Grand) as manager:
        error = told(lambda: manager.get(waited).result())
        assert (error.id, error.member) == (waited, member)
        assert "no class is registered" in error.reason


MOVING = {
    "any of two": (Parent(["child", "other"], wait="any"), ["root.0", "root.1"]),
    "each of two": (Parent(["child", "other"], wait="each"), ["root.0", "root.1"]),
}


@pytest.mark.parametrize("tree", MOVING)
def test_what_can_go_on_without_the_parked_member_is_waited_for(tree):
    root, (parked, moving) = MOVING[tree]
    with second_life(left_behind(("root", root)), KnownParent, Other, Runs) as manager:
        told(lambda: manager.get(parked).result())
        handle = manager.get("root")
        with pytest.raises(ResultTimeout):
            handle.result(0.2)
        manager.signal(moving, 1)
        wait_until(lambda: manager.info(moving).phase == "done")
        # It has what it waited for, and its end waits for nothing but the parked child that it leaves.
        outcome = outcome_of(lambda: manager.get("root").result())
        assert outcome == [moving] or isinstance(outcome, ProcedureParked)


def test_what_becomes_parked_behind_a_wait_ends_it():
    store = left_behind(("root", Parent(["child", "other"])))
    with second_life(store, KnownParent, Other, Runs, Child) as manager:
        manager._types.register_loader("nothing", _refuses)
        waiting = manager.get("root")
        answers = []
        thread = threading.Thread(target=lambda: answers.append(outcome_of(waiting.result)))
        thread.start()
        manager._types._registry._runtimes.pop(Child.type_name)
        manager._types.register_loader(Child.type_name, _refuses)
        manager.signal("root.0", 1)
        thread.join(BOUND)
    assert isinstance(answers[0], ProcedureParked)
    assert (answers[0].member, "takes no old states" in answers[0].reason) == ("root.0", True)


class Two(Saga):
    done: list[str] = field(default_factory=list)
    type_name = "app.Two"

    @step
    def one(self, ctx):
        self.done.append("one")

    @one.undo
    def un_one(self, ctx):
        self.done.remove("one")

    @step
    def two(self, ctx):
        return Status.wait("go")

    @step
    def three(self, ctx):
        return "done"


class Renamed(Saga):
    done: list[str] = field(default_factory=list)
    type_name = "app.Two"

    @step
    def one(self, ctx):
        """As before."""

    @step
    def second(self, ctx):
        """It was called otherwise."""


def test_a_renamed_step_is_told_with_its_name():
    store = MemoryStore()
    with InlineManager([Two], store=store) as manager:
        manager.submit(Two(), "job")
        wait_until(lambda: manager.info("job").phase == "waiting")
    with second_life(store, Renamed) as manager:
        manager.signal("job", 1)
        error = told(lambda: manager.get("job").result())
        assert "three" in error.reason
        assert "start the manager again" in error.repair


def test_a_tree_whose_undo_needs_the_parked_member_says_so():
    store = MemoryStore()
    with InlineManager([Two], store=store) as manager:
        manager.submit(Two(), "job")
        wait_until(lambda: manager.info("job").phase == "waiting")
    with second_life(store) as manager:
        manager.abort("job", force=True)
        wait_until(lambda: manager.info("job").phase == "parked")
        error = told(lambda: manager.get("job").result())
        assert error.member == "job"
        manager.register(Two)
        assert manager.get("job").exception(BOUND).state == "ROLLEDBACK"


# ---------------------------------------------------------------- grace, time limits, patience
def test_the_grace_is_counted_by_the_managers_clock_from_its_start():
    store = left_behind(("job", Other()))
    with second_life(store, config=Config(spares=0)) as manager:
        handle = manager.get("job")
        with pytest.raises(ResultTimeout, match=r"job has not ended within 0.1 s: it is parked at step 2 \(no class"):
            handle.result(0.1)
        answers = []
        thread = threading.Thread(target=lambda: answers.append(outcome_of(handle.result)))
        thread.start()
        manager.clock.advance(4.0)
        thread.join(0.2)
        assert not answers
        manager.clock.advance(2.0)
        thread.join(BOUND)
        assert isinstance(answers[0], ProcedureParked)
        told(handle.result)  # from then on at once


def test_a_virtual_clock_is_moved_to_the_end_of_the_grace():
    store = left_behind(("job", Other()))
    with second_life(store, config=Config(spares=0, parked_grace=3600.0)) as manager:
        began = time.monotonic()
        with pytest.raises(ProcedureParked):
            manager.finish(manager.get("job"))
        assert time.monotonic() - began < BOUND


def test_without_a_limit_of_the_grace_a_call_waits():
    store = left_behind(("job", Other()))
    with second_life(store, config=Config(spares=0, parked_grace=math.inf)) as manager:
        manager.clock.advance(1e6)
        assert not manager.get("job").wait(0.2)


def test_a_patient_call_waits_for_the_class():
    store = left_behind(("job", Other()))
    with second_life(store) as manager:
        handle = manager.get("job")
        told(handle.result)
        assert not handle.wait(0.1, wait_parked=True)
        answers = []
        waiting = threading.Thread(target=lambda: answers.append(handle.result(BOUND, wait_parked=True)))
        waiting.start()
        manager.register(Other)
        manager.signal("job", 1)
        waiting.join(BOUND)
        assert answers == ["child"]


@pytest.mark.parametrize("grace", [-1, "5", True, None, math.nan])
def test_a_grace_that_is_no_span_of_time_is_refused(grace):
    with pytest.raises(ValueError, match="parked_grace"):
        Config(parked_grace=grace)


TIMEOUTS = {
    "result": lambda manager, handle: handle.result(0.05),
    "exception": lambda manager, handle: handle.exception(0.05),
    "run": lambda manager, handle: manager.run(Other(), handle.id, timeout=0.3),
    "as_completed": lambda manager, handle: list(as_completed([handle], timeout=0.05)),
}


@pytest.mark.parametrize("call", TIMEOUTS)
def test_a_time_limit_that_passed_says_how_the_procedure_stands(call):
    with InlineManager([Other]) as manager:
        handle = manager.submit(Other(), "job")
        wait_until(lambda: handle.info().phase == "waiting")
        with pytest.raises(TimeoutError) as caught:
            TIMEOUTS[call](manager, handle)
    error = caught.value
    assert (error.id, error.phase, error.step, error.reason) == ("job", "waiting", 2, "for the event 'go'")
    assert "waiting at step 2 (for the event 'go')" in str(error)


def test_a_watch_that_waits_in_vain_says_what_it_saw_last():
    with InlineManager([Other]) as manager:
        manager.submit(Other(), "job")
        wait_until(lambda: manager.info("job").phase == "waiting")
        with manager.watch("job") as watch:
            assert watch.next(BOUND).phase == "waiting"
            with pytest.raises(ResultTimeout) as caught:
                watch.next(0.05)
        assert (caught.value.id, caught.value.phase, caught.value.step) == ("job", "waiting", 2)
        with manager.watch() as watch, pytest.raises(TimeoutError, match="nothing has changed"):
            watch.next(0.05)


def test_a_time_limit_names_the_parked_member():
    store = left_behind(("root", Parent(["child"])))
    with second_life(store, KnownParent, config=Config(spares=0, parked_grace=60.0)) as manager:
        manager.signal("root.0", 1)
        wait_until(lambda: manager.info("root.0").state == "RUNNABLE")
        with pytest.raises(ResultTimeout) as caught:
            manager.get("root").result(0.05)
    assert caught.value.phase == "suspended"
    assert "root.0 is parked: no class is registered" in caught.value.reason


# ---------------------------------------------------------------- futures, callbacks, as_completed
def test_futures_and_callbacks_stay_pending_and_the_log_says_so(caplog):
    store = left_behind(("job", Other()))
    with caplog.at_level(logging.WARNING), second_life(store) as manager:
        handle = manager.get("job")
        future, called = handle.future(), []
        handle.add_done_callback(called.append)
        told(handle.result)
        wait_until(lambda: "of job wait on: job" in caplog.text)
        assert not future.done()
        assert not called
        manager.register(Other)
        manager.signal("job", 1)
        assert future.result(BOUND) == "child"
        wait_until(lambda: called)
    assert caplog.text.count("of job wait on") == 1


def test_a_future_has_the_output_or_the_error_of_the_handle():
    with InlineManager([Other, Runs]) as manager:
        assert manager.submit(Runs(), "ran").future().result(BOUND) == "ran"
        failed = manager.submit(Other(), "failed", delay=3600)
        future = failed.future()
        manager.abort("failed")
        assert type(future.exception(BOUND)) is type(failed.exception(BOUND))
        assert asyncio.run(_wrapped(manager)) == "ran"
        dropped = manager.submit(Other(), "dropped")
        assert dropped.future().cancel()
        open_ = dropped.future()
    assert isinstance(open_.exception(BOUND), ManagerStopped)
    assert isinstance(dropped.future().exception(BOUND), ManagerStopped)


async def _wrapped(manager):
    return await asyncio.wrap_future(manager.get("ran").future())


def test_as_completed_gives_handles_in_the_order_of_their_ends():
    with InlineManager([Other, Runs]) as manager, InlineManager([Other]) as another:
        first, last = manager.submit(Other(), "first"), another.submit(Other(), "last")
        ended = manager.submit(Runs(), "ended")
        assert ended.wait(BOUND)
        order = as_completed([last, first, ended, ended])
        assert next(order) is ended
        wait_until(lambda: first.info().phase == "waiting" and last.info().phase == "waiting")
        manager.signal("first", 1)
        assert next(order) is first
        another.stop()
        assert next(order) is last
        with pytest.raises(ManagerStopped):
            last.result()
        assert next(order, None) is None
        assert list(as_completed([])) == []
        with pytest.raises(TypeError, match="takes handles"):
            as_completed(["ended"])


# ---------------------------------------------------------------- clients, logs, executors
def test_a_client_is_told_over_a_restart_of_the_manager(tmp_path):
    with ProcedureManager(tmp_path / "s", procedures=[Other], workers=1, **LIGHT) as manager:
        manager.submit(Other(), "job")
        wait_until(lambda: manager.info("job").phase == "waiting")
        client = ProcedureClient(tmp_path / "s", patience=BOUND)
        handle = client.get("job")
        future = handle.future()
        answers = []
        thread = threading.Thread(target=lambda: answers.append(outcome_of(handle.result)))
        thread.start()
        with pytest.raises(ResultTimeout) as caught:
            client.get("job").result(0.1)
        assert (caught.value.phase, caught.value.step) == ("waiting", 2)
    with pytest.raises(ResultTimeout, match="no manager answers") as caught:
        client.get("job").result(0.1)
    assert (caught.value.phase, caught.value.step) == ("waiting", 2)
    light = {**LIGHT, "config": SOON}
    with client, ProcedureManager(tmp_path / "s", workers=1, **light) as manager:
        thread.join(BOUND)
        assert isinstance(answers[0], ProcedureParked)
        assert (answers[0].member, "no class" in answers[0].reason) == ("job", True)
        assert not future.done()
        assert not client.get("job").wait(0.1, wait_parked=True)
        manager.register(Other)
        manager.signal("job", 1)
        assert future.result(BOUND) == "child"
        assert [done.id for done in as_completed([client.get("job")], BOUND)] == ["job"]


def test_warnings_reach_stderr_where_no_logging_is_configured(tmp_path):
    program = """
    import sys
    from actorproc import Config, ProcedureParked
    from actorproc.testing.inline import InlineManager
    from actorproc.store.memory import MemoryStore
    from tests.engine.test_parked_waits import Other, left_behind
    with InlineManager([], store=left_behind(("job", Other())), config=Config(spares=0, parked_grace=0.0)) as manager:
        manager.abort("job", force=True)
        try:
            manager.get("job").result()
        except ProcedureParked:
            print("told")
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "told\n"
    assert "1 procedure of the type 'tests.engine.test_parked_waits.Other' is parked" in done.stderr


def test_a_parked_procedure_is_warned_of_once(caplog):
    store = left_behind(("a", Other()), ("b", Other()), ("c", Other()))
    with caplog.at_level(logging.WARNING), second_life(store) as manager:
        for name in "abc":
            manager.signal(name, 1)
        wait_until(lambda: "parked, as no class is registered" in caplog.text)
        told(manager.get("a").result)
        told(manager.get("b").result)
    warned = [record.getMessage() for record in caplog.records if "as no class is registered" in record.getMessage()]
    assert sum(message.count("tests.engine") for message in warned) == len(warned) <= 3
