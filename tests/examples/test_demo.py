"""The demo: its parts by themselves, and the whole of it on a small tree."""

import ast
import json
import os
import random
import sqlite3
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest

from actorproc import ProcedureFailed, ProcedureManager, step
from actorproc.cli.demo_app.controller import plan_kills
from actorproc.cli.demo_app.display import LineDisplay, PlainDisplay, RichDisplay
from actorproc.cli.demo_app.journal import DemoJournal, JournalReader, journaled
from actorproc.cli.demo_app.procedures import CreateTable, PlannedFailure
from actorproc.cli.demo_app.queries import common_functions, rich_files
from actorproc.cli.demo_app.source import python_files, region_of, symbols_in
from actorproc.cli.demo_app.tables import (
    Layout,
    catalog_row,
    read_region,
    register_table,
    remove_region,
    summarise_region,
    unregister_table,
    write_atomically,
    write_batch,
)
from actorproc.cli.demo_app.verify import check_nothing_left, check_table, direct_answer
from actorproc.cli.main import main

ROOT = Path(__file__).parents[2]
REGIONS = 3


# ---------------------------------------------------------------- a small tree and its table, made by hand
@pytest.fixture
def source(tmp_path):
    tree = tmp_path / "source"
    (tree / "inner" / "site-packages").mkdir(parents=True)
    (tree / "__pycache__").mkdir()
    for number in range(40):
        functions = "\n".join(f"    def method_{n}(self): pass" for n in range(number % 7))
        text = f"class Thing{number}:\n    x = 1\n{functions}\n\nasync def run(): pass\n\ndef main(): pass\n"
        (tree / ("inner" if number % 3 else ".") / f"module_{number}.py").write_text(text)
    (tree / "broken.py").write_text("def (:\n")
    (tree / "inner" / "site-packages" / "installed.py").write_text("def never(): pass\n")
    (tree / "__pycache__" / "cached.py").write_text("def never(): pass\n")
    (tree / "notes.txt").write_text("def never(): pass\n")
    return tree


@pytest.fixture
def layout(tmp_path):
    (tmp_path / "work" / "tables" / "symbols").mkdir(parents=True)
    return Layout(tmp_path / "work")


def make_table(layout, source):
    summaries = []
    for region in range(REGIONS):
        mine = [path for path in python_files(source) if region_of(path, REGIONS) == region]
        write_batch(
            layout.region("symbols", region), [(path, symbols_in((source / path).read_bytes())) for path in mine]
        )
        summaries.append(summarise_region(layout.region("symbols", region), region))
    totals = {name: sum(row[name] for row in summaries) for name in ("files", "unparsable", "symbols")}
    write_atomically(layout.manifest("symbols"), {"regions": summaries} | totals, drafts=layout.directory)
    row = {"name": "symbols", "manifest": "here", "regions": REGIONS}
    register_table(layout.catalog, row | {"files": totals["files"], "symbols": totals["symbols"]})


# ---------------------------------------------------------------- indexing
def test_installed_packages_caches_and_other_files_are_left_out(source):
    found = python_files(source)

    assert len(found) == 41
    assert found == sorted(found)
    assert "inner/module_1.py" in found


def test_every_definition_is_found_with_its_kind_and_place():
    code = b"class A:\n  def f(self):\n    def g(): pass\n\nasync def h(): pass\nif 1:\n  def k(): pass\n"

    assert symbols_in(code) == [
        (1, 0, "class", "A"),
        (2, 2, "function", "f"),
        (3, 4, "function", "g"),
        (5, 0, "coroutine", "h"),
        (7, 2, "function", "k"),
    ]


@pytest.mark.parametrize("code", [b"def (", b"x = '\0'", b"\xff\xfe", b"(" * 5000])
def test_what_cannot_be_parsed_is_said_to_be_so(code):
    assert symbols_in(code) is None


def test_old_escapes_give_no_warning():
    assert symbols_in(b"def f(): return '\\d'") == [(1, 0, "function", "f")]


def test_a_batch_written_twice_is_there_once(layout):
    path = layout.region("symbols", 0)
    batch = [("a.py", [(1, 0, "class", "A")]), ("b.py", None)]

    write_batch(path, batch)
    write_batch(path, batch)

    assert read_region(path) == ({"a.py": True, "b.py": False}, [("a.py", 1, 0, "class", "A")])


def test_a_batch_replaces_what_an_interrupted_one_left(layout):
    path = layout.region("symbols", 0)

    write_batch(path, [("a.py", [(1, 0, "class", "Old"), (2, 0, "class", "Older")])])
    write_batch(path, [("a.py", [(1, 0, "class", "New")])])

    assert read_region(path)[1] == [("a.py", 1, 0, "class", "New")]


