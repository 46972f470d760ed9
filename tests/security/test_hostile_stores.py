"""A store that comes from elsewhere: its directory, its files and its records are somebody else's choice."""

from __future__ import annotations

import json
import logging
import math
import os
import struct
import subprocess
import sys
from contextlib import nullcontext
from itertools import pairwise
from pathlib import Path

import pytest

from actorproc import EngineError, LockKey, Procedure, ProcedureManager, Status
from actorproc.cli.doctor.diagnosis import diagnose
from actorproc.cli.main import main
from actorproc.model.crash_report import CrashReport
from actorproc.model.policies import LockMode
from actorproc.model.rows.records import (
    ChildRecord,
    ErrorInfo,
    EventRecord,
    LockRecord,
    ProcedureRecord,
    StepKind,
    StepRecord,
)
from actorproc.model.rows.writes import PutChild, PutEvent, PutLock, PutProcedure, PutStep
from actorproc.model.states import ProcedureState
from actorproc.store.lmdb.owner_lock import owner_of
from actorproc.store.lmdb.reader import LmdbReader
from actorproc.store.lmdb.store import LmdbStore
from actorproc.store.signing_key import read_keys
from actorproc.testing.inline import FAST, InlineManager
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


# ---------------------------------------------------------------------- S5, S14, S15: records
class Plain(Procedure):
    type_name = "T"

    def execute(self, ctx):
        return Status.done("fine")


ESCAPE = "\x1b[31m\n"
KEY = LockKey.write("k")
CRASH = CrashReport(kind=ESCAPE, message=ESCAPE, stderr=ESCAPE, stack=ESCAPE)


def circle():
    """A root, and two below it that are each other's parents."""
    second = head("b", root="a", parent="c", seq=2, children=1, depth=1)
    third = head("c", root="a", parent="b", seq=3, children=1, depth=1)
    links = [PutChild(ChildRecord("b", 1, 0, "c")), PutChild(ChildRecord("c", 1, 0, "b"))]
    return [head("a"), second, third], links


def lock(**fields):
    return PutLock(
        LockRecord(**{"path": "k", "mode": LockMode.WRITE, "holder": "a", "root": "a", "since": 1.0} | fields)
    )


RECORDS = {
    "a step at the end of all numbers": ([head("a", step=2**64 - 1)], ()),
    "an attempt at the end of all numbers": ([head("a", attempt=2**64 - 1)], ()),
    "a place at the end of all numbers": ([head("a", seq=2**64 - 1)], ()),
    "a ticket at the end of all numbers": ([head("a", ticket=2**64 - 1, locks=(KEY,), locked=False)], ()),
    "less than no records": ([head("a", records=-5)], ()),
    "a time that is none": ([head("a", state=ProcedureState.WAITING_TIMEOUT, due_at=math.nan)], ()),
    "for ever": ([head("a", state=ProcedureState.WAITING_TIMEOUT, due_at=math.inf)], ()),
    "its own parent": ([head("a", parent="a")], ()),
    "a parent that is not there": ([head("a", parent="b")], ()),
    "a circle of parents": circle(),
    "its own child": (
        [head("a", children=1, state=ProcedureState.WAITING, awaiting=1, pending=1)],
        [PutChild(ChildRecord("a", 1, 0, "a"))],
    ),
    "a lock inherited as nothing there is": ([head("a", locks=(KEY,))], [lock(inherited=-3)]),
    "a signal at the end of all numbers": (
        [head("a")],
        [PutEvent(EventRecord("news", 2**64 - 1, b"\xc0", None, 1.0))],
    ),
    "an id that is none": ([head(ESCAPE, created_at=1.0)], ()),
    "a type that is none": ([head("a", type_name=ESCAPE)], ()),
    "texts for a terminal": (
        [
            head(
                "a",
                tags=(ESCAPE,),
                owner=ESCAPE,
                parked=ESCAPE,
                event=ESCAPE,
                error=ErrorInfo("crash", ESCAPE, ESCAPE, ESCAPE, ESCAPE, 1, b"", CRASH),
            )
        ],
        [lock(path=ESCAPE), lock(holder=ESCAPE)],
    ),
}


@pytest.mark.parametrize("name", RECORDS)
def test_s5_no_record_of_a_foreign_store_keeps_a_command_from_telling_or_reaches_the_terminal(foreign, name, capsys):
    heads, writes = RECORDS[name]
    place = foreign(*heads, writes=writes)
    (place / "owner.lock").write_text("")
    id_ = heads[-1].id

    for words in ("list", "status", "show", "tree", "why", "steps", "audit", "locks", "poisons", "export"):
        asked = [id_] if words in ("show", "tree", "why", "steps", "audit") else ["--all"] if words == "export" else []
        output = [] if words == "export" else ["-o", "table"]
        code = main(["--path", str(place), words, *output, *asked])
        said = capsys.readouterr()
        assert code in range(4), (words, said)
        assert (said.out + said.err).replace("\n", "").isprintable(), (words, said)


@pytest.mark.parametrize("name", RECORDS)
def test_s15_no_record_of_a_foreign_store_keeps_a_manager_from_the_others_or_writes_lines_into_its_log(
    foreign, name, caplog
):
    caplog.set_level(logging.DEBUG)
    heads, writes = RECORDS[name]
    place = foreign(*heads, writes=writes)
    (place / "owner.lock").write_text("")

    with InlineManager([Plain], store=LmdbStore(place, map_size=1 << 24), config=FAST) as manager:
        assert manager.run(Plain(), timeout=20) == "fine"
        manager.publish("news", 1)
        assert manager.health().status in ("running", "degraded")
    assert all(line.isprintable() for line in caplog.messages), caplog.messages


def test_s5_a_tree_of_more_levels_than_code_can_go_through_is_shown_to_its_two_hundredth(foreign, capsys):
    count = 1000
    names = [f"p{number}" for number in range(count)]
    heads = [
        head(
            name, root="p0", parent=names[place - 1] if place else None, seq=place + 1, children=int(place < count - 1)
        )
        for place, name in enumerate(names)
    ]
    links = [PutChild(ChildRecord(parent, 1, 0, child)) for parent, child in pairwise(names)]
    place = foreign(*heads, writes=links)

    for output in ("table", "json"):
        assert main(["--path", str(place), "tree", "p0", "--limit", "5000", "-o", output]) == 0
        shown = capsys.readouterr().out
        assert "p199" in shown
        assert "p200" not in shown
