"""Word statistics of the standard library's sources, on all cores, with a worker killed on the way.

    python 07_heavy_batch.py [--source DIRECTORY] [--state DIRECTORY] [--check]

`ProcedureExecutor` is used as `ProcessPoolExecutor` would be. The dead worker costs the one call that was in it; the
others never notice. With --check the result is compared with that of a plain loop.
"""

import argparse
import collections
import contextlib
import os
import re
import signal
import sysconfig
import tempfile
from pathlib import Path

from actorproc.executor import ProcedureExecutor


def words_in(path):
    """How often each word occurs in a file."""
    text = Path(path).read_text(encoding="utf-8", errors="replace")
    return collections.Counter(re.findall(r"[^\W\d_]{3,}", text.lower()))


def kill_a_busy_worker(manager):
    """The pid of a worker that was killed in the middle of a call; None when all were idle."""
    for worker in manager.workers():
        if worker.state == "busy":
            os.kill(worker.pid, signal.SIGKILL)
            return worker.pid
    return None


def count(files, state):
    """The words of all files, and how many workers were killed meanwhile."""
    total, killed = collections.Counter(), 0
    with ProcedureExecutor(state, max_workers=2) as executor:
        for counts in executor.map(words_in, files, chunksize=8):
            total += counts
            if not killed and kill_a_busy_worker(executor.manager):
                killed += 1
    return total, killed


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", default=sysconfig.get_path("stdlib"))
    parser.add_argument("--state", default=None)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    files = sorted(str(path) for path in Path(options.source).rglob("*.py") if "site-packages" not in path.parts)

    with contextlib.ExitStack() as stack:
        state = options.state or stack.enter_context(tempfile.TemporaryDirectory())
        total, killed = count(files, state)
    print(f"files: {len(files)}")
    print(f"words: {sum(total.values())}")
    print("most frequent:", *[word for word, _ in total.most_common(5)])
    print(f"workers killed: {killed}")
    if options.check:
        expected = sum((words_in(path) for path in files), collections.Counter())
        print("as a plain loop counts them:", total == expected)


if __name__ == "__main__":
    main()
