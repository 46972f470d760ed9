"""Functions through an executor whose calls are procedures."""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import gc
import logging
import multiprocessing
import os
import pickle
import subprocess
import sys
import threading
import time
import weakref
from pathlib import Path

import pytest

from actorproc import (
    Config,
    ManagerStopped,
    Procedure,
    ProcedureManager,
    Saga,
    Status,
    UnknownProcedure,
    UsageError,
    step,
)
from actorproc.engine.manager_actor import ManagerActor
from actorproc.engine.reply_router import ReplyRouter
from actorproc.executor import CallBroken, DurableFuture, ProcedureExecutor, queue, receiver
from actorproc.model.ids import new_id
from actorproc.model.messages.events import Submitted
from actorproc.procedure.authoring.call import Call
from tests.executor import calls
from tests.executor.calls import (
    Explodes,
    Never,
    OurError,
    OwnCause,
    TwoNames,
    add,
    die,
    die_once,
    fail,
    get_ready,
    mark_and_wait,
    readiness,
)

pytestmark = [pytest.mark.processes, pytest.mark.usefixtures("results_stay")]


def began(marker):
    return marker.exists() and bool(marker.read_text())


def test_a_call_gives_its_result_and_its_future_says_when_it_is_on_disk(open_executor):
    executor = open_executor()

    future = executor.submit(add, 2, right=3)

    assert isinstance(future, concurrent.futures.Future)
    assert future.durable(30) is future
    assert executor.manager.info(future.id).owner.endswith("add")
    assert future.result(30) == 5
    assert future.done()
    assert not future.running()


def test_results_are_what_they_were_whatever_they_are(open_executor):
    executor = open_executor()
    for value in (None, 1 << 80, "ü\ud800", b"\0", 1.5, [1, (2, {3: {4}})], OurError("x"), Path("/a"), add, range(3)):
        assert pickle.dumps(executor.submit(add, [value], []).result(30)) == pickle.dumps([value])


def test_lambdas_closures_partials_and_bound_methods_can_be_called(open_executor):
    executor = open_executor()
    base = 40

    class Adder:
        def __init__(self, base):
            self.base = base

        def add(self, value):
            return self.base + value

    assert executor.submit(lambda value: base + value, 2).result(30) == 42
    assert executor.submit(functools.partial(add, 40), right=2).result(30) == 42
    assert executor.submit(Adder(40).add, 2).result(30) == 42
    assert executor.submit("{} {}".format, 4, 2).result(30) == "4 2"
    assert list(executor.map(lambda value: value * base, [1, 2, 3], chunksize=2)) == [40, 80, 120]


def test_an_exception_keeps_its_type_and_shows_the_remote_traceback(open_executor):
    executor = open_executor()

    future = executor.submit(fail, OurError, "no stock", 7)

    with pytest.raises(OurError) as caught:
        future.result(30)
    assert caught.value.args == ("no stock", 7)
    assert "raise kind(*args)" in str(caught.value.__cause__)
    assert "actorproc" not in str(caught.value.__cause__).replace(calls.__file__, "")
    info = executor.manager.info(future.id)
    assert (info.state, info.attempt) == ("FAILED", 1)
    assert info.error.pickled == b""


def test_an_exit_in_a_function_is_its_exception(open_executor):
    assert isinstance(open_executor().submit(sys.exit, 3).exception(30), SystemExit)


def test_an_exception_that_cannot_be_unpickled_is_told_in_words(open_executor):
    error = open_executor().submit(fail, TwoNames, "one", "two").exception(30)

    assert "TwoNames: one" in str(error)
    assert "raise kind(*args)" in str(error.__cause__)


def test_an_exception_that_takes_no_cause_is_raised_all_the_same(open_executor):
    error = open_executor().submit(fail, OwnCause, "mine").exception(30)

    assert (type(error), error.args) == (OwnCause, ("mine",))


def test_an_end_that_cannot_be_delivered_keeps_nobody_waiting(open_executor, monkeypatch, caplog):
    def broken(record, key):
        raise ValueError("no room for it")

    executor = open_executor()
    monkeypatch.setattr(receiver, "error_of", broken)

    error = executor.submit(fail, OurError).exception(30)

    assert isinstance(error, CallBroken)
    assert "could not be delivered: ValueError: no room for it" in str(error)
    assert executor.submit(add, 1, 1).result(30) == 2


