"""What is good is saved from a damaged store, and the rest runs on elsewhere."""

from __future__ import annotations

import contextlib
import json
import random
from dataclasses import dataclass

import pytest

import actorproc
from actorproc import Procedure, Status
from actorproc.cli.main import main
from actorproc.errors import ActorprocError, StoreDamaged
from actorproc.store.lmdb.store import LmdbReader
from actorproc.store.tools.salvage import SalvageReader
from actorproc.store.tools.transfer import take_out
from tests.kit.managers import LIGHT
from tests.simulator.disk.damaged_stores import make_store, mutate


def trees_of(store, roots):
    """All trees that can be read whole; each other one must be refused by one of our errors."""
    found = {}
    for root in roots:
        with contextlib.suppress(ActorprocError):
            found[root] = take_out(store, root)
    return found


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    path = tmp_path_factory.mktemp("original") / "store"
    images = make_store(path, 5)
    with LmdbReader(path) as reader:
        roots = [head.id for head in reader.scan() if head.parent is None]
        truth = trees_of(reader, roots)
    assert len(truth) == len(roots) > 5
    return path, images, truth


def test_a_sound_store_is_read_whole_without_lmdb(original):
    path, _, truth = original

    with SalvageReader(path) as reader:
        assert trees_of(reader, reader.roots()) == truth


def test_whatever_is_saved_from_a_damaged_file_is_what_was_stored(original, tmp_path):
    _, images, truth = original
    place = tmp_path / "store"
    place.mkdir(mode=0o700)
    saved = partly = 0
    for seed in range(300):
        kind, data, _ = mutate(random.Random(seed), images)
        (place / "data.mdb").write_bytes(data)
        (place / "data.mdb").chmod(0o600)
        try:
            with SalvageReader(place) as reader:
                found = trees_of(reader, reader.roots())
        except StoreDamaged:
            continue
        for root, tree in found.items():
            assert tree == truth.get(root), (seed, kind, root)
        saved += len(found)
        partly += 0 < len(found) < len(truth)
    assert saved > 1000
    assert partly > 30


@dataclass
class Count(Procedure):
    """Waits once, then says what it was given."""

    number: int = 0
    filler: str = ""
    told: bool = False

    def execute(self, ctx):
        if self.told:
            return Status.done(self.number)
        self.told = True
        return Status.wait("go")


def fill(path, procedures=40):
    """A stopped store of procedures that wait for a signal."""
    with actorproc.ProcedureManager(path, workers=1, **LIGHT) as manager:
        handles = manager.submit_many([(f"count-{n:02}", Count(n, "x" * 300)) for n in range(procedures)])
        while any(handle.info().phase != "waiting" for handle in handles):
            handles[0].wait(0.02)


def test_a_damaged_page_costs_its_own_trees_and_the_others_run_on_in_a_new_store(tmp_path, capsys):
    path = tmp_path / "state"
    fill(path)
    data = bytearray((path / "data.mdb").read_bytes())
    newest = {}
    for at in range(2 * 4096, len(data), 4096):
        if data[at + 10] == 2 and b"\x01count-07" in data[at : at + 4096] and b"submitted" in data[at : at + 4096]:
            newest[at] = True
    for at in newest:
        data[at + 16 : at + 4096] = b"\xff" * 4080
    (path / "data.mdb").write_bytes(data)

    with pytest.raises(StoreDamaged, match="export-good"):
        actorproc.ProcedureManager(path, workers=1).start()
    assert main(["--path", str(path), "doctor", "--export-good", str(tmp_path / "good.json")]) != 0
    assert main(["--path", str(tmp_path / "fresh"), "import", str(tmp_path / "good.json")]) == 0
    capsys.readouterr()

    saved = [tree["root"] for tree in json.loads((tmp_path / "good.json").read_text())["trees"]]
    assert 10 < len(saved) < 40
    assert "count-07" not in saved
    with actorproc.ProcedureManager(tmp_path / "fresh", workers=1, procedures=[Count], **LIGHT) as manager:
        for name in saved:
            manager.signal(name, None)
            assert manager.get(name).result(30) == int(name[-2:])


def test_a_damaged_record_stops_its_procedure_and_no_other(tmp_path):
    path = tmp_path / "state"
    fill(path, procedures=6)
    data = (path / "data.mdb").read_bytes()
    at = 0
    changed = bytearray(data)
    while (at := data.find(b"\x01count-03", at)) >= 0:
        # The filler of its state, wherever a version of it lies.
        place = data.find(b"x" * 40, at, at + 400)
        if place >= 0:
            changed[place] ^= 1
        at += 1
    assert bytes(changed) != data
    (path / "data.mdb").write_bytes(changed)

    with actorproc.ProcedureManager(path, workers=1, procedures=[Count], **LIGHT) as manager:
        for number in (0, 1, 2, 4, 5):
            manager.signal(f"count-{number:02}", None)
            assert manager.get(f"count-{number:02}").result(30) == number
        assert "count-03" in str(manager.health())
        info = manager.info("count-03")
        assert info.phase == "parked"
        assert "checksum" in info.reason
        assert "checksum" in str(manager.why("count-03"))
        listed = {row.id: row for row in manager.list()}
        assert listed["count-03"].phase == "parked"
