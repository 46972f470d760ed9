"""``export`` and ``import``: procedure trees as JSON, for bug reports and for reproducing them elsewhere."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from actorproc.cli.output.outcomes import columns_of_outcomes, outcome
from actorproc.cli.output.output import Output, complain
from actorproc.cli.select.common import ID_HELP, OK, full_id, globals_for, home, open_reader
from actorproc.errors import NotAllowed, StorageUnavailable, StoreDamaged, UnknownProcedure, UsageError
from actorproc.procedure.values.type_names import command_of_module
from actorproc.ui.text import counted

if TYPE_CHECKING:
    from actorproc.store.home import Home

__all__ = ["add_export", "add_import", "export_apart"]

_Commands = Any
_NOT_EXPORTED = "enqueued procedures are no trees yet and were not exported:"


def add_export(commands: _Commands) -> None:
    """Add ``export``."""
    parser = commands.add_parser(
        "export",
        help="write procedure trees with all their records as JSON",
        description=(
            "Whole trees: the id of a child takes its root along. States are in it as they were dumped, without what "
            "is marked as Secret: an unfinished procedure that needs it is parked where that is imported. With "
            "--reveal it is all there. Schedules are not in it: programs declare them where the trees are imported. "
            "Nor is what applications enqueued before a manager has taken it in."
        ),
    )
    globals_for(parser, output=False)
    parser.add_argument("ids", nargs="*", metavar="ID", help=ID_HELP)
    parser.add_argument("--all", action="store_true", help="every tree")
    parser.add_argument("--out", metavar="FILE", help="a new file, for this user only (default: standard output)")
    parser.add_argument("--skip-damaged", action="store_true", help="leave out trees that cannot be read whole")
    parser.add_argument("--reveal", action="store_true", help="with what is marked as Secret")
    parser.set_defaults(run=_export)


def _export(options: argparse.Namespace) -> int:
    if bool(options.ids) == options.all:
        raise UsageError("give ids, or --all")
    from actorproc.store.tools.salvage import SalvageReader

    roots: list[str] = []
    if options.ids:
        with open_reader(options) as reader:
            roots = list(dict.fromkeys(reader.info(full_id(reader, start)).root_id for start in options.ids))
    place = home(options)
    # A store without a writer is read page by page, so that one damaged page costs its own trees only.
    apart = options.skip_damaged and place.is_near and place.owner() is None
    with SalvageReader(place.words) if apart else place.reader() as store:
        if isinstance(store, SalvageReader) and options.all:
            roots = store.roots()
        elif options.all:
            roots = [head.id for head in store.scan(skip_damaged=True) if head.parent is None]
        if options.out is None:
            skipped = _written(sys.stdout, store, roots, options)
        else:
            skipped = _written_to_file(store, roots, options)
        if options.all:
            _tell_enqueued(store)
    if options.out is not None or skipped:
        count = len(roots) - len(skipped)
        left_out = f", {len(skipped)} left out" if skipped else ""
        complain(f"{counted(count, 'tree')} written{left_out}")
    return OK


def _tell_enqueued(store: Any) -> None:
    """Say what of the store is in no tree."""
    try:
        facts = store.enqueued_facts()
    except StoreDamaged as error:
        complain(f"{_NOT_EXPORTED} which cannot be counted: {error.reason}")
        return
    waiting, refused = facts["enqueued"], facts["enqueued_refused"]
    if waiting or refused:
        counts = f"{waiting} that wait and {refused} that were refused"
        complain(f"{_NOT_EXPORTED} {counts}; see `actorproc enqueued`, and let a manager take in what waits")


def _new_file(name: str) -> IO[str]:
    from actorproc.store.directory import new_private

    try:
        return os.fdopen(new_private(name), "w", encoding="utf-8")
    except FileExistsError:
        raise NotAllowed(f"there is something at {name} already; give a new file") from None


def _written_to_file(store: Any, roots: list[str], options: argparse.Namespace) -> list[str]:
    """The same into a new file, which is whole or not there."""
    file = _new_file(options.out)
    try:
        with file:
            return _written(file, store, roots, options)
    except BaseException as error:
        Path(options.out).unlink(missing_ok=True)
        if isinstance(error, OSError):
            msg = f"writing {options.out}: {error.strerror}; free some space or give another place, nothing was kept"
            raise StorageUnavailable(msg) from error
        raise


def _written(file: IO[str], store: Any, roots: list[str], options: argparse.Namespace) -> list[str]:
    """Write the document tree by tree: a large store is not held in memory. The roots that were left out."""
    from actorproc.procedure.values.redaction import redacted
    from actorproc.report.schema.export import FORMAT
    from actorproc.report.schema.shape import VERSION, iso
    from actorproc.store.tools.transfer import judged, take_out

    head = {
        "schema": VERSION,
        "object": FORMAT,
        "exported_at": iso(time.time()),
        "store_id": _name_of(store),
    }
    skipped = []
    pickled = 0
    file.write(json.dumps(head)[:-1] + ', "trees": [')
    between = "\n"
    for root in roots:
        try:
            tree = take_out(store, root, None if options.reveal else redacted)
            if options.skip_damaged:
                judged(tree)  # what is left must go into another store
        except (StoreDamaged, UnknownProcedure, UsageError):
            if not options.skip_damaged:
                raise
            skipped.append(root)
            continue
        file.write(between + json.dumps(tree))
        between = ",\n"
        pickled += any(row["codec"] == "pickle" for row in tree["steps"])
    file.write("\n]}\n")
    file.flush()
    if pickled and not options.reveal:
        holds = "1 tree holds" if pickled == 1 else f"{pickled} trees hold"
        complain(f"{holds} pickles, which are written as they are, with what is marked as Secret in them")
    return skipped


def _name_of(store: Any) -> str | None:
    """The store's id; None when that is damaged."""
    try:
        return str(store.store_id)
    except StoreDamaged:
        return None


