"""A store in a program whose standard streams are closed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import os, sys
from pathlib import Path
from actorproc.store.lmdb.store import LmdbReader, LmdbStore
path, report = sys.argv[1:]
for number in range(3):
    os.close(number)
if Path(path).exists():
    store = LmdbReader(path)
else:
    store = LmdbStore(path)
    store.own()
found = [os.readlink(f"/proc/self/fd/{number}") for number in range(3)]
os.write(2, b"as a library in C does, or the interpreter when it dies")
store.close()
Path(report).write_text("\\n".join(found))
"""


def test_no_file_of_a_store_is_standard_output(tmp_path: Path):
    for opened in ("an owner", "a reader"):
        report = tmp_path / opened
        subprocess.run(
            [sys.executable, "-c", PROGRAM, tmp_path / "state", report],
            stdin=subprocess.DEVNULL, timeout=60, check=True,
        )  # fmt: skip
        assert report.read_text().split("\n") == ["/dev/null"] * 3
