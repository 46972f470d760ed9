"""Lines of a chain of causes, and of a failure: what is to be done, and the words of a crash, first."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from actorproc.ui.text import clipped, duration, plain_line, size_of, width_of, wrapped
from actorproc.ui.views.tones import Painter, Tone, unpainted

if TYPE_CHECKING:
    from actorproc.model.rows.records import ErrorInfo
    from actorproc.report.why import Cause

__all__ = ["cause_lines", "effect_of", "error_lines", "typed_repair"]

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
    "reload": "takes the code that is on disk now, once it is mended",
}
"""Effect of each command that repairs something."""
_BAD = ("failed", "stuck", "parked", "cycle")
_WARN = ("retrying", "rolling-back", "paused", "lock", "worker", "manager", "running")
_FATAL = ("Fatal Python error", "Current thread 0x", "Thread 0x", "Extension modules:")
_FRAME = re.compile(r'^\s*File "([^"]*)"')
_LIBRARY = re.compile(r"[/\\](?:actorproc|lib[/\\]python[\d.]+)[/\\](?!site-packages)")


def cause_lines(
    cause: Cause, path: str | None = None, *, paint: Painter = unpainted, width: int | None = None
) -> Iterator[str]:
    """The chain, one link a line, and below it a line for each command that would repair it.

    Args:
        cause: the top of the chain.
        path: what --path said, which the commands say again.
        paint: gives colours. Default: none.
        width: columns, to which sentences are wrapped; commands stay whole, to be copied. Default: None, no limit.
    """
    yield from _links(cause, "", "", path, _Layout(paint, width))


class _Layout(NamedTuple):
    """Colours and columns of the lines."""

    paint: Painter
    width: int | None

    def sentence(self, first: str, rest: str, text: str, tone: Tone) -> Iterator[str]:
        """A sentence; the lines that follow its first one are set in below it."""
        lines = (
            [text] if self.width is None else wrapped(text, max(12, self.width - max(width_of(first), width_of(rest))))
        )
        for place, line in enumerate(lines):
            yield (rest if place else first) + self.paint(line, tone)

    def repair(self, stem: str, command: str, room: int, words: str) -> Iterator[str]:
        """A command, and what it does: behind it, or below it when there is no room."""
        shown = f"{stem}⇒ {self.paint(command, 'strong')}"
        if not words:
            yield shown
        elif self.width is None or width_of(stem) + max(room, width_of(command)) + 6 + len(words) <= self.width:
            yield f"{shown}{' ' * max(0, room - len(command))}  # {words}"
        else:
            yield shown
            yield f"{stem}    # {words}"


def _links(cause: Cause, first: str, rest: str, path: str | None, layout: _Layout) -> Iterator[str]:
    stem = rest + ("│  " if cause.causes else "   ")
    yield from layout.sentence(first, stem, clipped(plain_line(cause.says), 600), _tone(cause))
    commands = [(typed_repair(repair, path), effect_of(repair)) for repair in cause.repairs]
    room = min(60, max((len(command) for command, _ in commands), default=0))
    for command, words in commands:
        yield from layout.repair(stem, command, room, words)
    for place, below in enumerate(cause.causes):
        is_last = place == len(cause.causes) - 1
        deeper = rest + ("   " if is_last else "│  ")
        yield from _links(below, rest + ("└─ " if is_last else "├─ "), deeper, path, layout)


def _tone(cause: Cause) -> Tone:
    """Tone of a link: the ends of the chain are what has to be mended."""
    if cause.causes and cause.kind != "cycle":
        return "plain"
    return "bad" if cause.kind in _BAD else "warn" if cause.kind in _WARN else "plain"


def typed_repair(repair: str, path: str | None) -> str:
    """A command that repairs, to be typed for this store.

    Args:
        repair: the command, as a `Cause` has it.
        path: of the store, as ``--path`` has it; None: it is the usual one.
    """
    given = repair if path is None else repair.replace("actorproc ", f"actorproc --path {shlex.quote(path)} ", 1)
    return plain_line(given)


def effect_of(repair: str) -> str:
    """Effect of a command that repairs, in a few words; "": it has none of its own.

    Args:
        repair: the command, as a `Cause` has it.
    """
    if repair.startswith("manager.register("):
        return "in the program of the manager; or restart that with the class"
    verb = repair.split(" ", 2)[1] if repair.startswith("actorproc ") else ""
    if verb == "abort" and "--force" in repair:
        return "kills its step and undoes what it did"
    return _DOES.get(verb, "")


# ---------------------------------------------------------------- failures
def error_lines(title: str, error: ErrorInfo, *, full: bool = False, paint: Painter = unpainted) -> Iterator[str]:
    """A failure: its words, the report of its worker's end, and the frames of the user's code.

    Args:
        title: of the block.
        error: the failure.
        full: show frames of the library and of the worker too. Default: False.
        paint: gives colours. Default: none.
    """
    where = f", in step {error.step} of {error.procedure}" if error.procedure else ""
    yield paint(f"{title} ({error.kind}{plain_line(where)})", "strong")
    yield "  " + paint(f"{plain_line(error.type_name)}: {plain_line(error.message)}", "bad")
    crash = error.crash
    if crash is not None:
        yield "  " + paint(plain_line(f"{crash.kind}: {crash.message}"), "bad")
        facts = {
            "peak memory": size_of(crash.peak_rss) if crash.peak_rss is not None else None,
            "cpu": duration(crash.cpu_time) if crash.cpu_time is not None else None,
            "ran": duration(crash.duration) if crash.duration is not None else None,
        }
        if any(facts.values()):
            yield "  " + ", ".join(f"{name} {value}" for name, value in facts.items() if value is not None)
    told = (f"{error.type_name}: {error.message}",) if crash is None else (crash.stack, crash.stderr)
    if not _repeats(error.traceback, told):
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
            yield _folded(indent, folded)
            folded = 0
        yield indent + plain_line(line)
    if folded:
        yield _folded(indent, folded)


def _folded(indent: str, count: int) -> str:
    return f"{indent}  … {count} {'frame' if count == 1 else 'frames'} of the worker (--full)"
