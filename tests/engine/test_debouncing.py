"""Debounced submits on the real engine: the last one runs, and all handles are of that one run."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta

import pytest

from actorproc import (
    Config,
    DuplicateProcedure,
    InvalidId,
    LockKey,
    Procedure,
    ProcedureFailed,
    StateTooLarge,
    Status,
    StoreReader,
    UsageError,
)
from actorproc.store.tools.isolated_check import examine
from tests.kit.waiting import BOUND, wait_until

LONG = 1000.0
SHORT = 0.2


@dataclass
class Save(Procedure):
    text: str

    def execute(self, ctx):
        return Status.done((self.text, ctx.idempotency_key))


@dataclass
class Waits(Procedure):
    text: str = ""

    def execute(self, ctx):
        return Status.done((self.text, ctx.event)) if ctx.event is not None else Status.wait("go")


@dataclass
class Other(Procedure):
    def execute(self, ctx):
        return Status.done()


class Pickled(Procedure):
    codec = "pickle"

    def execute(self, ctx):
        return Status.done()


@pytest.fixture
def manager(open_manager):
    return open_manager()


def is_sound(path):
    return {found["what"] for found in examine(path)} == {"facts", "table", "done"}


def test_the_last_submit_runs_and_all_handles_are_of_its_run(manager):
    first = manager.submit(Save("a"), debounce="doc", within=LONG)
    second = manager.submit(Save("ab"), debounce="doc", within=timedelta(seconds=LONG), at_most=2 * LONG)
    last = manager.submit(Save("abc"), debounce="doc", within=SHORT)

    assert first.id == second.id == last.id
    assert first.id.startswith("doc:")
    assert {handle.result(BOUND)[0] for handle in (first, second, last)} == {"abc"}
    assert len(manager.list()) == 1


def test_a_submit_behind_the_begin_is_another_run_with_keys_of_its_own(manager):
    text, key = manager.run(Save("a"), debounce="doc", within=SHORT, timeout=BOUND)
    again, other = manager.run(Save("b"), debounce="doc", within=SHORT, timeout=BOUND)

    assert (text, again) == ("a", "b")
    assert key != other


def test_what_waits_says_for_what(manager):
    handle = manager.submit(Save("a"), debounce="doc", within=LONG)

    assert "waits for further submits of the debounce key 'doc', and starts in" in manager.why(handle.id).says
    assert handle.info().debounce == "doc"
    assert handle.info().reason == "for further submits of 'doc' (debounce)"
    assert [info.debounce for info in manager.list()] == ["doc"]
    manager.abort(handle.id)
    with pytest.raises(ProcedureFailed):
        handle.result(BOUND)
    assert handle.info().debounce is None
    assert manager.submit(Save("b"), debounce="doc", within=LONG).id != handle.id


def test_tags_and_locks_are_those_of_the_last_submit(manager, tmp_path):
    manager.submit(Save("a"), debounce="doc", within=LONG, tags=["draft", "eu"], priority=5, owner="ann")
    handle = manager.submit(Save("b"), debounce="doc", within=LONG, tags=["eu", "final"])

    assert (
        [info.id for info in manager.list(tag="final")] == [info.id for info in manager.list(tag="eu")] == [handle.id]
    )
    assert manager.list(tag="draft") == []
    assert (handle.info().priority, handle.info().owner) == (0, None)
    manager.stop()
    assert is_sound(tmp_path / "state")


def test_a_signal_sent_while_it_waits_is_there_when_it_begins(manager):
    handle = manager.submit(Waits("a"), debounce="doc", within=LONG)
    manager.signal(handle.id, "early")
    manager.submit(Waits("b"), debounce="doc", within=SHORT)

    assert handle.result(BOUND) == ("b", "early")


def test_a_long_state_is_replaced_by_a_short_one_and_back(manager, tmp_path):
    for text in ("a" * 3_000_000, "b", "c" * 2_000_000):
        handle = manager.submit(Save(text), debounce="doc", within=SHORT if text[0] == "c" else LONG)
    assert handle.result(BOUND)[0] == "c" * 2_000_000
    manager.stop()
    assert is_sound(tmp_path / "state")


def test_a_state_that_is_too_long_leaves_the_one_that_waits(open_manager):
    manager = open_manager(config=Config(max_state=1000))
    handle = manager.submit(Save("a"), debounce="doc", within=LONG)
    with pytest.raises(StateTooLarge):
        manager.submit(Save("b" * 2000), debounce="doc", within=LONG)
    manager.submit(Save("c"), debounce="doc", within=SHORT)
    assert handle.result(BOUND)[0] == "c"


def test_many_callers_at_once_are_one_run(manager):
    with ThreadPoolExecutor(8) as pool:
        handles = list(
            pool.map(lambda number: manager.submit(Save(str(number)), debounce="doc", within=LONG), range(100))
        )
    last = manager.submit(Save("last"), debounce="doc", within=SHORT)

    assert {handle.id for handle in handles} == {last.id}
    assert last.result(BOUND)[0] == "last"


def test_it_waits_on_in_the_next_life_of_the_manager(open_manager):
    first = open_manager()
    name = first.submit(Save("a"), debounce="doc", within=LONG).id
    first.stop()
    second = open_manager()

    handle = second.submit(Save("b"), debounce="doc", within=SHORT)

    assert handle.id == name
    assert handle.result(BOUND)[0] == "b"


def test_a_paused_manager_begins_none_and_takes_further_submits(manager):
    manager.pause()
    first = manager.submit(Save("a"), debounce="doc", within=0.001)
    wait_until(lambda: first.info().due_at < time.time())
    assert "of the debounce key 'doc', and is due" in manager.why(first.id).says
    second = manager.submit(Save("b"), debounce="doc", within=0.001)
    assert first.id == second.id
    manager.resume()
    assert first.result(BOUND)[0] == "b"


def test_a_reader_of_the_store_sees_the_key(manager, tmp_path):
    name = manager.submit(Save("a"), debounce="doc", within=LONG).id
    with StoreReader(tmp_path / "state") as reader:
        assert reader.info(name).debounce == "doc"
        assert "debounce key 'doc'" in reader.why(name).says
        assert reader.info(name).reason == "for further submits of 'doc' (debounce)"


def test_another_type_under_the_key_is_refused_in_words(manager):
    manager.submit(Save("a"), debounce="doc", within=LONG)
    with pytest.raises(DuplicateProcedure, match=r"is a .*Save; a .*Other cannot take its place\. Use"):
        manager.submit(Other(), debounce="doc", within=LONG)


WRONG = {
    "no time": ({"debounce": "k"}, ValueError, "needs within="),
    "no key": ({"within": 1.0}, ValueError, "within=1.0 is about a debounce"),
    "no key, longest": ({"at_most": 1.0}, ValueError, "at_most=1.0 is about a debounce"),
    "zero": ({"debounce": "k", "within": 0}, ValueError, "more than 0 seconds"),
    "negative": ({"debounce": "k", "within": -1}, ValueError, "within"),
    "not a number": ({"debounce": "k", "within": float("nan")}, ValueError, "within"),
    "for ever": ({"debounce": "k", "within": float("inf")}, ValueError, "within"),
    "text": ({"debounce": "k", "within": "5s"}, TypeError, "within"),
    "too long": ({"debounce": "k", "within": timedelta(days=50_000)}, ValueError, "a hundred years"),
    "longest is shorter": ({"debounce": "k", "within": 2, "at_most": 1}, ValueError, "at_most=1 is less than within=2"),
    "an id": ({"debounce": "k", "within": 1, "id": "x"}, ValueError, "leave id='x' out"),
    "a policy": ({"debounce": "k", "within": 1, "on_existing": "restart"}, ValueError, "leave on_existing= out"),
    "a delay": ({"debounce": "k", "within": 1, "delay": 5}, ValueError, "leave delay= out"),
    "a moment": ({"debounce": "k", "within": 1, "at": 9e9}, ValueError, "leave at= out"),
    "a key with a space": ({"debounce": "a b", "within": 1}, InvalidId, "the key of a debounce, 'a b', is not valid"),
    "an empty key": ({"debounce": "", "within": 1}, InvalidId, "the key of a debounce"),
    "a long key": ({"debounce": "k" * 92, "within": 1}, InvalidId, "at most 91 characters"),
    "a key of another kind": ({"debounce": 7, "within": 1}, InvalidId, "not 7"),
}


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("verb", ["submit", "run"])
def test_options_that_make_no_sense_together_are_refused_in_words(manager, verb, wrong):
    options, error, words = WRONG[wrong]
    with pytest.raises(error, match=words):
        getattr(manager, verb)(Save("a"), **options)
    assert manager.list() == []


def test_the_longest_key_makes_an_id(manager):
    handle = manager.submit(Save("a"), debounce="k" * 91, within=SHORT)
    assert len(handle.id) == 128
    assert handle.result(BOUND)[0] == "a"


def test_a_signed_state_is_refused_in_words(manager):
    with pytest.raises(UsageError, match="has codec = 'pickle': its state is signed for one id"):
        manager.submit(Pickled(), debounce="k", within=1.0)


def test_many_at_once_take_no_debounce(manager):
    with pytest.raises(TypeError, match="debounce"):
        manager.submit_many([Save("a")], debounce="k")


def test_locks_are_asked_for_when_the_wait_is_over(manager):
    @dataclass
    class Locked(Procedure):
        key: str

        def lock_keys(self):
            return [LockKey.write(self.key)]

        def execute(self, ctx):
            return Status.done(self.key)

    first = manager.submit(Locked("a"), debounce="doc", within=LONG)
    assert manager.locks() == []
    manager.submit(Locked("b"), debounce="doc", within=SHORT)
    assert first.result(BOUND) == "b"


@pytest.mark.parametrize("after", ["restart", "fork"])
def test_a_run_that_is_made_again_is_no_wait(manager, after):
    handle = manager.submit(Save("a"), debounce="doc", within=SHORT)
    handle.result(BOUND)
    again = manager.restart(handle.id) if after == "restart" else manager.fork(handle.id, 1)
    assert again.result(BOUND)[0] == "a"
    assert again.info().debounce is None

    other = manager.submit(Save("b"), debounce="doc", within=SHORT)

    assert other.id not in {handle.id, again.id}
    assert other.result(BOUND)[0] == "b"


def test_a_removed_run_leaves_its_key_for_a_new_one(manager):
    handle = manager.submit(Save("a"), debounce="doc", within=SHORT)
    handle.result(BOUND)
    manager.delete(handle.id)
    assert manager.run(Save("b"), debounce="doc", within=SHORT, timeout=BOUND)[0] == "b"


def test_a_tag_that_reads_like_the_index_of_a_key_is_no_run_of_it(manager):
    manager.run(Save("a"), id="spoof", tags=["debounce doc"], timeout=BOUND)
    manager.run(Save("b"), debounce="doc", within=SHORT, timeout=BOUND)
    manager.run(Save("c"), id="spoof2", tags=["debounce doc"], timeout=BOUND)
    assert manager.run(Save("d"), debounce="doc", within=SHORT, timeout=BOUND)[0] == "d"
    assert [info.id for info in manager.list(tag="debounce doc")] == ["spoof", "spoof2"]
