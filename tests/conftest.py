"""Every run of the tests tries the same examples, so that what passed once passes again.

Others are looked for on purpose: `HYPOTHESIS_PROFILE=explore pytest tests/simulation`, and the campaigns of
`python -m tests.simulator.core_sim.simulation`.
"""

from __future__ import annotations

import collections
import os
import signal
import sys

import pytest
from hypothesis import settings

from actorproc.procedure.values.codec import _Longest
from tests.databases import allowed, emptied, give_back

# The tests start two thousand interpreters, and compiling this package takes each as long as all else it does at its
# start. So bytecode is kept, also where the environment asks for none, as images of containers do.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# Tests give Ctrl-C to programs that they start. A shell's job in the background ignores it, and so would its children.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Without a limit of time for an example: what a busy machine is slow with is no mistake.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.register_profile("explore", derandomize=False, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))


@pytest.fixture(autouse=True)
def own_process(monkeypatch):
    """Take back what a test allowed to its process: databases that do not sync, long values."""
    for name in ("bytes", "call"):
        monkeypatch.setattr(_Longest, name, getattr(_Longest, name))  # managers raise them
    yield
    allowed.undo()


@pytest.fixture
def database_url():
    """The URL of an empty store in a private database. Skips the test where there is no server."""
    url = emptied()
    yield url
    give_back(url)


def pytest_terminal_summary(terminalreporter):
    """Seconds of each part of the tests, all processes together."""
    parts = collections.Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if hasattr(report, "duration") and hasattr(report, "nodeid"):
                folders = report.nodeid.partition("::")[0].split("/")[1:-1]
                on_database = any(word in report.nodeid.lower() for word in ("postgres", "database"))
                parts["on PostgreSQL" if on_database else (*folders, "the rest")[0]] += report.duration
    if len(parts) > 1:
        shown = ", ".join(f"{part} {seconds:.0f} s" for part, seconds in parts.most_common() if seconds >= 1)
        terminalreporter.write_line(f"time by part, of all processes: {shown}")
