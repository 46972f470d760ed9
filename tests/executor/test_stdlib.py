"""CPython's own tests of executors, run against `ProcedureExecutor`.

They come with the interpreter (``test.test_concurrent_futures``, a package since 3.12, a module before) unless it was
installed without its tests; then they are skipped. What does not apply is listed below with the reason.
"""

from __future__ import annotations

import importlib
import itertools
import multiprocessing
import sys
import tempfile
import time
import unittest
from pathlib import Path

import pytest

from actorproc.executor import ProcedureExecutor

pytestmark = [pytest.mark.processes, pytest.mark.timeout(300)]

_PROCESSES = "looks at the attributes of ProcessPoolExecutor for its processes; here they are in manager.workers()"
_SHARED = "shares a semaphore or a manager of multiprocessing, which only multiprocessing's own children can open"
_THREAD = "looks at the thread inside ProcessPoolExecutor"
_SCRIPT = "runs a script that imports the executor from concurrent.futures by its name"

DOES_NOT_APPLY = {
    # A pool that breaks is what this executor is made to avoid.
    "test_killed_child": "a killed worker does not break the executor: its call is made again",
    "test_max_workers_too_large": "a limit of Windows",
    "test_ressources_gced_in_workers": _SHARED,
    "test_saturation": _SHARED,
    "test_idle_process_reuse_one": _PROCESSES,
    "test_idle_process_reuse_multiple": _PROCESSES,
    "test_processes_terminate": _PROCESSES,
    "test_context_manager_shutdown": _PROCESSES,
    "test_del_shutdown": _PROCESSES,
    "test_shutdown_no_wait": _PROCESSES,
    "test_max_tasks_per_child": _PROCESSES,
    "test_max_tasks_per_child_defaults_to_spawn_context": "there is no multiprocessing context",
    "test_python_finalization_error": _THREAD,
    "test_shutdown_deadlock_pickle": _THREAD,
    "test_gh105829_should_not_deadlock_if_wakeup_pipe_full": _THREAD,
    # An end of the program without shutdown waits until calls are stored: see test_leaving.py.
    "test_interpreter_shutdown": _SCRIPT,
    "test_submit_after_interpreter_shutdown": _SCRIPT,
    "test_hang_gh83386": _SCRIPT,
}


def stdlib_class(module: str, name: str) -> type | None:
    """A class of CPython's tests; None when they are not installed."""
    for place in (f"test.test_concurrent_futures.{module}", "test.test_concurrent_futures"):
        try:
            found = getattr(importlib.import_module(place), name, None)
        except ImportError:
            continue
        if found is not None:
            return found
    return None


class _Drop(ProcedureExecutor):
    """With the arguments of `ProcessPoolExecutor`; each on a directory of its own."""

    folder: Path
    numbers = itertools.count()

    def __init__(self, max_workers=None, **options):
        super().__init__(self.folder / str(next(self.numbers)), max_workers, **options)

    @property
    def _broken(self):
        return self._queue.receiver.broken


class _Ours:
    """What CPython's own mix-ins for thread and process pools provide."""

    executor_type = _Drop
    worker_count = 2
    executor_kwargs: dict = {}  # noqa: RUF012 - CPython's tests assign it

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        _Drop.folder = Path(folder.name)

    def setUp(self):
        if self._testMethodName in DOES_NOT_APPLY:
            self.skipTest(DOES_NOT_APPLY[self._testMethodName])
        super().setUp()
        # The mix-ins for initializers pass their own arguments; they set the executor up themselves.
        if not hasattr(self, "executor"):
            self.executor = self.executor_type(max_workers=self.worker_count, **self.executor_kwargs)
        self.t1 = time.monotonic()

    def tearDown(self):
        if getattr(self, "executor", None) is not None:
            self.executor.shutdown(wait=True)
            self.executor = None
        super().tearDown()

    def get_context(self):
        return multiprocessing.get_context("spawn")


def _adopt(name: str, module: str, *, before: bool = False) -> None:
    found = stdlib_class(module, name)
    if found is not None:
        bases = (found, _Ours) if before else (_Ours, found)
        globals()[f"Test{name}"] = type(f"Test{name}", (*bases, unittest.TestCase), {"__module__": __name__})


_adopt("ProcessPoolExecutorTest", "test_process_pool")
_adopt("WaitTests", "test_wait")
_adopt("AsCompletedTests", "test_as_completed")
_adopt("ProcessPoolShutdownTest", "test_shutdown")
_adopt("ExecutorDeadlockTest", "test_deadlock")
_adopt("InitializerMixin", "test_init", before=True)
_adopt("FailingInitializerMixin", "test_init", before=True)


def test_the_tests_of_the_interpreter_are_run_where_they_are_installed():
    names = [name for name in globals() if name.startswith("Test")]
    if not names:
        pytest.skip(f"Python {sys.version_info[0]}.{sys.version_info[1]} was installed without its own tests")
    assert len(names) == 7
    known = {name for case in names for name in dir(globals()[case]) if name.startswith("test_")}
    assert len(known - DOES_NOT_APPLY.keys()) >= 30
