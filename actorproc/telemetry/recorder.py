"""The thread that makes spans of commits. The manager only puts what it has committed into a bounded queue.

The engine does not wait for the host's SDK. A processor that blocks fills the queue, and spans that have no room in it
are dropped and counted.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple

from msgspec.structs import replace

from actorproc.errors import EngineError
from actorproc.model.ids import StepToken
from actorproc.model.messages.commands import Command, RunStep
from actorproc.model.messages.events import Event, WorkerLost
from actorproc.model.rows.records import AttemptRecord, ProcedureRecord, StepRecord
from actorproc.model.rows.writes import PutAttempt, PutProcedure, PutStep, Write
from actorproc.model.states import TERMINAL, ProcedureState
from actorproc.model.trace_context import is_sampled
from actorproc.support.engine_log import engine_logger
from actorproc.telemetry.left_over import StoredWork, left_over
from actorproc.telemetry.mark import SpanMark
from actorproc.telemetry.spans import SpanFacts
from actorproc.telemetry.timeline import SpanTimeline, TracedCommit, trace_of

__all__ = ["Found", "Recorder", "attempts_of", "traced_part"]

logger = engine_logger("actorproc")

_MOST = 10_000
"""Items that wait for the thread at most: commits, or facts about attempts."""
_PATIENCE = 1.0
"""Seconds that a stop waits for spans that are not recorded yet."""
_GATHER = 0.05
"""Seconds between two rounds of the thread: whenever it wakes, the manager's threads give the interpreter away."""
_REST = 60.0
"""Seconds between two warnings of one kind."""


class Found(NamedTuple):
    """Traced procedures that an earlier manager has left."""

    heads: list[ProcedureRecord]
    failed: list[AttemptRecord]
    late: list[SpanFacts]
    """Spans that it had not recorded when it was killed."""
    at: float
    """Time of the start, epoch seconds."""


_Item = TracedCommit | Found | tuple[StepToken, float] | None


def attempts_of(
    heads: Iterable[ProcedureRecord], attempts: Callable[[str], Sequence[AttemptRecord]]
) -> list[AttemptRecord]:
    """Failed attempts of those that seem to have one in hand.

    Args:
        heads: The heads.
        attempts: Failed attempts of a procedure, as they are stored.

    Returns:
        The attempts.
    """
    found: list[AttemptRecord] = []
    for record in heads:
        if record.state not in TERMINAL and record.attempt > 0:
            with contextlib.suppress(EngineError):  # what cannot be read is told elsewhere
                found += attempts(record.id)
    return found


def traced_part(
    writes: Sequence[Write], commands: Sequence[Command], events: Sequence[Event], *, routine: bool
) -> TracedCommit | None:
    """The part of a commit that is about traced procedures. A commit without one costs a look at its writes.

    Args:
        writes: Its writes.
        commands: Its commands.
        events: Events that led to it.
        routine: It comes of answers alone, so none of its events is about a worker.

    Returns:
        The part; None: there is none.
    """
    heads = tuple(
        (write.record, _had_ended(write))
        for write in writes
        if type(write) is PutProcedure and write.record.past is not None and trace_of(write.record) is not None
    )
    lost = () if routine else tuple(event for event in events if type(event) is WorkerLost)
    if not heads and not lost:
        return None
    names = {record.id for record, _ in heads}
    steps: list[StepRecord] = []
    failed: list[AttemptRecord] = []
    for write in writes:
        if type(write) is PutStep:
            if write.record.slot >= 0 and write.record.procedure in names:
                steps.append(replace(write.record, state=b"", output=b"", event=None))  # which may be long
        elif type(write) is PutAttempt and write.record.procedure in names:
            failed.append(write.record)
    runs = tuple(one for one in commands if type(one) is RunStep and one.trace and is_sampled(one.trace))
    return TracedCommit(heads, tuple(steps), tuple(failed), runs, lost)


def _had_ended(write: PutProcedure) -> bool:
    """True if its run had ended before, and had its span: what happens now is its undo, or is noted about it."""
    was = write.was
    if was is None or was.state not in TERMINAL or was.finished_at is None:
        return False
    if was.state is ProcedureState.FAILED and write.record.state is ProcedureState.SUCCESS:  # bypassed
        return False
    trace = trace_of(write.record)
    return trace is None or trace.since <= was.finished_at


