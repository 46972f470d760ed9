"""Damage of the pages that lead to the records, made on purpose: whatever the layout of the records is."""

from __future__ import annotations

import struct

import pytest

from actorproc.errors import StoreDamaged
from actorproc.model.rows.records import ProcedureRecord, StepKind, StepRecord
from actorproc.model.rows.writes import PutProcedure, PutStep
from actorproc.store.lmdb.files.meta_pages import check_data_file
from actorproc.store.lmdb.store import LmdbReader, LmdbStore

PAGE, HEADER = 4096, struct.Struct("=Q2xHHH")
BRANCH, OVERFLOW = 1, 4
IDS = [f"procedure-{number:04}" for number in range(400)]


def store_with(path, states):
    store = LmdbStore(path, map_size=1 << 26)
    epoch = store.own()
    for seq, (name, state) in enumerate(states.items(), 1):
        head = ProcedureRecord(id=name, type_name="T", version=1, root=name, parent=None, seq=seq)
        step = StepRecord(procedure=name, number=1, kind=StepKind.STEP, at=1.0, state=state)
        store.commit([PutProcedure(head, None), PutStep(step)], epoch)
    store.close()
    return (path / "data.mdb").read_bytes()


def pages_of(data, kind):
    for number in range(2, len(data) // PAGE):
        own, flags, lower, upper = HEADER.unpack_from(data, number * PAGE)
        if own == number and flags == kind:
            yield number * PAGE, lower, upper


def separators(data):
    """Where the last byte of each key of a branch page stands."""
    for page, lower, _ in pages_of(data, BRANCH):
        for node in range(1, (lower - 16) // 2):
            (offset,) = struct.unpack_from("=H", data, page + 16 + 2 * node)
            (size,) = struct.unpack_from("=H", data, page + offset + 6)
            if size:
                yield page + offset + 8 + size - 1


def missed_by_an_owner(path):
    """An owner refuses the file as well, or makes the page anew if it is one of an index."""
    store = LmdbStore(path, map_size=1 << 26)
    try:
        store.own()
        return [name for name in IDS if store.procedure(name) is None or store.step(name, 1) is None]
    except StoreDamaged:
        return []
    finally:
        store.close()


@pytest.fixture(scope="module")
def wide(tmp_path_factory):
    path = tmp_path_factory.mktemp("wide") / "store"
    return path, store_with(path, dict.fromkeys(IDS, b"state"))


def test_a_branch_page_that_leads_searches_astray_is_told_before_anything_is_missed(wide):
    path, data = wide
    refused = 0
    places = list(separators(data))
    assert len(places) > 5
    for place in places[:: max(1, len(places) // 25)]:
        for change in (1, 255):
            damaged = bytearray(data)
            damaged[place] = (damaged[place] + change) % 256
            (path / "data.mdb").write_bytes(damaged)
            try:
                with LmdbReader(path) as reader:
                    assert [name for name in IDS if reader.procedure(name) is None] == []
                    assert [name for name in IDS if reader.step(name, 1) is None] == []
            except StoreDamaged:
                refused += 1
                assert missed_by_an_owner(path) == []
    assert refused > 3


def test_a_file_that_ends_within_a_long_value_is_never_mapped(tmp_path):
    data = store_with(tmp_path / "store", {"one": b"x" * 10, "long": b"y" * 10 * PAGE})
    first, pages = max((page, lower | upper << 16) for page, lower, upper in pages_of(data, OVERFLOW))
    assert pages > 9

    for size in range(first + PAGE, first + pages * PAGE, 512):
        (tmp_path / "store" / "data.mdb").write_bytes(data[:size])
        with pytest.raises(StoreDamaged, match="cut short"):
            check_data_file(tmp_path / "store")
