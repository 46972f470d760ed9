"""The goals of docs/explanation/evidence/security.md, each test named after its row.

The page lists what other folders test already.
"""

from __future__ import annotations

import ast
import json
import logging
import os
import re
import stat
import subprocess
import sys
import tomllib
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass, replace
from io import StringIO
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import actorproc
from actorproc import Procedure, ProcedureFailed, Status
from actorproc.cli.main import main
from actorproc.control import wire
from actorproc.errors import ActorprocError, InvalidId, StateTooLarge, StoreDamaged
from actorproc.model.ids import check_id
from actorproc.model.rows.records import ProcedureRecord, StepKind, StepRecord
from actorproc.model.rows.writes import PutProcedure, PutStep
from actorproc.procedure.encoding.signing import opened, seal
from actorproc.procedure.encoding.state import StateRefused
from actorproc.procedure.runtime.registry import TypeRegistry
from actorproc.store.lmdb.store import LmdbStore
from actorproc.store.rows import codec
from actorproc.store.rows.tables import Table
from actorproc.testing.inline import FAST, InlineManager
from actorproc.workers.protocol.frames import (
    FrameBuffer,
    FrameError,
    decode_from_worker,
    decode_to_worker,
    encode_frame,
)
from tests.kit.managers import LIGHT

ROOT = Path(__file__).parents[2]
RECORDS = [table for table in Table if table in codec._DECODERS]
PAGE_OF_GOALS = (ROOT / "docs" / "explanation" / "evidence" / "security.md").read_text()


# ---------------------------------------------------------------------- S1, S18: files
@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077, 0o777])
def test_s1_everything_a_manager_makes_is_for_its_user_only(tmp_path, umask):
    place = tmp_path / "store"
    before = os.umask(umask)
    try:
        with actorproc.ProcedureManager(place, workers=1, **LIGHT) as manager:
            manager.backup(tmp_path / "copy")
            modes = {
                file: stat.S_IMODE(file.lstat().st_mode)
                for folder in (place, tmp_path / "copy")
                for file in (folder, *folder.rglob("*"))
            }
    finally:
        os.umask(before)

    assert {file.name for file in modes} >= {"data.mdb", "owner.lock", "signing.key", "control.sock"}
    assert not {file.name: oct(mode) for file, mode in modes.items() if mode & 0o077}


def test_s18_a_planted_link_in_place_of_the_key_is_never_followed(tmp_path):
    tmp_path.chmod(0o700)
    victim = tmp_path / "victim"
    victim.write_bytes(b"v" * 32)
    (tmp_path / "signing.key").symlink_to(victim)

    with pytest.raises(ActorprocError, match="symbolic link"):
        LmdbStore(tmp_path).own()
    assert victim.read_bytes() == b"v" * 32


# ---------------------------------------------------------------------- S2 to S5: a store of somebody else
def test_s2_bytes_are_unpickled_only_in_places_that_are_known():
    found, callers = set(), set()
    for file in (ROOT / "actorproc").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Attribute) and node.attr in {"loads", "load", "Unpickler"}:
                owner = node.value.id if isinstance(node.value, ast.Name) else ""
                if owner in {"pickle", "cloudpickle", "marshal", "shelve", "dill"}:
                    found.add((file.relative_to(ROOT / "actorproc").as_posix(), owner))
            if isinstance(node, ast.ImportFrom) and node.module == "actorproc.procedure.shipping.origins":
                callers.update(
                    (file.relative_to(ROOT / "actorproc").as_posix(), name.name)
                    for name in node.names
                    if name.name.startswith("loads")
                )

    assert found == {
        ("procedure/encoding/signing.py", "pickle"),  # after the signature
        ("procedure/shipping/origins.py", "pickle"),  # for those below
        ("procedure/shipping/reducers.py", "marshal"),  # code objects in such pickles
    }
    assert callers == {
        ("procedure/authoring/call.py", "loads"),  # an executor's call, in a worker, after the signature
        ("procedure/authoring/call.py", "loads_returned"),  # its result, after the signature
        ("procedure/encoding/value_codec.py", "loads_returned"),  # outputs, notes and payloads, after the signature
        (
            "procedure/runtime/class_shipping.py",
            "loads",
        ),  # in a worker: classes of the manager's own program, never stored
        (
            "procedure/shipping/child_main.py",
            "loads",
        ),  # in a child of a step: what its parent, a worker, has in its main module
        ("workers/child/main.py", "loads"),  # in a worker: the environment of the manager's own program
    }


