"""S18: whatever name the engine writes to, a link that was planted there leads to no other file."""

from __future__ import annotations

import logging
import os
import threading

import pytest

from actorproc.errors import EngineError
from actorproc.store.directory import new_private
from actorproc.store.lmdb.owner_lock import OwnerLock
from actorproc.store.lmdb.store import LmdbStore
from actorproc.store.lmdb.upkeep.compaction import MARK_FILE, put_in_place
from actorproc.store.signing_key import keep_keys, rotate
from actorproc.workers.output.spool import NEWER, LogSpool
from actorproc.workers.protocol.log_entry import LogEntry

PRECIOUS = "precious"


@pytest.fixture
def place(tmp_path):
    path = tmp_path / "store"
    path.mkdir(mode=0o700)
    return path


@pytest.fixture
def victim(tmp_path):
    """A file of somebody that must stay as it is."""
    path = tmp_path / "victim"
    path.write_text(PRECIOUS)
    yield path
    assert path.read_text() == PRECIOUS


@pytest.mark.parametrize("write", [lambda place: keep_keys(place, b"k" * 32), rotate], ids=["first key", "rotation"])
def test_s18_a_link_in_place_of_the_new_key_file_is_not_followed(place, victim, write):
    aside = place / f"signing.new-{os.getpid()}-{threading.get_ident()}"
    aside.symlink_to(victim)

    keys = write(place)

    assert (place / "signing.key").read_bytes() == keys[0]
    assert [path.name for path in place.iterdir()] == ["signing.key"]  # so that was its name
    assert not (place / "signing.key").is_symlink()


def test_s18_a_new_file_is_new_or_not_made(place, victim):
    (place / "link").symlink_to(victim)
    (place / "dangling").symlink_to(place / "nowhere")
    (place / "file").write_text("there")

    for name in ("link", "dangling", "file"):
        with pytest.raises(FileExistsError):
            new_private(place / name)
    assert not (place / "nowhere").exists()


@pytest.mark.parametrize("is_there", [True, False])
def test_s18_the_lock_of_an_owner_is_no_link(place, victim, is_there):
    (place / "owner.lock").symlink_to(victim if is_there else place / "nowhere")

    with pytest.raises(EngineError, match="cannot open the owner lock"):
        OwnerLock.acquire(place / "owner.lock")
    assert not (place / "nowhere").exists()


def test_s18_output_of_procedures_is_not_appended_to_a_link(place, victim, caplog):
    caplog.set_level(logging.WARNING)
    (place / NEWER).symlink_to(victim)
    spool = LogSpool(place, 1 << 20)
    spool.add("one", LogEntry(at=1.0, stream="stdout", text="printed"))
    spool.close()

    assert "kept in memory only" in caplog.text


def test_s18_the_mark_of_a_compaction_is_made_through_no_link(place):
    LmdbStore(place, map_size=1 << 24).close()
    (place / MARK_FILE).symlink_to(place / "nowhere")

    with pytest.raises(OSError, match="symbolic links"):
        put_in_place(place)
    assert not (place / "nowhere").exists()
