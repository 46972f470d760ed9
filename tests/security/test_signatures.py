"""S3: what a signature covers, and how its key is changed."""

from __future__ import annotations

import os
import time
from typing import ClassVar

import msgspec
import pytest

import actorproc
from actorproc import Procedure, Status
from actorproc.cli.main import main
from actorproc.model.states import ProcedureState
from actorproc.model.writes import PutStep
from actorproc.procedure.registry import TypeRegistry
from actorproc.procedure.signing import opened, seal, verified
from actorproc.procedure.state import StateRefused
from actorproc.signing_key import FILE_NAME, keep_keys, read_keys, rotate
from actorproc.store.lmdb import LmdbStore
from tests.kit.managers import LIGHT

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
