"""Campaigns: histories of consecutive seeds, played for some time, as a function and as a command line."""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections.abc import Callable, Iterable, Iterator

from tests.simulator.core_sim.faults import FaultKind
from tests.simulator.core_sim.histories import Campaign, History, rarely_collected

__all__ = ["campaign_command", "in_turn", "run_histories"]

Play = Callable[[int], History]
"""Plays and judges the history of a seed."""


def in_turn(*seeds: range) -> Iterator[int]:
    """Seeds of several ranges, one of each after the other: what shows something in one of them is met early."""
    for each in itertools.zip_longest(*seeds):
        yield from (seed for seed in each if seed is not None)


def run_histories(
    play: Play,
    first_seed: int,
    *,
    seconds: float,
    histories: int | None = None,
    keep: int = 20,
    on_history: Callable[[History], object] | None = None,
) -> Campaign:
    """Histories of consecutive seeds until the CPU `seconds` or the number is used up, or `keep` have failed.

    Each is given to `on_history` at once.
    """
    campaign = Campaign()
    started = time.process_time()
    seed = first_seed
    with rarely_collected():
        while campaign.seconds < seconds and len(campaign.failed) < keep:
            if histories is not None and seed - first_seed >= histories:
                break
            history = play(seed)
            campaign.add(history)
            if on_history is not None:
                on_history(history)
            seed += 1
            campaign.seconds = time.process_time() - started
    return campaign


def campaign_command(
    module: str,
    description: str,
    play: Play,
    arguments: list[str] | None,
    *,
    kinds: Iterable[FaultKind] = FaultKind,
    on_history: Callable[[History], object] | None = None,
) -> int:
    """The command line of a module that plays histories; exit code 1 when one violated an invariant.

    `kinds` are the faults it makes. Each history of a campaign is given to `on_history` as well.
    """
    chosen = _parser(module, description).parse_args(arguments)
    out = sys.stdout.write
    if chosen.replay is not None:
        history = play(chosen.replay)
        out(f"{history.trace}\n")
        _show(history)
        return 1 if history.violations else 0

    def heard(history: History) -> None:
        _show(history)
        if on_history is not None:
            on_history(history)

    campaign = run_histories(
        play, chosen.seed, seconds=chosen.seconds, histories=chosen.histories, keep=chosen.keep, on_history=heard
    )
    if campaign.failed:
        out(f"trace of seed {campaign.failed[0].seed}:\n{campaign.failed[0].trace}\n\n")
    out(f"{campaign.histories} histories in {campaign.seconds:.1f} s: {campaign.per_minute:,.0f} a minute\n")
    out(f"{campaign.weak} more had fewer than two effective faults\n")
    out(f"{campaign.faults.total()} effective faults\n")
    for kind in kinds:
        out(f"  {campaign.faults[kind]:>8}  {kind}\n")
    out(f"{len(campaign.failed)} histories with violations\n")
    return 1 if campaign.failed else 0


def _parser(module: str, description: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"python -m {module}", description=description)
    parser.add_argument("--seconds", type=float, default=60.0, help="CPU seconds to spend (default 60)")
    parser.add_argument("--histories", type=int, metavar="N", help="stop after this many histories (default: no limit)")
    parser.add_argument("--seed", type=int, default=1, help="first seed (default 1)")
    parser.add_argument("--replay", type=int, metavar="SEED", help="play one history and print its trace")
    parser.add_argument("--keep", type=int, default=20, help="stop after this many failing histories (default 20)")
    return parser


def _show(history: History) -> None:
    for violation in history.violations:
        sys.stdout.write(f"seed {history.seed}: invariant {violation.number}: {violation.text}\n")
    if history.violations:
        sys.stdout.flush()
