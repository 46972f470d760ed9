"""The host's own side of the faults: its store, its clock and its pool, each broken through the seam it has.

Nothing here is known to the engine. The manager is given a subclass of `LmdbStore` and a clock of the `Clock`
protocol, and makes its pool from a subclass of `LocalPool`.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from actorproc.api.manager import ProcedureManager
from actorproc.engine.pipeline.command_executor import CommandExecutor
from actorproc.errors import StorageUnavailable
from actorproc.model.ids import WorkerId
from actorproc.model.rows.records import ProcedureRecord
from actorproc.model.rows.snapshot import RecoverySnapshot
from actorproc.model.rows.writes import PutProcedure, Write
from actorproc.store.lmdb.environment import ReadSnapshot
from actorproc.store.lmdb.log import checkpointer
from actorproc.store.lmdb.log.overlay import Layer
from actorproc.store.lmdb.log.owned_log import OwnedLog
from actorproc.store.lmdb.log.place import LogPlace
from actorproc.store.lmdb.log.segment import Segment
from actorproc.store.lmdb.store import LmdbStore
from actorproc.store.lmdb.transaction import Txn
from actorproc.testing.torture.faults import LOG_POINTS, Fault, FaultPhase, TortureFault
from actorproc.testing.torture.phase_probe import HostPeriod, PhaseProbe, ProbeMark
from actorproc.testing.torture.plan import Life
from actorproc.testing.torture.record import EpisodeJournal, durable_fields
from actorproc.workers.base import PoolEvent, WorkerMessages, WorkerPool
from actorproc.workers.pool.local_pool import LocalPool
from actorproc.workers.protocol.frames import Ended, Run, ToWorker

__all__ = ["Executioner", "JumpyClock", "TorturedManager", "TorturedStore", "mark_acting", "mark_log"]

_PHASE_OF_POINT = {
    "owned": FaultPhase.RECOVERING,
    "loaded": FaultPhase.RECOVERING,
    "heard": FaultPhase.HEARD,
    "before-commit": FaultPhase.COMMITTING,
    **dict.fromkeys(LOG_POINTS, FaultPhase.COMMITTING),
    "after-commit": FaultPhase.ACTING,
    "before-send": FaultPhase.ACTING,
    "after-send": FaultPhase.ACTING,
    "reopening": FaultPhase.TROUBLE,
    "stopping": FaultPhase.STOPPING,
}


class Executioner:
    """Kills this process at the planned passage of a named point."""

    def __init__(self, life: Life, journal: EpisodeJournal, probe: PhaseProbe) -> None:
        self.journal = journal
        self.probe = probe
        self._due = {(f.point, f.nth) for f in life.faults if f.kind is TortureFault.HOST_POINT}
        self._passed: Counter[str] = Counter()

    def is_due(self, point: str) -> bool:
        """True if this process is to die at a passage of this point."""
        return any(name == point for name, _ in self._due)

    def passing(self, point: str) -> None:
        """The host is at this point."""
        self._passed[point] += 1
        if (point, self._passed[point]) in self._due:
            is_recovering = self.probe.period is HostPeriod.RECOVERING
            phase = FaultPhase.RECOVERING if is_recovering else _PHASE_OF_POINT[point]
            self.journal.struck(TortureFault.HOST_POINT, phase, text=point)
            self.journal.killing(os.getpid(), is_host=True)
            os.kill(os.getpid(), signal.SIGKILL)


class JumpyClock:
    """The system's clocks, with a wall clock that jumps at the planned moments of a life."""

    def __init__(self, life: Life, journal: EpisodeJournal) -> None:
        self._journal = journal
        self._offset = life.clock
        self._jumps = sorted((f.after, f.seconds) for f in life.faults if f.kind is TortureFault.CLOCK)
        self._up: float | None = None

    def up(self) -> None:
        """The host is up: the moments count from now."""
        self._up = time.monotonic()

    def wall(self) -> float:
        """Epoch seconds of this host."""
        while self._jumps and self._up is not None and time.monotonic() >= self._up + self._jumps[0][0]:
            _, seconds = self._jumps.pop(0)
            self._offset += seconds
            self._journal.struck(TortureFault.CLOCK, FaultPhase.WAITING, text=f"{seconds:+g} s")
        return time.time() + self._offset

    def monotonic(self) -> float:
        """As the system's."""
        return time.monotonic()


