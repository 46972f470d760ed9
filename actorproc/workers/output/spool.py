"""Two files of what procedures printed and logged, so that it outlives the program that received it.

One line of JSON per entry, of all procedures together, appended as they come. When the newer file is full it takes the
place of the older one, so both together never exceed their share. A torn last line, or a file that is gone, costs
what was in it and nothing else: the files are for people, no decision is made from them.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from actorproc.support.engine_log import engine_logger
from actorproc.workers.protocol.log_entry import LogEntry

__all__ = ["NEWER", "OLDER", "LogSpool", "spooled"]

NEWER, OLDER = "output.log", "output.1.log"

logger = engine_logger("actorproc")


class _SpooledLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    procedure: str
    at: float
    stream: str
    text: str
    level: int | None = None
    logger: str | None = None
    step: int | None = None
    step_name: str | None = None
    attempt: int | None = None


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_SpooledLine).decode


class LogSpool:
    """Appends to the files in a directory; `size` bytes in all. One thread at a time. Never raises: it does without."""

    def __init__(self, directory: Path, size: int) -> None:
        self._directory = directory
        self._half = size // 2
        self._fd: int | None = None
        self._used = 0
        self._is_failed = False

    def add(self, procedure: str, entry: LogEntry) -> None:
        """Write one line; in the file when this returns, though not on the disk."""
        line = _SpooledLine(
            procedure=procedure,
            at=entry.at,
            stream=entry.stream,
            text=entry.text,
            level=entry.level,
            logger=entry.logger,
            step=entry.step,
            step_name=entry.step_name,
            attempt=entry.attempt,
        )
        try:
            data = _encode(line) + b"\n"
            fd = self._room_for(len(data))
            self._used += os.write(fd, data)
        except (OSError, ValueError) as error:  # a full disk, a lone surrogate
            if not self._is_failed:
                logger.warning("output of procedures is kept in memory only: %s", error)
            self._is_failed = True

    def close(self) -> None:
        """Close the file; the next line opens it again."""
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)

    def _room_for(self, size: int) -> int:
        if self._fd is not None and self._used + size > self._half:
            self.close()
        if self._fd is None:
            path = self._directory / NEWER
            with contextlib.suppress(FileNotFoundError):
                if path.stat().st_size + size > self._half:
                    path.replace(self._directory / OLDER)
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            self._fd = os.open(path, flags, 0o600)
            self._used = os.fstat(self._fd).st_size
            if not self._used:
                os.fchmod(self._fd, 0o600)  # the umask may have taken away even our own bits
            else:
                self._used += os.write(self._fd, b"\n")  # what a power cut tore must not tear the next line
        return self._fd


def spooled(directory: Path, procedure: str, *, before: float | None = None, size: int = 256 * 1024) -> list[LogEntry]:
    """The newest `size` bytes of a procedure's lines in the files, oldest first; only those received `before`."""
    found: list[LogEntry] = []
    for line in _lines(directory, procedure):
        if before is None or line.at < before:
            facts = {name: getattr(line, name) for name in LogEntry.__struct_fields__}
            found.append(LogEntry(**facts))
    left, kept = size, len(found)
    while kept and (left := left - found[kept - 1].cost) >= 0:
        kept -= 1
    return found[kept:]


def _lines(directory: Path, procedure: str) -> Iterator[_SpooledLine]:
    wanted = _encode(procedure)
    for name in (OLDER, NEWER):
        with contextlib.suppress(FileNotFoundError), (directory / name).open("rb") as file:
            for data in file:
                if wanted not in data:
                    continue
                with contextlib.suppress(msgspec.DecodeError):
                    line = _decode(data)
                    if line.procedure == procedure:
                        yield line
