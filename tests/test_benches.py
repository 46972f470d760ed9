"""The benches run, and what they print can be read: as tables, and as pictures. What they measure is not judged here."""

import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import lmdb
import msgspec
import pytest

from actorproc import ProcedureManager
from actorproc.store.lmdb.store import LmdbReader

ROOT = Path(__file__).parents[1]
BENCH = ROOT / "bench"
SMALL = {
    "steps": ("--quick", "--in-flight=1,4", "--steps=3"),
    "latency": ("--quick", "--runs=2", "--callers=2"),
    "submit": ("--quick", "--procedures=50", "--singles=8", "--callers=2"),
    "fan_out": ("--quick", "--children=2,5", "--total=5"),
    "bare": ("--quick", "--in-flight=1,4", "--total=40", "--tasks=8", "--calls=8"),
    "retention": ("--quick", "--procedures=40", "--seconds=1", "--retain=0.3", "--in-flight=4"),
    "looking": ("--quick",),
    "long_lived": ("--quick", "--rounds=40"),
    "large_calls": ("--quick",),
    "cluster": ("--quick", "--only=core,link", "--hosts=1"),
    "recorded": ("--quick", "--in-flight=4", "--total=40", "--tasks=8", "--calls=8"),
}
DRAWN = ("steps", "latency", "fan_out")
"""Those with a picture, which run in every run of the tests."""


@pytest.fixture
def bench_modules(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCH))
    import aims
    import plot

    return aims, plot


def run(name, arguments=None):
    command = [sys.executable, str(BENCH / f"{name}.py"), *(arguments or SMALL[name])]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 0, ended.stderr
    *lines, result = ended.stdout.splitlines()
    assert lines
    return json.loads(result)


@pytest.mark.processes
@pytest.mark.parametrize("names", [DRAWN, pytest.param(tuple(SMALL), marks=pytest.mark.nightly)], ids=["drawn", "all"])
def test_benches_print_lines_for_people_and_a_result_that_can_be_drawn(bench_modules, names):
    aims, plot = bench_modules

    results = {name: run(name) for name in names}

    assert {name: result["bench"] for name, result in results.items()} == {name: name for name in names}
    pictures = {picture.name: ET.fromstring(plot.svg(picture)) for picture in plot.pictures(results)}
    assert set(pictures) == set(DRAWN)
    assert len(aims.table(results)) == 2 + len(aims.AIMS)


@pytest.mark.processes
@pytest.mark.nightly
def test_both_benches_of_the_pipeline_alone_have_a_rate_of_each_kind():
    results = {name: run(name) for name in ("bare", "recorded")}

    assert {way: set(rates) for way, rates in results["bare"]["per_s"].items()} == {
        way: {"1", "4", "tasks", "calls"} for way in ("each", "together")
    }
    assert {way: set(rates) for way, rates in results["recorded"]["per_s"].items()} == {
        way: {"4", "tasks", "calls"} for way in ("bare", "recorded", "engine")
    }


@pytest.mark.processes
def test_the_bench_of_the_dashboard_has_a_raw_limit_beside_each_answer():
    result = run("web", ("--quick", "--seconds=1", "--requests=2"))

    assert result["bench"] == "web"
    assert all("raw" in one for name, one in result["answers"].items() if name != "resident")
    assert result["live"]["events/s"] > 0
    assert result["live"]["raw p99"] > 0


OWN = ("id", "root", "seq", "epoch", "created_at", "updated_at", "finished_at")
"""Fields of a head that no other procedure has alike."""


def stored(path):
    """What a store has of its procedures: how many rows in each table, and their heads and logs, but for what is own."""
    with LmdbReader(path) as store:
        heads = [msgspec.structs.asdict(head) for head in store.scan()]
        logs = [
            [(row.number, row.kind, row.state, row.codec, row.outcome, row.output) for row in store.steps(head["id"])]
            for head in heads
        ]
    for head in heads:
        for field in OWN:
            del head[field]
    with lmdb.open(str(path), readonly=True, max_dbs=32, lock=False) as environment, environment.begin() as txn:
        names = [name for name, _ in txn.cursor()]
        rows = {name: txn.stat(environment.open_db(name, txn=txn, create=False))["entries"] for name in names}
    del rows[b"meta"]  # what is known of the store itself
    return rows, heads, logs


@pytest.mark.processes
def test_the_pipeline_with_the_engines_records_stores_what_the_engine_stores(bench_modules, tmp_path):
    import bare
    import recorded

    with recorded.Recorded(str(tmp_path / "pipeline"), 1) as pipeline:
        bare.counted(pipeline, 3, 2, "p")
    with ProcedureManager(tmp_path / "engine", procedures=[recorded.Count], workers=1) as manager:
        for handle in manager.submit_many([recorded.Count(2) for _ in range(3)]):
            handle.result(60)

    assert stored(tmp_path / "pipeline") == stored(tmp_path / "engine")


def test_the_table_of_aims_says_what_is_reached_what_is_not_and_what_was_not_measured(bench_modules):
    aims, _ = bench_modules
    results = {
        "steps": {"steps_per_s": {"256": 55_000.0, "64": 15_000.0}, "alone_ratio_to_commit_plus_trip": 0.8},
        "executor": {"failed": "exit code 1"},
    }

    table = "\n".join(aims.table(results))

    assert "| ≥ 50,000 /s | 55,000 /s | 1.10 | | |" in table
    assert "| ≥ 30,000 /s | 15,000 /s | 0.50 (not reached) |" in table
    assert "| ≤ 1.6 x | 0.8 x | 2.00 |" in table
    assert "| ≥ 1.5 x | not measured | | | |" in table


def test_the_table_of_aims_says_what_the_pipelines_reach_where_they_were_measured(bench_modules):
    aims, _ = bench_modules
    dbos = {"steps_per_s": {"64": {"ours": 30_000.0, "peer": 500.0, "ratio": 60.0}}}
    results = {
        "peers": {"peers": {"DBOS on SQLite": dbos}, "bare": {"steps_per_s": {"64": 45_000.0}}},
        "executor": {
            "ratio_to_best": {"queued": 0.5},
            "others": {"one": {"queued": 10_000.0}, "another": {"queued": 20_000.0}},
            "bare": {"queued": 50_000.0},
        },
        "recorded": {"per_s": {"recorded": {"64": 40_000.0, "256": 60_000.0}}},
    }

    table = "\n".join(aims.table(results))

    assert "| ≥ 100 x | 60 x | 0.60 (not reached) | 90 x | 80 x |" in table
    assert "| ≥ 1.5 x | 0.5 x | 0.33 (not reached) | 2.5 x | |" in table
    assert "| ≥ 50,000 /s | not measured | | | |" in table


def test_a_picture_has_a_curve_and_a_name_for_each_series(bench_modules):
    _, plot = bench_modules
    picture = plot.Picture("a", "Title & <more>", "x", "y", {"one": [(1, 5), (10, 50)], "two": [(1, 7)]})

    drawn = ET.fromstring(plot.svg(picture))

    texts = {element.text for element in drawn.iter("{http://www.w3.org/2000/svg}text")}
    assert {"Title & <more>", "x", "y", "one", "two"} <= texts
    assert len(list(drawn.iter("{http://www.w3.org/2000/svg}polyline"))) == 2