def test_arguments_that_cannot_be_pickled_fail_their_own_call_at_once(open_executor):
    executor = open_executor()

    future = executor.submit(add, Never())

    assert isinstance(future.exception(0), pickle.PicklingError)
    assert executor.submit(add, 1, 1).result(30) == 2


def test_which_argument_cannot_be_pickled_is_noted(open_executor):
    executor = open_executor()

    assert executor.submit(add, 1, Never()).exception(0).__notes__ == ["argument 2 of the call cannot be pickled"]
    assert executor.submit(add, 1, right=Never()).exception(0).__notes__ == [
        "argument 'right' of the call cannot be pickled"
    ]


def test_what_cannot_be_unpickled_breaks_its_own_call_only(open_executor):
    executor = open_executor()

    futures = [executor.submit(add, Explodes()), executor.submit(Explodes)]

    for future in futures:
        error = future.exception(30)
        assert isinstance(error, CallBroken)
        assert isinstance(error, concurrent.futures.process.BrokenProcessPool)
        assert "ValueError: unpickled" in str(error)
    assert executor.submit(add, 1, 1).result(30) == 2


def test_a_call_that_is_too_large_to_store_fails_alone(tmp_path):
    with (
        ProcedureManager(tmp_path / "state", workers=1, config=Config(max_call=100_000)) as manager,
        ProcedureExecutor(manager) as executor,
    ):
        small, large = executor.submit(len, b"x"), executor.submit(len, b"x" * 200_000)

        with pytest.raises(UsageError, match="max_call"):
            large.durable(30)
        assert isinstance(large.exception(30), UsageError)
        assert small.result(30) == 1


def test_a_killed_worker_costs_one_attempt_of_one_call(open_executor, tmp_path):
    executor = open_executor()

    futures = [executor.submit(die_once, str(tmp_path / "died")), *[executor.submit(add, n) for n in range(20)]]

    assert [future.result(30) for future in futures] == ["survived", *range(20)]
    assert executor.manager.info(futures[0].id).crashes in {0, 1}
    assert executor.submit(add, 1).result(30) == 1


def test_a_call_that_kills_its_worker_each_time_is_broken_with_the_reason(open_executor):
    executor = open_executor()

    error = executor.submit(die).exception(30)

    assert isinstance(error, CallBroken)
    assert "SIGKILL" in str(error)
    assert executor.submit(add, 1).result(30) == 1


def test_many_queued_calls_share_commits(open_executor):
    executor = open_executor()
    executor.submit(add, 0).result(30)
    executor.manager.pause(reason="how many results share a commit depends on the machine")
    before = executor.manager.health().commits

    futures = [executor.submit(add, number) for number in range(600)]

    futures[-1].durable(60)
    assert executor.manager.health().commits - before < 300
    executor.manager.resume()
    assert [future.result(60) for future in futures] == list(range(600))


