"""Names of attributes that log records have of themselves, and that `extra` cannot give."""

from __future__ import annotations

import logging

__all__ = ["RESERVED", "STANDARD", "free_name"]

STANDARD = frozenset({*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"})
"""Attributes of every record, with all versions of Python."""
RESERVED = STANDARD | frozenset(dir(logging.LogRecord))
"""The same, and the methods of a record, which an attribute of their name would hide."""


def free_name(name: str) -> str:
    """The name under which an attribute of a record may be kept: another one in place of a reserved one."""
    return f"extra_{name}" if name in RESERVED else name