def test_removing_what_is_not_there_is_no_error(layout):
    remove_region(layout.region("symbols", 0))
    unregister_table(layout.catalog, "symbols")

    assert catalog_row(layout.catalog, "symbols") is None


# ---------------------------------------------------------------- the proof
def test_a_right_table_passes(layout, source):
    make_table(layout, source)
    answer = direct_answer(source)

    assert check_table(layout, "symbols", REGIONS, answer) == []
    assert len(answer.rows) == 41
    assert answer.rows["broken.py"] is None
    assert answer.symbols == 40 * 3 + sum(number % 7 for number in range(40))


def change(path, statement):
    connection = sqlite3.connect(path)
    with connection:
        assert connection.execute(statement).rowcount > 0
    connection.close()


DAMAGE = {
    "a row is lost": lambda at: change(at.region("symbols", 1), "DELETE FROM symbols WHERE name = 'main'"),
    "a name is wrong": lambda at: change(at.region("symbols", 0), "UPDATE symbols SET name = 'x' WHERE name = 'run'"),
    "a file is lost": lambda at: change(at.region("symbols", 2), "DELETE FROM files"),
    "a region is lost": lambda at: remove_region(at.region("symbols", 1)),
    "a stranger lies in the table": lambda at: (at.table("symbols") / "region-99.sqlite").touch(),
    "the manifest is lost": lambda at: at.manifest("symbols").unlink(),
    "the catalog forgot it": lambda at: unregister_table(at.catalog, "symbols"),
    "the catalog counts wrong": lambda at: change(at.catalog, "UPDATE tables SET symbols = symbols + 1"),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
def test_a_damaged_table_is_found_out(layout, source, damage):
    make_table(layout, source)

    damage(layout)

    assert check_table(layout, "symbols", REGIONS, direct_answer(source)) != []


def test_anything_left_of_an_undone_table_is_found_out(layout, source):
    make_table(layout, source)

    problems = check_nothing_left(layout, "symbols")

    assert len(problems) == 2
    assert "manifest.json" in problems[0]
    assert "catalog" in problems[1]


def test_queries_answer_as_a_loop_over_the_sources_does(layout, source):
    make_table(layout, source)
    names = Counter()
    for path in source.rglob("module_*.py"):
        tree = ast.parse(path.read_text())
        names.update(n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef))

    answer = common_functions(layout, "symbols", limit=4)

    assert answer == sorted(names.items(), key=lambda item: (-item[1], item[0]))[:4]
    assert rich_files(layout, "symbols", limit=1)[0][1] == 3 + 6


# ---------------------------------------------------------------- the journal
def context(step, attempt=1):
    return SimpleNamespace(id="p", step=step, attempt=attempt)


def test_a_step_that_began_twice_counts_as_replayed(tmp_path):
    path = tmp_path / "journal"
    journal = DemoJournal("t")
    with journaled(path, context(1), "t", "first", files=5):
        pass
    with pytest.raises(KeyboardInterrupt), journaled(path, context(2), "t", "cut off", files=7):
        raise KeyboardInterrupt  # as a kill would: no line is written any more
    journal.add(JournalReader(path).fresh())
    assert [entry.step for entry in journal.running.values()] == [2]

    with journaled(path, context(2, attempt=2), "t", "again", files=7):
        pass
    journal = DemoJournal("t")
    journal.add(JournalReader(path).fresh())

    assert journal.begun_again == {("p", 2): 2}
    assert journal.handed_out_again == {("p", 2)}
    assert (journal.steps_run, journal.files_done, journal.running) == (2, 12, {})


def test_a_half_written_line_is_read_when_it_is_whole(tmp_path):
    path = tmp_path / "journal"
    with journaled(path, context(1), "t", "x"):
        pass
    whole = path.read_bytes()
    path.write_bytes(whole[:-10])
    reader = JournalReader(path)

    assert [entry.kind for entry in reader.fresh()] == ["begin"]
    path.write_bytes(whole)
    assert [entry.kind for entry in reader.fresh()] == ["end"]
    assert reader.fresh() == []


def test_the_same_seed_plans_the_same_kills_all_within_the_work():
    first = plan_kills(random.Random(7), {"worker": 6, "manager": 3})
    second = plan_kills(random.Random(7), {"worker": 6, "manager": 3})

    assert first == second
    assert sum(kill.kind == "manager" for kill in first) == 3
    assert [kill.fraction for kill in first] == sorted(kill.fraction for kill in first)
    assert all(0 <= kill.fraction < 0.95 for kill in first)