@pytest.mark.parametrize("size", [65_535, 65_536, 10_000_000])
def test_long_arguments_and_results_come_as_they_are(open_executor, size):
    content = bytes(range(256)) * (size // 256) + b"x" * (size % 256)

    assert open_executor().submit(bytes.__add__, content, b"!").result(60) == content + b"!"


def test_map_keeps_the_order_and_takes_chunks(open_executor):
    executor = open_executor()

    assert list(executor.map(add, range(7), range(7))) == [2 * number for number in range(7)]
    assert list(executor.map(add, range(7), range(9), chunksize=3)) == [2 * number for number in range(7)]
    assert list(executor.map(add, [])) == []
    with pytest.raises(ValueError, match="chunksize"):
        executor.map(add, [1], chunksize=0)


def test_map_raises_where_the_function_did_and_cancels_the_rest(open_executor):
    results = open_executor().map(divmod, [4, 4, 4], [2, 0, 1], chunksize=1)

    assert next(results) == (2, 0)
    with pytest.raises(ZeroDivisionError):
        next(results)


def test_a_map_that_is_left_early_cancels_all_that_is_left_at_once(open_executor, tmp_path, until):
    executor = open_executor(max_workers=1)
    release = tmp_path / "release"
    markers = [str(tmp_path / str(number)) for number in range(300)]
    results = executor.map(mark_and_wait, markers, [str(release)] * 300, timeout=0.2)
    before = executor.manager.health().commits

    with pytest.raises(TimeoutError):
        next(results)
    until(lambda: len(executor._queue._unfinished) <= 100)
    release.touch()
    executor.shutdown()

    assert sum(Path(marker).exists() for marker in markers) <= 100
    assert executor.manager.health().commits - before < 300


def test_an_iterator_of_map_may_be_collected_also_on_the_managers_thread(open_executor, tmp_path, monkeypatch, until):
    """As one that an error inside of ``for … in executor.map()`` left in a cycle."""

    def collecting(manager, message):
        if isinstance(message, Submitted) and len(sent) > 1 and cycle:
            cycle.clear()
        return handle(manager, message)

    def standing(batch):
        sent.append(batch)
        send(batch) if len(sent) == 1 or may_send.wait(30) else None

    executor = open_executor(max_workers=1)
    calls, handle, send = executor._queue, ManagerActor.on_receive, executor._queue._send
    cycle, sent, may_send = [], [], threading.Event()
    monkeypatch.setattr(ManagerActor, "on_receive", collecting)
    monkeypatch.setattr(calls, "_send", standing)
    release = tmp_path / "release"
    markers = [str(tmp_path / str(number)) for number in range(1500)]
    results = executor.map(mark_and_wait, markers, ["/", *[str(release)] * 1499])
    next(results)

    cycle.append(results)
    del results
    may_send.set()
    last = executor.submit(add, 1, 1)
    until(lambda: not cycle)
    until(lambda: len(calls._unfinished) <= executor.manager._slots + 1)
    release.touch()

    assert last.result(30) == 2
    executor.shutdown()
    assert sum(Path(marker).exists() for marker in markers) < 1500


def test_map_keeps_its_time_limit(open_executor, tmp_path):
    executor = open_executor()
    release = tmp_path / "release"
    results = executor.map(mark_and_wait, [str(tmp_path / "began")], [str(release)], timeout=0.1)

    with pytest.raises(TimeoutError):
        next(results)
    release.touch()


def test_wait_and_as_completed_take_these_futures(open_executor):
    executor = open_executor()
    futures = [executor.submit(add, number) for number in range(10)]

    done, pending = concurrent.futures.wait(futures, timeout=30)

    assert (len(done), len(pending)) == (10, 0)
    assert {future.result() for future in concurrent.futures.as_completed(futures, timeout=30)} == set(range(10))


def test_a_call_no_worker_has_yet_can_be_cancelled_and_is_never_made(open_executor, tmp_path, until):
    executor = open_executor(max_workers=1)
    release, marker = tmp_path / "release", tmp_path / "began"
    running = executor.submit(mark_and_wait, str(marker), str(release))
    until(lambda: began(marker))
    waiting = [executor.submit(mark_and_wait, str(tmp_path / f"{n}"), str(release)).durable(30) for n in range(5)]

    answers = [future.cancel() for future in waiting]

    assert answers[-1] is True
    assert [future.cancelled() for future in waiting] == answers
    assert running.running()
    assert running.cancel() is False
    release.touch()
    assert running.result(30)
    for number, (future, cancelled) in enumerate(zip(waiting, answers, strict=True)):
        if cancelled:
            with pytest.raises(concurrent.futures.CancelledError):
                future.result(30)
            assert executor.manager.info(future.id).state == "ROLLEDBACK"
            assert not (tmp_path / str(number)).exists()
        else:
            assert future.result(30)


def test_calls_that_were_cancelled_are_no_warnings(open_executor, tmp_path, until, caplog):
    executor = open_executor(max_workers=1)
    release, marker = tmp_path / "release", tmp_path / "began"
    running = executor.submit(mark_and_wait, str(marker), str(release))
    until(lambda: began(marker))
    waiting = [executor.submit(mark_and_wait, str(tmp_path / f"{n}"), str(release)).durable(30) for n in range(5)]

    with caplog.at_level(logging.DEBUG, "actorproc.events"):
        assert waiting[-1].cancel()
        until(lambda: any(getattr(record, "event", "") == "rolled-back" for record in caplog.records))

    release.touch()
    assert running.result(30)
    assert [str(record.msg) for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_a_running_call_that_was_asked_to_abort_ends_as_it_would(open_executor, tmp_path, until):
    executor = open_executor(max_workers=1)
    release, marker = tmp_path / "release", tmp_path / "began"
    future = executor.submit(mark_and_wait, str(marker), str(release))
    until(lambda: began(marker))

    executor.manager.abort(future.id)
    release.touch()

    assert isinstance(future.result(30), int)


def test_a_call_that_is_not_sent_yet_is_cancelled_without_the_disk(open_executor, until, monkeypatch):
    executor = open_executor()
    queue, may_send = executor._queue, threading.Event()
    send = queue._send
    monkeypatch.setattr(queue, "_send", lambda batch: may_send.wait(30) and send(batch))
    first = executor.submit(add, 0)
    until(lambda: not queue._open.calls)  # the sender has it, and stands still
    futures = [executor.submit(add, number) for number in range(5)]

    cancelled = [future.cancel() for future in futures[1:]]

    assert cancelled == [True] * 4
    for future in futures[1:]:
        with pytest.raises(concurrent.futures.CancelledError):
            future.durable(30)
    with pytest.raises(TimeoutError, match="not on disk"):
        futures[0].durable(0.01)
    may_send.set()
    assert [first.result(30), futures[0].result(30)] == [0, 0]


def test_shutdown_ends_what_is_queued_and_refuses_more(open_executor):
    executor = open_executor()
    futures = [executor.submit(add, number) for number in range(50)]

    executor.shutdown()

    assert [future.result(0) for future in futures] == list(range(50))
    assert executor.manager.health().status == "stopped"
    with pytest.raises(RuntimeError, match="after shutdown"):
        executor.submit(add, 1)
    executor.shutdown()


def test_an_exit_in_a_callback_keeps_nobody_waiting(open_executor, caplog):
    executor = open_executor()
    heard = []
    first = executor.submit(time.sleep, 0.05)
    first.add_done_callback(lambda _: sys.exit(3))
    first.add_done_callback(heard.append)

    assert executor.submit(add, 1, 1).result(30) == 2
    ended = threading.Thread(target=executor.shutdown, daemon=True)
    ended.start()
    ended.join(30)

    assert not ended.is_alive()
    assert heard == [first]
    assert f"a callback of call {first.id} raised" in caplog.text


def test_shutdown_in_a_callback_does_not_wait_for_that_callback(open_executor, until):
    executor = open_executor()
    returned = threading.Event()
    future = executor.submit(time.sleep, 0.05)
    future.add_done_callback(lambda _: (executor.shutdown(), returned.set()))

    assert returned.wait(30)
    until(lambda: executor.manager.health().status == "stopped")


def test_a_callback_of_a_refused_call_may_cancel_the_others(tmp_path, monkeypatch, until):
    with ProcedureManager(tmp_path / "state", workers=1, config=Config(max_call=100_000)) as manager:
        executor = ProcedureExecutor(manager)
        queue, may_send = executor._queue, threading.Event()
        send = queue._send
        monkeypatch.setattr(queue, "_send", lambda batch: may_send.wait(30) and send(batch))
        executor.submit(add, 0)
        until(lambda: not queue._open.calls)  # the sender has it; what follows goes together
        small, large = executor.submit(add, 1), executor.submit(len, b"x" * 200_000)
        asked = threading.Event()
        large.add_done_callback(lambda _: (small.cancel(), asked.set()))
        may_send.set()

        assert asked.wait(30)
        assert isinstance(large.exception(30), UsageError)
        assert small.cancelled() or small.result(30) == 1
        executor.shutdown()


def test_after_shutdown_no_future_is_given_that_nobody_ends(tmp_path):
    with ProcedureManager(tmp_path / "state", workers=1) as manager:
        with ProcedureExecutor(manager) as executor:
            future = executor.submit(add, 1)
        with pytest.raises(RuntimeError, match="after shutdown"):
            executor.get(future.id)


def test_shutdown_can_cancel_what_has_not_begun(open_executor):
    executor = open_executor()
    futures = [executor.submit(time.sleep, 0.05) for _ in range(60)]

    executor.shutdown(cancel_futures=True)

    cancelled = [future for future in futures if future.cancelled()]
    assert len(cancelled) > 20
    assert all(future.done() for future in futures)
    assert [future.exception() for future in futures if not future.cancelled()] == [None] * (60 - len(cancelled))


def test_shutdown_without_waiting_finishes_by_itself(open_executor, until):
    executor = open_executor()
    futures = [executor.submit(add, number) for number in range(50)]

    executor.shutdown(wait=False)

    assert [future.result(30) for future in futures] == list(range(50))
    until(lambda: executor.manager.health().status == "stopped")


def test_an_executor_that_is_dropped_finishes_and_lets_go(open_executor, tmp_path):
    executor = ProcedureExecutor(tmp_path / "dropped", 1)
    gone = weakref.ref(executor)
    results = executor.map(add, range(10))

    del executor
    gc.collect()

    assert gone() is None
    assert list(results) == list(range(10))


def test_a_borrowed_manager_stays_open(tmp_path):
    with ProcedureManager(tmp_path / "state", workers=1) as manager:
        with ProcedureExecutor(manager) as executor, ProcedureExecutor(manager, tags=["b"], priority=5) as second:
            assert executor.submit(add, 1).result(30) == 1
            tagged = second.submit(add, 2)
            assert tagged.result(30) == 2
        assert manager.info(tagged.id).tags == ("b",)
        assert manager.health().status == "running"


def test_futures_of_a_stopped_manager_say_so(tmp_path, until):
    manager = ProcedureManager(tmp_path / "state", workers=1).start()
    executor = ProcedureExecutor(manager)
    marker = tmp_path / "began"
    future = executor.submit(mark_and_wait, str(marker), str(tmp_path / "release"))
    until(lambda: began(marker))

    manager.stop(drain=False, timeout=10)

    assert isinstance(future.exception(30), ManagerStopped)
    assert isinstance(executor.submit(add, 1).exception(30), ManagerStopped)
    executor.shutdown()


def test_durable_calls_are_made_after_a_restart_of_the_host(tmp_path, open_executor):
    script = (
        "import os, sys\n"
        "from actorproc.executor import ProcedureExecutor\n"
        "secret = 'kept'\n"
        "executor = ProcedureExecutor(sys.argv[1], 1)\n"
        "executor.manager.pause()\n"
        "futures = [executor.submit(lambda n: f'{secret} {n}', n) for n in range(5)]\n"
        "print(*[future.durable(30).id for future in futures], flush=True)\n"
        "os.kill(os.getpid(), 9)\n"
    )

    ended = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "state")],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    executor = open_executor()
    executor.manager.resume()  # the pause outlived the host, too

    ids = ended.stdout.split()
    assert (ended.returncode, len(ids)) == (-9, 5), ended.stderr
    assert [executor.get(name).result(30) for name in ids] == [f"kept {n}" for n in range(5)]


