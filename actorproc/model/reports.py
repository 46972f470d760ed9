"""Reports of `ProcedureManager.compact` and `ProcedureManager.backup`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from actorproc.model.rows.asks import opened

if TYPE_CHECKING:
    from actorproc.model.rows.records import EventRecord

__all__ = ["BackupReport", "CompactionReport", "KeptSignal", "Looked", "StoreSize"]


@dataclass(frozen=True, slots=True)
class CompactionReport:
    """Result of a compaction; sizes in bytes, time in seconds."""

    before: int
    """Size of the data file before."""
    after: int
    seconds: float
    """Seconds for which commits had to wait for it."""

    @property
    def freed(self) -> int:
        """Bytes given back to the file system; never negative."""
        return max(0, self.before - self.after)

    def to_dict(self) -> dict[str, Any]:
        """Plain data that JSON can hold."""
        return asdict(self) | {"freed": self.freed}


class KeptSignal(NamedTuple):
    """A signal that no procedure has taken, as the store has it."""

    target: str
    """Id of the procedure it is for, or `event_target` of an event's name."""
    number: int
    at: float
    size: int
    """Bytes of its payload."""
    dedup: str | None
    """The text by which it is known when it comes again; the id of an ask."""
    ask: str | None = None
    """The name of an ask; None: it is a mere signal, or an event."""

    @classmethod
    def of(cls, row: EventRecord) -> KeptSignal:
        """The signal of a row, without its payload."""
        ask, payload = opened(row.payload)
        known_by, name = (row.dedup, None) if ask is None else (ask.id, ask.name)
        return cls(row.target, row.seq, row.at, len(payload), known_by, name)


@dataclass(frozen=True, slots=True)
class BackupReport:
    """Result of a backup; sizes in bytes, time in seconds."""

    path: str
    """The directory: a store of its own."""
    size: int
    seconds: float
    store_id: str
    """The name of the copy; no other store has it."""
    copied_from: str
    """The name of the store it was copied from."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data that JSON can hold."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class StoreSize:
    """Size of a store in bytes, 0 for a store that has no file."""

    file: int
    """Size of the data file, and of the files of long values."""
    used: int
    """Of that, what rows and long values take; the rest is used again before the file grows."""
    procedures: int
    """Finished ones included."""
    steps: int
    """Records in all step logs."""
    finished: int = 0
    """Rows of the index of finish times: roots that have ended, and are not removed."""


class Looked:
    """Bound of a look, which ends after a number of heads, whether or not they match.

    Args:
        most: Number of heads.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.count = 0
        """Heads that were read."""
        self.cut_at: str | None = None
        """Id of the last one, after which a look can go on; None: this one was not cut off."""