class TorturedStore(LmdbStore):
    """A store whose disk is slow, full or broken at the planned commits, and that writes down what is durable."""

    def __init__(self, path: str, life: Life, executioner: Executioner, **options: Any) -> None:
        super().__init__(path, **options)
        self._executioner = executioner
        self._journal = executioner.journal
        self._probe = executioner.probe
        self._planned: dict[int, Fault] = {f.nth: f for f in life.faults if f.kind in _STORAGE}
        self._bad_reads = {f.nth for f in life.faults if f.kind is TortureFault.EIO_READ}
        self._reads = 0
        self._commits = 0
        self._slow: tuple[int, float] = (0, 0.0)
        self._full_until = 0.0

    def own(self) -> int:
        """As `LmdbStore.own`, marked."""
        self._probe.set(ProbeMark.PERIOD, HostPeriod.RECOVERING)
        epoch = super().own()
        self._executioner.passing("owned")
        return epoch

    def load(self, *, whole: bool = True) -> RecoverySnapshot:
        """As `LmdbStore.load`; all heads are durable."""
        heads = super().load().procedures
        for head in heads:
            self._durable(head)
        snapshot = super().load(whole=whole)
        self._journal.note("loaded", epoch=snapshot.epoch, text=str(len(heads)))
        if not self._probe.get(ProbeMark.TROUBLE):
            self._executioner.passing("loaded")
        self._probe.set(ProbeMark.TROUBLE, 0)
        return snapshot

    def reopen(self) -> None:
        """As `LmdbStore.reopen`, unless the disk is still full."""
        self._check_room()
        super().reopen()
        self._executioner.passing("reopening")

    def commit(self, writes: Sequence[Write], epoch: int, batch: int = 0) -> None:
        """As `LmdbStore.commit`, with the planned trouble."""
        self._commits += 1
        self._probe.set(ProbeMark.COMMITTING, 1)
        self._probe.set(ProbeMark.HEARD, 0)
        try:
            self._executioner.passing("before-commit")
            self._commit_as_planned(writes, epoch, batch)
            self._probe.set(ProbeMark.ACTING, 1)
            self._executioner.passing("after-commit")
        except StorageUnavailable:
            self._probe.set(ProbeMark.TROUBLE, 1)
            raise
        finally:
            self._probe.set(ProbeMark.COMMITTING, 0)

    def _view(self) -> ReadSnapshot:
        """As `LmdbStore._view`; some reads of the manager fail, none of a start: that would fail, in order."""
        is_running = self._bad_reads and self._probe.get(ProbeMark.PERIOD) == HostPeriod.RUNNING
        if is_running and threading.current_thread().name.startswith(_WITH_THE_TURN):
            self._reads += 1
            if self._reads in self._bad_reads:
                self._bad_reads.discard(self._reads)
                self._journal.struck(TortureFault.EIO_READ, FaultPhase.ACTING)
                self._probe.set(ProbeMark.TROUBLE, 1)
                raise StorageUnavailable("reading the store: an input/output error, as planned")
        return super()._view()

    def _commit_as_planned(self, writes: Sequence[Write], epoch: int, batch: int) -> None:
        fault = self._planned.get(self._commits)
        if fault is not None:
            self._strike(fault)
        self._check_room()
        if self._slow[0]:
            self._slow = (self._slow[0] - 1, self._slow[1])
            time.sleep(self._slow[1])
        if fault is not None and fault.kind is TortureFault.EIO_LOST:
            raise StorageUnavailable("writing the store: an input/output error, as planned")
        self._journal.note("writing", step=batch)
        super().commit(writes, epoch, batch)
        for write in writes:
            if type(write) is PutProcedure:
                self._durable(write.record)
        self._journal.note("written", step=batch)
        if fault is not None and fault.kind is TortureFault.EIO_APPLIED:
            raise StorageUnavailable("writing the store: an input/output error after the fact, as planned")

    def _strike(self, fault: Fault) -> None:
        phase = FaultPhase.RECOVERING if self._probe.period is HostPeriod.RECOVERING else FaultPhase.COMMITTING
        self._journal.struck(fault.kind, phase)
        if fault.kind is TortureFault.SLOW_DISK:
            self._slow = (fault.times, fault.seconds)
        elif fault.kind is TortureFault.DISK_FULL:
            self._full_until = time.monotonic() + fault.seconds

    def _check_room(self) -> None:
        if time.monotonic() < self._full_until:
            raise StorageUnavailable("writing the store: no space left on device, as planned")

    def _durable(self, head: ProcedureRecord) -> None:
        self._journal.note("durable", **durable_fields(head, self._epoch))


