"""The process that hosts the manager: submit one `CreateTable`, wait for it, write down how it ended.

Started by the controller as ``python -m actorproc.cli.demo_app.service``, killed by it at any moment, and started
again with the same arguments. The second start submits the same id with the same state: that gives back
the procedure which is already on its way. With a store in a database there are several of them, one of which leads.
With ``--agent`` it is a host instead, as of ``actorproc worker``.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
import time
from pathlib import Path

from actorproc import Config, ProcedureManager
from actorproc.cli.demo_app.procedures import CreateRegion, CreateTable
from actorproc.cli.demo_app.tables import Layout, write_atomically

__all__ = ["PROCEDURES", "main"]

PROCEDURES = "actorproc.cli.demo_app.procedures"
HOST_PATIENCE = 3.0
"""Seconds of silence after which a host is lost: short, as all of them are on this machine."""
_HOSTS_WITHIN = 120.0
_LOOK = 0.1


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    layout = Layout(options.directory)
    threading.Thread(target=_leave_with_the_controller, daemon=True).start()
    if options.agent:
        return _serve(options.store, options.workers)
    table = CreateTable(
        source=str(options.source),
        directory=str(options.directory),
        table=options.table,
        regions=options.regions,
        parallel=options.parallel or options.workers,
        failing_region=options.failing_region,
    )
    manager = ProcedureManager(
        options.store or layout.state,
        procedures=[CreateTable, CreateRegion],
        workers=options.workers,
        config=Config(host_patience=HOST_PATIENCE),
        preload=[PROCEDURES],  # a replacement has its imports behind it before it is needed
    )
    with manager:
        _wait_for_hosts(manager, options.wait_for_hosts)
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


def _serve(store: str, workers: int) -> int:
    """Be a host."""
    host = ProcedureManager(store, procedures=[CreateTable, CreateRegion], workers=workers, lead=False)._make_host()
    host.start()
    host.wait_until_left(None)
    return 0


def _wait_for_hosts(manager: ProcedureManager, count: int) -> None:
    """Wait until so many hosts have joined, so that the work begins on all machines."""
    until = time.monotonic() + _HOSTS_WITHIN
    while len(manager.hosts()) < count and time.monotonic() < until:
        time.sleep(_LOOK)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m actorproc.cli.demo_app.service")
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--source", type=Path)
    parser.add_argument("--table")
    parser.add_argument("--regions", type=int)
    parser.add_argument("--workers", type=int, required=True)
    parser.add_argument("--parallel", type=int, default=None)
    parser.add_argument("--store", default=None)
    parser.add_argument("--wait-for-hosts", type=int, default=0)
    parser.add_argument("--agent", action="store_true")
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
