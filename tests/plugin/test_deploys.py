"""The deploy check says what a start with the new code then does: of each edit, both are seen."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import Enum

import pytest

from actorproc import Procedure, Saga, Secret, StateMachineProcedure, Status, UsageError, check_deploy, step, value
from actorproc.api.deploys.deploy_check import examined
from actorproc.api.manager import ProcedureManager
from actorproc.cli.main import main
from actorproc.procedure.runtime.engine_side import TypeRegistry
from actorproc.store.memory import MemoryStore
from actorproc.store.signing_key import read_keys
from actorproc.testing import DidNotSurviveDeploy, InlineManager
from tests.kit.managers import LIGHT
from tests.kit.waiting import wait_until


def order(fields=("item",), steps=("reserve", "approve", "pay"), undo=("reserve",), *, version=1, migrate=None):
    """A saga of this shape that waits in `approve`; every edition has the same name."""
    members = {"__annotations__": dict.fromkeys(fields, "str"), "type_name": "shop.Order", "version": version}
    if migrate is not None:
        members["migrate"] = classmethod(migrate)
    for name in steps:

        def run(self, ctx, name=name):
            return Status.wait("approved") if name == "approve" else None

        run.__name__ = name
        members[name] = made = step(run)
        if name in undo:

            def back(self, ctx):
                pass

            back.__name__ = f"un{name}"
            members[back.__name__] = made.undo(back)
    return type("Order", (Saga,), members)


def stored(*procedures, members=1):
    """A store in which these and their children stand, as a host that died leaves it."""
    store = MemoryStore()
    with InlineManager(store=store) as manager:
        for number, procedure in enumerate(procedures):
            manager.submit(procedure, id=f"p{number}")
        still = ("waiting", "suspended", "done")
        wait_until(lambda: [info.phase in still for info in manager.list()] == [True] * members)
    return store


def checked(store, *classes):
    registry = TypeRegistry()
    for cls in classes:
        registry.register(cls)
    return examined(store, registry.get, registry.names())


def no_fields(cls, data, version):
    return {"item": data["item"], "note": ""}


EDITS = [
    ("nothing", {}, "goes-on", ""),
    ("a step behind", {"steps": ("reserve", "approve", "pay", "ship")}, "goes-on", ""),
    ("a field with no default", {"fields": ("item", "note")}, "parks", "no field 'note'"),
    ("a field gone", {"fields": ()}, "parks", "field 'item' that Order does not declare"),
    ("a step before a done one", {"steps": ("check", "reserve", "approve", "pay")}, "parks", "'check' has not run"),
    ("the done steps moved behind", {"steps": ("pay", "reserve", "approve")}, "parks", "pay → reserve → approve"),
    ("the next step gone", {"steps": ("reserve", "approve")}, "parks", "pay"),
    ("the undo of a done step gone", {"undo": ()}, "parks-when-undone", "no undo of step 'reserve'"),
    ("another version", {"version": 2}, "parks", "migrate"),
    ("a version and a migration", {"fields": ("item", "note"), "version": 2, "migrate": no_fields}, "goes-on", ""),
]


@pytest.mark.parametrize(("edit", "verdict", "reason"), [edit[1:] for edit in EDITS], ids=[edit[0] for edit in EDITS])
def test_what_the_check_says_of_an_edit_is_what_a_start_does(edit, verdict, reason):
    store = stored(order()("book"))
    today = order(**edit)

    report = checked(store, today)

    [found] = report.findings
    assert (found.type_name, found.step, found.verdict, found.count) == ("shop.Order", "pay", verdict, 1)
    assert reason in found.reason
    assert report.ok is (verdict == "goes-on")
    with InlineManager([today], store=store) as manager:
        handle = manager.get("p0")
        if verdict == "parks-when-undone":
            manager.abort("p0")
        else:
            manager.signal("p0", "yes")
        if verdict == "goes-on":
            assert manager.finish(handle).info().state == "SUCCESS"
        else:
            wait_until(lambda: handle.info().phase == "parked")
            assert handle.info().reason == found.reason


def test_older_code_is_told_of_done_steps_and_versions_it_does_not_know():
    newer = order(steps=("reserve", "charge", "approve", "pay"), undo=("reserve", "charge"))
    [done] = checked(stored(newer("book")), order()).findings
    [later] = checked(stored(order(version=2)("book")), order()).findings

    assert done.verdict in ("parks", "parks-when-undone")
    assert "charge" in done.reason
    assert later.verdict == "parks"


class Phase(Enum):
    FIRST = 1
    SECOND = 2


class Later(Enum):
    FIRST = 1


def machine(states):
    class Build(StateMachineProcedure):
        type_name = "shop.Build"
        initial_state = states.FIRST

        def execute_from_state(self, ctx, state):
            if state is states.FIRST:
                return states.SECOND
            return Status.wait("on") if ctx.event is None else None

        def rollback_state(self, ctx, state):
            pass

    return Build


def test_a_state_of_a_machine_that_is_gone_is_told_by_its_name():
    [found] = checked(stored(machine(Phase)()), machine(Later)).findings

    assert (found.step, found.verdict) == ("SECOND", "parks")
    assert "no state 'SECOND' any more" in found.reason


def editions_of_line(fields):
    members = {"__annotations__": dict.fromkeys(fields, "int"), "__module__": __name__, "__qualname__": "Line"}
    return value()(dataclass(type("Line", (), members)))


def parent_and_child(line):
    class Child(Procedure):
        type_name = "shop.Child"
        uses = (line,)

        def execute(self, ctx):
            return Status.done(line(1))

    class Waits(Procedure):
        type_name = "shop.Waits"
        uses = (line,)

        def execute(self, ctx):
            return Status.done() if ctx.event else Status.wait("never")

    class Parent(Procedure):
        type_name = "shop.Parent"
        uses = (Child, Waits, line)

        def execute(self, ctx):
            if ctx.children:
                return Status.done([child.output for child in ctx.children.values()])
            return Status.suspended([Child(), Waits()])

    return Parent, Child, Waits


def test_an_output_that_is_to_be_read_is_looked_at():
    parent, _, _ = parent_and_child(editions_of_line(("cents",)))
    store = stored(parent(), members=3)
    found = {each.type_name: each for each in checked(store, *parent_and_child(editions_of_line(("pence",)))).findings}

    assert found["shop.Parent"].verdict == "parks"
    assert "the output of" in found["shop.Parent"].reason
    assert found["shop.Waits"].verdict == "goes-on"
    assert checked(store, *parent_and_child(editions_of_line(("cents",)))).ok


def test_a_signal_that_waits_to_be_read_is_looked_at():
    old, new = editions_of_line(("cents",)), editions_of_line(("pence",))

    def waits(line):
        class Waits(Procedure):
            type_name = "shop.Waits"
            uses = (line,)

            def execute(self, ctx):
                return Status.wait("other")

        return Waits

    store = MemoryStore()
    with InlineManager(store=store) as manager:
        manager.pause(reason="the signals stay where they are")
        manager.submit(waits(old)(), id="p0")
        manager.signal("p0", old(1))

    [found] = checked(store, waits(new)).findings

    assert found.verdict == "parks"
    assert "a signal that waits" in found.reason


def test_an_unknown_type_names_the_registered_class_that_would_fit():
    class Order(Saga):
        type_name = "__main__.Order"
        item: str

        @step
        def approve(self, ctx):
            return Status.wait("approved")

    class Fits(Saga):
        type_name = "app.Order"
        item: str

        @step
        def approve(self, ctx):
            return Status.wait("approved")

    store = stored(Order("book"))

    [found] = checked(store, Fits).findings

    assert found.verdict == "parks"
    assert "no class is registered as '__main__.Order', but 'app.Order' is" in found.reason
    assert "manager.register_loader('__main__.Order', Order.load)" in found.reason
    with InlineManager([Fits], store=store) as manager:
        assert manager.info("p0").reason == found.reason
        manager.register_loader("__main__.Order", Fits.load)
        manager.signal("p0", "yes")
        assert manager.finish(manager.get("p0")).result() == "yes"


# ------------------------------------------------------------ over an export and on a directory
@dataclass
class Simple(Procedure):
    type_name = "shop.Simple"
    number: int
    token: Secret[str] | None = None

    def execute(self, ctx):
        return Status.wait("on") if ctx.event is None else Status.done(self.number)


@dataclass
class Wider(Procedure):
    type_name = "shop.Simple"
    number: int
    unit: str
    token: Secret[str] | None = None

    def execute(self, ctx):
        return Status.done()


@pytest.fixture
def place(tmp_path):
    """A directory in which three procedures wait, one of them with a secret."""
    with ProcedureManager(tmp_path / "state", workers=1, **LIGHT) as manager:
        manager.submit(Simple(1), id="a")
        manager.submit(Simple(2), id="b")
        manager.submit(Simple(3, Secret("s3")), id="c")
        wait_until(lambda: all(manager.info(name).phase == "waiting" for name in "abc"))
    return tmp_path / "state"


@pytest.mark.processes
def test_a_store_and_its_export_are_checked_alike(place, tmp_path, survives_deploy):
    assert main(["--path", str(place), "export", "--all", "--reveal", "--out", str(tmp_path / "all.json")]) == 0

    assert check_deploy([Simple], place).ok
    assert survives_deploy([Simple], tmp_path / "all.json").findings == check_deploy([Simple], place).findings
    assert check_deploy([Wider], place).parks[0].count == 3
    with pytest.raises(DidNotSurviveDeploy, match=r"3 × shop.Simple at step 2 \(a, b, c\) at once: .* no field 'unit'"):
        survives_deploy([Wider], tmp_path / "all.json")
    assert not survives_deploy([Wider], tmp_path / "all.json", check=False).ok


@pytest.mark.processes
def test_what_an_export_left_out_is_told_apart_and_fails_nothing(place, tmp_path, survives_deploy):
    assert main(["--path", str(place), "export", "--all", "--out", str(tmp_path / "all.json")]) == 0

    report = survives_deploy([Simple], tmp_path / "all.json")

    assert {found.verdict: found.ids for found in report.findings} == {"goes-on": ("a", "b"), "unknown": ("c",)}


def test_a_file_that_is_no_export_is_refused(tmp_path, survives_deploy):
    (tmp_path / "other.json").write_text("{}")

    with pytest.raises(UsageError, match="is no export of actorproc"):
        survives_deploy([Simple], tmp_path / "other.json")


@pytest.mark.processes
def test_the_command_starts_nothing_and_its_exit_code_is_the_answer(place, tmp_path, monkeypatch, capsys):
    for name, more in (("shop_now", ""), ("shop_then", ", unit: str")):
        (tmp_path / f"{name}.py").write_text(
            "from dataclasses import make_dataclass\n"
            "from actorproc import Procedure, ProcedureManager, Secret\n"
            "from dataclasses import dataclass\n"
            "@dataclass\n"
            "class Simple(Procedure):\n"
            "    type_name = 'shop.Simple'\n"
            "    number: int\n"
            f"{'    unit: str' if more else ''}\n"
            "    token: Secret[str] | None = None\n"
            "    def execute(self, ctx):\n"
            "        open('ran', 'w').close()\n"
            f"managed = ProcedureManager({str(place)!r}, procedures=[Simple]).start()\n"
        )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))

    assert main(["check", "shop_now", "-o", "table"]) == 0
    told = capsys.readouterr()
    assert "3 unfinished procedures: none would be parked" in told.err
    assert "goes on" in told.out
    assert main(["check", "shop_then", "-o", "json"]) == 1
    [found] = json.loads(capsys.readouterr().out)["findings"]
    assert (found["verdict"], found["count"]) == ("parks", 3)
    assert main(["check", "shop_nowhere"]) == 2
    assert not (tmp_path / "ran").exists()


@dataclass
class Pickled(Procedure):
    type_name = "shop.Pickled"
    codec = "pickle"
    what: object

    def execute(self, ctx):
        return Status.wait("on")


@pytest.mark.processes
def test_what_is_pickled_is_checked_with_the_key_of_the_store(place, tmp_path, survives_deploy):
    assert check_deploy([Simple, Pickled], place).ok  # nothing pickled is there, nor a key
    with ProcedureManager(place, workers=1, **LIGHT) as manager:
        manager.submit(Pickled({1, 2}), id="d")
        wait_until(lambda: manager.info("d").phase == "waiting")
    assert main(["--path", str(place), "export", "--all", "--reveal", "--out", str(tmp_path / "all.json")]) == 0

    assert check_deploy([Simple, Pickled], place).ok
    assert survives_deploy([Simple, Pickled], tmp_path / "all.json", signing_key=read_keys(place)).checked == 4
    with pytest.raises(UsageError, match="needs a signing key"):
        survives_deploy([Simple, Pickled], tmp_path / "all.json")


class Exits(Simple):
    type_name = "shop.Simple"

    @classmethod
    def load(cls, data):
        raise SystemExit(3)


@pytest.mark.processes
def test_a_load_that_exits_is_a_reason_and_ends_nothing(place):
    [found] = check_deploy([Exits], place).findings

    assert (found.verdict, found.reason) == ("parks", "shop.Simple cannot load its state: SystemExit: 3")
