"""What people are told of waiting for locks, what is made of damaged lock rows, and what the lock table costs."""

from __future__ import annotations

from actorproc.core.coordinator import Coordinator
from actorproc.core.locks.explain import WaitersByNode
from actorproc.core.locks.modes import needs_of
from actorproc.core.locks.table import LockWaiter
from actorproc.model.ids import WorkerId
from actorproc.model.messages.commands import Reply
from actorproc.model.messages.events import PoisonCleared, Submitted, TypeRegistered, WorkerReady
from actorproc.model.messages.outcomes import Advanced, Finished
from actorproc.model.policies import LockKey, LockMode, TypeMeta
from actorproc.model.rows.records import LockRecord, NewProcedure
from actorproc.model.rows.snapshot import Damage, RecoverySnapshot
from actorproc.model.rows.writes import DeletePoison
from actorproc.model.states import Phase
from actorproc.testing.histories.image import Image
from tests.core.harness import CoreHarness

WRITE = LockKey.write("cat/db/t1")


def _why(harness: CoreHarness, id: str) -> str | None:
    record = harness.core.view(id)
    assert record is not None
    phase, reason = harness.core.phase(record)
    assert phase is Phase.LOCKED_OUT
    return reason


# ---------------------------------------------------------------- the reason
def test_the_reason_of_a_lock_waiter_names_the_key_and_its_holder() -> None:
    harness = CoreHarness(workers=2)
    harness.submit(harness.new("x", locks=(WRITE,)))

    harness.submit(harness.new("w", locks=(WRITE,)))

    assert _why(harness, "w") == "waits for write of 'cat/db/t1' held by x"


def test_of_several_keys_the_one_that_is_taken_is_named() -> None:
    harness = CoreHarness(workers=2)
    harness.submit(harness.new("x", locks=(WRITE,)))

    harness.submit(harness.new("w", locks=(LockKey.write("free"), LockKey.read("cat/db/t1"))))

    assert _why(harness, "w") == "waits for read of 'cat/db/t1' held by x"


def test_a_key_above_or_below_a_held_one_is_named_as_it_was_asked_for() -> None:
    harness = CoreHarness(workers=3)
    harness.submit(harness.new("x", locks=(WRITE,)))

    harness.submit(harness.new("below", locks=(LockKey.read("cat/db/t1/region"),)))
    harness.submit(harness.new("above", locks=(LockKey.write("cat"),)))

    assert _why(harness, "below") == "waits for read of 'cat/db/t1/region' held by x"
    assert _why(harness, "above") == "waits for write of 'cat' held by x"


def test_who_stands_in_line_behind_a_writer_is_told_so() -> None:
    harness = CoreHarness(workers=3)
    harness.submit(harness.new("reader", locks=(LockKey.read("t"),)))
    harness.submit(harness.new("writer", locks=(LockKey.write("t"),)))

    harness.submit(harness.new("late", locks=(LockKey.read("t"),)))

    assert _why(harness, "late") == "waits for read of 't' behind earlier waiters"


# ---------------------------------------------------------------- damaged rows
def _restarted(harness: CoreHarness, *, lock: tuple[str, str] | None = None, poison: str | None = None) -> Coordinator:
    """A start on what the harness stored, with one row that cannot be read."""
    image = Image(RecoverySnapshot(1, 1, 1, [], [], [], [], [], []))
    image.apply(harness.writes)
    damage = []
    if lock is not None:
        del image.locks[lock]
        damage.append(Damage("locks", f"{lock[0]} held by {lock[1]}", "the checksum does not match"))
    if poison is not None:
        image.poisons.pop(poison, None)
        damage.append(Damage("poison", poison, "the checksum does not match"))
    snapshot = image.snapshot()
    snapshot.damage = damage
    core, _ = Coordinator.restore(snapshot, 1.0)
    core.handle(TypeRegistered(TypeMeta(type_name="T")), 1.0)
    return core


def test_a_damaged_grant_parks_its_tree_and_is_held_for_writing() -> None:
    harness = CoreHarness(workers=1)
    harness.submit(harness.new("x", locks=(LockKey.read("cat/t"),)))

    core = _restarted(harness, lock=("cat/t", "x"))
    core.handle(
        Submitted((NewProcedure(id="w", type_name="T", state=b"", digest=b"", locks=(LockKey.read("cat/t"),)),), 1), 1.0
    )
    handed_out = core.handle(WorkerReady(WorkerId(0, 1)), 1.0).commands

    assert core.view("x") is None
    assert any("the lock of 'cat/t' held by x is damaged" in line for line in core.damaged)
    assert any(line.startswith("procedure x stands still") for line in core.damaged)
    waiter = core.view("w")
    assert waiter is not None
    assert core.phase(waiter)[1] == "waits for read of 'cat/t' held by x"
    assert handed_out == []


