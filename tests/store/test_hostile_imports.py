"""What is imported comes from elsewhere: one tree, whole and by itself, or nothing of the file is taken."""

from __future__ import annotations

import base64
import json
import math
from typing import Any

import pytest

from actorproc.cli.main import main
from actorproc.errors import UsageError
from actorproc.model.messages.outcomes import Suspended
from actorproc.model.policies import LockKey
from actorproc.store.memory import MemoryStore
from actorproc.store.rows.layout import LARGEST
from actorproc.store.tools.transfer import bring_in, judged, take_out
from tests.core.harness import CoreHarness

Tree = dict[str, Any]


def exported() -> Tree:
    """A parent that waits for two children; it holds a lock, and can be undone."""
    harness = CoreHarness(1, rollback_supported=True)
    harness.submit(harness.new("a", locks=(LockKey.write("k"),), unit=""))
    harness.answer("a", Suspended(state=b"", children=(harness.new("b"), harness.new("c"))))
    source = MemoryStore()
    source.commit(harness.writes, source.own())
    tree: Tree = json.loads(json.dumps(take_out(source, "a")))
    assert tree["locks"]
    assert tree["undo"]
    return tree


def owned_by_another() -> MemoryStore:
    """A store in which a stranger's procedure is."""
    harness = CoreHarness(1)
    harness.submit(harness.new("victim"))
    store = MemoryStore()
    store.commit(harness.writes, store.own())
    return store


def rows_of(store: MemoryStore) -> list[object]:
    return [store._rows._tables]


def of_victim(table: str, **fields: object) -> Any:
    """A row of the tree, or a new one, that says it is the stranger's."""

    def change(tree: Tree) -> None:
        row = dict(tree[table][0]) if tree[table] else {}
        tree[table].append(row | fields)

    return change


def with_head(place: int = 0, **fields: object) -> Any:
    return lambda tree: tree["procedures"][place].update(fields)


def renamed(old: str, new: str) -> Any:
    def change(tree: Tree) -> None:
        tree.update(json.loads(json.dumps(tree).replace(json.dumps(old), json.dumps(new))))

    return change


def in_a_circle(tree: Tree) -> None:
    _, second, third = tree["procedures"]
    second["parent"], third["parent"] = third["id"], second["id"]


def with_ask(table: str, field: str, payload: bytes) -> Any:
    """A change that gives a row the payload of a damaged ask: its name and its id are not whole."""

    def change(tree: Tree) -> None:
        if table == "events":
            tree["events"].append(EVENT | {"target": "a"})
        tree[table][0][field] = base64.b64encode(payload).decode()

    return change


CUT_SHORT = {
    "the first byte of an ask": b"\xc1",
    "an ask that ends before its name": b"\xc1\x01\x00\x09\x00\x09a",
    "an ask without a name": b"\xc1\x01\x00\x00\x00\x01a",
    "an ask without an id": b"\xc1\x01\x00\x01\x00\x00a",
    "an ask whose id is no text": b"\xc1\x01\x00\x01\x00\x01a\xff",
    "an ask with NUL in its id": b"\xc1\x01\x00\x01\x00\x02aa\0",
    "an ask that was answered, cut short": b"\xc1\x02\x00\x01",
}
EVENT = {"target": "victim", "seq": 1, "payload": "AQ==", "dedup": None, "at": 1.0, "taken": False}
NOTE = {"procedure": "victim", "step": 1, "key": "k", "value": "AQ=="}
AUDIT = {"target": "victim", "number": 1, "at": 1.0, "verb": "abort", "reason": None, "detail": ""}
POISON = {"path": "k", "by": "victim", "root": "victim", "at": 1.0, "reason": "", "others": []}
HOSTILE = {
    "the state of another": of_victim("steps", procedure="victim", state="gaF4Ag=="),
    "a signal for another": of_victim("events", **EVENT),
    "a note of another": of_victim("notes", **NOTE),
    "an audit of another": of_victim("audit", **AUDIT),
    "an audit of the manager": of_victim("audit", **AUDIT | {"target": ""}),
    "an undo unit of another tree": of_victim("undo", root="victim", seq=9),
    "an undo unit of another procedure": of_victim("undo", procedure="victim", seq=9),
    "a lock of another": of_victim("locks", path="other", holder="victim", root="victim"),
    "a key poisoned by another": of_victim("poisons", **POISON),
    "a key poisoned by others too": of_victim("poisons", **POISON | {"root": "a", "others": [["victim", "victim"]]}),
    "a child of another": of_victim("children", parent="victim"),
    "another as a child": of_victim("children", child="victim", index=9),
    "a member of another tree": with_head(1, root="victim"),
    "a child of nobody": with_head(1, parent="victim"),
    "itself as a parent": with_head(1, parent="b"),
    "two that are each other's parents": in_a_circle,
    "a root with a parent": with_head(parent="b"),
    "a head twice": lambda tree: tree["procedures"].append(dict(tree["procedures"][1])),
    "no step log": lambda tree: tree["steps"].clear(),
    "no lock": lambda tree: tree["locks"].clear(),
    "a time that is none": with_head(due_at=math.nan),
    "a number beyond all": with_head(attempt=10**40),
    "a number at the end of all": with_head(attempt=LARGEST + 1),
    "no number of records": with_head(records=-1),
    "half a character": with_head(owner="\ud800"),
    "an id that is none": renamed("a", "\x1b[31m\n"),
    "an id that begins as an option": renamed("a", "--path"),
    "a list in place of an object": lambda tree: tree.update(procedures=[[]]),
    "an object in place of a list": lambda tree: tree.update(steps={}),
    "nothing in place of a list": lambda tree: tree.update(steps=None),
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("dry_run", [False, True])
def test_a_tree_that_is_not_whole_and_by_itself_is_refused_and_changes_nothing(name: str, dry_run: bool) -> None:
    good, bad = exported(), exported()
    renamed("a", "good")(good)
    renamed("b", "good-b")(good)
    renamed("c", "good-c")(good)
    renamed("k", "good-k")(good)
    HOSTILE[name](bad)
    store = owned_by_another()
    epoch, before = store.epoch, store.clone()

    with pytest.raises(UsageError, match="no export of actorproc"):
        bring_in(store, [good, bad], None if dry_run else lambda writes: store.commit(writes, epoch))

    assert rows_of(store) == rows_of(before)


@pytest.mark.parametrize("what", CUT_SHORT)
def test_what_was_sent_with_an_ask_is_whole_wherever_it_is(what: str) -> None:
    for table, field in (("procedures", "payload"), ("events", "payload"), ("steps", "event")):
        tree = exported()
        with_ask(table, field, CUT_SHORT[what])(tree)

        with pytest.raises(UsageError, match="an ask are cut short"):
            judged(tree)


def test_the_same_tree_twice_is_refused_before_the_first_is_taken() -> None:
    store = owned_by_another()
    before = store.clone()

    with pytest.raises(UsageError, match="in it 2 times"):
        bring_in(store, [exported(), exported()], lambda writes: store.commit(writes, store.epoch))

    assert rows_of(store) == rows_of(before)


@pytest.mark.parametrize("text", ["[" * 200_000, "9" * 10_000, "\0", '{"schema":1,"object":"export","trees":[[]]}'])
def test_a_file_of_any_kind_is_refused_in_one_line(
    tmp_path: Any, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    (tmp_path / "file").write_text(text)

    code = main(["--path", str(tmp_path / "store"), "import", str(tmp_path / "file")])

    assert code == 2
    assert capsys.readouterr().err.count("\n") == 1
