"""Waiting for any or each child, leaving children behind, and quotas, on real processes."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from actorproc import Config, Procedure, ProcedureFailed, Status


@dataclass
class Gate(Procedure):
    """Ends when its file appears."""

    directory: str
    name: str

    def execute(self, ctx):
        if not Path(self.directory, self.name).exists():
            return Status.executing(after=0.01)
        return Status.done(self.name)


@dataclass
class Collect(Procedure):
    """Waits for its gates one at a time and opens the next with each that came; says what it saw and when."""

    directory: str
    names: list[str]
    seen: list[list[str]] = field(default_factory=list)

    def execute(self, ctx):
        if ctx.step == 1:
            Path(self.directory, self.names[0]).touch()
            return Status.suspended([(f"{ctx.id}.{n}", Gate(self.directory, n)) for n in self.names], wait="each")
        self.seen.append([outcome.output for outcome in ctx.children.values()])
        if len(self.seen) == len(self.names):
            return Status.done(self.seen)
        Path(self.directory, self.names[len(self.seen)]).touch()
        return Status.suspended([], wait="each")


@dataclass
class First(Procedure):
    """Goes on with the first gate and leaves, or takes along, the other."""

    directory: str
    on_parent_end: str

    def execute(self, ctx):
        if ctx.step == 1:
            gates = [(f"{ctx.id}.{name}", Gate(self.directory, name)) for name in ("open", "shut")]
            return Status.suspended(gates, wait="any", on_parent_end=self.on_parent_end)
        return Status.done([outcome.output for outcome in ctx.children.values()])


@dataclass
class Many(Procedure):
    children: int

    def execute(self, ctx):
        if ctx.step == 1:
            return Status.suspended(Many(0) for _ in range(self.children))
        return Status.done(len(ctx.children))


def test_each_child_resumes_the_parent_and_is_seen_from_then_on(open_manager, tmp_path):
    manager = open_manager(workers=2)

    seen = manager.run(Collect(str(tmp_path), ["c", "a", "b"]))

    assert [sorted(names) for names in seen] == [["c"], ["a", "c"], ["a", "b", "c"]]


def test_what_a_parent_sees_is_the_same_after_a_restart(open_manager, tmp_path):
    manager = open_manager(workers=2)
    manager.submit(Collect(str(tmp_path), ["a", "b"]), id="collect").result(timeout=30)
    manager.stop()

    manager = open_manager(workers=2)

    assert manager.get("collect").result(timeout=30) == [["a"], ["a", "b"]]


def test_any_goes_on_with_the_first_and_the_rest_is_aborted_with_the_parents_end(open_manager, tmp_path):
    manager = open_manager(workers=2)
    Path(tmp_path, "open").touch()

    assert manager.submit(First(str(tmp_path), "abort"), id="first").result(timeout=30) == ["open"]

    assert manager.info("first.open").state == "SUCCESS"
    assert manager.get("first.shut").exception(timeout=30) is not None


def test_a_child_that_is_left_goes_on_after_its_parent_and_survives_a_restart(open_manager, tmp_path):
    manager = open_manager(workers=2)
    Path(tmp_path, "open").touch()
    assert manager.submit(First(str(tmp_path), "leave"), id="first").result(timeout=30) == ["open"]
    assert manager.info("first.shut").state not in ("SUCCESS", "FAILED", "ROLLEDBACK")
    manager.stop()

    manager = open_manager(workers=2, procedures=[First, Gate])
    Path(tmp_path, "shut").touch()

    assert manager.get("first.shut").result(timeout=30) == "shut"


def test_a_quota_fails_the_step_that_asks_for_too_many_children(open_manager):
    manager = open_manager(workers=1, config=Config(max_children=10))

    assert manager.run(Many(10)) == 10
    with pytest.raises(ProcedureFailed, match="more than the 10"):
        manager.run(Many(11))
