"""``workers``, ``stack``, ``logs``, ``watch``, ``metrics``, ``top``: what only the running manager knows."""

from __future__ import annotations

import argparse
import contextlib
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from actorproc.cli.output.output import Column, Output, complain
from actorproc.cli.select.common import (
    FAILED,
    ID_HELP,
    OK,
    TIMED_OUT,
    UNREACHABLE,
    full_id,
    globals_for,
    is_live,
    open_client,
    open_reader,
    typed,
)
from actorproc.cli.select.filters import moment, seconds
from actorproc.errors import ActorprocError, ManagerStopped, UsageError
from actorproc.ui.text import clipped, duration, moment_of, plain_line, size_of

if TYPE_CHECKING:
    from actorproc.api.client import ProcedureClient
    from actorproc.report.changes import ChangeDigest
    from actorproc.workers.protocol.log_entry import LogEntry

__all__ = ["add_logs", "add_metrics", "add_stack", "add_watch", "add_workers", "end_of_watch"]

_Commands = Any


def add_workers(commands: _Commands) -> None:
    """Add ``workers``."""
    parser = commands.add_parser("workers", help="worker processes and the step in each")
    globals_for(parser)
    parser.set_defaults(run=_workers)


def _workers(options: argparse.Namespace) -> int:
    output = Output(options)
    with open_client(options) as client:
        found = client.workers()
    output.rows(
        "worker",
        [found],
        _worker_columns(),
        name=lambda worker: str(worker.pid),
        empty="no worker runs",
        drop=("QUEUED", "RESTARTS", "CPU", "TYPE", "STATE"),
    )
    return OK


def _worker_columns() -> list[Column]:
    return [
        ("SLOT", lambda worker: worker.slot),
        ("PID", lambda worker: worker.pid),
        ("STATE", lambda worker: worker.state),
        ("PROCEDURE", lambda worker: worker.procedure or "-"),
        ("TYPE", lambda worker: (worker.type_name or "-").rpartition(".")[2]),
        (
            "STEP",
            lambda worker: "-" if worker.step is None else " ".join(filter(None, (str(worker.step), worker.step_name))),
        ),
        ("FOR", lambda worker: "-" if worker.step_age is None else duration(worker.step_age)),
        ("QUEUED", lambda worker: worker.queued),
        ("CPU", lambda worker: "-" if worker.cpu is None else duration(worker.cpu)),
        ("MEMORY", lambda worker: size_of(worker.rss)),
        ("RESTARTS", lambda worker: worker.restarts),
        ("SAYS", lambda worker: clipped(plain_line(_progress(worker.progress, worker.message)), 60)),
    ]


def _progress(progress: float | None, message: str | None) -> str:
    part = f"{progress:.0%}" if progress is not None else ""
    return " ".join(filter(None, (part, message)))


def add_stack(commands: _Commands) -> None:
    """Add ``stack``."""
    parser = commands.add_parser("stack", help="the Python stack of a running step")
    globals_for(parser).add_argument("id", metavar="ID", help=ID_HELP)
    parser.set_defaults(run=_stack)


def _stack(options: argparse.Namespace) -> int:
    output = Output(options)
    with open_client(options) as client:
        name = _resolved(options)
        text = client.stack(name)
    found = {"id": name, "stack": text}
    output.one("stack", found, lambda: (plain_line(line) for line in text.rstrip().split("\n")), name=name)
    if not text:
        complain(f"no step of {name} runs now: {typed(options, 'why', name)}")
        return FAILED
    return OK


def _resolved(options: argparse.Namespace) -> str:
    with open_reader(options) as reader:
        return full_id(reader, options.id)


def add_logs(commands: _Commands) -> None:
    """Add ``logs``."""
    parser = commands.add_parser("logs", help="what a procedure printed and logged, as far as it is kept")
    globals_for(parser).add_argument("id", metavar="ID", help=ID_HELP)
    parser.add_argument("-f", "--follow", action="store_true", help="go on until it ends")
    parser.add_argument("--since", type=moment, metavar="TIME", help="only what came at this time or later: 10m, 2h")
    parser.set_defaults(run=_logs)


def _logs(options: argparse.Namespace) -> int:
    output = Output(options)
    name = _resolved(options)
    if options.follow:
        with open_client(options) as client:
            _print_logs(output, name, _log_chunks(client, name, follow=True), options.since)
        return OK
    with open_reader(options) as reader:
        if is_live(reader):
            options.patience = 2.0
            try:
                with open_client(options) as client:
                    _print_logs(output, name, _log_chunks(client, name, follow=False), options.since)
                return OK
            except ManagerStopped:  # it does not answer; the files beside the store have what it heard
                complain("the manager does not answer; this is what the files beside the store have")
        _print_logs(output, name, [reader.logs(name)], options.since)
    return OK


