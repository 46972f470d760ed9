"""The data file after many small commits, as those of a lone procedure."""

from __future__ import annotations

import pytest
from lmdb import verify

from actorproc.errors import StoreInUse
from actorproc.model.rows.records import StepKind, StepRecord
from actorproc.model.rows.writes import PutProcedure, PutStep, Was
from actorproc.store.lmdb.commit.meta_pages import read_meta_pages
from actorproc.testing.store_suite import Writes
from tests.kit.stores import opened

PAGE = 4096


def one_step(number):
    """The commit of a lone procedure's next step, in a store with others beside it."""
    record = Writes.head("p-000007", 7)
    was = Was.of(record)
    step = StepRecord(procedure=record.id, number=number, kind=StepKind.STEP, at=1.0, state=b"s" * 60)
    return [PutStep(step), PutProcedure(record, was)]


def made(path, **options):
    store = opened(path, **options)
    store.commit([PutProcedure(Writes.head(f"p-{seq:06}", seq), None) for seq in range(1, 65)], 1, 1)
    return store


def test_the_file_is_sound_and_does_not_look_cut_short(tmp_path):
    store = made(tmp_path)
    for number in range(1, 400):
        store.commit(one_step(number), 1, number + 1)
        metas = read_meta_pages(tmp_path)
        assert metas.size >= (max(metas.last_pages) + 1) * PAGE
    assert not verify.verify(str(tmp_path), subdir=True)
    store.close()


def test_free_pages_do_not_pile_up(tmp_path):
    store = made(tmp_path)
    sizes = []
    for number in range(1, 3001):
        store.commit(one_step(number), 1, number + 1)
        if number % 1000 == 0:
            size = store.size()
            sizes.append(size.file - size.used)
    store.close()
    assert sizes[-1] <= 320 * PAGE
    assert sizes[-1] <= sizes[0] + 64 * PAGE


def test_who_has_lost_the_store_leaves_the_file_as_it_is(tmp_path):
    store = made(tmp_path)
    content = (tmp_path / "data.mdb").read_bytes()
    for number in range(1, 100):
        with pytest.raises(StoreInUse):
            store.commit(one_step(number), 0, number + 1)
    assert (tmp_path / "data.mdb").read_bytes() == content
    store.close()
