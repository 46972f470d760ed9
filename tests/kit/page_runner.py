"""Pages played as a reader plays them: files written under their names, commands typed, outputs compared."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

__all__ = ["files_of", "play", "sessions_of"]

ROOT = Path(__file__).parents[2]
_FILE = re.compile(r"^```\w+ file=(\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SESSION = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_MARK = "\x1e"
"""Line that ends the output of a command."""
_BOUND = 90
# Jobs in the background end with the session, and a service is awaited before the next command.
_PRELUDE = """
set -u -m
trap 'kill $(jobs -p) 2>/dev/null; wait 2>/dev/null' EXIT
ready() { until [ -S "$1" ] || ! kill -0 "$2" 2>/dev/null; do sleep 0.02; done; }
"""


def files_of(page: str) -> dict[str, str]:
    """Programs of a page that have names of files."""
    return dict(_FILE.findall(page))


def sessions_of(page: str) -> list[tuple[str, str]]:
    """Commands of a page, in their order, each with the output that the page shows."""
    typed: list[tuple[str, list[str]]] = []
    for session in _SESSION.findall(page):
        for line in session.splitlines():
            if line.startswith("$ "):
                typed.append((line.removeprefix("$ "), []))
            else:
                typed[-1][1].append(line)
    return [(command, "\n".join(lines)) for command, lines in typed]


def play(page: str, folder: Path) -> list[tuple[str, str, str]]:
    """Write the files of a page and type its commands.

    Args:
        page: Text of the page.
        folder: An empty folder.

    Returns:
        Each command with what the page shows and what it printed, where the two differ; ``…`` on the page stands for
        any text. Standard error, and the output of jobs in the background, go to the file ``errors``.
    """
    for name, text in files_of(page).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    commands = sessions_of(page)
    script = _PRELUDE + "".join(f"{_in_script(command)}\nprintf '\\036'\n" for command, _ in commands)
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": f"{ROOT}{os.pathsep}.",
        "PYTHONUNBUFFERED": "1",
        "PYTHONWARNINGS": "error",
    }
    with (folder / "errors").open("w") as errors:
        ended = subprocess.run(
            ["bash", "-c", script], cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=errors, text=True, timeout=_BOUND, check=False,
        )  # fmt: skip
    printed = ended.stdout.split(_MARK)[: len(commands)]
    printed += ["(not reached)"] * (len(commands) - len(printed))
    return [
        (command, shown, said)
        for (command, shown), said in zip(commands, printed, strict=True)
        if not _is_like(shown, said)
    ]


def _in_script(command: str) -> str:
    if not command.endswith("&"):
        return command
    socket = re.search(r"--path \"?(\S+?)\"? ", f"{command} ")
    awaited = f"{socket[1]}/control.sock" if socket else "state/control.sock"
    if bound := re.search(r"(?:unix:|--uds )(\S+)", command):
        awaited = bound[1]
    return f"{command[:-1]} >>errors 2>&1 &\nready {awaited} $!"


def _is_like(shown: str, said: str) -> bool:
    pattern = "\n".join(re.escape(line.rstrip()).replace("…", ".*") for line in shown.splitlines())
    return re.fullmatch(pattern, "\n".join(line.rstrip() for line in said.splitlines())) is not None
