"""PgBouncer before the server of the tests."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.databases import database_or_skip
from tests.kit.waiting import wait_until

__all__ = ["pooled"]


@contextlib.contextmanager
def pooled(mode: str, sessions: int = 20) -> Iterator[int]:
    """The port of a pooler in this mode, with this many sessions of the server. Skips where there is no PgBouncer."""
    server = database_or_skip()
    program = shutil.which("pgbouncer") or ("/usr/sbin/pgbouncer" if Path("/usr/sbin/pgbouncer").exists() else None)
    if program is None:
        pytest.skip("no PgBouncer is installed")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    folder = server.directory / f"bouncer-{port}"
    folder.mkdir()
    (folder / "users.txt").write_text('"actorproc" ""\n')
    (folder / "pgbouncer.ini").write_text(
        f"[databases]\npostgres = host=127.0.0.1 port={server.port}\n"
        f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nauth_type = trust\n"
        f"auth_file = {folder}/users.txt\npool_mode = {mode}\ndefault_pool_size = {sessions}\n"
        "ignore_startup_parameters = extra_float_digits,options\n"
    )
    command = [program, str(folder / "pgbouncer.ini")]
    if os.geteuid() == 0:
        user = pwd.getpwnam("postgres")
        for path in (folder, *folder.iterdir()):
            os.chown(path, user.pw_uid, user.pw_gid)
        command = ["setpriv", "--reuid=postgres", "--regid=postgres", "--init-groups", *command]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: _answers(port))
        yield port
    finally:
        process.kill()
        process.wait()


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True
