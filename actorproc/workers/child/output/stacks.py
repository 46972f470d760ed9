"""The Python stacks of running steps, as text."""

from __future__ import annotations

import gc
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import Any

import pykka

from actorproc.model.ids import StepToken
from actorproc.procedure.values.error_text import encodable

__all__ = ["text_of", "text_of_task"]

_ENGINE = f"{Path(__file__).parents[3]}/"
_OURS = (_ENGINE, f"{Path(pykka.__file__).parent}/")
"""Between two frames of the engine there may be some of Pykka."""
_DEEPEST = 200
"""Coroutines that await each other, as far as they are shown."""


def text_of(running: Mapping[StepToken, int], token: StepToken | None) -> str:
    """The stack of this step, or of all that run; "" when it does not run. For another thread than the steps'."""
    wanted = [thread for step, thread in list(running.items()) if token is None or step == token]
    frames = _current_frames()
    text = "\n".join(_of_thread(frames, thread) for thread in wanted if thread in frames)
    return encodable(text)


def text_of_task(task: Any) -> str:
    """The stack of a task that waits: the coroutines that await each other."""
    coroutine = task.get_coro()
    frames: list[tuple[FrameType, int]] = []
    while coroutine is not None and len(frames) < _DEEPEST:
        frame = getattr(coroutine, "cr_frame", None) or getattr(coroutine, "gi_frame", None)
        if frame is not None:
            frames.append((frame, frame.f_lineno))
        coroutine = getattr(coroutine, "cr_await", None) or getattr(coroutine, "gi_yieldfrom", None)
    summary = traceback.StackSummary.extract(iter(frames))
    lines = traceback.format_list(summary[_first_of_user(summary) :])
    return encodable(f"Task {task.get_name()} (most recent call last):\n{''.join(lines)}")


def _current_frames() -> Mapping[int, FrameType]:
    """The frames of all threads, without a garbage collection meanwhile.

    The interpreter holds its lock of threads and allocates objects: before 3.12 a collection in it may dead-lock.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        return sys._current_frames()
    finally:
        if was_on:
            gc.enable()


def _of_thread(frames: Mapping[int, FrameType], thread: int) -> str:
    summary = traceback.extract_stack(frames[thread])
    return "Stack (most recent call last):\n" + "".join(traceback.format_list(summary[_first_of_user(summary) :]))


def _first_of_user(summary: traceback.StackSummary) -> int:
    """Index of the step's first own frame: behind those of the interpreter's start, then of the engine."""
    place = 0
    while place < len(summary) and not summary[place].filename.startswith(_ENGINE):
        place += 1
    while place < len(summary) and summary[place].filename.startswith(_OURS):
        place += 1
    return place if place < len(summary) else 0
