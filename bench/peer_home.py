"""Where the peers live: a virtual environment beside the benches, apart from the engine's own.

    python bench/peer_home.py        installs them (pip, and npm for Restate's server)

A bench skips what is not there, and says why in its result.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).parent
HOME = HERE / ".peers"
_PROGRAMS = HERE / "peers"
_SERVER = "@restatedev/restate-server@1.7.12"
_MODULES = ("dbos", "huey", "loky", "pebble", "restate", "hypercorn")


class Missing(Exception):
    """A peer cannot be run here; the text says why."""


def python_for(*modules: str) -> str:
    """A Python that can import these. Raises `Missing`."""
    own = HOME / "bin" / "python"
    if own.exists():
        code = "import importlib.util, sys; sys.exit(any(not importlib.util.find_spec(name) for name in sys.argv[1:]))"
        if subprocess.run([own, "-c", code, *modules], check=False).returncode == 0:
            return str(own)
    if all(importlib.util.find_spec(name) for name in modules):
        return sys.executable
    raise Missing(f"{', '.join(modules)}: not installed; python bench/peer_home.py installs it")


def restate_server() -> str:
    """The binary of Restate's server. Raises `Missing`."""
    found = shutil.which("restate-server")
    if found is not None:
        return found
    for binary in HOME.glob("node_modules/@restatedev/restate-server-*/bin/restate-server"):
        return str(binary)
    raise Missing("restate-server: not installed; python bench/peer_home.py installs it where there is npm")


def run(program: str, python: str, *arguments: object, seconds: float = 600) -> dict[str, object]:
    """The JSON object that one of the programs in bench/peers prints. Raises `Missing` when it fails."""
    command = [python, str(_PROGRAMS / program), *map(str, arguments)]
    try:
        ended = subprocess.run(command, check=False, capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired as error:
        raise Missing(f"{program} did not end within {seconds:g} s") from error
    if ended.returncode:
        raise Missing(f"{program} failed: {_last_line(ended.stderr) or f'exit code {ended.returncode}'}")
    return json.loads(ended.stdout.splitlines()[-1])


def install() -> list[str]:
    """Make the environment and put all peers into it; what could not be had, and why."""
    problems = []
    if not (HOME / "bin" / "python").exists():
        problems += _tried("the virtual environment", [sys.executable, "-m", "venv", str(HOME)])
    problems += _tried(
        "the Python packages",
        [str(HOME / "bin" / "python"), "-m", "pip", "install", "-q", "-r", str(_PROGRAMS / "requirements.txt")],
    )
    try:
        restate_server()
    except Missing:
        if shutil.which("npm") is None:
            problems.append("Restate's server: there is no npm here")
        else:
            command = ["npm", "install", "--silent", "--ignore-scripts", "--no-save", "--prefix", str(HOME), _SERVER]
            problems += _tried("Restate's server", command)
    return problems


def _tried(what: str, command: Sequence[str]) -> list[str]:
    try:
        ended = subprocess.run(command, check=False, capture_output=True, text=True, timeout=600)
    except (OSError, subprocess.TimeoutExpired) as error:
        return [f"{what}: {error}"]
    return [f"{what}: {_last_line(ended.stderr)}"] if ended.returncode else []


def _last_line(text: str) -> str:
    return next((line for line in reversed(text.splitlines()) if line.strip()), "")


if __name__ == "__main__":
    for problem in install():
        print(problem)
    for module in _MODULES:
        try:
            print(f"{module:12}{python_for(module)}")
        except Missing as missing:
            print(missing)
    try:
        print(f"{'server':12}{restate_server()}")
    except Missing as missing:
        print(missing)
