"""A procedure whose step runs on a host, and a leader that runs it in a process of its own."""

from __future__ import annotations

import dataclasses
import sys
import time
from pathlib import Path

from actorproc import Config, Context, Limits, Procedure, ProcedureManager, Status

__all__ = ["CONFIG", "Far"]

CONFIG = Config(lease=1.0, host_patience=6.0, spares=0)


class Far(Procedure):
    """Notes that it runs, and ends when it may."""

    limits = Limits(on=("far",))

    def __init__(self, folder: str, name: str) -> None:
        self.folder = folder
        self.name = name

    def execute(self, ctx: Context) -> Status:
        with Path(self.folder, f"{self.name}.ran").open("a") as file:
            file.write(f"{ctx.attempt}\n")
        while not Path(self.folder, f"{self.name}.go").exists():
            time.sleep(0.01)
        return Status.done(self.name)


if __name__ == "__main__":
    # It stops while the step runs, which ends only after that.
    patient = dataclasses.replace(CONFIG, stop_timeout=2.0)
    with ProcedureManager(sys.argv[1], procedures=[Far], workers=1, config=patient):
        sys.stdout.write("leads\n")
        sys.stdout.flush()
        sys.stdin.readline()
