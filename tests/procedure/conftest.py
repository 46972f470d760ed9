"""A channel that answers from memory, and contexts on it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest

from actorproc.model.ids import Mode
from actorproc.procedure.authoring.context import Context
from actorproc.procedure.encoding.log_records import LogParts


class MemoryChannel:
    """What a worker's channel does, without a host: notes are kept, prepared answers are given."""

    def __init__(self) -> None:
        self.notes: dict[tuple[int, str], bytes] = {}
        self.answers: dict[tuple[str, str], bytes] = {}
        self.asked: list[str] = []
        self.beats: list[tuple[float | None, str | None]] = []
        self.details: list[tuple[int, bytes]] = []
        self.exposed: list[tuple[str, bytes]] = []
        self.lines: list[tuple[int, str, str]] = []
        """Level, logger, and message with its traceback."""
        self.abort_asked = False

    def request(self, kind: str, key: str = "", value: bytes = b"", step: int = 0) -> bytes | None:
        self.asked.append(kind)
        if kind == "remember":
            self.notes[step, key] = value
            return None
        if kind == "recall":
            return self.notes.get((step, key))
        return self.answers.get((kind, key))

    def heartbeat(
        self, progress: float | None, message: str | None, details: bytes | None = None, key: str = "", step: int = 0
    ) -> None:
        self.beats.append((progress, message))
        if details is not None:
            self.details.append((step, details))
            self.notes[step, key] = details

    def expose(self, key: str, value: bytes) -> None:
        self.exposed.append((key, value))

    def log(self, parts: LogParts) -> None:
        self.lines.append((parts.level, parts.name, "\n".join(filter(None, (parts.text, parts.trace)))))

    def aborting(self) -> bool:
        return self.abort_asked

    def keep_changes(self) -> AbstractContextManager[None]:
        return nullcontext()


@pytest.fixture
def channel() -> MemoryChannel:
    return MemoryChannel()


@pytest.fixture
def context(channel: MemoryChannel) -> Callable[..., Context]:
    def make(step: int = 1, mode: Mode = Mode.EXECUTE, **options: Any) -> Context:
        return Context(channel, id="p-1", type_name="Test", root_id="p-1", step=step, mode=mode, **options)

    return make
