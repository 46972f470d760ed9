"""Taker of enqueued procedures: brings rows that applications wrote in transactions of their own to the core.

A pass goes through the waiting rows in pages, and a page begins only when what was decided about the one before it is
on disk. Each pass begins with the first row: a transaction that commits late leaves its row anywhere among the others.
So no place is remembered, and what the passes have left is what is there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice

from msgspec.structs import replace

from actorproc.engine.arguments import check_new
from actorproc.engine.pipeline.batch import CommitBatch
from actorproc.engine.pipeline.commit_pipeline import CommitPipeline
from actorproc.errors import EngineError
from actorproc.model.messages.events import EnqueuedFound, EnqueuedRemoved, EnqueuedRow, PoisonCleared
from actorproc.model.rows.enqueued import EnqueuedRecord
from actorproc.model.rows.writes import DeleteEnqueued, PutEnqueued, Write
from actorproc.store.base import RecordStore
from actorproc.support.engine_log import engine_logger

__all__ = ["EnqueuedTaker"]

logger = engine_logger("actorproc")

_PAGE = 64
"""Rows that are decided about at once; in a database they are one question, of 4 MiB at most."""
_TOLD = 5
"""Refused rows with a sentence of their own in health."""
_PASSING = frozenset({"KeyPoisoned", "StateTooLarge", "StoreDamaged", "UnknownType"})
"""Errors whose reason may be gone by itself; a procedure that was refused for another one does not start unawares."""
_PAUSE = 0.5
"""Seconds until the next look where more procedures are unfinished than may be, or the store refuses."""


class EnqueuedTaker:
    """Takes enqueued procedures in. Needs the manager's turn (`CombiningInbox`).

    `wake_in(seconds)` asks for a call of `look` after that time.
    """

    def __init__(
        self, *, store: RecordStore, pipeline: CommitPipeline, max_state: int, wake_in: Callable[[float], None]
    ) -> None:
        self._store = store
        self._pipeline = pipeline
        self._max_state = max_state
        self._wake_in = wake_in
        self._after: bytes | None = None
        """The last row of the pass; None: the next page is its first."""
        self._wanted = False
        """True if another pass follows: there may be rows that this one does not see."""
        self._refused_too = False
        """The pass is one over rows that were refused; one over those that wait follows."""
        self._awaits_commit = False
        """A page was brought to the core; the next one begins when that is stored."""
        self._refused: dict[bytes, str] = {}
        """Rows that were refused, with a sentence each."""
        self._busy = ""
        self.is_watching = False
        """Batches are to be told of (`stored`): a page is under way, or a change may let a refused row in."""

    @property
    def problems(self) -> tuple[str, ...]:
        """Sentences about rows that were refused, or have to wait; empty when all is well."""
        said = list(islice(self._refused.values(), _TOLD))
        if len(self._refused) > _TOLD:
            said.append(f"{len(self._refused) - _TOLD} more enqueued procedures were refused")
        return (*said, self._busy) if self._busy else tuple(said)

    def look(self) -> None:
        """Look for rows: there may be some."""
        self._wanted = True
        if not self._awaits_commit:
            self._go_on()

    def look_at_refused(self) -> None:
        """Try rows again that were refused: what stood in their way may be gone."""
        self._after, self._refused_too = None, True
        self.look()

    def registered(self) -> None:
        """Try rows again that were refused, or are about to be, perhaps for want of the class that came now."""
        if self.is_watching:
            self.look_at_refused()

    def _retry_in_a_moment(self) -> None:
        self._after, self._refused_too = None, True
        self._wake_in(0.0)

    def lost(self) -> None:
        """The store has lost commits, and with them perhaps what was decided here."""
        self._awaits_commit = False
        self._refused.clear()
        self._retry_in_a_moment()  # memory is that of the lost commits still

    def stored(self, batch: CommitBatch) -> None:
        """A batch was acted on: perhaps the one that the next page waits for."""
        kinds = set(map(type, batch.events))
        moved = 0
        if EnqueuedFound in kinds or EnqueuedRemoved in kinds:
            moved = self._note_writes(batch.writes)
        if self._awaits_commit and EnqueuedFound in kinds:
            self._awaits_commit = False
            self._after_page(moved > 0)
        if PoisonCleared in kinds and self._refused:
            self._retry_in_a_moment()
        self.is_watching = self._awaits_commit or bool(self._refused)

    def _note_writes(self, writes: Iterable[Write]) -> int:
        """Note rows that were refused, and forget those that went; the number of these."""
        moved = 0
        for write in writes:
            if type(write) is DeleteEnqueued:
                moved += 1
                self._refused.pop(write.key, None)
            elif type(write) is PutEnqueued:
                logger.warning("%s", self._note(write.record))
        return moved

    def _after_page(self, has_moved: bool) -> None:
        """Go on with the next page, unless all rows of this one have to wait."""
        if has_moved or self._refused_too:
            self._busy = ""
            self._wake_in(0.0)
            return
        # No more procedures may be unfinished. Those that end make room; the rows are safe where they are.
        self._after, self._wanted = None, True
        self._busy = "enqueued procedures wait in the store: more are unfinished than Config.max_queued allows"
        self._wake_in(_PAUSE)

    def _go_on(self) -> None:
        """Bring the next page to the core. After the last one begin anew as long as there is reason to."""
        while self._wanted or self._after is not None:
            if self._pipeline.trouble:
                self._wake_in(_PAUSE)
                return
            if self._after is None:
                self._wanted = False
            try:
                page = self._store.enqueued(refused=self._refused_too, after=self._after, limit=_PAGE)
            except EngineError as error:
                logger.warning("looking for enqueued procedures failed and is tried again: %s", error)
                self._wanted = True
                self._wake_in(_PAUSE)
                return
            if page:
                self._after = page[-1].key
                if self._refused_too:
                    for record in page:
                        self._note(record)
                    page = [record for record in page if record.error in _PASSING]
                if page:
                    self._bring(page)
                    return
                continue
            self._after = None
            if self._refused_too:
                self._refused_too, self._wanted = False, True

    def _bring(self, page: list[EnqueuedRecord]) -> None:
        self._awaits_commit = self.is_watching = True
        self._pipeline.handle(EnqueuedFound(tuple(map(self._row_of, page))))

    def _row_of(self, record: EnqueuedRecord) -> EnqueuedRow:
        if record.new is None:
            return EnqueuedRow(record)
        try:
            check_new(record.new, self._max_state)
        except (EngineError, TypeError, ValueError) as error:
            return EnqueuedRow(record, str(error), type(error).__name__)
        # Its id may have been used, and whether it is the same submit as a stored one is for the core to say.
        return EnqueuedRow(
            replace(record, new=replace(record.new, fresh=False, is_compared=False, trace=None, debounce=None))
        )

    def _note(self, record: EnqueuedRecord) -> str:
        who = record.key.hex() if record.new is None else f"{record.new.id} ({record.new.type_name})"
        self.is_watching = True
        said = self._refused[record.key] = f"enqueued {who} was refused: {record.refused}"
        return said
