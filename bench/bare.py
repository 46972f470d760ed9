"""How fast is the same shape with nothing in it? A bare pipeline, beside which one sees what the engine adds.

    python bench/bare.py [--in-flight 1,16,64,256] [--total 25000] [--tasks 10000] [--calls 10000] [--workers 2]

Two threads, worker processes at socket pairs, messages by msgspec, records with checksums in LMDB, and one synced
commit for all that came while the last one was made. A step is recorded as handed out before it is sent, its end before
anybody hears of it, and an answer leaves its worker when its step has ended. And no more than that: no versions, locks,
children, retries, limits, priorities or timers, no listing and no log of who did what, no fencing and no supervision,
no step kept apart from the next, no state signed.

With ``together`` a worker sends what it has when it has run all it was sent. That is quicker, and no engine for steps
that may be killed: when one kills its worker, those before it run once more, although they had ended.
"""

from __future__ import annotations

import pickle
import queue
import selectors
import socket
import subprocess
import sys
import threading
import time
import zlib
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import lmdb
import msgspec
from bare_worker import CALL, STEP, framed, frames_of
from common import fresh_directory, middle, options, raw_commits_per_second, report
from steps import steps_of

WORKER = Path(__file__).with_name("bare_worker.py")
ROOM = 256
"""Steps in a worker's hands, as the engine's."""
SEMANTICS = {
    "durability": "power, as the engine's",
    "checksums": "every record",
    "counters": "attempts",
    "locks and children": "none",
}
encode, decode = msgspec.msgpack.Encoder().encode, msgspec.msgpack.Decoder().decode


@dataclass(slots=True)
class Live:
    """A procedure that has not ended."""

    id: str
    kind: int
    state: bytes
    end: Callable[[bytes], object]
    """Called with its last state, or its result."""
    step: int = 0
    attempt: int = 0

    def head(self, phase: str) -> tuple[bytes, bytes]:
        return self.id.encode(), sealed((self.id, self.kind, phase, self.step, self.attempt))


def sealed(record: object) -> bytes:
    body = encode(record)
    return zlib.crc32(body).to_bytes(4, "big") + body


class Commit:
    """What one commit changes, and what is done when it is on disk."""

    def __init__(self, workers: int) -> None:
        self.heads: list[Any] = []
        self.steps: list[Any] = []
        self.sends: list[list[tuple[str, int, bytes]]] = [[] for _ in range(workers)]
        self.ends: list[tuple[Live, bytes]] = []


class Bare:
    """The pipeline. `submit` is for any thread; ends are told on the store's."""

    def __init__(self, folder: str, workers: int, way: str = "each") -> None:
        self._open(folder)
        self._inbox: queue.SimpleQueue[tuple[int, list] | None] = queue.SimpleQueue()
        self._live: dict[str, Live] = {}
        self._waiting: deque[Live] = deque()
        self._room = [ROOM] * workers
        self._ends, self._processes = [], []
        for _ in range(workers):
            ours, theirs = socket.socketpair()
            command = [sys.executable, str(WORKER), str(theirs.fileno()), way]
            self._processes.append(subprocess.Popen(command, pass_fds=[theirs.fileno()]))
            theirs.close()
            self._ends.append(ours)
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._read, self._store)]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._inbox.put(None)
        for end in self._ends:
            end.shutdown(socket.SHUT_WR)  # the worker ends, and then the thread that reads it
        for part in self._threads:
            part.join()
        for process in self._processes:
            process.wait()
        for end in self._ends:
            end.close()
        self._close()

    # ------------------------------------------------------------ what is stored
    def _open(self, folder: str) -> None:
        self._environment = lmdb.open(folder, map_size=1 << 32, max_dbs=2)
        self._heads, self._steps = (self._environment.open_db(name) for name in (b"procedures", b"steps"))

    def _close(self) -> None:
        self._environment.close()

    def _commit(self, commit: Commit) -> None:
        with self._environment.begin(write=True) as transaction:
            for table, rows in ((self._heads, commit.heads), (self._steps, commit.steps)):
                with transaction.cursor(table) as cursor:
                    cursor.putmulti(rows)

    def live(self, name: str, kind: int, content: Any, end: Callable[[bytes], object]) -> Live:
        """A procedure to submit: of so many steps, or a pickled call."""
        return Live(name, kind, encode({"steps": content, "done": 0}) if kind == STEP else content, end)

    def _note_new(self, live: Live, commit: Commit) -> None:
        commit.heads.append(live.head("runnable"))
        commit.steps.append((b"%b/%08d" % (live.id.encode(), 0), sealed((live.id, 0, live.state))))

    def _note_handed_out(self, live: Live, worker: int, commit: Commit) -> None:
        del worker
        commit.heads.append(live.head("running"))

    def _note_step(self, live: Live, worker: int, state: bytes, commit: Commit, *, is_last: bool) -> None:
        del worker
        commit.steps.append((b"%b/%08d" % (live.id.encode(), live.step), sealed((live.id, live.step, state))))
        if is_last:
            commit.heads.append(live.head("done"))

    # ------------------------------------------------------------ the pipeline
    def submit(self, procedures: list[Live]) -> None:
        self._inbox.put((-1, procedures))

    def _read(self) -> None:
        selector = selectors.DefaultSelector()
        for number, end in enumerate(self._ends):
            selector.register(end, selectors.EVENT_READ, (number, bytearray()))
        while selector.get_map():
            for key, _ in selector.select():
                number, buffer = key.data
                if not (chunk := key.fileobj.recv(1 << 18)):
                    selector.unregister(key.fileobj)
                    continue
                buffer += chunk
                if answers := [answer for frame in frames_of(buffer) for answer in decode(frame)]:
                    self._inbox.put((number, answers))
        selector.close()

    def _store(self) -> None:
        while (message := self._inbox.get()) is not None:
            commit = Commit(len(self._ends))
            self._decide(message, commit)
            for _ in range(self._inbox.qsize()):
                if (message := self._inbox.get()) is None:
                    return
                self._decide(message, commit)
            self._fill(commit)
            self._commit(commit)
            for end, steps in zip(self._ends, commit.sends, strict=True):
                if steps:
                    end.sendall(framed(encode(steps)))
            for live, result in commit.ends:
                live.end(result)

    def _decide(self, message: tuple[int, list], commit: Commit) -> None:
        worker, news = message
        if worker < 0:
            for live in news:
                self._live[live.id] = live
                self._note_new(live, commit)
            self._waiting.extend(news)
            return
        self._room[worker] += len(news)
        for name, is_last, state in news:
            live = self._live[name]
            live.step += 1
            self._note_step(live, worker, state, commit, is_last=is_last)
            if is_last:
                del self._live[name]
                commit.ends.append((live, state))
            else:
                live.state = state
                self._hand_out(live, worker, commit)

    def _fill(self, commit: Commit) -> None:
        for worker in range(len(self._ends)):
            while self._waiting and self._room[worker] > 0:
                self._hand_out(self._waiting.popleft(), worker, commit)

    def _hand_out(self, live: Live, worker: int, commit: Commit) -> None:
        self._room[worker] -= 1
        live.attempt += 1
        self._note_handed_out(live, worker, commit)
        commit.sends[worker].append((live.id, live.kind, live.state))


