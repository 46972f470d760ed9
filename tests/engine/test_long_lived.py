"""Procedures that go on for long, on the real engine: what their store keeps."""

from __future__ import annotations

import os
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import ClassVar

import pytest

from actorproc import (
    Config,
    Procedure,
    ProcedureFailed,
    ProcedureManager,
    Saga,
    StateMachineProcedure,
    Status,
    step,
)


@dataclass
class Poller(Procedure):
    rounds: int
    n: int = 0
    blob: bytes = b""

    def execute(self, ctx):
        self.n += 1
        self.blob = os.urandom(50_000)
        ctx.remember("old", lambda: os.urandom(1000))
        return Status.executing() if self.n < self.rounds else Status.done(self.n)


@dataclass
class Kept(Poller):
    keep_steps: ClassVar[int] = 3


class Undone(Saga):
    n: int = 0

    @step
    def first(self, ctx):
        self.n += 1
        return Status.executing() if self.n < 300 else None

    @first.undo
    def unfirst(self, ctx):
        self.n = -1


@pytest.fixture
def manager(tmp_path):
    with ProcedureManager(tmp_path / "s", workers=2) as made:
        yield made


@pytest.mark.parametrize(("cls", "config", "most"), [(Poller, Config(keep_steps=5), 13), (Kept, Config(), 9)])
def test_a_loop_keeps_its_first_record_and_its_last_ones(tmp_path, cls, config, most):
    with ProcedureManager(tmp_path / "s", workers=1, config=config) as manager:
        handle = manager.submit(cls(400), id="loop")
        assert handle.result(timeout=100) == 400
        steps = manager.steps("loop")

        assert [steps[0].number, steps[-1].number] == [1, 401]
        assert len(steps) <= most
        assert manager.info("loop").trimmed == 401 - len(steps)
        numbers = [record.number for record in steps[1:]]
        assert numbers == list(range(numbers[0], 402))
        # The file holds the pages of some commits, and not those of 400 rounds of 51 kB.
        assert sum(file.stat().st_size for file in (tmp_path / "s").iterdir()) < 8_000_000


def test_a_saga_with_an_undo_keeps_all(tmp_path):
    with ProcedureManager(tmp_path / "s", workers=1, config=Config(keep_steps=5)) as manager:
        manager.run(Undone(), id="saga", timeout=60)

        assert len(manager.steps("saga")) == 301
        assert manager.info("saga").trimmed == 0


@pytest.mark.parametrize("wrong", [0, -1, 1.5, True, "3"])
def test_what_can_be_no_number_of_steps_is_refused(tmp_path, wrong):
    with pytest.raises(ValueError, match=r"Config\.keep_steps is .*at least 1, or None"):
        Config(keep_steps=wrong)


# ---------------------------------------------------------------------- Status.again
@dataclass
class Counter(Procedure):
    """Two steps and a note in each generation; the keys it saw go to the output of the last one."""

    until: int
    keys: tuple[str, ...] = ()

    def execute(self, ctx):
        self.keys = (
            *self.keys,
            f"{ctx.generation}/{ctx.step} {ctx.idempotency_key} {ctx.remember('n', lambda: len(self.keys))}",
        )
        if ctx.step == 1:
            return Status.executing()
        return Status.again(self) if ctx.generation < self.until else Status.done(list(self.keys))


class Cycle(Saga):
    until: int
    seen: tuple[str, ...] = ()

    @step
    def first(self, ctx):
        self.seen = (*self.seen, f"first {ctx.step}")

    @first.undo
    def unfirst(self, ctx):
        self.seen = (*self.seen, "undone")

    @step
    def second(self, ctx):
        if ctx.generation == self.until:
            return self.seen
        return Status.again(Cycle(self.until, (*self.seen, f"second {ctx.step}")))


class Light(Enum):
    RED = "red"
    GREEN = "green"


@dataclass
class Lights(StateMachineProcedure):
    until: int
    seen: tuple[str, ...] = ()
    initial_state = Light.RED

    def execute_from_state(self, ctx, state):
        self.seen = (*self.seen, f"{state.name} {ctx.step}")
        if state is Light.RED:
            return Light.GREEN
        return Status.again(self) if ctx.generation < self.until else Status.done(self.seen)


def test_a_generation_begins_at_the_first_step_with_keys_and_notes_of_its_own(manager):
    assert manager.run(Counter(3), id="c", timeout=30) == [
        "1/1 c.1 0",
        "1/2 c.2 1",
        "2/1 c.g2.1 2",
        "2/2 c.g2.2 3",
        "3/1 c.g3.1 4",
        "3/2 c.g3.2 5",
    ]
    assert manager.info("c").generation == 3
    assert [record.outcome for record in manager.steps("c")] == [
        "submitted", "executing", "again", "executing", "again", "executing", "done",
    ]  # fmt: skip


