"""Words about one procedure, as the command line and the screens show them: facts, steps, attempts, trees, values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from actorproc.ui.text import ago, clipped, duration, plain_line
from actorproc.ui.views.rows import why_of
from actorproc.ui.views.tones import Painter, tone_of, unpainted

if TYPE_CHECKING:
    from actorproc.procedure.values.viewing import ShownValue
    from actorproc.report.audit import AuditInfo
    from actorproc.report.info import ProcedureInfo, ProcedureTree
    from actorproc.report.step_log import AttemptInfo, StepInfo

__all__ = [
    "SOME_ITEMS",
    "attempt_words",
    "facts_of",
    "outcome_of",
    "request_words",
    "step_words",
    "tree_lines",
    "value_lines",
]

SOME_ITEMS = 12
"""Items of a container that are shown unless all are asked for."""
_TEXT = 200


def facts_of(info: ProcedureInfo, now: float) -> Iterator[tuple[str, object]]:  # noqa: C901 - a list of fields
    """Facts by name, those that say something."""
    yield "id", info.id
    yield "type", f"{info.type_name} (version {info.version})"
    yield "state", f"{info.state}, {info.phase}" + (f": {info.reason}" if info.reason else "")
    yield (
        "step",
        f"{' '.join(filter(None, (str(info.step), info.step_name)))}, attempt {info.attempt}, "
        f"errors {info.errors}, crashes {info.crashes}"
        + (f", host losses {info.host_losses}" if info.host_losses else "")
        + (f", run {info.run}" if info.run > 1 else "")
        + (f", generation {info.generation}" if info.generation > 1 else ""),
    )
    if info.parent_id is not None:
        yield "parent", f"{info.parent_id} (root {info.root_id})"
    if info.children:
        yield "children", ", ".join(f"{count} {state}" for state, count in info.children.items())
    if info.locks:
        yield "locks", ", ".join(f"{key.mode.name.lower()} {key.path}" for key in info.locks)
    if info.owner is not None:
        yield "owner", info.owner
    if info.tags:
        yield "tags", ", ".join(info.tags)
    if info.priority:
        yield "priority", info.priority
    yield "created", f"{ago(info.created_at, now)} ago"
    yield "changed", f"{ago(info.updated_at, now)} ago"
    if info.finished_at is not None:
        yield "finished", f"{ago(info.finished_at, now)} ago, after {duration(info.finished_at - info.created_at)}"
    if info.due_at is not None:
        yield "due", ago(info.due_at, now)
    if info.deadline is not None:
        yield "deadline", ago(info.deadline, now)
    if info.aborting:
        yield "abort", "asked for; it has not agreed yet"
    if info.paused is not None:
        yield "paused", info.paused or "no reason given"
    if info.bypassed:
        yield "bypassed", "an operator ended it as if it had succeeded"
    for leftover in info.leftovers:
        yield "left behind", leftover


def outcome_of(step: StepInfo) -> str:
    """Outcome of a step, with the event for which it waits."""
    return step.outcome if step.awaits is None else f"{step.outcome} for {step.awaits}"


def step_words(step: StepInfo, now: float) -> str:
    """A record of the step log in one line."""
    ran = f" in {duration(step.elapsed)}" if step.elapsed is not None else ""
    tries = f", {step.attempts} attempts" if step.attempts > 1 else ""
    label = f" {step.next_name}" if step.next_name else f" [{step.label}]" if step.label else ""
    error = f": {step.error.message}" if step.error is not None else ""
    return (
        f"{step.number}.{step.kind.name.lower()}{label}  {outcome_of(step)}{ran}{tries}, {ago(step.at, now)} ago"
        + clipped(error, _TEXT)
    )


def attempt_words(attempt: AttemptInfo, now: float) -> str:
    """A failed attempt in one line."""
    name = f" {attempt.step_name}" if attempt.step_name else ""
    what = "" if attempt.mode == "execute" else f" ({attempt.mode})"
    worker = f", worker {attempt.slot}" if attempt.slot >= 0 else ""
    return (
        f"{attempt.step}.{attempt.attempt}{name}{what}  {ago(attempt.ended_at, now)} ago after "
        f"{duration(max(0.0, attempt.duration))}{worker}: "
        + clipped(f"{attempt.error.type_name.rpartition('.')[2]}: {attempt.error.message}", _TEXT)
    )


def request_words(row: AuditInfo, now: float) -> str:
    """A request of an operator in one line, without the procedure it was for."""
    said = f": {row.reason}" if row.reason else ""
    detail = f" ({row.detail})" if row.detail else ""
    who = f" by {row.by}" if row.by else ""
    return plain_line(f"{ago(row.at, now)} ago {row.verb}{detail}{who}{said}")


def tree_lines(tree: ProcedureTree, first: str = "", rest: str = "", *, paint: Painter = unpainted) -> Iterator[str]:
    """A tree, one procedure a line.

    Args:
        tree: the procedure and what is below it.
        first: stands before its line.
        rest: stands before the lines below it.
        paint: gives colours. Default: none.
    """
    info = tree.info
    kind = info.type_name.rpartition(".")[2]
    state = str(info.state) if info.phase == "done" else f"{info.state} {info.phase}"
    tone = tone_of(info.state if info.phase == "done" else info.phase)
    step = "" if info.phase == "done" else f", step {info.step}"
    said = clipped(plain_line(why_of(info)), _TEXT)
    yield first + plain_line(f"{info.id}  {kind}  ") + paint(state, tone) + step + (f"  {said}" if said else "")
    for place, child in enumerate(tree.children):
        is_last = place == len(tree.children) - 1 and not tree.omitted
        below = rest + ("   " if is_last else "│  ")
        yield from tree_lines(child, rest + ("└─ " if is_last else "├─ "), below, paint=paint)
    if tree.omitted:
        yield f"{rest}└─ … {tree.omitted} more"


def value_lines(shown: ShownValue, title: str, most: int = SOME_ITEMS) -> Iterator[str]:
    """A value in lines that are safe to print: a mapping as its fields below the title, another one behind it."""
    from actorproc.procedure.values.viewing import lines_of  # noqa: PLC0415 - a list need not wait for it

    if shown.type != "dict" or not shown.items:
        lines = list(lines_of(shown, "", 0, most))
        yield f"{title:<12}{plain_line(lines[0].strip())}"
        yield from (plain_line(line) for line in lines[1:])
        return
    yield title
    for name, item in shown.items[:most]:
        yield from (plain_line(line) for line in lines_of(item, name, 1, most))
    left = len(shown.items) - len(shown.items[:most]) + shown.omitted
    if left:
        yield f"  … {left} more"