class End:
    """Waited for by one caller."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def __call__(self, _: bytes) -> None:
        self._lock.release()

    def wait(self) -> None:
        self._lock.acquire()


def counted(pipeline: Bare, procedures: int, steps: int, name: str) -> float:
    """Seconds for so many procedures of so many steps, submitted at once."""
    start = time.perf_counter()
    ends = [End() for _ in range(procedures)]
    pipeline.submit([pipeline.live(f"{name}-{number:030}", STEP, steps, end) for number, end in enumerate(ends)])
    for end in ends:
        end.wait()
    return time.perf_counter() - start


def flood(procedures: int, steps: int, workers: int, way: str = "each", kind: type[Bare] = Bare) -> float:
    """As `steps.flood`: steps per second with all procedures in flight at once."""
    with fresh_directory() as path, kind(path, workers, way) as pipeline:
        counted(pipeline, 64, 3, "first")
        return procedures * steps / counted(pipeline, procedures, steps, "p")


def calls(number: int, workers: int, way: str = "each", kind: type[Bare] = Bare) -> float:
    """As the queued calls of `executor.py`: calls per second, each submitted by itself, and all then waited for."""
    with fresh_directory() as path, kind(path, workers, way) as pipeline:

        def submit(name: str, function: Callable, *arguments: object) -> Future:
            future: Future = Future()
            call = pickle.dumps((function, arguments), 5)
            pipeline.submit([pipeline.live(name, CALL, call, lambda result: future.set_result(pickle.loads(result)))])
            return future

        for future in [submit(f"first-{one:030}", abs, one) for one in range(500)]:
            future.result()
        start = time.perf_counter()
        futures = [submit(f"c-{one:030}", abs, -one) for one in range(number)]
        for future in futures:
            future.result()
        return number / (time.perf_counter() - start)


def main() -> None:
    given = options(
        __doc__,
        in_flight=((1, 16, 64, 256), (1, 64)),
        workers=(2, 2),
        total=(25_000, 2_000),
        tasks=(10_000, 500),
        calls=(10_000, 500),
        repeat=(3, 1),
    )
    rounds: dict[str, list[dict[str, float]]] = {"each": [], "together": []}
    raw = raw_commits_per_second(0.5)
    for _ in range(given.repeat):
        for way, found in rounds.items():
            one = {str(n): flood(n, steps_of(n, given.total), given.workers, way) for n in given.in_flight}
            one |= {"tasks": flood(given.tasks, 1, given.workers, way)}
            found.append(one | {"calls": calls(given.calls, given.workers, way)})
    usual = {way: middle(found) for way, found in rounds.items()}
    names = {"tasks": "procedures of one step", "calls": "calls, queued"}
    lines = [f"{'':26}{'each answer sent':>20}{'sent together':>20}"]
    for what, rate in usual["each"].items():
        shown = names.get(what, f"{what} in flight, steps")
        lines.append(f"{shown:26}{rate:17,.0f} /s{usual['together'][what]:17,.0f} /s")
    report(
        "bare",
        {"raw_commits_per_s": raw, "per_s": usual, "rounds": rounds, "workers": given.workers}
        | {"semantics": SEMANTICS},
        lines,
    )


if __name__ == "__main__":
    main()
