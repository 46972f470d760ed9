"""Receiver of workers' messages: their frames are decoded, noted, and passed on to the listener of the pool."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import force_setattr

from actorproc.model.ids import StepToken
from actorproc.model.messages.outcomes import Finished
from actorproc.support.staged_files import taken
from actorproc.workers.base import WorkerMessages
from actorproc.workers.output.log_buffer import LogBuffer
from actorproc.workers.pool.killing import Killer
from actorproc.workers.pool.spares import Spares
from actorproc.workers.pool.stack_requests import StackRequests
from actorproc.workers.pool.usage_sampler import UsageSampler
from actorproc.workers.pool.worker_link import WorkerLink
from actorproc.workers.protocol.frames import (
    BootFailed,
    Ended,
    FrameError,
    FromWorker,
    LogLine,
    NeedState,
    Prepared,
    Ready,
    Returned,
    Stack,
    decode_from_worker,
)

__all__ = ["FrameReceiver"]


class FrameReceiver:
    """Hears all workers of a pool. Used under the pool's lock.

    `tell` is given what concerns the listener; `booted` is called for a worker that said `Ready`.
    """

    def __init__(
        self,
        *,
        sampler: UsageSampler,
        killer: Killer,
        spares: Spares,
        stacks: StackRequests,
        log_buffer: LogBuffer,
        tell: Callable[[WorkerMessages], None],
        booted: Callable[[WorkerLink], None],
        staging: str,
    ) -> None:
        self._staging = staging
        self._sampler = sampler
        self._killer = killer
        self._spares = spares
        self._stacks = stacks
        self._log_buffer = log_buffer
        self._tell = tell
        self._booted = booted

    def hear(self, link: WorkerLink, chunk: bytes) -> None:
        """Bytes came from this worker."""
        if link.is_garbled:
            return
        messages: list[FromWorker] = []
        try:
            for body in link.frames.feed(chunk):
                messages += self._own(link, decode_from_worker(body))
        except FrameError as error:
            link.is_garbled = True
            self._killer.kill_at_once(link, "protocol", str(error))
        if not link.booted:
            messages = self._hear_boot(link, messages)
        if link.watched is not None:
            self._look_at_watched(link, link.watched.token, messages)
        for message in messages:
            if type(message) is Ready:
                link.note_ready(message)
        if messages and link.worker is not None:
            self._tell(WorkerMessages(link.worker, messages))

    def _look_at_watched(self, link: WorkerLink, token: StepToken, messages: list[FromWorker]) -> None:
        if any(isinstance(message, Ended | Returned | NeedState) and message.token == token for message in messages):
            self._sampler.end(link)

    def _own(self, link: WorkerLink, messages: list[FromWorker]) -> list[FromWorker]:
        """Messages of one frame. Raises `FrameError` when one is about a step that was handed to another worker.

        Outputs in files of the staging directory are mapped; `FrameError` when one is not there. Log records are
        kept here, before the answer of their step takes away what is known of it.
        """
        given = link.given
        for message in messages:
            kind = type(message)
            if kind is Ended and message.file:  # type: ignore[union-attr]
                _take_output(message, self._staging)  # type: ignore[arg-type]
            if (kind is Ended or kind is Returned) and given.pop(message.token, None) is not None:  # type: ignore[union-attr, arg-type]
                continue  # this one has it, hence no other
            token = getattr(message, "token", None)
            if token is not None and token.worker != link.worker:
                msg = f"spoke of a step of {token.procedure!r:.140} that another worker has"
                raise FrameError(msg)
            if kind is LogLine or kind is Stack:
                self._note(link, message)  # type: ignore[arg-type]
        return messages

    def _note(self, link: WorkerLink, message: LogLine | Stack) -> None:
        if isinstance(message, Stack):
            self._stacks.answered(message.request, message.text)
        elif message.token is not None:
            text = f"{message.text}\n{message.trace}" if message.trace else message.text
            owner = link.owner_of(message.token)
            self._log_buffer.add(owner.procedure, "log", text, level=message.level, logger=message.name, owner=owner)

    def _hear_boot(self, link: WorkerLink, messages: list[FromWorker]) -> list[FromWorker]:
        others: list[FromWorker] = []
        for message in messages:
            if isinstance(message, BootFailed):
                link.boot_failed = message
            elif isinstance(message, Prepared):
                link.prepared = True
                assert link.process is not None
                link.process.warming = ()
                if link.worker is None:
                    self._spares.warm_up()
            elif isinstance(message, Ready) and link.worker is not None:
                link.note_ready(message)
                self._booted(link)
            else:
                others.append(message)
        return others


def _take_output(message: Ended, staging: str) -> None:
    try:
        output = taken(staging, message.file, message.size)
    except (OSError, ValueError) as error:
        msg = f"its output cannot be taken over: {error}"
        raise FrameError(msg) from error
    if type(message.outcome) is not Finished:
        msg = "sent an output in a file for a step that has none"
        raise FrameError(msg)
    force_setattr(message.outcome, "output", output)
