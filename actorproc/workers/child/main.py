"""Entry point of a worker process.

There are two threads. The main thread runs steps, because only there can SIGTERM interrupt Python code, and reads the
channel while it has none. The reader thread reads when it has (`channel_reader`). Boot: guard the process, `Prepare`
(imports, environment), `WorkerHello` (the name), `Ready`.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import signal
import sys
import threading
import traceback
from queue import SimpleQueue
from typing import TYPE_CHECKING, NoReturn

from actorproc.procedure.authoring.context import StopStep
from actorproc.procedure.shipping.importing import imports_only, mark_multiprocessing
from actorproc.procedure.shipping.worker_main import show_what_comes
from actorproc.procedure.values.codec import permit_calls, permit_size
from actorproc.procedure.values.error_text import in_words
from actorproc.workers.child.output.streams import Streams
from actorproc.workers.child.process_state.change_hooks import changes
from actorproc.workers.child.process_state.child_processes import Offspring
from actorproc.workers.child.process_state.guard import (
    Guard,
    arm_lifeline,
    exit_with_traceback,
    out_of_the_way,
    write_no_more_to,
    write_stacks_to,
)
from actorproc.workers.child.process_state.limits import Limiter
from actorproc.workers.child.process_state.program import take_over
from actorproc.workers.child.process_state.recycling import Recycling
from actorproc.workers.child.runtime import log_channel
from actorproc.workers.child.runtime.channel import WorkerChannel
from actorproc.workers.child.runtime.channel_reader import ChannelReader, read_into, wait_for_next
from actorproc.workers.child.runtime.live_procedures import LiveProcedures
from actorproc.workers.child.runtime.worker_runtime import WorkerRuntime
from actorproc.workers.protocol.exit_codes import EXIT_BOOT, EXIT_INTERNAL, EXIT_TERMINATED
from actorproc.workers.protocol.frames import (
    BootFailed,
    Prepare,
    Prepared,
    Ready,
    Run,
    ToWorker,
    WarmUp,
    WorkerHello,
)

if TYPE_CHECKING:
    from actorproc.workers.child.runtime.around_step import AroundStep

__all__ = ["main"]

_OF_BOOT = (Prepare, WorkerHello, WarmUp)
_LEAVE_SECONDS = 2.0
"""Seconds that an orderly end may take: a thread or an exit hook of user code may never finish."""
_CLOSE_SECONDS = 12.0
"""Seconds that the environment may take to close before that."""
_opened = contextlib.ExitStack()
"""Closes what the environment's factory opened."""


def main(channel_fd: int, lifeline_fd: int, fault_fd: int) -> NoReturn:
    """Live as a worker on these descriptors."""
    lifeline = out_of_the_way(lifeline_fd)
    arm_lifeline(lifeline)
    fault = out_of_the_way(fault_fd)
    write_stacks_to(fault)
    offspring = Offspring()
    guard = Guard(lambda: write_stacks_to(fault))
    channel = WorkerChannel(out_of_the_way(channel_fd), guard)
    limiter = Limiter()
    channel.limiter = limiter
    worker_runtime = WorkerRuntime(channel, guard, limiter)
    worker_runtime.marks = fault

    def in_forked_copy() -> None:
        offspring.in_forked_copy()
        channel.leave_to_parent()
        with contextlib.suppress(OSError):  # a step may have closed it
            os.close(lifeline)
        with contextlib.suppress(OSError):  # no /dev/null, or no room for one more descriptor
            write_no_more_to(fault)

    guard.watch_forks(in_forked_copy)
    imports_only("a worker process", repeats=True).__enter__()
    show_what_comes()
    mark_multiprocessing()
    changes.watch()
    offspring.watch()
    _tidy_interpreter()
    worker_runtime.streams = Streams(worker_runtime.output_owner)
    try:
        code = _Worker(channel, worker_runtime, guard).live()
    except BaseException:  # noqa: BLE001 - whatever it is, it must be readable in the crash report
        traceback.print_exc()
        code = EXIT_INTERNAL
    _leave(code)


def _tidy_interpreter() -> None:
    """Text printed before a crash must have left the process; the descriptors are no arguments of the program."""
    sys.argv[:] = ["-c"]
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and hasattr(stream, "reconfigure"):
            stream.reconfigure(line_buffering=True, errors="backslashreplace")


def _leave(code: int) -> NoReturn:
    if code == 0:
        with contextlib.suppress(RuntimeError):  # no room for a thread, in what a step has left: go at once, below
            _exit_within(_CLOSE_SECONDS)
            try:
                _opened.close()
            except BaseException:  # noqa: BLE001 - user code; the worker ends in order all the same
                traceback.print_exc()
            _exit_within(_LEAVE_SECONDS)
            sys.exit(0)
    for name in ("stdout", "stderr"):
        try:
            getattr(sys, name).flush()
        except (AttributeError, OSError, ValueError):  # closed or replaced by a step
            continue
    os._exit(code)


def _exit_within(seconds: float) -> None:
    leave_anyway = threading.Timer(seconds, os._exit, (0,))
    leave_anyway.daemon = True
    leave_anyway.start()


