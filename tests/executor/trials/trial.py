"""Rows of the table of pools: each calls functions of a script in a pool, and says whether the right thing came back.

A script declares rows with `row` and ends with ``play()``. Its arguments are the kind of pool and the folder that it may
write to; it prints a JSON object of row titles and outcomes.
"""

from __future__ import annotations

import json
import multiprocessing
import sys
import warnings
from pathlib import Path

SECONDS = 60
"""Limit for the result of one call; past it the row hangs."""

_rows = {}


class OfThePackage:
    """A class that an importable module has, for scripts that derive from one."""

    def __init__(self, number):
        self.number = number


def row(title):
    """Declare a row. Its function gets ``call(function, *arguments)`` and returns whether all was right."""

    def declare(function):
        _rows[title] = function
        return function

    return declare


def _open(kind, folder):
    if kind == "stdlib":
        from concurrent.futures import ProcessPoolExecutor

        return ProcessPoolExecutor(2, multiprocessing.get_context("fork"))
    if kind == "loky":
        from joblib.externals.loky import ProcessPoolExecutor

        return ProcessPoolExecutor(2)
    from actorproc import ProcedureExecutor

    return ProcedureExecutor(folder, max_workers=2)


class _Pool:
    """A pool of one kind, opened again when a row has broken it."""

    def __init__(self, kind, folder):
        self._kind = kind
        self._folder = Path(folder)
        self._opened = 0
        self._pool = None

    def call(self, function, *arguments):
        if self._pool is None:
            self._opened += 1
            self._pool = _open(self._kind, self._folder / f"calls-{self._opened}")
            if self._kind == "joblib":
                from actorproc.executor.joblib import register_joblib_backend

                register_joblib_backend(self._pool)
        if self._kind == "joblib":
            import joblib

            with joblib.parallel_config(backend="actorproc", n_jobs=2):
                results = joblib.Parallel()(joblib.delayed(function)(*arguments) for _ in range(2))
            return results[-1]
        return self._pool.submit(function, *arguments).result(SECONDS)

    def close(self):
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(wait=self._kind != "loky")


def play():
    """Play all rows; a third argument "spawned" has a process do it that multiprocessing spawns."""
    kind, folder, *rest = sys.argv[1:]
    if rest == ["spawned"]:
        process = multiprocessing.get_context("spawn").Process(target=_play, args=(kind, folder))
        process.start()
        process.join()
        sys.exit(process.exitcode)
    _play(kind, folder)


def _play(kind, folder):
    """Print the outcome of each row: "yes", "no", or the name of the error."""
    pool = _Pool(kind, folder)
    found = {}
    with warnings.catch_warnings():
        if kind == "stdlib":
            warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside threads
        for title, function in _rows.items():
            try:
                found[title] = "yes" if function(pool.call) else "no"
                if found[title] == "no":
                    pool.close()  # it may be broken, and caught
            except Exception as error:  # noqa: BLE001 - that is the outcome
                found[title] = type(error).__name__
                print(f"{title}: {error!r:.500}", file=sys.stderr)
                pool.close()
        pool.close()
    print(json.dumps(found))
