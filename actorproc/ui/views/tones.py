"""Tone of a state, a phase or an outcome: how much it wants to be looked at. Screens give each tone a colour.

A tone repeats what a word says, and is never the only sign of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

__all__ = ["Painter", "Tone", "severity_of", "tone_of", "unpainted"]

Tone = Literal["bad", "warn", "good", "calm", "plain", "strong"]
"""Meaning of a text; "strong" is a heading, or a command to type."""
Painter = Callable[[str, Tone], str]
"""Gives a safe text the colour of a tone."""

_TONES: dict[str, Tone] = {
    **dict.fromkeys(
        ("FAILED", "failed", "stuck", "parked", "broken", "degraded", "storage-trouble", "refused", "hung"), "bad"
    ),
    **dict.fromkeys(
        ("ROLLEDBACK", "retrying", "rolling-back", "paused", "locked-out", "undone", "gated", "stopped", "stopping"),
        "warn",
    ),
    **dict.fromkeys(("SUCCESS", "running", "busy"), "good"),
    **dict.fromkeys(("waiting", "sleeping", "suspended", "queued"), "calm"),
}
_SEVERITY = {
    name: place
    for place, name in enumerate(
        ("stuck", "parked", "FAILED", "retrying", "rolling-back", "locked-out", "paused", "running", "ROLLEDBACK")
    )
}
_ORDINARY = len(_SEVERITY)
_SEVERITY |= dict.fromkeys(("SUCCESS", "done"), _ORDINARY + 1)


def unpainted(text: str, _tone: Tone) -> str:
    """The text without any colour."""
    return text


def tone_of(text: str) -> Tone:
    """Tone of a text that begins with a state, a phase or an outcome; "plain" for any other."""
    return _TONES.get(text.partition(" ")[0].rstrip(",:"), "plain")


def severity_of(state: str, phase: str) -> int:
    """Place in an order by trouble: 0 is the worst."""
    return min(_SEVERITY.get(phase, _ORDINARY), _SEVERITY.get(state, _ORDINARY + 1))
