"""Procedures from submit to output, through real workers and a real store."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from datetime import timedelta

import pytest

import actorproc
from actorproc import Procedure, Status, procedure
from actorproc.config import Config
from actorproc.errors import (
    DuplicateProcedure,
    InvalidId,
    ManagerStopped,
    ProcedureAborted,
    ProcedureFailed,
    RemoteError,
    StateTooLarge,
    UnknownProcedure,
)
from actorproc.model.states import Phase, ProcedureState
from tests.kit.procedures import Order, Waits

pytestmark = pytest.mark.processes


@dataclass
class Count(Procedure):
    upto: int
    seen: list = field(default_factory=list)

    def execute(self, ctx):
        self.seen.append(ctx.step)
        return Status.done(self.seen) if len(self.seen) >= self.upto else Status.executing()


@dataclass
class Sum(Procedure):
    parts: int
    asked: bool = False

    def execute(self, ctx):
        if not self.asked:
            self.asked = True
            return Status.suspended(Count(upto=number) for number in range(1, self.parts + 1))
        return Status.done([len(outcome.output) for outcome in ctx.children.values()])


@dataclass
class Breaks(Procedure):
    rollback_supported = True
    step: int = 0

    def execute(self, ctx):
        self.step += 1
        if self.step == 2:
            raise ValueError("the shelf is empty")
        return Status.executing()

    def rollback(self, ctx):
        return None


@procedure
def double(number):
    return number * 2


def test_eight_lines_are_enough(tmp_path):
    with actorproc.ProcedureManager(tmp_path / "state", workers=2) as manager:
        output = manager.run(Order("book"))

    assert output.startswith("tracking-book-True-")


def test_steps_are_numbered_from_one_and_the_log_closes_with_a_commit(open_manager):
    manager = open_manager()

    handle = manager.submit(Count(upto=4))

    assert handle.result(30) == [1, 2, 3, 4]
    log = manager.steps(handle.id)
    assert [record.number for record in log] == [1, 2, 3, 4, 5]
    assert [record.kind.name for record in log] == ["STEP"] * 4 + ["COMMIT"]


def test_a_plain_function_is_a_procedure(open_manager):
    assert open_manager(workers=1).run(double(21)) == 42


def test_a_parent_resumes_with_the_outcomes_of_its_children_in_order(open_manager):
    manager = open_manager()

    handle = manager.submit(Sum(parts=5))

    assert handle.result(30) == [1, 2, 3, 4, 5]
    assert handle.info().children == {"SUCCESS": 5}
    assert len(manager.list(root=handle.id)) == 6


def test_a_failure_is_rolled_back_and_carries_the_remote_traceback(open_manager):
    manager = open_manager()

    handle = manager.submit(Breaks())

    with pytest.raises(ProcedureFailed, match="the shelf is empty") as caught:
        handle.result(30)
    failure = caught.value
    assert (failure.state, failure.id, failure.step) == ("ROLLEDBACK", handle.id, 2)
    assert isinstance(failure.cause, RemoteError)
    assert "raise ValueError" in failure.traceback_text
    assert handle.info().state is ProcedureState.ROLLEDBACK
    assert isinstance(handle.exception(), ProcedureFailed)


def test_the_same_submit_twice_is_one_procedure(open_manager):
    manager = open_manager()
    first = manager.submit(Count(upto=2), "count-2")

    second = manager.submit(Count(upto=2), "count-2")

    assert second.id == first.id == "count-2"
    assert second.result(30) == [1, 2]
    assert manager.submit(Count(upto=2), "count-2").result(30) == [1, 2]
    with pytest.raises(DuplicateProcedure):
        manager.submit(Count(upto=3), "count-2")


def test_many_are_submitted_in_one_commit_and_listed_in_order(open_manager):
    manager = open_manager()

    handles = manager.submit_many([("a", Count(upto=1)), ("b", Count(upto=2)), Count(upto=3)], tags=["batch"])

    assert [len(handle.result(30)) for handle in handles] == [1, 2, 3]
    assert [info.id for info in manager.list(tag="batch")] == [handle.id for handle in handles]
    assert [info.id for info in manager.list(after="a", limit=1)] == ["b"]
    assert manager.list(state="FAILED") == []


def test_info_says_who_submitted_what(open_manager):
    manager = open_manager()

    handle = manager.submit(Count(upto=1), owner="alice", priority=7, tags=("x", "y"))
    handle.result(30)

    info = handle.info()
    assert (info.owner, info.priority, info.tags, info.phase) == ("alice", 7, ("x", "y"), Phase.DONE)
    assert info.finished_at is not None
    assert [other.id for other in manager.list(owner="alice")] == [handle.id]


def test_a_time_limit_raises_the_builtin_timeout_and_leaves_the_procedure_alone(open_manager):
    manager = open_manager()
    handle = manager.submit(Waits())

    with pytest.raises(TimeoutError):
        handle.result(0.05)
    assert handle.wait(0.05) is False
    assert handle.done() is False

    assert manager.signal(handle.id, {"word": ("a", 1)}) is True
    assert handle.result(30) == {"word": ("a", 1)}
    assert handle.done() is True
    assert manager.signal(handle.id, "late") is False


def test_run_waits_no_longer_than_it_is_told_and_the_procedure_goes_on(open_manager):
    manager = open_manager()

    with pytest.raises(TimeoutError):
        manager.run(Waits(), "patient", timeout=0.05)

    assert manager.signal("patient", 7) is True
    assert manager.run(Waits(), "patient", timeout=30) == 7


def test_a_signal_by_event_name_wakes_whoever_waits(open_manager, until):
    manager = open_manager()
    handle = manager.submit(Waits())
    until(lambda: handle.info().phase is Phase.WAITING)

    manager.publish("word", "hello")

    assert handle.result(30) == "hello"


def test_an_aborted_procedure_raises_procedure_aborted(open_manager, until):
    manager = open_manager()
    handle = manager.submit(Waits())
    until(lambda: handle.info().phase is Phase.WAITING)

    assert manager.abort(handle.id) is True

    with pytest.raises(ProcedureAborted):
        handle.result(30)
    assert manager.abort(handle.id) is False


def test_a_callback_gets_the_handle_on_a_thread_of_ours(open_manager):
    manager = open_manager()
    handle = manager.submit(Count(upto=1))
    called = threading.Event()
    seen = []

    def done(ended):
        seen.append((ended, threading.current_thread()))
        called.set()

    handle.add_done_callback(done)

    assert called.wait(30)
    assert seen[0][0] is handle
    assert seen[0][1] is not threading.main_thread()


def test_a_delayed_procedure_starts_after_its_delay(open_manager):
    manager = open_manager()

    handle = manager.submit(Count(upto=1), delay=timedelta(seconds=0.3))

    assert handle.result(30) == [1]
    info = handle.info()
    assert info.finished_at - info.created_at >= 0.3


@dataclass
class Swell(Procedure):
    """Everything that a procedure may keep, as large as it is told."""

    size: int
    data: bytes = b""

    def execute(self, ctx):
        if not self.data:
            self.data = b"x" * self.size
            return Status.wait("more")
        noted = ctx.remember("noted", lambda: self.data)
        return Status.done(noted if noted == ctx.event else b"")


def test_a_larger_max_state_holds_for_all_that_a_procedure_keeps(open_manager):
    size = 17 * 2**20
    manager = open_manager(workers=1, config=Config(max_state=18 * 2**20, spares=0))

    handle = manager.submit(Swell(size))
    manager.signal(handle.id, b"x" * size)
    again = manager.submit(Swell(size, b"y" * size))

    assert handle.result(30) == b"x" * size
    assert again.result(30) == b""
    with pytest.raises(ProcedureFailed, match="StateTooLarge"):
        manager.run(Swell(19 * 2**20))
    with pytest.raises(StateTooLarge):
        manager.publish("news", b"x" * (19 * 2**20))


def test_usage_errors_are_raised_where_they_are_made(open_manager, tmp_path):
    manager = open_manager(config=Config(max_state=1000))

    with pytest.raises(InvalidId):
        manager.submit(Count(upto=1), "no spaces")
    with pytest.raises(UnknownProcedure):
        manager.get("nobody")
    with pytest.raises(UnknownProcedure):
        manager.abort("nobody")
    with pytest.raises(StateTooLarge):
        manager.submit(Order("x" * 2000))
    with pytest.raises(TypeError, match="one string"):
        manager.submit(Count(upto=1), tags="abc")
    with pytest.raises(ManagerStopped, match="start"):
        actorproc.ProcedureManager(tmp_path / "other").submit(Count(upto=1))


def test_a_paused_manager_accepts_and_runs_nothing_until_resumed(open_manager):
    manager = open_manager()
    manager.pause()

    handle = manager.submit(Count(upto=2))

    assert handle.wait(0.2) is False
    assert manager.health().status == "paused"
    manager.resume()
    assert handle.result(30) == [1, 2]


def test_workers_and_health_tell_what_goes_on(open_manager):
    manager = open_manager(workers=2)

    workers = manager.workers()
    health = manager.health()

    assert len({worker.pid for worker in workers}) == 2
    assert {worker.state for worker in workers} == {"idle"}
    assert health.ok
    assert [slot.state for slot in health.slots] == ["running", "running"]


@dataclass
class Secretive(Procedure):
    codec = "pickle"
    numbers: dict

    def execute(self, ctx):
        if len(self.numbers) == 1:
            self.numbers[2] = range(3)
            return Status.wait("word")
        return Status.done(list(self.numbers[2]))


def test_a_pickled_state_is_signed_with_a_key_that_outlives_the_manager(open_manager, tmp_path, until):
    late = actorproc.ProcedureManager(tmp_path / "state", workers=1, procedures=[Secretive])
    first = open_manager(workers=1)
    handle = first.submit(Secretive({1: 1}), "secret")
    until(lambda: handle.info().phase is Phase.WAITING)
    first.stop()

    with late:  # constructed before there was a key
        late.signal("secret", None)
        assert late.get("secret").result(10) == [0, 1, 2]
    assert (tmp_path / "state" / "signing.key").stat().st_mode & 0o077 == 0
