"""A tree that goes into another store meets what is there already: poisoned keys, kept signals, an order of tickets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from actorproc import Secret
from actorproc.core.coordinator import Coordinator
from actorproc.core.lifecycle.debounce import run_of
from actorproc.errors import NotAllowed
from actorproc.model.ids import WorkerId, debounce_name
from actorproc.model.messages.commands import Reply
from actorproc.model.messages.events import NoteMade, Signalled, Submitted, TypeRegistered, WorkerReady
from actorproc.model.messages.outcomes import Finished, StepRequests, Suspended, Waited
from actorproc.model.policies import LockKey, TypeMeta
from actorproc.model.rows.asks import AskKey, opened
from actorproc.model.rows.records import EventRecord, PoisonRecord
from actorproc.model.rows.writes import PutEvent, PutPoison, Write
from actorproc.procedure.runtime.engine_side import encode_payload
from actorproc.procedure.values.redaction import redacted
from actorproc.store.home import home_of
from actorproc.store.lmdb.store import LmdbStore
from actorproc.store.memory import MemoryStore
from actorproc.store.tools import transfer
from actorproc.store.tools.transfer import bring_in, take_out
from tests.core.harness import CoreHarness, boom
from tests.core.test_debounce import WITHIN, debounced, pass_time, submit, submitted
from tests.databases import new_store

KEY = LockKey.write("k")


def _store_of(harness: CoreHarness) -> MemoryStore:
    store = MemoryStore()
    store.commit(harness.writes, store.own())
    return store


def _moved(source: MemoryStore, root: str, target: MemoryStore) -> None:
    epoch = target.own()
    assert bring_in(target, [take_out(source, root)], lambda writes: target.commit(writes, epoch)) == [root]


def test_a_tree_takes_its_part_of_a_poisoned_key_along_also_when_it_was_the_second_to_poison_it() -> None:
    harness = CoreHarness(2)
    harness.submit(harness.new("first", poisons=("k",)), harness.new("second", poisons=("k",)))
    harness.answer("first", boom())
    harness.answer("second", boom())
    target = MemoryStore()

    _moved(_store_of(harness), "second", target)

    assert [(poison.by, poison.root, poison.others) for poison in target.poisons()] == [("second", "second", ())]


def test_a_key_that_is_poisoned_in_both_stores_stays_so_for_those_of_both() -> None:
    harness = CoreHarness(2)
    harness.submit(harness.new("a", poisons=("k",)))
    harness.answer("a", boom())
    target = MemoryStore()
    here = PoisonRecord("k", "b", "b", 1.0, "its rollback gave up")
    target.commit([PutPoison(here)], target.own())

    _moved(_store_of(harness), "a", target)

    (poison,) = target.poisons()
    assert (poison.by, poison.reason, poison.others) == ("b", here.reason, (("a", "a"),))


def test_signals_that_were_kept_for_an_id_before_its_tree_came_are_not_overwritten() -> None:
    harness = CoreHarness(1)
    harness.submit(harness.new("a"))
    source = _store_of(harness)
    source.commit([PutEvent(EventRecord("a", 1, b"there", None, 1.0))], source.own())
    target = MemoryStore()
    target.commit([PutEvent(EventRecord("a", 1, b"here", None, 1.0))], target.own())

    _moved(source, "a", target)

    assert [event.payload for event in target.events("a")] == [b"here", b"there"]


def test_what_an_undo_and_a_step_behind_one_without_a_record_remembered_comes_along() -> None:
    harness = CoreHarness(1, rollback_supported=True)
    harness.submit(harness.new("a", unit=""))
    harness.handle(NoteMade(harness.inbox["a"].token, "old", b"second", request=1, step=2))
    harness.answer("a", boom())
    harness.handle(NoteMade(harness.inbox["a"].token, "rollback()\nold", b"undo", request=2))
    target = MemoryStore()

    _moved(_store_of(harness), "a", target)

    assert {note.key: note.value for note in target.notes("a")} == {"old": b"second", "rollback()\nold": b"undo"}
    assert target.notes("a", 1) == []


def test_those_who_wait_for_a_key_stand_in_the_same_order_in_the_other_store() -> None:
    harness = CoreHarness(3)
    harness.submit(harness.new("p", locks=(KEY,)))
    children = (harness.new("one", locks=(KEY,)), harness.new("two"), harness.new("three", locks=(KEY,)))
    harness.answer("p", Suspended(state=b"", children=children))
    source = _store_of(harness)
    tree = take_out(source, "p")
    for row in tree["procedures"]:  # as if the second had asked when the third stood in line already
        row["ticket"] = {"p": 1, "one": 2, "two": 4, "three": 3}[row["id"]]
    target = MemoryStore()
    epoch = target.own()

    bring_in(target, [tree], lambda writes: target.commit(writes, epoch))

    heads = sorted(target.scan(), key=lambda head: head.ticket)
    assert [head.id for head in heads] == ["p", "one", "three", "two"]
    core, _ = Coordinator.restore(target.load(), 0.0)
    core.handle(TypeRegistered(TypeMeta(type_name="T")), 0.0)
    core.handle(WorkerReady(WorkerId(0, 1)), 0.0)
    assert core.in_hand == 1


def _asked() -> tuple[CoreHarness, bytes]:
    """A procedure that has answered one ask, runs with a second one, and has a third one to come."""
    harness, secret = CoreHarness(1), encode_payload(Secret("hunter2"))
    harness.submit(harness.new("a"))
    for number, name in enumerate(("go", "go", "later")):
        harness.handle(Signalled("a", secret, 7, ask=AskKey(name, f"{number}")))
    harness.answer("a", Waited(state=b"", event="go"))
    harness.answer("a", Waited(state=b"", event="go", requests=StepRequests(reply=secret)))
    return harness, secret


def test_asks_and_replies_come_along_and_what_is_secret_in_them_where_it_is_to_be_shown() -> None:
    harness, secret = _asked()
    source = _store_of(harness)
    shown, hidden = (json.loads(json.dumps(take_out(source, "a", hide))) for hide in (None, redacted))
    for tree, is_secret in ((shown, False), (hidden, True)):
        target = MemoryStore()
        epoch = target.own()

        bring_in(target, [tree], lambda writes, target=target, epoch=epoch: target.commit(writes, epoch))

        head = target.procedure("a")
        assert head is not None
        kept = [row.payload for row in target.events("a") if not row.taken]
        sent = [opened(payload) for payload in (head.payload, target.steps("a")[2].event, *kept) if payload]
        assert [ask for ask, _ in sent] == [AskKey("go", "1"), AskKey("go", "0"), AskKey("later", "2")]
        values = [value for _, value in sent] + [row.value for row in target.replies("a", AskKey("go", "0"))]
        assert values == [redacted(secret) if is_secret else secret] * 4
        core, _ = Coordinator.restore(target.load(), 0.0)
        assert [core.knows_ask("a", ask) for ask, _ in sent] == [True] * 3


class Crowd(NamedTuple):
    """Procedures of which each has something that is looked up by an index, or known again when it is sent again."""

    writes: list[Write]
    waits: str
    """Root that waits for further submits of the key "doc"."""
    ended: str
    """Root that has run for the key "ended"."""
    token: bytes
    """Token of the first submit of that one."""


FOUND = {
    "tag of a step": ({"tag": "stage=paid"}, ["f"]),
    "tag that went": ({"tag": "new"}, []),
    "field of a step": ({"where": ("customer=43", "note=x")}, ["f"]),
    "field of a child": ({"where": ("part=7",)}, ["f-1"]),
    "field as it was": ({"where": ("customer=42",)}, []),
}
ASK = AskKey("go", "1")


def crowd(key: str = "ended") -> Crowd:
    """The crowd in a store of its own; `key` is that of the run that has ended."""
    harness = CoreHarness(4)
    harness.submit(harness.new("f", tags=("new", "stage=begun"), searchable=("customer=42", "note")))
    changes = StepRequests(tags=(("stage", "paid"), ("new", None)), searchable=("customer=43", "note=x"))
    child = harness.new("f-1", searchable=("part=7",))
    harness.answer("f", Suspended(state=b"1", children=(child,), requests=changes))
    harness.answer("f-1", Waited(state=b"1", event="go", requests=StepRequests(searchable=("part=7",))))
    harness.submit(harness.new("asked"))
    harness.handle(Signalled("asked", b"price", 7, ask=ASK))
    harness.answer("asked", Waited(state=b"", event="go"))
    harness.answer("asked", Waited(state=b"", event="go", requests=StepRequests(reply=b"42")))
    first = debounced(harness, b"1", key=key)
    submit(harness, first)
    ended = submitted(harness, b"2", key=key)
    pass_time(harness, 10 * WITHIN)
    harness.answer(ended, Finished(state=b"2"))
    waits = submitted(harness, b"1", key="doc")
    assert submitted(harness, b"2", key="doc") == waits
    assert first.debounce is not None
    return Crowd(harness.writes, waits, ended, first.debounce.token)


def check_crowd(store: Any, crowd: Crowd) -> None:
    """Check that a store that the crowd came into finds and knows all of it."""
    for filters, ids in FOUND.values():
        assert [head.id for head in store.scan(**filters)] == ids, filters
    assert sorted(store.searchable_fields()) == ["customer", "note", "part"]
    assert store.newest_debounced("doc") == crowd.waits
    assert store.newest_debounced("ended") == crowd.ended
    assert run_of(store.procedure(crowd.ended), crowd.token) == crowd.ended
    assert [reply.value for reply in store.replies("asked", ASK)] == [b"42"]
    core, _ = Coordinator.restore(store.load(), 0.0)
    assert core.knows_ask("asked", ASK)
    assert run_of_next(core) == crowd.waits


def run_of_next(core: Coordinator) -> str:
    """The root that a further submit of the key "doc" is for; it must be in memory."""
    core.handle(TypeRegistered(TypeMeta(type_name="T")), 0.0)
    event = Submitted((debounced(CoreHarness(), b"3", key="doc"),), 1)
    assert debounce_name("doc") not in core.missing(event, 0.0)
    (found,) = (command.value for command in core.handle(event, 0.0).commands if isinstance(command, Reply))
    return str(found[0])


def store_of_kind(kind: str, path: Path) -> Any:
    if kind == "memory":
        return MemoryStore()
    return home_of(new_store() if kind == "database" else path).store()


@pytest.mark.parametrize("way", ["memory to memory", "directory to database", "database to directory"])
def test_fields_tags_debounces_and_asks_are_found_where_an_export_came_in(way, tmp_path) -> None:
    kinds, there = way.split(" to "), crowd()
    source, target = (store_of_kind(kind, tmp_path / str(place)) for place, kind in enumerate(kinds))
    source.commit(there.writes, source.own(), 1)
    check_crowd(source, there)
    trees = [json.loads(json.dumps(take_out(source, root))) for root in ("f", "asked", there.ended, there.waits)]
    source.close()
    epoch = target.own()

    bring_in(target, trees, lambda writes: target.commit(writes, epoch))

    check_crowd(target, there)
    target.close()


@pytest.mark.parametrize("way", ["from the store", "from the same file", "that has ended"])
@pytest.mark.parametrize("is_tried", [False, True])
def test_of_two_roots_that_wait_for_submits_of_one_key_the_second_does_not_come_in(way, is_tried) -> None:
    source, target, here = MemoryStore(), MemoryStore(), crowd()
    epoch = target.own()
    if way != "from the same file":
        target.commit(here.writes, epoch)
    there, other = crowd("doc"), crowd()
    source.commit(there.writes, source.own())
    trees = [take_out(source, there.ended if way == "that has ended" else there.waits)]
    second = MemoryStore()
    second.commit(other.writes, second.own())
    trees += [take_out(second, other.waits)] if way == "from the same file" else []
    before = str(target._rows._tables)
    commit = None if is_tried else lambda writes: target.commit(writes, epoch)

    if way == "that has ended":
        assert bring_in(target, trees, commit) == [there.ended]
        assert run_of_next(Coordinator.restore(target.load(), 0.0)[0]) == here.waits
        return
    with pytest.raises(NotAllowed, match=r"waits for further submits of 'doc' \(debounce\), and so does doc:\d+ here"):
        bring_in(target, trees, commit)
    assert str(target._rows._tables) == before


def test_a_backup_has_asks_and_replies(tmp_path) -> None:
    harness, _ = _asked()
    source = LmdbStore(tmp_path / "state", map_size=1 << 24)
    source.commit(harness.writes, source.own())
    source.backup(tmp_path / "backup")
    replies, events = source.replies("a"), source.events("a")
    source.close()
    copy = LmdbStore(tmp_path / "backup", map_size=1 << 24)
    copy.own()

    assert copy.replies("a") == replies
    assert copy.events("a") == events
    assert [row.ask for row in replies] == ["0"]
    copy.close()


def test_every_value_of_a_user_is_hidden_in_an_export():
    ours = {"digest", "trace"}  # they hold no value
    kinds = transfer._KINDS.values()
    found = {
        kind.__name__: left
        for kind in kinds
        if (left := {name for name, hint in kind.__annotations__.items() if "bytes" in str(hint)}
            - set(transfer._VALUES.get(kind, ())) - ours)
    }  # fmt: skip

    assert found == {}