def test_a_named_call_is_made_once_over_restarts(tmp_path, open_executor):
    first = open_executor()
    assert first.submit_as("report-7", add, 1, 2).result(30) == 3
    assert first.submit_as("report-7", add, 5, 5).result(30) == 3
    first.shutdown()

    second = open_executor()

    assert second.submit_as("report-7", add, 5, 5).result(30) == 3
    assert second.get("report-7").result(30) == 3


def test_only_calls_have_futures(open_executor, tmp_path):
    class Other(Procedure):
        def execute(self, ctx):
            return Status.done()

    executor = open_executor()
    executor.manager.run(Other(), id="other")

    with pytest.raises(UsageError, match="no call"):
        executor.get("other")
    with pytest.raises(UnknownProcedure):
        executor.get(new_id())


def test_an_initializer_runs_once_in_each_worker(open_executor):
    executor = open_executor(initializer=get_ready, initargs=("yes",))

    assert {tuple(future.result(30)) for future in [executor.submit(readiness) for _ in range(20)]} == {("yes",)}


def test_an_initializer_that_fails_breaks_the_executor(open_executor, until, caplog):
    executor = open_executor(initializer=fail, initargs=(OurError, "not ready"))

    error = executor.submit(add, 1).exception(30)

    assert isinstance(error, CallBroken)
    assert "OurError: not ready" in str(error)
    with pytest.raises(CallBroken, match="not ready"):
        executor.submit(add, 1)
    assert "OurError: not ready" in caplog.text


