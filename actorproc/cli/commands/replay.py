"""``replay``: run stored steps again, here, with the code that is here now. The one command that runs user's code."""

from __future__ import annotations

import argparse
import faulthandler
import importlib
import linecache
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import FrameType, ModuleType
from typing import TYPE_CHECKING, Any

from actorproc.cli.output.output import Column, Output, complain
from actorproc.cli.select.common import FAILED, ID_HELP, OK, REFUSED, full_id, globals_for, typed, whole_number
from actorproc.cli.select.filters import seconds
from actorproc.cli.select.json_fields import fields_of, strict_json
from actorproc.errors import UnknownProcedure, UsageError
from actorproc.ui.text import clipped, counted, plain_line

if TYPE_CHECKING:
    from actorproc.api.replay.replayer import Replayer
    from actorproc.api.replay.result import ReplayResult
    from actorproc.procedure.runtime.engine_side import TypeRegistry

__all__ = ["add_replay"]

_Commands = Any
_ENGINE = ("actorproc.*", "importlib*", "contextlib", "threading", "typing", "dataclasses", "logging*", "functools")
"""Modules that a debugger passes over on its way to the step."""
_UNTIL_EXIT = 5.0
"""Seconds from the end of a step's time to the exit of a process whose step cannot be interrupted."""


def add_replay(commands: _Commands) -> None:
    """Add ``replay``."""
    parser = commands.add_parser(
        "replay",
        help="run a stored step again in this process, under a debugger if you like, and compare; nothing is written",
        description=(
            "Imports the module of the procedure and runs its code, which no other look at a store does. Children, "
            "events and remembered values are answered from what is stored. Network and processes are refused."
        ),
        epilog="exit codes: 0 as stored, or nothing is stored to compare with; 1 it differs; 3 no such step; "
        "5 it cannot be replayed",
    )
    globals_for(parser).add_argument("id", nargs="?", metavar="ID", help=ID_HELP)
    parser.add_argument(
        "--step", type=whole_number(1), metavar="N", help="from this record (default: what failed or is next)"
    )
    parser.add_argument("--undo", action="store_true", help="the undo of the step, in place of the step")
    parser.add_argument(
        "--all", action="store_true", help="every stored step of all that have not ended: before a deploy"
    )
    parser.add_argument("--type", metavar="NAME", help="with --all: only this type")
    parser.add_argument(
        "--file", metavar="FILE", help="from what `actorproc export --reveal` wrote, in place of a store"
    )
    parser.add_argument("--module", metavar="MODULE[:ATTRIBUTE]", help="has the classes (default: that of the type)")
    parser.add_argument(
        "--set", dest="fields", action="append", default=[], metavar="FIELD=VALUE", help="change a field before"
    )
    parser.add_argument("--event", type=_json, metavar="JSON", help="payload of the event (default: the stored one)")
    parser.add_argument("--env", metavar="MODULE:FUNCTION", help="makes ctx.env")
    parser.add_argument(
        "--allow-requests", action="store_true", help="let the step use the network and processes, for real"
    )
    parser.add_argument(
        "--timeout",
        type=seconds,
        metavar="TIME",
        help="stop a step that takes longer: 90s, 10m (default: 60s, and under a debugger never; 0: never)",
    )
    parser.add_argument("--pdb", action="store_true", help="stop at the first line of the step, and where it fails")
    parser.add_argument(
        "--debugpy", type=whole_number(1, 65535), metavar="PORT", help="wait for a debugger on this port"
    )
    parser.add_argument("--trace", action="store_true", help="print each line of the user's code as it runs")
    parser.set_defaults(run=_replay, json_fields=None)


def _json(text: str) -> Any:
    try:
        return strict_json(text)
    except ValueError as error:
        msg = f"{text!r:.60} is no JSON: {error}"
        raise argparse.ArgumentTypeError(msg) from None


def _replay(options: argparse.Namespace) -> int:
    if bool(options.id) == options.all:
        raise UsageError("give an id, or --all")
    if options.all and (
        options.step or options.undo or options.fields or options.pdb or options.debugpy or options.trace
    ):
        raise UsageError("--all replays every stored step as it is: leave --step, --undo, --set and debuggers out")
    output = Output(options)
    with ExitStack() as stack:
        store, keys = _opened(options, stack)
        name = "" if options.all else _id_of(store, options.id)
        types = store.types() if options.all else [store.procedure(name).type_name]
        replayer = _replayer(options, _registry(options, types, keys), store)
        if options.all:
            return _all(options, output, replayer, store)
        return _one(options, output, replayer, name)


def _opened(options: argparse.Namespace, stack: ExitStack) -> tuple[Any, Any]:
    """The store, or an export in memory, and the keys by which pickles are believed."""
    if options.file is not None:
        from actorproc.api.replay.exported import store_of_export

        return store_of_export(options.file), None
    from actorproc.cli.select.common import home

    place = home(options)
    return stack.enter_context(place.reader()), place.keys()


