"""Start of a worker's interpreter: its command line, its environment, and the path it imports from."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence

from actorproc.procedure.values.type_names import PACKAGE_HOME, module_path
from actorproc.workers.os.frozen import WORKER_MARK, is_this_program
from actorproc.workers.protocol.frames import HEADER
from actorproc.workers.protocol.host_program import StartPlace

__all__ = ["boot_bytes", "default_executable", "found_from_anywhere", "host_path", "start_interpreter"]

_BOOT = "import sys; sys.path.insert(0, sys.argv[1]); from actorproc.workers.child.boot import boot; boot()"
"""One line, because `ps` shows it. Until the host's module path has come, this package is all that is looked for."""


def default_executable() -> str:
    """The interpreter that `multiprocessing.set_executable` was given, else this program's; "" when it has none."""
    spawn = sys.modules.get("multiprocessing.spawn")  # where it was set; nothing else is worth its import
    chosen = spawn.get_executable() if spawn is not None else None
    return os.fsdecode(chosen) if chosen else sys.executable or ""


def found_from_anywhere(executable: str) -> str:
    """The same interpreter by a name that holds when the program changes its directory."""
    return os.path.abspath(executable) if os.sep in executable else executable  # noqa: PTH100 - as exec has it: no ~


def host_path() -> tuple[str, ...]:
    """This interpreter's module path, absolute, with the directory of this package on it."""
    path = list(module_path())
    if PACKAGE_HOME not in path:
        path.append(PACKAGE_HOME)
    return tuple(dict.fromkeys(path))


def boot_bytes(path: Sequence[str]) -> bytes:
    """Bytes that a worker reads from its channel before the first frame."""
    body = b"\0".join(os.fsencode(entry) for entry in path)
    return HEADER.pack(len(body)) + body


def start_interpreter(
    executable: str, passed: tuple[int, int, int], stdout: int, stderr: int, *, place: StartPlace
) -> subprocess.Popen[bytes]:
    """Start it in this place with these descriptors. Raises `OSError` or `ValueError`."""
    numbers = (*passed, place.directory)
    return subprocess.Popen(  # noqa: S603 - our own interpreter and program text
        [executable, *_how_to_boot(executable), PACKAGE_HOME, *map(str, numbers), "actorproc-worker"],
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=stderr,
        close_fds=True,
        pass_fds=(*passed, place.directory) if place.directory >= 0 else passed,
        start_new_session=True,
        env=place.environment,
    )


def _how_to_boot(executable: str) -> list[str]:
    return [WORKER_MARK] if is_this_program(executable) else [*_interpreter_flags(), "-c", _BOOT]


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