def test_a_worker_is_replaced_after_so_many_calls(open_executor):
    executor = open_executor(max_workers=1, max_tasks_per_child=2)

    pids = [executor.submit(os.getpid).result(30) for _ in range(6)]

    assert len(set(pids)) > 1
    assert max(pids.count(pid) for pid in pids) == 2


def test_a_full_manager_takes_calls_as_it_has_room(tmp_path):
    with (
        ProcedureManager(tmp_path / "state", workers=1, config=Config(max_queued=5)) as manager,
        ProcedureExecutor(manager) as executor,
    ):
        futures = [executor.submit(add, number) for number in range(60)]

        assert [future.result(60) for future in futures] == list(range(60))
        assert futures[-1].durable(30) is futures[-1]


def test_bad_arguments_are_refused_in_words(tmp_path):
    for workers in (0, -1):
        with pytest.raises(ValueError, match="max_workers must be greater than 0"):
            ProcedureExecutor(tmp_path, workers)
    with pytest.raises(TypeError, match="initializer"):
        ProcedureExecutor(tmp_path, initializer=3)
    with pytest.raises(ValueError, match="never forked"):
        ProcedureExecutor(tmp_path, mp_context=multiprocessing.get_context("fork"))
    with pytest.raises(ValueError, match="max_tasks_per_child"):
        ProcedureExecutor(tmp_path, max_tasks_per_child=0)
    for options in ({"max_workers": 3}, {"max_tasks_per_child": 3}):
        with pytest.raises(ValueError, match="a manager of its own"):
            ProcedureExecutor(ProcedureManager(tmp_path), **options)
    assert list(tmp_path.iterdir()) == []


