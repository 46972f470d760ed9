"""S3: what a signature covers, and how its key is changed."""

from __future__ import annotations

import hashlib
import itertools
import os
import pickle
import time
from typing import ClassVar

import msgspec
import pytest

import actorproc
from actorproc import Procedure, Status
from actorproc.cli.main import main
from actorproc.model.rows.writes import PutStep
from actorproc.model.states import ProcedureState
from actorproc.procedure.encoding.signing import opened, seal, verified
from actorproc.procedure.encoding.state import StateRefused
from actorproc.procedure.runtime.registry import TypeRegistry
from actorproc.store.lmdb.store import LmdbStore
from actorproc.store.signing_key import FILE_NAME, keep_keys, read_keys, rotate
from actorproc.support.digests import DIGEST_SIZE, content_at, digest_of_parts
from tests.kit.managers import LIGHT
from tests.kit.waiting import wait_until

OLD, NEW = b"o" * 32, b"n" * 32


class Bag(Procedure):
    codec = "pickle"
    what: object = None

    def __init__(self, what=None):
        self.what = what

    def execute(self, ctx):
        if self.what == "asleep":
            self.what = "awake"
            return Status.sleep(3600)
        return Status.done(self.what)


def runtime(key):
    return TypeRegistry(signing_key=key).register(Bag)


def test_s3_a_state_is_signed_for_its_procedure_and_is_refused_in_anothers_place():
    bags = runtime(NEW)
    one, two = bags.describe(Bag(1), id="one"), bags.describe(Bag(1), id="two")

    assert one.state != two.state
    assert bags.load(one.state, "pickle", 1, "one").what == 1
    with pytest.raises(StateRefused, match="belongs to another procedure"):
        bags.load(one.state, "pickle", 1, "two")


class Sack(Bag):
    pass


def test_s3_a_state_is_signed_for_its_type_and_is_refused_as_that_of_another():
    state = runtime(NEW).describe(Bag(1), id="one").state

    with pytest.raises(StateRefused, match="wrong signature"):
        TypeRegistry(signing_key=NEW).register(Sack).load(state, "pickle", 1, "one")


class Trap:
    """Whoever unpickles it is noted."""

    sprung: ClassVar[list[str]] = []

    def __reduce__(self):
        return _note, ("unpickled",)


def _note(word):
    Trap.sprung.append(word)


@pytest.mark.parametrize("key", [None, b"", ()])
def test_s3_without_a_key_nothing_is_decoded(key):
    Trap.sprung.clear()
    state = runtime(NEW).describe(Bag(Trap()), id="one").state
    name = runtime(NEW).type_name

    with pytest.raises(StateRefused, match="no signing key"):
        verified(state, name, "one", key)
    assert Trap.sprung == []
    verified(state, name, "one", NEW)
    assert Trap.sprung == ["unpickled"]  # so it would have been noted


def test_s3_the_newest_key_signs_and_older_ones_verify():
    state = runtime(OLD).describe(Bag(1), id="one").state
    both = runtime((NEW, OLD))

    assert both.load(state, "pickle", 1, "one").what == 1
    renewed = both.describe(Bag(2), id="one").state
    assert runtime(NEW).load(renewed, "pickle", 1, "one").what == 2
    for keys in (NEW, (NEW,), (os.urandom(32), NEW)):
        with pytest.raises(StateRefused, match="a key that this store does not have"):
            runtime(keys).load(state, "pickle", 1, "one")


def test_s3_the_id_of_a_key_is_no_way_around_the_signature():
    good, other = seal(b"body", "purpose", NEW), seal(b"body", "purpose", OLD)

    for forged in (
        good[:8] + other[8:],
        other[:8] + good[8:],
        good[:8],
        good[:40],
        b"",
        good[:8] + b"\0" * 32 + b"body",
    ):
        with pytest.raises(StateRefused):
            opened(forged, "purpose", (NEW, OLD))


def test_s3_the_same_procedure_is_the_same_after_a_rotation():
    """A submit that is repeated, after the key was changed, is still recognised."""
    before, after = (runtime(key).describe(Bag([1, "x"]), id="one") for key in (OLD, (NEW, OLD)))

    assert before.state != after.state
    assert before.digest == after.digest
    assert before.digest != runtime(NEW).describe(Bag([2, "x"]), id="one").digest