def _id_of(store: Any, start: str) -> str:
    if hasattr(store, "path"):
        return full_id(store, start)
    found = store.ids(start)
    if start in found or len(found) == 1:
        return start if start in found else str(found[0])
    raise UnknownProcedure(f"the export has {'several ids' if found else 'no id'} beginning with {start!r}")


def _registry(options: argparse.Namespace, types: list[str], keys: Any) -> TypeRegistry:
    """The classes of the module that is given, or of those that the types name. Raises `UsageError`."""
    from actorproc.cli.service.importing import told_in_words
    from actorproc.cli.service.run import find_manager
    from actorproc.procedure.runtime.engine_side import TypeRegistry
    from actorproc.procedure.shipping.importing import imports_only

    key = keys or os.urandom(32)
    sys.path.insert(0, "")
    with imports_only("actorproc replay"):
        if options.module is not None:
            with told_in_words(options.module):
                registry = find_manager(options.module)._types.registry(key)
            _name_as_in_a_script(registry, types, options.module.partition(":")[0])
            return registry
        registry = TypeRegistry(signing_key=key)
        for type_name in types:
            for found in _classes_of(type_name, options):
                registry.register(found)
    return registry


def _name_as_in_a_script(registry: TypeRegistry, types: list[str], module: str) -> None:
    """Give classes of a module the names that they have when it is run as a script."""
    for type_name in types:
        own = type_name.removeprefix("__main__.")
        if own == type_name or registry.get(type_name) is not None:
            continue
        runtime = registry.get(f"{module}.{own}")
        if runtime is not None and runtime.procedure_class is not None:
            runtime.procedure_class.type_name = type_name
            registry.register(runtime.procedure_class)


def _classes_of(type_name: str, options: argparse.Namespace) -> Iterator[Any]:
    """The class that a type name says, if a module of that name has it."""
    from actorproc.cli.service.importing import told_in_words

    parts = type_name.split(".")
    if parts[0] == "__main__" and not options.all:
        raise UsageError(f"{type_name} is of a script: give that as a module with --module (shop for shop.py)")
    for length in range(len(parts) - 1, 0, -1):
        module_name = ".".join(parts[:length])
        with told_in_words(module_name):
            module = _imported(module_name)
        if module is None:
            continue
        found: Any = module
        for part in parts[length:]:
            found = getattr(found, part, None)
        if found is not None:
            yield found
        elif not options.all:
            raise UsageError(f"{module_name} has no {'.'.join(parts[length:])} any more; give its module with --module")
        return
    if not options.all:
        raise UsageError(f"no module of {type_name!r} can be imported here; give one with --module")


def _imported(name: str) -> ModuleType | None:
    """The module of this name; None when there is none. Exceptions of the module pass."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise
        return None


def _replayer(options: argparse.Namespace, registry: TypeRegistry, store: Any) -> Replayer:
    from actorproc.api.replay.replayer import Replayer

    env = None
    if options.env is not None:
        from actorproc.cli.service.importing import told_in_words

        module, colon, function = options.env.partition(":")
        with told_in_words(f"--env {options.env}", "cannot be used"):
            env = getattr(importlib.import_module(module), function)() if colon else None
        if not colon:
            raise UsageError("--env is MODULE:FUNCTION")
    return Replayer(
        store,
        registry,
        env=env,
        allow_requests=options.allow_requests,
        quiet=options.all,
        run=_runner(options),
        timeout=_timeout(options),
    )


def _timeout(options: argparse.Namespace) -> float | None:
    """Seconds that a step may take; None: no limit."""
    from actorproc.api.replay.time_limit import DEFAULT

    if options.timeout is None:
        return None if options.pdb or options.debugpy else DEFAULT
    return float(options.timeout) or None


# ---------------------------------------------------------------- debuggers
def _runner(options: argparse.Namespace) -> Callable[[Callable[[], Any]], Any] | None:
    if options.pdb:
        return _under_pdb
    if options.debugpy is not None:
        return _waiting_for(options.debugpy)
    limit = _timeout(options)
    run = _traced if options.trace else None
    return run if limit is None else _or_exit(limit + _UNTIL_EXIT, run)


def _or_exit(limit: float, run: Callable[[Callable[[], Any]], Any] | None) -> Callable[[Callable[[], Any]], Any]:
    """End the process with its stacks when a step cannot be interrupted, as code in C that holds the interpreter."""

    def limited(call: Callable[[], Any]) -> Any:
        faulthandler.dump_traceback_later(limit, exit=True, file=sys.__stderr__ or sys.stderr)
        try:
            return call() if run is None else run(call)
        finally:
            faulthandler.cancel_dump_traceback_later()

    return limited


def _under_pdb(call: Callable[[], Any]) -> Any:
    """Stop at the first line of user's code."""
    import pdb  # noqa: T100 - it is what was asked for

    return pdb.Pdb(skip=_ENGINE, nosigint=True).runcall(call)


