"""Records in each other's place, and under keys that are not theirs, in every table, judged as all damaged stores are.

Pages that change keys by chance hit few of them, and which ones follows from the layout of the file: here rows are changed
by what they are.
"""

from __future__ import annotations

import random
import shutil
from collections import Counter

import lmdb
import pytest

from actorproc.store.rows.tables import INDEXES, Table
from tests.simulator.disk.damage import _judge, _Original

ROWS = 4
"""Rows of each table that are tried in each way."""


def swapped(txn, db, rows, chance):
    """Two rows have each other's values."""
    (one, first), (other, second) = chance.sample(rows, 2)
    txn.put(one, second, db=db)
    txn.put(other, first, db=db)
    return first != second


def _other_key(key, chance):
    place = chance.randrange(len(key))
    return key[:place] + bytes([key[place] ^ 1 << chance.randrange(8)]) + key[place + 1 :]


def moved(txn, db, rows, chance):
    """A row stands under a key of which one bit is another."""
    key, value = chance.choice(rows)
    txn.delete(key, db=db)
    return txn.put(_other_key(key, chance), value, db=db, overwrite=False)


def moved_and_unreadable(txn, db, rows, chance):
    """The same, and one bit of the value is another too."""
    key, value = chance.choice(rows)
    changed = bytearray(value)
    if changed:
        changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
    txn.delete(key, db=db)
    return txn.put(_other_key(key, chance), bytes(changed), db=db, overwrite=False)


WAYS = {"swapped": swapped, "moved": moved, "moved and unreadable": moved_and_unreadable}


@pytest.fixture(scope="module")
def originals(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sound")
    return [_Original(folder, seed) for seed in (1, 2)]


def changed_copy(original, target, table, way, chance):
    """A copy of the store with this done to it; whether there was anything to do it to."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(original.path, target)
    with lmdb.open(str(target), max_dbs=32, map_size=1 << 24, lib_version=0) as env, env.begin(write=True) as txn:
        db = env.open_db(table.label.encode(), txn=txn)
        rows = list(txn.cursor(db=db))
        return len(rows) > 1 and WAYS[way](txn, db, rows, chance)


@pytest.mark.parametrize("way", WAYS)
def test_a_record_in_a_place_that_is_not_its_own_is_never_read_in_silence(originals, way, tmp_path):
    chance = random.Random(way)
    verdicts = Counter()
    tables = set()
    for table in Table:
        for number in range(ROWS):
            original = originals[number % len(originals)]
            if not changed_copy(original, tmp_path / "store", table, way, chance):
                continue
            if way == "moved and unreadable" and table is Table.LOCKS:
                continue  # what was locked is known from the head of the holder then, and these heads declare no locks
            outcome, words = _judge(original, tmp_path / "store")
            # An index is made anew from the heads, where it does not tell otherwise.
            assert outcome in {"told", "refused", *(["unharmed"] if table in INDEXES else [])}, (table, outcome, words)
            verdicts[outcome] += 1
            tables.add(table)
    assert verdicts["told"] > 15, verdicts
    assert tables > {Table.PROCEDURES, Table.STEPS, Table.CHILDREN, Table.EVENTS, Table.UNDO}
