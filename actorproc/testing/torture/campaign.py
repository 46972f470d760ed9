"""Episode after episode until the time is up; one that fails is kept with the command that plays it again."""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from actorproc.errors import StoreDamaged
from actorproc.store.base import RecordStore
from actorproc.store.home import home_of
from actorproc.testing.histories.evidence import StoreDump, Violation
from actorproc.testing.journal import Journal
from actorproc.testing.torture.cluster.oracle import judge_cluster, merged
from actorproc.testing.torture.cluster.plan import TESTIMONY, draw_cluster_plan
from actorproc.testing.torture.coverage import Tally, count
from actorproc.testing.torture.episode_runner import EpisodeRunner
from actorproc.testing.torture.oracle import judge
from actorproc.testing.torture.orders.tagging import read_lists
from actorproc.testing.torture.plan import Plan, draw_plan
from actorproc.testing.torture.record import EpisodeJournal
from actorproc.testing.torture.user_module import own_opinion

if TYPE_CHECKING:
    from actorproc.testing.torture.cluster.runner import ClusterRunner

__all__ = ["SEEDS", "Episode", "campaign", "judge_folder", "play", "play_and_keep", "replay_command"]

SEEDS = 1_000_000
"""Episodes of one series."""
logger = logging.getLogger(__name__)


class Episode(msgspec.Struct):
    """One that was played and judged."""

    plan: Plan
    violations: list[Violation]
    tally: Tally
    folder: Path | None = None
    """Folder in which its journal and its store are kept; None: they are gone."""


def play(plan: Plan, folder: Path) -> Episode:
    """Play one episode in a new folder and judge it. The folder stays."""
    folder.mkdir(parents=True)
    _runner_of(plan, folder).run()
    return judge_folder(folder)


def _runner_of(plan: Plan, folder: Path) -> EpisodeRunner | ClusterRunner:
    if plan.cluster is None:
        return EpisodeRunner(plan, folder)
    from actorproc.testing.torture.cluster.runner import ClusterRunner  # noqa: PLC0415 - it needs the extra postgres

    return ClusterRunner(plan, folder)


def play_and_keep(plan: Plan, keep: Path) -> Episode:
    """Play one episode in a temporary folder, and keep it only if it has violations: there, if `keep` is no place."""
    place = Path(tempfile.mkdtemp(prefix="actorproc-torture-"))
    is_kept_here = False
    try:
        episode = play(plan, place / "episode")
        try:
            episode.folder = _kept(episode, keep) if episode.violations else None
        except OSError as error:
            is_kept_here = True
            logger.error("nothing can be kept in %s (%s)", keep, error)  # noqa: TRY400 - a place, not a bug
    finally:
        if not is_kept_here:
            shutil.rmtree(place, ignore_errors=True)
    return episode


def judge_folder(folder: Path) -> Episode:
    """Judge what an episode left: the same folder gives the same violations, for ever."""
    plan = msgspec.json.decode((folder / "plan.json").read_bytes(), type=Plan)
    dump, violations = _dump_of(folder / "state")
    lines = EpisodeJournal(folder / "journal").lines()
    world = frozenset(f"{path.parent.name}/{path.name}" for path in (folder / "world").glob("*/*"))
    if plan.cluster is None:
        violations += judge(plan, lines, dump, world)
    else:
        lines = merged(lines, Journal(folder / TESTIMONY).lines())
        violations += judge_cluster(plan, lines, dump, world)
    if plan.module:
        violations += [Violation(0, text) for text in own_opinion(plan.module, folder)]
    tally = count(lines, procedures=len(dump.heads), failed=bool(violations))
    return Episode(plan, violations, tally, folder)


def _dump_of(store: Path) -> tuple[StoreDump, list[Violation]]:
    """Contents of the store, as far as readable: rows that contradict each other are a violation, not an error."""
    if not store.exists():  # it could not be kept, which the journal tells
        return StoreDump({}, {}, [], []), []
    try:
        with home_of(store).reader() as reader:
            return _read(reader), []
    except StoreDamaged as error:
        found = [Violation(4, str(error))]
    try:
        with home_of(store).reader(even_damaged=True) as reader:
            return _read(reader), found
    except StoreDamaged as error:
        return StoreDump({}, {}, [], []), [*found, Violation(4, str(error))]


def _read(store: RecordStore) -> StoreDump:
    dump = StoreDump.of(store)
    read_lists(store, dump)
    dump.replies = {id: store.replies(id) for id in dump.heads}
    return dump


def campaign(
    seed: int,
    *,
    seconds: float | None = None,
    episodes: int | None = None,
    jobs: int = 1,
    keep: Path | None = None,
    module: str = "",
    bug: str = "",
    is_cluster: bool = False,
    told: Callable[[Episode], None] | None = None,
) -> Tally:
    """Play episodes number 0, 1, 2 … of a seed, `jobs` at a time, until the time is up or the number is reached; the
    tally of all. With `is_cluster` each has several processes on a database.

    Those with violations stay in `keep` (default: ``torture-failures`` below the working directory). `told` hears of
    each when it is judged. An interrupt (Ctrl-C) lets those that run come to their end, and begins no other.
    """

    def draw(number: int) -> Plan:
        own = seed * SEEDS + number
        return draw_cluster_plan(own, bug=bug) if is_cluster else draw_plan(own, module=module, bug=bug)

    run = _EpisodeRun(draw, seconds, episodes, keep or Path("torture-failures"), told)
    with ThreadPoolExecutor(jobs) as threads:
        working = [threads.submit(run.work) for _ in range(jobs)]
        try:
            for done in working:
                done.result()
        except KeyboardInterrupt:
            run.deadline = time.monotonic()
    return run.tally


class _EpisodeRun:
    def __init__(
        self,
        draw: Callable[[int], Plan],
        seconds: float | None,
        episodes: int | None,
        keep: Path,
        told: Callable[[Episode], None] | None,
    ) -> None:
        self.draw = draw
        self.deadline = None if seconds is None else time.monotonic() + seconds
        self.episodes = episodes
        self.keep = keep
        self.told = told
        self.tally = Tally()
        self.lock = threading.Lock()
        self.next = 0

    def work(self) -> None:
        """Take one number after the other."""
        while (number := self._take()) is not None:
            plan = self.draw(number)
            try:
                episode = play_and_keep(plan, self.keep)
            except Exception:  # the others go on, and what they found is told
                logger.exception("episode %s could not be played or judged", plan.seed)
                with self.lock:
                    self.tally.broken += 1
                continue
            with self.lock:
                self.tally.add(episode.tally)
                if self.told is not None:
                    self.told(episode)

    def _take(self) -> int | None:
        with self.lock:
            if self.deadline is not None and time.monotonic() >= self.deadline:
                return None
            if self.episodes is not None and self.next >= self.episodes:
                return None
            self.next += 1
            return self.next - 1


def _kept(episode: Episode, keep: Path) -> Path:
    """Move a failed episode where it stays, with what was found and how to see it again."""
    assert episode.folder is not None
    keep.mkdir(parents=True, exist_ok=True)
    place = keep / f"episode-{episode.plan.seed}"
    while place.exists():
        place = place.with_name(place.name + "x")
    shutil.move(os.fspath(episode.folder), place)
    text = [f"invariant {violation.number}: {violation.text}" for violation in episode.violations]
    (place / "violations.txt").write_text("\n".join([*text, "", replay_command(place), ""]), encoding="utf-8")
    return place


def replay_command(folder: Path) -> str:
    """The one command that judges a kept episode again and plays it once more."""
    return f"actorproc torture --replay {folder}"
