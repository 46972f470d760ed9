"""Whatever comes through the socket: answers are typed errors, and the manager goes on."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from msgspec.structs import replace

import actorproc
from actorproc import Procedure, Status
from actorproc.control.methods import METHODS, REQUESTS
from actorproc.control.wire import (
    HEADER,
    SOCKET_FILE,
    CallAnswer,
    RemoteCall,
    decode_as,
    encode,
    error_from,
    framed,
    read_frame,
)
from actorproc.errors import ActorprocError, DuplicateProcedure, StorageUnavailable, UsageError
from actorproc.model.messages.definitions import Definition
from actorproc.model.policies import LockKey, LockMode, StepLimits, TypeMeta
from actorproc.model.rows.record_parts import DebounceTerms
from actorproc.model.rows.records import IdReuse, NewProcedure, ProcedureRecord
from tests.kit.managers import LIGHT

BOUND = 30.0
pytestmark = pytest.mark.processes
FEW = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@dataclass
class Add(Procedure):
    a: int
    b: int

    def execute(self, ctx):
        return Status.done(self.a + self.b)


class Waits(Procedure):
    def execute(self, ctx):
        return Status.wait("never")


@pytest.fixture(scope="module")
def manager():
    with tempfile.TemporaryDirectory() as place:
        with actorproc.ProcedureManager(Path(place) / "state", workers=1, **LIGHT) as manager:
            manager.submit(Waits(), "w")
            yield manager
        with actorproc.ProcedureManager(
            Path(place) / "state", procedures=[Waits], workers=1
        ) as again:  # it all can be read back
            assert again.run(Add(1, 1)) == 2


@contextlib.contextmanager
def connected(manager):
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(BOUND)
        sock.connect(os.fspath(Path(manager._path) / SOCKET_FILE))
        read_frame(sock, 10_000)
        yield sock


def asked(sock: socket.socket, call: RemoteCall) -> CallAnswer:
    sock.sendall(framed(call))
    while True:
        answer: CallAnswer = decode_as(read_frame(sock, 100_000_000), CallAnswer)
        if answer.kind != "change":
            return answer


def is_well(manager) -> bool:
    return manager.run(Add(2, 3)) == 5 and manager.health().status == "running"


ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=20)
    | st.binary(max_size=20),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=8), inner, max_size=5),
    max_leaves=12,
)
NAMES = st.sampled_from([*METHODS, *REQUESTS, "stop", "__init__", ""]) | st.text(max_size=10)
KINDS = st.sampled_from(["request", "call", "end_of", "watch", "unwatch", "exec", ""])
# What would really change the number of workers, or copy the store to wherever the text says, is tried elsewhere.
_APART = ("Resized", "backup", "compact")


@FEW
@given(st.binary(min_size=1, max_size=200), st.booleans())
def test_bytes_without_sense(manager, data, in_frame):
    with connected(manager) as sock, contextlib.suppress(OSError):
        sock.sendall(HEADER.pack(len(data)) + data if in_frame else data)
        sock.shutdown(socket.SHUT_WR)
        while sock.recv(65536):
            pass
    assert manager.health().status == "running"


@FEW
@given(KINDS, NAMES.filter(lambda name: name not in _APART), ANYTHING, st.integers(0, 2**31))
def test_calls_that_mean_nothing(manager, kind, name, value, number):
    with connected(manager) as sock:
        sock.sendall(framed(RemoteCall(number, kind, name, msgspec.Raw(encode(value)))))
        answer = asked(sock, RemoteCall(number + 1, "call", "manager_status", msgspec.Raw(encode(()))))
        while answer.number != number + 1:
            if answer.kind == "error":
                assert isinstance(error_from(answer.body), ActorprocError | TypeError | ValueError)
            answer = decode_as(read_frame(sock, 100_000_000), CallAnswer)
    assert manager.health().status == "running"


@pytest.mark.parametrize("unsendable", ["\udcff", object(), 2**70])
def test_an_answer_that_cannot_be_sent_is_an_error_for_who_asked(manager, monkeypatch, unsendable):
    monkeypatch.setattr(manager._tree.pool, "logs", lambda _: unsendable)
    with connected(manager) as sock:
        answer = asked(sock, RemoteCall(1, "call", "logs", msgspec.Raw(encode(("w",)))))

    assert (answer.number, answer.kind) == (1, "error")
    with pytest.raises(ActorprocError, match="the answer cannot be sent"):
        raise error_from(answer.body)


def test_an_error_that_quotes_a_name_that_is_no_utf8_is_told(manager, monkeypatch):
    error = StorageUnavailable("writing to /\udcff failed")
    error.path, error.number = "/\udcff", 2**70

    def fail(_):
        raise error

    monkeypatch.setattr(manager._tree.pool, "logs", fail)
    with connected(manager) as sock:
        answer = asked(sock, RemoteCall(1, "call", "logs", msgspec.Raw(encode(("w",)))))

    with pytest.raises(StorageUnavailable, match=r"writing to /\\udcff failed"):
        raise error_from(answer.body)


IDS = st.text(max_size=200) | st.just("x" * 600) | st.sampled_from(["w", "nobody", ""])
ODD_NUMBERS = st.integers(-(2**63), 2**63 - 1) | st.sampled_from([0, -1])
ODD_FLOATS = st.none() | st.floats()
NEWS = st.builds(
    NewProcedure,
    id=IDS,
    type_name=st.sampled_from([Add.type_name, Waits.type_name, "", "t" * 3000]) | st.text(max_size=20),
    version=ODD_NUMBERS,
    state=st.binary(max_size=40),
    digest=st.binary(max_size=100),
    codec=st.text(max_size=10),
    fresh=st.booleans(),
    locks=st.lists(st.builds(LockKey, IDS, st.sampled_from(LockMode)), max_size=2).map(tuple),
    poisons=st.lists(IDS, max_size=2).map(tuple),
    unit=st.none() | IDS,
    owner=st.none() | st.text(max_size=2000),
    priority=ODD_NUMBERS,
    due_at=ODD_FLOATS,
    deadline=ODD_FLOATS,
    tags=st.lists(IDS, max_size=2).map(tuple),
    limits=st.none() | st.builds(StepLimits, wall_time=ODD_FLOATS, memory=st.none() | ODD_NUMBERS, threads=ODD_NUMBERS),
    limit_keys=st.lists(IDS, max_size=2).map(tuple),
    reuse=st.none()
    | st.builds(
        IdReuse, st.sampled_from(["error", "restart-failed", "restart"]), st.binary(max_size=9) | st.just(b"8 bytes!")
    ),
    debounce=st.none()
    | st.builds(DebounceTerms, IDS, ODD_FLOATS, ODD_FLOATS, st.binary(max_size=9) | st.just(b"8 bytes!")),
)


def _submit_of(**fields: Any) -> RemoteCall:
    """A submit of `Add` as a foreign process may write it."""
    new = NewProcedure(type_name=Add.type_name, state=encode({"a": 1, "b": 2}), digest=b"d", **fields)
    return RemoteCall(1, "request", "Submitted", msgspec.Raw(encode({"procedures": (new,), "reply": 0})))


@pytest.mark.parametrize("token", [b"", b"7 bytes", b"9 bytes!!", b"twice as long!!!"])
def test_a_token_of_another_length_is_refused(manager, token):
    with connected(manager) as sock:
        answer = asked(sock, _submit_of(id="tokens", reuse=IdReuse("restart", token)))
    with pytest.raises(UsageError, match=f"has {len(token)} bytes, not 8"):
        raise error_from(answer.body)


SOUND = DebounceTerms("k", 5.0, 0.0, b"8 bytes!")
POOR_DEBOUNCES = {
    "a key that is no id": ({"debounce": replace(SOUND, key="a b")}, "the key of a debounce"),
    "no wait": ({"debounce": replace(SOUND, within=0.0)}, "more than 0 seconds"),
    "a wait without end": ({"debounce": replace(SOUND, within=float("inf"))}, "within"),
    "a wait that is no number": ({"debounce": replace(SOUND, within=float("nan"))}, "within"),
    "a longest wait below it": ({"debounce": replace(SOUND, at_most=1.0)}, "at_most"),
    "a token that is too short": ({"debounce": replace(SOUND, token=b"7 bytes")}, "a token that it cannot have"),
    "another id": ({"debounce": SOUND, "id": "x"}, "has an id"),
    "a signed state": ({"debounce": SOUND, "codec": "pickle"}, "has an id, a state"),
    "a moment": ({"debounce": SOUND, "due_at": 5.0}, "leave at= out"),
    "a policy": ({"debounce": SOUND, "reuse": IdReuse("error", b"8 bytes!")}, "leave on_existing= out"),
}


@pytest.mark.parametrize("poor", POOR_DEBOUNCES)
def test_a_debounce_that_no_client_of_ours_sends_is_refused(manager, poor):
    fields, words = POOR_DEBOUNCES[poor]
    with connected(manager) as sock:
        answer = asked(sock, _submit_of(**{"id": "k:1"} | fields))
    with pytest.raises((UsageError, ValueError, TypeError), match=words):
        raise error_from(answer.body)
    assert all(info.debounce is None for info in manager.list())


def test_several_debounced_procedures_of_one_submit_are_refused(manager):
    new = NewProcedure(id="k:1", type_name=Add.type_name, state=encode({"a": 1, "b": 2}), digest=b"d", debounce=SOUND)
    body = {"procedures": (new, replace(new, id="k:2")), "reply": 0}
    with connected(manager) as sock:
        answer = asked(sock, RemoteCall(1, "request", "Submitted", msgspec.Raw(encode(body))))
    with pytest.raises(UsageError, match="k:1 is debounced, so it is submitted alone"):
        raise error_from(answer.body)


def test_an_id_that_a_foreign_process_calls_fresh_is_looked_up_all_the_same(manager):
    manager.run(Add(2, 2), id="known", timeout=BOUND)
    with connected(manager) as sock:
        answer = asked(sock, _submit_of(id="known", fresh=True))
    with pytest.raises(DuplicateProcedure):
        raise error_from(answer.body)
    assert manager.get("known").result(BOUND) == 4


@FEW
@given(st.sampled_from([name for name in REQUESTS if name not in _APART]), st.data())
def test_requests_of_the_right_types_with_the_wrong_values(manager, name, data):
    fields: dict[str, Any] = {
        "id": data.draw(IDS), "target": data.draw(IDS), "path": data.draw(IDS), "payload": data.draw(st.binary(max_size=20)),
        "reason": data.draw(st.none() | st.text(max_size=2000)), "dedup": data.draw(st.none() | IDS),
        "procedures": data.draw(st.lists(NEWS, max_size=2)), "reply": data.draw(ODD_NUMBERS),
        "force": data.draw(st.booleans()),
    }  # fmt: skip
    wanted = {key: value for key, value in fields.items() if key in REQUESTS[name].__struct_fields__}
    with connected(manager) as sock:
        answer = asked(sock, RemoteCall(1, "request", name, msgspec.Raw(encode(wanted))))
    assert answer.kind in ("ok", "error")
    if answer.kind == "error":
        assert isinstance(error_from(answer.body), ActorprocError | TypeError | ValueError)
    assert manager.health().status == "running"


HEADS = st.builds(
    ProcedureRecord, id=IDS, type_name=IDS, version=ODD_NUMBERS, root=st.sampled_from(["w", "x"]) | IDS, parent=st.none() | IDS,
    seq=ODD_NUMBERS, step=ODD_NUMBERS, rolling=st.booleans(), undoing=st.sampled_from([0, 1]), due_at=ODD_FLOATS,
)  # fmt: skip
METAS = st.builds(TypeMeta, type_name=IDS, version=ODD_NUMBERS, crashes=ODD_NUMBERS, wall_time=ODD_FLOATS)


@FEW
@given(st.lists(HEADS, max_size=3), st.builds(Definition, METAS, pickled=st.none() | st.binary(max_size=20)))
def test_heads_and_classes_that_nobody_has(manager, heads, definition):
    with connected(manager) as sock:
        for name, body in (("describe", (tuple(heads),)), ("learn", (definition,)), ("logs", ("x" * 600,))):
            answer = asked(sock, RemoteCall(1, "call", name, msgspec.Raw(encode(body))))
            assert answer.kind in ("ok", "error")
    assert manager.health().status == "running"


@pytest.mark.parametrize("bound", [0, -5, 2**62])
def test_watches_with_odd_bounds_and_ends_of_odd_ids(manager, bound):
    with connected(manager) as sock:
        sock.sendall(
            framed(RemoteCall(1, "watch", "", msgspec.Raw(encode((None, None, None, True, True, bound, None)))))
        )
        assert is_well(manager)
        for name in ("x" * 600, "", "\x00"):
            answer = asked(sock, RemoteCall(2, "end_of", "", msgspec.Raw(encode(name))))
            assert answer.kind == "error"
    assert is_well(manager)


@pytest.mark.parametrize("workers", [0, -1, 10**9])
def test_nobody_is_given_an_absurd_number_of_workers(manager, workers):
    with connected(manager) as sock:
        body = {"workers": workers, "max_workers": None, "reply": 1}
        assert asked(sock, RemoteCall(1, "request", "Resized", msgspec.Raw(encode(body)))).kind == "error"
    assert len(manager.workers()) == 1


def test_who_stops_in_the_middle_of_a_frame_holds_up_nobody(manager):
    with contextlib.ExitStack() as stack:
        for _ in range(20):
            sock = stack.enter_context(connected(manager))
            sock.sendall(struct.pack(">I", 1000) + b"only this")
        assert is_well(manager)
        with actorproc.ProcedureClient(manager._path) as client:
            assert client.run(Add(1, 2)) == 3


def test_who_floods_without_reading_waits_and_nobody_else(manager):
    stop = threading.Event()
    call = framed(RemoteCall(1, "call", "metrics", msgspec.Raw(encode(()))))
    pause = framed(RemoteCall(1, "request", "AbortRequested", msgspec.Raw(encode({"id": "nobody", "reply": 1}))))

    def flood(sock):
        with contextlib.suppress(OSError):
            while not stop.is_set():
                sock.sendall((call + pause) * 50)

    with contextlib.ExitStack() as stack:
        threads = []
        for _ in range(3):
            sock = stack.enter_context(connected(manager))
            sock.settimeout(1.0)
            threads.append(threading.Thread(target=flood, args=(sock,)))
            threads[-1].start()
        try:
            for _ in range(5):
                assert is_well(manager)
            with actorproc.ProcedureClient(manager._path) as client:
                assert client.run(Add(1, 2)) == 3
        finally:
            stop.set()
            for thread in threads:
                thread.join(BOUND)
    assert is_well(manager)
