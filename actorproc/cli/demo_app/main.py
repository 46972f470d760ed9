"""The demo as told on the terminal, from the first kill to the proof."""

from __future__ import annotations

import contextlib
import random
import shutil
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from actorproc.cli.demo_app.controller import (
    Controller,
    DemoError,
    DemoOptions,
    DemoRequest,
    Kill,
    PlannedKill,
    plan_kills,
)
from actorproc.cli.demo_app.display import Advance, Display
from actorproc.cli.demo_app.journal import DemoJournal
from actorproc.cli.demo_app.queries import common_functions, rich_files
from actorproc.cli.demo_app.source import python_files, region_of
from actorproc.cli.demo_app.tables import Layout
from actorproc.cli.demo_app.verify import DirectAnswer, check_nothing_left, check_table, direct_answer
from actorproc.errors import ActorprocError

if TYPE_CHECKING:
    from actorproc.cli.demo_app.cluster import DemoCluster

__all__ = ["Demo", "run_demo"]

TABLE = "symbols"
BROKEN_TABLE = "symbols_broken"
KILLS = {"manager": 3, "worker": 6}
LATER_KILLS = {"worker": 2}


def run_demo(options: DemoOptions, display: Display) -> int:
    """Run the whole demo. Exit code 0: consistent, 1: not, 2: it could not be run."""
    try:
        files = len(python_files(options.source))
    except OSError as error:
        display.say(f"cannot read {options.source}: {error.strerror}; name a directory of Python sources")
        return 2
    if not files:
        display.say(f"{options.source} has no Python files below it; name a directory of Python sources")
        return 2
    if options.directory is not None and options.directory.exists() and any(options.directory.iterdir()):
        display.say(f"{options.directory} is not empty; name a new directory, or leave --directory out")
        return 2
    directory = options.directory or Path(tempfile.mkdtemp(prefix="actorproc-demo-"))
    directory.mkdir(parents=True, exist_ok=True)
    try:
        demo = Demo(options, Layout(directory.resolve()), files, display)
        if not options.hosts:
            return demo.run()
        from actorproc.cli.demo_app.cluster import DemoCluster
        from actorproc.cli.demo_app.cluster_controller import ClusterController

        made = DemoCluster(options, directory.resolve(), display.say)
        with ended_in_order(), contextlib.closing(made) as cluster:
            cluster.start()
            demo.cluster, demo.make_controller = cluster, partial(ClusterController, cluster=cluster)
            return demo.run()
    except (DemoError, ActorprocError) as error:
        display.say(str(error))
        return 1
    finally:
        if options.directory is None:
            shutil.rmtree(directory, ignore_errors=True)


