"""How the interpreter of a worker is started: its command line, its environment, and where it imports from."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from actorproc.procedure.names import module_path
from actorproc.workers.frames import HEADER

__all__ = ["boot_bytes", "default_executable", "host_path", "start_interpreter"]

_NOT_FOR_WORKERS = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")

# The host's module path comes first through the channel, NUL-separated: what follows must be imported from the
# same places as in the host. Only the standard library is at hand here.
_BOOT = """\
import os, sys
def take(size):
    data = b""
    while len(data) < size:
        chunk = os.read(int(sys.argv[1]), size - len(data))
        if not chunk:
            os._exit(94)
        data += chunk
    return data
sys.path[:] = [os.fsdecode(part) for part in take(int.from_bytes(take(4), "big")).split(b"\\0")]
from actorproc.workers.child.main import main
main(*map(int, sys.argv[1:5]))
"""


def default_executable() -> str:
    """The interpreter that `multiprocessing.set_executable` was given, else this program's; "" when it has none."""
    spawn = sys.modules.get("multiprocessing.spawn")  # where it was set; nothing else is worth its import
    chosen = spawn.get_executable() if spawn is not None else None
    return os.fsdecode(chosen) if chosen else sys.executable or ""


def host_path() -> tuple[str, ...]:
    """This interpreter's module path, absolute, with the directory of this package on it."""
    path = list(module_path())
    home = str(Path(__file__).resolve().parents[2])
    if home not in path:
        path.append(home)
    return tuple(dict.fromkeys(path))


def boot_bytes(path: Sequence[str]) -> bytes:
    """What a worker reads from its channel before the first frame."""
    body = b"\0".join(os.fsencode(entry) for entry in path)
    return HEADER.pack(len(body)) + body


def start_interpreter(
    executable: str, passed: tuple[int, int, int], stdout: int, stderr: int, *, kept: bool
) -> subprocess.Popen[bytes]:
    """Start it with these descriptors; `kept`: it has a keeper of its memory. Raises `OSError` or `ValueError`."""
    return subprocess.Popen(  # noqa: S603 - our own interpreter and program text
        [executable, *_interpreter_flags(), "-c", _BOOT, *map(str, passed), str(int(kept))],
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=stderr,
        close_fds=True,
        pass_fds=passed,
        start_new_session=True,
        env=_environment(),
    )


def _environment() -> dict[str, str]:
    while True:
        try:
            return {name: value for name, value in os.environ.items() if name not in _NOT_FOR_WORKERS}
        except KeyError:  # another thread of the host removed a variable meanwhile
            continue


def _interpreter_flags() -> list[str]:
    """The host's isolation settings; ``-P`` because ``-c`` would put the working directory on the module path."""
    flags = sys.flags
    chosen = ["-P"]
    if flags.isolated:
        chosen.append("-I")
    else:
        chosen += ["-E"] * flags.ignore_environment + ["-s"] * flags.no_user_site
    chosen += ["-S"] * flags.no_site + ["-B"] * flags.dont_write_bytecode + ["-O"] * flags.optimize
    chosen += ["-X", f"utf8={flags.utf8_mode}"]
    if flags.dev_mode:
        chosen += ["-X", "dev"]
    return chosen + [f"-W{option}" for option in sys.warnoptions]
