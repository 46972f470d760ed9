"""A store in a directory loads nothing of links, hosts and databases: neither its manager nor its workers do."""

from __future__ import annotations

import json
import subprocess
import sys

from tests.kit.waiting import BOUND

PURE = {"actorproc.workers.link", "actorproc.workers.link.addresses"}
"""They read the addresses that settings name."""
FAR = ("actorproc.workers.link", "actorproc.workers.hosts", "actorproc.store.postgres", "actorproc.api.launch")
LIBRARIES = {"psycopg", "cryptography", "ssl", "ray", "_ssl"}
PROGRAM = """
import json, sys
from actorproc import Config, Procedure, ProcedureManager, Status

class Modules(Procedure):
    def execute(self, ctx):
        import sys
        return Status.done(sorted(sys.modules))

if __name__ == "__main__":
    with ProcedureManager(sys.argv[1], procedures=[Modules], workers=1, config=Config(spares=0)) as manager:
        worker = manager.run(Modules())
        json.dump({"manager": sorted(sys.modules), "worker": worker}, sys.stdout)
"""


def test_a_manager_on_a_directory_loads_nothing_of_other_machines(tmp_path):
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, tmp_path / "state"], capture_output=True, text=True, timeout=BOUND, check=True
    )
    for process, modules in json.loads(ended.stdout).items():
        assert "actorproc.workers" in modules, process
        far = [name for name in modules if name in LIBRARIES or any(f"{name}.".startswith(f"{one}.") for one in FAR)]
        assert set(far) <= PURE, process