def test_s3_a_rotated_file_holds_the_new_key_before_the_old_ones(tmp_path):
    (first,) = keep_keys(tmp_path, OLD)
    keys = rotate(tmp_path)

    assert keys[1:] == (first,)
    assert read_keys(tmp_path) == keys == keep_keys(tmp_path, NEW)
    assert [file.name for file in tmp_path.iterdir()] == [FILE_NAME]
    assert (tmp_path / FILE_NAME).stat().st_mode & 0o777 == 0o600
    assert len(rotate(tmp_path, forget=True)) == 1
    for _ in range(70):
        rotate(tmp_path)
    assert len(read_keys(tmp_path)) == 64


def phase_after_a_swap(path):
    """Put the state of `one` in the place of that of `two`, start a manager, and say what becomes of both."""
    store = LmdbStore(path)
    epoch = store.own()
    record = store.step("two", 1)
    store.commit([PutStep(msgspec.structs.replace(record, state=store.step("one", 1).state))], epoch)
    store.close()
    with actorproc.ProcedureManager(path, workers=1, **LIGHT, procedures=[Bag]) as manager:
        manager.resume()
        assert manager.get("one").result(30) == 1
        deadline = time.monotonic() + 30
        while manager.info("two").phase not in ("parked", "done") and time.monotonic() < deadline:
            time.sleep(0.01)
        return manager.info("two")


def test_s3_a_state_in_the_place_of_anothers_parks_that_procedure(tmp_path):
    path = tmp_path / "store"
    with actorproc.ProcedureManager(path, workers=1, **LIGHT, procedures=[Bag]) as manager:
        manager.pause()
        for name, what in (("one", 1), ("two", 2)):
            manager.submit(Bag(what), id=name)

    info = phase_after_a_swap(path)

    assert info.phase == "parked"
    assert "belongs to another procedure" in info.reason


def test_s3_a_procedure_goes_on_over_a_rotation_of_the_key_and_not_over_one_that_forgets(tmp_path, capsys):
    path = tmp_path / "store"
    with actorproc.ProcedureManager(path, workers=1, **LIGHT, procedures=[Bag]) as manager:
        for name in ("one", "two"):
            manager.submit(Bag("asleep"), id=name, delay=3600)
        assert main(["--path", str(path), "rotate-key"]) != 0  # a manager runs
    before = read_keys(path)

    assert main(["--path", str(path), "rotate-key", "--dry-run"]) == 0
    assert read_keys(path) == before
    assert main(["--path", str(path), "rotate-key"]) == 0
    assert read_keys(path)[1:] == before
    with actorproc.ProcedureManager(path, workers=1, **LIGHT, procedures=[Bag]) as manager:
        assert manager.submit(Bag("asleep"), id="one", delay=3600).id == "one"  # the same
        assert manager.run(Bag(3), id="three") == 3
    assert main(["--path", str(path), "rotate-key", "--forget"]) == 0

    with actorproc.ProcedureManager(path, workers=1, **LIGHT, procedures=[Bag]) as manager:
        assert manager.info("three").state is ProcedureState.SUCCESS
        assert manager.run(Bag(4)) == 4
    assert "a new key signs" in capsys.readouterr().out


LENGTHS = (65_536, 2 * 1024 * 1024 - 1, 2 * 1024 * 1024, 5 * 1024 * 1024 + 17)


@pytest.mark.parametrize("length", LENGTHS)
def test_s3_a_long_state_is_covered_by_its_signature_through_its_digest(length):
    """Every part of it: what the signature is by, the key's id, the signature, the digest, and the content."""
    state = runtime(NEW).describe(Bag(os.urandom(length)), id="one").state
    assert runtime((OLD, NEW)).load(state, "pickle", 1, "one").what is not None

    places = [
        0,
        5,
        12,
        13,
        20,
        21,
        52,
        53,
        84,
        85,
        90,
        len(state) // 3,
        len(state) // 2,
        len(state) - 20,
        len(state) - 1,
    ]
    for place in places:
        changed = bytearray(state)
        changed[place] ^= 1
        with pytest.raises(StateRefused):
            runtime(NEW).load(bytes(changed), "pickle", 1, "one")
    for cut in (1, 1024 * 1024):
        with pytest.raises(StateRefused):
            runtime(NEW).load(state[:-cut], "pickle", 1, "one")
    with pytest.raises(StateRefused):
        runtime(NEW).load(state, "pickle", 1, "two")
    with pytest.raises(StateRefused):
        runtime(OLD).load(state, "pickle", 1, "one")


