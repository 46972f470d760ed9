"""What a procedure's author may declare, with real workers: hooks, outputs, arguments, rollback modes, no return."""

from __future__ import annotations

import signal
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path

import pytest

from actorproc import LockKey, Procedure, RetryPolicy, Saga, StateMachineProcedure, Status, procedure, step
from actorproc.errors import ProcedureFailed, RetryLater, UnknownType
from actorproc.model.states import Phase, ProcedureState
from tests.engine.conftest import kill

pytestmark = pytest.mark.processes

ONCE = RetryPolicy(max_attempts=1, retry_on=(Exception, RetryLater))


def write(folder: str, *words: object) -> None:
    with Path(folder, "log").open("a") as file:
        file.write(" ".join(map(str, words)) + "\n")


def lines(folder: str) -> list[str]:
    try:
        return Path(folder, "log").read_text().splitlines()
    except FileNotFoundError:
        return []


def is_open(folder: str, name: str) -> bool:
    return Path(folder, f"{name}.open").exists()


class Color(Enum):
    RED = "r"
    BLUE = "b"


@dataclass(frozen=True)
class Item:
    name: str
    price: Decimal
    color: Color
    made: datetime


ITEM = Item("lamp", Decimal("9.90"), Color.BLUE, datetime(2024, 5, 1, 12, tzinfo=UTC))


# ---------------------------------------------------------------- functions
@procedure
def echo(
    ctx, item: Item, /, color: Color, *rest: int, span: timedelta = timedelta(hours=1), **more: Color | Path
) -> tuple[Item, Color, tuple[int, ...], timedelta, dict[str, Color | Path]]:
    return item, color, rest, span, more


def test_arguments_and_outputs_of_a_function_come_back_as_what_they_were(open_manager):
    manager = open_manager(workers=1)

    handle = manager.submit(echo(ITEM, Color.RED, 1, 2, where=Path("a/b"), tint=Color.BLUE), "echo")

    wanted = (ITEM, Color.RED, (1, 2), timedelta(hours=1), {"where": Path("a/b"), "tint": Color.BLUE})
    assert handle.result(30) == wanted
    manager.stop()
    again = open_manager(workers=1)
    with pytest.raises(UnknownType, match="is registered"):
        again.get("echo").result(30)
    again.register(echo)
    assert again.get("echo").result(30) == wanted


# ---------------------------------------------------------------- outputs of a machine
@dataclass
class Paints(StateMachineProcedure):
    initial_state = Color.RED
    uses = (Item,)

    def execute_from_state(self, ctx, state) -> Enum | Status | None:
        return Color.BLUE if state is Color.RED else Status.done([ITEM, state])


class Asks(Saga):
    """The output of a child is what it was, too."""

    uses = (Paints,)

    @step
    def start(self, ctx):
        return Status.suspended([Paints(), ("second", Paints())])

    @step
    def look(self, ctx) -> list[Item]:
        return [outcome.output[0] for outcome in ctx.children.values()]


def test_typed_outputs_of_children_and_of_a_machine_come_back_as_what_they_were(open_manager):
    manager = open_manager()

    assert manager.run(Paints()) == [ITEM, Color.BLUE]
    assert manager.run(Asks()) == [ITEM, ITEM]


# ---------------------------------------------------------------- hooks around recovery
@dataclass
class Recovers(Procedure):
    folder: str
    at: int = 0

    def execute(self, ctx):
        self.at += 1
        write(self.folder, "step", ctx.step, ctx.recovered, ctx.replayed)
        if self.at == 1:
            return Status.executing()
        if self.at == 2:
            return Status.wait("go")
        if not is_open(self.folder, "gate"):
            return Status.executing(after=0.01)
        return Status.done(ctx.event)

    def before_recover(self, ctx):
        write(self.folder, "before", ctx.step, ctx.mode.name)

    def after_recover(self, ctx):
        write(self.folder, "after", ctx.step)