def _print_logs(output: Output, name: str, chunks: Iterable[list[LogEntry]], since: float | None) -> None:
    if since is not None:
        chunks = ([entry for entry in chunk if entry.at >= since] for chunk in chunks)
    columns: list[Column] = [
        ("TIME", lambda entry: moment_of(entry.at) if output.is_wide else moment_of(entry.at)[5:]),
        ("STEP", _step_of),
        ("STREAM", lambda entry: entry.stream),
        ("TEXT", lambda entry: entry.text),
    ]
    empty = f"{name} has printed nothing that is kept"
    output.rows("log", chunks, columns, name=lambda entry: entry.text, empty=empty, live=True)


def _step_of(entry: LogEntry) -> str:
    """The step and attempt of a line: "2.1 hang"."""
    if entry.step is None:
        return "-"
    return f"{entry.step}.{entry.attempt}" + (f" {entry.step_name}" if entry.step_name else "")


def _log_chunks(client: ProcedureClient, name: str, *, follow: bool) -> Iterator[list[LogEntry]]:
    """New entries, asked for twice a second; entries that are gone by then are lost to us."""
    last: list[LogEntry] = []
    while True:
        over = not follow or client.get(name).done()
        found = client.logs(name)
        yield found[_overlap(last, found) :]
        if over:
            return
        last = found
        client.get(name).wait(0.5, wait_parked=True)


def _overlap(old: list[LogEntry], new: list[LogEntry]) -> int:
    """Number of entries at the beginning of `new` that were the end of `old`: only the front is dropped."""
    if not old:
        return 0
    for place in range(len(new) - 1, -1, -1):
        if new[place] == old[-1] and new[: place + 1] == old[len(old) - place - 1 :]:
            return place + 1
    return 0


def add_watch(commands: _Commands) -> None:
    """Add ``watch``."""
    parser = commands.add_parser(
        "watch",
        help="every change of a procedure until it ends, or of all",
        epilog="exit codes: 0 it succeeded, 1 it ended otherwise, 124 the time was up",
    )
    globals_for(parser).add_argument("id", metavar="ID", nargs="?", help=ID_HELP)
    parser.add_argument("--steps", action="store_true", help="each step and attempt too")
    parser.add_argument(
        "--digest",
        nargs="?",
        type=seconds,
        const=1.0,
        metavar="TIME",
        help="what changed in this time, each procedure once (1s): costs a busy manager little",
    )
    parser.add_argument("--timeout", type=seconds, metavar="TIME", help="give up after this time (exit code 124)")
    parser.set_defaults(run=_watch)


def _watch(options: argparse.Namespace) -> int:
    if options.digest is not None and (options.id is not None or options.steps):
        raise UsageError("--digest is of all procedures: leave out ID and --steps")
    with open_client(options) as client:
        if options.digest is not None:
            return _watch_digests(client, options)
        name = _resolved(options) if options.id is not None else None
        return end_of_watch(client, name, options)


def _watch_digests(client: ProcedureClient, options: argparse.Namespace) -> int:
    """Show digests of changes until the time is up, or the manager gone."""
    output = Output(options)
    deadline = None if options.timeout is None else time.monotonic() + options.timeout
    columns: list[Column] = [
        ("TIME", lambda row: time.strftime("%H:%M:%S", time.localtime(row[0]))),
        ("ID", lambda row: row[1]),
        ("STATE", lambda row: row[2]),
        ("PHASE", lambda row: row[3]),
        ("STEP", lambda row: row[4]),
        ("TRY", lambda row: row[5]),
        ("SAYS", lambda row: row[6]),
    ]

    def digests() -> Iterator[list[ChangeDigest]]:
        with client.watch(digest=max(0.1, options.digest)) as watch:
            while True:
                found = watch.next(None if deadline is None else max(0.0, deadline - time.monotonic()))
                if found is None:
                    return
                yield [found]

    def shown() -> Iterator[list[_DigestLine]]:
        for (digest,) in digests():
            if not digest.is_whole:
                count = "an unknown number" if digest.omitted is None else f"{digest.omitted:,}"
                complain(f"{count} of changes, too many to list")
            yield list(_digest_lines(digest))

    try:
        if output.is_json:
            output.rows("digest", digests(), (), name=str, live=True)
        else:
            complain("changes of all procedures, each procedure once in a digest, as they come:")
            output.rows("digest", shown(), columns, name=lambda row: row[1], live=True)
    except TimeoutError:
        complain(f"the time was up after {duration(options.timeout or 0.0)}")
        return TIMED_OUT
    return OK


