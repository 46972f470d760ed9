"""Submits of ids that exist, on the real engine: what a restart runs, keeps and removes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta

import pytest

from actorproc import (
    Config,
    DuplicateProcedure,
    KeyPoisoned,
    LockKey,
    NotAllowed,
    Procedure,
    ProcedureFailed,
    ProcedureManager,
    Saga,
    Status,
    StoreReader,
    step,
)
from actorproc.store.tools.isolated_check import examine
from tests.kit.waiting import BOUND


class Seats(Saga):
    """Takes seats one by one, and fails behind them."""

    count: int
    fails: bool = True

    @step
    def take(self, ctx):
        ctx.remember("seat", lambda: self.count)
        return Status.suspended([Seat(number) for number in range(self.count)])

    @take.undo
    def give_back(self, ctx):
        pass

    @step
    def pay(self, ctx):
        if self.fails:
            raise ValueError("no money")
        return {"key": ctx.idempotency_key, "seats": sorted(child.output for child in ctx.children.values())}


@dataclass
class Seat(Procedure):
    number: int

    def execute(self, ctx):
        return Status.done(self.number)


@dataclass
class Risky(Procedure):
    fails: bool = True

    def lock_keys(self):
        return (LockKey.write("disk"),)

    def poison_keys(self):
        return ("disk",)

    def execute(self, ctx):
        if self.fails:
            raise ValueError(f"half written by {ctx.idempotency_key}")
        return Status.done("written")


@dataclass
class Waits(Procedure):
    name: str = ""

    def execute(self, ctx):
        return Status.done(ctx.event) if ctx.event is not None else Status.wait("go")


@pytest.fixture
def manager(tmp_path):
    with ProcedureManager(tmp_path / "s", workers=2, config=Config(spares=0)) as made:
        yield made


def failed(manager, procedure, id, **options):
    handle = manager.submit(procedure, id=id, **options)
    with pytest.raises(ProcedureFailed):
        handle.result(BOUND)
    return handle


def test_an_undone_saga_begins_anew_with_keys_and_children_of_its_own(manager, tmp_path):
    old = failed(manager, Seats(3), "seats")
    before = manager.info("seats")
    assert before.state == "ROLLEDBACK"
    children = {info.id for info in manager.list(root="seats")} - {"seats"}
    assert len(children) == 3

    handle = manager.submit(Seats(2, fails=False), id="seats", on_existing="restart-failed", tags=["again"])

    assert handle.result(BOUND) == {"key": "seats.g2.pay", "seats": [0, 1]}
    with pytest.raises(ProcedureFailed):  # it was told
        old.result(BOUND)
    assert manager.get("seats").result(BOUND) == handle.result(BOUND)
    info = manager.info("seats")
    assert (info.generation, info.state, info.tags) == (2, "SUCCESS", ("again",))
    assert info.created_at > before.created_at
    new = {found.id for found in manager.list(root="seats")} - {"seats"}
    assert len(new) == 2
    assert new.isdisjoint(children)
    assert [record.outcome for record in manager.steps("seats")] == ["submitted", "suspended", "done"]
    manager.stop()
    assert {found["what"] for found in examine(tmp_path / "s")} == {"facts", "table", "done"}


def test_a_stored_restart_goes_on_in_the_next_life_of_the_manager(tmp_path):
    with ProcedureManager(tmp_path / "s", workers=1) as manager:
        failed(manager, Seats(1), "seats")
    with ProcedureManager(tmp_path / "s", workers=1).start(gated=True) as manager:
        manager.submit(Seats(1, fails=False), id="seats", on_existing="restart")
    with ProcedureManager(tmp_path / "s", workers=1, procedures=[Seats, Seat]) as manager:
        assert manager.get("seats").result(BOUND)["key"] == "seats.g2.pay"
    with StoreReader(tmp_path / "s") as reader:
        assert reader.info("seats").generation == 2


def test_of_many_racing_restarts_one_is_the_next_generation(manager):
    failed(manager, Waits(), "x", deadline=timedelta(milliseconds=1))

    def restart(name):
        try:
            return manager.submit(Waits(name), id="x", on_existing="restart-failed")
        except NotAllowed:
            return None

    with ThreadPoolExecutor(8) as pool:
        handles = [handle for handle in pool.map(restart, map(str, range(16))) if handle is not None]

    assert len(handles) == 1
    manager.signal("x", "go")
    assert handles[0].result(BOUND) == "go"
    assert manager.info("x").generation == 2


def test_what_a_restart_does_not_take_says_so(manager):
    manager.submit(Waits(), id="waits")
    manager.run(Seat(1), id="done", timeout=BOUND)

    with pytest.raises(NotAllowed, match="it has not ended"):
        manager.submit(Waits(), id="waits", on_existing="restart")
    with pytest.raises(NotAllowed, match="has succeeded, and on_existing='restart-failed' takes"):
        manager.submit(Seat(1), id="done", on_existing="restart-failed")
    with pytest.raises(DuplicateProcedure, match="exists and is SUCCESS, and was submitted with on_existing='error'"):
        manager.submit(Seat(1), id="done", on_existing="error")
    assert manager.submit(Seat(1), id="done").result(BOUND) == 1
    assert manager.run(Seat(2), id="done", on_existing="restart", timeout=BOUND) == 2
    manager.abort("waits")


def test_a_poisoned_key_is_to_be_cleared_first(manager):
    failed(manager, Risky(), "risky")
    with pytest.raises(KeyPoisoned, match="clear_poison"):
        manager.submit(Risky(fails=False), id="risky", on_existing="restart")

    manager.clear_poison("disk")

    assert manager.submit(Risky(fails=False), id="risky", on_existing="restart").result(BOUND) == "written"


def test_many_are_restarted_in_one_commit_or_none(manager):
    for number in range(3):
        failed(manager, Seats(1), f"s{number}")
    manager.submit(Waits(), id="waits")
    again = [(f"s{number}", Seats(1, fails=False)) for number in range(3)]

    with pytest.raises(NotAllowed):
        manager.submit_many([*again, ("waits", Waits())], on_existing="restart-failed")
    assert {manager.info(name).generation for name, _ in again} == {1}

    handles = manager.submit_many([*again, ("new", Seats(1, fails=False))], on_existing="restart-failed")
    assert [handle.result(BOUND)["key"] for handle in handles] == [
        *(f"s{number}.g2.pay" for number in range(3)),
        "new.pay",
    ]
    manager.abort("waits")


def test_a_retried_procedure_keeps_its_generation_and_its_keys(manager):
    failed(manager, Risky(), "risky")
    assert manager.retry("risky")
    with pytest.raises(ProcedureFailed, match=r"half written by risky\.1$"):
        manager.get("risky").result(BOUND)
    assert manager.info("risky").generation == 1

    manager.clear_poison("disk")
    manager.submit(Risky(), id="risky", on_existing="restart-failed")
    for _ in range(2):
        with pytest.raises(ProcedureFailed, match=r"half written by risky\.g2\.1$"):
            manager.get("risky").result(BOUND)
        assert manager.retry("risky")
    with pytest.raises(ProcedureFailed):
        manager.get("risky").result(BOUND)
    assert manager.info("risky").generation == 2


@pytest.mark.parametrize("policy", ["restarts", "", "RESTART", "same "])
def test_a_policy_that_there_is_not_is_refused_with_those_there_are(manager, policy):
    with pytest.raises(ValueError, match="on_existing is one of 'same', 'error', 'restart-failed', 'restart', not"):
        manager.submit(Seat(1), id="x", on_existing=policy)
    with pytest.raises(TypeError, match="on_existing is one of"):
        manager.submit(Seat(1), id="x", on_existing=True)


@pytest.mark.parametrize("policy", ["same", "error", "restart-failed", "restart"])
def test_a_submit_without_an_id_is_always_a_new_one(manager, policy):
    names = {manager.submit(Seat(1), on_existing=policy).id for _ in range(2)}
    assert len(names) == 2


@dataclass
class Rounds(Procedure):
    left: int

    def execute(self, ctx):
        return Status.again(Rounds(self.left - 1)) if self.left else Status.done(ctx.generation)


@pytest.mark.parametrize("keep", [1, 100])
def test_each_record_of_the_log_says_its_generation(tmp_path, keep):
    with ProcedureManager(tmp_path / "s", workers=1, config=Config(keep_steps=keep)) as manager:
        assert manager.run(Rounds(4), id="r", timeout=BOUND) == 5
        assert manager.run(Rounds(5), id="r", on_existing="restart", timeout=BOUND) == 11
        log = {record.number: record.generation for record in manager.steps("r")}

    assert log == {number: min(number + 5, 11) for number in log}
    assert log[1] == 6
    assert (len(log) == 7) == (keep == 100)