def test_recovery_hooks_run_around_the_first_step_after_a_restart_and_no_other(open_manager, tmp_path, until):
    manager = open_manager(workers=1)
    handle = manager.submit(Recovers(str(tmp_path)), "r")
    until(lambda: handle.info().phase is Phase.WAITING)
    manager.stop()
    before = lines(str(tmp_path))

    again = open_manager(workers=1, procedures=[Recovers])
    again.signal("r", "payload")
    until(lambda: len(lines(str(tmp_path))) > len(before) + 4)
    Path(tmp_path, "gate.open").touch()
    again.get("r").wait(30)

    after = lines(str(tmp_path))[len(before) :]
    assert before == ["step 1 False False", "step 2 False False"]
    assert after[:3] == ["before 3 EXECUTE", "step 3 True False", "after 3"]
    assert not any(line.startswith(("before", "after")) for line in after[3:])


@dataclass
class Undone(Procedure):
    folder: str

    def execute(self, ctx):
        raise ValueError("no")

    def rollback(self, ctx):
        write(self.folder, "undo", ctx.recovered)
        if not is_open(self.folder, "gate"):
            raise ConnectionError("not yet")

    def before_recover(self, ctx):
        write(self.folder, "before", ctx.mode.name)

    rollback_retry = RetryPolicy(max_attempts=100_000, base=0.01, cap=0.01, retry_on=(Exception, RetryLater))


def test_recovery_hooks_run_before_an_undo_that_is_taken_up_again(open_manager, tmp_path, until):
    manager = open_manager(workers=1)
    manager.submit(Undone(str(tmp_path)), "u")
    until(lambda: "undo False" in lines(str(tmp_path)))
    manager.stop()
    count = len(lines(str(tmp_path)))

    Path(tmp_path, "gate.open").touch()
    again = open_manager(workers=1, procedures=[Undone])
    assert again.get("u").exception(30).state == "ROLLEDBACK"

    assert lines(str(tmp_path))[count:] == ["before ROLLBACK", "undo True"]


# ---------------------------------------------------------------- clean-up at the end
@dataclass
class Cleans(Procedure):
    folder: str

    def execute(self, ctx):
        write(self.folder, "work")
        return Status.done("ok")

    def on_completed(self, ctx):
        write(self.folder, "clean")
        while lines(self.folder).count("clean") == 1:
            time.sleep(0.005)


def test_a_clean_up_whose_worker_dies_is_run_again_with_its_step(open_manager, tmp_path, until):
    manager = open_manager(workers=1)
    handle = manager.submit(Cleans(str(tmp_path)), "c")
    until(lambda: "clean" in lines(str(tmp_path)))

    kill(
        until(lambda: next((worker.pid for worker in manager.workers() if worker.procedure == "c"), 0)), signal.SIGKILL
    )

    assert handle.result(30) == "ok"
    assert lines(str(tmp_path)) == ["work", "clean", "work", "clean"]
    assert handle.info().state is ProcedureState.SUCCESS


# ---------------------------------------------------------------- best effort
class Books(Saga):
    folder: str
    rollback_mode = "best-effort"
    rollback_retry = ONCE

    @step
    def reserve(self, ctx):
        write(self.folder, "reserve")

    @reserve.undo
    def release(self, ctx):
        write(self.folder, "release")

    @step
    def charge(self, ctx):
        write(self.folder, "charge")

    @charge.undo
    def refund(self, ctx):
        raise OSError("the bank is closed")

    @step
    def ship(self, ctx):
        raise ValueError("no address")

    def lock_keys(self):
        return [LockKey.write("orders/1")]


def test_a_best_effort_rollback_skips_what_cannot_be_undone_and_lists_it(open_manager, tmp_path):
    manager = open_manager(workers=1)

    failure = manager.submit(Books(str(tmp_path)), "b").exception(30)
    info = manager.info("b")

    assert lines(str(tmp_path)) == ["reserve", "charge", "release"]
    assert isinstance(failure, ProcedureFailed)
    assert failure.state == info.state == "ROLLEDBACK"
    assert failure.leftovers == ("b charge (OSError: the bank is closed)",)
    assert "left behind: b charge" in str(failure)
    assert [(left.procedure, left.unit) for left in info.leftovers] == [("b", "charge")]
    assert [row.label for row in manager.steps("b") if row.outcome == "skipped"] == ["charge"]
    assert (manager.poisons(), manager.locks()) == ([], [])


