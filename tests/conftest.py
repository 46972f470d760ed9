"""Every run of the tests tries the same examples, so that what passed once passes again.

Others are looked for on purpose: `HYPOTHESIS_PROFILE=explore pytest tests/simulation`, and the campaigns of
`python -m actorproc.testing.simulation`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

# The tests start two thousand interpreters, and compiling this package takes each as long as all else it does at its
# start. So bytecode is kept, also where the environment asks for none, as images of containers do.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

settings.register_profile("repeatable", derandomize=True)
settings.register_profile("explore", derandomize=False)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))


@pytest.fixture(scope="session", autouse=True)
def _workers_import_little() -> Iterator[None]:
    """Workers get the path of this process, and with it a stand-in for what only the tests need of pytest."""
    stand_in = str(Path(__file__).parent / "kit" / "stand_in")
    sys.path.insert(0, stand_in)
    yield
    sys.path.remove(stand_in)