def test_an_event_loop_awaits_calls_and_is_not_held_up_by_a_cancel(open_executor, tmp_path, until):
    executor = open_executor(max_workers=1)
    release, marker = tmp_path / "release", tmp_path / "began"

    async def main():
        loop = asyncio.get_running_loop()
        assert await loop.run_in_executor(executor, add, 1, 1) == 2
        running = loop.run_in_executor(executor, mark_and_wait, str(marker), str(release))
        await asyncio.to_thread(until, lambda: began(marker))
        last = [executor.submit(add, number).durable(30) for number in range(5)][-1]
        assert last.cancel() is False  # soon, and not on this thread
        await asyncio.to_thread(until, last.cancelled)
        release.touch()
        return await running

    assert asyncio.run(main())


def test_a_changed_result_is_not_unpickled(open_executor, monkeypatch):
    executor = open_executor()
    stored = executor.submit(add, 1)
    assert stored.result(30) == 1

    executor.manager._types._key = os.urandom(32)

    with pytest.raises(CallBroken, match="wrong signature"):
        executor.get(stored.id).result(30)


def test_a_call_cannot_be_taken_for_the_result_of_another(open_executor):
    executor = open_executor()
    one, two = executor.submit(add, 1), executor.submit(add, 2)
    concurrent.futures.wait([one, two], timeout=30)
    store = executor.manager._tree.store
    heads = {future.id: store.procedure(future.id) for future in (one, two)}
    closing = {name: store.step(name, head.records) for name, head in heads.items()}

    from actorproc.engine.messages import Ending
    from actorproc.executor.results import result_of

    key = executor.manager._types.signing_key
    assert result_of(Ending.of(heads[one.id], closing[one.id]), key) == 1
    with pytest.raises(CallBroken, match="wrong signature"):
        result_of(Ending.of(heads[one.id], closing[two.id]), key)


def test_a_forked_child_of_the_host_cannot_use_it(open_executor, tmp_path):
    executor = open_executor()
    executor.submit(add, 1).result(30)
    script = tmp_path / "forks.py"
    script.write_text(
        "import os, sys, warnings\n"
        "from actorproc.executor import ProcedureExecutor\n"
        "from actorproc import ManagerStopped\n"
        "warnings.simplefilter('ignore', DeprecationWarning)\n"
        "with ProcedureExecutor(sys.argv[1], 1) as executor:\n"
        "    assert executor.submit(abs, -1).result(30) == 1\n"
        "    pid = os.fork()\n"
        "    if not pid:\n"
        "        try:\n"
        "            executor.submit(abs, -1)\n"
        "        except ManagerStopped as refused:\n"
        "            os._exit(7 if 'forked child' in str(refused) else 1)\n"
        "        os._exit(2)\n"
        "    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7\n"
        "    assert executor.submit(abs, -2).result(30) == 2\n"
    )

    ran = subprocess.run(
        [sys.executable, str(script), str(tmp_path / "other")], capture_output=True, text=True, timeout=60, check=False
    )

    assert (ran.returncode, ran.stderr) == (0, "")


