"""A service of procedures, for ``actorproc run press``: files that appear in a directory are compressed.

    actorproc run press --workers 2

In the directory of this file. SPOOL names the directory that is watched (default: spool).
"""

import gzip
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from actorproc import Procedure, ProcedureManager, Status

SPOOL = Path(os.environ.get("SPOOL", "spool"))


@dataclass
class Compress(Procedure):
    """One file: written aside and renamed, so that a step that runs twice leaves the same."""

    path: str

    def execute(self, ctx):
        source = Path(self.path)
        target = source.with_name(source.name + ".gz")
        if source.exists():
            draft = target.with_suffix(".draft")
            with source.open("rb") as plain, gzip.open(draft, "wb") as packed:
                shutil.copyfileobj(plain, packed)
            draft.rename(target)
            source.unlink()
        return Status.done(target.stat().st_size)


@dataclass
class Press(Procedure):
    """Looks into the directory, has what is there compressed, sleeps, and looks again, for ever."""

    directory: str

    def execute(self, ctx):
        files = sorted(path for path in Path(self.directory).glob("*") if path.suffix not in {".gz", ".draft"})
        if files:
            return Status.suspended([Compress(str(path)) for path in files])
        return Status.sleep(0.2)


def manager():
    """What ``actorproc run`` runs: the store beside the spool, the press submitted once and for all."""

    class Service(ProcedureManager):
        def start(self):
            super().start()
            self.submit(Press(str(SPOOL.absolute())), id="press")  # the same id each time: it goes on where it was
            return self

    SPOOL.mkdir(exist_ok=True)
    return Service("state", procedures=[Press, Compress], workers=2)
