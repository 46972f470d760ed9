"""When the pages of a store are looked at before they are used."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys

import pytest

from actorproc.errors import StoreDamaged
from actorproc.model.rows.records import ProcedureRecord, StepKind, StepRecord
from actorproc.model.rows.writes import PutProcedure, PutStep
from actorproc.store.lmdb import page_check
from actorproc.store.lmdb.owner_lock import OwnerLock, facts_in, owner_of
from actorproc.store.lmdb.store import LmdbReader, LmdbStore
from actorproc.store.rows.step_log import step_key
from actorproc.store.rows.tables import Table

KILLED = """
import os, signal, sys
from actorproc.store.lmdb.store import LmdbStore
LmdbStore(sys.argv[1]).own()
os.kill(os.getpid(), signal.SIGKILL)
"""

KILLED_COMPACT = """
import os, signal, sys
import actorproc.store.lmdb.store as module
module.WORTH_WHILE = -(1 << 40)
store = module.LmdbStore(sys.argv[1])
store.own()
store.compact()
os.kill(os.getpid(), signal.SIGKILL)
"""


def head(name, seq):
    return ProcedureRecord(id=name, type_name="T", version=1, root=name, parent=None, seq=seq)


@pytest.fixture
def store(tmp_path):
    """A store with twenty procedures, closed in good order."""
    path = tmp_path / "store"
    opened = LmdbStore(path, map_size=1 << 24)
    epoch = opened.own()
    writes = []
    for seq in range(1, 21):
        step = StepRecord(procedure=f"p{seq}", number=1, kind=StepKind.STEP, at=1.0, state=b"state of %d" % seq * 30)
        writes += [PutProcedure(head(f"p{seq}", seq), None), PutStep(step)]
    opened.commit(writes, epoch)
    opened.close()
    return path


@pytest.fixture
def looks(monkeypatch):
    """Counts how often all pages of a file were looked at."""
    counted = []
    look = page_check.check_pages
    monkeypatch.setattr(page_check, "check_pages", lambda path: (counted.append(path), look(path)))
    return counted


def reopen(path):
    opened = LmdbStore(path, map_size=1 << 24)
    try:
        opened.own()
        return opened.load()
    finally:
        opened.close()


def change(path, old, new):
    """Replace bytes everywhere in the data file."""
    data = (path / "data.mdb").read_bytes()
    assert data.count(old) >= 1
    (path / "data.mdb").write_bytes(data.replace(old, new))


def test_a_store_that_was_closed_in_good_order_is_not_looked_at_again(store, looks):
    looks.clear()

    reopen(store)

    assert looks == []


def test_closing_waits_for_the_clock_of_the_file_system(store, looks):
    looks.clear()
    for _ in range(20):  # without waiting, one in five was not sealed
        reopen(store)
        assert "sealed-changed" in facts_in((store / "owner.lock").read_text())

    assert looks == []


def test_where_that_clock_stands_still_every_page_is_looked_at(store, looks, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(OwnerLock, "vouch", lambda _: 0)
        patched.setattr(page_check, "_TICK", 0.01)
        reopen(store)
    facts = facts_in((store / "owner.lock").read_text())
    looks.clear()

    reopen(store)

    assert "sealed-size" in facts
    assert "sealed-changed" not in facts
    assert len(looks) == 1


def test_a_store_that_was_written_to_since_is_looked_at(store, looks):
    looks.clear()
    data = (store / "data.mdb").read_bytes()
    (store / "data.mdb").write_bytes(data)
    os.utime(store / "data.mdb")

    reopen(store)

    assert looks == [store]


def test_a_copied_store_is_looked_at_even_with_its_times_kept(store, looks, tmp_path):
    looks.clear()
    shutil.copytree(store, tmp_path / "copy")

    reopen(tmp_path / "copy")

    assert looks == [tmp_path / "copy"]


@pytest.mark.parametrize(("limit", "wanted"), [(page_check.EXAMINED_ANYWAY, 1), (0, 0)])
def test_after_a_kill_small_stores_are_looked_at_and_large_ones_are_not(store, looks, monkeypatch, limit, wanted):
    done = subprocess.run([sys.executable, "-c", KILLED, store], check=False, timeout=60)
    assert done.returncode == -signal.SIGKILL
    monkeypatch.setattr(page_check, "EXAMINED_ANYWAY", limit)

    reopen(store)

    assert len(looks) == wanted


def test_a_copy_of_a_store_whose_owner_lives_is_nobodys_and_looked_at_whatever_its_size(
    store, looks, monkeypatch, tmp_path
):
    monkeypatch.setattr(page_check, "EXAMINED_ANYWAY", 0)
    owner = LmdbStore(store)
    owner.own()
    looks.clear()
    copy = tmp_path / "copy"
    shutil.copytree(store, copy)
    assert owner_of(store / "owner.lock").pid == os.getpid()
    assert owner_of(copy / "owner.lock") is None

    with LmdbStore.reader(copy) as reader:
        assert list(reader.scan()) != []
    assert looks == [copy]
    reopen(copy)
    assert looks == [copy, copy]
    owner.close()


def test_a_store_that_was_compacted_and_killed_is_trusted_as_any_other(store, looks, monkeypatch):
    monkeypatch.setattr(page_check, "EXAMINED_ANYWAY", 0)
    before = (store / "data.mdb").stat().st_ino
    done = subprocess.run([sys.executable, "-c", KILLED_COMPACT, store], check=False, timeout=60)
    assert done.returncode == -signal.SIGKILL
    assert (store / "data.mdb").stat().st_ino != before

    reopen(store)

    assert looks == []


def test_after_the_machine_was_started_anew_the_file_is_looked_at_whatever_its_size(store, looks, monkeypatch):
    subprocess.run([sys.executable, "-c", KILLED, store], check=False, timeout=60)
    monkeypatch.setattr(page_check, "EXAMINED_ANYWAY", 0)
    monkeypatch.setattr(page_check, "boot_id", lambda: "another boot")

    reopen(store)

    assert len(looks) == 1


def test_an_owner_that_was_killed_while_it_looked_is_no_reason_to_trust(store, looks, monkeypatch):
    """The word of the last owner counts once it has found the store sound, not before."""
    monkeypatch.setattr(page_check, "EXAMINED_ANYWAY", 0)
    (store / "owner.lock").write_text("pid 999999\nstarted 1\nhost here\n")

    reopen(store)

    assert len(looks) == 1


@pytest.mark.parametrize("empty", [True, False])
def test_a_data_file_that_is_gone_is_no_new_store(store, empty):
    if empty:
        (store / "data.mdb").write_bytes(b"")
    else:
        (store / "data.mdb").unlink()

    with pytest.raises(StoreDamaged, match=r"empty or gone.*remove .*owner\.lock"):
        reopen(store)


def test_a_newer_meta_page_that_is_damaged_does_not_give_the_store_of_yesterday(store):
    """LMDB would take the older page, and the last commit would be gone without a word."""
    reopen(store)
    reopen(store)
    renumber_newer_meta(store, lambda _: 0)

    with pytest.raises(StoreDamaged, match="do not follow each other"):
        reopen(store)


def renumber_newer_meta(path, change):
    """Give the newer meta page of a data file another number."""
    data = bytearray((path / "data.mdb").read_bytes())
    numbers = [int.from_bytes(data[at + 144 : at + 152], "little") for at in (0, 4096)]
    newer = 4096 * numbers.index(max(numbers))
    data[newer + 144 : newer + 152] = change(max(numbers)).to_bytes(8, "little")
    (path / "data.mdb").write_bytes(data)


def test_a_newer_meta_page_whose_number_is_two_too_low_does_not_either(store):
    """One bit is enough for it, and the older page then follows as well."""
    reopen(store)
    reopen(store)
    renumber_newer_meta(store, lambda number: number - 2)
    damaged = (store / "data.mdb").read_bytes()

    for opening in (lambda: reopen(store), lambda: LmdbReader(store)):
        with pytest.raises(StoreDamaged, match=r"newest transaction of .* is \d+, and the last one was \d+.*remove"):
            opening()
    assert (store / "data.mdb").read_bytes() == damaged

    (store / "owner.lock").unlink()
    with pytest.raises(StoreDamaged, match="it is gone"):  # the older page is that of a store with a log
        reopen(store)


def test_an_older_file_that_was_put_in_the_place_of_a_sealed_one_is_taken(store):
    reopen(store)
    older = (store / "data.mdb").read_bytes()
    for _ in range(3):
        reopen(store)
    (store / "data.mdb").write_bytes(older)

    reopen(store)


def test_damaged_pages_are_refused_before_lmdb_sees_them_and_the_file_is_left_alone(store):
    data = bytearray((store / "data.mdb").read_bytes())
    for page in range(2, len(data) // 4096):
        data[page * 4096 + 16 : page * 4096 + 64] = b"\xff" * 48
    (store / "data.mdb").write_bytes(data)

    for opening in (lambda: reopen(store), lambda: LmdbReader(store)):
        with pytest.raises(StoreDamaged, match=r"pages of .* are damaged.*--export-good"):
            opening()
    assert (store / "data.mdb").read_bytes() == data


@pytest.mark.parametrize("seq", [20, 7, 1])
def test_index_rows_that_were_damaged_are_set_right_and_told(store, seq):
    """An index row has no checksum; without this a live procedure would never run again, and nobody would know."""
    change(store, b"RUNNABLE\0" + seq.to_bytes(8), b"RUNNABLX\0" + seq.to_bytes(8))

    with pytest.raises(StoreDamaged, match="not where they belong"):
        LmdbReader(store)
    snapshot = reopen(store)

    assert [one.id for one in snapshot.procedures] == [f"p{seq}" for seq in range(1, 21)]
    assert any(found.table == "by_state" for found in snapshot.damage)
    with LmdbReader(store) as reader:
        assert sum(reader.count_states().values()) == 20
        assert len(list(reader.scan())) == 20


def test_a_record_under_a_damaged_key_halts_whose_it_was_by_its_contents(store):
    change(store, step_key("p9", 1), step_key("q9", 1))

    snapshot = reopen(store)

    assert "p9" not in [one.id for one in snapshot.procedures]
    halted = [found for found in snapshot.damage if found.table == "procedures"]
    assert [found.key for found in halted] == ["p9"]
    assert len(snapshot.procedures) == 19


def test_a_damaged_epoch_is_replaced_by_one_that_nobody_had(store):
    opened = LmdbStore(store, map_size=1 << 24)
    epoch = opened.own()
    writes = [PutProcedure(head("late", 40), None)]
    writes[0].record.epoch = epoch
    opened.commit(writes, epoch)
    with opened._view() as rows:
        value = rows.get(Table.META, b"epoch")
    opened.close()
    change(store, b"epoch" + value, b"epoch" + b"\xff" * len(value))

    opened = LmdbStore(store, map_size=1 << 24)
    assert opened.own() > epoch
    assert any(found.key == "epoch" for found in opened.load().damage)
    opened.close()
