"""A store that comes from elsewhere: its directory, its files and its records are somebody else's choice."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

from actorproc import EngineError, ProcedureManager
from actorproc.cli.diagnosis import diagnose
from actorproc.model.records import ProcedureRecord, StepKind, StepRecord
from actorproc.model.writes import PutProcedure, PutStep
from actorproc.signing_key import read_keys
from actorproc.store.lmdb_reader import LmdbReader
from actorproc.store.owner import owner_of
from tests.kit.stores import opened

PAGE = 4096
LAUNCH = "import sys\nsys.path.remove('')\nfrom actorproc.cli.main import main\nsys.exit(main())"
"""The command as it is installed: the working directory is not on its module path."""


def command(place, *arguments, limit=60):
    """Run a command in a directory."""
    return subprocess.run(
        [sys.executable, "-c", LAUNCH, *arguments],
        cwd=place,
        capture_output=True,
        text=True,
        check=False,
        timeout=limit,
    )


def head(name, **fields):
    fields = {"type_name": "T", "version": 1, "root": name, "parent": None, "seq": 1} | fields
    return ProcedureRecord(id=name, **fields)


def first_step(name):
    return StepRecord(procedure=name, number=1, kind=StepKind.STEP, at=1.0, state=b"\x80")


@pytest.fixture
def foreign(tmp_path):
    """Makes a store of these heads, as a stranger would have."""

    def make(*heads, writes=()):
        store = opened(tmp_path / "foreign")
        rows = [row for one in heads for row in (PutProcedure(one, None), PutStep(first_step(one.id)))]
        store.commit([*rows, *writes], store.epoch)
        store.close()
        return tmp_path / "foreign"

    return make


# ---------------------------------------------------------------------- S2: code
@pytest.mark.parametrize("module", ["actorproc", "lmdb", "msgspec"])
def test_s2_modules_in_the_directory_of_a_foreign_store_are_not_imported_by_a_command_in_it(foreign, module):
    place = foreign(head("a"))
    (place / f"{module}.py").write_text(f"open({os.fspath(place / 'canary')!r}, 'w')")

    said = command(place, "--path", ".", "-o", "json", "doctor", "--export-good", "good.json")

    assert not (place / "canary").exists()
    assert (said.returncode, said.stderr) == (0, "")
    assert json.loads(said.stdout)["exported"]["trees"] == 1
    assert json.loads(Path(place, "good.json").read_text())["trees"][0]["root"] == "a"


# ---------------------------------------------------------------------- S1: files
@pytest.mark.parametrize("name", ["owner.lock", "signing.key"])
@pytest.mark.parametrize("kind", ["pipe", "endless", "huge"])
def test_s1_what_stands_in_the_place_of_a_file_is_neither_waited_for_nor_read_without_end(foreign, name, kind):
    place = foreign(head("a"))
    (place / name).unlink(missing_ok=True)
    if kind == "pipe":
        os.mkfifo(place / name, 0o600)
    elif kind == "endless":
        (place / name).symlink_to("/dev/zero")
    else:
        (place / name).touch(0o600)
        os.truncate(place / name, 1 << 42)

    with pytest.raises(EngineError) if kind != "huge" else nullcontext(), LmdbReader(place) as reader:
        assert reader.owner() is None
    assert owner_of(place / name) is None
    assert read_keys(place) == ()
    assert ProcedureManager(place).health().status == "stopped"
    assert diagnose(str(place))["ok"] is (kind == "huge")


def test_s1_the_word_of_a_foreign_store_that_its_owner_lives_elsewhere_keeps_nobody_from_looking_at_its_pages(foreign):
    place = foreign(head("a"))
    (place / "owner.lock").write_text("pid 1\nstarted 1\nhost elsewhere\nrole manager\n")
    (place / "data.mdb").write_bytes(with_pages_of_garbage((place / "data.mdb").read_bytes()))

    said = command(place, "--path", ".", "list")

    assert said.returncode == 1, said
    assert "out of bounds" in said.stderr


def with_pages_of_garbage(data):
    """A data file whose pages of rows say that these are where there are none."""
    pages = bytearray(data)
    for at in range(2 * PAGE, len(pages), PAGE):
        if struct.unpack_from("=H", pages, at + 10)[0] in {1, 2}:
            pages[at + 16 : at + 64] = b"\xff" * 48
    return bytes(pages)
