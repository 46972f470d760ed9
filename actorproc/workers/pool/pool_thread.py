"""The one thread of a local pool: it starts, names, kills and reaps workers, and hears them where no other does.

::

    launch ──▶ process started, or a warm spare takes the name ──▶ Ready: WorkerBooted
    death:  pidfd readable ─▶ kill the group ─▶ read the channel to its end ─▶ reap ─▶ WorkerDied

Why this order? A result that is already in the channel must win over the death. A grandchild may hold the channel
open, so its end of file neither proves a death nor is needed for one. A slot may be reused only when the old process
can do nothing any more. Signals are sent under the lock under which is reaped, so a pid that was given to a stranger is
never hit.

The manager's thread hears the workers, if it listens (`WorkerEar`), and this one while it is away, both under one lock.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
from collections import deque
from collections.abc import Callable
from functools import partial

import msgspec

from actorproc.errors import WorkerBootFailed
from actorproc.model.ids import StepToken, WorkerId
from actorproc.model.messages.events import CrashReport
from actorproc.model.policies import StepLimits
from actorproc.support.engine_log import engine_logger
from actorproc.support.staged_files import drop_staged_by
from actorproc.workers.base import PoolEvent, PoolFailed, WorkerBooted, WorkerDied
from actorproc.workers.os.cgroups import Cgroups
from actorproc.workers.os.process import WorkerProcess
from actorproc.workers.os.timers import PoolTimers
from actorproc.workers.os.usage import kill_all
from actorproc.workers.output.log_buffer import LogBuffer
from actorproc.workers.pool.killing import Killer
from actorproc.workers.pool.receiver import FrameReceiver
from actorproc.workers.pool.spares import Spares
from actorproc.workers.pool.stack_requests import StackRequests
from actorproc.workers.pool.usage_sampler import UsageSampler
from actorproc.workers.pool.worker_ear import Heard, WorkerEar
from actorproc.workers.pool.worker_link import WorkerLink
from actorproc.workers.protocol.frames import Definition, StackWanted, Stop, WorkerHello, encode_frame
from actorproc.workers.protocol.host_program import StartPlace
from actorproc.workers.protocol.markers import OutputOwner

__all__ = ["PoolThread", "Recipe"]

logger = engine_logger("actorproc.pool")

_REAP_AGAIN = 0.002
"""Seconds between looks at a dead process that is not collectable: a debugger holds it."""
_EOF_PATIENCE = 1.0
"""Seconds a worker may live after it closed its channel: it cannot answer any more."""
_DRAIN_READS = 1024
"""Reads of a dead worker's channel; an escaped grandchild may write for ever."""


class Recipe(msgspec.Struct, frozen=True, kw_only=True):
    """Recipe for the workers of this pool."""

    executable: str
    place: StartPlace
    first_bytes: bytes
    epoch: int
    max_frame: int
    spares: int
    use_pidfd: bool
    staging: str = ""
    """Directory for files with long outputs of workers; "": there is none."""