def test_a_saga_and_a_machine_begin_again(manager):
    assert manager.run(Cycle(3), timeout=30) == ("first 1", "second 2", "first 1", "second 2", "first 1")
    assert manager.run(Lights(2), timeout=30) == ("RED 1", "GREEN 2", "RED 1", "GREEN 2")


def note(path, line):
    with Path(path).open("a") as file:
        file.write(f"{line}\n")


class Fails(Saga):
    until: int
    path: str

    @step
    def first(self, ctx):
        note(self.path, f"did {ctx.generation}")

    @first.undo
    def unfirst(self, ctx):
        note(self.path, f"undid {ctx.generation} {ctx.idempotency_key}")

    @step
    def second(self, ctx):
        if ctx.generation == self.until:
            raise ValueError("enough")
        return Status.again(self)


def test_what_earlier_generations_did_is_not_undone(manager, tmp_path):
    path = tmp_path / "notes"
    with pytest.raises(ProcedureFailed):
        manager.run(Fails(3, str(path)), id="f", timeout=30)

    assert path.read_text().splitlines() == ["did 1", "did 2", "did 3", "undid 3 f.g3.first.undo"]


@dataclass
class Leaf(Procedure):
    n: int

    def execute(self, ctx):
        return Status.done(self.n)


@dataclass
class Rounds(Procedure):
    """A fan-out in each round, with ids of its own or made ones."""

    rounds: int
    named: bool
    total: int = 0

    def execute(self, ctx):
        if ctx.step == 1:
            leaves = [Leaf(n) for n in range(300)]
            return Status.suspended([(f"leaf-{leaf.n}", leaf) for leaf in leaves] if self.named else leaves)
        self.total += sum(child.output for child in ctx.children.values())
        return Status.again(self) if ctx.generation < self.rounds else Status.done(self.total)


@pytest.mark.parametrize("named", [False, True])
def test_children_of_earlier_generations_are_removed(manager, named):
    total = manager.run(Rounds(4, named), id="r", timeout=60)

    assert total == 4 * sum(range(300))
    # The last generation's children stay with their parent.
    assert len(manager.list(root="r", limit=5000)) == 301
    assert manager.info("r").children == {"SUCCESS": 300}


@dataclass
class Wrong(Procedure):
    how: str

    def execute(self, ctx):
        if self.how == "child":
            return Status.suspended([Wrong("again")])
        if self.how == "outstanding" and ctx.step == 1:
            return Status.suspended([Leaf(1), Sleeper()], wait="any")
        if self.how == "class":
            return Status.again(Leaf(1))
        if self.how == "value":
            return Status.again({"n": 1})
        return Status.again(self)


@dataclass
class Sleeper(Procedure):
    def execute(self, ctx):
        return Status.sleep(3600) if ctx.step == 1 else Status.done()


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("child", "is for roots, and for children whose parent has ended"),
        ("outstanding", "has not ended; wait for it"),
        ("class", "takes a Wrong in a step of one"),
        ("value", "takes a procedure of the same class"),
    ],
)
def test_again_in_the_wrong_place_fails_the_step_in_words(manager, how, words):
    with pytest.raises(ProcedureFailed, match=words) as caught:
        manager.run(Wrong(how), timeout=30)

    assert "InvalidStatus" in str(caught.value.cause) + repr(caught.value.cause)


def test_a_submit_of_the_same_is_the_same_in_a_later_generation(manager):
    first = manager.submit(Counter(3), id="again")
    assert len(first.result(timeout=30)) == 6

    assert manager.submit(Counter(3), id="again").result(timeout=30) == first.result()


@dataclass
class Receiver(Procedure):
    """One generation for each signal; what was heard is the state of the next."""

    until: int
    heard: tuple[int, ...] = ()

    def execute(self, ctx):
        if ctx.step == 1:
            return Status.wait("told")
        heard = (*self.heard, ctx.event)
        return Status.done(heard) if len(heard) == self.until else Status.again(Receiver(self.until, heard))


def test_signals_that_come_while_a_generation_ends_are_each_taken_once_and_in_order(manager):
    handle = manager.submit(Receiver(1000), id="receiver")
    for number in range(1000):
        manager.signal("receiver", number)

    assert handle.result(timeout=100) == tuple(range(1000))
    assert handle.info().generation == 1000
