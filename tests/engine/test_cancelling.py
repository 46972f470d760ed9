"""Running steps whose undo is decided, in real workers: they hear of it, are given time, are killed, and undone once."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest

from actorproc import Config, Limits, Procedure, ProcedureFailed, ProcedureManager, Saga, Status, StoreReader, step

BOUND = 30.0
ENDLESS = 120.0
"""Seconds of a step that is never stopped: longer than any test may take."""


def _note(folder: str, what: str) -> None:
    with Path(folder, "notes").open("a") as file:
        file.write(what + "\n")


def notes(folder: Path) -> list[str]:
    try:
        return (folder / "notes").read_text().split("\n")[:-1]
    except FileNotFoundError:
        return []


@dataclass
class Listens(Procedure):
    """Runs until it hears of an abort."""

    folder: str

    def execute(self, ctx):
        _note(self.folder, f"{ctx.id} begins")
        deadline = time.monotonic() + ENDLESS
        while time.monotonic() < deadline:
            if ctx.aborting:
                _note(self.folder, f"{ctx.id} heard")
                return Status.executing()
            time.sleep(0.005)
        return Status.done("never heard")

    def rollback(self, ctx):
        _note(self.folder, f"{ctx.id} undone")


class BesideOthers(Listens):
    """The same on one of several threads of a worker."""

    limits: ClassVar[Limits] = Limits(threads=8)


@dataclass
class Deaf(Procedure):
    """Runs whatever it is told."""

    folder: str
    limits: ClassVar[Limits] = Limits(grace=0.2)

    def execute(self, ctx):
        _note(self.folder, f"{ctx.id} begins")
        deadline = time.monotonic() + ENDLESS
        while time.monotonic() < deadline:
            time.sleep(0.01)
        return Status.done()

    def rollback(self, ctx):
        _note(self.folder, f"{ctx.id} undone")


class Stubborn(Deaf):
    """Runs on when it is asked to end by a signal, too."""

    def execute(self, ctx):
        _note(self.folder, f"{ctx.id} begins")
        deadline = time.monotonic() + ENDLESS
        while time.monotonic() < deadline:
            try:
                time.sleep(0.01)
            except BaseException:  # noqa: BLE001 - what the signal raises, swallowed on purpose
                continue
        return Status.done()


class Hasty(Deaf):
    limits: ClassVar[Limits] = Limits(grace=0.2, abort_grace=0.3)


class Saves(Deaf):
    """Uses the time it is given before the kill for an answer."""

    limits: ClassVar[Limits] = Limits(grace=20.0)

    def execute(self, ctx):
        _note(self.folder, f"{ctx.id} begins")
        try:
            time.sleep(ENDLESS)
        except BaseException:  # noqa: BLE001 - what the signal raises
            _note(self.folder, f"{ctx.id} saved")
        return Status.executing()

    def rollback(self, ctx):
        _note(self.folder, f"{ctx.id} undone from step {ctx.step}")


KINDS = {kind.__name__: kind for kind in (Listens, BesideOthers, Deaf, Stubborn, Hasty, Saves)}


@dataclass
class Parent(Procedure):
    """Waits for its children, or goes on with the first of them."""

    folder: str
    kind: str
    names: tuple[str, ...] = ("one", "two")
    depth: int = 1
    wait: str = "all"

    def execute(self, ctx):
        if ctx.step > 1:
            return Status.done([outcome.output for outcome in ctx.children.values()])
        if self.depth > 1:
            below = Parent(self.folder, self.kind, self.names, self.depth - 1, self.wait)
            return Status.suspended([(f"{ctx.id}.mid", below)])
        children = [(f"{ctx.id}.{name}", KINDS[self.kind](self.folder)) for name in self.names]
        return Status.suspended([*children, (f"{ctx.id}.fate", Fate(self.folder))], wait=self.wait)

    def rollback(self, ctx):
        _note(self.folder, f"{ctx.id} undone")


@dataclass
class Fate(Procedure):
    """Ends, well or not, when its file says so."""

    folder: str

    def execute(self, ctx):
        _note(self.folder, f"{ctx.id} begins")
        deadline = time.monotonic() + ENDLESS
        while time.monotonic() < deadline and not ctx.aborting:
            if Path(self.folder, "fails").exists():
                raise RuntimeError("as it was to be")
            if Path(self.folder, "wins").exists():
                return Status.done("won")
            time.sleep(0.005)
        return Status.executing()

    def rollback(self, ctx):
        _note(self.folder, f"{ctx.id} undone")


def _running(manager: ProcedureManager, folder: Path, until: Callable[..., object], **how: object) -> str:
    """A tree whose three leaves run."""
    manager.submit(Parent(str(folder), **how), id="root")  # type: ignore[arg-type]
    until(lambda: sum(line.endswith("begins") for line in notes(folder)) == 3)
    return "root.mid" if how.get("depth") == 2 else "root"


CAUSES: dict[str, Callable[[ProcedureManager, Path, str], object]] = {
    "abort of the root": lambda manager, _, __: manager.abort("root"),
    "abort of the parent": lambda manager, _, parent: manager.abort(parent),
    "rollback": lambda manager, _, __: manager.rollback("root"),
    "failure of a sibling": lambda _, folder, __: (folder / "fails").touch(),
    "abort of a sibling": lambda manager, _, parent: manager.abort(f"{parent}.fate"),
}


@pytest.mark.parametrize("kind", ["Listens", "BesideOthers"])
@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("cause", CAUSES)
def test_whatever_cancels_a_tree_is_heard_by_all_its_running_steps(
    open_manager, tmp_path, until, cause: str, depth: int, kind: str
) -> None:
    manager = open_manager(workers=3)
    parent = _running(manager, tmp_path, until, kind=kind, depth=depth)

    CAUSES[cause](manager, tmp_path, parent)

    assert manager.get("root").wait(BOUND)
    said = notes(tmp_path)
    for name in (f"{parent}.one", f"{parent}.two"):
        assert said.count(f"{name} heard") == 1
        assert said.count(f"{name} undone") == 1
    assert manager.info("root").state == "ROLLEDBACK"


@pytest.mark.parametrize("kind", ["Deaf", "Stubborn"])
@pytest.mark.parametrize("target", ["root", "root.mid"])
@pytest.mark.parametrize("is_late", [False, True])
def test_force_kills_what_runs_in_a_tree_also_when_its_undo_is_decided_already(
    open_manager, tmp_path, until, kind: str, target: str, is_late: bool
) -> None:
    manager = open_manager(workers=3)
    parent = _running(manager, tmp_path, until, kind=kind, depth=2)
    if is_late:
        assert manager.rollback("root")
        until(lambda: manager.info(f"{parent}.one").cancelled_at is not None)

    assert manager.abort(target, force=True)

    assert manager.get("root").wait(BOUND)
    said = notes(tmp_path)
    for name in (f"{parent}.one", f"{parent}.two", parent, "root"):
        assert said.count(f"{name} undone") == 1
        assert said.count(f"{name} begins") <= 1
    for name in ("one", "two"):
        info = manager.info(f"{parent}.{name}")
        assert (info.state, info.errors, info.crashes) == ("ROLLEDBACK", 0, 0)


def test_force_on_a_member_kills_its_step_and_only_tells_the_others(open_manager, tmp_path, until) -> None:
    manager = open_manager(workers=3)
    _running(manager, tmp_path, until, kind="Listens")

    assert manager.abort("root.one", force=True)

    assert manager.get("root").wait(BOUND)
    said = notes(tmp_path)
    assert "root.two heard" in said
    assert said.count("root.one undone") == said.count("root.two undone") == 1


@pytest.mark.parametrize("of_config", [False, True])
def test_a_step_that_does_not_listen_is_killed_when_its_time_is_over(open_manager, tmp_path, until, of_config: bool):
    manager = open_manager(workers=3, config=Config(abort_grace=0.3) if of_config else Config())
    _running(manager, tmp_path, until, kind="Deaf" if of_config else "Hasty")

    assert manager.abort("root")

    assert manager.get("root").wait(BOUND)
    assert notes(tmp_path).count("root.one undone") == notes(tmp_path).count("root.two undone") == 1


def test_an_answer_that_comes_before_the_kill_counts(open_manager, tmp_path, until) -> None:
    manager = open_manager(workers=3)
    _running(manager, tmp_path, until, kind="Saves")

    assert manager.abort("root", force=True)

    assert manager.get("root").wait(BOUND)
    said = notes(tmp_path)
    assert "root.one saved" in said
    assert len(manager.steps("root.one")) == len(manager.steps("root.fate")) + ("root.fate saved" in said)
    assert [line for line in said if line.startswith("root.one undone")] == ["root.one undone from step 3"]


@pytest.mark.parametrize("wait", ["any", "each"])
def test_a_parent_that_has_its_winner_ends_at_once_and_its_losers_are_undone_behind_it(
    open_manager, tmp_path, until, wait: str
) -> None:
    manager = open_manager(workers=3)
    _running(manager, tmp_path, until, kind="Deaf", wait=wait)

    (tmp_path / "wins").touch()

    assert manager.get("root").result(BOUND) == ["won"]
    loser = manager.info("root.one")
    assert (loser.phase, "root has ended" in loser.error.message) == ("rolling-back", True)
    assert manager.abort("root.one", force=True)
    assert manager.abort("root.two", force=True)
    for name in ("root.one", "root.two"):
        assert isinstance(manager.get(name).exception(BOUND), ProcedureFailed)
        assert notes(tmp_path).count(f"{name} undone") == 1
    assert manager.info("root").state == "SUCCESS"


class Order(Saga):
    """A saga whose second step is the one that is killed."""

    folder: str

    @step
    def pay(self, ctx):
        _note(self.folder, "paid")

    @pay.undo
    def refund(self, ctx):
        _note(self.folder, "refunded")

    @step
    def ship(self, ctx):
        _note(self.folder, "shipping")
        time.sleep(ENDLESS)

    @ship.undo
    def recall(self, ctx):
        _note(self.folder, "recalled")


@pytest.mark.parametrize("way", ["abort", "rollback first", "config"])
def test_the_step_that_is_killed_has_its_own_undo_run_first(open_manager, tmp_path, until, way: str) -> None:
    manager = open_manager(workers=1, config=Config(abort_grace=0.1) if way == "config" else Config())
    handle = manager.submit(Order(str(tmp_path)), id="order")
    until(lambda: "shipping" in notes(tmp_path))

    if way == "rollback first":
        assert manager.rollback("order")
    assert manager.abort("order", force=way != "config")

    assert handle.wait(BOUND)
    assert notes(tmp_path) == ["paid", "shipping", "recalled", "refunded"]


def test_why_names_the_step_that_still_runs_and_how_it_is_stopped(open_manager, tmp_path, until) -> None:
    manager = open_manager(workers=3)
    _running(manager, tmp_path, until, kind="Deaf")
    manager.rollback("root")
    until(lambda: manager.info("root.one").cancelled_at is not None)
    until(lambda: manager.info("root.fate").phase == "rolling-back" and len(manager.workers()) >= 2)

    cause = manager.why("root")

    assert "still run" in cause.says
    running = [found for found in cause.roots() if found.procedure in {"root.one", "root.two"}]
    assert running
    for found in running:
        assert "its step 1 still runs on worker" in found.says
        assert "undo runs" not in found.says
        assert f"actorproc abort {found.procedure} --force" in found.repairs
    assert "step 1 still runs" in (manager.info("root.one").reason or "")
    with StoreReader(tmp_path / "state") as reader:
        assert reader.info("root.one").cancelled_at is not None
    manager.abort("root", force=True)
    assert manager.get("root").wait(BOUND)


def test_steps_that_ran_beside_one_that_was_killed_start_again_and_end_well(open_manager, tmp_path, until) -> None:
    manager = open_manager(workers=1)
    manager.submit(Threaded(str(tmp_path), ENDLESS), id="endless")
    neighbour = manager.submit(Threaded(str(tmp_path), 0.0), id="neighbour")
    until(lambda: {"endless begins 1", "neighbour begins 1"} <= set(notes(tmp_path)))

    assert manager.abort("endless", force=True)
    until(lambda: "neighbour begins 2" in notes(tmp_path))
    (tmp_path / "go").touch()

    assert neighbour.result(BOUND) == 2
    info = manager.info("neighbour")
    assert (info.errors, info.crashes) == (0, 0)
    assert isinstance(manager.get("endless").exception(BOUND), ProcedureFailed)
    assert notes(tmp_path).count("endless undone") == 1


@dataclass
class Threaded(Procedure):
    folder: str
    seconds: float
    limits: ClassVar[Limits] = Limits(threads=4, grace=0.2)

    def execute(self, ctx):
        _note(self.folder, f"{ctx.id} begins {ctx.attempt}")
        deadline = time.monotonic() + ENDLESS
        while time.monotonic() < deadline and (self.seconds or not Path(self.folder, "go").exists()):
            time.sleep(0.005)
        return Status.done(ctx.attempt)

    def rollback(self, ctx):
        _note(self.folder, f"{ctx.id} undone")
