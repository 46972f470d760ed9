"""Colours of a terminal: they repeat what a word says, and are never the only sign of it."""

from __future__ import annotations

import argparse
import os
import sys

__all__ = ["CHOICES", "Paint"]

CHOICES = ("auto", "always", "never")
_RED, _GREEN, _YELLOW, _CYAN, _BOLD = "31", "32", "33", "36", "1"
_COLOURS = {
    **dict.fromkeys(("FAILED", "failed", "stuck", "parked", "broken", "degraded", "refused"), _RED),
    **dict.fromkeys(("ROLLEDBACK", "retrying", "rolling-back", "paused", "locked-out", "undone", "gated"), _YELLOW),
    **dict.fromkeys(("SUCCESS", "running", "busy"), _GREEN),
    **dict.fromkeys(("waiting", "sleeping", "suspended", "queued"), _CYAN),
}
_PAINTED = frozenset({"STATE", "PHASE", "OUTCOME", "RESULT"})


class Paint:
    """Colours for standard output, or none.

    ``--color`` decides; "auto" means a terminal that is not dumb, unless ``NO_COLOR`` is set.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        wanted = getattr(options, "color", None) or "auto"
        plain = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
        self.is_on = wanted == "always" or (wanted == "auto" and not plain and sys.stdout.isatty())

    def word(self, text: str) -> str:
        """A text that begins with a state, a phase or an outcome, in the colour of that word; others as they are."""
        colour = _COLOURS.get(text.partition(" ")[0].rstrip(",:"))
        return f"\x1b[{colour}m{text}\x1b[0m" if self.is_on and colour and text else text

    def cell(self, heading: str, text: str) -> str:
        """The cell of a table."""
        return self.word(text) if heading in _PAINTED else text

    def bold(self, text: str) -> str:
        """A heading."""
        return f"\x1b[{_BOLD}m{text}\x1b[0m" if self.is_on and text else text

    def bad(self, text: str) -> str:
        """The words of a failure."""
        return f"\x1b[{_RED}m{text}\x1b[0m" if self.is_on and text else text
