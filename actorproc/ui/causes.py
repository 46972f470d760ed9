"""Lines of a chain of causes, and of a failure: what is to be done, and the words of a crash, first."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING

from actorproc.ui.text import clipped, duration, plain_line, size_of

if TYPE_CHECKING:
    from actorproc.model.rows.records import ErrorInfo
    from actorproc.report.why import Cause

__all__ = ["cause_lines", "error_lines"]

_DOES = {
    "stack": "shows where it is",
    "steps": "shows what it did, with the errors",
    "why": "goes on with the chain",
    "tree": "shows all below it",
    "status": "tells how the manager does",
    "signal": "sends what it waits for",
    "publish": "sends the event",
    "resume": "lifts the pause",
    "run": "starts a manager",
    "kill": "ends this attempt; it is tried again",
    "retry": "runs it again",
    "rollback": "undoes what it did",
    "abort": "gives it up and undoes what it did",
    "bypass": "ends it as if it had succeeded: the last resort",
    "clear-poison": "gives the key back, once it is sound",
    "doctor": "examines the store",
}
"""Effect of each command that repairs something."""
_FATAL = ("Fatal Python error", "Current thread 0x", "Thread 0x", "Extension modules:")
_FRAME = re.compile(r'^\s*File "([^"]*)"')
_LIBRARY = re.compile(r"[/\\](?:actorproc|lib[/\\]python[\d.]+)[/\\](?!site-packages)")


def cause_lines(cause: Cause, path: str | None = None) -> Iterator[str]:
    """The chain, one link a line, and below it a line for each command that would repair it.

    Args:
        cause: the top of the chain.
        path: what --path said, which the commands say again.
    """
    yield from _links(cause, "", "", path)


def _links(cause: Cause, first: str, rest: str, path: str | None) -> Iterator[str]:
    yield first + clipped(plain_line(cause.says), 600)
    stem = rest + ("│  " if cause.causes else "   ")
    width = max((len(_typed(repair, path)) for repair in cause.repairs), default=0)
    for repair in cause.repairs:
        words = _words_of(repair)
        command = _typed(repair, path)
        yield f"{stem}⇒ {command:<{min(width, 60)}}  # {words}" if words else f"{stem}⇒ {command}"
    for place, below in enumerate(cause.causes):
        is_last = place == len(cause.causes) - 1
        yield from _links(below, rest + ("└─ " if is_last else "├─ "), rest + ("   " if is_last else "│  "), path)


def _typed(repair: str, path: str | None) -> str:
    given = repair if path is None else repair.replace("actorproc ", f"actorproc --path {shlex.quote(path)} ", 1)
    return plain_line(given)


def _words_of(repair: str) -> str:
    verb = repair.split(" ", 2)[1] if repair.startswith("actorproc ") else ""
    if verb == "abort" and "--force" in repair:
        return "kills its step and undoes what it did"
    return _DOES.get(verb, "")


# ---------------------------------------------------------------- failures
def error_lines(title: str, error: ErrorInfo, *, full: bool = False) -> Iterator[str]:
    """A failure: its words, the report of its worker's end, and the frames of the user's code.

    Args:
        title: of the block.
        error: the failure.
        full: show frames of the library and of the worker too. Default: False.
    """
    where = f", in step {error.step} of {error.procedure}" if error.procedure else ""
    yield f"{title} ({error.kind}{plain_line(where)})"
    yield f"  {plain_line(error.type_name)}: {plain_line(error.message)}"
    crash = error.crash
    if crash is not None:
        yield "  " + plain_line(f"{crash.kind}: {crash.message}")
        facts = {
            "peak memory": size_of(crash.peak_rss) if crash.peak_rss is not None else None,
            "cpu": duration(crash.cpu_time) if crash.cpu_time is not None else None,
            "ran": duration(crash.duration) if crash.duration is not None else None,
        }
        if any(facts.values()):
            yield "  " + ", ".join(f"{name} {value}" for name, value in facts.items() if value is not None)
    if crash is None or not _repeats(error.traceback, (crash.stack, crash.stderr)):
        yield from _block(error.traceback, "  ", full=True)
    if crash is not None:
        stderr = crash.stderr if full else _without_dump(crash.stderr)
        for name, text in (("stderr", stderr), ("stack", crash.stack or _dump_in(crash.stderr))):
            if text.strip():
                yield f"  {name}"
                yield from _block(text, "    ", full=full)


def _repeats(text: str, told: tuple[str, ...]) -> bool:
    """True if a traceback is what the report of the worker's end has as well."""
    return text.startswith(_FATAL) or any(text.strip() in other for other in told)


def _without_dump(text: str) -> str:
    """Text that a step wrote itself, without the stacks that the interpreter wrote as it died."""
    kept = []
    for line in text.split("\n"):
        if line.startswith(_FATAL):
            break
        kept.append(line)
    return "\n".join(kept)


def _dump_in(text: str) -> str:
    return text[len(_without_dump(text)) :].lstrip("\n")


def _block(text: str, indent: str, *, full: bool) -> Iterator[str]:
    folded = 0
    for line in text.rstrip().split("\n") if text.strip() else ():
        match = _FRAME.match(line)
        if not full and match is not None and _LIBRARY.search(match[1]) and "site-packages" not in match[1]:
            folded += 1
            continue
        if folded:
            yield f"{indent}  … {folded} frames of the worker (--full)"
            folded = 0
        yield indent + plain_line(line)
    if folded:
        yield f"{indent}  … {folded} frames of the worker (--full)"
