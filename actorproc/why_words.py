"""The words in which `actorproc.why` speaks: spans of time, procedures, commands to type."""

from __future__ import annotations

import shlex

from actorproc.info import ProcedureInfo

__all__ = ["command", "span", "word"]


def span(seconds: float) -> str:
    """Seconds as people say them: "0.4 s", "12 s", "3 m", "2 h 5 m", "9 d"."""
    seconds = max(0.0, seconds)
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    if seconds < 59.5:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} m"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} m" if minutes else f"{hours} h"
    return f"{hours // 24} d"


def word(info: ProcedureInfo) -> str:
    """A procedure as a sentence names it: its id, and its type without the module."""
    return f"{info.id} ({info.type_name.rpartition('.')[2]})"


def command(verb: str, subject: str) -> str:
    """The command line of a verb, ready to be pasted into a shell."""
    return f"actorproc {verb} {shlex.quote(subject)}"
