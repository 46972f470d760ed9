"""A pooler between a store and its database is refused in words, whatever it is busy with."""

from __future__ import annotations

import subprocess
import sys

import pytest

from actorproc.errors import EngineError
from actorproc.store.postgres.store import DatabaseStore
from tests.kit.pooler import pooled


@pytest.fixture(params=["transaction", "session"])
def pooler_port(request):
    with pooled(request.param) as port:
        yield port


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
