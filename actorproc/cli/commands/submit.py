"""``submit MODULE:CLASS field=value …`` and ``ask ID NAME``: both may wait for a value."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from datetime import datetime
from typing import Any, get_args

from actorproc.cli.output.outcomes import outcome
from actorproc.cli.output.output import Output, complain
from actorproc.cli.select.common import (
    FAILED,
    ID_HELP,
    OK,
    TIMED_OUT,
    full_id,
    globals_for,
    open_reader,
    shown,
    start_command,
    typed,
)
from actorproc.cli.select.filters import seconds
from actorproc.cli.select.json_fields import fields_of, payload_of
from actorproc.cli.select.steering import Steered
from actorproc.errors import ManagerStopped, ProcedureFailed, ResultTimeout, UsageError
from actorproc.model.policies import OnExisting
from actorproc.procedure.values.error_text import in_words
from actorproc.ui.text import duration, plain_line

__all__ = ["add_ask", "add_submit"]

_Commands = Any


def add_submit(commands: _Commands) -> None:
    """Add ``submit``."""
    parser = commands.add_parser(
        "submit",
        help="submit a procedure",
        description=(
            "Imports the class, makes a procedure of the fields, and submits it. A value is JSON when it can be read "
            "so, else text: count=3 name=book tags='[\"a\"]' code='\"007\"'. The class travels along: a running "
            "manager need not know it. When none runs the procedure is stored, and the next one must know its class."
        ),
    )
    globals_for(parser).add_argument("target", metavar="MODULE:CLASS", help="a procedure class or @procedure function")
    parser.add_argument("fields", nargs="*", metavar="FIELD=VALUE", help="a field, or an argument")
    parser.add_argument("--json", metavar="OBJECT", dest="json_fields", help="all fields as one JSON object")
    parser.add_argument("--id", help="its id (default: a new one); the same submit again changes nothing")
    parser.add_argument(
        "--on-existing",
        choices=get_args(OnExisting),
        default="same",
        metavar="POLICY",
        help="what becomes of it when the id exists: same (default), error, restart-failed, restart",
    )
    parser.add_argument("--tag", action="append", metavar="TAG", help="a word, or KEY=VALUE; may be repeated")
    parser.add_argument("--owner", metavar="TEXT", help="whose it is, for list --owner")
    parser.add_argument("--priority", type=int, default=0, metavar="N", help="higher goes first")
    parser.add_argument("--delay", type=seconds, default=0.0, metavar="TIME", help="before it may start: 30s, 5m")
    parser.add_argument("--at", metavar="TIME", help="moment before which it does not start, as ISO 8601")
    parser.add_argument("--debounce", metavar="KEY", help="wait for further submits of the key: the last one runs")
    parser.add_argument(
        "--within", type=seconds, metavar="TIME", help="with --debounce: the time without a further one"
    )
    parser.add_argument("--at-most", type=seconds, metavar="TIME", help="with --debounce: the longest wait in all")
    parser.add_argument("--wait", action="store_true", help="wait for the end and print the output")
    parser.add_argument("--timeout", type=seconds, metavar="TIME", help="with --wait: give up waiting (exit code 124)")
    parser.add_argument("--dry-run", action="store_true", help="only make the procedure, and show its fields")
    parser.set_defaults(run=_submit)


def _submit(options: argparse.Namespace) -> int:
    from actorproc.api.launch.targets import found_in
    from actorproc.cli.service.importing import told_in_words
    from actorproc.procedure.shipping.importing import imports_only

    if options.timeout is not None and not options.wait:
        raise UsageError("--timeout is how long --wait waits: give both, or neither")
    if options.on_existing != "same" and options.id is None:
        raise UsageError("--on-existing is about the procedure that has the id: give --id as well")
    at = _moment(options.at)
    with told_in_words(options.target), imports_only("actorproc submit"):
        made, name = found_in(options.target)
    if not callable(made):
        raise UsageError(f"{name} is neither a procedure class nor a @procedure function")
    fields = fields_of(options)
    try:
        procedure = made(**fields)
    except (TypeError, ValueError) as error:
        raise UsageError(f"{name} cannot be made of these fields: {error}") from None
    except Exception as error:
        raise UsageError(f"{name} cannot be made of these fields: {in_words(error)}") from error
    output = Output(options)
    if options.dry_run:
        found = outcome(options.id, "submit", f"would be submitted: {procedure!r}")
        output.one("outcome", found, lambda: [plain_line(found["result"])], name=options.id or "")
        return OK
    steered = Steered(options)
    with steered as engine:
        if steered.is_stopped and options.wait:
            msg = f"no manager runs on {shown(options)}, so there is nothing to wait for: start one with "
            raise ManagerStopped(f"{msg}`{start_command(options)}`, or leave --wait out")
        handle = engine.submit(
            procedure,
            id=options.id,
            owner=options.owner,
            priority=options.priority,
            delay=options.delay,
            at=at,
            tags=options.tag,
            on_existing=options.on_existing,
            debounce=options.debounce,
            within=options.within,
            at_most=options.at_most,
        )
        if options.wait:
            return _waited("submit", handle.id, lambda: handle.result(options.timeout), output, options)
    _submitted(handle.id, procedure, steered, output, options)
    return OK


def _moment(text: str | None) -> datetime | None:
    """A moment as it was typed; without a time zone it is local time."""
    try:
        return None if text is None else datetime.fromisoformat(text).astimezone()
    except ValueError:
        raise UsageError(f"--at is a moment such as 2027-03-01T02:00 or 2027-03-01T02:00Z, not {text!r}") from None


def _submitted(name: str, procedure: Any, steered: Steered, output: Output, options: argparse.Namespace) -> None:
    found = outcome(name, "submit", "submitted", applied=steered.applied)
    hint = f"{name}  submitted: {typed(options, 'watch', name)}"
    if steered.is_stopped:
        hint = f"{name}  submitted to the stopped store; it runs when a manager starts"
    output.one("outcome", found, lambda: [hint], name=name)
    if steered.is_stopped:
        module = options.target.partition(":")[0]
        start = start_command(options).replace("MODULE", module)
        complain(f"no manager runs on {shown(options)}; start one that knows {type(procedure).__name__}: {start}")


def _waited(verb: str, id: str, wait: Callable[[], Any], output: Output, options: argparse.Namespace) -> int:
    found = outcome(id, verb, applied="manager")
    try:
        found["result"] = _plain(wait())
    except ProcedureFailed as error:
        words = str(error)
        found |= {"ok": False, "error": words}
        # The traceback below the first line is what `show` is for.
        said = plain_line(words.partition("\n")[0])
        output.one("outcome", found, lambda: [f"{id}  {said}"], name=id)
        complain(f"see it: {typed(options, 'show', id)}")
        return FAILED
    except ResultTimeout as error:
        done, goes_on = "ended", f"it goes on: {typed(options, 'watch', id)}"
        if error.ask:
            again = typed(options, "ask", id, options.name, "--id", error.ask)
            done, goes_on = "replied", f"the ask stands, and the reply comes to: {again}"
        stands = f"it is {error.phase}" + (f" ({plain_line(error.reason)})" if error.reason else "")
        complain(f"{id} has not {done} within {duration(options.timeout)}; {stands}; {goes_on}")
        return TIMED_OUT
    output.one("outcome", found, lambda: [plain_line(json.dumps(found["result"], ensure_ascii=False))], name=id)
    return OK


# ---------------------------------------------------------------- ask
def add_ask(commands: _Commands) -> None:
    """Add ``ask``."""
    parser = commands.add_parser(
        "ask",
        help="send a procedure a signal, and print the reply of the step that takes it",
        description=(
            "Only a wait for NAME takes it. An ask with an id that was asked before gets the same reply, also after "
            "the end of the procedure, and where no manager runs."
        ),
    )
    globals_for(parser).add_argument("target", metavar="ID", help=ID_HELP)
    parser.add_argument("name", metavar="NAME", help="the event that the procedure waits for")
    parser.add_argument("payload", nargs="?", metavar="JSON", help="what the step gets as ctx.event (default: null)")
    parser.add_argument("--id", metavar="TEXT", help="asks with the same text count once (default: a new one)")
    parser.add_argument("--timeout", type=seconds, metavar="TIME", help="give up waiting (exit code 124)")
    parser.set_defaults(run=_ask)


def _ask(options: argparse.Namespace) -> int:
    payload = payload_of(options.payload)
    with open_reader(options) as reader:
        id_ = full_id(reader, options.target)
    output = Output(options)
    with Steered(options) as engine:
        handle = engine.get(id_)
        return _waited(
            "ask",
            id_,
            lambda: handle.ask(options.name, payload, options.timeout, id=options.id),
            output,
            options,
        )


def _plain(value: Any) -> Any:
    """An output as JSON can hold it; what it cannot hold is shown as Python shows it."""
    try:
        json.dumps(value)
    except (TypeError, ValueError):
        return repr(value)
    return value