def test_references_to_arguments_and_results_are_let_go(open_executor):
    class Thing:
        def shout(self):
            return 1

    executor = open_executor()
    thing = Thing()
    dropped = threading.Event()
    watched = weakref.ref(thing, lambda _: dropped.set())

    executor.submit(thing.shout)
    del thing

    assert dropped.wait(30)
    assert watched() is None


def test_the_state_of_a_finished_call_holds_no_arguments(open_executor):
    executor = open_executor()
    future = executor.submit(len, b"x" * 50_000)
    assert future.result(30) == 50_000

    sizes = [len(record.state) for record in executor.manager.steps(future.id)]

    assert sizes[0] > 50_000
    assert sum(sizes[1:]) < 1000


def test_a_call_procedure_can_be_looked_at(open_executor):
    assert Call.type_name == "actorproc.Call"
    future = open_executor().submit(add, 1)
    assert isinstance(future, DurableFuture)
    assert future.result(30) == 1


def test_a_look_at_a_call_that_meets_the_stop_of_its_manager_leaves_nothing_to_wait_for(tmp_path, monkeypatch):
    manager = ProcedureManager(tmp_path / "state", workers=1, config=Config(spares=0)).start()
    executor = ProcedureExecutor(manager)
    future = executor.submit(pow, 2, 5)
    assert future.result(30) == 32
    listen = ReplyRouter.wait

    def late(replies, ends, patience):
        manager.stop()
        listen(replies, ends, patience)

    with monkeypatch.context() as patch:
        patch.setattr(ReplyRouter, "wait", late)
        with pytest.raises(ManagerStopped):
            executor.get(future.id)
    ending = threading.Thread(target=executor.shutdown, daemon=True)
    ending.start()
    ending.join(30)
    assert not ending.is_alive()


@pytest.mark.parametrize("moment", ["between two tries", "in a try"])
def test_a_call_for_which_the_manager_has_no_room_can_be_cancelled(tmp_path, until, monkeypatch, moment):
    config = Config(spares=0, max_running=1, max_queued=0)
    manager = ProcedureManager(tmp_path / "state", workers=1, config=config).start()
    executor = ProcedureExecutor(manager)
    in_try, tries, plain = threading.Event(), [], queue.CallQueue._submitted

    def submitted(calls, *arguments):
        tries.append(arguments)
        in_try.set()
        if moment == "in a try" and len(tries) > 1:
            until(lambda: withdrawals or future.done())
        return plain(calls, *arguments)

    withdraw, withdrawals = queue.CallQueue._withdraw, []

    def withdrawn(calls, *arguments):
        found = withdraw(calls, *arguments)
        withdrawals.append(found)
        return found

    class Busy(Saga):
        @step
        def wait(self, ctx):
            return Status.wait("go")

    manager.submit(Busy(), "busy")
    monkeypatch.setattr(queue.CallQueue, "_submitted", submitted)
    monkeypatch.setattr(queue.CallQueue, "_withdraw", withdrawn)
    future = executor.submit(pow, 2, 5)
    until(lambda: len(tries) > 1)
    cancelled = []
    thread = threading.Thread(target=lambda: cancelled.append(future.cancel()), daemon=True)
    thread.start()
    thread.join(30)

    assert cancelled == [True]
    assert withdrawals[-1]
    other = executor.submit(pow, 2, 6)
    manager.signal("busy", "go")
    assert other.result(30) == 64
    with pytest.raises(UnknownProcedure):
        manager.get(future.id)
    executor.shutdown()
    manager.stop()


def test_an_exception_of_a_call_reaches_stderr_through_its_future_alone(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import sys\n"
        "from actorproc import ProcedureExecutor, ProcedureManager, procedure\n"
        "def fails(): raise ValueError('of the call')\n"
        "@procedure\n"
        "def step(ctx): raise ValueError('of the step')\n"
        "with ProcedureExecutor(sys.argv[1], max_workers=1) as executor:\n"
        "    print(repr(executor.submit(fails).exception(60)))\n"
        "    executor.manager.submit(step()).wait(60)\n"
    )
    command = [sys.executable, str(script), str(tmp_path / "calls")]
    run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)

    assert run.stdout == "ValueError('of the call')\n"
    assert "of the step" in run.stderr
    assert "of the call" not in run.stderr
