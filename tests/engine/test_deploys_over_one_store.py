"""What deploys did to users of other engines: pins by digest, roll-backs, and recoveries that swallow an error."""

from __future__ import annotations

import errno
from collections import Counter
from dataclasses import dataclass, replace

import lmdb
import pytest

from actorproc import Procedure, Status
from actorproc.core.coordinator import Coordinator
from actorproc.errors import EngineError
from actorproc.store.lmdb.store import LmdbStore
from actorproc.store.memory import MemoryStore
from actorproc.store.rows import codec
from actorproc.store.rows.tables import Table
from actorproc.testing.inline import FAST, InlineManager, VirtualClock
from tests.engine.edited_lines import EDITS
from tests.engine.edits import SAGA, Program, changed
from tests.kit.stores import opened
from tests.kit.waiting import wait_until

MANY = 250
NEWER = (
    "a field with a default",
    "a step in the middle is new",
    "two steps change places, and what is left out runs",
    "a step is renamed, and says so",
    "a nested class says its version",
    "the version is raised, and read",
    "a member of an enum is new",
)


# ---------------------------------------------------------------- the older code comes back
@pytest.mark.parametrize("edit", NEWER)
def test_new_older_and_new_code_over_one_store_repeat_undo_and_lose_nothing(tmp_path, edit):
    program = Program(SAGA)
    program.open_store = lambda: LmdbStore(tmp_path / "store", map_size=1 << 24)
    try:
        newer = program.edited(*EDITS[edit])
        program.begin(newer)

        assert program.wrong(program.go_on(program.text)) == []

        assert program.wrong(program.go_on(newer), is_over=True) == []
        assert program.not_once([stand.replace(" ", "-") for stand in program.stands]) == []
    finally:
        program.close()


# ---------------------------------------------------------------- what is parked stands in no other's way
def test_one_that_new_code_parks_holds_no_slot_is_counted_and_hears_what_comes(tmp_path):
    program = Program(SAGA, ("behind one",))
    limited = program.edited(
        ("    def lock_keys", '    def limit_keys(self):\n        return ["one at a time"]\n\n    def lock_keys')
    )
    program.text = limited
    program.config = replace(FAST, concurrency={"one at a time": 1})
    try:
        program.begin()
        today = changed(limited, *EDITS["a field without a default"])
        with program.running(today) as manager:
            manager.publish("go behind-one", "now")
            wait_until(lambda: manager.info("behind-one").phase == "parked")
            assert [found.id for found in manager.list() if found.phase == "parked"] == ["behind-one"]
            cls = program.order()
            assert manager.run(cls("none", extra=1), id="beside", timeout=10) == "the end"
            assert manager.signal("behind-one", "later") is True
            assert manager.info("behind-one").phase == "parked"
        assert program.wrong(program.go_on(limited), is_over=True) == []
    finally:
        program.close()


def test_one_whose_class_is_gone_holds_no_slot_either():
    @dataclass
    class Holds(Procedure):
        def limit_keys(self):
            return ["one at a time"]

        def execute(self, ctx):
            return Status.wait("go") if ctx.event is None else Status.done("gone on")

    @dataclass
    class Other(Procedure):
        def limit_keys(self):
            return ["one at a time"]

        def execute(self, ctx):
            return Status.done("done")

    store, config = MemoryStore(), replace(FAST, concurrency={"one at a time": 1})
    with InlineManager([Holds, Other], config=config, store=store) as manager:
        manager.submit(Holds(), id="holds")
        wait_until(lambda: manager.info("holds").phase == "waiting")
    with InlineManager([Other], config=config, store=store) as manager:
        manager.publish("go", "now")
        wait_until(lambda: manager.info("holds").phase == "parked")
        assert manager.run(Other(), timeout=10) == "done"
        manager.register(Holds)
        assert manager.get("holds").result(timeout=10) == "gone on"


