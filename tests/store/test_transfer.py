"""A tree that goes into another store meets what is there already: poisoned keys, kept signals, an order of tickets."""

from __future__ import annotations

import json

from actorproc import Secret
from actorproc.core.coordinator import Coordinator
from actorproc.model.ids import WorkerId
from actorproc.model.messages.events import NoteMade, Signalled, TypeRegistered, WorkerReady
from actorproc.model.messages.outcomes import StepRequests, Suspended, Waited
from actorproc.model.policies import LockKey, TypeMeta
from actorproc.model.rows.asks import AskKey, opened
from actorproc.model.rows.records import EventRecord, PoisonRecord
from actorproc.model.rows.writes import PutEvent, PutPoison
from actorproc.procedure.runtime.engine_side import encode_payload
from actorproc.procedure.values.redaction import redacted
from actorproc.store.lmdb.store import LmdbStore
from actorproc.store.memory import MemoryStore
from actorproc.store.tools import transfer
from actorproc.store.tools.transfer import bring_in, take_out
from tests.core.harness import CoreHarness, boom

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
