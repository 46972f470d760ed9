"""A backend of joblib: what `joblib.Parallel` runs, scikit-learn's fits among it, becomes calls of an executor.

So a worker that dies costs joblib nothing but time: its own process pools break then, and lose the whole run::

    with ProcedureExecutor("calls", max_workers=4) as executor:
        register_joblib_backend(executor)
        with joblib.parallel_config(backend="actorproc"):
            ...

Needs joblib (``pip install actorproc[joblib]``).
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

from joblib import register_parallel_backend
from joblib.parallel import AutoBatchingMixin, ParallelBackendBase

from actorproc.api.manager import ProcedureManager
from actorproc.executor.futures import DurableFuture
from actorproc.executor.pool import ProcedureExecutor
from actorproc.procedure.runtime.blas_threads import LimitedThreads

__all__ = ["ProcedureBackend", "register_joblib_backend"]


def register_joblib_backend(
    executor: ProcedureExecutor | ProcedureManager, *, name: str = "actorproc", make_default: bool = False
) -> ProcedureExecutor:
    """Make an executor, or one of a started manager, known to joblib under a name.

    The executor stays open until you shut it down; registering the name again replaces it.

    Args:
        executor: The executor, or a started manager.
        name: The name of the backend. Default: "actorproc".
        make_default: Use it in every `joblib.Parallel` of the program that names no other backend. Default: False.

    Returns:
        The executor.
    """
    opened = ProcedureExecutor(executor) if isinstance(executor, ProcedureManager) else executor
    register_parallel_backend(name, functools.partial(ProcedureBackend, opened), make_default=make_default)
    return opened


class ProcedureBackend(AutoBatchingMixin, ParallelBackendBase):  # type: ignore[misc]
    """Runs the batches of one `joblib.Parallel` as calls of an executor.

    The manager's workers decide how many run at once; ``n_jobs`` says how many batches joblib has under way. Calls of
    `Parallel` inside a call use threads there, as with joblib's own processes. Arguments are pickled and stored: arrays
    are not shared by memory maps.

    Args:
        executor: The executor.
        **options: Those of `joblib.parallel.ParallelBackendBase`.
    """

    supports_retrieve_callback = True
    supports_inner_max_num_threads = True
    default_n_jobs = -1

    def __init__(self, executor: ProcedureExecutor, **options: Any) -> None:
        super().__init__(**options)
        self._executor = executor
        self._under_way: set[DurableFuture[Any]] = set()
        self._lock = threading.Lock()
        self._call = LimitedThreads({}, 1)

    def configure(self, n_jobs: int = 1, parallel: Any = None, **options: Any) -> int:
        """Begin a run: numeric libraries get the processors that each worker has for itself, or what joblib says.

        Args:
            n_jobs: Number of batches under way, as joblib counts. Default: 1.
            parallel: The `joblib.Parallel` that runs. Default: None.
            **options: Those of joblib.

        Returns:
            The number of batches under way.
        """
        jobs: int = super().configure(n_jobs=n_jobs, parallel=parallel, **options)
        variables = self._prepare_worker_env(max(1, min(jobs, self._executor._max_workers)))
        self._call = LimitedThreads(variables, int(variables["OPENBLAS_NUM_THREADS"]))
        return jobs

    def effective_n_jobs(self, n_jobs: int | None) -> int:
        """Number of batches that are worth having under way.

        Args:
            n_jobs: The number that the program gave; negative ones count from the number of workers, None is -1.

        Returns:
            The number; at least 2 unless a positive one was given.

        Raises:
            ValueError: ``n_jobs`` is 0.
        """
        if n_jobs == 0:
            msg = "n_jobs == 0 in Parallel has no meaning"
            raise ValueError(msg)
        workers: int = self._executor._max_workers
        if n_jobs is not None and n_jobs > 0:
            return n_jobs
        # One job is what joblib runs in this very process, where nothing survives a crash.
        return max(2, workers + 1 + (n_jobs or -1))

    def submit(self, func: Any, callback: Callable[[Any], object] | None = None) -> DurableFuture[Any]:
        """Make a call of a batch.

        Args:
            func: The batch.
            callback: Called with the future when the batch has ended. Default: None.

        Returns:
            The future of the batch.
        """
        future: DurableFuture[Any] = self._executor.submit(self._call, func, func.items)
        with self._lock:
            self._under_way.add(future)
        future.add_done_callback(self._forget)
        if callback is not None:
            future.add_done_callback(callback)
        return future

    def _forget(self, future: Any) -> None:
        with self._lock:
            self._under_way.discard(future)

    def retrieve_result_callback(self, out: DurableFuture[Any]) -> Any:
        """Result of a batch.

        Args:
            out: The future of the batch.

        Returns:
            The results of its calls.

        Raises:
            BaseException: A call of the batch raised it.
        """
        return out.result()

    def abort_everything(self, ensure_ready: bool = True) -> None:
        """Cancel batches that no worker has: their results are no longer wanted.

        Args:
            ensure_ready: As of joblib; not used.
        """
        del ensure_ready
        with self._lock:
            left = list(self._under_way)
        self._executor._queue.cancel_each(left)
