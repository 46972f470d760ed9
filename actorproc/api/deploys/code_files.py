"""The files that registered classes came from: whether they were changed since this program loaded them.

Workers that start after such a change run the new code beside others with the old. The digests only warn: they never
decide who may run a step.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterable
from typing import Any, NamedTuple

from actorproc.support.engine_log import engine_logger

__all__ = ["CodeFiles", "in_words"]

logger = engine_logger("actorproc")

_OURS = "actorproc."


class _SeenFile(NamedTuple):
    """A file as it was."""

    stamp: tuple[int, int, int]
    digest: bytes


class CodeFiles:
    """Files of modules, as they were when a class of theirs was registered. May be used from any thread."""

    def __init__(self) -> None:
        self._files: dict[str, tuple[str, _SeenFile]] = {}
        self._lock = threading.Lock()
        self._warned: frozenset[str] = frozenset()

    def note(self, subjects: Iterable[Any]) -> None:
        """Remember the files of the modules of these classes and functions, and of the bases of classes."""
        for subject in subjects:
            for member in getattr(subject, "__mro__", (subject,)):
                name = getattr(member, "__module__", None) or ""
                if name in self._files or name.startswith(_OURS):
                    continue
                place = getattr(sys.modules.get(name), "__file__", None)
                if not isinstance(place, str) or not place.endswith(".py"):
                    continue
                seen = _look(place)
                if seen is not None:
                    self._files[name] = place, seen

    def digest_of(self, module: str | None) -> str:
        """SHA-256 of the file of a module, as it was when a class of it was noted.

        Args:
            module: Name of the module; None for a class that goes by value.

        Returns:
            Hexadecimal digits; "" where there is no file.
        """
        found = self._files.get(module) if module is not None else None
        return found[1].digest.hex() if found is not None else ""

    def changed(self) -> tuple[str, ...]:
        """Modules whose file has other bytes now; a file that is missing, or cannot be read, is changed as well."""
        found = []
        with self._lock:
            for name, (place, before) in list(self._files.items()):
                if _stamp(place) == before.stamp:
                    continue
                now = _look(place)
                if now is not None and now.digest == before.digest:
                    self._files[name] = place, now  # it was only touched
                else:
                    found.append(name)
        return tuple(sorted(found))

    def warn(self) -> tuple[str, ...]:
        """As `changed`, with one warning for each module that is."""
        found = self.changed()
        news = frozenset(found) - self._warned
        if news:
            self._warned |= news
            logger.warning("%s", in_words(sorted(news)))
        return found

    def accept(self) -> None:
        """All workers run what is there now: that is no change any more."""
        with self._lock:
            for name, (place, _) in list(self._files.items()):
                now = _look(place)
                if now is not None:
                    self._files[name] = place, now
            self._warned = frozenset()


def in_words(modules: Iterable[str]) -> str:
    """Facts about changed modules, and what to do about them."""
    names = ", ".join(modules)
    return (
        f"files changed since this manager loaded them ({names}): workers that start from now on run the new code "
        "beside workers with the old; replace all of them with `actorproc reload`, or restart the manager"
    )


def _stamp(place: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(place)  # noqa: PTH116 - often, and nothing else is done with the path
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _look(place: str) -> _SeenFile | None:
    import hashlib  # noqa: PLC0415 - it brings OpenSSL, which a worker that imports this through its module never needs

    stamp = _stamp(place)
    try:
        with open(place, "rb") as file:  # noqa: PTH123 - as above
            return None if stamp is None else _SeenFile(stamp, hashlib.sha256(file.read()).digest())
    except OSError:
        return None