_WITH_THE_TURN = ("ManagerActor", "actorproc-pool", "actorproc-relief")
"""Names of the threads that run the manager. A caller's own read that fails would only be told to the caller."""
_CHECKPOINTS = 0.1
"""Seconds between two checkpoints; many lives are shorter than a store would wait."""
_STORAGE = {TortureFault.EIO_LOST, TortureFault.EIO_APPLIED, TortureFault.DISK_FULL, TortureFault.SLOW_DISK}


class TorturedPool(LocalPool):
    """A pool that says when it kills, and whose host may die at a result or around a send."""

    def __init__(self, executioner: Executioner, **options: Any) -> None:
        super().__init__(**options)
        self._executioner = executioner

    def open(self, sink: Callable[[PoolEvent], None]) -> None:
        """As `LocalPool.open`; results are marked."""

        def listen(event: PoolEvent) -> None:
            if type(event) is WorkerMessages and any(type(message) is Ended for message in event.messages):
                self._executioner.probe.set(ProbeMark.HEARD, 1)
                self._executioner.passing("heard")
            sink(event)

        super().open(listen)

    def send(self, worker: WorkerId, messages: Sequence[ToWorker]) -> None:
        """As `LocalPool.send`."""
        is_work = any(type(message) is Run for message in messages)
        if is_work:
            self._executioner.passing("before-send")
        super().send(worker, messages)
        if is_work:
            self._executioner.passing("after-send")

    def kill(self, worker: WorkerId, **how: Any) -> None:
        """As `LocalPool.kill`, announced in the journal."""
        link = self._links.get(worker)
        if link is not None and link.process is not None:
            self._executioner.journal.killing(link.process.pid)
        super().kill(worker, **how)


class TorturedManager(ProcedureManager):
    """A manager whose pool is a `TorturedPool`."""

    def __init__(self, path: str, *, executioner: Executioner, **options: Any) -> None:
        super().__init__(path, **options)
        self._executioner = executioner

    def _make_pool(self, epoch: int) -> WorkerPool:
        return TorturedPool(
            self._executioner, epoch=epoch, spares=self._config.spares, preload=self._preload, log_level=40
        )


def mark_acting(probe: PhaseProbe) -> None:
    """Have the probe show how long the manager acts on a commit."""
    honest = CommandExecutor.act

    def act(self: CommandExecutor, batch: Any) -> Any:
        probe.set(ProbeMark.ACTING, 1)
        try:
            return honest(self, batch)
        finally:
            probe.set(ProbeMark.ACTING, 0)

    CommandExecutor.act = act  # type: ignore[method-assign]


def mark_log(executioner: Executioner) -> None:
    """Have the host die at a place of the log, and its store write checkpoints more often than it would."""
    append, write, whole = Segment.write, OwnedLog._write, OwnedLog.checkpoint
    appended, begun, half, done = LOG_POINTS

    def write_record(self: Segment, data: bytes, at: int) -> None:
        append(self, data, at)
        executioner.passing(appended)

    def write_rows(self: OwnedLog, txn: Txn, layer: Layer, place: LogPlace) -> None:
        executioner.passing(begun)
        write(self, txn, layer, place)
        executioner.passing(half)

    def checkpoint(self: OwnedLog) -> None:
        whole(self)
        executioner.passing(done)

    Segment.write = write_record  # type: ignore[method-assign]
    OwnedLog._write = write_rows  # type: ignore[method-assign]
    OwnedLog.checkpoint = checkpoint  # type: ignore[method-assign]
    checkpointer._EVERY = _CHECKPOINTS
