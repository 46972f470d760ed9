"""The files of the pages: the shell that all pages are, scripts, styles, licences. They hold no data."""

from __future__ import annotations

import gzip
import html
import re
from importlib import resources
from importlib.resources.abc import Traversable
from typing import NamedTuple

from actorproc.web.answers import tag_of

__all__ = ["PageFiles", "StaticFile"]

_TYPES = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "mjs": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
    "png": "image/png",
    "ico": "image/x-icon",
    "json": "application/json",
    "map": "application/json",
    "txt": "text/plain; charset=utf-8",
}
_PAGES = re.compile(
    r"/(?:procedures(?:/[^/]+(?:/(?:tree|timeline|steps(?:/\d+)?|state|logs|stack|audit|children|locks|output))?)?"
    r"|locks(?:/.+)?|workers|activity|types(?:/[^/]+)?)?"
)
"""Paths of pages below the prefix."""
_NOTES = re.compile(rb"^[ \t]*//.*$|/\*\*(?:[^*]|\*(?!/))*\*/ ?", re.MULTILINE)
"""Comments and types of the scripts: an eighth of the bytes, and of no use to a browser."""


class StaticFile(NamedTuple):
    """A file as it is served."""

    body: bytes
    packed: bytes | None
    """Packed by gzip, where that is shorter."""
    type: str
    tag: str


class PageFiles:
    """All files of the package, read once: a path that is not among them leads nowhere.

    Args:
        title: Of the pages.
    """

    def __init__(self, title: str) -> None:
        self._title = html.escape(title)
        root = resources.files("actorproc.web") / "static"
        self._files = dict(_found(root, ""))
        shell = root / "index.html"
        self._shell = shell.read_text(encoding="utf-8")

    def get(self, path: str) -> StaticFile | None:
        """The file with this path below ``static/``."""
        return self._files.get(path)

    def is_page(self, path: str) -> bool:
        """A page has this path."""
        return _PAGES.fullmatch(path) is not None

    def shell(self, base: str) -> bytes:
        """The page, for links below this path.

        Args:
            base: Path of the prefix, with a slash at its end.
        """
        return self._shell.replace("{{base}}", html.escape(base)).replace("{{title}}", self._title).encode()


def _found(folder: Traversable, prefix: str) -> list[tuple[str, StaticFile]]:
    found: list[tuple[str, StaticFile]] = []
    for entry in folder.iterdir():
        name = f"{prefix}{entry.name}"
        if entry.is_dir():
            found += _found(entry, f"{name}/")
            continue
        kind = _TYPES.get(entry.name.rpartition(".")[2]) or ("text/plain; charset=utf-8" if "LICENSE" in name else None)
        if kind is not None and not entry.name.startswith("."):
            body = entry.read_bytes()
            if name.startswith("app/") and name.endswith(".js"):
                body = _NOTES.sub(lambda found: b"\n" * found[0].count(b"\n"), body)
            packed = gzip.compress(body, 9, mtime=0) if len(body) > 500 else body
            found.append((name, StaticFile(body, packed if len(packed) < len(body) else None, kind, tag_of(body))))
    return found