def export_apart(path: str, out: str) -> dict[str, Any]:
    """Export all readable records in another process, which damaged pages may kill; raises `NotAllowed`.

    The export is whole, with the values of secrets: it is to take the place of the store.
    """
    if os.path.lexists(out):
        raise NotAllowed(f"there is something at {out} already; give a new file")
    command = ("export", "--all", "--skip-damaged", "--reveal", "--out", out)
    done = subprocess.run(  # noqa: S603 - ourselves
        command_of_module("actorproc", *command),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        check=False,
        env={**os.environ, "ACTORPROC_PATH": path},  # not as an argument: the URL of a database may hold a password
    )
    if done.returncode:
        raise UsageError(f"the export ended with code {done.returncode}: {done.stderr.strip()}")
    for line in done.stderr.splitlines():
        if line.startswith(_NOT_EXPORTED):
            complain(line)
    with Path(out).open(encoding="utf-8") as file:
        trees = len(json.load(file)["trees"])
    left = [word for word in done.stderr.split(",") if "left out" in word]
    return {"file": out, "trees": trees, "skipped": int(left[0].split()[0]) if left else 0}


def add_import(commands: _Commands) -> None:
    """Add ``import``."""
    parser = commands.add_parser(
        "import",
        help="put exported trees into a store that no manager runs on, made if it is missing",
        description="Ids must be free and locks not taken there. A manager started on it finishes what had not ended.",
    )
    globals_for(parser).add_argument("file", metavar="FILE", help="what `actorproc export` wrote; - is standard input")
    parser.add_argument("--dry-run", action="store_true", help="only look whether it would work")
    parser.set_defaults(run=_import)


def _import(options: argparse.Namespace) -> int:
    from actorproc.report.schema.export import read_export

    output = Output(options)
    trees = read_export(options.file)
    bring = _look_whether_it_works if options.dry_run else _bring
    roots = bring(home(options), trees)
    result = "would be imported (dry run)" if options.dry_run else "imported"
    applied = None if options.dry_run else "stopped store"
    rows = [outcome(root, "import", result, applied=applied) for root in roots]
    output.rows("outcome", [rows], columns_of_outcomes(), name=lambda row: row["id"], empty="there is no tree in it")
    return OK


def _bring(place: Home, trees: list[dict[str, Any]]) -> list[str]:
    from actorproc.store.tools.transfer import bring_in

    store = place.store(role="command")
    try:
        epoch = store.own()
        return bring_in(store, trees, lambda writes: store.commit(writes, epoch))
    finally:
        store.close()


def _look_whether_it_works(place: Home, trees: list[dict[str, Any]]) -> list[str]:
    """Change nothing: a store that is missing is not made, and one that is there is only read."""
    from actorproc.store.lmdb.owner_lock import in_use
    from actorproc.store.memory import MemoryStore
    from actorproc.store.tools.transfer import bring_in

    if not place.exists():
        return bring_in(MemoryStore(), trees, None)
    with place.reader() as store:
        owner = store.owner()
        if owner is not None:
            raise in_use(store.path, owner.pid, owner.role, owner.host)
        return bring_in(store, trees, None)
