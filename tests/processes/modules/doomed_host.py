"""A host program that starts a worker, tells its pids, and is then killed by a test."""

from __future__ import annotations

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from pool_listener import Listener
from steps_under_test import Do

if __name__ == "__main__":
    host = Listener(spares=1)
    worker = host.boot()
    pids = [host.pid(worker)]
    if sys.argv[1] != "idle":
        host.start(worker, Do(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else ""))
        beat = host.heartbeat(worker)
        if (beat.message or "").isdigit():
            pids.append(int(beat.message or ""))
    sys.stdout.write(" ".join(map(str, pids)) + "\n")
    sys.stdout.flush()
    time.sleep(600)