def _waiting_for(port: int) -> Callable[[Callable[[], Any]], Any]:
    try:
        debugpy = importlib.import_module("debugpy")
    except ImportError:
        raise UsageError("--debugpy needs the package debugpy: pip install debugpy") from None
    debugpy.listen(("127.0.0.1", port))
    complain(f"waiting for a debugger on 127.0.0.1:{port}")
    debugpy.wait_for_client()

    def run(call: Callable[[], Any]) -> Any:
        debugpy.breakpoint()
        return call()

    return run


def _traced(call: Callable[[], Any]) -> Any:
    """Print the lines of user's code: not of the library, of installed packages, or of the standard library."""
    ours = (*(str(place) for place in (Path(__file__).parents[2], Path(os.__file__).parent)), "<")

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        name = frame.f_code.co_filename
        if name.startswith(ours) or "site-packages" in name:
            return None
        if event == "line":
            source = linecache.getline(name, frame.f_lineno).rstrip()
            sys.stderr.write(f"{Path(name).name}:{frame.f_lineno:<4} {plain_line(source)}\n")
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        return call()
    finally:
        sys.settrace(before)


# ---------------------------------------------------------------- one, and all
def _one(options: argparse.Namespace, output: Output, replayer: Replayer, name: str) -> int:
    from bdb import BdbQuit

    others = {} if options.event is None else {"event": options.event}
    result = replayer.replay(name, options.step, undo=options.undo, fields=fields_of(options), **others)
    if isinstance(replayer.error, BdbQuit):
        raise KeyboardInterrupt  # the debugger was left: the step has no end of its own to compare
    if options.pdb and replayer.error is not None:
        import pdb  # noqa: T100 - it is what was asked for

        complain(f"post mortem of {type(replayer.error).__name__}: {replayer.error}")
        pdb.post_mortem(replayer.error.__traceback__)
    output.one("replay", result, lambda: _lines(options, result), name=name)
    return REFUSED if result.verdict == "not replayable" else OK if result.same else FAILED


def _lines(options: argparse.Namespace, result: ReplayResult) -> Iterator[str]:
    what = f"{'undo of ' if result.undo else ''}step {result.step}" + (
        f" {result.step_name}" if result.step_name else ""
    )
    if result.verdict == "not replayable":
        yield plain_line(f"{what} of {result.procedure} cannot be replayed: {result.reason}")
        return
    yield plain_line(f"{what} of {result.procedure}: {result.outcome}")
    yield plain_line(f"{result.verdict}: {result.reason}")
    if result.traceback.strip() not in result.outcome:
        yield from (plain_line(f"  {line}") for line in result.traceback.splitlines())
    for title, changes in (("changed", result.changes), ("differs (stored, now)", result.differences)):
        if changes:
            yield title
        for change in changes:
            yield plain_line(f"  {change.path}: {_side(change.before)} → {_side(change.after)}")
    for title, texts in (
        ("would start", result.children),
        ("would lock", result.locks),
        ("made anew, not stored", result.remembered),
        ("refused (--allow-requests)", result.refused),
        ("wrote", result.written),
    ):
        if texts:
            yield plain_line(f"{title}: {', '.join(texts[:10])}{', …' if len(texts) > 10 else ''}")
    if result.verdict == "differs":
        yield plain_line(
            f"under a debugger: {typed(options, 'replay --pdb --step', str(result.step), result.procedure)}"
        )


def _side(value: str | None) -> str:
    """One side of a change; a value that is None has the text "None"."""
    return "(absent)" if value is None else clipped(value, 60)


def _all(options: argparse.Namespace, output: Output, replayer: Replayer, store: Any) -> int:
    from actorproc.cli.select.filters import type_of

    type_name = type_of(options.type, store)
    found: list[ReplayResult] = []

    def chunks() -> Iterator[list[ReplayResult]]:
        for name in list(replayer.unfinished(type_name)):
            for step in replayer.steps(name):
                found.append(replayer.replay(step.procedure, step.number))
                yield [found[-1]]

    columns: list[Column] = [
        ("ID", lambda result: result.procedure),
        ("STEP", lambda result: f"{result.step} {result.step_name or ''}".strip()),
        ("RESULT", lambda result: result.verdict),
        ("WHY", lambda result: result.reason if not result.same else result.outcome),
    ]
    output.rows("replay", chunks(), columns, name=lambda result: result.procedure, empty="no stored step to replay")
    bad = sum(not result.same for result in found)
    if found and not output.is_json:
        result = f"{bad} not as stored" if bad else "all as stored"
        complain(f"{counted(len(found), 'stored step')} replayed: {result}")
    return FAILED if bad else OK