class Recorder:
    """Spans of one engine.

    Args:
        record: Gives one span to the SDK; False if there is none. It may block, or raise.
        dropped: Called with a number of spans that were dropped.
        folder: Directory of the store; None: it has none.
    """

    def __init__(
        self, record: Callable[[SpanFacts], bool], dropped: Callable[[int], None], folder: Path | None
    ) -> None:
        self._mark = SpanMark(folder)
        self._record = record
        self._dropped = dropped
        self._queue: SimpleQueue[_Item] = SimpleQueue()
        self._has_gap = False
        """Something was left out since the thread looked last."""
        self._timeline = SpanTimeline()
        self._thread: threading.Thread | None = None
        self._warned: dict[str, float] = {}
        self._closed = threading.Event()
        self._epoch = 0
        """Of the store, under this manager."""

    # ------------------------------------------------------------ in the manager's turn
    def recovered(self, heads: Iterable[ProcedureRecord], store: StoredWork, now: float, epoch: int) -> None:
        """Take up the procedures that were found at the start.

        Args:
            heads: Their heads.
            store: The store.
            now: Epoch seconds.
            epoch: Of the store, under this manager.
        """
        self._epoch = epoch
        found = [record for record in heads if trace_of(record) is not None]
        marked = self._mark.found
        late: list[SpanFacts] = []
        if marked is not None:
            try:
                late = left_over(store, found, marked)
            except Exception as error:  # noqa: BLE001 - damage, or a defect: it costs spans, and not the start
                self._warn("spans that an earlier manager has left could not be made, and are missing", error)
        if found or late:
            self._put(Found(found, attempts_of(found, store.attempts), late, now), 0)
        else:
            self._mark.move(now, epoch)

    def began(self, token: StepToken, at: float) -> None:
        """Note when a step began, before the commit of its answer.

        Args:
            token: The attempt.
            at: Epoch seconds by the clock of its worker.
        """
        self._put((token, at), 0)

    def committed(
        self, writes: Sequence[Write], commands: Sequence[Command], events: Sequence[Event], *, routine: bool
    ) -> None:
        """Take a commit that is durable, as `traced_part` does.

        Args:
            writes: Its writes.
            commands: Its commands.
            events: Events that led to it.
            routine: It comes of answers alone.
        """
        commit = traced_part(writes, commands, events, routine=routine)
        if commit is not None:
            ended = sum(record.state in TERMINAL for record, _ in commit.heads)
            self._put(commit, len(commit.steps) + len(commit.failed) + ended)

    def _put(self, item: _Item, spans: int) -> None:
        if self._closed.is_set() or self._queue.qsize() >= _MOST:
            self._has_gap = True
            if spans:
                self._drop(spans, "their processor or exporter takes no more (it hangs, or is too slow)")
            return
        self._queue.put(item)

    # ------------------------------------------------------------ life
    def start(self) -> None:
        """Start the thread."""
        self._thread = threading.Thread(target=self._run, name="actorproc-spans", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Record what waits, for a second at most, and end the thread. Idempotent."""
        if self._closed.is_set():
            return
        self._closed.set()
        self._queue.put(None)
        thread = self._thread
        if thread is None or thread is threading.current_thread():
            return
        thread.join(_PATIENCE)
        if thread.is_alive():
            self._drop(self._queue.qsize(), "the manager was stopped, and their processor or exporter hangs")

    # ------------------------------------------------------------ on its thread
    def _run(self) -> None:
        while (item := self._queue.get()) is not None:
            self._take(item)
            if self._queue.empty():
                self._closed.wait(_GATHER)

    def _take(self, item: TracedCommit | Found | tuple[StepToken, float]) -> None:
        if self._has_gap:
            self._has_gap = False
            self._timeline.forget()
        try:
            if isinstance(item, TracedCommit):
                self._record_all(self._timeline.committed(item))
                if item.heads:
                    self._mark.move(max(record.updated_at for record, _ in item.heads), self._epoch)
            elif isinstance(item, Found):
                self._record_all(item.late)
                self._mark.move(item.at, self._epoch)
                self._timeline.recovered(item.heads, item.failed)
            else:
                self._timeline.began(*item)
        except Exception as error:  # noqa: BLE001 - a defect here costs spans, and no step
            self._has_gap = True
            self._warn("spans of a commit could not be made, and are missing", error)

    def _record_all(self, spans: list[SpanFacts]) -> None:
        for facts in spans:
            try:
                self._record(facts)
            except Exception as error:  # noqa: BLE001 - processors and exporters are code of the host
                self._dropped(1)
                self._warn("the OpenTelemetry SDK of this program has raised, and a span is missing", error)

    def _drop(self, spans: int, why: str) -> None:
        self._dropped(spans)
        self._warn(f"spans are dropped, as {why}")

    def _warn(self, what: str, error: Exception | None = None) -> None:
        now = time.monotonic()
        if now - self._warned.get(what, -_REST) >= _REST:
            self._warned[what] = now
            logger.warning("%s", what, exc_info=error)
