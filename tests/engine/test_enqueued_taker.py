"""The taker of enqueued rows by itself: no row stays refused for what is gone by the time that its refusal is stored."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest
from msgspec.structs import replace

from actorproc.engine.housekeeping.enqueued_taker import EnqueuedTaker
from actorproc.engine.pipeline.batch import CommitBatch
from actorproc.engine.pipeline.commit_pipeline import CommitPipeline
from actorproc.model.messages.events import EnqueuedFound, Event, PoisonCleared
from actorproc.model.rows.enqueued import REFUSED, EnqueuedRecord, refused_key, waiting_key
from actorproc.model.rows.records import NewProcedure
from actorproc.model.rows.writes import DeleteEnqueued, PutEnqueued, Write
from actorproc.store.base import RecordStore

KEY = waiting_key(5.0, bytes(8))
NEW = NewProcedure(id="a", type_name="Mail", version=1, state=b"\x80", digest=b"d", codec="data")
CLEARED = PoisonCleared("shelf", 1)


class Bench:
    """A taker with one row that waits, whose messages are delivered, and whose commits end, when a test says so."""

    def __init__(self) -> None:
        self.rows = {KEY: EnqueuedRecord(key=KEY, at=5.0, new=NEW)}
        self.brought: list[EnqueuedFound] = []
        self.asked: list[float] = []
        self.trouble = None
        self.taker = EnqueuedTaker(
            store=cast("RecordStore", self),
            pipeline=cast("CommitPipeline", self),
            max_state=1000,
            wake_in=self.asked.append,
        )

    def enqueued(self, *, refused: bool, after: bytes | None, limit: int) -> list[EnqueuedRecord]:
        found = (row for key, row in sorted(self.rows.items()) if key.startswith(REFUSED) is refused)
        return [row for row in found if after is None or row.key > after][:limit]

    def handle(self, event: EnqueuedFound) -> None:
        self.brought.append(event)

    def stored(self, *events: Event, writes: tuple[Write, ...] = ()) -> None:
        batch = CommitBatch()
        batch.events, batch.writes = list(events), list(writes)
        for write in writes:
            if isinstance(write, DeleteEnqueued):
                del self.rows[write.key]
            elif isinstance(write, PutEnqueued):
                self.rows[write.record.key] = write.record
        if self.taker.is_watching:
            self.taker.stored(batch)

    def refused(self, error: str, *others: Event) -> None:
        """The page under way is stored, with the row refused, and with other events of its batch."""
        row = replace(self.rows[KEY], key=refused_key(KEY), refused="it cannot be now", error=error, refused_at=6.0)
        self.stored(self.brought[-1], *others, writes=(DeleteEnqueued(KEY), PutEnqueued(row)))

    def go_on(self) -> None:
        """Deliver what was asked for without a pause, until no more is."""
        while 0.0 in self.asked:
            self.asked.clear()
            self.taker.look()


def registered_meanwhile(bench: Bench) -> None:
    bench.taker.registered()
    bench.refused("UnknownType")


def registered_later(bench: Bench) -> None:
    bench.refused("UnknownType")
    bench.go_on()
    bench.taker.registered()


def cleared_in_the_same_commit(bench: Bench) -> None:
    bench.refused("KeyPoisoned", CLEARED)


def cleared_later(bench: Bench) -> None:
    bench.refused("KeyPoisoned")
    bench.go_on()
    bench.stored(CLEARED)


@pytest.mark.parametrize(
    "obstacle_goes", [registered_meanwhile, registered_later, cleared_in_the_same_commit, cleared_later]
)
def test_a_refused_row_is_tried_again_whenever_its_obstacle_goes(obstacle_goes: Callable[[Bench], Any]):
    bench = Bench()
    bench.taker.look()
    assert [row.record.key for row in bench.brought[-1].rows] == [KEY]

    obstacle_goes(bench)
    bench.go_on()

    assert [[row.record.key for row in event.rows] for event in bench.brought] == [[KEY], [refused_key(KEY)]]
    bench.stored(bench.brought[-1], writes=(DeleteEnqueued(refused_key(KEY)),))
    bench.go_on()
    assert not bench.rows
    assert not bench.taker.problems
    assert not bench.taker.is_watching


def test_a_row_whose_obstacle_stands_is_not_tried_again_and_again():
    bench = Bench()
    bench.taker.look()
    bench.refused("UnknownType")
    bench.go_on()
    bench.stored()
    bench.go_on()
    assert len(bench.brought) == 1
    assert bench.taker.problems == ("enqueued a (Mail) was refused: it cannot be now",)
