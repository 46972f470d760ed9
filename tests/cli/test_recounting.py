"""Numbers of children that heads keep: the doctor finds wrong ones, and sets them right where that is asked for."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

import pytest
from msgspec.structs import replace

from actorproc import Procedure, ProcedureManager, Status, StoreReader
from actorproc.cli.main import main
from actorproc.model.rows.records import ProcedureRecord
from actorproc.model.rows.writes import PutProcedure, Was
from actorproc.model.states import ProcedureState
from actorproc.store.home import home_of
from actorproc.store.memory import MemoryStore
from actorproc.store.tools.child_counts import recount_children
from actorproc.store.verify.child_counts import miscounted
from tests.kit.managers import LIGHT

pytestmark = pytest.mark.processes


@dataclass
class Leaf(Procedure):
    waits: bool = False

    def execute(self, ctx):
        return Status.wait("go") if self.waits else Status.done()


@dataclass
class Branch(Procedure):
    waits: list[bool] = field(default_factory=list)
    rounds: int = 1

    def execute(self, ctx):
        if self.rounds == 0:
            return Status.done()
        self.rounds -= 1
        return Status.suspended([Leaf(waits) for waits in self.waits])


def doctor(capsys, path, *arguments):
    capsys.readouterr()
    code = main(["--path", str(path), "-o", "json", "doctor", *arguments])
    return code, json.loads(capsys.readouterr().out)


def counts_of(path, name):
    with StoreReader(path) as reader:
        return reader.info(name).children


def spoil(path, **wrong):
    store = home_of(path).store(role="command")
    epoch = store.own()
    for name, numbers in wrong.items():
        head = store.procedure(name)
        was = Was.of(head)
        store.commit([PutProcedure(replace(head, child_states=numbers), was)], epoch)
    store.close()


def test_a_doctor_tells_wrong_numbers_of_children_and_repairs_them(tmp_path, capsys):
    path = tmp_path / "state"
    with ProcedureManager(path, workers=1, procedures=[Branch, Leaf], **LIGHT) as manager:
        manager.run(Branch([False] * 3), id="ended")
        manager.submit(Branch([False, True]), "open")
        manager.run(Branch([False], rounds=2), id="twice")
        assert manager.run(Branch([]), id="none") is None
        while manager.info("open").children != {"SUCCESS": 1, "WAITING": 1}:
            pass
        live = main(["--path", str(path), "doctor", "--repair"])
    assert live == 5
    assert doctor(capsys, path)[1]["findings"][-1]["says"] == "no manager runs on this store"
    right = {name: counts_of(path, name) for name in ("ended", "open", "twice", "none")}
    assert right["twice"] == {"SUCCESS": 2}
    spoil(path, ended=(0, 0, 0, 2, 1, 0), open=(), none=(1, 0, 0, 0, 0, 0))

    code, report = doctor(capsys, path)

    told = {finding["says"]: finding for finding in report["findings"] if "counts its children" in finding["says"]}
    assert set(told) == {
        "ended counts its children as 2 SUCCESS, 1 FAILED, and they are 3 SUCCESS",
        "open counts its children as none, and they are 1 WAITING, 1 SUCCESS",
        "none counts its children as 1 RUNNABLE, and they are none",
    }
    assert {(finding["severity"], finding["command"]) for finding in told.values()} == {
        ("warning", f"actorproc --path {path} doctor --repair")
    }
    assert (code, report["ok"]) == (0, True)
    assert counts_of(path, "open") == {}

    code, report = doctor(capsys, path, "--repair")

    assert (code, sorted(report["repaired"])) == (0, sorted(told))
    assert {name: counts_of(path, name) for name in right} == right
    assert not [finding for finding in report["findings"] if "counts its children" in finding["says"]]
    assert doctor(capsys, path, "--repair")[1]["repaired"] == []


def test_a_store_that_is_not_there_is_not_made(tmp_path, capsys):
    assert main(["--path", str(tmp_path / "none"), "doctor", "--repair"]) == 4
    assert "there is no store" in capsys.readouterr().err
    assert not (tmp_path / "none").exists()


def head(name: str, seq: int, **fields: object) -> ProcedureRecord:
    made = ProcedureRecord(id=name, type_name="T", version=1, root="p", parent=None, seq=seq)
    return replace(made, **fields)


@pytest.mark.parametrize(
    ("parent", "is_right"),
    [
        ({"children": 2, "child_states": (1, 0, 0, 1, 0, 0)}, True),
        ({"children": 2, "child_states": (0, 0, 0, 2, 0, 0)}, False),
        ({"children": 2, "child_states": ()}, False),
        ({"children": 2, "child_states": None}, True),
    ],
)
def test_heads_are_compared_with_their_children(parent, is_right):
    heads = [
        head("p", 1, **parent),
        head("p.1", 2, parent="p", state=ProcedureState.SUCCESS),
        head("p.2", 3, parent="p"),
        head("elsewhere", 4, parent="unknown"),
    ]

    assert (miscounted(lambda: reversed(heads)) == []) is is_right


def test_many_wrong_heads_are_set_right_in_several_commits():
    store = MemoryStore()
    epoch = store.own()
    heads = [
        head(f"r{number}", number + 1, root=f"r{number}", child_states=(0, 0, 0, 1, 0, 0)) for number in range(2500)
    ]
    store.commit([PutProcedure(one, None) for one in heads], epoch)

    assert len(recount_children(store)) == 2500

    store.own()
    assert {one.child_states for one in store.scan()} == {()}
