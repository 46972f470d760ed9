"""The journal of an episode: the lines of `Journal`, and those of the host, its store and its episode runner.

Kinds beside those of `JournalLine`:

- ``fault``: mode is its kind, state the phase it struck;
- ``durable``: a head that was just committed or read back; mode is its state, state its number of records, text flags;
- ``loaded``: a host has read its store;
- ``writing`` and ``written``: around a commit and the lines about it;
- ``refused``, ``unknown``: a submit was refused, or its outcome is not known;
- ``output``: a handle's output;
- ``noted``: the value that `remember` returned; ``given``: what `last_heartbeat` was;
- ``orphan``, ``stalled``, ``unsound``: found by the episode runner;
- ``listening``, ``heard`` and ``tick``: steps that wait for an abort, or are deaf to it;
- ``restarting``, then ``restarted`` or ``restart-refused``: a root that has ended is submitted again;
- ``generation-ended``: step is the generation, text its output;
- ``operator-killed``: an operator ended an attempt; text is what the audit log says of it;
- ``answered``, ``unanswered``: what the one who asked was told; unit is the name and the id of the ask, text the reply;
- ``calling``, then ``called`` or ``call-refused``: debounced submit number step of a key; unit is its run;
- ``forced``: an abort by force was acknowledged;
- ``lag``: seconds for which the host got no processor;
- ``fenced``: a step found that a later one has changed the world;
- ``frozen`` and ``thawed``: around the time in which a process stands still; ``leads``, ``follows``: of a candidate;
- ``host-lost``: a leader has given up the host of this process, or one that it has not met (0);
- ``takeover``, ``committed``, ``removed``: by the witness in a database: a new epoch, a commit, a head that is gone;
- ``row-put``, ``row-gone``: the same of rows that applications enqueue; unit is the key;
- ``transacting``, ``transacted``: an application begins a transaction, and has seen its end.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

import msgspec

from actorproc.model.rows.cold_trees import is_debounced
from actorproc.model.states import TERMINAL
from actorproc.testing.journal import Journal, JournalLine
from actorproc.testing.torture.faults import FaultPhase, TortureFault

if TYPE_CHECKING:
    from actorproc.model.rows.records import ProcedureRecord

__all__ = ["SHOWN_KEY", "EpisodeJournal", "Tail", "durable_fields"]

SHOWN_KEY = "at"
"""Key of the value that each step shows: its mode, its number and its attempt."""

_decode = msgspec.json.Decoder(JournalLine).decode


class EpisodeJournal(Journal):
    """A `Journal` that more than steps write to."""

    def note(self, kind: str, *, pid: int | None = None, **fields: Any) -> None:
        """One line of any kind."""
        self._write(JournalLine(kind=kind, at=time.monotonic_ns(), pid=os.getpid() if pid is None else pid, **fields))

    def struck(
        self, kind: TortureFault, phase: FaultPhase, *, pid: int | None = None, text: str = "", **fields: Any
    ) -> None:
        """A fault has struck, or will in the next instant."""
        self.note("fault", pid=pid, mode=kind.value, state=phase.value, text=text, **fields)


def durable_fields(head: ProcedureRecord, epoch: int) -> dict[str, Any]:
    """Fields of the line that says that this head is in the store."""
    return {
        "procedure": head.id,
        "parent": head.parent,
        "root": head.root,
        "epoch": epoch,
        "step": head.step,
        "attempt": head.attempt,
        "mode": head.state.value,
        "state": str(head.records),
        "unit": str(head.generation) if head.generation > 1 else None,
        "text": _flag_of(head),
    }


def _flag_of(head: ProcedureRecord) -> str:
    if head.rolling or head.failing:
        return "rolling"
    if head.state in TERMINAL:
        return "ended"
    return "waits" if is_debounced(head) else ""


class Tail:
    """Reads a growing journal line by line, each line once."""

    def __init__(self, journal: Journal) -> None:
        self._path = journal.path
        self._offset = 0
        self._rest = b""

    def news(self) -> list[JournalLine]:
        """Whole lines since the last call."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                chunk = file.read()
        except FileNotFoundError:
            return []
        self._offset += len(chunk)
        *whole, self._rest = (self._rest + chunk).split(b"\n")
        lines = []
        for text in whole:
            try:
                if text:
                    lines.append(_decode(text))
            except msgspec.DecodeError:
                continue  # cut short by a kill
        return lines
