"""Options by which a machine says what it offers to steps: workers, labels and resources."""

from __future__ import annotations

import argparse

from actorproc.cli.select.common import whole_number
from actorproc.model.around_step import checked_around_step
from actorproc.model.placement import checked_labels, checked_resources

__all__ = ["add_machine", "add_offer"]


def add_machine(parser: argparse.ArgumentParser, *, least: int = 1) -> None:
    """Add ``--workers`` of a service on this machine, so many at least, and its offer."""
    parser.add_argument(
        *("-n", "--workers"),
        type=whole_number(least),
        metavar="N",
        default=None,
        help="worker processes (default: one per processor it may use, by affinity and the quota of its container)"
        + ("" if least else "; 0, with a store in a database: it leads, and others run the steps"),
    )
    parser.add_argument(
        "--around-step",
        type=_around_step,
        metavar="MODULE:FUNCTION",
        default=None,
        help="function that makes a context manager for each attempt of a step, such as one that binds log contexts",
    )
    add_offer(parser)


def add_offer(parser: argparse.ArgumentParser) -> None:
    """Add ``--label`` and ``--resource``: a list of labels in ``options.label``, of pairs in ``options.resource``."""
    parser.add_argument(
        "--label",
        action="append",
        type=_label,
        default=[],
        metavar="LABEL",
        help="label that this machine offers to steps with Limits(on=…), such as gpu; may be given again",
    )
    parser.add_argument(
        "--resource",
        action="append",
        type=_resource,
        default=[],
        metavar="NAME=N",
        help="amount that this machine offers to steps with Limits(resources=…), such as gpu=2; may be given again",
    )


def _around_step(text: str) -> str:
    try:
        checked_around_step(text, "log")
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def _label(text: str) -> str:
    try:
        return checked_labels((text,), "--label")[0]
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _resource(text: str) -> tuple[str, float]:
    name, found, amount = text.rpartition("=")
    try:
        number = float(amount)
        whole = int(number) if number == int(number) else number
    except (ValueError, OverflowError):
        found = ""
    if not found:
        msg = f"--resource is NAME=N, such as gpu=2, not {text!r}"
        raise argparse.ArgumentTypeError(msg)
    try:
        return name, checked_resources({name: whole}, "--resource")[name]
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
