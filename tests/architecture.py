"""Measures of a package's tree: rooms, arrows, floors, circles and climbs of each folder, and sizes.

A *room* is an entry of a folder: a module or a package, but for `__init__.py`, which speaks for the folder itself.
An *arrow* is a pair of rooms of one folder of which one imports the other, with whatever lies inside of them.
*Floors* are the rooms on the longest path of arrows; rooms that import each other in a circle stand on one floor.
A *circle* is a group of rooms each of which can be reached from each other one.
A *climb* is an arrow back up: one of those that have to go for the folder to be without circles, as few as can be found.

Imports under `if TYPE_CHECKING:` are counted as all others are, and so are imports inside of functions.
Names of rooms are read from the tree; there is none in here.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import grimp

__all__ = ["Folder", "class_names", "climbs", "entries", "folder", "folders", "graph_of", "lines", "sources"]

_NOT_SHOWN = {"__init__.py", "__pycache__", "py.typed"}

Arrows = Mapping[str, frozenset[str]]
"""The rooms of a folder, each with those that it imports."""


@dataclass(frozen=True)
class Folder:
    """One package: its rooms and how they import each other."""

    name: str
    arrows: Arrows
    climbs: frozenset[tuple[str, str]]
    """Arrows back up, as (importer, imported)."""

    @property
    def rooms(self) -> int:
        """The number of rooms."""
        return len(self.arrows)

    @property
    def arrow_count(self) -> int:
        """The number of arrows."""
        return sum(len(imported) for imported in self.arrows.values())

    @property
    def circles(self) -> tuple[frozenset[str], ...]:
        """Groups of two or more rooms that import each other."""
        return tuple(group for group in groups(self.arrows) if len(group) > 1)

    @property
    def floors(self) -> int:
        """The rooms on the longest way down, each circle as one."""
        return longest_path(self.arrows)


@cache
def graph_of(package: str) -> grimp.ImportGraph:
    """All modules of the package, and who imports whom. Not to be changed: it is made once."""
    return grimp.build_graph(
        package, include_external_packages=False, exclude_type_checking_imports=False, cache_dir=None
    )


def folder(name: str) -> Folder:
    """Measure one package by its dotted name."""
    graph = graph_of(name.partition(".")[0])
    rooms = graph.find_children(name)
    arrows: dict[str, set[str]] = {room: set() for room in rooms}
    for module in graph.modules:
        importer = _room(module, name)
        if importer in rooms:
            found = {_room(imported, name) for imported in graph.find_modules_directly_imported_by(module)}
            arrows[importer] |= (found & rooms) - {importer}
    short = {room: room.removeprefix(f"{name}.") for room in rooms}
    named = {short[room]: frozenset(short[other] for other in others) for room, others in arrows.items()}
    return Folder(name, named, frozenset(climbs(named)))


def folders(package: str) -> list[Folder]:
    """All packages of the tree that have more than one room, the top first."""
    graph = graph_of(package)
    return [folder(name) for name in sorted(graph.modules) if len(graph.find_children(name)) > 1]


def _room(module: str, name: str) -> str:
    """The entry of folder `name` that the module is in; the empty word: it is not inside."""
    if not module.startswith(f"{name}."):
        return ""
    return f"{name}.{module.removeprefix(f'{name}.').partition('.')[0]}"


def groups(arrows: Arrows) -> list[frozenset[str]]:
    """Strongly connected groups of rooms (Tarjan, 1972), those below before those above."""
    numbers: dict[str, int] = {}
    lowest: dict[str, int] = {}
    path: list[str] = []
    found: list[frozenset[str]] = []

    def visit(room: str) -> None:
        numbers[room] = lowest[room] = len(numbers)
        path.append(room)
        for other in sorted(arrows[room]):
            if other not in numbers:
                visit(other)
                lowest[room] = min(lowest[room], lowest[other])
            elif other in path:
                lowest[room] = min(lowest[room], numbers[other])
        if lowest[room] == numbers[room]:
            at = path.index(room)
            found.append(frozenset(path[at:]))
            del path[at:]

    for room in sorted(arrows):
        if room not in numbers:
            visit(room)
    return found


def longest_path(arrows: Arrows) -> int:
    """Rooms on the longest path of the graph whose circles are drawn together to one room each."""
    group_of: dict[str, frozenset[str]] = {}
    depth: dict[frozenset[str], int] = {}
    for group in groups(arrows):
        group_of.update(dict.fromkeys(group, group))
        below = {group_of[other] for room in group for other in arrows[room] if other not in group}
        depth[group] = 1 + max((depth[other] for other in below), default=0)
    return max(depth.values(), default=0)


def climbs(arrows: Arrows) -> Iterator[tuple[str, str]]:
    """Arrows that are taken away, one by one, until no circle is left: each time the one that frees most rooms."""
    left = {room: set(others) for room, others in arrows.items()}

    def in_circles(graph: Mapping[str, set[str]]) -> int:
        return sum(
            len(group)
            for group in groups({room: frozenset(others) for room, others in graph.items()})
            if len(group) > 1
        )

    while True:
        circles = [
            group for group in groups({room: frozenset(others) for room, others in left.items()}) if len(group) > 1
        ]
        if not circles:
            return
        candidates = [
            (room, other) for group in circles for room in sorted(group) for other in sorted(left[room] & group)
        ]

        def without(arrow: tuple[str, str]) -> int:
            graph = {room: set(others) for room, others in left.items()}
            graph[arrow[0]].discard(arrow[1])
            return in_circles(graph)

        best = min(candidates, key=without)
        left[best[0]].discard(best[1])
        yield best


def sources(root: Path) -> list[Path]:
    """All Python files below a folder."""
    return sorted(path for path in root.rglob("*.py") if "__pycache__" not in path.parts)


def entries(root: Path) -> dict[Path, int]:
    """Each folder that holds code, with the number of entries that a listing of it shows, `__init__.py` aside."""
    shown: dict[Path, int] = {}
    for path in sorted({source.parent for source in sources(root)}):
        shown[path] = sum(entry.name not in _NOT_SHOWN and not entry.name.startswith(".") for entry in path.iterdir())
    return shown


def lines(root: Path) -> dict[Path, int]:
    """Each Python file below a folder, with its lines."""
    return {path: len(path.read_text(encoding="utf-8").splitlines()) for path in sources(root)}


def class_names(root: Path) -> dict[str, list[Path]]:
    """Names of public classes at the top of modules, each with the files that define one."""
    found: dict[str, list[Path]] = defaultdict(list)
    for path in sources(root):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(path)
    return dict(found)