class PoolThread:
    """Owns all worker processes of a pool. `post` may be called from any thread, the rest runs under the ear's lock."""

    def __init__(
        self,
        recipe: Recipe,
        links: dict[WorkerId, WorkerLink],
        sink: Callable[[PoolEvent], None],
        log_buffer: LogBuffer,
        cgroups: Cgroups,
    ) -> None:
        self._cgroups = cgroups
        self._recipe = recipe
        self._log_buffer = log_buffer
        self._links = links
        self._sink = sink
        self._timers = PoolTimers(self._wake)
        self._killer = Killer(self._timers)
        self.stacks = StackRequests(self._timers)
        self._spares = Spares(
            wanted=recipe.spares,
            max_frame=recipe.max_frame,
            timers=self._timers,
            start=self._start,
            write=self._write,
            may_start=self._may_start_spare,
        )
        self._sampler = UsageSampler(self._timers, cgroups, self._tell)
        self._receiver = FrameReceiver(
            sampler=self._sampler,
            killer=self._killer,
            spares=self._spares,
            stacks=self.stacks,
            log_buffer=log_buffer,
            tell=self._tell,
            booted=self._booted,
            staging=recipe.staging,
        )
        self._commands: deque[Callable[[], None]] = deque()
        self._closing = False
        self._selector = selectors.DefaultSelector()
        self._wake_in, self._wake_out = socket.socketpair()
        self._wake_in.setblocking(False)
        self._wake_out.setblocking(False)
        self._selector.register(self._wake_out, selectors.EVENT_READ, None)
        self.ear = WorkerEar(self._wake, self._handle, self._fail)
        self._listens = False
        """This thread waits for what workers say."""
        self._failure: BaseException | None = None
        self.thread = threading.Thread(target=self._run, name="actorproc-pool", daemon=True)

    def start(self) -> None:
        """Begin. Raises `RuntimeError` when the system has no thread; then nothing is left open."""
        try:
            self.thread.start()
        except RuntimeError:
            self._abandon()
            raise

    def post(self, command: Callable[[], None]) -> None:
        """Have the thread do this soon. After the thread's end it is dropped."""
        self._commands.append(command)
        self._wake()

    def _wake(self) -> None:
        with contextlib.suppress(OSError):  # full: the thread is awake anyway; closed: it has ended
            self._wake_in.send(b"\0")

    def _fail(self, error: BaseException) -> None:
        self._failure = error
        self._wake()

    # ------------------------------------------------------------------ the loop
    def _run(self) -> None:
        failure: BaseException | None = None
        ear = self.ear
        try:
            while not (self._closing and not self._links and not self._spares):
                ready = self._selector.select(self._wait())
                with ear.lock:
                    self._go_on(ready)
                ear.relieve()
        except BaseException as error:
            logger.critical("the worker pool's thread failed; its workers are killed", exc_info=True)
            failure = error
        with ear.lock:
            self._abandon()
        if failure is not None:
            self._tell(PoolFailed(failure))

    def _wait(self) -> float | None:
        """Seconds until the next timer, or look at the ear; this thread listens from now on, if it is to."""
        look, due = self.ear.attendance.look(), self._timers.wait()
        if self._listens != self.ear.attendance.stands_in:
            self._listens = not self._listens
            if self._listens:
                self._selector.register(self.ear.selector, selectors.EVENT_READ, self.ear)
            else:
                self._selector.unregister(self.ear.selector)
        return due if look is None else look if due is None else min(due, look)

    def _go_on(self, ready: Heard) -> None:
        if self._failure is not None:
            raise self._failure
        # What was said comes first: a death that is known at once with it is that of a worker which has answered.
        for key, _ in ready:
            if key.data is self.ear:
                for said, mask in self.ear.heard():
                    self._handle(said.data, mask)
        for key, mask in ready:
            if key.data is None:
                self._wake_out.recv(4096)
            elif key.data is not self.ear:
                self._handle(key.data, mask)
        while self._commands:
            self._commands.popleft()()
        self._timers.run_due()

    @staticmethod
    def _handle(data: tuple[Callable[[WorkerLink, int], None], WorkerLink], mask: int) -> None:
        handle, link = data
        link = link.heir or link  # an earlier event of this round may have had a spare taken
        if not link.dead:  # an earlier event of this round may have buried it
            handle(link, mask)

    def _abandon(self) -> None:
        self._closing = True
        for link in (*self._links.values(), *self._spares):
            if link.process is not None and not link.process.closed:
                link.process.kill_group()
                link.process.close()
        self._recipe.place.close()
        self._links.clear()
        self._log_buffer.close()
        self._cgroups.close()
        self.ear.close()
        self._selector.close()
        self._wake_in.close()
        self._wake_out.close()

    def _tell(self, event: PoolEvent) -> None:
        try:
            self._sink(event)
        except Exception:
            logger.exception("the pool's listener failed on a %s", type(event).__name__)

    # ------------------------------------------------------------------ starting
    def launch(self, link: WorkerLink) -> None:
        """Give a spare this link's name, or start a process."""
        if self._closing:
            self._report(link, CrashReport(kind="stopped", message="stopped before it was started"))
        elif (spare := self._spares.take()) is not None:
            self._take_over(spare, link)
            assert link.process is not None
            if link.prepared and not link.process.is_over():
                self._booted(link)
        else:
            self._start(link)

    def _take_over(self, spare: WorkerLink, link: WorkerLink) -> None:
        link.take_over(spare)
        assert link.process is not None
        self._keep_output(link, link.process)
        for selector in (self.ear.selector, self._selector):
            for fd in link.process.watched():
                with contextlib.suppress(KeyError):
                    key = selector.get_key(fd)
                    selector.modify(fd, key.events, (key.data[0], link))
        self._name(link)

    def _start(self, link: WorkerLink) -> None:
        recipe = self._recipe
        try:
            process = WorkerProcess(
                executable=recipe.executable,
                label=link.label,
                place=recipe.place,
                use_pidfd=recipe.use_pidfd,
            )
        except WorkerBootFailed as error:
            self._report(link, CrashReport(kind="boot", message=str(error)))
            return
        link.begin(process)
        self._keep_output(link, process)
        says = self.ear.selector
        says.register(process.channel, selectors.EVENT_READ, (self._on_channel, link))
        says.register(process.stdout.fd, selectors.EVENT_READ, (self._on_stdout, link))
        says.register(process.stderr.fd, selectors.EVENT_READ, (self._on_stderr, link))
        if process.pidfd is not None:
            self._selector.register(process.pidfd, selectors.EVENT_READ, (self._on_death, link))
        else:
            process.watch_in_thread(lambda: self.post(lambda: self._on_death_of(process)))
        self._write(link, recipe.first_bytes)
        if link.worker is not None:
            self._name(link)

    def _keep_output(self, link: WorkerLink, process: WorkerProcess) -> None:
        def keep(owner: OutputOwner, stream: str, text: str) -> OutputOwner:
            found = owner if owner.procedure else link.owner()
            if found.procedure:
                self._log_buffer.add(found.procedure, stream, text, owner=found)
            return found

        process.stdout.keep = process.stderr.keep = keep

    def _name(self, link: WorkerLink) -> None:
        assert link.worker is not None
        self._write(link, encode_frame([WorkerHello(self._recipe.epoch, link.worker)], self._recipe.max_frame))

    def _write(self, link: WorkerLink, frames: bytes) -> None:
        """Write at once, also before the worker is ready."""
        assert link.process is not None
        if link.process.write(frames):
            self.watch_for_room(link)

    def _may_start_spare(self) -> bool:
        """Not while the pool closes, nor while a worker boots from cold: that one is needed more."""
        # A list first: other threads launch workers meanwhile, and a dict must not grow while it is gone through.
        return not self._closing and all(link.booted for link in list(self._links.values()))

    def learn(self, definition: Definition) -> None:
        """Workers need this class. For any thread."""
        if self._spares.learn(definition):
            self.post(self._spares.warm_up)

    # ------------------------------------------------------------------ what a worker says
    def watch_for_room(self, link: WorkerLink) -> None:
        """The socket is full: write on when there is room."""
        if not link.dead and not link.eof and link.process is not None:
            events = selectors.EVENT_READ | selectors.EVENT_WRITE
            self.ear.selector.modify(link.process.channel, events, (self._on_channel, link))

    def _on_channel(self, link: WorkerLink, mask: int) -> None:
        process = link.process
        if process is None or link.eof:  # the other thread was told of it, too, and was faster
            return
        if mask & selectors.EVENT_WRITE and not process.flush():
            self.ear.selector.modify(process.channel, selectors.EVENT_READ, (self._on_channel, link))
        if not mask & selectors.EVENT_READ:
            return
        chunk = process.receive()
        if chunk:
            self._receiver.hear(link, chunk)
        elif chunk is not None:
            link.eof = True
            self.ear.selector.unregister(process.channel)
            self._timers.after(_EOF_PATIENCE, partial(self._kill_mute, link, process))

    def _booted(self, link: WorkerLink) -> None:
        """It can be given steps: it said `Ready`, or has only to read its name before them."""
        assert link.worker is not None
        assert link.process is not None
        link.booted = True
        self._tell(WorkerBooted(link.worker, link.process.pid))
        if link.release_held():
            self.watch_for_room(link)
        self._spares.allow_soon()

    def _on_stdout(self, link: WorkerLink, _mask: int) -> None:
        self._read_output(link, "stdout")

    def _on_stderr(self, link: WorkerLink, _mask: int) -> None:
        self._read_output(link, "stderr")

    def _read_output(self, link: WorkerLink, name: str) -> None:
        process = link.process
        if process is not None and not getattr(process, name).read():
            with contextlib.suppress(KeyError):  # the other thread was faster
                self.ear.selector.unregister(getattr(process, name).fd)

    # ------------------------------------------------------------------ looking inside
    def ask_stack(self, worker: WorkerId, token: StepToken, number: int) -> None:
        """Ask the worker for the stack of its step; one that does not answer is made to write it by a signal."""
        link = self._links.get(worker)
        if link is None or link.dead or not link.booted or link.process is None:
            self.stacks.answered(number, "")
            return
        if link.send(encode_frame([StackWanted(number, token)], self._recipe.max_frame)):
            self.watch_for_room(link)
        self.stacks.asked(link, number)

    def sample(self, worker: WorkerId, token: StepToken, limits: StepLimits) -> None:
        """Watch what this step uses."""
        self._sampler.begin(self._links.get(worker), token, limits)

    # ------------------------------------------------------------------ ending
    def stop(self, worker: WorkerId) -> None:
        """Send `Stop`; a worker that is not ready yet is killed instead."""
        link = self._links.get(worker)
        if link is None or link.dead or link.stop_asked:
            return
        link.stop_asked = True
        if not link.booted:
            self.kill(worker, 0.0, "stopped", "stopped before it was ready")
        elif link.send(encode_frame([Stop()], self._recipe.max_frame)):
            self.watch_for_room(link)

    def kill(self, worker: WorkerId, grace: float, kind: str, reason: str, *, ask: bool = True) -> None:
        """Kill for this reason; the first reason given stays."""
        link = self._links.get(worker)
        if link is not None:
            self._killer.kill(link, grace, kind, reason, ask=ask)

    def _kill_mute(self, link: WorkerLink, process: WorkerProcess) -> None:
        link = link.heir or link
        if link.process is process:  # else it is dead, and another one was started for this link
            self._killer.kill_at_once(link, "protocol", "it closed its channel to the host")

    def _on_death_of(self, process: WorkerProcess) -> None:
        for link in (*self._links.values(), *self._spares):
            if link.process is process:
                self._on_death(link)
                return

    def _reap_again(self, link: WorkerLink, process: WorkerProcess) -> None:
        link = link.heir or link
        if link.process is process and not link.dead:  # as above
            self._on_death(link)

    def _on_death(self, link: WorkerLink, _mask: int = 0) -> None:
        process = link.process
        assert process is not None
        process.kill_group()
        kill_all(link.family)
        if not link.eof:
            self._drain(link, process)
        process.stdout.read_rest()
        process.stderr.read_rest()
        if process.reap() is None:
            if process.pidfd is not None:
                with contextlib.suppress(KeyError):
                    self._selector.unregister(process.pidfd)  # readable for good: look again by the clock
            self._timers.after(_REAP_AGAIN, partial(self._reap_again, link, process))
            return
        for selector in (self.ear.selector, self._selector):
            for fd in process.watched():
                with contextlib.suppress(KeyError):
                    selector.unregister(fd)
        group_killed = self._cgroups.was_killed(process.pid)
        self._spares.blame(process)
        report = link.bury(group_killed=group_killed)
        self._cgroups.forget(process.pid)
        drop_staged_by(self._recipe.staging, process.pid)
        if link.should_start_again():
            link.forget_process()
            self._start(link)
        else:
            self._report(link, report)

    def _drain(self, link: WorkerLink, process: WorkerProcess) -> None:
        for _ in range(_DRAIN_READS):
            chunk = process.receive()
            if not chunk:
                return
            self._receiver.hear(link, chunk)

    def _report(self, link: WorkerLink, report: CrashReport) -> None:
        link.dead = True
        if link.worker is None:
            is_news = not self._closing and not self._spares.is_forgotten(link)
            self._spares.died(link)
            if is_news:
                logger.warning("a spare worker died: %s", report.message)
            return
        del self._links[link.worker]
        successor = self._successor(link)
        if successor is None:
            self._tell(WorkerDied(link.worker, report, link.booted))
            return
        # Both in one breath: the listener decides on the death and on the next attempt in one commit.
        self._tell(WorkerDied(link.worker, report, link.booted, successor.worker))
        self._booted(successor)

    def _successor(self, link: WorkerLink) -> WorkerLink | None:
        """The spare that takes the place of a worker that died in a step, if one is prepared."""
        worker = link.worker
        if worker is None or not (link.replace and link.booted and link.given) or link.stop_asked or self._closing:
            return None
        spare = self._spares.take_ready()
        if spare is None:
            return None
        successor = WorkerLink(WorkerId(worker.slot, worker.incarnation + 1), self._recipe.max_frame)
        successor.replace = True
        assert successor.worker is not None
        self._links[successor.worker] = successor
        self._take_over(spare, successor)
        return successor

    def forget_spares(self) -> None:
        """End all spares; the next ones load what is on disk then."""
        for link in self._spares.forget():
            self._killer.kill_at_once(link, "stopped", "workers are reloaded")

    def close(self, timeout: float) -> None:
        """Stop all, and kill what is left after `timeout` seconds."""
        self._closing = True
        for link in self._spares:
            self._killer.kill_at_once(link, "stopped", "the pool was closed")
        for worker in list(self._links):
            self.stop(worker)
        self._timers.after(timeout, self._kill_all)

    def _kill_all(self) -> None:
        for link in (*self._links.values(), *self._spares):
            self._killer.kill_at_once(link, "stopped", "it did not stop in time")
