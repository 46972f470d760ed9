"""Every way a worker can die: it is noticed, told in words, and costs nobody else anything."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from pool_listener import Listener, is_gone, open_files
from steps_under_test import Count, Do

from actorproc.errors import UsageError
from actorproc.model.ids import WorkerId
from actorproc.model.messages.outcomes import Failed, Finished
from actorproc.workers.base import WorkerBooted, WorkerDied
from actorproc.workers.os import process
from actorproc.workers.os.cgroups import Cgroups
from actorproc.workers.pool import pool_thread
from actorproc.workers.pool.worker_link import WorkerLink
from actorproc.workers.protocol.frames import Ask, Ended, encode_frame
from tests.kit.waiting import wait_until

DEATHS = [
    (Do("kill", "9"), "signal", "killed by signal 9 (SIGKILL)"),
    (Do("segfault"), "signal", "killed by signal 11 (SIGSEGV)"),
    (Do("abort"), "signal", "killed by signal 6 (SIGABRT)"),
    (Do("leave", "0"), "exit", "exited with code 0, and it had not been told to"),
    (Do("leave", "3"), "exit", "exited with code 3, and it had not been told to"),
]


@pytest.mark.parametrize(("step", "kind", "words"), DEATHS, ids=lambda value: getattr(value, "what", None))
@pytest.mark.parametrize("use_pidfd", [True, False], ids=["pidfd", "thread"])
def test_a_death_is_told_in_words(
    listen: Callable[..., Listener], step: Do, kind: str, words: str, use_pidfd: bool
) -> None:
    host = listen(use_pidfd=use_pidfd)
    worker, sibling = host.boot(0), host.boot(1)

    host.start(worker, step)

    died = host.died(worker)
    assert died.booted
    assert died.report.kind == kind
    assert words in died.report.message
    assert host.finish(sibling, Count(1)) == 1


def test_the_python_stack_of_a_native_crash_is_kept(host: Listener) -> None:
    worker = host.boot()

    host.start(worker, Do("segfault"))

    stack = host.died(worker).report.stack
    assert "Segmentation fault" in stack
    assert "do_segfault" in stack


def test_sys_exit_in_a_step_is_a_failure_and_no_death(host: Listener) -> None:
    worker = host.boot()

    host.start(worker, Do("sys_exit"))

    assert isinstance(host.next_message(Ended, worker).outcome, Failed)
    assert host.finish(worker, Count(1), name="q") == 1


def test_a_result_written_before_the_death_arrives_before_it(host: Listener) -> None:
    worker = host.boot()
    first = host.start(worker, Do("nothing"), name="first")
    host.start(worker, Do("kill", "9"), name="second")

    host.died(worker)

    assert [message.token for message in host.inbox[worker] if isinstance(message, Ended)] == [first.token]


def test_the_last_words_on_stderr_are_in_the_report(host: Listener) -> None:
    worker = host.boot()

    host.start(worker, Do("complain", "x" * 20_000 + " the end"))

    report = host.died(worker).report
    assert report.code == 7
    assert report.stderr.endswith("the end\n")
    assert len(report.stderr) <= 8192


def test_printing_ten_megabytes_blocks_nobody(host: Listener) -> None:
    worker = host.boot()

    assert host.finish(worker, Do("print", "10")) is None


def test_the_peak_memory_of_a_dead_worker_is_its_own(host: Listener) -> None:
    worker = host.boot()
    # What is below the peak of this very process cannot be told from what the worker inherited at its start.
    megabytes = max(300, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024 + 100)
    host.finish(worker, Do("allocate", str(megabytes)))

    host.start(worker, Do("leave", "3"), name="q")

    peak = host.died(worker).report.peak_rss
    assert peak is not None
    assert peak > megabytes * 1024 * 1024


@pytest.mark.parametrize("text", ["this is no frame at all", "\0\0\0\x03abc", "\xff\xff\xff\xff"])
def test_garbage_on_the_channel_ends_the_worker(host: Listener, text: str) -> None:
    worker = host.boot()

    host.start(worker, Do("garbage", text))

    assert host.died(worker).report.kind == "protocol"


def test_a_worker_that_answers_for_the_step_of_another_is_killed_and_not_heard(host: Listener) -> None:
    forger, other = host.boot(0), host.boot(1)
    run = host.start(other, Do("busy_c"), name="others")
    forged = [Ended(run.token, Finished(state=b"")), Ask(1, run.token, "remember", "key", b"value")]

    for message in forged:
        host.start(forger, Do("garbage", encode_frame([message]).decode("latin-1")))
        report = host.died(forger).report
        assert (report.kind, "step of 'others' that another worker has" in report.message) == ("protocol", True)
        forger = host.boot(0, forger.incarnation + 1)

    assert not [message for waiting in host.inbox.values() for message in waiting if isinstance(message, Ended | Ask)]


def test_a_worker_that_hung_up_is_killed(host: Listener) -> None:
    worker = host.boot()

    host.start(worker, Do("hang_up"))

    report = host.died(worker).report
    assert report.kind == "protocol"
    assert "closed its channel" in report.message


def test_a_grandchild_of_a_dead_worker_is_killed(host: Listener) -> None:
    worker = host.boot()

    host.start(worker, Do("grandchild", "die"))

    pid = int(host.heartbeat(worker).message or "")
    host.died(worker)
    wait_until(lambda: is_gone(pid))


def test_a_kill_also_ends_a_grandchild_that_left_the_session(host: Listener) -> None:
    worker = host.boot()
    host.start(worker, Do("grandchild", "session"))
    pid = int(host.heartbeat(worker).message or "")

    host.pool.kill(worker, reason="the test says so")

    assert "the test says so" in host.died(worker).report.message
    wait_until(lambda: is_gone(pid))


@pytest.mark.parametrize("grace", [0.0, 0.05])
def test_a_kill_by_a_program_that_can_open_no_file_ends_the_worker_and_no_other(host: Listener, grace: float) -> None:
    bystander, worker = host.boot(0), host.boot(1)
    host.start(worker, Do("swallow"))
    host.heartbeat(worker)

    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, before[1]))
    try:
        host.pool.kill(worker, grace=grace, reason="the test says so")
        report = host.died(worker).report
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)

    assert "the test says so" in report.message
    assert host.finish(bystander, Count(1)) == 1


def test_a_worker_that_nobody_could_end_for_want_of_a_descriptor_is_not_kept(
    host: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    # The process is started, and then there is no descriptor for a pidfd, nor one to read its start time.
    with monkeypatch.context() as patch:
        patch.setattr(os, "pidfd_open", refuse)
        patch.setattr(process, "psutil", SimpleNamespace(Process=refuse, Error=psutil.Error))
        host.pool.launch(WorkerId(0, 1))
        report = host.died(WorkerId(0, 1)).report

    assert (report.kind, "Too many open files" in report.message) == ("boot", True)
    assert children_of_this_program() == []
    assert host.finish(host.boot(0, 2), Count(1)) == 1


def test_a_kill_with_grace_lets_the_step_clean_up_and_shows_where_it_was(host: Listener, tmp_path: Path) -> None:
    worker = host.boot()
    run = host.start(worker, Do("finally", str(tmp_path / "trace")))
    host.heartbeat(worker)

    host.pool.kill(worker, grace=10.0, blamed=run.token, reason="past its wall time of 1 s")

    report = host.died(worker).report
    assert report.kind == "timeout"
    assert report.message.startswith("past its wall time of 1 s")
    assert "do_finally" in report.stack
    assert (tmp_path / "trace").read_text() == "cleaned up"
    assert host.inbox[worker] == []


@pytest.mark.parametrize("how", ["swallow", "busy_c"])
def test_a_step_that_does_not_heed_sigterm_is_killed_after_the_grace(host: Listener, how: str) -> None:
    worker = host.boot()
    run = host.start(worker, Do(how))
    host.heartbeat(worker)

    host.pool.kill(worker, grace=0.2, blamed=run.token)

    report = host.died(worker).report
    assert (report.kind, report.signal) == ("timeout", "SIGKILL")
    assert f"do_{how}" in report.stack


def test_sigterm_ends_an_idle_worker_in_order(host: Listener) -> None:
    worker = host.boot()

    os.kill(host.pid(worker), signal.SIGTERM)

    report = host.died(worker).report
    assert (report.kind, report.code) == ("exit", 0)


def test_a_handler_that_a_step_left_for_the_signal_of_a_nudge_is_gone_before_one(host: Listener) -> None:
    worker = host.boot()

    host.finish(worker, Do("raise_when_something_is_urgent"))

    assert host.finish(worker, Do("urgent")) == "_look_up"


@pytest.mark.skipif(sys.platform != "linux", reason="signals one thread of another process")
def test_a_nudge_has_an_idle_worker_act_on_a_sigterm_that_did_not_interrupt_its_wait(host: Listener) -> None:
    worker = host.boot()
    thread = host.finish(worker, Do("thread_that_nudges"))

    # As one that comes in the instant before the main thread begins to wait.
    ctypes.CDLL(None).tgkill(host.pid(worker), thread, signal.SIGTERM)

    report = host.died(worker).report
    assert (report.kind, report.code) == ("exit", 0)


def test_sigterm_from_outside_in_the_middle_of_a_step_is_named(host: Listener) -> None:
    worker = host.boot()
    host.start(worker, Do("busy_python"))
    host.heartbeat(worker)

    os.kill(host.pid(worker), signal.SIGTERM)

    assert "ended by SIGTERM in the middle of a step" in host.died(worker).report.message


def test_ctrl_c_does_not_reach_workers(host: Listener) -> None:
    worker = host.boot()

    os.kill(host.pid(worker), signal.SIGINT)

    assert host.finish(worker, Count(1)) == 1


def test_a_stopped_process_can_be_killed(host: Listener) -> None:
    worker = host.boot()
    os.kill(host.pid(worker), signal.SIGSTOP)

    host.pool.kill(worker, grace=0.05)

    assert host.died(worker).report.signal == "SIGKILL"


def test_a_thread_left_behind_does_not_keep_a_stopped_worker_alive(host: Listener) -> None:
    worker = host.boot()
    host.finish(worker, Do("thread"))

    host.pool.stop(worker)

    assert host.died(worker).report.kind == "stopped"


# ---------------------------------------------------------------- boot failures
def test_a_preload_that_cannot_be_imported_is_a_boot_failure_with_its_reason(listen: Callable[..., Listener]) -> None:
    host = listen(preload=["no_such_module_anywhere"])
    host.pool.launch(WorkerId(0, 1))

    died = host.died(WorkerId(0, 1))

    assert not died.booted
    assert died.report.kind == "boot"
    assert "no_such_module_anywhere" in died.report.message
    assert "ModuleNotFoundError" in died.report.stack


def test_an_environment_factory_that_raises_is_a_boot_failure(listen: Callable[..., Listener]) -> None:
    import cloudpickle

    host = listen(environment=cloudpickle.dumps(lambda: 1 / 0))
    host.pool.launch(WorkerId(0, 1))

    died = host.died(WorkerId(0, 1))

    assert not died.booted
    assert "the environment factory failed: ZeroDivisionError" in died.report.message


def test_an_interpreter_that_does_not_exist_is_a_boot_failure(listen: Callable[..., Listener]) -> None:
    host = listen(executable="/nowhere/python")
    host.pool.launch(WorkerId(0, 1))

    died = host.died(WorkerId(0, 1))

    assert not died.booted
    assert "/nowhere/python" in died.report.message


def test_a_module_path_without_this_package_is_a_boot_failure_that_shows_stderr(
    listen: Callable[..., Listener],
) -> None:
    host = listen(sys_path=["/nowhere"])
    host.pool.launch(WorkerId(0, 1))

    died = host.died(WorkerId(0, 1))

    assert (died.booted, died.report.kind) == (False, "boot")
    assert died.report.stderr


def test_a_worker_killed_while_it_boots_is_no_boot_failure(listen: Callable[..., Listener]) -> None:
    host = listen()
    host.pool.launch(WorkerId(0, 1))

    host.pool.kill(WorkerId(0, 1), reason="changed my mind")

    assert host.died(WorkerId(0, 1)).report.kind == "stopped"


# ---------------------------------------------------------------- spares
def test_a_spare_takes_over_in_milliseconds(
    listen: Callable[..., Listener], capsys: pytest.CaptureFixture[str]
) -> None:
    host = listen(spares=1)
    worker = host.boot()
    taken = []
    for incarnation in range(2, 9):
        wait_until(lambda: spare_is_idle(host))
        began = time.perf_counter()
        os.kill(host.pid(worker), signal.SIGKILL)
        host.died(worker)
        worker = host.boot(0, incarnation)
        taken.append(time.perf_counter() - began)
        assert host.finish(worker, Count(1)) == 1

    median = sorted(taken)[len(taken) // 2]
    with capsys.disabled():
        sys.stdout.write(f" [kill to ready through a spare: median {median * 1000:.2f} ms]")
    assert median < 0.1


def test_a_spare_that_dies_when_it_gets_its_name_is_nobodys_fault(listen: Callable[..., Listener]) -> None:
    host = listen(spares=1)
    worker = host.boot()
    wait_until(lambda: spare_is_idle(host))
    spare = next(iter(set(children_of_this_program()) - {host.pid(worker)}))
    os.kill(spare, signal.SIGSTOP)
    host.pool.launch(WorkerId(1, 1))
    booted = host.next_event(WorkerBooted, WorkerId(1, 1))
    assert booted.pid == spare
    host.start(WorkerId(1, 1), Count(1))
    os.kill(spare, signal.SIGKILL)

    died = host.died(WorkerId(1, 1))

    assert died.report.kind == "stopped"
    host.boot(1, 2)
    assert host.finish(WorkerId(1, 2), Count(1)) == 1


def test_a_spare_takes_the_place_of_a_worker_that_died_in_a_step_at_once(listen: Callable[..., Listener]) -> None:
    host, worker = beside_a_prepared_spare(listen)

    host.start(worker, Do("kill", "9"))
    died = host.died(worker)

    assert died.successor == WorkerId(0, 2)
    assert host.next_event(WorkerBooted, WorkerId(0, 2)).pid != 0
    assert host.finish(WorkerId(0, 2), Count(1)) == 1
    wait_until(lambda: spare_is_idle(host))
    os.kill(host.pid(WorkerId(0, 2)), signal.SIGKILL)
    assert host.died(WorkerId(0, 2)).successor is None  # it was idle: whether it is replaced is not the pool's to say


def test_what_left_a_dead_workers_session_is_killed_before_its_death_is_told(listen, monkeypatch) -> None:
    order: list[str] = []
    forget = Cgroups.forget
    host, worker = beside_a_prepared_spare(listen)
    monkeypatch.setattr(Cgroups, "forget", lambda rooms, pid: (order.append("killed"), forget(rooms, pid)))
    sink = host.pool._thread._sink
    monkeypatch.setattr(
        host.pool._thread,
        "_sink",
        lambda event: (order.append("told") if type(event) is WorkerDied else None, sink(event)),
    )

    host.start(worker, Do("kill", "9"))
    host.died(worker)

    assert order == ["killed", "told"]


def test_a_spare_that_is_dead_is_not_noticed_by_the_worker_that_needs_one(listen: Callable[..., Listener]) -> None:
    host = listen(spares=1)
    worker = host.boot()
    wait_until(lambda: spare_is_idle(host))
    spare = next(iter(set(children_of_this_program()) - {host.pid(worker)}))
    os.kill(spare, signal.SIGKILL)
    wait_until(lambda: not Path(f"/proc/{spare}").exists())

    booted = host.boot(1)

    assert host.pid(booted) != spare
    assert host.finish(booted, Count(1)) == 1


def test_the_process_after_a_spare_that_died_as_it_booted_is_left_alone(
    listen: Callable[..., Listener], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECOND_STOPS", str(tmp_path / "pids"))
    host = listen(spares=1, preload=["second_stops"])
    host.boot()
    wait_until(lambda: len((tmp_path / "pids").read_text().split()) == 2)
    spare = int((tmp_path / "pids").read_text().split()[1])
    host.pool.launch(WorkerId(1, 1))
    wait_until(lambda: WorkerId(1, 1) in host.pool.facts())
    assert host.pid(WorkerId(1, 1)) == spare

    os.kill(spare, signal.SIGKILL)
    assert host.next_event(WorkerBooted, WorkerId(1, 1)).pid != spare
    is_over = threading.Event()
    thread = host.pool._opened()
    thread.post(lambda: thread._timers.after(pool_thread._EOF_PATIENCE, is_over.set))
    is_over.wait()  # the patience with the channel of the dead one is over, too

    assert host.finish(WorkerId(1, 1), Count(1)) == 1


def test_a_dead_spare_that_cannot_be_reaped_yet_and_is_taken_meanwhile_is_the_workers_trouble(
    listen: Callable[..., Listener], monkeypatch: pytest.MonkeyPatch
) -> None:
    host, worker = beside_a_prepared_spare(listen)
    thread = host.pool._opened()
    spare = next(iter(thread._spares)).process
    assert spare is not None
    asked, may_reap = threading.Event(), threading.Event()
    reap = process.WorkerProcess.reap

    def held(one: process.WorkerProcess) -> object:
        """As while a tracer holds it."""
        if one is spare and not may_reap.is_set():
            asked.set()
            return None
        return reap(one)

    monkeypatch.setattr(process.WorkerProcess, "reap", held)
    os.kill(spare.pid, signal.SIGKILL)
    assert asked.wait(30)
    successor = WorkerId(0, 2)
    host.pool.kill(worker)
    host.died(worker)
    host.pool.launch(successor)
    wait_until(lambda: successor in host.pool.facts())
    wait_until(lambda: thread._links[successor].process is spare)
    may_reap.set()

    assert host.next_event(WorkerBooted, successor).pid != spare.pid
    assert host.finish(successor, Count(1)) == 1


def children_of_this_program() -> list[int]:
    return sorted(children_now() - children_before)


def children_now() -> set[int]:
    me, found = os.getpid(), set[int]()
    for task in tasks(me):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # a thread that has ended meanwhile
            found.update(map(int, children_of(me, task)))
    return found


children_before: set[int] = set()
"""Children that the process of pytest had before the present test, such as a server of a database."""


@pytest.fixture(autouse=True)
def others_are_left_out() -> None:
    children_before.clear()
    children_before.update(children_now())


def children_of(pid: int, task: str) -> list[str]:
    return Path(f"/proc/{pid}/task/{task}/children").read_text().split()


def spare_is_idle(host: Listener) -> bool:
    """All children of this program that are no named worker sleep: they have prepared themselves."""
    named = {fact.pid for fact in host.pool.facts().values()}
    spares = [pid for pid in children_of_this_program() if pid not in named and not is_gone(pid)]
    return bool(spares) and all(threads_asleep(pid) for pid in spares)


def beside_a_prepared_spare(listen: Callable[..., Listener]) -> tuple[Listener, WorkerId]:
    """A worker whose place a spare may take, which is ready for it."""
    host = listen(spares=1)
    worker = WorkerId(0, 1)
    host.pool.launch(worker, replace=True)
    host.next_event(WorkerBooted, worker)
    host.finish(worker, Do("nothing"))
    wait_until(lambda: spares_know_the_classes(host))
    return host, worker


def spares_know_the_classes(host: Listener) -> bool:
    """They have loaded what they were told, so nothing keeps them from taking a place at once."""
    thread = host.pool._thread
    return thread is not None and any(spare.prepared and spare.told for spare in thread._spares)


def threads_asleep(pid: int) -> bool:
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # a thread that has ended meanwhile: look again
        stats = [Path(f"/proc/{pid}/task/{task}/stat").read_text() for task in tasks(pid)]
        return len(stats) >= 2 and {stat.rpartition(")")[2].split()[0] for stat in stats} == {"S"}
    return False


def tasks(pid: int) -> list[str]:
    return [task.name for task in Path(f"/proc/{pid}/task").iterdir()]


# ---------------------------------------------------------------- leaks, forks, misuse
def test_a_hundred_deaths_leak_no_descriptor_thread_or_zombie(listen: Callable[..., Listener]) -> None:
    host = listen()
    for slot in range(4):
        host.boot(slot)
    files, threads = open_files(), set(threading.enumerate())
    for incarnation in range(2, 27):
        for slot in range(4):
            host.pool.kill(WorkerId(slot, incarnation - 1))
            host.died(WorkerId(slot, incarnation - 1))
            host.pool.launch(WorkerId(slot, incarnation))
            if incarnation % 8 == 1:  # the others die while they boot
                host.next_event(WorkerBooted, WorkerId(slot, incarnation))
    for slot in range(4):
        host.next_event(WorkerBooted, WorkerId(slot, 26))

    assert open_files() == files
    assert set(threading.enumerate()) - threads == set()
    host.pool.close(2.0)
    assert children_of_this_program() == []
    assert open_files() < files


def test_a_worker_may_be_launched_while_the_pool_looks_whether_it_may_start_a_spare(
    listen: Callable[..., Listener],
) -> None:
    host = listen(spares=1)

    class Looked(WorkerLink):
        """Another thread launches a worker while the pool looks whether this one has booted."""

        @property
        def booted(self) -> bool:
            if not launched:
                launched.append(WorkerId(1, 1))
                host.pool.launch(WorkerId(1, 1))
            return True

    launched: list[WorkerId] = []
    link = host.pool._links[host.boot(0)]
    del link.booted
    link.__class__ = Looked
    host.boot(2)

    host.next_event(WorkerBooted, WorkerId(1, 1))
    assert host.finish(WorkerId(1, 1), Count(1)) == 1


def test_a_forked_copy_of_the_host_holds_no_lifeline(listen: Callable[..., Listener]) -> None:
    host = listen()
    worker = host.boot()
    pid = host.pid(worker)
    kept_alive = gone_process(host, host.boot(1))
    report_in, report_out = os.pipe()

    child = os.fork()
    if child == 0:
        try:
            kept = sum(is_fault_file(fd) for fd in range(3, 200) if is_open(fd))
            os.write(report_out, f"{refuses(host)} {kept}".encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    os.close(report_out)
    answer = os.read(report_in, 100).decode()
    os.close(report_in)

    assert answer == "True 0", kept_alive
    assert not is_gone(pid)
    assert host.finish(worker, Count(1)) == 1


def gone_process(host: Listener, worker: WorkerId) -> object:
    """The pool's record of a worker that died: its descriptor numbers belong to others by now."""
    record = host.pool._links[worker].process
    host.pool.kill(worker)
    host.died(worker)
    return record