class Canary:
    """Whoever unpickles it makes a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


@pytest.fixture
def foreign(tmp_path):
    """A store from elsewhere: pickles as states, code as names, and whatever else may tempt a reader."""
    import pickle

    canary = tmp_path / "canary"
    bomb = pickle.dumps(Canary(canary))
    path = tmp_path / "foreign"
    store = LmdbStore(path, map_size=1 << 24)
    epoch = store.own()
    types = ["os.system", "builtins.eval", "posix.system", "__main__", "x" * 10_000, "sub process", "ünïcode", "a" * 3]
    states = [bomb, b"\x80" + bomb, b"\x92\xa1x" + bomb, bomb * 3, b"\0" * 40 + bomb, b"\xc1", b"", b"{{7*7}}"]
    writes = []
    for seq, (name, state) in enumerate(zip(types, states, strict=True), 1):
        head = ProcedureRecord(id=f"p{seq}", type_name=name, version=1, root=f"p{seq}", parent=None, seq=seq)
        codec_name = "pickle" if seq % 2 else "data"
        step = StepRecord(procedure=head.id, number=1, kind=StepKind.STEP, at=1.0, state=state, codec=codec_name)
        writes += [PutProcedure(head, None), PutStep(step)]
    store.commit(writes, epoch)
    store.close()
    return path, canary


@pytest.mark.parametrize(
    "command",
    [
        ["list"], ["status"], ["show", "p1"], ["steps", "p1"], ["tree", "p2"], ["why", "p3"], ["locks"], ["doctor"],
        ["export", "--all"], ["list", "-o", "json"],
    ],
)  # fmt: skip
def test_s2_s5_nothing_of_a_foreign_store_is_executed_when_it_is_looked_at(foreign, command, capsys):
    path, canary = foreign

    with suppress(SystemExit):
        main(["--path", str(path), *command])

    written = capsys.readouterr()
    assert written.out or command == ["locks"]
    assert not canary.exists()


def test_s2_s4_nothing_of_a_foreign_store_is_executed_when_a_manager_runs_on_it(foreign):
    path, canary = foreign

    with actorproc.ProcedureManager(path, workers=1, **LIGHT) as manager:
        phases = {row.id: row.phase for row in manager.list()}

    assert set(phases.values()) == {"parked"}
    assert len(phases) == 8
    assert not canary.exists()


class Pickled(Procedure):
    codec = "pickle"
    value: object = None

    def execute(self, ctx):
        return Status.done()


def test_s3_every_byte_of_a_pickled_state_is_covered_by_its_signature(tmp_path):
    runtime = TypeRegistry(signing_key=b"k" * 32).register(Pickled)
    procedure = Pickled()
    procedure.value = Canary(tmp_path / "canary")
    state = runtime.describe(procedure, id="one").state

    for place in range(len(state)):
        changed = bytearray(state)
        changed[place] ^= 1
        with pytest.raises(StateRefused):
            runtime.load(bytes(changed), "pickle", 1, "one")
    for key in (None, b"other" * 8):
        with pytest.raises((StateRefused, ActorprocError)):
            TypeRegistry(signing_key=key).register(Pickled).load(state, "pickle", 1, "one")

    assert not (tmp_path / "canary").exists()


def test_s3_what_was_signed_for_one_call_is_refused_for_another():
    key = b"k" * 32
    sealed = seal(b"result", "the result of call a", key)

    assert opened(sealed, "the result of call a", key) == b"result"
    for body, purpose in ((sealed, "the result of call b"), (sealed[:-1], "the result of call a"), (b"", "x")):
        with pytest.raises(StateRefused):
            opened(body, purpose, key)


# ---------------------------------------------------------------------- S6, S7: bytes of others
@settings(max_examples=400, deadline=None)
@given(st.binary(max_size=300))
def test_s6_bytes_of_any_kind_on_a_channel_are_messages_or_a_frame_error(body):
    for decode in (decode_from_worker, decode_to_worker):
        with suppress(FrameError):
            decode(body)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_s6_messages_with_changed_bytes_are_messages_or_a_frame_error(data):
    from actorproc.model.ids import StepToken, WorkerId
    from actorproc.workers.protocol.frames import Ask, Heartbeat, Stop

    token = StepToken(1, WorkerId(0, 1), "procedure", 1, 1)
    body = bytearray(encode_frame([Ask(1, token, "note", "ключ", b"value", 1), Heartbeat(token, 0.5, "half")])[4:])
    assert decode_to_worker(encode_frame([Stop()])[4:])
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    with suppress(FrameError):
        decode_from_worker(bytes(body))


def test_s6_text_that_is_no_utf_8_and_lists_without_end_are_frame_errors():
    for body in (b"\x91\x93\xa5stack\x01\xa2\xff\xfe", b"\x91\x93\xa4beat\xa2\xff\xfe\xc0", b"\x91" * 200_000):
        with pytest.raises(FrameError):
            decode_from_worker(body)


def test_s6_a_length_of_4_gib_reserves_nothing():
    buffer = FrameBuffer(max_frame=1 << 20)

    with pytest.raises(FrameError):
        list(buffer.feed(b"\xff\xff\xff\xff"))


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200))
def test_s7_bytes_of_any_kind_on_the_control_socket_are_a_call_or_a_decode_error(body):
    for kind in (wire.RemoteCall, wire.CallAnswer):
        with suppress(msgspec.DecodeError):
            wire.decode_as(body, kind)


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(RECORDS), st.binary(min_size=1, max_size=80), st.binary(max_size=200), st.booleans())
def test_s6_records_of_any_bytes_are_records_or_damage(table, key, body, forged):
    """Also with a checksum that is right: an attacker can compute one."""
    import zlib

    value = body
    if forged:
        value = b"\x01" + zlib.crc32(body, zlib.crc32(key, codec._SEED[table])).to_bytes(4) + body
    with suppress(StoreDamaged):
        codec.decode(table, key, value)
    codec.unchecked(table, value)


# ---------------------------------------------------------------------- S8, S14: names from hell
HELL = st.one_of(
    st.text(max_size=300),
    st.sampled_from(
        ["..", "../x", "/etc/passwd", "a/b", "a\0b", "\u202eabc", "\ud800", "a" * 129, "a" * 1_000_000, "%s%n", "{0}",
         "-o", "--help", "a\nb", "\x1b[2J", "", " ", ".", "._", "CON", "a b", "ａ", "é"]
    ),
)  # fmt: skip


@settings(max_examples=500, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.large_base_example])
@given(HELL)
def test_s8_an_id_is_of_the_narrow_kind_or_refused(text):
    if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._:@-]{0,127}", text, re.ASCII):
        assert check_id(text) == text
        return
    with pytest.raises(InvalidId) as refused:
        check_id(text)
    assert len(str(refused.value)) < 400
    assert str(refused.value).isprintable()


@pytest.fixture(scope="module")
def quiet_store(tmp_path_factory):
    path = tmp_path_factory.mktemp("hell") / "store"
    store = LmdbStore(path, map_size=1 << 24)
    store.own()
    store.close()
    return path


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(HELL.filter(lambda text: "\0" not in text and "\ud800" not in text and len(text) < 5000))
def test_s8_s14_names_from_hell_go_through_the_command_line_and_come_out_harmless(quiet_store, text):
    for command in (["show", text], ["why", text], ["list", "--tag", text], ["steps", text]):
        out = StringIO()
        with redirect_stdout(out), suppress(SystemExit):
            assert main(["--path", str(quiet_store), *command]) in range(8)
        assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", out.getvalue())


# ---------------------------------------------------------------------- S15: quotas at n - 1, n, n + 1
@dataclass
class Spawner(Procedure):
    children: int
    depth: int = 0
    done: bool = False

    def execute(self, ctx):
        if self.done or (self.depth <= 0 and self.children == 0):
            return Status.done("ok")
        self.done = True
        if self.depth:
            return Status.suspended([Spawner(0, self.depth - 1)])
        return Status.suspended([Spawner(0) for _ in range(self.children)])


def ends_well(config, procedure):
    with InlineManager([Spawner], config=config) as manager:
        handle = manager.finish(manager.submit(procedure))
        try:
            return handle.result() == "ok"
        except ProcedureFailed:
            return False


@pytest.mark.parametrize(("children", "is_fine"), [(4, True), (5, True), (6, False)])
def test_s15_the_children_of_a_procedure_have_a_limit(children, is_fine):
    assert ends_well(replace(FAST, max_children=5), Spawner(children)) is is_fine


@pytest.mark.parametrize("limit", [3])
def test_s15_the_depth_of_a_tree_has_a_limit(limit):
    config = replace(FAST, max_depth=limit)
    fine = [ends_well(config, Spawner(0, depth=depth)) for depth in range(limit + 3)]

    edge = fine.index(False)
    assert fine == [True] * edge + [False] * (len(fine) - edge)
    assert edge in (limit, limit + 1)


def test_s15_the_size_of_a_state_has_a_limit():
    config = replace(FAST, max_state=1000)
    with InlineManager([Filled], config=config) as manager:
        room = 1000 - len(manager._types.runtime_of(Filled("")).describe(Filled("")).state)
        lengths = {}
        for length in range(room - 8, room + 9):
            try:
                assert manager.finish(manager.submit(Filled("x" * length))).result() == length
                lengths[length] = True
            except StateTooLarge as error:
                assert "1000" in str(error)  # noqa: PT017 - the limit is named
                lengths[length] = False
    assert lengths[room - 8]
    assert not lengths[room + 8]
    assert list(lengths.values()) == sorted(lengths.values(), reverse=True)


@dataclass
class Filled(Procedure):
    text: str

    def execute(self, ctx):
        return Status.done(len(self.text))


# ---------------------------------------------------------------------- S16: a worker's process state
class Surroundings(Procedure):
    def execute(self, ctx):
        found = []
        for entry in Path("/proc/self/fd").iterdir():
            with suppress(OSError):  # that of the listing itself is gone
                found.append(str(entry.readlink()))
        leads = os.getpid() in (os.getpgid(0), os.getsid(0))
        return Status.done([leads, found])


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")
def test_s16_a_worker_has_a_process_group_of_its_own_and_no_descriptor_of_the_store(tmp_path):
    with actorproc.ProcedureManager(tmp_path / "store", workers=1, **LIGHT) as manager:
        own_group, descriptors = manager.run(Surroundings())

    assert own_group
    assert not [name for name in descriptors if "store" in name]


# ---------------------------------------------------------------------- S17: secrets
def test_s17_the_signing_key_is_in_its_file_and_nowhere_else(tmp_path, caplog, capsys):
    caplog.set_level(logging.DEBUG)
    path = tmp_path / "store"
    with actorproc.ProcedureManager(path, workers=1, **LIGHT, procedures=[Pickled]) as manager:
        manager.run(Pickled(), id="one")
        shown = repr(manager) + str(manager.health()) + repr(manager.info("one").to_dict()) + repr(manager.steps("one"))
    key = (path / "signing.key").read_bytes()
    for command in (["show", "one"], ["steps", "one"], ["export", "--all"], ["doctor"], ["status"]):
        main(["--path", str(path), *command])
    written = capsys.readouterr()
    text = shown + caplog.text + written.out + written.err

    for form in (key.hex(), repr(key)[2:-1], json.dumps(list(key))):
        assert form not in text
    for file in path.iterdir():
        if file.name != "signing.key" and file.is_file():
            assert key not in file.read_bytes()


def test_s17_the_state_of_a_procedure_is_in_no_log_and_no_list(tmp_path, caplog, capsys):
    caplog.set_level(logging.DEBUG)
    secret = "correct-horse-battery"
    path = tmp_path / "store"
    with actorproc.ProcedureManager(path, workers=1, **LIGHT) as manager:
        manager.run(Filled(secret), id="one")
        listed = (
            repr([row.to_dict() for row in manager.list()]) + str(manager.health()) + manager.metrics().prometheus()
        )
    for command in (["list"], ["status"], ["doctor"], ["locks"]):
        main(["--path", str(path), *command])

    assert secret not in listed + caplog.text + "".join(capsys.readouterr())


# ---------------------------------------------------------------------- S20, S21: what is promised in words
def test_s20_few_dependencies_each_below_its_next_major_version_where_crashes_depend_on_it():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    names = {re.match(r"[a-z]+", line)[0]: line for line in project["dependencies"]}
    assert set(names) == {"pykka", "lmdb", "cloudpickle", "psutil", "msgspec"}
    assert "<" in names["lmdb"]
    assert "<" in names["pykka"]


def test_s21_the_trust_model_says_who_is_inside_how_to_report_and_what_is_not_promised():
    page = (ROOT / "SECURITY.md").read_text()

    for words in (
        "What is trusted",
        "Reporting",
        "90 days",
        "same user",
        "not encrypted",
        "docs/explanation/evidence/security.md",
        "sandbox",
    ):
        assert words in page, words


def test_s21_every_goal_has_a_row_and_every_test_it_names_exists():
    rows = re.findall(r"^\| (S\d+) \|.*$", PAGE_OF_GOALS, re.MULTILINE)
    assert rows == [f"S{number}" for number in range(1, 22)]
    sources = "".join(file.read_text() for file in (ROOT / "tests").rglob("*.py"))
    for name in re.findall(r"`(test_\w+)`", PAGE_OF_GOALS):
        assert f"def {name}(" in sources, name


def test_s5_no_module_of_the_command_line_decodes_a_state_with_the_classes_of_a_user():
    place = ROOT / "actorproc" / "cli"
    modules = (".".join(path.relative_to(place).with_suffix("").parts) for path in place.rglob("*.py"))
    runs_procedures = "service.service"  # of `actorproc run`
    names = {name for name in modules if not name.endswith("__init__") and not name.startswith("demo_app.")}
    names.remove(runs_procedures)
    wanted = ", ".join(f"actorproc.cli.{name}" for name in sorted(names))
    code = f"import sys, {wanted}; print([m for m in ('pickle', 'actorproc.procedure.encoding.signing') if m in sys.modules])"

    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert len(names) > 25
    assert said.stdout.strip() == "[]"
