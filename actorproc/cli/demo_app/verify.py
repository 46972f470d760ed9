"""The same answer computed directly, and the comparison with what the procedures made.

One process, one loop, no engine, no SQLite; the files are listed and the trees are walked by other code
than the one under test.
"""

from __future__ import annotations

import ast
import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from actorproc.cli.demo_app.source import SKIPPED_DIRECTORIES, UNPARSABLE, parse, region_of
from actorproc.cli.demo_app.tables import Layout, Row, catalog_row, digest_of, read_region

__all__ = ["DirectAnswer", "check_nothing_left", "check_table", "direct_answer"]


@dataclass
class DirectAnswer:
    """Every file of the tree with its rows (None when it cannot be parsed)."""

    rows: dict[str, list[Row] | None] = field(default_factory=dict)

    @property
    def symbols(self) -> int:
        return sum(len(rows or ()) for rows in self.rows.values())


def direct_answer(source: Path, tick: Callable[[int], None] = lambda _: None) -> DirectAnswer:
    """Index the tree in this process; `tick` gets the number of files done."""
    answer = DirectAnswer()
    for directory, below, names in os.walk(source):
        below[:] = [name for name in below if name not in SKIPPED_DIRECTORIES and _can_be_text(name)]
        for name in names:
            path = Path(directory, name)
            if name.endswith(".py") and name != ".py" and path.is_file() and _can_be_text(name):
                relative = str(path.relative_to(source)).replace(os.sep, "/")
                answer.rows[relative] = _rows(relative, path)
                tick(len(answer.rows))
    return answer


def _can_be_text(name: str) -> bool:
    return not any(0xD800 <= ord(letter) <= 0xDFFF for letter in name)


def _rows(relative: str, path: Path) -> list[Row] | None:
    try:
        tree = parse(path.read_bytes())
    except (*UNPARSABLE, OSError):
        return None
    rows: list[Row] = []
    for node in ast.walk(tree):
        match node:
            case ast.ClassDef(name=name):
                rows.append((relative, node.lineno, node.col_offset, "class", name))
            case ast.FunctionDef(name=name):
                rows.append((relative, node.lineno, node.col_offset, "function", name))
            case ast.AsyncFunctionDef(name=name):
                rows.append((relative, node.lineno, node.col_offset, "coroutine", name))
    return sorted(rows)


def check_table(layout: Layout, table: str, regions: int, answer: DirectAnswer) -> list[str]:
    """Errors of a table, in sentences; an empty list means it is complete and consistent."""
    missing = [path for path in (layout.manifest(table), layout.catalog) if not path.exists()]
    if missing:
        return [f"{path.name} is missing" for path in missing]
    manifest = json.loads(layout.manifest(table).read_text(encoding="utf-8"))
    problems = []
    expected = {layout.manifest(table).name} | {layout.region(table, region).name for region in range(regions)}
    present = {path.name for path in layout.table(table).iterdir() if not path.name.endswith("-journal")}
    problems += [f"{name} is missing" for name in sorted(expected - present)]
    problems += [f"{name} does not belong to the table" for name in sorted(present - expected)]
    if problems:
        return problems
    if [row["region"] for row in manifest["regions"]] != list(range(regions)):
        problems.append("the manifest does not list every region once")
    for summary in manifest["regions"]:
        problems += _check_region(layout.table(table) / summary["file"], summary, regions, answer)
    problems += _check_totals(layout, table, regions, manifest, answer)
    return problems


def _check_region(path: Path, summary: dict[str, object], regions: int, answer: DirectAnswer) -> list[str]:
    files, rows = read_region(path)
    mine = {name: found for name, found in answer.rows.items() if region_of(name, regions) == summary["region"]}
    problems = []
    if set(files) != set(mine):
        lost, extra = len(set(mine) - set(files)), len(set(files) - set(mine))
        problems.append(f"{path.name}: {lost} files are missing and {extra} do not belong there")
    wrong = [name for name, parsed in files.items() if parsed == (mine.get(name) is None)]
    if wrong:
        problems.append(f"{path.name}: {len(wrong)} files are marked wrongly as parsed or not, the first is {wrong[0]}")
    truth = sorted(row for found in mine.values() for row in found or ())
    if sorted(rows) != truth:
        lost_rows, extra_rows = len(set(truth) - set(rows)), len(set(rows) - set(truth))
        problems.append(f"{path.name}: {lost_rows} rows are missing and {extra_rows} are wrong")
    claimed = (summary["files"], summary["symbols"], summary["digest"])
    if claimed != (len(files), len(rows), digest_of(rows)):
        problems.append(f"{path.name}: its rows are not those the manifest was written for")
    return problems


def _check_totals(
    layout: Layout, table: str, regions: int, manifest: dict[str, object], answer: DirectAnswer
) -> list[str]:
    row = catalog_row(layout.catalog, table)
    if row is None:
        return ["the catalog does not know the table"]
    truth = (regions, len(answer.rows), answer.symbols)
    problems = []
    if (row["regions"], row["files"], row["symbols"]) != truth:
        problems.append("the catalog's numbers are not those of the sources")
    if (regions, manifest["files"], manifest["symbols"]) != truth:
        problems.append("the manifest's numbers are not those of the sources")
    return problems


def check_nothing_left(layout: Layout, table: str) -> list[str]:
    """Remains of a rolled back table, in sentences."""
    problems = []
    if layout.table(table).exists():
        left = sorted(path.name for path in layout.table(table).iterdir())
        problems.append(f"the table's directory is still there with {', '.join(left) or 'nothing in it'}")
    if catalog_row(layout.catalog, table) is not None:
        problems.append("the catalog still knows the table")
    return problems
