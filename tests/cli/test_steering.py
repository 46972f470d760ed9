"""The target of a command's verbs where managers come and go at that very moment."""

from __future__ import annotations

import argparse
import subprocess
import sys
import threading

import pytest

from actorproc.api.manager import ProcedureManager
from actorproc.cli.select.steering import Steered, is_stopped
from actorproc.errors import ManagerStopped
from tests.databases import database_or_skip, new_store

pytestmark = pytest.mark.processes

OWNS = """
import sys
from actorproc.store.home import home_of
store = home_of(sys.argv[1]).store()
if "://" in sys.argv[1]:
    store.show_door("127.0.0.1:1", bytes(32), bytes(32))
store.own()
print("owned", flush=True)
sys.stdin.read()
store.close()
"""
"""A manager that has the store, and does not answer: it starts, or stops."""


@pytest.fixture(params=["directory", "postgres"])
def path(request, tmp_path, monkeypatch):
    """A store that no manager runs on."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state-home"))
    if request.param == "postgres":
        database_or_skip()
    made = str(tmp_path / "state") if request.param == "directory" else new_store()
    with ProcedureManager(made, workers=1):
        pass
    return made


@pytest.fixture
def silent(path):
    """A process that has the store and does not answer."""
    with subprocess.Popen([sys.executable, "-c", OWNS, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"owned\n"
        yield process


def test_a_store_is_taken_when_the_manager_goes_that_was_waited_for(path, silent):
    threading.Timer(0.3, silent.stdin.close).start()

    with Steered(argparse.Namespace(path=path, patience=1.0)) as engine:
        assert is_stopped(engine)
        assert engine.pause()


def test_a_manager_that_stays_silent_is_named(path, silent, monkeypatch):
    monkeypatch.setattr("actorproc.cli.select.steering.PATIENCE", 0.5)

    with (
        pytest.raises(ManagerStopped, match="and does not answer"),
        Steered(argparse.Namespace(path=path, patience=0.5)),
    ):
        pass
