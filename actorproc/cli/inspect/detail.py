"""``show``, ``tree``, ``steps``, ``why``: one procedure from all sides. They need no manager."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from actorproc.cli.output.output import Column, Output, complain
from actorproc.cli.select.common import (
    FAILED,
    ID_HELP,
    OK,
    directory,
    full_id,
    globals_for,
    is_live,
    open_client,
    open_reader,
    typed,
    whole_number,
)
from actorproc.ui.causes import cause_lines, error_lines
from actorproc.ui.procedure_detail import LAST as _LAST, detail_of, locks_of, values_of
from actorproc.ui.text import ago, clipped, duration, plain_line, size_of
from actorproc.ui.views.tones import Tone, tone_of
from actorproc.ui.views.words import (
    attempt_words,
    facts_of,
    outcome_of,
    request_words,
    step_words,
    tree_lines,
    value_lines,
)

if TYPE_CHECKING:
    from actorproc.api.client import ProcedureClient
    from actorproc.api.reader import StoreReader
    from actorproc.cli.output.colour import Paint
    from actorproc.procedure.values.viewing import ShownValue
    from actorproc.report.audit import AuditInfo
    from actorproc.report.info import LockInfo, ProcedureInfo
    from actorproc.report.step_log import AttemptInfo, StepInfo
    from actorproc.report.why import Cause

__all__ = ["add_show", "add_steps", "add_tree", "add_why"]

_Commands = Any
_Told = TypeVar("_Told")
_NARROW = ("LABEL", "STATE", "WORKER", "GEN")
"""Columns of steps that a narrow terminal does without."""
_TEXT = 200


def add_show(commands: _Commands) -> None:
    """Add ``show``."""
    parser = commands.add_parser("show", help="all about one procedure: state, error, crash report, last steps, locks")
    globals_for(parser).add_argument("id", metavar="ID", help=ID_HELP)
    parser.add_argument("--full", action="store_true", help="with the frames of the worker in the stacks of a crash")
    parser.set_defaults(run=_show)


def _show(options: argparse.Namespace) -> int:
    output = Output(options)
    with open_reader(options) as reader:
        name = full_id(reader, options.id)
        info = _known(options, reader, lambda source: source.info(name))  # the store does not know the classes
        steps = reader.steps(name)
        locks = locks_of(name, reader.locks())
        audit = reader.audit(name)
        states = reader.states(name)
        attempts = reader.attempts(name)
    values = values_of(states)
    detail = detail_of(info, steps, locks, audit, attempts, values)
    paint = output.paint
    output.one(
        "procedure-detail",
        detail,
        lambda: _show_lines(options, paint, info, steps, attempts, locks, audit, values),
        name=name,
    )
    return OK


def _show_lines(
    options: argparse.Namespace,
    paint: Paint,
    info: ProcedureInfo,
    steps: list[StepInfo],
    attempts: list[AttemptInfo],
    locks: list[LockInfo],
    audit: list[AuditInfo],
    values: dict[str, ShownValue | None],
) -> Iterator[str]:
    now = time.time()
    yield from _fields(facts_of(info, now), paint, tone_of(info.state if info.phase == "done" else info.phase))
    yield from _values_lines(values)
    yield from _exposed_lines(info)
    for title, error in (("error", info.error), ("its undo fails", info.undo_error)):
        if error is not None:
            yield ""
            yield from error_lines(title, error, full=options.full, paint=paint)
    crash = next((step.crash for step in reversed(steps) if step.crash is not None), None)
    if crash is not None and (info.error is None or info.error.crash is None):
        yield ""
        yield from error_lines("last crash", crash, full=options.full, paint=paint)
    held = [lock for lock in locks if lock.holder == info.id]
    waits = [lock for lock in locks if lock.holder != info.id]
    for title, rows in (("holds", held), ("waits for", waits)):
        if rows:
            yield ""
            yield title
            for lock in rows:
                by = "" if lock.holder == info.id else f", held by {plain_line(lock.holder)}"
                yield f"  {lock.mode} of {plain_line(lock.path)}, for {duration(lock.age)}{by}"
    if steps:
        yield ""
        yield f"last steps (of {len(steps)}: {typed(options, 'steps', info.id)})"
        for step in steps[-_LAST:]:
            yield "  " + plain_line(step_words(step, now))
    if attempts:
        yield ""
        yield f"failed attempts (of {len(attempts)}: {typed(options, 'steps --failed', info.id)})"
        for attempt in attempts[-_LAST:]:
            yield "  " + plain_line(attempt_words(attempt, now))
    yield from _audit_lines(audit, now)
    if info.finished_at is None:
        yield ""
        yield f"what it waits for: {typed(options, 'why', info.id)}"


def _audit_lines(audit: list[AuditInfo], now: float) -> Iterator[str]:
    if audit:
        yield ""
        yield "operators"
        yield from (f"  {request_words(row, now)}" for row in audit)


def _exposed_lines(info: ProcedureInfo) -> Iterator[str]:
    """Values it shows, as those of its fields are shown."""
    from actorproc.procedure.values.viewing import ShownValue
    from actorproc.report.exposed import ExposedValues

    if isinstance(info.exposed, ExposedValues) and info.exposed:
        yield from value_lines(ShownValue(type="dict", items=tuple(info.exposed.shown().items())), "exposed", 100)


def _values_lines(values: dict[str, ShownValue | None]) -> Iterator[str]:
    output, fields, first = values["output"], values["fields"], values["input"]
    if output is not None:
        yield from value_lines(output, "output")
    if fields is not None:
        yield from value_lines(fields, "fields" if output is None else "last fields", _LAST)
    if first is not None and first != fields:
        yield from value_lines(first, "input", _LAST)


def _fields(pairs: Iterable[tuple[str, object]], paint: Paint, tone: Tone) -> Iterator[str]:
    for name, value in pairs:
        text = plain_line(value)
        if name == "state":
            word, colon, rest = text.partition(": ")
            text = paint(word, tone) + colon + rest
        yield f"{name:<12}{text}"


# ---------------------------------------------------------------- steps
def add_steps(commands: _Commands) -> None:
    """Add ``steps``."""
    parser = commands.add_parser("steps", help="the step log of a procedure")
    globals_for(parser).add_argument("id", metavar="ID", help=ID_HELP)
    parser.add_argument("--failed", action="store_true", help="only records of failures and of more than one attempt")
    parser.add_argument("--last", type=whole_number(1), metavar="N", help="only the last N")
    parser.set_defaults(run=_steps)


def _steps(options: argparse.Namespace) -> int:
    output = Output(options)
    with open_reader(options) as reader:
        name = full_id(reader, options.id)
        steps, trimmed = reader.steps(name), reader.info(name).trimmed
        attempts = reader.attempts(name) if options.failed else []
    if trimmed and not output.is_json:
        complain(f"records 2 to {trimmed + 1} were trimmed (keep_steps); the first and the last ones are left")
    if options.failed:
        steps = [step for step in steps if step.error is not None or step.crash is not None or step.attempts > 1]
    if options.last is not None:
        steps = steps[-options.last :]
    now = time.time()
    columns: list[Column] = [
        ("RECORD", lambda step: f"{step.number:06d}.{step.kind.name.lower()}"),
        ("STEP", lambda step: step.next_name or "-"),
        ("OUTCOME", outcome_of),
        ("LABEL", lambda step: step.label or "-"),
        ("AGO", lambda step: ago(step.at, now)),
        ("RAN", lambda step: "-" if step.elapsed is None else duration(step.elapsed)),
        ("TRIES", lambda step: step.attempts or "-"),
        ("WORKER", lambda step: "-" if step.slot < 0 else step.slot),
        ("STATE", lambda step: size_of(step.state_bytes)),
    ]
    if output.is_wide or any(step.generation > 1 for step in steps):
        columns.insert(1, ("GEN", lambda step: step.generation))
    if output.is_wide:
        columns += [("PID", lambda step: step.pid or "-"), ("CODEC", lambda step: step.codec)]
    columns.append(("ERROR", lambda step: clipped(_step_error(step), 10_000 if output.is_wide else 60)))
    output.rows(
        "step",
        [steps],
        columns,
        name=lambda step: step.path,
        empty="no record matches",
        drop=_NARROW,
    )
    if attempts and output.format in ("table", "wide"):
        output.lines(["", "failed attempts", *(f"  {plain_line(attempt_words(attempt, now))}" for attempt in attempts)])
    return OK


def _step_error(step: StepInfo) -> str:
    error = step.error if step.error is not None else step.crash
    return "" if error is None else plain_line(f"{error.type_name.rpartition('.')[2]}: {error.message}")


# ---------------------------------------------------------------- tree
def add_tree(commands: _Commands) -> None:
    """Add ``tree``."""
    parser = commands.add_parser("tree", help="a procedure and what it started")
    globals_for(parser).add_argument("id", metavar="ID", help=ID_HELP)
    parser.add_argument("--limit", type=whole_number(1), default=1000, metavar="N", help="at most N procedures (1000)")
    parser.set_defaults(run=_tree)


def _tree(options: argparse.Namespace) -> int:
    output = Output(options)
    with open_reader(options) as reader:
        tree = reader.tree(full_id(reader, options.id), limit=options.limit)
    output.one("tree", tree, lambda: tree_lines(tree, paint=output.paint), name=tree.info.id)
    return OK


# ---------------------------------------------------------------- why
def add_why(commands: _Commands) -> None:
    """Add ``why``."""
    parser = commands.add_parser(
        "why",
        help="what a procedure or a schedule waits for, down to the root cause, and the command that would repair it",
        description=(
            "Follows what a procedure waits for (locks and their holders, children, events, timers, workers) down to "
            "what has no further cause. Each end of the chain names the command that would repair it. Works on a "
            "stopped store too."
        ),
    )
    globals_for(parser).add_argument("id", metavar="ID", help=ID_HELP)
    parser.set_defaults(run=_why)


def _why(options: argparse.Namespace) -> int:
    output = Output(options)
    cause = _explained(options)
    path, paint, width = getattr(options, "path", None), output.paint, output.width
    page = _page_of(options, cause.procedure)

    def lines() -> Iterator[str]:
        yield from cause_lines(cause, path, paint=paint, width=width)
        if page is not None:
            yield f"on its page: {plain_line(page)}"

    output.one("cause", cause, lines, name=cause.procedure)
    return FAILED if cause.kind == "unknown" else OK


def _page_of(options: argparse.Namespace, id: str) -> str | None:
    """Address of its page, where one is known."""
    from actorproc.web.place import address_of

    return address_of(directory(options), id)


def _explained(options: argparse.Namespace) -> Cause:
    with open_reader(options) as reader:
        name = full_id(reader, options.id) if _is_procedure(reader, options.id) else options.id
        return _known(options, reader, lambda source: source.why(name))


def _is_procedure(reader: StoreReader, start: str) -> bool:
    """False if only a schedule has this id: then its firings, whose ids begin so, are not meant."""
    from actorproc.errors import UsageError

    if start in reader.ids(start, limit=1):
        return True
    try:
        reader.schedule_info(start)
    except UsageError:
        return True
    return False


def _known(
    options: argparse.Namespace, reader: StoreReader, ask: Callable[[StoreReader | ProcedureClient], _Told]
) -> _Told:
    """Answer of the manager, or of the store where none runs or answers: what is stored says a lot."""
    from actorproc.errors import ManagerStopped, NotAllowed

    if not is_live(reader):
        return ask(reader)
    options.patience = 2.0
    try:
        with open_client(options) as client:
            return ask(client)
    except ManagerStopped:
        return ask(reader)
    except NotAllowed:
        complain("this login may only look: what follows is from the store, without what the manager knows")
        return ask(reader)
