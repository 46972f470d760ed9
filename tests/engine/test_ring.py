"""What the ring brings into memory before it decides."""

from __future__ import annotations

from typing import Any

from actorproc.actors.batch import Batch
from actorproc.actors.clock import SystemClock
from actorproc.actors.ring import Ring
from actorproc.actors.types import TypeTable
from actorproc.errors import StoreDamaged
from actorproc.model.commands import Reply
from actorproc.model.events import Signalled
from actorproc.model.policies import Quotas, Retention, Scheduling
from actorproc.model.records import ProcedureRecord
from actorproc.model.snapshot import Snapshot
from actorproc.model.states import ProcedureState


class _Store:
    """Of one procedure the head cannot be read, of another one a child; the others are sound."""

    def procedure(self, id: str, *, removed: bool) -> ProcedureRecord | None:  # noqa: A002
        if id == "unreadable":
            raise StoreDamaged("not to be read", table="procedures", key=id, reason="not to be read")
        return None if id == "go" else self.tree(id)[0][0]

    def tree(self, root: str) -> tuple[list[ProcedureRecord], list[Any]]:
        return [
            ProcedureRecord(
                id=root,
                type_name="T",
                version=1,
                root=root,
                parent=None,
                seq=1,
                state=ProcedureState.WAITING,
                event="go",
                children=int(root == "incomplete"),
            )
        ], []


def test_a_signal_goes_to_the_first_waiter_that_can_be_read() -> None:
    snapshot = Snapshot(1, 1, 1, [], [], [], [], [], [])
    waiting = ("unreadable", "incomplete", "sound")
    snapshot.cold.listeners = [(number, "go", name) for number, name in enumerate(waiting)]
    stored: list[Batch] = []
    unused: Any = None
    store: Any = _Store()
    ring = Ring(
        snapshot=snapshot,
        store=store,
        persister=unused,
        ledger=unused,
        types=TypeTable(),
        clock=SystemClock(),
        quotas=Quotas(),
        retention=Retention(),
        scheduling=Scheduling(),
        act=unused,
        send_ahead=unused,
        mark=lambda: None,
        stored=lambda batch, _seconds: stored.append(batch),
    )

    ring.handle(Signalled("go", b"1", 7))

    sound = ring.core.view("sound")
    assert sound is not None
    assert sound.payload == b"1"
    assert len(ring.core.damaged) == len(waiting) - 1
    assert ring._open.commands == [Reply(7, value=True)]
