"""Answers to what a running step asks. Everything a step may see is committed, so the store alone is read.

A step was handed out after the commit that gave it its children's outcomes, and a note is durable before the step goes
on. An outcome or a note in an open batch has not been given to a step yet.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from actorproc.errors import ActorprocError, StorageUnavailable
from actorproc.model.rows.records import ProcedureRecord, StepRecord
from actorproc.model.states import ProcedureState
from actorproc.procedure.values.codec import PLAIN
from actorproc.report.info import ProcedureInfo
from actorproc.store.base import RecordStore
from actorproc.workers.protocol.frames import Ask, OutcomeRow, StepAnswer

__all__ = ["StepQueries"]

_LONG = 64 * 1024
"""Longest output, in bytes, that is sent with the outcomes; a longer one is fetched when asked for."""

_encode = msgspec.msgpack.Encoder().encode


_AT_ONCE = 64
"""Children whose ends are read together."""


class StepQueries:
    """Reads what a step asks for. `describe` gives the public view of a head.

    `room` is how many bytes of outputs and tracebacks are sent along with the outcomes of all children together.
    """

    def __init__(self, store: RecordStore, describe: Callable[[ProcedureRecord], ProcedureInfo], *, room: int) -> None:
        self._store = store
        self._room = room
        self._describe = describe
        self._readers: dict[str, Callable[[Ask], bytes | None]] = {
            "recall": self._recall,
            "query": self._query,
            "children": self._children,
            "output": self._output,
            "exposed": self._exposed,
        }

    def answer(self, ask: Ask) -> StepAnswer:
        """The answer; a refusal or a damaged record is told to the step, never raised here.

        Raises `StorageUnavailable` when the store cannot be read now.
        """
        reader = self._readers.get(ask.kind)
        if reader is None:
            return StepAnswer(ask.request, error=f"this manager does not know requests of kind {ask.kind!r}")
        try:
            return StepAnswer(ask.request, reader(ask))
        except StorageUnavailable:
            raise
        except ActorprocError as error:
            return StepAnswer(ask.request, error=f"{type(error).__name__}: {error}")

    def _recall(self, ask: Ask) -> bytes | None:
        notes = self._store.notes(ask.token.procedure, max(ask.step, ask.token.step))
        return next((note.value for note in notes if note.key == ask.key), None)

    def _query(self, ask: Ask) -> bytes | None:
        record = self._store.procedure(ask.key)
        # Values it shows may be numbers beyond what msgpack holds.
        return PLAIN.encode(self._describe(record).to_dict()) if record is not None else None

    def _children(self, ask: Ask) -> bytes | None:
        parent = self._store.procedure(ask.token.procedure)
        links = [link for link in self._store.children(ask.token.procedure) if link.step >= ask.step]
        room = self._room
        rows: list[OutcomeRow] = []
        for start in range(0, len(links), _AT_ONCE) if parent is not None else ():
            heads = self._store.procedures([link.child for link in links[start : start + _AT_ONCE]])
            # Those that had finished when the parent was woken: the same ones whenever the step is replayed.
            ended = [head for head in heads if parent is not None and 0 < head.ended_as <= parent.seen]
            closings = self._store.states([(head.id, head.records) for head in ended if _has_output(head)])
            for head in ended:
                row = self._row(head, closings.get((head.id, head.records)), room)
                room = max(0, room - len(row.output or b"") - len(row.error_traceback))
                rows.append(row)
        return _encode(rows)

    def _row(self, head: ProcedureRecord, closing: StepRecord | None, room: int) -> OutcomeRow:
        output, codec = b"", "data"
        if _has_output(head):
            closing = closing or self._store.step(head.id, head.records)  # raises what is wrong with it
            if closing is not None:
                output, codec = closing.output, closing.codec
        error = head.error
        traceback = error.traceback if error is not None else ""
        return OutcomeRow(
            id=head.id,
            type_name=head.type_name,
            state=str(head.state),
            output=output if len(output) <= min(_LONG, room) else None,
            codec=codec,
            error=f"{error.type_name}: {error.message}" if error is not None else None,
            error_traceback=traceback if len(traceback) <= room else "",
        )

    def _exposed(self, ask: Ask) -> bytes | None:
        shown = self._store.exposed((ask.token.procedure,)).get(ask.token.procedure, ())
        return _encode({row.key: len(row.value) for row in shown})

    def _output(self, ask: Ask) -> bytes | None:
        head = self._store.procedure(ask.key)
        if head is None or head.state != ProcedureState.SUCCESS:
            return None
        closing = self._store.step(head.id, head.records)
        return closing.output if closing is not None else None


def _has_output(head: ProcedureRecord) -> bool:
    return head.state == ProcedureState.SUCCESS
