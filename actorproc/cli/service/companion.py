"""The dashboard beside a service: a process of its own, which shows also how the manager died."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from actorproc.cli.output.extras import need
from actorproc.cli.service.web import COMPANION
from actorproc.store.home import home_of
from actorproc.web.place import companion_token_file, place_of_page

if TYPE_CHECKING:
    from actorproc.api.manager import ProcedureManager

__all__ = ["WebCompanion"]

_WITHIN = 5.0
"""Seconds that an older page has to stop."""
_PAUSE = 0.02


class WebCompanion:
    """The page of one service. An older one that a killed service left behind is replaced, at the same address.

    Args:
        manager: Of the service.
        port: 0: a free one, or that of the page before.
        log_format: Of its log, as the service was told; None: nothing was said.
    """

    def __init__(self, manager: ProcedureManager, port: int, log_format: str | None = None) -> None:
        need("starlette", extra="web", purpose="the dashboard (--web)")
        need("uvicorn", extra="web", purpose="the dashboard (--web)")
        # A password in the URL stays in the environment, where other users of the machine do not see it.
        given = os.environ.get("ACTORPROC_PATH", "")
        self._path = given if given and home_of(given).words == manager._path else manager._path
        self._port = port
        self._log = [] if log_format is None else ["--log-format", log_format]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the page."""
        port = self._port or self._replaced()
        words = [sys.executable, "-m", "actorproc", "web", "--port", str(port), *self._log]
        token = companion_token_file(self._path)
        if token is not None:
            words += ["--token-file", os.fspath(token)]
        environment = {**os.environ, "ACTORPROC_PATH": self._path, COMPANION: "1"}
        self._process = subprocess.Popen(words, stdin=subprocess.DEVNULL, env=environment, start_new_session=True)  # noqa: S603

    def _replaced(self) -> int:
        """Stop the page of a service before this one; its port, or 0."""
        found = place_of_page(self._path)
        if found is None or not found.companion:
            return 0
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(found.pid, signal.SIGTERM)
        until = time.monotonic() + _WITHIN
        while place_of_page(self._path) is not None and time.monotonic() < until:
            time.sleep(_PAUSE)
        return found.port

    def stop(self) -> None:
        """End the page with the service. Idempotent."""
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(_WITHIN)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
