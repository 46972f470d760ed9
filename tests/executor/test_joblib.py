"""`joblib.Parallel` on an executor, with workers that are killed in the middle."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import pytest

from actorproc.executor import CallBroken

joblib = pytest.importorskip("joblib")
from actorproc.executor.joblib import ProcedureBackend, register_joblib_backend  # noqa: E402

pytestmark = pytest.mark.processes


@pytest.fixture
def executor(open_executor):
    """An executor that joblib knows as "actorproc"."""
    found = open_executor()
    register_joblib_backend(found)
    yield found
    joblib.parallel.BACKENDS.pop("actorproc", None)


def double(number):
    return 2 * number, os.getpid()


def die_once(number, folder):
    """The seventh takes its worker along, the first time."""
    marker = Path(folder, "died")
    if number == 7 and not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return number * number


def fail_at_three(number):
    if number == 3:
        raise LookupError(f"no {number}")
    time.sleep(0.05)
    return number


def wait_for(path):
    while not Path(path).exists():
        time.sleep(0.01)


def test_what_joblib_runs_is_run_by_the_workers_in_order(executor):
    with joblib.parallel_config(backend="actorproc"):
        found = joblib.Parallel(n_jobs=2)(joblib.delayed(double)(number) for number in range(40))

    assert [value for value, _ in found] == [2 * number for number in range(40)]
    assert {pid for _, pid in found} <= {worker.pid for worker in executor.manager.workers()}


def test_a_worker_killed_in_the_middle_costs_the_run_nothing(executor, tmp_path):
    with joblib.parallel_config(backend="actorproc"):
        found = joblib.Parallel()(joblib.delayed(die_once)(number, str(tmp_path)) for number in range(30))

    assert found == [number * number for number in range(30)]
    assert (tmp_path / "died").exists()
    assert sum(slot.restarts for slot in executor.manager.health().slots) == 1


def test_a_worker_killed_from_outside_costs_it_nothing_either(executor, tmp_path, until):
    gate = tmp_path / "gate"

    def kill():
        worker = until(lambda: next((each for each in executor.manager.workers() if each.procedure), None))
        os.kill(worker.pid, signal.SIGKILL)
        gate.touch()

    killer = threading.Thread(target=kill)
    killer.start()
    with joblib.parallel_config(backend="actorproc", n_jobs=2):
        found = joblib.Parallel()([joblib.delayed(wait_for)(gate), *(joblib.delayed(pow)(2, n) for n in range(10))])
    killer.join(30)

    assert found == [None, *(2**n for n in range(10))]


def test_a_call_that_kills_every_worker_fails_the_run_and_no_other(executor):
    with joblib.parallel_config(backend="actorproc"):
        with pytest.raises(CallBroken, match="SIGABRT"):
            joblib.Parallel(n_jobs=2)(joblib.delayed(os.abort)() for _ in range(1))

        assert joblib.Parallel(n_jobs=2)(joblib.delayed(abs)(-n) for n in range(5)) == [0, 1, 2, 3, 4]


def test_an_exception_is_raised_with_its_type_and_the_rest_is_cancelled(executor, until):
    with joblib.parallel_config(backend="actorproc"), pytest.raises(LookupError, match="no 3"):
        joblib.Parallel(n_jobs=2, pre_dispatch="all")(joblib.delayed(fail_at_three)(n) for n in range(200))

    until(lambda: not executor._queue._unfinished)
    assert executor.submit(abs, -1).result(30) == 1


def test_functions_of_a_test_and_closures_travel(executor):
    offset = 100

    def shifted(number):
        return number + offset

    with joblib.parallel_config(backend="actorproc", n_jobs=2):
        assert joblib.Parallel()(joblib.delayed(shifted)(n) for n in range(5)) == [100, 101, 102, 103, 104]
        assert joblib.Parallel()(joblib.delayed(lambda text: text.upper())(word) for word in ("a", "b")) == ["A", "B"]


def test_results_come_one_by_one_when_asked_to(executor):
    with joblib.parallel_config(backend="actorproc", n_jobs=2):
        generator = joblib.Parallel(return_as="generator")(joblib.delayed(pow)(n, 2) for n in range(20))
        assert next(generator) == 0
        assert list(generator) == [n * n for n in range(1, 20)]


def nested(number):
    return sum(joblib.Parallel(n_jobs=2)(joblib.delayed(pow)(number, power) for power in range(3)))


def test_a_call_that_uses_joblib_itself_does_so_inside_its_worker(executor):
    with joblib.parallel_config(backend="actorproc", n_jobs=2):
        assert joblib.Parallel()(joblib.delayed(nested)(n) for n in range(4)) == [1 + n + n * n for n in range(4)]


def test_numbers_of_jobs_are_joblibs(open_executor):
    backend = ProcedureBackend(open_executor(max_workers=1))

    assert [backend.effective_n_jobs(n) for n in (None, -1, 1, 5)] == [2, 2, 1, 5]
    with pytest.raises(ValueError, match="no meaning"):
        backend.effective_n_jobs(0)


def test_a_running_manager_can_be_registered_under_any_name(open_executor):
    manager = open_executor().manager
    mine = register_joblib_backend(manager, name="mine")
    try:
        with joblib.parallel_config(backend="mine", n_jobs=2):
            assert joblib.Parallel()(joblib.delayed(abs)(-n) for n in range(3)) == [0, 1, 2]
    finally:
        del joblib.parallel.BACKENDS["mine"]
        mine.shutdown()


def seen_threads(_=None):
    return {name: os.environ.get(name) for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}


def blas_threads(array):
    import threadpoolctl

    array @ array
    return {found["num_threads"] for found in threadpoolctl.threadpool_info() if found["user_api"] == "blas"}


@pytest.mark.parametrize("asked", [None, 3, 1])
def test_numeric_libraries_get_the_threads_that_joblib_says(executor, monkeypatch, asked):
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    options = {} if asked is None else {"inner_max_num_threads": asked}
    with joblib.parallel_config(backend="actorproc", n_jobs=2, **options):
        found = joblib.Parallel()(joblib.delayed(seen_threads)() for _ in range(4))

    expected = str(asked or max(1, joblib.cpu_count() // 2))
    assert {each for seen in found for each in seen.values()} == {expected}
    assert set(executor.submit(seen_threads).result(30).values()) == {None}, "other calls see what the program has"


def test_a_variable_of_the_program_holds_for_its_workers(executor, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    with joblib.parallel_config(backend="actorproc", n_jobs=2):
        (seen,) = joblib.Parallel()([joblib.delayed(seen_threads)()])

    assert seen["OMP_NUM_THREADS"] == "5"


def test_libraries_that_a_worker_has_loaded_already_are_limited_too(open_executor):
    numpy = pytest.importorskip("numpy")
    pytest.importorskip("threadpoolctl", reason="threadpoolctl is not installed: no package here needs it")
    executor = open_executor(max_workers=1)
    register_joblib_backend(executor)
    array = numpy.ones((64, 64))
    executor.submit(blas_threads, array).result(60)
    try:
        for asked in (2, 1):
            with joblib.parallel_config(backend="actorproc", n_jobs=2, inner_max_num_threads=asked):
                found = joblib.Parallel()(joblib.delayed(blas_threads)(array) for _ in range(2))
            assert found == [{asked}] * 2
    finally:
        joblib.parallel.BACKENDS.pop("actorproc", None)


def test_arrays_longer_than_a_state_may_be_are_arguments_and_results(executor):
    numpy = pytest.importorskip("numpy")
    array = numpy.arange(3_000_000, dtype=float)
    with joblib.parallel_config(backend="actorproc", n_jobs=2):
        (back,) = joblib.Parallel()([joblib.delayed(numpy.multiply)(array, 2)])

    assert (back == array * 2).all()
