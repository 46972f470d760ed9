"""Order, limits and shares with real worker processes."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest

import actorproc
from actorproc import Config, ManagerBusy, Procedure, RetryLater, Status
from actorproc.model.ids import WorkerId
from actorproc.workers.pool.local_pool import LocalPool

OpenManager = Callable[..., actorproc.ProcedureManager]
Until = Callable[..., Any]


@dataclass
class Gated(Procedure):
    """Notes that it runs, and ends when the file `gate` is there."""

    folder: str
    name: str
    gate: str = "open"

    def execute(self, ctx: Any) -> Status:
        with (Path(self.folder) / "log").open("a") as log:
            log.write(f"+{self.name}\n")
        (Path(self.folder) / f"in.{self.name}").touch()
        while not (Path(self.folder) / self.gate).exists():
            time.sleep(0.005)
        with (Path(self.folder) / "log").open("a") as log:
            log.write(f"-{self.name}\n")
        return Status.done(os.getpid())


@dataclass
class Mail(Gated):
    """Counts for the key smtp."""

    def limit_keys(self) -> list[str]:
        return ["smtp"]


@dataclass
class Chore(Gated):
    """Maintenance work."""

    work_class: ClassVar[str] = "maintenance"


@dataclass
class TwoStepMail(Procedure):
    """Sleeps between two steps, and keeps its slot over that."""

    folder: str
    name: str
    step: int = 0

    def limit_keys(self) -> list[str]:
        return ["smtp"]

    def execute(self, ctx: Any) -> Status:
        with (Path(self.folder) / "log").open("a") as log:
            log.write(f"{'-' if self.step else '+'}{self.name}\n")
        if self.step:
            return Status.done()
        self.step = 1
        return Status.sleep(0.02)


@dataclass
class Flaky(Procedure):
    """Asks for one retry."""

    def execute(self, ctx: Any) -> Status:
        if ctx.attempt == 1:
            raise RetryLater(after=0.01)
        return Status.done("done")


@dataclass
class Fan(Procedure):
    """Starts children of the class of work maintenance."""

    folder: str
    begun: bool = False

    def execute(self, ctx: Any) -> Status:
        if self.begun:
            return Status.done()
        self.begun = True
        return Status.suspended([Flaky() for _ in range(5)])


def _inside(folder: Path) -> set[str]:
    return {path.name.removeprefix("in.") for path in folder.glob("in.*")}


def _most_at_once(folder: Path) -> int:
    most = now = 0
    for line in (folder / "log").read_text().splitlines():
        now += 1 if line[0] == "+" else -1
        most = max(most, now)
    return most


def test_only_as_many_procedures_of_a_key_are_in_progress_as_the_limit_says(
    open_manager: OpenManager, tmp_path: Path
) -> None:
    manager = open_manager(workers=4, config=Config(concurrency={"smtp": 2}))
    handles = manager.submit_many([TwoStepMail(str(tmp_path), str(n)) for n in range(20)])
    for handle in handles:
        handle.result(30)

    assert _most_at_once(tmp_path) == 2


def test_limit_keys_can_be_given_with_a_submit_and_the_waiting_say_why(
    open_manager: OpenManager, until: Until, tmp_path: Path
) -> None:
    manager = open_manager(workers=3, config=Config(concurrency={"tenant/*": 1}))
    first = manager.submit(Gated(str(tmp_path), "a"), limit_keys=["tenant/a"])
    until(lambda: _inside(tmp_path) == {"a"})
    second = manager.submit(Gated(str(tmp_path), "a2"), limit_keys=["tenant/a"])
    manager.submit(Gated(str(tmp_path), "b"), limit_keys=["tenant/b"])
    until(lambda: _inside(tmp_path) == {"a", "b"})

    assert "tenant/a" in (second.info().reason or "")
    (tmp_path / "open").touch()
    assert first.result(30)
    assert second.result(30)


def test_a_rate_spreads_starts_and_a_restart_does_not_open_the_window_again(
    open_manager: OpenManager, until: Until, tmp_path: Path
) -> None:
    config = Config(rate={"smtp": (2, 3600.0)})
    (tmp_path / "open").touch()
    manager = open_manager(workers=2, config=config, procedures=[Mail])
    handles = manager.submit_many([Mail(str(tmp_path), str(n)) for n in range(4)])
    until(lambda: sum(handle.info().state == "SUCCESS" for handle in handles) == 2)
    manager.stop()

    manager = open_manager(workers=2, config=config, procedures=[Mail])
    waiting = [manager.get(handle.id) for handle in handles if manager.info(handle.id).state != "SUCCESS"]
    manager.run(Gated(str(tmp_path), "other"))  # other work goes on
    assert len(waiting) == 2
    assert all("rate of 'smtp'" in (handle.info().reason or "") for handle in waiting)
    manager.stop()

    manager = open_manager(workers=2, config=Config(rate={"smtp": (4, 3600.0)}), procedures=[Mail])
    for handle in waiting:
        assert manager.get(handle.id).result(30)


def test_beyond_its_limits_a_manager_says_that_it_is_busy_and_by_how_much(
    open_manager: OpenManager, until: Until, tmp_path: Path
) -> None:
    manager = open_manager(workers=2, config=Config(max_running=1, max_queued=1))
    manager.submit(Gated(str(tmp_path), "a"), id="a")
    until(lambda: _inside(tmp_path) == {"a"})
    second = manager.submit(Gated(str(tmp_path), "b"), id="b")
    with pytest.raises(ManagerBusy, match="2 submitted procedures are unfinished"):
        manager.submit(Gated(str(tmp_path), "c"))

    assert manager.submit(Gated(str(tmp_path), "a"), id="a").id == "a"
    assert "max_running" in (second.info().reason or "")
    (tmp_path / "open").touch()
    second.result(30)
    assert manager.run(Fan(str(tmp_path))) is None  # children and their retries are no roots


def test_when_all_workers_are_stuck_extra_ones_start_and_go_away_when_idle(
    open_manager: OpenManager, until: Until, tmp_path: Path
) -> None:
    config = Config(stuck_after=0.2, extra_worker_idle=0.3)
    manager = open_manager(workers=1, max_workers=2, config=config)
    stuck = manager.submit(Gated(str(tmp_path), "stuck"))
    until(lambda: _inside(tmp_path) == {"stuck"})
    assert manager.run(Flaky()) == "done"  # no other worker could have done it

    stuck_too = manager.submit(Gated(str(tmp_path), "too"))
    until(lambda: _inside(tmp_path) == {"stuck", "too"})
    waits = manager.submit(Flaky())
    (tmp_path / "open").touch()
    for handle in (stuck, stuck_too, waits):
        handle.result(30)
    until(lambda: len(manager.workers()) == 1)
    assert manager.run(Flaky()) == "done"


def test_a_worker_that_dies_in_its_step_while_it_is_retired_takes_no_slot_along(
    open_manager: OpenManager, until: Until, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A spare has taken its place before the supervisor has asked it to stop."""
    manager = open_manager(workers=2, config=Config(spares=1, extra_worker_idle=0.3))
    handles = manager.submit_many([Gated(str(tmp_path), f"long{n}") for n in range(2)])
    until(lambda: len(_inside(tmp_path)) == 2)
    until(lambda: any(spare.prepared for spare in manager._tree.pool._thread._spares))
    plain, killed = LocalPool.stop, []

    def stop(pool: LocalPool, worker: WorkerId) -> None:
        if not killed:
            killed.append(worker)
            os.kill(pool.facts()[worker].pid, signal.SIGKILL)
            until(lambda: worker not in pool.facts())
        plain(pool, worker)

    monkeypatch.setattr(LocalPool, "stop", stop)
    manager.resize(1)
    until(lambda: killed)
    (tmp_path / "open").touch()
    for handle in handles:
        handle.result(30)
    until(lambda: len(manager.workers()) == 1)
    manager.resize(2)
    until(lambda: len([worker for worker in manager.workers() if worker.state == "idle"]) == 2)
    assert manager.run(Flaky()) == "done"


