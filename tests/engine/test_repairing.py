"""Repairing things by hand, with real workers: retry, bypass, rollback, pause, the gate, and what is kept of them."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest

import actorproc
from actorproc import LockKey, Phase, Procedure, ProcedureState, RetryPolicy, Saga, Status, step
from actorproc.errors import KeyPoisoned, NotAllowed, ProcedureAborted, ProcedureFailed, UnknownProcedure
from tests.kit.waiting import BOUND

pytestmark = pytest.mark.processes

ONCE = RetryPolicy(max_attempts=1)


def arrive(folder: str, name: str) -> None:
    with Path(folder, name).open("a") as file:
        file.write("1\n")


def wait_for(folder: str, name: str) -> None:
    while not Path(folder, f"{name}.open").exists():
        time.sleep(0.005)


def count(folder: str, name: str) -> int:
    try:
        return len(Path(folder, name).read_text().split())
    except FileNotFoundError:
        return 0


def is_repaired(folder: str) -> bool:
    return Path(folder, "repaired").exists()


@dataclass
class Fragile(Procedure):
    """Fails until it is repaired; has no rollback."""

    folder: str
    done: int = 0

    def lock_keys(self):
        return [LockKey.write("shop")]

    def execute(self, ctx):
        arrive(self.folder, f"step-{ctx.step}-{ctx.idempotency_key}")
        if self.done == 2 and not is_repaired(self.folder):
            raise RuntimeError("the disk is full")
        self.done += 1
        return Status.executing() if self.done < 4 else Status.done(f"{ctx.step} steps")


class Sale(Saga):
    """Its payment cannot be given back until the bank is repaired."""

    folder: str
    rollback_retry: ClassVar[RetryPolicy] = ONCE

    def lock_keys(self):
        return [LockKey.write("bank/accounts")]

    @step
    def reserve(self, ctx):
        pass

    @reserve.undo
    def give_back(self, ctx):
        arrive(self.folder, "given-back")

    @step
    def pay(self, ctx):
        pass

    @pay.undo
    def refund(self, ctx):
        arrive(self.folder, "refund")
        if not is_repaired(self.folder):
            raise RuntimeError("the bank does not answer")

    @step
    def ship(self, ctx):
        raise RuntimeError("out of stock")


@dataclass
class Endless(Procedure):
    """A step that never ends by itself, kept from ending by a gate."""

    folder: str
    name: str = "endless"

    def lock_keys(self):
        return [LockKey.write("machine")]

    def execute(self, ctx):
        arrive(self.folder, self.name)
        wait_for(self.folder, self.name)
        return Status.done("ended by itself")


@dataclass
class Family(Procedure):
    folder: str
    step: int = 0

    def execute(self, ctx):
        self.step += 1
        if self.step == 1:
            return Status.suspended([("stuck", Endless(self.folder)), ("quick", Counts(self.folder, 1))])
        return Status.done({name: (str(child.state), child.output) for name, child in ctx.children.items()})


@dataclass
class Counts(Procedure):
    folder: str
    limit: int
    at: int = 0

    def execute(self, ctx):
        self.at += 1
        arrive(self.folder, f"{ctx.id}-at-{self.at}")
        if self.at == 2:
            wait_for(self.folder, f"{ctx.id}-at-2")
        return Status.executing() if self.at < self.limit else Status.done(self.at)


@dataclass
class Stubborn(Procedure):
    """Says no to the first two abort requests."""

    folder: str
    at: int = 0

    def execute(self, ctx):
        self.at += 1
        arrive(self.folder, "stubborn")
        return Status.wait(f"go-{self.at}")

    def rollback(self, ctx):
        pass

    def abort(self, ctx):
        arrive(self.folder, "asked")
        return count(self.folder, "asked") > 2


# ---------------------------------------------------------------- retry
def test_a_failed_step_runs_again_after_a_restart_with_the_same_key_and_a_new_outcome(open_manager, gate):
    manager = open_manager()
    first = manager.submit(Fragile(gate.folder), id="f")
    with pytest.raises(ProcedureFailed, match="the disk is full"):
        first.result(BOUND)
    manager.stop()
    Path(gate.folder, "repaired").touch()

    manager = open_manager(procedures=[Fragile])
    again = manager.retry("f", reason="a larger disk")

    assert again.result(BOUND) == "4 steps"
    assert manager.info("f").run == 2
    assert [len(path.read_text().split()) for path in sorted(Path(gate.folder).glob("step-3-*"))] == [2]
    with pytest.raises(ProcedureFailed):
        first.result(0)
    assert [(row.verb, row.reason, row.detail) for row in manager.audit("f")] == [
        ("retry", "a larger disk", "the failed step")
    ]
    with pytest.raises(NotAllowed, match="has succeeded"):
        manager.retry("f")


def test_a_rollback_that_gave_up_is_taken_up_where_it_stopped_and_frees_its_keys(open_manager, gate):
    manager = open_manager()
    handle = manager.submit(Sale(gate.folder), id="sale")
    assert handle.exception(BOUND).state == "FAILED"
    assert [poison.path for poison in manager.poisons()] == ["bank/accounts"]
    with pytest.raises(KeyPoisoned):
        manager.submit(Sale(gate.folder))

    still = manager.retry("sale")
    assert still.exception(BOUND).state == "FAILED"
    Path(gate.folder, "repaired").touch()
    undone = manager.retry("sale", reason="the bank is back")

    assert undone.exception(BOUND).state == "ROLLEDBACK"
    assert (count(gate.folder, "refund"), count(gate.folder, "given-back")) == (3, 1)
    assert manager.poisons() == manager.locks() == []
    assert manager.info("sale").run == 3
    with pytest.raises(NotAllowed, match="undone completely"):
        manager.retry("sale")


def test_what_nobody_knows_is_unknown_to_every_verb(open_manager):
    manager = open_manager(workers=1)
    for verb in (manager.retry, manager.bypass, manager.rollback, manager.pause, manager.resume, manager.audit):
        with pytest.raises(UnknownProcedure):
            verb("nobody")


# ---------------------------------------------------------------- bypass
def test_a_running_step_is_killed_by_force_and_its_parent_goes_on(open_manager, gate):
    manager = open_manager()
    parent = manager.submit(Family(gate.folder), id="family")
    gate.reached("endless")
    with pytest.raises(NotAllowed, match="force=True"):
        manager.bypass("stuck")

    assert manager.bypass("stuck", force=True, reason="the machine is switched off") is True

    assert parent.result(BOUND) == {
        "stuck": ("SUCCESS", None),
        "quick": ("SUCCESS", 1),
    }
    info = manager.info("stuck")
    assert (info.state, info.bypassed) == (ProcedureState.SUCCESS, True)
    assert manager.get("stuck").result(BOUND) is None
    assert manager.steps("stuck")[-1].outcome == "bypassed"
    assert [row.reason for row in manager.audit("stuck")] == ["the machine is switched off"]
    assert manager.locks() == []


def test_a_failed_root_is_vouched_for(open_manager, gate):
    manager = open_manager()
    manager.submit(Sale(gate.folder), id="sale").wait(BOUND)

    assert manager.bypass("sale", reason="refunded by hand") is True

    assert manager.get("sale").result(BOUND) is None
    assert manager.poisons() == []
    assert manager.bypass("sale") is False


# ---------------------------------------------------------------- rollback, abort
def test_a_rollback_on_demand_asks_nobody(open_manager, gate, until):
    manager = open_manager()
    handle = manager.submit(Stubborn(gate.folder), id="s")
    until(lambda: handle.info().phase is Phase.WAITING)

    assert manager.rollback("s", reason="not wanted any more") is True

    failure = handle.exception(BOUND)
    assert isinstance(failure, ProcedureAborted)
    assert failure.state == "ROLLEDBACK"
    assert "not wanted any more" in str(failure)
    assert count(gate.folder, "asked") == 0
    assert manager.rollback("s") is False


def test_a_procedure_that_refuses_to_abort_is_asked_again_whenever_a_step_ends(open_manager, gate, until):
    manager = open_manager()
    handle = manager.submit(Stubborn(gate.folder), id="s")
    until(lambda: handle.info().phase is Phase.WAITING)
    assert manager.abort("s", reason="too long") is True
    until(lambda: count(gate.folder, "asked") == 1)

    for number in (1, 2):
        manager.publish(f"go-{number}")
        until(lambda number=number: count(gate.folder, "asked") == number + 1)

    assert handle.exception(BOUND).state == "ROLLEDBACK"
    assert [(row.verb, row.reason) for row in manager.audit("s")] == [("abort", "too long")]


def test_an_abort_by_force_kills_the_running_step(open_manager, gate):
    manager = open_manager()
    handle = manager.submit(Endless(gate.folder), id="e")
    gate.reached("endless")

    assert manager.abort("e", force=True, reason="now") is True

    assert isinstance(handle.exception(BOUND), ProcedureAborted)
    assert [(row.verb, row.detail) for row in manager.audit("e")] == [("abort", "by force")]


# ---------------------------------------------------------------- pause
def test_a_paused_procedure_stands_still_across_a_restart_while_others_run(open_manager, gate, until):
    manager = open_manager()
    manager.submit(Counts(gate.folder, 3), id="c")
    gate.reached("c-at-2")
    assert manager.pause("c", reason="maintenance") is True
    gate.open("c-at-2")
    until(lambda: manager.info("c").phase is Phase.PAUSED)
    manager.stop()

    manager = open_manager(procedures=[Counts])
    info = manager.info("c")
    assert (info.phase, info.reason, info.paused, info.step) == (Phase.PAUSED, "maintenance", "maintenance", 3)
    assert manager.run(Counts(gate.folder, 1)) == 1
    assert count(gate.folder, "c-at-3") == 0
    assert manager.health().status == "running"

    assert manager.resume("c") is True
    assert manager.get("c").result(BOUND) == 3


def test_the_whole_manager_is_paused_until_somebody_resumes_it_also_after_a_restart(open_manager, gate):
    manager = open_manager()
    assert manager.pause(reason="the network is down") is True
    handle = manager.submit(Counts(gate.folder, 1), id="c")
    assert manager.health().status == "paused"
    manager.stop()

    manager = open_manager(procedures=[Counts])
    health = manager.health()
    assert (health.status, health.paused, health.ok) == ("paused", "the network is down", True)
    manager.submit(Counts(gate.folder, 1), id="d")
    assert {info.phase for info in manager.list()} == {Phase.QUEUED}
    assert count(gate.folder, "c-at-1") == 0

    assert manager.resume(reason="it is up") is True
    assert manager.resume() is False
    assert [manager.get(name).result(BOUND) for name in ("c", "d")] == [1, 1]
    assert handle.id == "c"
    assert [(row.id, row.verb, row.reason) for row in manager.audit()] == [
        (None, "pause", "the network is down"),
        (None, "resume", "it is up"),
    ]


def test_behind_the_gate_everything_is_recovered_and_nothing_runs(open_manager, gate, tmp_path):
    manager = open_manager()
    manager.submit(Endless(gate.folder), id="e")
    gate.reached("endless")
    manager.stop(drain=False, timeout=10)
    gate.open("endless")

    gated = actorproc.ProcedureManager(tmp_path / "state", workers=1, procedures=[Endless, Counts])
    gated.start(gated=True)
    with gated:
        health = gated.health()
        assert (health.status, health.ok) == ("gated", True)
        assert [lock.holder for lock in gated.locks()] == ["e"]
        later = gated.submit(Counts(gate.folder, 1))
        assert not later.wait(0.05)
        assert count(gate.folder, "endless") <= 2

        gated.open()
        assert gated.get("e").result(BOUND) == "ended by itself"
        assert later.result(BOUND) == 1
        gated.open()
        assert gated.health().status == "running"


def test_a_cleared_poison_key_is_in_the_managers_own_audit(open_manager, gate):
    manager = open_manager()
    manager.submit(Sale(gate.folder), id="sale").wait(BOUND)

    assert manager.clear_poison("bank/accounts", reason="looked at it") is True

    assert [(row.verb, row.reason, row.detail) for row in manager.audit()] == [
        ("clear-poison", "looked at it", "bank/accounts")
    ]


@pytest.mark.parametrize("reason", ["", "x" * 1025, "\ud800"])
def test_a_reason_that_cannot_be_kept_is_refused(open_manager, reason):
    manager = open_manager(workers=1)
    with pytest.raises(ValueError, match="reason"):
        manager.pause(reason=reason)