def test_a_damaged_grant_of_somebody_unknown_is_held_and_told() -> None:
    core = _restarted(CoreHarness(), lock=None)
    snapshot = RecoverySnapshot(
        1, 1, 1, [], [], [], [], [], [Damage("locks", "a held by b held by ghost", "too short")]
    )

    core, _ = Coordinator.restore(snapshot, 1.0)

    assert core.lock_holders() == {"ghost": {"a held by b": LockMode.WRITE}}
    assert core.damaged == ("the lock of 'a held by b' held by ghost is damaged and kept for writing: too short",)


def test_a_damaged_poison_record_still_refuses_its_key_until_it_is_cleared() -> None:
    core = _restarted(CoreHarness(), poison="cat/t")
    new = NewProcedure(id="w", type_name="T", state=b"", digest=b"", locks=(LockKey.write("cat/t"),))

    refused = core.handle(Submitted((new,), 1), 1.0).commands
    cleared = core.handle(PoisonCleared("cat/t", 2), 1.0)
    accepted = core.handle(Submitted((new,), 3), 1.0).commands

    assert "its poison record is damaged" in str(next(cmd.error for cmd in refused if isinstance(cmd, Reply)))
    assert DeletePoison("cat/t") in cleared.writes
    assert next(cmd.value for cmd in accepted if isinstance(cmd, Reply)) == ("w",)


# ---------------------------------------------------------------- the cost of the table
def _waiter(name: str, key: LockKey, place: int) -> LockWaiter:
    return LockWaiter(name, (key,), needs_of((key,)), frozenset((name,)), place, ahead=False)


def test_locks_side_by_side_share_the_list_of_those_who_wait_above_them() -> None:
    waiters = [_waiter(f"w{place}", LockKey.write("cat"), place) for place in range(2000)]
    shown = []
    queue = WaitersByNode(waiters, lambda waiter, _mode: shown.append(waiter.procedure) or waiter.procedure)
    locks = [LockRecord(f"cat/t{number}", LockMode.WRITE, f"h{number}", f"h{number}", 0.0) for number in range(2000)]

    found = [queue.of(lock) for lock in locks]

    assert all(row is found[0] for row in found)
    assert found[0] == tuple(f"w{place}" for place in range(2000))
    assert len(shown) == 2000


def test_a_lock_with_waiters_or_relatives_of_its_own_is_looked_at_by_itself() -> None:
    above = LockWaiter(
        "child", (LockKey.write("cat"),), needs_of((LockKey.write("cat"),)), frozenset(("child", "h1")), 1, ahead=False
    )
    waiters = [above, _waiter("own", LockKey.read("cat/t2"), 2)]
    queue = WaitersByNode(waiters, lambda waiter, _mode: waiter.procedure)

    def found(number: int) -> tuple[str, ...]:
        return queue.of(LockRecord(f"cat/t{number}", LockMode.WRITE, f"h{number}", f"h{number}", 0.0))

    assert [found(0), found(1), found(2)] == [("child",), (), ("child", "own")]


# ---------------------------------------------------------------- the first step after a restart
def test_only_the_first_step_after_a_restart_is_marked_as_recovered() -> None:
    harness = CoreHarness(workers=1)
    harness.submit(harness.new("p"))
    harness.answer("p", Advanced(state=b"1"))
    assert [harness.inbox["p"].recovered, harness.inbox["p"].replayed] == [False, False]

    image = Image(RecoverySnapshot(1, 1, 1, [], [], [], [], [], []))
    image.apply(harness.writes)
    snapshot = image.snapshot()
    snapshot.epoch = 2
    later = CoreHarness(workers=0)
    later.core, _ = Coordinator.restore(snapshot, 1.0)
    later.register("T")
    later.handle(WorkerReady(WorkerId(0, 1)))
    first = later.inbox["p"]
    later.answer("p", Advanced(state=b"2"))

    assert [first.recovered, first.replayed] == [True, True]
    assert [later.inbox["p"].recovered, later.inbox["p"].replayed] == [False, False]
    later.submit(later.new("q"))
    later.answer("p", Finished(state=b"3"))
    assert not later.inbox["q"].recovered
