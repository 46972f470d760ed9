"""Answers of the past: what a step asked of the engine, found in what is stored."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Sequence
from typing import Any

import msgspec

from actorproc.api.queries import StoredQueries
from actorproc.api.stored_source import StoredSource
from actorproc.errors import UnknownProcedure
from actorproc.model.messages.definitions import OutcomeRow
from actorproc.model.rows.records import ChildRecord, ProcedureRecord, StepRecord
from actorproc.model.states import ProcedureState
from actorproc.procedure.authoring.reporting import details_in
from actorproc.procedure.encoding.log_records import LogParts
from actorproc.procedure.values.codec import PLAIN
from actorproc.procedure.values.viewing import viewed
from actorproc.store.base import RecordStore

__all__ = ["RecordedChannel", "children_since"]

_encode = msgspec.msgpack.Encoder().encode


class RecordedChannel:
    """In the place of the channel of a step: it answers from a store, and stores nothing."""

    def __init__(
        self, store: RecordStore, head: ProcedureRecord, after: StepRecord | None, *, quiet: bool = False
    ) -> None:
        self._store = store
        self._head = head
        self._after = after
        self._quiet = quiet
        self.remembered: list[str] = []
        """Keys of notes that were made anew, because none is stored."""

    def request(self, kind: str, key: str = "", value: bytes = b"", step: int = 0) -> bytes | None:
        """The stored answer to what a step asks."""
        del value
        if kind == "recall":
            return next((note.value for note in self._store.notes(self._head.id, step) if note.key == key), None)
        if kind == "exposed":
            return None
        if kind == "remember":
            self.remembered.append(key)
            return None
        if kind == "query":
            try:
                info = StoredQueries(StoredSource(self._store, is_owned=False)).info(key)
            except UnknownProcedure:
                return None
            return PLAIN.encode(info.to_dict())
        if kind == "children":
            return _encode([self._row(child) for child in self._finished(step)])
        child = self._store.procedure(key)
        return None if child is None else self._output(child)

    def heartbeat(
        self, progress: float | None, message: str | None, details: bytes | None = None, key: str = "", step: int = 0
    ) -> None:
        """Print a sign of life."""
        del key, step
        own = None if details is None else details_in(details)
        kept = "" if own is None else f"details: {viewed(own).inline()}"
        self._say(" ".join(filter(None, ("" if progress is None else f"{progress:.0%}", message, kept))))

    def expose(self, key: str, value: bytes) -> None:
        """Print a value that the step shows."""
        self._say(f"exposed {key} = {viewed(value).inline()}")

    def log(self, parts: LogParts) -> None:
        """Print a record of the step's log."""
        self._say(f"{logging.getLevelName(parts.level)} {parts.name}: {parts.text}")

    def aborting(self) -> bool:
        """No abort is asked in a replay."""
        return False

    def keep_changes(self) -> contextlib.AbstractContextManager[None]:
        """Nothing is put back."""
        return contextlib.nullcontext()

    def _say(self, text: str) -> None:
        if not self._quiet:
            sys.stderr.write(f"  {text.encode('unicode_escape').decode()}\n")

    def _finished(self, since: int) -> list[ProcedureRecord]:
        """Children that had finished when the step ran."""
        links = [link for link in self._store.children(self._head.id) if link.step >= since]
        heads = [head for link in links if (head := self._store.procedure(link.child)) is not None]
        if self._after is None:
            return [head for head in heads if 0 < head.ended_as <= self._head.seen]
        until = self._after.at
        return [head for head in heads if head.finished_at is not None and head.finished_at <= until]

    def _output(self, child: ProcedureRecord) -> bytes:
        closing = self._store.step(child.id, child.records) if child.state is ProcedureState.SUCCESS else None
        return b"" if closing is None else closing.output

    def _row(self, child: ProcedureRecord) -> OutcomeRow:
        error = child.error
        return OutcomeRow(
            id=child.id,
            type_name=child.type_name,
            state=str(child.state),
            output=self._output(child),
            codec="data",
            error=None if error is None else f"{error.type_name}: {error.message}",
            error_traceback="" if error is None else error.traceback,
        )


def children_since(head: ProcedureRecord, number: int, links: Sequence[ChildRecord]) -> int:
    """The step since which the step of this number sees the children that were started; 0: it sees none."""
    if number == head.step:
        return head.awaiting
    steps: list[Any] = [link.step for link in links if link.step < number]
    return max(steps, default=0)
