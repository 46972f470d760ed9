"""Place of the page that runs on a store: a file beside it, which is locked for as long as the page runs.

Commands look it up without loading a server.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import stat
from pathlib import Path
from urllib.parse import quote

import msgspec

from actorproc.store.directory import make_directory
from actorproc.store.home import home_of

__all__ = ["PLACE_FILE", "PagePlace", "PlaceFile", "address_of", "companion_token_file", "place_of_page"]

PLACE_FILE = "web.json"
_LONGEST = 10_000


class PagePlace(msgspec.Struct, frozen=True, kw_only=True):
    """Address of a running page."""

    address: str
    """With a slash at its end, without the token."""
    pid: int
    port: int = 0
    """0: it has none."""
    read_only: bool = False
    companion: bool = False
    """A service has started it, and replaces it when it starts again."""
    token: str | None = None
    """None: there is none, as the proxy before it names the user."""

    def page(self, id: str) -> str:
        """Address of the page of a procedure."""
        return f"{self.address}procedures/{quote(id, safe='')}"


def _file_of(path: str) -> Path | None:
    """The file of a store; None: there is no directory for it here."""
    home = home_of(path)
    folder = home.door if home.door is not None else home.spool
    return None if folder is None else folder / PLACE_FILE


def companion_token_file(path: str) -> Path | None:
    """The file with the token of a service's page; None: there is no directory for it here."""
    file = _file_of(path)
    return None if file is None else file.with_name("web.token")


def place_of_page(path: str) -> PagePlace | None:
    """The place of the page that runs on a store; None: none does, or another user's.

    Args:
        path: Directory or URL of the store.
    """
    file = _file_of(path)
    if file is None:
        return None
    try:
        number = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        facts = os.fstat(number)
        if facts.st_uid != os.geteuid() or not stat.S_ISREG(facts.st_mode) or not _is_locked(number):
            return None
        return msgspec.json.decode(os.read(number, _LONGEST), type=PagePlace)
    except (OSError, msgspec.DecodeError):
        return None
    finally:
        os.close(number)


def _is_locked(number: int) -> bool:
    """The page that wrote the file lives."""
    try:
        fcntl.flock(number, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


def address_of(path: str, id: str) -> str | None:
    """Address of the page of a procedure, where one is known: ``ACTORPROC_WEB``, or a page that runs; else None.

    Args:
        path: Directory or URL of the store.
        id: The procedure.
    """
    given = os.environ.get("ACTORPROC_WEB", "")
    if given.startswith(("http://", "https://")):
        return PagePlace(address=given.rstrip("/") + "/", pid=0).page(id)
    found = place_of_page(path)
    return None if found is None else found.page(id)


class PlaceFile:
    """The file of one running page, 0600; made by `write`, locked until `remove` or the end of the process.

    Args:
        path: Directory or URL of the store.
    """

    def __init__(self, path: str) -> None:
        self.file = _file_of(path)
        self._number = -1

    def write(self, place: PagePlace) -> bool:
        """Tell where the page is; the newest of several pages counts. False: there is no place for the file."""
        if self.file is None:
            return False
        new = self.file.with_name(f"{PLACE_FILE}.{secrets.token_hex(8)}")
        try:
            if not self.file.parent.exists():
                make_directory(self.file.parent, allow_any_filesystem=True)
            self._number = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._number, fcntl.LOCK_EX)
            os.write(self._number, json.dumps(msgspec.to_builtins(place)).encode())
            new.rename(self.file)
        except OSError:
            with contextlib.suppress(OSError):
                new.unlink()
            return False
        return True

    def remove(self) -> None:
        """Take the file away, unless another page has put its own there. Idempotent."""
        if self._number < 0 or self.file is None:
            return
        with contextlib.suppress(OSError):
            if os.fstat(self._number).st_ino == self.file.lstat().st_ino:
                self.file.unlink()
        os.close(self._number)
        self._number = -1
