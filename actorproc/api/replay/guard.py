"""The guard of a replay: a step that runs again must not act on the world outside of its process."""

from __future__ import annotations

import os
import sys
import tempfile
import threading
from types import TracebackType
from typing import Any, NoReturn, Self

from actorproc.errors import UsageError

__all__ = ["RequestGuard", "RequestRefused"]

_REFUSED = frozenset(
    {
        *("socket.connect", "socket.bind", "socket.sendto", "socket.sendmsg", "socket.getaddrinfo"),
        *("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "os.forkpty"),
        *("os.kill", "os.killpg", "os._exit"),
    }
)
_WRITES = frozenset({"os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.truncate", "shutil.rmtree", "shutil.move"})
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class RequestRefused(UsageError):
    """A replayed step wanted to use the network or a process, which is not allowed."""


class RequestGuard:
    """Refuses network and processes to the code inside, and notes files that it writes. A context manager.

    Threads that were there before are left alone, such as those of a debugger.

    Args:
        allow: let everything pass.
    """

    def __init__(self, *, allow: bool = False) -> None:
        self._allow = allow
        self.refused: list[str] = []
        self.written: list[str] = []

    def __enter__(self) -> Self:
        if not self._allow:
            # Asked here: the first gettempdir() writes a file under a lock, which the hook would wait for.
            self._scratch = (tempfile.gettempdir().rstrip(os.sep) + os.sep, "/dev/")
            self._others = frozenset(thread.ident for thread in threading.enumerate()) - {threading.get_ident()}
            _install()
            _active.append(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self in _active:
            _active.remove(self)

    def see(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Judge an event of the interpreter. Raises `RequestRefused`."""
        if threading.get_ident() in self._others:
            return
        if event in _REFUSED:
            words = f"{event} of {_target(event, arguments)!r:.80}"
            self.refused.append(words)
            msg = f"a replay refuses {words}: --allow-requests (allow_requests=True) lets it act for real"
            raise RequestRefused(msg)
        if event in _WRITES or (event == "open" and _is_writing(arguments)):
            path = os.fsdecode(arguments[0]) if isinstance(arguments[0], bytes) else str(arguments[0])
            if path not in self.written and not (path + os.sep).startswith(self._scratch):
                self.written.append(path)


_active: list[RequestGuard] = []
_installed: list[bool] = []


def _install() -> None:
    """Hook into the interpreter, once: a hook cannot be taken out again, so it does nothing without a guard."""
    if not _installed:
        _installed.append(True)
        sys.addaudithook(_hook)
        os._exit = _exit  # no audit event tells of it


_leave = os._exit


def _exit(status: int) -> NoReturn:
    """Refuse to end the process in silence: with status 0 a check of all steps would seem to have passed."""
    _hook("os._exit", (status,))
    _leave(status)


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if _active and (event in _REFUSED or event in _WRITES or event == "open"):
        _active[-1].see(event, arguments)


def _target(event: str, arguments: tuple[Any, ...]) -> Any:
    """Object of the event: an address, a program."""
    if event == "socket.getaddrinfo":
        return arguments[:2]
    return arguments[1] if event.startswith("socket.") and len(arguments) > 1 else arguments


def _is_writing(arguments: tuple[Any, ...]) -> bool:
    path, _, flags = arguments
    return not isinstance(path, int) and isinstance(flags, int) and bool(flags & _WRITING)
