"""The log of a service: text or JSON, on stderr."""

from __future__ import annotations

import argparse
import logging

__all__ = ["add_log_format", "begin_log"]

TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def add_log_format(parser: argparse.ArgumentParser) -> None:
    """Add ``--log-format``."""
    parser.add_argument(
        "--log-format",
        choices=("text", "json"),
        default=None,
        help="lines of the log on stderr: text, or JSON with all attributes of a record (default: text)",
    )


def begin_log(form: str | None, level: int) -> None:
    """Log to stderr, unless the program has set up logging by itself.

    Args:
        form: "text" or "json"; None: nothing was asked for, and it is text.
        level: Of the root logger.
    """
    root = logging.getLogger()
    if root.handlers:
        if form is not None:
            said = "--log-format %s is not in force: the module has set up logging by itself; see actorproc.logging"
            logging.getLogger("actorproc").warning(said, form)
        return
    handler = logging.StreamHandler()
    if form == "json":
        from actorproc.logging import JsonFormatter

        handler.setFormatter(JsonFormatter())
    else:
        handler.setFormatter(logging.Formatter(TEXT))
    root.addHandler(handler)
    root.setLevel(level)
