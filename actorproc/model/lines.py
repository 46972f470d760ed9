"""Text in one line for terminals and logs, whatever it holds."""

from __future__ import annotations

import re

__all__ = ["is_harmless", "plain_line", "plain_text"]

_HARMFUL = re.compile(
    "[\x00-\x1f\x7f-\x9f"  # C0, DEL and C1: escape sequences begin with these
    "\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"  # bidi controls, invisible ones
    "\ud800-\udfff\U000e0000-\U000e007f]"
)
_COMMANDS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""Characters with which a text moves the cursor, changes the terminal or the order of what follows."""
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\x1b": "\\x1b"}


def plain_line(text: object) -> str:
    """One line that shows this text, whatever it holds: controls and invisible characters as ``\\x1b``, ``\\u202e``."""
    return _HARMFUL.sub(_shown, str(text))


def plain_text(text: str) -> str:
    """The text with its lines and tabs, and with all other control characters as ``\\x1b``."""
    return _COMMANDS.sub(_shown, text)


def is_harmless(text: str) -> bool:
    """True if `plain_text` changes nothing of it."""
    return _COMMANDS.search(text) is None


def _shown(match: re.Match[str]) -> str:
    character = match[0]
    if character in _SHORT:
        return _SHORT[character]
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
