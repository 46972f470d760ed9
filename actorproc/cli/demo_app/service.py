"""The process that hosts the manager: submit one `CreateTable`, wait for it, write down how it ended.

Started by the controller as ``python -m actorproc.cli.demo_app.service``, killed by it at any moment, and started
again with the same arguments. The second start submits the same id with the same state: that gives back
the procedure which is already on its way.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
from pathlib import Path

from actorproc import ProcedureManager
from actorproc.cli.demo_app.procedures import CreateRegion, CreateTable
from actorproc.cli.demo_app.tables import Layout, write_atomically

__all__ = ["main"]


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    layout = Layout(options.directory)
    threading.Thread(target=_leave_with_the_controller, daemon=True).start()
    table = CreateTable(
        source=str(options.source),
        directory=str(options.directory),
        table=options.table,
        regions=options.regions,
        parallel=options.workers,
        failing_region=options.failing_region,
    )
    manager = ProcedureManager(
        layout.state,
        procedures=[CreateTable, CreateRegion],
        workers=options.workers,
        preload=["actorproc.cli.demo_app.procedures"],  # a replacement has its imports behind it before it is needed
    )
    with manager:
        handle = manager.submit(table, id=f"create-{options.table}")
        failure = handle.exception()
        outcome = {
            "state": str(handle.info().state),
            "error": str(failure.__cause__ or failure).splitlines()[0] if failure is not None else None,
            "output": handle.result() if failure is None else None,
            "locks_left": len(list(manager.locks())),
        }
    write_atomically(layout.outcome(options.table), outcome, drafts=layout.directory)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m actorproc.cli.demo_app.service")
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--table", required=True)
    parser.add_argument("--regions", type=int, required=True)
    parser.add_argument("--workers", type=int, required=True)
    parser.add_argument("--failing-region", type=int, default=None)
    return parser


def _leave_with_the_controller() -> None:
    # The controller holds the other end of our standard input: end of file means that it is gone. The descriptor is
    # read without Python's buffer, whose lock this thread would still hold when the interpreter shuts down.
    while os.read(sys.stdin.fileno(), 1):
        pass
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main())
