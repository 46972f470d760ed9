"""The tree of the package stays one that can be read: bounds on rooms, arrows, floors, circles and sizes."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests import architecture

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "actorproc"


@dataclass(frozen=True)
class Bounds:
    """The most that one folder may have."""

    rooms: int
    arrows: int
    floors: int


TOP = Bounds(rooms=22, arrows=120, floors=13)
CORE = Bounds(rooms=12, arrows=52, floors=11)
CIRCLES, CLIMBS = 1, 2
"""In all folders together."""
ENTRIES_AT_TOP, ENTRIES = 22, 15
"""Entries that a listing of a folder shows: of the package itself, and of any other folder."""
LINES = 545
"""Of one file."""
SHARED_NAMES = 0
"""Names that more than one public class has."""


@pytest.mark.parametrize(("name", "bounds"), [("actorproc", TOP), ("actorproc.core", CORE)])
def test_rooms_arrows_and_floors_stay_within_bounds(name, bounds):
    folder = architecture.folder(name)

    assert folder.rooms <= bounds.rooms
    assert folder.arrow_count <= bounds.arrows
    assert folder.floors <= bounds.floors


def test_no_circles_and_no_climbs_are_added_in_any_folder():
    folders = architecture.folders("actorproc")
    circles = [(folder.name, sorted(circle)) for folder in folders for circle in folder.circles]
    climbs = [(folder.name, *climb) for folder in folders for climb in sorted(folder.climbs)]

    assert len(circles) <= CIRCLES, circles
    assert len(climbs) <= CLIMBS, climbs


def test_rooms_at_the_top_import_downwards_in_the_order_of_the_layers():
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (layers,) = [
        found["layers"] for found in contracts if found["type"] == "layers" and found["containers"] == ["actorproc"]
    ]
    floor_of = {room: floor for floor, layer in enumerate(layers) for room in layer.replace("|", " ").split()}

    up = [
        (room, other)
        for room, others in architecture.folder("actorproc").arrows.items()
        for other in others
        if room in floor_of and floor_of[room] >= floor_of[other]
    ]

    assert up == []


def test_a_listing_of_a_folder_can_be_taken_in_at_a_glance():
    shown = {str(path.relative_to(ROOT)): count for path, count in architecture.entries(PACKAGE).items()}

    assert shown.pop("actorproc") <= ENTRIES_AT_TOP
    assert {folder: count for folder, count in shown.items() if count > ENTRIES} == {}


def test_files_stay_short():
    counted = {str(path.relative_to(ROOT)): count for path, count in architecture.lines(PACKAGE).items()}

    assert {file: count for file, count in counted.items() if count > LINES} == {}


def test_public_classes_seldom_share_a_name():
    shared = {name: paths for name, paths in architecture.class_names(PACKAGE).items() if len(paths) > 1}

    assert len(shared) <= SHARED_NAMES, sorted(shared)


# ---------------------------------------------------------------- the measures themselves
GRAPHS = {
    "nothing": ({}, 0, [], 0),
    "one room": ({"a": ""}, 1, [], 0),
    "a way down": ({"a": "b", "b": "c", "c": ""}, 3, [], 0),
    "two ways down, the longer counts": ({"a": "bc", "b": "c", "c": "", "d": "c"}, 3, [], 0),
    "two rooms": ({"a": "b", "b": "a"}, 1, ["ab"], 1),
    "a circle in the middle is one floor": ({"a": "b", "b": "c", "c": "bd", "d": ""}, 3, ["bc"], 1),
    "a circle of three": ({"a": "b", "b": "c", "c": "a"}, 1, ["abc"], 1),
    "two circles that share a room": ({"a": "b", "b": "ac", "c": "b"}, 1, ["abc"], 2),
    "two circles that share an arrow": ({"a": "b", "b": "cd", "c": "a", "d": "a"}, 1, ["abcd"], 1),
    "two circles apart": ({"a": "b", "b": "a", "c": "d", "d": "c"}, 1, ["ab", "cd"], 2),
}


@pytest.mark.parametrize("arrows, floors, circles, climbs", GRAPHS.values(), ids=GRAPHS.keys())  # noqa: PT006
def test_floors_circles_and_climbs_of_known_graphs(arrows, floors, circles, climbs):
    named = {room: frozenset(others) for room, others in arrows.items()}
    folder = architecture.Folder("known", named, frozenset(architecture.climbs(named)))

    assert folder.floors == floors
    assert sorted("".join(sorted(circle)) for circle in folder.circles) == circles
    assert len(folder.climbs) == climbs


def test_arrows_are_those_between_entries_however_deep_the_modules_lie(tmp_path, monkeypatch):
    files = {
        "measured/__init__.py": "from measured import top",
        "measured/top.py": "def late():\n    from measured.room.inner import thing",
        "measured/room/__init__.py": "",
        "measured/room/inner/__init__.py": "from measured.room import beside",
        "measured/room/inner/thing.py": "import json\nfrom measured.room.inner import other",
        "measured/room/inner/other.py": "",
        "measured/room/beside.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import measured.base",
        "measured/base.py": "",
        "measured/py.typed": "",
    }
    for file, text in files.items():
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)

    top, room, inner = architecture.folders("measured")

    assert top.arrows == {"top": {"room"}, "room": {"base"}, "base": set()}
    assert (top.rooms, top.arrow_count, top.floors) == (3, 2, 3)
    assert room.arrows == {"inner": {"beside"}, "beside": set()}
    assert inner.arrows == {"thing": {"other"}, "other": set()}
    assert list(architecture.entries(tmp_path / "measured").values()) == [3, 2, 2]
    assert architecture.lines(tmp_path / "measured")[tmp_path / "measured/top.py"] == 2
