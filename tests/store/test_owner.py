"""Who owns a store: what the lock file says, and whether it is still true."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from actorproc.store.lmdb.owner_lock import OwnerLock, owner_of

OWNS = """
import sys
from pathlib import Path
from actorproc.store.lmdb.owner_lock import OwnerLock
lock = OwnerLock.acquire(Path(sys.argv[1]))
print("owned", flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
def test_an_owner_that_was_killed_and_is_not_reaped_yet_owns_nothing(tmp_path):
    path = tmp_path / "owner.lock"
    owner = subprocess.Popen([sys.executable, "-c", OWNS, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert owner.stdout.readline() == b"owned\n"
        found = owner_of(path)
        assert found is not None
        assert found.pid == owner.pid

        os.kill(owner.pid, signal.SIGKILL)
        # Its end is known, and nobody has asked for it: a zombie.
        os.waitid(os.P_PID, owner.pid, os.WEXITED | os.WNOWAIT)

        assert owner_of(path) is None
        OwnerLock.acquire(path).release()
    finally:
        owner.kill()
        owner.communicate()
