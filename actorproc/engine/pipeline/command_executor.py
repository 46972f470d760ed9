"""Acting: the commands of a committed batch become frames to workers and answers to callers."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from itertools import islice
from typing import cast

from msgspec.structs import replace

from actorproc.engine.messages import AddSlot, Ending, RetireSlot
from actorproc.engine.pipeline.batch import CommitBatch
from actorproc.engine.pipeline.commit_cache import CommitCache
from actorproc.engine.pipeline.in_flight import InFlightTable, WorkerEntry
from actorproc.engine.pipeline.task_cancellation import TaskCancellation
from actorproc.engine.reply_router import Promise, ReplyRouter
from actorproc.engine.runtime.type_table import TypeTable
from actorproc.errors import StorageUnavailable, StoreDamaged
from actorproc.model.ids import StepToken, WorkerId
from actorproc.model.messages.commands import (
    AddWorker,
    AnswerWorker,
    AskAbort,
    Command,
    KillWorker,
    Reply,
    Resolve,
    ResolveAsk,
    RetireWorker,
    RunStep,
    SendAgain,
    StartWorker,
    StopWorker,
    TakeBack,
)
from actorproc.model.messages.definitions import Definition
from actorproc.model.messages.events import Event, StepDelayed, StepEnded, StepReturned
from actorproc.model.messages.outcomes import Refused
from actorproc.model.rows.records import StepRecord
from actorproc.model.slots import host_of
from actorproc.model.states import TERMINAL
from actorproc.store.base import RecordStore
from actorproc.support.clock import Clock
from actorproc.support.engine_log import engine_logger
from actorproc.support.staged_files import LONG as IN_FILES
from actorproc.workers.base import STACK_SECONDS, WorkerPool
from actorproc.workers.protocol.frames import (
    AbortAsked,
    Define,
    FrameError,
    Run,
    StepAnswer,
    TakeBackSteps,
    ToWorker,
)

__all__ = ["CommandExecutor"]

logger = engine_logger("actorproc")

_AT_ONCE = 32
"""States that are read together: each may be long, and all are in memory until they are sent."""
_BURST = 1024 * 1024
"""Bytes of state put into one frame before the next frame is begun."""


class CommandExecutor:
    """Carries out commands. Needs the manager's turn (`CombiningInbox`)."""

    def __init__(
        self,
        *,
        pool: WorkerPool,
        store: RecordStore,
        in_flight: InFlightTable,
        types: TypeTable,
        definition_for: Callable[[int, Definition], Definition],
        replies: ReplyRouter,
        newest: CommitCache,
        clock: Clock,
        keep_promise: Callable[[Sequence[str], Promise], None],
        watch_later: Callable[[str], None],
        hire: Callable[[str, str], None],
        worker_table: Callable[[AddSlot | RetireSlot], None],
        untraced: bytes = b"",
    ) -> None:
        self._untraced = untraced
        """Context of steps that are in no trace."""
        self._worker_table = worker_table
        self._hire = hire
        self._pool = pool
        self._store = store
        self._in_flight = in_flight
        self._types = types
        self._definition_for = definition_for
        """A definition as workers of a host get it."""
        self._replies = replies
        self._waiters = replies.ends
        self._keep_promise = keep_promise
        """Begins the waits for the ends of what was submitted."""
        self._watch_later = watch_later
        """Puts off the waits for an end that cannot be read."""
        self._clock = clock
        self._canceller = TaskCancellation(pool=pool, in_flight=in_flight, clock=clock)
        self.hands_out = True
        """Steps are sent to workers; else they come back at once, as if the worker had returned them unbegun."""
        self._newest = newest
        self._outbox: dict[WorkerId, list[ToWorker]] = {}
        self._bytes = 0
        self._events: list[Event] = []
        self._commands: Sequence[Command] = ()
        """Commands of the batch at which it is."""
        self._read: dict[tuple[str, int], StepRecord] = {}
        """States of steps of this batch that were read with that of an earlier one."""
        self._is_cut_off = False
        """The store could not be read for this batch: no further state is asked for."""
        self._verbs: dict[type[Command], Callable[[Command, CommitBatch], None]] = {
            RunStep: self._run_step,  # type: ignore[dict-item]
            SendAgain: self._send_again,  # type: ignore[dict-item]
            Reply: self._reply,  # type: ignore[dict-item]
            Resolve: self._resolve,  # type: ignore[dict-item]
            ResolveAsk: self._resolve_ask,  # type: ignore[dict-item]
            AnswerWorker: self._answer_worker,  # type: ignore[dict-item]
            TakeBack: self._take_back,  # type: ignore[dict-item]
            AskAbort: self._ask_abort,  # type: ignore[dict-item]
            KillWorker: self._kill_worker,  # type: ignore[dict-item]
            StartWorker: self._start_worker,  # type: ignore[dict-item]
            StopWorker: self._stop_worker,  # type: ignore[dict-item]
            AddWorker: self._add_worker,  # type: ignore[dict-item]
            RetireWorker: self._retire_worker,  # type: ignore[dict-item]
        }

    def act(self, batch: CommitBatch) -> list[Event]:
        """Carry out a batch's commands; returns what happened on the way (states that cannot be read).

        Run the commands in order, but replies to callers last. A woken caller thread competes for the interpreter lock
        while workers still wait for their steps.
        """
        self._events = []
        self._is_cut_off = False
        self._commands = batch.commands
        told: list[Command] = []
        verbs = self._verbs
        self._newest.committed(() if batch.is_routine else batch.writes, self._clock.monotonic())
        for command in batch.commands:
            kind = type(command)
            if kind is Reply or kind is Resolve or kind is ResolveAsk:
                told.append(command)
            else:
                verbs[kind](command, batch)
        self._flush()
        self._read = {}
        for command in told:
            verbs[type(command)](command, batch)
        return self._events

    def forget(self) -> None:
        """The store was opened again: states and ends are read from it."""
        self._newest.forget()

    def post(self, worker: WorkerId, message: ToWorker) -> None:
        """Send one message now; one that is too long for the channel is refused in the step's name."""
        try:
            self._pool.send(worker, (message,))
        except FrameError as error:
            if type(message) is Run:
                self._refuse(message.token, str(error))
            elif type(message) is StepAnswer:
                self._pool.send(worker, (StepAnswer(message.request, error=str(error)),))
            elif type(message) is TakeBackSteps and len(message.tokens) > 1:
                half = len(message.tokens) // 2
                self.post(worker, TakeBackSteps(message.tokens[:half]))
                self.post(worker, TakeBackSteps(message.tokens[half:]))
            else:
                raise

    def _post_each(self, worker: WorkerId, messages: list[ToWorker]) -> None:
        """Send these one by one: together they are too long. A step whose class cannot be sent is refused."""
        missing: dict[str, str] = {}
        for message in messages:
            if type(message) is Run and message.type_name in missing:
                self._refuse(message.token, missing[message.type_name])
            elif type(message) is Define:
                name = message.definition.meta.type_name
                try:
                    self._pool.send(worker, (message,))
                except FrameError as error:
                    missing[name] = f"the class cannot be sent to a worker: {error}"
                    self._in_flight.entries[worker].types.pop(name, None)
            else:
                self.post(worker, message)

    # ------------------------------------------------------------ one method per command
    def _run_step(self, command: RunStep, batch: CommitBatch) -> None:
        if not self.hands_out:  # it was decided before
            self._events.append(StepReturned(command.token))
            return
        entry = self._in_flight.hand_out(command, self._clock.monotonic())
        if entry is None:
            return
        if command.warm:
            self._post_run(entry, command, None, batch.fence)
            return
        state = self._read_state(command, batch)
        if state is not None:
            self._post_run(entry, command, state, batch.fence)

    def _send_again(self, again: SendAgain, batch: CommitBatch) -> None:
        command = self._in_flight.delayed(again.token, self._clock.monotonic())
        if command is None:
            return
        if not self.hands_out:
            self._in_flight.answered(again.token, self._clock.monotonic())
            self._events.append(StepReturned(again.token))
            return
        entry = self._in_flight.entries[again.token.worker]
        state = None if entry.dead else self._read_state(command, batch)
        if state is not None:  # in the frame: it may be a file that the worker could not map
            self._post_run(entry, replace(command, aborting=again.aborting), state, batch.fence, may_map=False)

    def _reply(self, command: Reply, _batch: CommitBatch) -> None:
        if command.error is not None:
            self._replies.fail(command.reply, command.error)
        else:
            promise = self._replies.settle(command.reply, command.value)
            if promise is not None:
                self._keep_promise(cast("tuple[str, ...]", command.value), promise)

    def _resolve(self, command: Resolve, batch: CommitBatch) -> None:
        if command.id not in self._waiters:
            self._note_end(command, batch)
            return
        write = batch.head(command.id)
        try:
            record = write.record if write is not None else self._store.procedure(command.id)
            if record is None or record.state not in TERMINAL:
                return  # retried already: who waits, waits for the new run
            number = record.records
            closing = batch.step(command.id, number) or self._store.step(command.id, number)
            ending = Ending.of(record, closing)
        except StoreDamaged as error:  # an output that cannot be read is not an output of None
            self._waiters.fail(command.id, error)
            return
        except StorageUnavailable:
            self._watch_later(command.id)
            return
        self._waiters.resolve(ending)

    def _resolve_ask(self, command: ResolveAsk, _batch: CommitBatch) -> None:
        if command.id in self._waiters:
            self._waiters.answer(command.id, command.ask, command.value)

    def _note_end(self, command: Resolve, batch: CommitBatch) -> None:
        """Keep an end that no caller waits for yet: most likely one will ask, unless it is one of many children."""
        write = batch.head(command.id)
        if write is None or write.record.parent is not None:
            return
        closing = batch.step(command.id, write.record.records)
        if closing is not None:
            self._newest.note_end(Ending.of(write.record, closing))

    def _answer_worker(self, command: AnswerWorker, _batch: CommitBatch) -> None:
        self._put(command.token.worker, StepAnswer(command.request))

    def _take_back(self, command: TakeBack, _batch: CommitBatch) -> None:
        self._put(command.worker, TakeBackSteps(command.tokens))

    def _ask_abort(self, command: AskAbort, _batch: CommitBatch) -> None:
        self._put(command.token.worker, AbortAsked(command.token))

    def _kill_worker(self, command: KillWorker, _batch: CommitBatch) -> None:
        entry = self._in_flight.entries.get(command.worker)
        if entry is None or entry.dead or command.token not in entry.queue:
            return  # it is dead already, or its answer came first: the answer wins
        self._flush()
        run = entry.queue[command.token]
        if self._canceller.cancel(entry, run, command.kind, command.reason, run.grace):
            return
        entry.killed = command.token
        if command.kind:
            entry.kind, entry.why = command.kind, command.reason
        # On an operator's word it is not asked by SIGTERM: a step that is interrupted might answer that it is done.
        ask = not command.kind
        grace = run.grace if ask else STACK_SECONDS
        self._pool.kill(command.worker, grace=grace, blamed=command.token, reason=command.reason, ask=ask)

    def _start_worker(self, command: StartWorker, _batch: CommitBatch) -> None:
        self._hire(command.procedure, command.host)

    def _stop_worker(self, command: StopWorker, _batch: CommitBatch) -> None:
        self._flush()
        self._pool.stop(command.worker)

    def _add_worker(self, _command: AddWorker, _batch: CommitBatch) -> None:
        self._worker_table(AddSlot())

    def _retire_worker(self, command: RetireWorker, _batch: CommitBatch) -> None:
        self._flush()
        entry = self._in_flight.entries.get(command.worker)
        if entry is not None:
            entry.retired = True
        self._worker_table(RetireSlot(command.worker))

    # ------------------------------------------------------------ parts of a step's frame
    def _post_run(
        self, entry: WorkerEntry, command: RunStep, state: StepRecord | None, fence: int, *, may_map: bool = True
    ) -> None:
        token, type_name = command.token, command.type_name
        definition = self._types.get(type_name)
        if definition is None:
            self._refuse(token, f"no class or loader is registered for {type_name!r}")
            return
        payload, codec, version, file, size = None, "", 0, b"", 0
        if state is not None:
            payload, codec, version = state.state, state.codec, state.version
            if len(payload) >= IN_FILES and may_map and not state.output:
                file = os.fsencode(self._store.place_of(token.procedure, state.number) or "")
                size = len(payload) if file else 0
            room = 0 if file else len(payload)
            if self._bytes + room > _BURST:
                self._flush()
            self._bytes += room
        if entry.types.get(type_name) != definition.revision:
            entry.types[type_name] = definition.revision
            self._put(token.worker, Define(self._definition_for(host_of(token.worker.slot), definition)))
        limits = command.limits
        self._put(
            token.worker,
            Run(
                token,
                type_name,
                command.root,
                command.parent,
                None if file else payload,
                codec,
                version,
                command.replayed,
                command.aborting,
                command.deadline,
                command.children_step,
                command.unit,
                command.event,
                command.recovered,
                limits if limits is not None and limits.concerns_worker else None,
                command.wall_time is not None
                or command.heartbeat is not None
                or (limits is not None and limits.cpu_time is not None),
                False,  # whether it is attached is the pool's to say
                command.generation,
                command.begun,
                file,
                size,
                command.step_name,
                fence,
                command.heartbeat is not None,
                command.trace or self._untraced,
            ),
        )

    def _read_state(self, command: RunStep, batch: CommitBatch | None) -> StepRecord | None:
        """The record a cold step starts from; None when the step cannot be sent.

        The procedure is parked for a record that is lost. A step whose record cannot be read now is sent again later.
        """
        procedure = command.token.procedure
        record = self._newest.take_state(procedure, command.record)
        if record is None and batch is not None:
            record = batch.step(procedure, command.record)
        if record is not None:
            return record
        record = self._read.pop((procedure, command.record), None)
        if record is not None:
            return record
        if self._is_cut_off:
            self._delay(command.token)
            return None
        try:
            record = self._read_with_others(command, batch) or self._store.step(procedure, command.record)
        except StoreDamaged as error:
            self._refuse(command.token, str(error))
            return None
        except StorageUnavailable:
            self._is_cut_off = True
            self._delay(command.token)
            return None
        if record is None:
            self._refuse(command.token, f"step record {command.record} of {procedure} is missing from the store")
        return record

    def _read_with_others(self, command: RunStep, batch: CommitBatch | None) -> StepRecord | None:
        """Read a state from the store, and those of the next steps of the batch in the same snapshot."""
        commands = self._commands
        at = next((place for place, other in enumerate(commands) if other is command), None)
        if at is None or batch is None:
            return None
        wanted = [(command.token.procedure, command.record)]
        for other in islice(commands, at + 1, at + _AT_ONCE):
            if type(other) is RunStep and not other.warm:
                name = other.token.procedure
                if not self._newest.has_state(name, other.record) and batch.step(name, other.record) is None:
                    wanted.append((name, other.record))
        if len(wanted) == 1:
            return None
        self._read = self._store.states(wanted)
        return self._read.pop(wanted[0], None)

    def _delay(self, token: StepToken) -> None:
        """Take a step from its worker's queue until its state can be read."""
        self._in_flight.lacks(token, self._clock.monotonic())
        self._events.append(StepDelayed(token))

    def _refuse(self, token: StepToken, reason: str) -> None:
        logger.error("step %d of %s cannot run: %s", token.step, token.procedure, reason)
        self._in_flight.answered(token, self._clock.monotonic())
        self._events.append(StepEnded(token, Refused(reason=reason)))

    def _put(self, worker: WorkerId, message: ToWorker) -> None:
        box = self._outbox.get(worker)
        if box is None:
            self._outbox[worker] = [message]
        else:
            box.append(message)

    def _flush(self) -> None:
        outbox, self._outbox, self._bytes = self._outbox, {}, 0
        for worker, messages in outbox.items():
            try:
                self._pool.send(worker, messages)
            except FrameError:
                self._post_each(worker, messages)