@contextlib.contextmanager
def ended_in_order() -> Iterator[None]:
    """SIGTERM and SIGHUP end the block as Ctrl-C does, so that what was started is ended and removed."""

    def end(number: int, _frame: Any) -> NoReturn:
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Demo:
    """One run of the demo over `files` files below `options.source`."""

    def __init__(self, options: DemoOptions, layout: Layout, files: int, display: Display) -> None:
        self._options = options
        self._layout = layout
        self._files = files
        self._display = display
        self._chance = random.Random(options.seed)
        self._problems: list[str] = []
        self.cluster: DemoCluster | None = None
        """The machines, where they are several."""
        self.make_controller: Callable[..., Controller] = Controller

    def run(self) -> int:
        """Both tables, the proof, the query; 0 when all is as promised."""
        began = time.monotonic()
        options = self._options
        hosts = f"{options.hosts} hosts of " if self.cluster else ""
        chaos = f"chaos seed {options.seed}" if options.chaos else "no chaos"
        self._display.say(
            f"{self._files} Python files below {options.source}, {options.regions} regions, "
            f"{hosts}{options.workers} workers, {chaos}"
        )
        self._create()
        answer = self._prove()
        self._query()
        self._fail_on_purpose(answer)
        self._display.head(f"{self._verdict()} ({time.monotonic() - began:.0f} s)")
        return 1 if self._problems else 0

    # ------------------------------------------------------------ the parts
    def _create(self) -> None:
        chaos = self._options.chaos
        self._display.head(f"1. Create table {TABLE!r}" + (" while processes are killed" if chaos else ""))
        kills = self.cluster.kills(self._chance) if self.cluster else plan_kills(self._chance, KILLS)
        request = DemoRequest(self._options.source, TABLE, *self._size)
        controller, outcome = self._work(request, kills if chaos else [])
        if outcome["state"] != "SUCCESS":
            self._blame(f"creating the table ended {outcome['state']}: {outcome['error']}")
        self._tell_replays(controller)

    def _prove(self) -> DirectAnswer:
        self._display.head("2. Compute the same answer directly, in one process, and compare")
        began = time.monotonic()
        with self._display.progress("checking", self._files) as advance:
            answer = direct_answer(self._options.source, lambda done: advance(done, ""))
        took = time.monotonic() - began
        self._display.say(f"computed directly in {took:.1f} s: {len(answer.rows)} files, {answer.symbols} symbols")
        problems = check_table(self._layout, TABLE, self._options.regions, answer)
        self._blame(*problems)
        if not problems:
            self._display.say("every row of every region, the manifest and the catalog agree with it")
        return answer

    def _query(self) -> None:
        self._display.head("3. Ask the table")
        functions = common_functions(self._layout, TABLE)
        self._display.say("most common functions: " + ", ".join(f"{name} {count}" for name, count in functions))
        files = rich_files(self._layout, TABLE)
        self._display.say("richest files: " + ", ".join(f"{name} {count}" for name, count in files))

    def _fail_on_purpose(self, answer: DirectAnswer) -> None:
        self._display.head(f"4. Create table {BROKEN_TABLE!r}, which fails half-way on purpose")
        kills = plan_kills(self._chance, LATER_KILLS) if self._options.chaos else []
        kills = [PlannedKill(kill.fraction / 2, kill.kind) for kill in kills]
        request = DemoRequest(
            self._options.source, BROKEN_TABLE, *self._size, failing_region=self._fullest_region(answer)
        )
        controller, outcome = self._work(request, kills)
        self._display.say(f"ended {outcome['state']}: {outcome['error']}")
        journal = controller.journal
        self._display.say(f"{journal.files_done} files had been indexed; {len(journal.undone)} steps undid them")
        if outcome["state"] != "ROLLEDBACK":
            self._blame(f"the failed table ended {outcome['state']} instead of ROLLEDBACK")
        problems = check_nothing_left(self._layout, BROKEN_TABLE)
        if outcome["locks_left"]:
            problems.append(f"{outcome['locks_left']} locks are still held")
        self._blame(*problems)
        if not problems:
            self._display.say("left behind: no region file, no manifest, no catalog row, no lock")
        harm = check_table(self._layout, TABLE, self._options.regions, answer)
        self._blame(*(f"table {TABLE!r} was harmed: {problem}" for problem in harm))
        if not harm:
            self._display.say(f"table {TABLE!r} is untouched")

    # ------------------------------------------------------------ what they share
    @property
    def _size(self) -> tuple[int, int]:
        return self._options.regions, self._options.workers

    def _fullest_region(self, answer: DirectAnswer) -> int:
        """A region in the middle of the work that has files, so that its failure comes half-way."""
        regions = sorted({region_of(path, self._options.regions) for path in answer.rows})
        return regions[len(regions) // 2]

    def _work(self, request: DemoRequest, kills: list[PlannedKill]) -> tuple[Controller, dict[str, Any]]:
        began = time.monotonic()
        with self._display.progress("indexing", self._files) as advance:
            controller = self.make_controller(
                self._layout,
                request,
                total_files=self._files,
                kills=kills,
                chance=self._chance,
                watch=lambda journal: self._show(journal, advance),
                say=self._display.say,
            )
            outcome = controller.run()
        self._display.say(f"done in {time.monotonic() - began:.1f} s")
        return controller, outcome

    def _show(self, journal: DemoJournal, advance: Advance) -> None:
        undone = f", {len(journal.undone)} undone" if journal.undone else ""
        advance(journal.files_done, f"{journal.regions_done}/{self._options.regions} regions{undone}")

    def _tell_replays(self, controller: Controller) -> None:
        journal, kills = controller.journal, controller.kills
        again = journal.begun_again
        if kills:
            counts = Counter(kill.kind for kill in kills)
            words = [f"{count} {kind}{'' if count == 1 else 's'}" for kind, count in counts.items() if kind not in _ONE]
            words += [f"{counts[kind]} times the {kind}" for kind in _ONE if counts[kind]]
            self._display.say(f"killed: {', '.join(words)}")
        for kill in kills:
            self._display.say(f"  {_after_kill(kill, journal)}")
        self._display.say(
            f"{journal.steps_run} steps ran; {len(journal.handed_out_again)} were handed out again (attempt > 1), "
            f"{len(again)} had begun before and were replayed"
        )
        explained = {entry.key for kill in kills for entry in kill.cut_off}
        if set(again) <= explained:
            self._display.say("no step was repeated but those a kill cut off")

    def _blame(self, *problems: str) -> None:
        for problem in problems:
            self._problems.append(problem)
            self._display.say(f"INCONSISTENT: {problem}")

    def _verdict(self) -> str:
        if self._problems:
            return f"Inconsistent: {len(self._problems)} problems, listed above"
        return "Consistent"


_ONE = ("manager", "leader")
"""Kinds of which there is one at a time."""


def _after_kill(kill: Kill, journal: DemoJournal) -> str:
    """Repair of one kill, from the journal's times."""
    whom = f"{kill.kind} {kill.pid}"
    told = [] if kill.cut_off else ["steps on other machines went on"]
    for entry in kill.cut_off:
        successor = journal.next_begin(entry.key, kill.at)
        if successor is None:
            told.append(f"{entry.what}: its result had been received, not repeated")
        else:
            told.append(f"{entry.what}: again after {1000 * (successor.at - kill.at):.0f} ms")
    return f"{whom}: " + "; ".join(told)