class _Worker:
    def __init__(self, channel: WorkerChannel, worker_runtime: WorkerRuntime, guard: Guard) -> None:
        self._channel = channel
        self._worker_runtime = worker_runtime
        self._boot: SimpleQueue[Prepare | WorkerHello | WarmUp] = SimpleQueue()
        read = read_into(channel, self._take_in)
        self._reading = worker_runtime.reading = ChannelReader(
            read, worker_runtime.queue, worker_runtime.asked, guard.nudge_main
        )
        self._reader = threading.Thread(target=self._serve_reading, name="actorproc-reader", daemon=True)
        self._warm_limit = 0

    def live(self) -> int:
        """Boot, then run steps until told to stop; the exit code."""
        self._reader.start()
        try:
            if not self._prepare():
                return EXIT_BOOT
            self._reading.begin()
            LiveProcedures(self._worker_runtime, self._warm_limit, self._reading.leave_to_reader).serve()
        except StopStep:
            return EXIT_TERMINATED if self._worker_runtime.current is not None else 0
        return 0

    # ------------------------------------------------------------------ reader thread
    def _serve_reading(self) -> None:
        # Signals are for the main thread, where they interrupt what blocks. That for the stacks must not.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - {signal.SIGUSR1})
        try:
            self._reading.serve()
        except BaseException:  # noqa: BLE001 - a worker that hears nothing must not live on
            exit_with_traceback(EXIT_INTERNAL)

    # ------------------------------------------------------------------ the reading thread
    def _take_in(self, message: ToWorker) -> None:
        if type(message) is Run:
            self._worker_runtime.put(message)
        elif isinstance(message, _OF_BOOT):
            if isinstance(message, Prepare):
                self._channel.allow(message.max_frame)
            self._boot.put(message)
        else:
            self._worker_runtime.take_in(message)

    # ------------------------------------------------------------------ main thread
    def _prepare(self) -> bool:
        guard, channel = self._worker_runtime.guard, self._channel
        prepare = self._next_boot_message()
        assert isinstance(prepare, Prepare), prepare
        self._warm_limit = prepare.warm_limit
        take_over(prepare.program)
        permit_size(prepare.max_state)
        permit_calls(prepare.max_call)
        self._worker_runtime.staging = os.fsdecode(prepare.staging)
        channel.limiter.process_limit.cgroup = prepare.process_cgroup
        self._worker_runtime.log_level = log_channel.install(
            channel, prepare.log_level, prepare.program, self._worker_runtime.current_here
        )
        recycling = Recycling(prepare.recycle_steps, prepare.recycle_age, prepare.recycle_memory)
        self._worker_runtime.recycling = recycling if recycling.is_watched else None
        guard.allow_interrupt()
        doing = ""
        try:
            for name in prepare.preload:
                doing = f"the import of {name!r} (preload)"
                importlib.import_module(name)
            if prepare.environment is not None:
                doing = "the environment factory"
                self._worker_runtime.env = _environment(prepare.environment)
            if prepare.around_step:
                doing = f"the import of {prepare.around_step!r} (around_step)"
                around = _around(prepare.around_step, fails=prepare.around_step_fails)
                self._worker_runtime.around, self._worker_runtime.around_async = around.run, around.run_async
        except StopStep:
            raise
        except BaseException as error:  # noqa: BLE001 - user code; a sys.exit() in it is a boot failure as well
            guard.forbid_interrupt()
            reason = f"{doing} failed: {in_words(error)}"
            channel.send([BootFailed(reason, traceback.format_exc())])
            return False
        guard.forbid_interrupt()
        self._worker_runtime.remember_process_state()
        gc.collect()
        gc.freeze()  # what is loaded now stays for life: later collections need not look at it
        channel.send([Prepared()])
        while isinstance(message := self._next_boot_message(), WarmUp):
            self._warm_up()
            channel.send([Prepared()])
        assert isinstance(message, WorkerHello), message
        channel.send([Ready(os.getpid(), sys.version.split(maxsplit=1)[0], self._reader.native_id or 0)])
        return True

    def _warm_up(self) -> None:
        """Load classes before they are needed; what their modules do to the process is undone, as after a step."""
        self._worker_runtime.guard.allow_interrupt()
        self._worker_runtime.types.load_all()
        self._worker_runtime.guard.forbid_interrupt()
        self._worker_runtime.restore()
        gc.collect()
        gc.freeze()

    def _next_boot_message(self) -> Prepare | WorkerHello | WarmUp:
        self._worker_runtime.guard.allow_interrupt()
        message = wait_for_next(self._boot)
        self._worker_runtime.guard.forbid_interrupt()
        return message


def _environment(pickled: bytes) -> object:
    from actorproc.procedure.declaring.environment import entered  # noqa: PLC0415 - as above
    from actorproc.procedure.shipping.origins import loads  # noqa: PLC0415 - only workers that need it pay for the import

    return entered(loads(pickled)(), _opened)


def _around(name: str, *, fails: bool) -> AroundStep:
    from actorproc.workers.child.runtime.around_step import AroundStep  # noqa: PLC0415 - as above, and its module

    return AroundStep(name, fails=fails)