def refuses(host: Listener) -> bool:
    try:
        host.pool.launch(WorkerId(9, 9))
    except UsageError:
        return True
    return False


def is_fault_file(fd: int) -> bool:
    """A worker's memory file; its lifeline and channel are closed together with it."""
    return "actorproc-fault" in str(Path(f"/proc/self/fd/{fd}").readlink())


def is_open(fd: int) -> bool:
    return os.path.lexists(f"/proc/self/fd/{fd}")


def test_a_pool_is_opened_once_and_a_worker_launched_once(host: Listener) -> None:
    worker = host.boot()

    with pytest.raises(UsageError, match="opened once"):
        host.pool.open(host.events.put)
    with pytest.raises(UsageError, match="next incarnation"):
        host.pool.launch(worker)


def test_messages_to_an_unknown_or_dead_worker_are_dropped(host: Listener) -> None:
    worker = host.boot()
    host.pool.kill(worker)
    host.died(worker)

    host.start(worker, Count(1))
    host.pool.stop(worker)
    host.pool.kill(WorkerId(7, 7))

    assert host.pool.facts() == {}


def test_a_death_is_told_as_it_was_however_late_it_can_be_collected(
    host: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool_thread, "_EOF_PATIENCE", 0.2)
    collect, from_now = process.WorkerProcess.reap, time.monotonic()
    monkeypatch.setattr(
        process.WorkerProcess, "reap", lambda self: collect(self) if time.monotonic() > from_now + 2 else None
    )
    worker = host.boot()

    from_now = time.monotonic()
    host.start(worker, Do("segfault"))
    died = host.died(worker)

    assert died.report.kind == "signal"
    assert died.report.signal == "SIGSEGV"


def test_a_file_that_a_dead_worker_had_mapped_is_free_when_its_death_is_told(host: Listener, tmp_path: Path) -> None:
    path = tmp_path / "locked"
    path.write_bytes(b"\0" * 4096)
    worker = host.boot()
    host.start(worker, Do("map_a_locked_file", str(path)))
    host.heartbeat(worker)

    os.kill(host.pid(worker), signal.SIGKILL)
    host.died(worker)

    with path.open("r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # raises while the old mapping holds the lock