@pytest.mark.parametrize("length", LENGTHS)
def test_s3_the_digest_of_a_long_state_tells_states_apart_under_any_key(length):
    content = os.urandom(length)
    other = bytearray(content)
    other[length // 2] ^= 1
    first, same, different = (
        runtime(key).describe(Bag(what), id="one")
        for key, what in ((OLD, content), ((NEW, OLD), content), (NEW, bytes(other)))
    )

    assert first.state != same.state
    assert first.digest == same.digest != different.digest


def test_s3_the_digest_of_bytes_does_not_depend_on_how_they_are_divided():
    content = os.urandom(3 * 1024 * 1024 + 5)
    for cuts in ((1,), (1024 * 1024,), (1024 * 1024 - 1, 1024 * 1024 + 1), (7, 7, 2 * 1024 * 1024)):
        edges = [0, *cuts, len(content)]
        parts = [content[low:high] for low, high in itertools.pairwise(edges)]
        assert digest_of_parts(parts) == digest_of_parts([content]) == hashlib.sha256(b"pickle\xc0" + content).digest()


def test_s3_what_was_signed_as_bytes_is_not_taken_for_what_was_signed_by_its_digest():
    """And the other way round: the same key signs both, for the same procedure."""
    purpose = f"state\0{Bag.type_name}\0one"
    state = runtime(NEW).describe(Bag(os.urandom(100_000)), id="one").state
    head, digest = state[5:53], state[53:85]

    assert head[:8] == b"ap-dgst1"
    for before in (b"", b"sha256\0", b"\0sha256\0", b"sha256 of ", b"sha256 of " + purpose.encode() + b"\0"):
        with pytest.raises(StateRefused):  # the digest, as if it were the pickle that was signed
            opened(head[8:] + before + digest, purpose, NEW)
        forged = seal(before + digest, purpose, NEW)
        with pytest.raises(StateRefused):
            opened(b"ap-dgst1" + forged[:40] + digest + state[85:], purpose, NEW)
    assert bytes(opened(seal(b"what is signed", purpose, NEW), purpose, NEW)) == b"what is signed"
    assert bytes(opened(state[5:], purpose, NEW)) == state[85:]


def test_s3_a_state_signed_in_full_as_before_is_still_accepted():
    fields = pickle.dumps({"what": b"x" * 100_000}, protocol=5)
    sealed = seal(fields, f"state\0{Bag.type_name}\0one", NEW)

    loaded = runtime(NEW).load(b"\xc6" + len(sealed).to_bytes(4) + sealed, "pickle", 1, "one")

    assert loaded.what == b"x" * 100_000


def with_other_content(state):
    return state[:-50] + b"!" + state[-49:]


def with_other_content_and_digest(state):
    at = content_at(state)
    content = with_other_content(state)[at:]
    return state[: at - DIGEST_SIZE] + digest_of_parts([content]) + content


@pytest.mark.parametrize("change", [with_other_content, with_other_content_and_digest])
def test_s3_a_long_state_that_was_changed_in_the_store_parks_its_procedure(change, tmp_path):
    path = tmp_path / "store"
    with actorproc.ProcedureManager(path, workers=1, **LIGHT, procedures=[Bag]) as manager:
        manager.pause()
        for name in ("one", "two"):
            manager.submit(Bag(name.encode() * 1_000_000), id=name)

    store = LmdbStore(path)
    epoch = store.own()
    record = store.step("two", 1)
    store.commit([PutStep(msgspec.structs.replace(record, state=change(record.state)))], epoch)
    store.close()
    with actorproc.ProcedureManager(path, workers=1, **LIGHT, procedures=[Bag]) as manager:
        manager.resume()
        assert manager.get("one").result(30) == b"one" * 1_000_000
        wait_until(lambda: manager.info("two").phase == "parked")
        assert "wrong signature" in manager.info("two").reason
