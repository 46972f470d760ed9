"""Plays one episode: starts the hosts of a plan, and does to them what cannot be done from inside."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import psutil

from actorproc.api.registration import Registration
from actorproc.errors import ActorprocError
from actorproc.model.policies import Quotas, Scheduling
from actorproc.procedure.values.type_names import command_of_module
from actorproc.store.home import home_of
from actorproc.testing.histories.recovering import recovery_problems
from actorproc.testing.journal import JournalLine
from actorproc.testing.torture.cluster.leftovers import TOKEN, await_end
from actorproc.testing.torture.faults import IN_TROUBLE, Fault, FaultPhase, TortureFault
from actorproc.testing.torture.phase_probe import HostPeriod, PhaseProbe, ProbeMark
from actorproc.testing.torture.plan import Life, Plan
from actorproc.testing.torture.procedures import CLASSES
from actorproc.testing.torture.record import EpisodeJournal, Tail

__all__ = ["EpisodeRunner"]

_COMING_UP = 60.0
"""Seconds a host may take to come up."""
_FROM_OUTSIDE = {TortureFault.WORKER_KILL, TortureFault.WORKER_STOP, TortureFault.HOST_STOP}
_BEFORE_IT_IS_UP = {TortureFault.STORM, TortureFault.RESTARTS}
_PATIENCE = 0.3
"""Seconds to wait for a worker that is inside a step."""
_TROUBLE_WITHIN = 3.0
"""Seconds to wait for a commit to fail."""
_LATE = 2.0
"""Seconds after which a host that does not come to the point where it should die is killed all the same."""


class EpisodeRunner:
    """One episode in one folder. `run` it, then judge what is there."""

    def __init__(self, plan: Plan, folder: Path) -> None:
        self.plan = plan
        self.folder = folder
        self.journal = EpisodeJournal(folder / "journal")
        self._tail = Tail(self.journal)
        self._last: dict[int, JournalLine] = {}
        """Of each worker: what it wrote last about a step."""
        self._ours = f"{os.getpid()}-{time.monotonic_ns()}"

    def run(self) -> None:
        """Live all lives. Faults that it finds are in the journal."""
        (self.folder / "plan.json").write_bytes(msgspec.json.encode(self.plan))
        for number, life in enumerate(self.plan.lives):
            self._live(number, life)

    # ------------------------------------------------------------ one life
    def _live(self, number: int, life: Life) -> None:
        probe = PhaseProbe(self.folder / f"probe-{number}")
        with (self.folder / f"host-{number}.log").open("wb") as output:
            host = subprocess.Popen(
                command_of_module("actorproc.testing.torture.host", str(self.folder), str(number)),
                env={**os.environ, TOKEN: self._ours},
                stdin=subprocess.PIPE,  # closed when this process ends, however it ends
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        with host:
            try:
                self._disturb(host, probe, life)
            finally:
                if host.poll() is None:
                    self.journal.killing(host.pid, is_host=True)
                    host.kill()
                    host.wait()
                await_end(self.journal, self._ours, within=self.plan.patience)
                probe.close()
        self._check_recovery()

    def _disturb(self, host: subprocess.Popen[bytes], probe: PhaseProbe, life: Life) -> None:
        early = next((fault for fault in life.faults if fault.kind in _BEFORE_IT_IS_UP), None)
        if early is not None and self._until(host, lambda: probe.period is not HostPeriod.STARTING):
            time.sleep(early.after)
            if host.poll() is None and (early.kind is TortureFault.RESTARTS or probe.period is HostPeriod.RECOVERING):
                self._kill_host(host, probe, early.kind)
                return
        if not self._until(host, lambda: probe.period >= HostPeriod.RUNNING):
            self._check_exit(host, life)
            return
        up = time.monotonic()
        for fault in sorted((f for f in life.faults if f.kind in _FROM_OUTSIDE), key=lambda fault: fault.after):
            self._wait(host, up + fault.after - time.monotonic())
            if host.poll() is None:
                self._strike(host, probe, fault)
        self._end(host, probe, life, up)

    def _end(self, host: subprocess.Popen[bytes], probe: PhaseProbe, life: Life, up: float) -> None:
        if life.ends != "killed":
            self._wait(host, 2 * self.plan.patience + 30)
            if host.poll() is None:
                self.journal.note("stalled", text=f"the host of life {life} did not stop; {self._health(probe)}")
            self._check_exit(host, life)
            return
        by_point = any(fault.kind is TortureFault.HOST_POINT for fault in life.faults)
        self._wait(host, up + life.seconds + (_LATE if by_point else 0.0) - time.monotonic())
        if host.poll() is None:
            both = any(fault.kind is TortureFault.BOTH_KILL for fault in life.faults)
            self._kill_host(host, probe, TortureFault.BOTH_KILL if both else TortureFault.HOST_KILL)
        else:
            self._check_exit(host, life)

    def _check_exit(self, host: subprocess.Popen[bytes], life: Life) -> None:
        """A host ends by a kill, or in order when it was its turn."""
        if host.poll() is None:
            self.journal.note("stalled", text="the host did not come up")
        elif host.returncode != (-signal.SIGKILL if life.ends == "killed" else 0):
            self.journal.note("stalled", text=f"the host left by itself with {host.returncode}: {self._last_words()}")

    def _last_words(self) -> str:
        logs = sorted(self.folder.glob("host-*.log"), key=lambda path: path.stat().st_mtime)
        return logs[-1].read_text(errors="replace", encoding="utf-8")[-500:] if logs else ""

    @staticmethod
    def _health(probe: PhaseProbe) -> str:
        return f"period {probe.period.name.lower()}, phase {probe.phase()}"

    # ------------------------------------------------------------ striking
    def _strike(self, host: subprocess.Popen[bytes], probe: PhaseProbe, fault: Fault) -> None:
        if fault.kind is TortureFault.HOST_STOP:
            self.journal.struck(fault.kind, self._phase(probe), pid=host.pid)
            with self._stopped(host.pid):
                self._wait(host, fault.seconds)
            return
        if fault.point == IN_TROUBLE and not self._until(
            host, lambda: probe.get(ProbeMark.TROUBLE) > 0, within=_TROUBLE_WITHIN
        ):
            return
        victim = self._victim(host, fault.draw)
        if victim is None:
            return
        if fault.kind is TortureFault.WORKER_STOP:
            self.journal.struck(fault.kind, self._phase_of_worker(victim), pid=victim)
            with self._stopped(victim):
                self._wait(host, fault.seconds)
            return
        self.journal.killing(victim)
        with contextlib.suppress(ProcessLookupError):
            os.kill(victim, signal.SIGKILL)
        self._read_news()
        line = self._last.get(victim)
        told = {"procedure": line.procedure, "step": line.step, "epoch": line.epoch} if line is not None else {}
        mode = line.mode if line is not None else ""
        phase = self._phase_of_worker(victim)
        if fault.point == IN_TROUBLE and phase is not FaultPhase.IDLE:
            phase = FaultPhase.TROUBLE
        self.journal.struck(fault.kind, phase, pid=victim, text=mode, **told)

    def _kill_host(self, host: subprocess.Popen[bytes], probe: PhaseProbe, kind: TortureFault) -> None:
        victims = [host.pid]
        if kind is TortureFault.BOTH_KILL:
            victims += self._workers(host)
        for pid in victims:
            self.journal.killing(pid, is_host=pid == host.pid)
        for pid in victims:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        host.wait()
        self.journal.struck(kind, self._phase(probe), pid=host.pid)

    @staticmethod
    @contextlib.contextmanager
    def _stopped(pid: int) -> Iterator[None]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def _victim(self, host: subprocess.Popen[bytes], draw: float) -> int | None:
        """A worker: three times in four one that is busy, waited for a little."""
        workers = self._workers(host)
        deadline = time.monotonic() + (_PATIENCE if draw * 4 % 1 < 0.75 else 0.0)
        while not (busy := self._busy(workers)) and time.monotonic() < deadline and host.poll() is None:
            time.sleep(0.001)
            workers = self._workers(host)
        chosen = busy or workers
        return chosen[int(draw * len(chosen))] if chosen else None

    def _busy(self, workers: list[int]) -> list[int]:
        self._read_news()
        return [pid for pid in workers if (line := self._last.get(pid)) is not None and line.kind in _INSIDE]

    @staticmethod
    def _workers(host: subprocess.Popen[bytes]) -> list[int]:
        try:
            return sorted(child.pid for child in psutil.Process(host.pid).children())
        except psutil.NoSuchProcess:
            return []

    # ------------------------------------------------------------ where it strikes
    def _read_news(self) -> None:
        for line in self._tail.news():
            if line.epoch and line.kind in _OF_STEPS:
                self._last[line.pid] = line

    def _phase_of_worker(self, pid: int) -> FaultPhase:
        line = self._last.get(pid)
        if line is None:
            return FaultPhase.IDLE
        if line.kind not in _INSIDE:
            return FaultPhase.ANSWERING
        return FaultPhase.UNDOING if line.mode == "rollback" else FaultPhase.EXECUTING

    def _phase(self, probe: PhaseProbe) -> FaultPhase:
        phase = probe.phase()
        if phase is not None:
            return phase
        self._read_news()
        newest = max((line.epoch for line in self._last.values()), default=0)
        inside = {self._phase_of_worker(pid) for pid, line in self._last.items() if line.epoch == newest}
        for phase in (FaultPhase.UNDOING, FaultPhase.EXECUTING):
            if phase in inside:
                return phase
        return FaultPhase.WAITING

    # ------------------------------------------------------------ waiting, and looking afterwards
    @staticmethod
    def _wait(host: subprocess.Popen[bytes], seconds: float) -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            host.wait(max(0.0, seconds))

    @staticmethod
    def _until(host: subprocess.Popen[bytes], condition: Callable[[], bool], *, within: float = _COMING_UP) -> bool:
        deadline = time.monotonic() + within
        while not condition():
            if host.poll() is not None or time.monotonic() > deadline:
                return False
            time.sleep(0.002)
        return True

    def _check_recovery(self) -> None:
        """Try the next host's recovery twice on paper: cut short anywhere, it leads to the same store."""
        if self.plan.module or not any(line.kind == "loaded" for line in self.journal.lines()):
            return  # killed before there was a store: there may be an empty file
        registration = Registration(None, None)
        for procedure_class in CLASSES.values():
            registration.register(procedure_class)  # type: ignore[arg-type]
        types = [definition.meta for definition in registration.definitions()]
        try:
            with home_of(self.folder / "state").reader() as reader:
                snapshot = reader.load()
            problems = recovery_problems(
                snapshot, types, quotas=Quotas(), scheduling=Scheduling(), now=time.time() + self._clock()
            )
        except ActorprocError as error:
            problems = [f"the store cannot be read: {error}"]
        for problem in problems[:3]:
            self.journal.note("unsound", text=problem)

    def _clock(self) -> float:
        return self.plan.lives[-1].clock


_INSIDE = {"enter", "effect"}
_OF_STEPS = {"enter", "effect", "exit", "raised"}