def test_the_pool_is_resized_live_without_failing_or_repeating_a_step(
    open_manager: OpenManager, until: Until, tmp_path: Path
) -> None:
    manager = open_manager(workers=1)
    handles = manager.submit_many([Gated(str(tmp_path), f"long{n}", gate="late") for n in range(2)])
    until(lambda: len(_inside(tmp_path)) == 1)
    manager.resize(3)
    until(lambda: len(_inside(tmp_path)) == 2)
    (tmp_path / "open").touch()
    more = manager.submit_many([Gated(str(tmp_path), str(n)) for n in range(30)])
    manager.resize(1)
    (tmp_path / "late").touch()
    for handle in [*handles, *more]:
        handle.result(30)
    until(lambda: len(manager.workers()) == 1)

    begun = [line for line in (tmp_path / "log").read_text().splitlines() if line[0] == "+"]
    assert len(begun) == 32
    assert manager.run(Flaky()) == "done"
    with pytest.raises(ValueError, match="at least one"):
        manager.resize(0)


def test_a_class_of_long_work_leaves_the_reserved_worker_to_the_others(
    open_manager: OpenManager, until: Until, tmp_path: Path
) -> None:
    manager = open_manager(workers=2, max_workers=2, config=Config(reserved_workers={"default": 1}))
    chores = manager.submit_many([Chore(str(tmp_path), str(n)) for n in range(4)])
    until(lambda: len(_inside(tmp_path)) == 1)

    for _ in range(5):
        assert manager.run(Flaky()) == "done"
    assert len(_inside(tmp_path)) == 1
    (tmp_path / "open").touch()
    for handle in chores:
        handle.result(30)


def test_a_host_that_is_stopped_with_slots_taken_finds_them_taken(
    open_manager: OpenManager, until: Until, tmp_path: Path
) -> None:
    config = Config(concurrency={"smtp": 1})
    manager = open_manager(workers=2, config=config, procedures=[Mail])
    handles = manager.submit_many([Mail(str(tmp_path), str(n)) for n in range(3)])
    until(lambda: len(_inside(tmp_path)) == 1)
    manager.stop(drain=False)  # kills the step: its procedure still holds the slot

    (tmp_path / "log").unlink()
    manager = open_manager(workers=2, config=config, procedures=[Mail])
    threading.Timer(0.1, (tmp_path / "open").touch).start()
    for handle in handles:
        manager.get(handle.id).result(30)
    assert _most_at_once(tmp_path) == 1


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_running": 0},
        {"max_queued": 0},
        {"concurrency": {"smtp": 0}},
        {"rate": {"smtp": 5}},
        {"rate": {"smtp": (5, 0)}},
        {"worker_shares": {"a": 1.5}},
        {"reserved_workers": {"a": -1}},
        {"priority_ageing": 0},
        {"stuck_after": 0},
        {"concurrency": 5},
        {"stop_timeout": "soon"},
        {"stop_timeout": None},
        {"spares": 1.5},
        {"max_depth": True},
        {"recycle_steps": "10"},
        {"control": "no"},
        {"signing_key": "a secret"},
        {"signing_key": b""},
        {"signing_key": ()},
        {"signing_key": (b"new", "old")},
    ],
    ids=str,
)
def test_a_wrong_setting_is_refused_with_its_name(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"Config.{next(iter(wrong))}"):
        Config(**wrong)
