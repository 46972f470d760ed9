"""Names of handed-out steps, the same in every run, and in the words of the class."""

from __future__ import annotations

from typing import Any

import msgspec

from actorproc.model.ids import Mode
from actorproc.workers.protocol.frames import Run

__all__ = ["Step", "name_of", "step_of"]

Step = tuple[str, int, int, str]
"""Procedure, step, mode, undo unit: the same in every run."""


def step_of(run: Run) -> Step:
    """The step that is to run."""
    token = run.token
    return token.procedure, token.step, int(token.mode), run.unit or ""


def name_of(run: Run) -> str:
    """The step in the words of its class: its name in a Saga, its state in a state machine, else its number."""
    number = f"step {run.token.step}"
    name = ""
    if run.state is not None and run.state[:1] == b"\x92":  # a position before the fields
        position, _ = msgspec.msgpack.decode(run.state, type=tuple[Any, msgspec.Raw])
        name = position[0] if isinstance(position, list) else position
    short = run.type_name.rpartition(".")[2]
    match run.token.mode:
        case Mode.ROLLBACK:
            return f"the undo of {short}" + (f".{run.unit}" if run.unit else f" ({number})")
        case Mode.ASK_ABORT:
            return f"{short}.abort ({number})"
        case Mode.ON_TIMEOUT:
            return f"{short}.on_timeout ({number})"
        case _:
            return f"{short}.{name} ({number})" if name else f"{short} ({number})"
