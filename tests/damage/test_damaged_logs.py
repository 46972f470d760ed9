"""Logs damaged in every way: 600 by default; ``ACTORPROC_MUTATIONS=20000`` for more.

The nightly tier damages 20,000.
"""

from __future__ import annotations

import os

import pytest

from actorproc.store.lmdb.log import tail
from tests.simulator.disk.damaged_logs import try_mutations

MUTATIONS = int(os.environ.get("ACTORPROC_MUTATIONS", "600"))


@pytest.mark.parametrize(
    "mutations", [MUTATIONS, pytest.param(20_000, marks=[pytest.mark.nightly, pytest.mark.timeout(1800)])]
)
def test_no_commit_is_left_out_in_silence(tmp_path, mutations):
    report = try_mutations(mutations, 1, tmp_path)

    assert report.failures == []
    assert report.count("refused") > mutations / 5
    assert report.count("whole") > mutations / 100
    assert report.count("shorter") > mutations / 200


def test_a_reader_that_takes_the_first_torn_record_for_the_end_is_found_out(tmp_path, monkeypatch):
    monkeypatch.setattr(tail, "later_record", lambda *_: None)

    assert len(try_mutations(100, 2, tmp_path).failures) > 10