_DigestLine = tuple[float, str, str, str, object, object, str]


def _digest_lines(digest: ChangeDigest) -> Iterator[_DigestLine]:
    for row in digest.rows:
        step = f"{row.step} {row.step_name}" if row.step_name else str(row.step)
        yield digest.at, row.id, row.state, row.phase, step, row.attempt, _progress(row.progress, None)
    for name in digest.removed:
        yield digest.at, name, "-", "removed", "-", "-", ""


def end_of_watch(client: ProcedureClient, name: str | None, options: argparse.Namespace) -> int:
    """Show changes until the end; the exit code says how it was."""
    from actorproc.model.states import ProcedureState
    from actorproc.report.changes import Overflow

    output = Output(options)
    limit = getattr(options, "timeout", None)
    deadline = None if limit is None else time.monotonic() + limit
    columns: list[Column] = [
        ("TIME", lambda change: time.strftime("%H:%M:%S", time.localtime(change.at))),
        ("ID", lambda change: change.id),
        ("STATE", lambda change: change.state),
        ("PHASE", lambda change: change.phase),
        ("STEP", lambda change: change.step),
        ("TRY", lambda change: change.attempt),
        ("WHY", lambda change: clipped(plain_line(_change_words(change)), 100)),
    ]
    outcome: list[ProcedureState] = []

    def changes() -> Iterator[list[Any]]:
        with client.watch(name, steps=getattr(options, "steps", False)) as watch:
            while True:
                left = None if deadline is None else max(0.0, deadline - time.monotonic())
                change = watch.next(left)
                if change is None:
                    return
                if isinstance(change, Overflow):
                    complain("some changes were dropped here, because there were too many")
                    continue
                if change.id == name:
                    outcome[:] = [change.state]
                yield [change]

    if not output.is_json and output.format != "name":
        complain(f"changes of {'all procedures' if name is None else name}, as they come:")
    try:
        output.rows("change", changes(), columns, name=lambda change: change.id, live=True)
    except TimeoutError:
        said = "the time was up" if name is None else f"{name} has not ended"
        complain(f"{said} after {duration(limit or 0.0)}")
        return TIMED_OUT
    if name is None:
        return OK
    if not outcome or outcome[0] not in ("SUCCESS", "FAILED", "ROLLEDBACK"):
        complain(f"the manager is gone, and {name} has not ended")
        return UNREACHABLE
    return OK if outcome[0] == ProcedureState.SUCCESS else FAILED


def _change_words(change: Any) -> str:
    if change.error is not None:
        return f"{change.error.type_name.rpartition('.')[2]}: {change.error.message}"
    return change.reason or change.message or ""


def add_metrics(commands: _Commands) -> None:
    """Add ``metrics``."""
    parser = commands.add_parser("metrics", help="counters and histograms: Prometheus text, or JSON with -o json")
    globals_for(parser)
    parser.add_argument(
        "--textfile",
        metavar="FILE",
        help="replace a file by the Prometheus text, for the textfile collector of node_exporter; it says "
        "actorproc_manager_up 0 where no manager answers",
    )
    parser.set_defaults(run=_metrics)


def _metrics(options: argparse.Namespace) -> int:
    if options.textfile is not None:
        return _metrics_file(options, Path(options.textfile))
    output = Output(options)
    with open_client(options) as client:
        metrics = client.metrics(whole=True)
    if getattr(options, "output", None) in ("json", "jsonl"):
        output.one("metrics", metrics, tuple)
    else:
        output.lines(metrics.prometheus().removesuffix("\n").split("\n"))
    return OK


def _metrics_file(options: argparse.Namespace, file: Path) -> int:
    """Put the metrics into a file, whole or not at all; those of a manager that does not answer say just that."""
    from actorproc.report.metrics import NO_MANAGER

    if getattr(options, "output", None) in ("json", "jsonl"):
        raise UsageError("--textfile is for Prometheus text; for JSON leave it out")
    try:
        with open_client(options) as client:
            text = client.metrics(whole=True).prometheus()
    except ActorprocError:
        _replace(file, NO_MANAGER)
        raise
    _replace(file, text)
    return OK


def _replace(file: Path, text: str) -> None:
    draft = file.with_name(f".{file.name}.{os.getpid()}")  # the collector reads no hidden files
    try:
        draft.write_text(text, encoding="utf-8")
        draft.replace(file)
    except OSError as error:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise UsageError(f"{file} cannot be written: {error.strerror}") from None
