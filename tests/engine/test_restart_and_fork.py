"""`restart` and `fork` on the real engine: what runs again, with which state and keys, and what stays."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import pytest

from actorproc import (
    Config,
    DuplicateProcedure,
    LockKey,
    NotAllowed,
    Procedure,
    ProcedureClient,
    ProcedureFailed,
    ProcedureManager,
    Saga,
    StateMachineProcedure,
    Status,
    UnknownProcedure,
    UsageError,
    step,
)
from actorproc.api.stopped import StoppedStore
from tests.kit.waiting import BOUND


class Order(Saga):
    item: str
    path: str
    fails: bool = True
    seen: int = 0

    @step
    def reserve(self, ctx):
        self.seen += 1
        ctx.remember("first", lambda: ctx.idempotency_key)

    @reserve.undo
    def free(self, ctx):
        note(self.path, f"free {ctx.id}")

    @step
    def pay(self, ctx):
        self.seen += 10
        note(self.path, ctx.idempotency_key)

    @pay.undo
    def refund(self, ctx):
        note(self.path, f"refund {ctx.id}")

    @step
    def ship(self, ctx):
        if self.fails and not Path(f"{self.path}.ok").exists():
            raise ValueError("no van")
        return [self.seen, ctx.step, ctx.idempotency_key, ctx.generation]


class Asks(Saga):
    @step
    def ask(self, ctx):
        return Status.wait("answer")

    @step
    def hear(self, ctx):
        return Status.suspended([Part(ctx.event)])

    @step
    def add(self, ctx):
        self.total = sum(child.output for child in ctx.children.values())

    @step
    def tell(self, ctx):
        return self.total

    total: int = 0


@dataclass
class Part(Procedure):
    value: int

    def execute(self, ctx):
        return Status.done(self.value)


@dataclass
class Counts(Procedure):
    """Goes by the numbers of its steps."""

    done: str = ""

    def lock_keys(self):
        return (LockKey.write("counts"),)

    def execute(self, ctx):
        self.done += str(ctx.step)
        return Status.done(self.done) if ctx.step == 4 else Status.executing()


class Light(Enum):
    RED = 1
    AMBER = 2
    GREEN = 3


@dataclass
class Lights(StateMachineProcedure):
    initial_state = Light.RED
    rounds: int = 0

    def execute_from_state(self, ctx, state):
        self.rounds += 1
        if state is Light.GREEN:
            return Status.done(self.rounds)
        return Light(state.value + 1)


@dataclass
class Pickled(Procedure):
    codec = "pickle"
    parts: object = None

    def execute(self, ctx):
        return Status.done(sorted(self.parts)) if ctx.step > 1 else Status.executing()


def note(path, line):
    with Path(path).open("a", encoding="ascii") as file:
        file.write(line + "\n")


def lines(path):
    return path.read_text().splitlines() if path.exists() else []


@pytest.fixture
def manager(tmp_path):
    with ProcedureManager(tmp_path / "s", workers=2, config=Config(spares=0)) as made:
        yield made


def failed(manager, procedure, id):
    with pytest.raises(ProcedureFailed):
        manager.run(procedure, id=id, timeout=BOUND)


# ---------------------------------------------------------------- restart
@pytest.mark.parametrize("end", ["undone", "done"])
def test_a_restart_runs_the_submitted_state_as_a_new_generation(manager, tmp_path, end):
    path = tmp_path / "notes"
    if end == "done":
        manager.run(Order("book", str(path), fails=False), id="o", tags=["t"], priority=3)
    else:
        failed(manager, Order("book", str(path)), "o")
        note(f"{path}.ok", "")

    handle = manager.restart("o", reason="there is a van", by="ann")

    assert handle.result(BOUND) == [11, 3, "o.g2.ship", 2]
    assert [(row.verb, row.reason, row.by) for row in manager.audit("o")] == [("restart", "there is a van", "ann")]
    assert manager.info("o").tags == (("t",) if end == "done" else ())


def test_what_cannot_be_restarted_is_told_in_words(manager, tmp_path):
    with pytest.raises(UnknownProcedure):
        manager.restart("nobody")
    manager.submit(Asks(), id="waits")
    with pytest.raises(NotAllowed, match="has not ended"):
        manager.restart("waits")


def test_a_restart_on_a_stopped_store_needs_no_class(tmp_path):
    path = tmp_path / "notes"
    with ProcedureManager(tmp_path / "s", workers=1) as manager:
        failed(manager, Order("book", str(path)), "o")
    note(f"{path}.ok", "")

    with StoppedStore(tmp_path / "s") as store:
        store.restart("o")
        fork = store.fork("o", "reserve", new_id="f")
        assert not store.has_ended("o")
        assert fork.id == "f"

    with ProcedureManager(tmp_path / "s", workers=1, procedures=[Order]) as manager:
        assert manager.get("o").result(BOUND) == [11, 3, "o.g2.ship", 2]
        assert manager.get("f").result(BOUND) == [11, 3, "f.ship", 1]


# ---------------------------------------------------------------- fork
def test_a_fork_begins_with_the_state_before_the_step_and_undoes_only_its_own(manager, tmp_path):
    path = tmp_path / "notes"
    failed(manager, Order("book", str(path)), "o")
    assert lines(path) == ["o.pay", "refund o", "free o"]

    fork = manager.fork("o", from_step="pay", new_id="f")

    with pytest.raises(ProcedureFailed):
        fork.result(BOUND)
    assert lines(path)[3:] == ["f.pay", "refund f"]
    note(f"{path}.ok", "")
    assert manager.fork("o", "ship").result(BOUND)[:2] == [11, 3]
    assert manager.fork("f", "ship", new_id="g").result(BOUND) == [11, 3, "g.ship", 1]
    assert manager.fork("g", 3).result(BOUND)[1] == 3
    assert manager.info("o").state == "ROLLEDBACK"
    assert [row.detail for row in manager.audit("f")] == ["of o, from step 'pay'", "as g, from step 'ship'"]


@pytest.mark.parametrize("asker", ["client", "manager"])
def test_a_fork_of_a_procedure_that_goes_by_numbers(manager, tmp_path, asker):
    assert manager.run(Counts(), id="c", timeout=BOUND) == "1234"
    with ProcedureClient(tmp_path / "s") as client:
        verbs = client if asker == "client" else manager
        assert verbs.fork("c", 3, new_id="d").result(BOUND) == "1234"
        assert verbs.fork("d", 4).result(BOUND) == "1234"
        assert verbs.restart("d").result(BOUND) == "1234"
        assert verbs.restart("c").result(BOUND) == "1234"
        with pytest.raises(DuplicateProcedure, match=r"d .* exists"):
            verbs.fork("c", 3, new_id="d")
    assert manager.poisons() == []


def test_a_fork_of_a_machine_and_of_a_pickled_state(manager):
    assert manager.run(Lights(), id="l", timeout=BOUND) == 3
    assert manager.fork("l", "AMBER").result(BOUND) == 3
    assert manager.run(Pickled({3, 1}), id="p", timeout=BOUND) == [1, 3]
    assert manager.fork("p", 2).result(BOUND) == [1, 3]


def test_a_step_that_sees_children_or_an_event_is_no_beginning_of_a_fork(manager):
    handle = manager.submit(Asks(), id="a")
    manager.signal("a", 5)
    assert handle.result(BOUND) == 5

    with pytest.raises(NotAllowed, match=r"step 2 \(hear\) of a begins with what came for an event.*fork from step 1"):
        manager.fork("a", "hear")
    with pytest.raises(NotAllowed, match=r"begins with the outcomes of children, .* fork from step 2 \(hear\)"):
        manager.fork("a", "add")
    assert manager.fork("a", "tell").result(BOUND) == 5
    fork = manager.fork("a", "ask")
    manager.signal(fork.id, 7)
    assert fork.result(BOUND) == 7


@pytest.mark.parametrize(
    ("wanted", "error", "words"),
    [
        ("nothing", UsageError, r"no step 'nothing' .* begin at: step 1 \(ask\)"),
        (9, UsageError, "no step 9"),
        (0, UsageError, "no step 0"),
        (True, TypeError, "not True"),
        (None, TypeError, "not None"),
    ],
)
def test_a_step_that_is_none_is_told_in_words(manager, wanted, error, words):
    manager.submit(Asks(), id="a")
    with pytest.raises(error, match=words):
        manager.fork("a", wanted)
    with pytest.raises(UnknownProcedure):
        manager.fork("b", 1)
