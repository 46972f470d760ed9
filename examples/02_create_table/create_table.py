"""Create a partitioned table: several files and a catalog entry that must agree, or not exist at all.

python create_table.py DIRECTORY              the table words, counted from this interpreter's json package
python create_table.py DIRECTORY --crash      every region kills its own worker once; the result is the same
python create_table.py DIRECTORY --fail       the last step fails; nothing is left behind
"""

import argparse
import collections
import json
import os
import re
import signal
import zlib
from dataclasses import dataclass
from pathlib import Path

from actorproc import LockKey, Procedure, ProcedureFailed, ProcedureManager, Saga, Status, step

REGIONS = 4


def write(path: Path, value: object) -> None:
    """Replace a file in one move, so that a killed step leaves the old file or the new one."""
    draft = path.with_suffix(f".{os.getpid()}")
    draft.write_text(json.dumps(value, sort_keys=True))
    draft.replace(path)


@dataclass
class CreateRegion(Procedure):
    """Counts the words that belong to one region, a source file per step."""

    sources: list[str]
    table: str
    region: int
    crash: bool
    position: int = 0
    counts: dict[str, int] | None = None

    def execute(self, ctx):
        if self.crash and self.position == 1 and ctx.attempt == 1:
            os.kill(os.getpid(), signal.SIGKILL)  # as the kernel does when memory runs out
        if self.position == len(self.sources):
            write(self.file, self.counts)
            return Status.done(len(self.counts))
        words = re.findall(r"\w+", Path(self.sources[self.position]).read_text())
        mine = [word for word in words if zlib.crc32(word.encode()) % REGIONS == self.region]
        self.counts = dict(collections.Counter(self.counts or {}) + collections.Counter(mine))
        self.position += 1
        return Status.executing()

    def rollback(self, ctx):
        self.file.unlink(missing_ok=True)

    @property
    def file(self):
        return Path(self.table, f"region-{self.region}.json")


class CreateTable(Saga):
    """The regions side by side, then the manifest, then the catalog. Undone in reverse."""

    sources: list[str]
    table: str
    crash: bool = False
    fail: bool = False
    words: int = 0

    def lock_keys(self):
        return [LockKey.write(f"catalog/{Path(self.table).name}")]

    @step
    def create_regions(self, ctx):
        Path(self.table).mkdir(exist_ok=True)
        return Status.suspended(CreateRegion(self.sources, self.table, n, self.crash) for n in range(REGIONS))

    @create_regions.undo
    def remove_directory(self, ctx):
        if Path(self.table).exists():
            Path(self.table).rmdir()

    @step
    def write_manifest(self, ctx):
        self.words = sum(outcome.output for outcome in ctx.children.values())
        write(Path(self.table, "manifest.json"), {"regions": REGIONS, "words": self.words})

    @write_manifest.undo
    def remove_manifest(self, ctx):
        Path(self.table, "manifest.json").unlink(missing_ok=True)

    @step
    def register(self, ctx):
        write(Path(self.table + ".catalog"), {"table": self.table})

    @register.undo
    def unregister(self, ctx):
        Path(self.table + ".catalog").unlink(missing_ok=True)

    @step
    def announce(self, ctx):
        if self.fail:
            raise RuntimeError("nobody wants this table")
        return self.words


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=Path)
    parser.add_argument("--crash", action="store_true")
    parser.add_argument("--fail", action="store_true")
    options = parser.parse_args()
    sources = sorted(str(path) for path in Path(json.__file__).parent.glob("*.py"))
    table = CreateTable(sources, str(options.directory.absolute() / "words"), options.crash, options.fail)

    with ProcedureManager(options.directory / "state", workers=2) as manager:
        try:
            print("words:", manager.run(table))
        except ProcedureFailed as failure:
            print("undone:", failure.cause)
    print("left:", *sorted(path.name for path in options.directory.glob("words*")))


main()
