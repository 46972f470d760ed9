"""Does retention keep up? How fast do finished procedures leave, and what does a minute of full load leave behind?

    python bench/retention.py [--procedures 30000] [--seconds 60] [--retain 5] [--in-flight 512] [--ended 100000]
                              [--repeat 3]

How many finished procedures are removed per second while nothing else goes on, and for how much of the host's
processor time? With so many procedures of one step in flight all the time and ``retain_for`` set, how large is the
file, and how many procedures are in it, at each tenth of the time? And what does `StoreReader.stats` cost with a
thousand and with ``--ended`` ended ones, a third of them in each terminal state? With ``--seconds 0``,
``--procedures 0`` or ``--ended 0`` that part is left out.
"""

from __future__ import annotations

import statistics
import threading
import time
from pathlib import Path
from typing import Any

from common import fresh_directory, fresh_store, middle, options, report
from rest import wait_for_spares

from actorproc import Config, ProcedureManager, StoreReader, procedure
from actorproc.model.rows.records import ProcedureRecord
from actorproc.model.rows.writes import PutProcedure
from actorproc.model.states import TERMINAL
from actorproc.store.lmdb.store import LmdbStore

_CHUNK = 5_000


@procedure
def double(number: int) -> int:
    return 2 * number


def fill(path: str, procedures: int) -> None:
    """A store in which so many have ended and none was removed."""
    with ProcedureManager(path, procedures=[double], workers=2, config=Config(retain_for=None)) as manager:
        for start in range(0, procedures, _CHUNK):
            for handle in manager.submit_many([double(n) for n in range(min(_CHUNK, procedures - start))]):
                handle.result(timeout=120)


def removal(path: str) -> dict[str, float]:
    """How fast all of them go, and the processor time of the host for each."""
    config = Config(retain_for=0, sweep_interval=0.05, spares=0)
    with ProcedureManager(path, workers=1, config=config) as manager:
        begun, used = time.perf_counter(), time.process_time()
        first = manager.metrics().store_procedures
        while (left := manager.metrics().store_procedures) > first // 20:
            time.sleep(0.02)
        gone = max(1, first - left)  # a small store may be empty by the first look
        return {
            "per_s": gone / (time.perf_counter() - begun),
            "host_us": (time.process_time() - used) / gone * 1e6,
        }


class Load:
    """Keeps so many procedures in flight: each end is followed by another submit."""

    def __init__(self, manager: ProcedureManager, in_flight: int) -> None:
        self._manager = manager
        self._room = threading.Semaphore(in_flight)
        self._over = threading.Event()
        self.ended = 0
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._over.is_set():
            self._room.acquire()
            number = 1
            while number < 64 and self._room.acquire(blocking=False):
                number += 1
            for handle in self._manager.submit_many([double(n) for n in range(number)]):
                handle.add_done_callback(self._count)

    def _count(self, _handle: object) -> None:
        self.ended += 1
        self._room.release()

    def stop(self) -> None:
        """Submit no more."""
        self._over.set()
        self._thread.join()


def load(seconds: float, retain: float, in_flight: int, workers: int) -> dict[str, Any]:
    """What is stored after each tenth of so many seconds of full load."""
    config = Config(retain_for=retain, sweep_interval=min(1.0, retain / 5))
    options = {"procedures": [double], "workers": workers, "config": config}
    with fresh_store() as path, ProcedureManager(path, **options) as manager:
        manager.run(double(1))
        wait_for_spares()
        begun, used = time.perf_counter(), time.process_time()
        flow = Load(manager, in_flight)
        samples = []
        try:
            for part in range(1, 11):
                time.sleep(max(0.0, begun + part * seconds / 10 - time.perf_counter()))
                found, health = manager.metrics(), manager.health()
                retention = getattr(health, "retention", None)
                samples.append(
                    {
                        "after_s": round(time.perf_counter() - begun, 1),
                        "ended": flow.ended,
                        "stored": found.store_procedures,
                        "file_mib": Path(path, "data.mdb").stat().st_size / 2**20,
                        "used_mib": found.store_used_bytes / 2**20,
                        "backlog": getattr(retention, "backlog", None),
                        "lag_s": getattr(retention, "lag", None),
                    }
                )
                print(_shown({name: value for name, value in samples[-1].items() if value is not None}), flush=True)
            took, cpu = time.perf_counter() - begun, time.process_time() - used
        finally:
            flow.stop()
        half = samples[4]
        last = samples[-1]
        return {
            "ended_per_s": flow.ended / took,
            "host_us_per_procedure": cpu / flow.ended * 1e6,
            "file_growth_second_half": last["file_mib"] / half["file_mib"],
            "stored_at_end": last["stored"],
            "stored_seconds": last["stored"] / (flow.ended / took),
            "samples": samples,
        }


def fill_with_ends(path: str, procedures: int) -> None:
    """A store with so many heads of ended procedures, a third of them in each terminal state."""
    store = LmdbStore(path, durability="process")
    epoch, states = store.own(), sorted(TERMINAL)
    for start in range(1, procedures + 1, _CHUNK):
        heads = (
            ProcedureRecord(
                id=f"p-{n}", type_name="T", version=1, root=f"p-{n}", parent=None, seq=n,
                state=states[n % len(states)], finished_at=float(n),
            )
            for n in range(start, min(start + _CHUNK, procedures + 1))
        )  # fmt: skip
        store.commit([PutProcedure(head, None) for head in heads], epoch)
    store.close()


def stats(path: str) -> float:
    """Seconds of `stats` of a store."""
    with StoreReader(path) as reader:
        reader.stats()
        times = []
        for _ in range(7):
            begun = time.perf_counter()
            reader.stats()
            times.append(time.perf_counter() - begun)
    return statistics.median(times)


def main() -> None:
    given = options(
        __doc__,
        procedures=(30_000, 500),
        seconds=(60.0, 3.0),
        retain=(5.0, 0.5),
        in_flight=(512, 16),
        ended=(100_000, 2_000),
        workers=(2, 1),
        repeat=(3, 1),
    )
    result: dict[str, Any] = {}
    text = []
    if given.procedures:
        rounds = []
        for _ in range(given.repeat):
            with fresh_directory() as path:
                fill(path, given.procedures)
                rounds.append(removal(path))
        result["idle"] = middle(rounds)
        text.append("nothing else going on: " + _shown(result["idle"]))
    if given.ended:
        with fresh_directory() as small, fresh_directory() as large:
            fill_with_ends(small, 1_000)
            fill_with_ends(large, given.ended)
            costs = {"stats_ms_of_1000": stats(small) * 1e3, "stats_ms": stats(large) * 1e3}
        result["stats"] = costs | {"ended": float(given.ended)}
        text.append("stats: " + _shown(result["stats"]))
    if given.seconds:
        result["load"] = load(given.seconds, given.retain, given.in_flight, given.workers)
        figures = {name: value for name, value in result["load"].items() if name != "samples"}
        text.append("under load: " + _shown(figures))
    report("retention", result, text)


def _shown(figures: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:,.2f}" for name, value in figures.items())


if __name__ == "__main__":
    main()
