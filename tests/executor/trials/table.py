"""The table of docs/reference/managers/executor.md: the rows of the trials, played in each kind of pool.

``python -m tests.executor.trials.table`` plays them and writes the table anew.
"""

from __future__ import annotations

import functools
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
PAGE = HERE.parents[2] / "docs" / "reference" / "managers" / "executor.md"
SCRIPTS = ("classes", "lasting", "surroundings")
POOLS = {"actorproc": "`ProcedureExecutor`", "stdlib": "`ProcessPoolExecutor`", "loky": "loky"}
_TABLE = re.compile(r"(<!-- trials -->\n).*?(<!-- /trials -->)", re.DOTALL)

_CELLS = """
import sys, types
sys.argv[:] = sys.argv[1:]
path = sys.argv[0]
sys.modules["__main__"] = main = types.ModuleType("__main__")
sys.path.insert(0, path.rpartition("/")[0])
source = open(path, encoding="utf-8").read().split("\\n\\n\\n")
for number, cell in enumerate(source):
    exec(compile(cell, f"<cell {number}>", "exec"), main.__dict__)
"""


def played(script: str, kind: str, way: str = "script") -> dict[str, str]:
    """Outcomes of a script's rows by title.

    Args:
        script: name of the script.
        kind: of pool.
        way: "script", "module" (``python -m``), "cells", as a notebook runs them in a main module without a file, or
            "spawned", in a process of multiprocessing.
    """
    file = str(HERE / f"{script}.py")
    command = {"script": [file], "module": ["-m", script], "cells": ["-c", _CELLS, file]}.get(way, [file])
    rest = ["spawned"] if way == "spawned" else []
    with tempfile.TemporaryDirectory() as folder:
        run = subprocess.run(
            [sys.executable, *command, kind, folder, *rest],
            capture_output=True,
            text=True,
            check=False,
            timeout=170,
            cwd=HERE,
        )
    assert run.returncode == 0, run.stderr[-4000:]
    return json.loads(run.stdout)


@functools.cache
def row_titles(script: str) -> tuple[str, ...]:
    """Titles of a script's rows, in the page."""
    return tuple(table_in(PAGE.read_text())[script])


def table_in(text: str) -> dict[str, dict[str, tuple[str, ...]]]:
    """Rows of the page's table: cells by script and title."""
    found: dict[str, dict[str, tuple[str, ...]]] = {}
    part = _TABLE.search(text)
    assert part is not None, "docs/reference/managers/executor.md has no table of trials"
    script = ""
    for line in part[0].splitlines():
        if heading := re.match(r"<!-- (\w+)\.py -->", line):
            script = heading[1]
        elif line.startswith("| ") and not line.startswith("| a row"):
            title, *cells = (cell.strip() for cell in line.strip("|").split("|"))
            found.setdefault(script, {})[title] = tuple(cells)
    return found


def _written() -> str:
    lines = []
    for script in SCRIPTS:
        lines += [f"<!-- {script}.py -->", f"| a row | {' | '.join(POOLS.values())} |", "|---" * (len(POOLS) + 1) + "|"]
        columns = [played(script, kind) for kind in POOLS]
        lines += [f"| {title} | {' | '.join(column[title] for column in columns)} |" for title in columns[0]]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    made = _written()
    PAGE.write_text(_TABLE.sub(lambda found: found[1] + made + found[2], PAGE.read_text()))
