"""Managers in processes of their own, which can be killed and started again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kit.waiting import BOUND
from tests.kit.warm_workers import warm_workers

__all__ = ["Service", "serve", "warm_workers"]

SERVICE = """
import sys
from actorproc import Config, ProcedureManager
with ProcedureManager(sys.argv[1], workers=2, config=eval(sys.argv[2])) as manager:
    print("up", flush=True)
    sys.stdin.read()
"""


class Service:
    """A manager on a directory, in another process."""

    def __init__(self, path: Path, config: str = "Config()") -> None:
        self.path = path
        self._config = config
        self.process: subprocess.Popen[str]
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", SERVICE, self.path, self._config],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "up\n"

    def kill(self) -> None:
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait(BOUND)
        self._close()

    def stop(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(BOUND)
        self._close()

    def _close(self) -> None:
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Service]]:
    services: list[Service] = []

    def start(path: Path | None = None, **options: Any) -> Service:
        services.append(Service(path or tmp_path / "state", **options))
        return services[-1]

    yield start
    for service in services:
        if service.process.poll() is None:
            service.kill()
