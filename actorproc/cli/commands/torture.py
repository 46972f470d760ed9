"""``actorproc torture``: its arguments, and what it prints. The torture itself is loaded when it runs."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from actorproc.cli.output.output import complain
from actorproc.cli.select.common import FAILED, USAGE, whole_number
from actorproc.errors import UsageError

if TYPE_CHECKING:
    from actorproc.testing.torture.campaign import Episode
    from actorproc.testing.torture.coverage import Tally
    from actorproc.testing.torture.plan import Plan

__all__ = ["add_command"]


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "torture",
        help="run random procedures while processes are killed and disks fail, and judge what became of them",
        description=(
            "Plays seeded episodes: random procedures on a real manager in a child process with real workers and a "
            "real store, while workers and the manager are killed and stopped, commits fail, the disk is slow or full "
            "and the clock jumps. An external journal and kernel locks are the witnesses. Prints which fault struck "
            "the engine in which phase. Exit code 1 when a promise was broken; the episode is then kept with the "
            "command that plays it again."
        ),
    )
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--minutes", type=_minutes, default=None, help="how long (default: 1)")
    length.add_argument("--episodes", type=whole_number(1), default=None, help="how many episodes instead")
    parser.add_argument("--seed", type=int, default=1, help="which series of episodes (default: 1)")
    parser.add_argument("--jobs", type=whole_number(1), default=1, help="episodes at a time (default: 1)")
    parser.add_argument(
        "--keep",
        type=Path,
        default=Path("torture-failures"),
        help="where episodes with violations are kept (default: torture-failures)",
    )
    parser.add_argument(
        "--module",
        default="",
        metavar="NAME",
        help="torture your own: a module with torture(folder, seed), which yields procedures or (id, procedure) pairs, "
        "and perhaps check(folder), which yields texts about what is wrong at the end",
    )
    parser.add_argument(
        "--cluster",
        action="store_true",
        help="several managers and hosts on a private PostgreSQL: leaders, hosts, links and the database fail",
    )
    again = parser.add_mutually_exclusive_group()
    again.add_argument("--episode-seed", type=int, metavar="SEED", help="play this one episode")
    again.add_argument("--replay", type=Path, metavar="DIR", help="judge a kept episode again, then play it again")
    parser.set_defaults(run=_run)


def _minutes(text: str) -> float:
    try:
        minutes = float(text)
    except ValueError:
        minutes = 0.0
    if not minutes > 0:
        msg = f"{text!r} is no number of minutes above 0"
        raise argparse.ArgumentTypeError(msg)
    return minutes


def _run(options: argparse.Namespace) -> int:
    sys.path.insert(0, "")  # a user's module lies where the command is given, also that of a kept episode
    try:
        _try(options)
        return _tortured(options)
    except UsageError as error:
        complain(f"actorproc torture: {error}")
        return USAGE


def _try(options: argparse.Namespace) -> None:
    """Look before anything is played. Raises `UsageError`, and what the user's module raises."""
    from actorproc.testing.torture.campaign import SEEDS
    from actorproc.testing.torture.user_module import try_module

    if options.replay is not None and not Path(options.replay, "plan.json").is_file():
        msg = f"{options.replay} is no episode that was kept: there is no plan.json in it"
        raise UsageError(msg)
    if options.cluster and options.module:
        msg = "--cluster tortures procedures of its own: leave --module out"
        raise UsageError(msg)
    if options.cluster:
        _check_cluster()
    if options.module:
        try_module(options.module, options.seed * SEEDS if options.episode_seed is None else options.episode_seed)


def _check_cluster() -> None:
    """Look for what several processes on a database need. Raises `UsageError` with what to install."""
    from actorproc.cli.output.requirements import missing_parts

    if missing := missing_parts("--cluster"):
        raise UsageError(" ".join(map(str.strip, missing)))


def _tortured(options: argparse.Namespace) -> int:
    from actorproc.testing.torture.campaign import campaign, judge_folder
    from actorproc.testing.torture.cluster.plan import draw_cluster_plan
    from actorproc.testing.torture.plan import draw_plan

    if options.replay is not None:
        kept = judge_folder(options.replay)
        print(f"what is kept in {options.replay}:")
        _show(kept)
        if kept.plan.cluster is not None:
            _check_cluster()
        print("played again:")
        return max(int(bool(kept.violations)), _play(kept.plan, options.keep))
    if options.episode_seed is not None:
        number = options.episode_seed
        drawn = draw_cluster_plan(number) if options.cluster else draw_plan(number, module=options.module)
        return _play(drawn, options.keep)
    minutes = 1.0 if options.minutes is None and options.episodes is None else options.minutes
    began = time.monotonic()
    tally = campaign(
        options.seed,
        seconds=None if minutes is None else 60 * minutes,
        episodes=options.episodes,
        jobs=options.jobs,
        keep=options.keep,
        module=options.module,
        is_cluster=options.cluster,
        told=_show,
    )
    print(f"\nseed {options.seed}, {(time.monotonic() - began) / 60:.1f} minutes\n{_table(tally, options.cluster)}")
    if not tally.episodes:
        complain("actorproc torture: no episode was played and judged, so nothing was tried")
        return FAILED
    return 1 if tally.failed or tally.broken else 0


def _play(plan: Plan, keep: Path) -> int:
    from actorproc.testing.torture.campaign import play_and_keep

    episode = play_and_keep(plan, keep)
    _show(episode)
    print(_table(episode.tally, plan.cluster is not None))
    return 1 if episode.violations else 0


def _table(tally: Tally, is_cluster: bool) -> str:
    from actorproc.testing.torture.coverage import table
    from actorproc.testing.torture.faults import ClusterFault, TortureFault

    return table(tally, ClusterFault if is_cluster else TortureFault)


def _show(episode: Episode) -> None:
    """One line for each episode, and one for each of its violations."""
    tally = episode.tally
    verdict = f"{len(episode.violations)} VIOLATIONS" if episode.violations else "ok"
    print(
        f"episode {episode.plan.seed}: {tally.procedures} procedures, {tally.steps} steps, {tally.faults} effective "
        f"faults: {verdict}",
        flush=True,
    )
    for violation in episode.violations:
        print(f"  invariant {violation.number}: {violation.text}")
    if episode.violations and episode.folder is not None:
        from actorproc.testing.torture.campaign import replay_command

        print(f"  kept in {episode.folder}; see it again: {replay_command(episode.folder)}", flush=True)
