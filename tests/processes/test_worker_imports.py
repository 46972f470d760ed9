"""What a worker loads, and what it does without: each MiB takes it memory, time to boot, and time to die."""

import subprocess
import sys

import pytest

HOST_ONLY = {
    "lmdb",
    "psutil",
    "actorproc.engine.manager_actor",
    "actorproc.core.coordinator",
    "actorproc.workers.pool.pool_thread",
}


@pytest.mark.parametrize(
    ("program", "absent"),
    [
        (
            "import actorproc.workers.child.main",
            {*HOST_ONLY, "_hashlib", "random", "tempfile", "subprocess", "asyncio"},
        ),
        ("from actorproc import Procedure, Saga, Status, Limits, procedure, step", {*HOST_ONLY, "_hashlib"}),
        ("from actorproc import ProcedureManager", {*HOST_ONLY, "_hashlib"}),
        ("from actorproc import ProcedureExecutor", HOST_ONLY),
    ],
    ids=["a bare worker", "a module of procedures", "one that makes a manager, too", "one that makes an executor, too"],
)
def test_a_worker_does_without_what_only_a_host_needs(program, absent):
    shown = f"{program}\nimport sys\nprint(*sys.modules)"

    done = subprocess.run([sys.executable, "-c", shown], capture_output=True, text=True, check=True, timeout=60)

    loaded = set(done.stdout.split())
    assert "actorproc" in loaded
    assert not loaded & absent
