"""What a step's limits do in its worker, and that nothing of it stays for the next step."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from pool_listener import Listener
from steps_under_test import Count, Do

from actorproc.model.messages.outcomes import Failed, Finished
from actorproc.model.policies import StepLimits
from actorproc.procedure.runtime.engine_side import TypeRuntime
from actorproc.workers.base import WorkerDied
from actorproc.workers.protocol.exit_codes import EXIT_INTERNAL
from actorproc.workers.protocol.frames import Ask, Began, Ended, Leaving, Returned, StepAnswer, Stop
from tests.kit.waiting import wait_until

MIB = 1024 * 1024


def outcome_of(host: Listener, worker, step: Do, **limits: object):
    run = host.start(worker, step, limits=StepLimits(**limits))
    ended = host.next_message(Ended, worker)
    assert ended.token == run.token
    return ended.outcome


@pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_DATA counts allocation on Linux only")
@pytest.mark.parametrize("how", ["allocate", "hoard"])
def test_a_step_beyond_its_memory_gets_a_memory_error_and_the_worker_lives(host: Listener, how: str) -> None:
    worker = host.boot()

    outcome = outcome_of(host, worker, Do(how, "400"), memory=100 * MIB)

    assert isinstance(outcome, Failed)
    assert outcome.error.type_name == "MemoryError"
    assert host.finish(worker, Do("allocate", "400")) == 400 * MIB


@pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_DATA counts allocation on Linux only")
def test_a_step_within_its_memory_is_left_alone(host: Listener) -> None:
    worker = host.boot()

    outcome = outcome_of(host, worker, Do("allocate", "50"), memory=100 * MIB)

    assert isinstance(outcome, Finished)


@pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_DATA counts allocation on Linux only")
def test_a_worker_whose_step_used_up_its_memory_still_hears_its_host(host: Listener) -> None:
    worker = host.boot()

    host.start(worker, Do("hoard_and_ask", "100"), limits=StepLimits(memory=20 * MIB))
    ask = host.next_message(Ask, worker)
    host.pool.send(worker, [StepAnswer(ask.request)])
    outcome = host.next_message(Ended, worker).outcome

    assert isinstance(outcome, Finished), outcome


def test_niceness_and_processors_hold_for_the_step_only(host: Listener) -> None:
    worker = host.boot()
    before = host.finish(worker, Do("place"))
    cpu = before[1][-1]

    nice = before[0] + 1
    run = host.start(worker, Do("place"), limits=StepLimits(nice=nice, cpus=(cpu,)), name="limited")
    inside = host.next_message(Ended, worker)
    assert inside.token == run.token

    assert TypeRuntime.of_class(Do).decode_output(inside.outcome.output) == [nice, [cpu]]
    if os.geteuid() == 0:
        assert host.finish(worker, Do("place")) == before


def test_a_processor_that_does_not_exist_fails_the_step_with_the_reason(host: Listener) -> None:
    worker = host.boot()

    outcome = outcome_of(host, worker, Do("nothing"), cpus=(4095,))

    assert isinstance(outcome, Failed)
    assert "Limits(cpus=(4095,)) can be used here" in outcome.error.message
    assert host.finish(worker, Count(1)) == 1


def test_steps_with_threads_run_at_once_in_one_worker(host: Listener, tmp_path: Path) -> None:
    worker = host.boot()
    limits = StepLimits(threads=3)

    runs = [host.start(worker, Do("meet", f"{tmp_path}:3"), name=f"p{n}", limits=limits) for n in range(3)]
    began = {host.next_message(Began, worker).token for _ in runs}
    ended = {host.next_message(Ended, worker).token for _ in runs}

    assert began == ended == {run.token for run in runs}
    assert host.finish(worker, Count(1)) == 1


def test_a_procedure_whose_step_runs_is_not_forgotten_for_another(listen, tmp_path: Path) -> None:
    host = listen(warm_limit=0)
    worker = host.boot()
    limits = StepLimits(threads=2)
    gate = tmp_path / "gate"
    longer = host.start(worker, Do("wait_for", str(gate)), name="longer", limits=limits)
    host.heartbeat(worker)

    shorter = host.start(worker, Count(1), name="shorter", limits=limits)
    assert host.next_message(Ended, worker).token == shorter.token
    again = host.start(worker, Count(1), name="again", limits=limits)  # on the thread that then has dropped what it can
    assert host.next_message(Ended, worker).token == again.token
    gate.touch()

    assert host.next_message(Ended, worker).token == longer.token
    assert host.finish(worker, Count(1)) == 1


def test_of_steps_that_ran_at_once_the_stack_names_the_one_that_crashed(host: Listener, tmp_path: Path) -> None:
    worker = host.boot()
    limits = StepLimits(threads=2)

    host.start(worker, Do("meet", f"{tmp_path}:99"), name="innocent", limits=limits)
    guilty = host.start(worker, Do("segfault_when_all_are_in", f"{tmp_path}:2"), name="guilty", limits=limits)
    threads = {}
    for _ in range(2):
        began = host.next_message(Began, worker)
        threads[began.token] = began.thread
    died = host.died(worker)

    assert died.report.signal == "SIGSEGV"
    assert f"Current thread 0x{threads[guilty.token]:016x}" in died.report.stack


@pytest.mark.parametrize(
    ("options", "steps", "why"),
    [
        ({"recycle_steps": 2}, 2, "as many steps"),
        ({"recycle_age": 0.001}, 1, "older than"),
        ({"recycle_memory": 1}, 2, "grew by"),
    ],
    ids=["steps", "age", "memory"],
)
def test_a_worn_worker_asks_to_be_replaced_and_gives_back_what_it_gets(
    listen: Callable[..., Listener], options: dict[str, object], steps: int, why: str
) -> None:
    host = listen(**options)
    worker = host.boot()

    for _ in range(steps):
        host.finish(worker, Do("hold", "16"))

    assert why in host.next_message(Leaving, worker).reason
    late = host.start(worker, Count(1), name="late")
    assert host.next_message(Returned, worker).token == late.token
    host.pool.stop(worker)
    assert host.next_event(WorkerDied, worker).report.kind == "stopped"


@pytest.mark.parametrize("leaks", [[1000], [150, 60]], ids=["all at once", "some in each step"])
def test_a_worker_whose_steps_left_its_descriptors_open_asks_to_be_replaced(
    listen: Callable[..., Listener], leaks: list[int]
) -> None:
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, limit[1]))
    try:
        host = listen()
        worker = host.boot()
        for leak in leaks:
            host.finish(worker, Do("leave_files_open", str(leak)))

        assert "descriptors" in host.next_message(Leaving, worker).reason
        late = host.start(worker, Count(1), name="late")
        assert host.next_message(Returned, worker).token == late.token
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limit)


def test_a_worker_that_has_no_room_for_a_thread_any_more_leaves_in_order(host: Listener) -> None:
    worker = host.boot()
    host.finish(worker, Do("refuse_threads"))
    host.next_message(Leaving, worker)

    host.pool.stop(worker)

    assert host.died(worker).report.kind == "stopped"


def test_an_unprivileged_worker_with_a_raised_niceness_asks_to_be_replaced() -> None:
    program = (
        "import os\n"
        "from actorproc.model.policies import StepLimits\n"
        "from actorproc.workers.child.process_state.limits import Limiter\n"
        "if os.geteuid() == 0: os.setuid(65534)\n"
        "limiter = Limiter()\n"
        "nice = os.getpriority(os.PRIO_PROCESS, 0) + 1\n"
        "with limiter.around(StepLimits(nice=nice)):\n"
        "    assert os.getpriority(os.PRIO_PROCESS, 0) == nice\n"
        "print(limiter.worn)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)

    assert "cannot be lowered again" in done.stdout


def test_a_stop_waits_for_steps_that_run_at_once(host: Listener, tmp_path: Path) -> None:
    worker = host.boot()
    runs = [
        host.start(worker, Do("meet", f"{tmp_path}:3"), name=f"p{n}", limits=StepLimits(threads=2)) for n in range(2)
    ]
    wait_until(lambda: len(list(tmp_path.iterdir())) == 2)

    host.pool.send(worker, [Stop()])
    (tmp_path / "gate").touch()

    assert {host.next_message(Ended, worker).token for _ in runs} == {run.token for run in runs}
    assert host.died(worker).report.code == 0


def test_a_fault_of_the_worker_beside_a_long_step_takes_no_further_step_along(host: Listener, tmp_path: Path) -> None:
    worker = host.boot()
    limits, gate = StepLimits(threads=2), tmp_path / "gate"
    longer = host.start(worker, Do("wait_for", str(gate)), name="longer", limits=limits)
    host.heartbeat(worker)
    met = host.start(worker, Do("break_machinery"), name="met", limits=limits)

    assert "LookupError: a fault of ours" in host.next_message(Leaving, worker).reason
    late = host.start(worker, Count(1), name="late")
    assert host.next_message(Returned, worker).token == late.token
    gate.touch()

    ended = host.next_message(Ended, worker)
    assert ended.token == longer.token != met.token
    assert host.died(worker).report.code == EXIT_INTERNAL