# ---------------------------------------------------------------- what the terminal shows
def test_plain_output_has_a_line_per_fifth_of_the_work(capsys):
    display = PlainDisplay()
    with display.progress("indexing", 100) as advance:
        for done in range(101):
            advance(done, "")

    assert len(capsys.readouterr().out.splitlines()) == 5


def test_a_moving_line_makes_room_for_what_is_said(capsys):
    display = LineDisplay()
    with display.progress("indexing", 10) as advance:
        advance(5, "1/2 regions")
        display.say("a kill")

    shown = capsys.readouterr().out
    assert "indexing [############            ] 5/10 files 1/2 regions" in shown
    assert "\r  a kill\n" in shown


def test_bars_are_drawn_with_rich(capsys):
    console = pytest.importorskip("rich.console").Console(force_terminal=True, width=120, highlight=False)
    display = RichDisplay(console)
    with display.progress("indexing", 10) as advance:
        advance(10, "2/2 regions")
        display.say("a [kill]")

    shown = capsys.readouterr().out
    assert "10/10" in shown
    assert "a [kill]" in shown


# ---------------------------------------------------------------- the procedures
class FailsWhenAllIsThere(CreateTable):
    """The table is complete and registered when this fails."""

    @step
    def look_around(self, ctx):
        layout = Layout(Path(self.directory))
        assert layout.manifest(self.table).exists()
        assert catalog_row(layout.catalog, self.table) is not None
        raise PlannedFailure("after everything")


@pytest.mark.processes
def test_a_failure_at_the_very_end_takes_back_the_catalog_row_the_manifest_and_the_regions(layout, source):
    table = FailsWhenAllIsThere(str(source), str(layout.directory), "symbols", REGIONS, parallel=2)

    with ProcedureManager(layout.state, workers=2) as manager, pytest.raises(ProcedureFailed) as failed:
        manager.run(table)

    assert "after everything" in str(failed.value)
    assert failed.value.state == "ROLLEDBACK"
    assert check_nothing_left(layout, "symbols") == []
    journal = DemoJournal("symbols")
    journal.add(JournalReader(layout.journal).fresh())
    undone = [entry.what for entry in journal.undone]
    assert undone[:2] == ["table: unregister", "table: remove manifest"]
    assert undone[-1] == "table: remove directory"
    assert len(undone) == 2 + REGIONS + 1


# ---------------------------------------------------------------- the whole
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["demo", "{tmp}/nowhere"], "cannot read"),
        (["demo", "{tmp}/empty"], "has no Python files"),
        (["demo", "{tmp}", "--directory", "{tmp}"], "is not empty"),
    ],
)
def test_a_demo_that_cannot_run_says_why(tmp_path, capsys, arguments, said):
    (tmp_path / "empty").mkdir()
    (tmp_path / "a.py").touch()
    if "--directory" not in arguments:
        (tmp_path / "a.py").unlink()

    code = main([argument.format(tmp=tmp_path) for argument in arguments])

    assert code == 2
    assert said in capsys.readouterr().out


def test_a_number_out_of_range_is_refused(capsys):
    with pytest.raises(SystemExit) as refused:
        main(["demo", "--regions", "0"])

    assert refused.value.code == 2
    assert "between 1 and 256" in capsys.readouterr().err


@pytest.mark.processes
@pytest.mark.parametrize("chaos", ["--chaos", "--no-chaos"])
def test_the_demo_ends_consistent(tmp_path, source, chaos):
    if chaos == "--chaos":
        padding = "\n".join(f"def padding_{number}(): return [{number}, {{}}, '']" for number in range(1000))
        for path in source.rglob("module_*.py"):
            path.write_text(path.read_text() + padding)  # long enough a step to be killed in
    command = [sys.executable, "-m", "actorproc.cli.main", "demo", str(source), chaos, "--seed", "3"]
    command += ["--regions", str(REGIONS), "--workers", "2", "--directory", str(tmp_path / "kept")]

    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=150, check=False)

    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "\nConsistent (" in ended.stdout
    assert "left behind: no region file, no manifest, no catalog row, no lock" in ended.stdout
    assert ("kill -9" in ended.stdout) == (chaos == "--chaos")
    kept = Layout(tmp_path / "kept")
    assert check_table(kept, "symbols", REGIONS, direct_answer(source)) == []
    assert check_nothing_left(kept, "symbols_broken") == []
    assert json.loads(kept.outcome("symbols_broken").read_text())["state"] == "ROLLEDBACK"


def test_a_reader_that_leaves_early_ends_the_demo_without_a_traceback(source):
    reading, writing = os.pipe()
    os.close(reading)

    ended = subprocess.run(
        [sys.executable, "-m", "actorproc.cli.main", "demo", str(source)],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
        check=False,
    )
    os.close(writing)

    assert (ended.returncode, ended.stderr) == (141, "")
