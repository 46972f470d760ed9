"""Stores damaged in every way: 1,000 by default, of four campaigns; ``ACTORPROC_MUTATIONS=10000`` for more.

The nightly tier damages 20,000.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from tests.simulator.disk.damage import try_mutation

MUTATIONS = int(os.environ.get("ACTORPROC_MUTATIONS", "1000")) // 4


@pytest.mark.parametrize("seed", [1, 2, 3, 4])
def test_no_damage_is_read_in_silence_or_kills_the_process_that_reads_it(seed):
    said = subprocess.run(
        [sys.executable, "-m", "tests.simulator.disk.damage", "--mutations", str(MUTATIONS), "--seed", str(seed)],
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )

    assert said.returncode == 0, said.stdout + said.stderr
    refused, told, unharmed, wrong, died = map(int, re.search(r"^all +(.*)$", said.stdout, re.MULTILINE)[1].split())
    assert (wrong, died) == (0, 0)
    # The mutations do hit what is in use, and most of what is hit is told row by row.
    assert refused > MUTATIONS / 10
    assert told > MUTATIONS / 10
    assert refused + told + unharmed == MUTATIONS


@pytest.mark.parametrize(
    ("campaign", "seed"),
    [
        (101, 101001226),  # a signal under another key, unreadable: whoever it was for missed it
        (101, 101006345),  # a branch page that led searches astray, while a scan met every row
        (201, 201004426),  # cut off within a value of several pages, above free ones: SIGBUS
        (201, 201004850),
        (401, 401004191),  # a verb of an operator, unreadable and under another key
        (301, 301002485),  # a poison record under another key: what it poisons was given away
        (301, 301006333),
        (201, 201009795),  # an index row for nobody, counted
        (117, 117003704),  # the number of the newer meta page, two too low: the last commit was gone
    ],
)
def test_mutations_that_were_once_read_in_silence_are_no_more(campaign, seed, tmp_path):
    # Where a seed strikes follows from the layout of the file; tests/damage/test_trees_of_pages.py strikes by the format.
    verdict = try_mutation(seed, campaign, tmp_path)

    assert verdict.outcome in {"refused", "told", "unharmed"}, verdict


def test_a_reader_that_is_too_trusting_is_found_out(monkeypatch, tmp_path):
    """The tool notices a store that does not look before it reads."""
    from actorproc.store.lmdb import owner_lock, store
    from tests.simulator.disk.damage import try_mutations

    monkeypatch.setattr(owner_lock, "examined", lambda *_: False)
    monkeypatch.setattr(store, "examined", lambda *_: False)

    report = try_mutations(400, 3, tmp_path)

    assert {failure.outcome for failure in report.failures} >= {"wrong"}, report
    assert len(report.failures) > 5
