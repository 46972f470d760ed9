"""Expectations of users of process pools, tried in scripts; docs/reference/managers/executor.md has those of other pools."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest

from tests.executor.trials import table

pytest.importorskip("joblib")
pytestmark = pytest.mark.processes

WAYS = [
    ("actorproc", "script"),
    ("actorproc", "module"),
    ("actorproc", "cells"),
    ("joblib", "script"),
    ("actorproc", "spawned"),
]


@pytest.mark.parametrize("script", table.SCRIPTS)
@pytest.mark.parametrize(("kind", "way"), WAYS, ids=[f"{kind}-{way}" for kind, way in WAYS])
def test_the_right_thing_comes_back_whichever_way_a_program_is_run(script, kind, way):
    found = table.played(script, kind, way)

    assert {title: outcome for title, outcome in found.items() if outcome != "yes"} == {}
    assert tuple(found) == table.row_titles(script), "run python -m tests.executor.trials.table"


# In every run those that are quick; what is said of other pools changes with a release of theirs.
@pytest.mark.parametrize(
    ("script", "kind"),
    [
        pytest.param(script, kind, marks=[pytest.mark.nightly] * (kind == "loky" or script == "surroundings"))
        for kind in table.POOLS
        for script in table.SCRIPTS
        if kind != "actorproc"
    ],
)
@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="the table is made with Python 3.11")
def test_the_table_says_what_the_other_pools_do(script, kind):
    column = list(table.POOLS).index(kind)
    written = {title: cells[column] for title, cells in table.table_in(table.PAGE.read_text())[script].items()}

    assert written == table.played(script, kind)


def warned_of(stderr):
    """Names of the classes of which a program says that results refer to copies of them."""
    return re.findall(r"^a result refers to ([\w.]+), which", stderr, re.MULTILINE)


LATER = {"script": ["later.py"], "module": ["-m", "later"], "imported": ["imports_later.py"]}


@pytest.mark.parametrize(
    ("stored", "read"),
    [
        ("script", "script"),
        ("script", "module"),
        ("module", "script"),
        ("module", "module"),
        ("module", "imported"),
        ("imported", "module"),
    ],
)
def test_results_are_of_the_programs_classes_in_a_later_run(tmp_path, stored, read):
    for way, phase in ((stored, "store"), (read, "read")):
        command = [sys.executable, *LATER[way], str(tmp_path / "calls"), phase]
        run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, cwd=table.HERE)
        assert warned_of(run.stderr) == []
        found = json.loads(run.stdout)
        assert [name for name, is_right in found.items() if not is_right] == []
    assert "unchanged" in found


def test_ten_thousand_calls_with_a_class_of_the_script(tmp_path):
    command = [sys.executable, str(table.HERE / "many.py"), str(tmp_path / "calls"), "10000"]
    run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=170)

    assert (run.stdout, run.stderr) == ("10000 of 10000 are right\n", "")


OTHER = """
import dataclasses, sys
from actorproc import ProcedureExecutor

class Base(Exception):
    known = []
    def __init_subclass__(cls): Base.known.append(cls.__name__)

class Meta(type):
    made = []
    def __new__(cls, *args):
        Meta.made.append(args[0])
        return super().__new__(cls, *args)

@dataclasses.dataclass
class Point:
    {fields}
    seen = 0
    def total(self): return {total}

@dataclasses.dataclass
class Failed(Base):
    {fields}

class Marked(metaclass=Meta):
    __slots__ = ({slots!r},)

def point(): return [Point(1, 2)]
def marked(): return Marked()
def fail(): raise Failed(1, 2)

def test(executor):
    {test}

with ProcedureExecutor(sys.argv[1], max_workers=1) as executor:
    for name, call in (("p-1", point), ("p-2", point), ("m", marked), ("f", fail)):
        executor.submit_as(name, call).exception(60)
    test(executor)
"""
READ = """\
before = {cls: dict(vars(cls)) for cls in (Base, Meta, Point, Failed, Marked)}
    (first,), (second,) = executor.get("p-1").result(60), executor.get("p-2").result(60)
    assert type(first) is type(second) is not Point and first == second and (first.x, first.y) == (1, 2), first
    assert first.total() == 3 and type(first).__name__ == "Point" and not isinstance(first, Point)
    error = executor.get("f").exception(60)
    assert isinstance(error, Base) and not isinstance(error, Failed) and error.y == 2, error
    assert type(executor.get("m").result(60)) is not Marked
    assert {cls: dict(vars(cls)) for cls in before} == before
    assert (Base.known, Meta.made) == (["Failed"], ["Marked"])
    Point.seen = 3
    assert executor.submit(lambda given: (given, Point(5)), first).result(60) == (first, Point(5))
    assert Point.seen == 3"""


def test_a_class_of_another_program_comes_as_a_copy_with_one_warning(tmp_path):
    stores, reads = tmp_path / "stores.py", tmp_path / "reads.py"
    stores.write_text(OTHER.format(fields="x: int\n    y: int", total="self.x + self.y", slots="a", test="pass"))
    reads.write_text(OTHER.format(fields="x: int\n    z: int = 0", total="0", slots="b", test=READ))
    for program in (stores, reads):
        command = [sys.executable, str(program), str(tmp_path / "calls")]
        run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        assert run.returncode == 0, run.stderr

    assert sorted(warned_of(run.stderr)) == [f"__main__.{name}" for name in ("Failed", "Marked", "Point")]