# ---------------------------------------------------------------- states
class Road(Enum):
    START = 1
    BRIDGE = 2
    END = 3


@dataclass
class Crosses(StateMachineProcedure):
    """Burns the bridge behind it: from there on it only goes forward."""

    folder: str
    seen: list[str] = field(default_factory=list)
    initial_state = Road.START
    retry = RetryPolicy(max_attempts=1, base=0.01, cap=0.01)

    def execute_from_state(self, ctx, state):
        self.seen.append(state.name)
        if state is Road.START:
            return Road.BRIDGE
        if state is Road.BRIDGE:
            return Road.END
        if not is_open(self.folder, "gate"):
            raise ValueError("the far bank is closed")
        return Status.done(self.seen)

    def rollback_state(self, ctx, state):
        write(self.folder, "undo", state.name)

    def is_no_return(self, state):
        return state is Road.BRIDGE


def test_a_state_that_is_the_point_of_no_return_makes_failures_retry_forward_and_show_as_stuck(
    open_manager, tmp_path, until
):
    manager = open_manager(workers=1)
    handle = manager.submit(Crosses(str(tmp_path)), "x")

    until(lambda: handle.info().phase is Phase.STUCK)
    assert "the far bank is closed" in handle.info().reason
    assert manager.abort("x")
    manager.stop()
    again = open_manager(workers=1, procedures=[Crosses])
    until(lambda: again.info("x").phase is Phase.STUCK)
    Path(tmp_path, "gate.open").touch()

    assert again.get("x").result(30) == ["START", "BRIDGE", "END"]
    assert lines(str(tmp_path)) == []


@dataclass
class Visits(StateMachineProcedure):
    """START, BRIDGE, START, BRIDGE, END; END fails. BRIDGE cannot be undone."""

    folder: str
    round: int = 0
    initial_state = Road.START

    def execute_from_state(self, ctx, state):
        if state is Road.START:
            self.round += 1
            return Road.BRIDGE
        if state is Road.BRIDGE:
            return Road.START if self.round < 2 else Road.END
        raise ValueError("the end")

    def rollback_state(self, ctx, state):
        write(self.folder, "undo", state.name)

    def is_rollback_supported(self, state):
        return state is not Road.BRIDGE


def test_each_visit_of_a_state_is_undone_and_states_without_rollback_are_left_out(open_manager, tmp_path):
    manager = open_manager(workers=1)

    assert manager.submit(Visits(str(tmp_path)), "v").exception(30).state == "ROLLEDBACK"

    assert lines(str(tmp_path)) == ["undo END", "undo START", "undo START"]


# ---------------------------------------------------------------- the environment everywhere
def clients() -> dict[str, str]:
    return {"client": "of this worker"}


@dataclass
class UsesEnv(Procedure):
    folder: str

    def execute(self, ctx):
        write(self.folder, "execute", ctx.env["client"])
        return Status.executing(after=30)

    def abort(self, ctx):
        write(self.folder, "abort", ctx.env["client"])
        return True

    def rollback(self, ctx):
        write(self.folder, "rollback", ctx.env["client"])


def test_execute_rollback_and_abort_get_the_environment(open_manager, tmp_path, until):
    manager = open_manager(workers=1, environment=clients)
    handle = manager.submit(UsesEnv(str(tmp_path)), "e")
    until(lambda: handle.info().phase is Phase.SLEEPING)

    assert manager.abort("e")

    assert handle.exception(30).state == "ROLLEDBACK"
    assert lines(str(tmp_path)) == [f"{what} of this worker" for what in ("execute", "abort", "rollback")]