# ---------------------------------------------------------------- what cannot be read now
@dataclass
class Waits(Procedure):
    number: int

    def execute(self, ctx):
        return Status.wait("go") if ctx.event is None else Status.done(self.number)


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    """A store with many procedures, some of which wait while others sleep or are to run."""
    path = tmp_path_factory.mktemp("many") / "store"
    with InlineManager([Waits], config=FAST, store=LmdbStore(path, map_size=1 << 24)) as manager:
        manager.submit_many([(f"p{number}", Waits(number)) for number in range(MANY)])
        manager.pause()
        wait_until(
            lambda: (
                len(manager.list(state="WAITING", limit=None)) + len(manager.list(state="RUNNABLE", limit=None)) == MANY
            )
        )
    return path


class Died(BaseException):
    """The process ends here."""


TROUBLE = {
    "a read error": lambda: OSError(errno.EIO, "Input/output error"),
    "too little memory": MemoryError,
    "an error of the library": lambda: lmdb.Error("mdb_get: MDB_BAD_TXN"),
    "a crash": Died,
}


@pytest.mark.parametrize("trouble", TROUBLE)
def test_a_start_that_fails_at_any_procedure_leaves_all_of_them_to_the_next(many, monkeypatch, trouble):
    store = opened(many)
    honest, seen, at = codec.decode, [0], [0]

    def decode(table, key, value):
        if table is Table.PROCEDURES:
            seen[0] += 1
            if seen[0] == at[0]:
                error = TROUBLE[trouble]()
                raise error
        return honest(table, key, value)

    monkeypatch.setattr(codec, "decode", decode)
    whole = store.load()
    assert len(whole.procedures) == MANY
    try:
        for place in range(1, MANY + 1):
            seen[0], at[0] = 0, place
            with pytest.raises((OSError, MemoryError, lmdb.Error, EngineError, Died)):
                Coordinator.restore(store.load(), 0.0)
            at[0] = 0
            again = store.load()
            assert len(again.procedures) == MANY
            assert not again.damage
    finally:
        store.close()


@pytest.mark.parametrize("place", [1, 2, MANY // 2, MANY])
def test_a_manager_whose_start_failed_starts_again_with_all_procedures(many, monkeypatch, place):
    honest, seen = codec.decode, [0]

    def decode(table, key, value):
        if table is Table.PROCEDURES:
            seen[0] += 1
            if seen[0] == place:
                raise OSError(errno.EIO, "Input/output error")
        return honest(table, key, value)

    monkeypatch.setattr(codec, "decode", decode)
    with pytest.raises(Exception, match="Input/output error"):
        InlineManager([Waits], config=FAST, store=LmdbStore(many, map_size=1 << 24)).start()
    monkeypatch.setattr(codec, "decode", honest)

    with InlineManager([Waits], config=FAST, store=LmdbStore(many, map_size=1 << 24)) as manager:
        assert len(manager.list(limit=None)) == MANY
        assert {info.phase for info in manager.list(limit=None)} <= {"waiting", "queued", "running"}


def test_each_of_many_whose_state_cannot_be_read_at_first_goes_on_and_none_is_parked():
    failed: Counter[int] = Counter()

    @dataclass
    class Reads(Procedure):
        number: int

        def execute(self, ctx):
            return Status.done((self.number, ctx.attempt))

        @classmethod
        def load(cls, data):
            made = super().load(data)
            failed[made.number] += 1
            if failed[made.number] == 1:
                raise OSError(errno.EIO, "Input/output error")
            return made

    clock = VirtualClock()
    with InlineManager([Reads], config=FAST, store=MemoryStore(), clock=clock, workers=4) as manager:
        handles = manager.submit_many([(f"p{number}", Reads(number)) for number in range(MANY)])
        wait_until(lambda: clock.advance(1.0) or all(handle.done() for handle in handles))
        assert [handle.result(timeout=30)[0] for handle in handles] == list(range(MANY))
        assert {(info.errors, info.crashes) for info in manager.list(limit=None)} == {(0, 0)}
    assert set(failed) == set(range(MANY))
    assert min(failed.values()) == 2
