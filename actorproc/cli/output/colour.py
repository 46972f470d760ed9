"""Colours of a terminal: they repeat what a word says, and are never the only sign of it."""

from __future__ import annotations

import argparse
import os
import sys

from actorproc.ui.views.tones import Tone, tone_of

__all__ = ["CHOICES", "Paint"]

CHOICES = ("auto", "always", "never")
_CODES: dict[Tone, str] = {"bad": "31", "good": "32", "warn": "33", "calm": "36", "strong": "1"}
_PAINTED = frozenset({"STATE", "PHASE", "OUTCOME", "RESULT"})


class Paint:
    """Colours for standard output, or none.

    ``--color`` decides; "auto" means a terminal that is not dumb, unless ``NO_COLOR`` is set.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        wanted = getattr(options, "color", None) or "auto"
        plain = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
        self.is_on = wanted == "always" or (wanted == "auto" and not plain and sys.stdout.isatty())

    def __call__(self, text: str, tone: Tone) -> str:
        """A safe text in the colour of a tone."""
        code = _CODES.get(tone)
        return f"\x1b[{code}m{text}\x1b[0m" if self.is_on and code and text else text

    def word(self, text: str) -> str:
        """A text that begins with a state, a phase or an outcome, in the colour of that word; others as they are."""
        return self(text, tone_of(text))

    def cell(self, heading: str, text: str) -> str:
        """The cell of a table."""
        return self.word(text) if heading in _PAINTED else text
