"""The pool's book-keeping of one worker: who it is, how far it got, what was done to it."""

from __future__ import annotations

import signal
import threading
import time

import msgspec
import psutil

from actorproc.model.ids import StepToken, WorkerId
from actorproc.model.messages.events import CrashReport
from actorproc.model.policies import StepLimits
from actorproc.workers.os.process import WorkerProcess
from actorproc.workers.pool.crash_reports import Remains, crash_report, oom_kills
from actorproc.workers.protocol.frames import BootFailed, Definition, FrameBuffer, Ready
from actorproc.workers.protocol.markers import UNOWNED, OutputOwner

__all__ = ["WatchedStep", "WorkerLink"]


class WatchedStep(msgspec.Struct):
    """A step whose use of processor, memory and processes is sampled."""

    token: StepToken
    limits: StepLimits
    cpu_before: float | None = None
    """CPU seconds that its worker had used when it began; None: not known yet."""
    is_told: bool = False
    """It uses more than it may, and the listener knows."""


class WorkerLink:
    """One worker, or a warm spare that has no name yet (`worker` is None).

    Changed under the pool's lock, except `send`, which any thread may call.
    """

    def __init__(self, worker: WorkerId | None, max_frame: int) -> None:
        self.worker = worker
        self._max_frame = max_frame
        self.process: WorkerProcess | None = None
        self.frames = FrameBuffer(max_frame)
        self.started = time.monotonic()
        self.booted = False
        self.prepared = False
        """It said `Prepared`: once it has a name it can run steps."""
        self.is_ready = False
        """It said `Ready`: before that no step of it can have begun."""
        self.replace = False
        """A spare may take its place when it dies in a step."""
        self.was_spare = False
        self.dead = False
        self.heir: WorkerLink | None = None
        """Worker that goes on with the process of a spare."""
        self.eof = False
        self.is_garbled = False
        """It sent bytes that are no frame; nothing it says is heard any more."""
        self.stop_asked = False
        self.killed_as = ""
        self.kill_reason = ""
        self.boot_failed: BootFailed | None = None
        self.family: list[psutil.Process] = []
        """Descendants seen alive when it was killed."""
        self.oom_before: int | None = None
        self.seen_rss: int | None = None
        self.told: dict[str, Definition] = {}
        """The classes a spare was told of, by name."""
        self.given: dict[StepToken, tuple[str, str, str | None]] = {}
        """Steps sent and not answered: what is printed without a mark belongs to the first."""
        self.watched: WatchedStep | None = None
        self.guarded: int | None = None
        """Bytes to which the kernel limits its memory; None: it does not."""
        self._lock = threading.Lock()
        self._held: list[bytes] | None = []
        """Frames sent before `Ready`."""

    @property
    def label(self) -> str:
        """Name of the worker in log lines."""
        return "spare worker" if self.worker is None else f"worker {self.worker.slot}.{self.worker.incarnation}"

    @property
    def state(self) -> str:
        """booting, idle or stopping, as far as the pool can tell."""
        if self.stop_asked or self.killed_as:
            return "stopping"
        return "idle" if self.booted else "booting"

    def begin(self, process: WorkerProcess) -> None:
        """A process was started for it."""
        self.process = process
        process.stdout.worker = process.stderr.worker = self._facts()
        self.started = time.monotonic()
        self.oom_before = oom_kills()

    def take_over(self, spare: WorkerLink) -> None:
        """Go on with a spare's process; the spare is no more."""
        process = spare.process
        assert process is not None
        spare.heir = self
        self.process, self.started, self.oom_before = process, spare.started, spare.oom_before
        self.frames, self.eof, self.prepared, self.was_spare = spare.frames, spare.eof, spare.prepared, True
        process.stdout.label, process.stderr.label = f"{self.label} stdout:", f"{self.label} stderr:"
        process.stdout.worker = process.stderr.worker = self._facts()

    def _facts(self) -> dict[str, int | None]:
        """Attributes of log records of its output."""
        slot = None if self.worker is None else self.worker.slot
        return {"slot": slot, "pid": None if self.process is None else self.process.pid}

    def note_ready(self, message: Ready) -> None:
        """It said `Ready`."""
        self.is_ready = True
        if self.process is not None:
            self.process.reader = message.reader

    def should_start_again(self) -> bool:
        """It was a spare that died before it said `Ready`: a fresh process may do better."""
        return self.was_spare and not (self.booted or self.killed_as or self.stop_asked)

    def forget_process(self) -> None:
        """Be as before the spare was taken over."""
        self.process, self.was_spare, self.eof, self.boot_failed = None, False, False, None
        self.prepared = False
        self.frames = FrameBuffer(self._max_frame)

    def owner(self) -> OutputOwner:
        """The step that runs now, as far as the pool can tell; `UNOWNED` for none."""
        try:
            token = next(iter(self.given), None)
        except RuntimeError:  # another thread hands out a step at this moment
            return UNOWNED
        return UNOWNED if token is None else self.owner_of(token)

    def owner_of(self, token: StepToken) -> OutputOwner:
        """A step that it was given, and what is known of it: of one that has answered the numbers."""
        root, type_name, step_name = self.given.get(token) or ("", "", None)
        return OutputOwner(token.procedure, token.step, token.attempt, root, type_name, step_name or "")

    def note(self, rss: int | None, oom_count: int | None) -> None:
        """A sample of its memory, in bytes, and of the kernel's counter. Any thread."""
        if rss is None:
            return  # it is dead: what the kernel has counted since may be its own end
        self.seen_rss = max(filter(None, (rss, self.seen_rss)), default=None)
        self.oom_before = oom_count

    def send(self, *pieces: bytes) -> bool:
        """Send a frame, in pieces, or hold it until the worker is ready. True when the socket is full."""
        with self._lock:
            if self._held is not None:
                self._held += pieces
                return False
            assert self.process is not None
            return self.process.write(*pieces)

    def release_held(self) -> bool:
        """The worker is ready: send what was held. True when the socket is full."""
        with self._lock:
            held, self._held = self._held or [], None
            assert self.process is not None
            return self.process.write(*held)

    def bury(self, *, group_killed: bool = False) -> CrashReport:
        """The report of a reaped worker; its descriptors are closed."""
        process = self.process
        assert process is not None
        status, peak_rss, cpu_time = process.reap() or (None, None, None)
        report = crash_report(
            Remains(
                status=status,
                booted=self.booted,
                stop_asked=self.stop_asked,
                killed_as=self.killed_as,
                kill_reason=self.kill_reason,
                boot_failed=self.boot_failed,
                group_killed=group_killed and status == signal.SIGKILL,
                out_of_memory=status == signal.SIGKILL and not self.killed_as and self._oom_moved(),
                stderr=process.stderr.tail(),
                stack=process.stack(),
                peak_rss=max(filter(None, (peak_rss, self.seen_rss)), default=None),
                cpu_time=cpu_time,
            ),
        )
        report = msgspec.structs.replace(report, task=process.task_died_in(report.stack))
        process.close()
        if self.booted and not (self.is_ready or self.killed_as or self.stop_asked):
            # A spare that was dead, or died, when it got its name: no step of it began, and the next one will do.
            return msgspec.structs.replace(report, kind="stopped")
        return report

    def _oom_moved(self) -> bool:
        now = oom_kills()
        return now is not None and self.oom_before is not None and now > self.oom_before
