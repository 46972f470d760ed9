"""A pooler between a store and its database is refused in words, whatever it is busy with."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from actorproc.errors import EngineError
from actorproc.store.postgres.store import DatabaseStore
from tests.databases import database_or_skip
from tests.kit.waiting import wait_until


@pytest.fixture(params=["transaction", "session"])
def pooler_port(request, tmp_path):
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
        f"auth_file = {folder}/users.txt\npool_mode = {request.param}\n"
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
        wait_until(lambda: answers(port))
        yield port
    finally:
        process.kill()
        process.wait()


def answers(port):
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


def test_a_pooler_with_one_idle_client_is_refused(pooler_port):
    """Such a one gives its client the same session each time, so that locks and prepared statements seem to hold."""
    url = f"postgresql://actorproc@127.0.0.1:{pooler_port}/postgres?store=pooled"

    with pytest.raises(EngineError, match=r"is a connection pooler .*the database itself"):
        DatabaseStore(url).own()


def test_a_pooler_that_knows_no_options_is_refused_as_one():
    program = (
        "import sys\n"
        "from actorproc.store.postgres import connecting\n"
        "from actorproc.store.postgres.failures import DatabaseFailure\n"
        "from actorproc.store.postgres.place import place_of\n"
        "def refuse(*_):\n"
        "    raise DatabaseFailure('FATAL: unsupported startup parameter: options')\n"
        "connecting._connected = refuse\n"
        "connecting.connect(place_of('postgresql://host/db'), 'look', 'test')\n"
    )
    pytest.importorskip("psycopg")

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert "is a connection pooler" in done.stderr
