"""Standard input, output and error, any of which may be closed when a program starts."""

from __future__ import annotations

import sys

__all__ = ["replace_closed_streams"]

_STREAMS = (("stdin", "r"), ("stdout", "w"), ("stderr", "w"))
"""In the order of their numbers."""


def replace_closed_streams() -> None:
    """Have the null device in the place of each that is closed, where Python has None."""
    closed = [(number, *stream) for number, stream in enumerate(_STREAMS) if getattr(sys, stream[0]) is None]
    if not closed:
        return
    from actorproc.store.lmdb.files.standard_files import occupy_standard_files

    occupy_standard_files()
    for number, name, mode in closed:
        setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115 - for the program's life
