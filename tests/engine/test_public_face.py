"""How managers and their like show themselves, and what they say where they do not belong."""

from __future__ import annotations

import copy
import inspect
import pickle
import re
from dataclasses import dataclass
from importlib import metadata
from typing import Any

import pytest

import actorproc
from actorproc import (
    Procedure,
    ProcedureClient,
    ProcedureExecutor,
    ProcedureManager,
    StateNotEncodable,
    Status,
    StoreReader,
    UsageError,
)
from actorproc.api.stopped import StoppedStore
from actorproc.executor.futures import DurableFuture
from actorproc.testing.inline import InlineManager


@dataclass
class Holds(Procedure):
    thing: Any

    def execute(self, ctx):
        return Status.done()


@dataclass
class HoldsPickled(Holds):
    codec = "pickle"


def test_the_package_says_its_version():
    assert actorproc.__version__ == metadata.version("actorproc")
    assert "__version__" in dir(actorproc)


def test_a_manager_shows_its_path_and_whether_it_runs(open_manager, tmp_path):
    manager = open_manager(workers=1)
    path = re.escape(repr(manager._path))

    assert re.fullmatch(f"<ProcedureManager {path} running>", repr(manager))
    assert re.fullmatch(f"<StoreReader {path}>", repr(StoreReader(manager._path)))
    with ProcedureClient(manager._path) as client:
        assert re.fullmatch(f"<ProcedureClient {path} open>", repr(client))
    assert repr(client).endswith("closed>")
    with ProcedureExecutor(manager) as pool:
        assert re.fullmatch(f"<ProcedureExecutor {path} open>", repr(pool))
    assert repr(pool).endswith("shut down>")
    manager.stop()
    assert repr(manager).endswith("stopped>")
    assert repr(ProcedureManager(tmp_path / "other")) == f"<ProcedureManager {str(tmp_path / 'other')!r} not started>"
    assert repr(StoppedStore(manager._path)).endswith("closed>")
    assert repr(InlineManager()).startswith("<InlineManager ")


def things(manager):
    yield manager
    yield manager.submit(Holds(1))
    yield manager.watch()
    yield StoreReader(manager._path)
    yield ProcedureClient(manager._path)
    yield ProcedureExecutor(manager)


def test_what_belongs_to_its_process_is_refused_in_words_wherever_it_would_leave_it(open_manager):
    manager = open_manager(workers=1)
    for thing in things(manager):
        name = type(thing).__name__
        for leave in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(TypeError, match="belongs to its process"):
                leave(thing)
        with pytest.raises(StateNotEncodable, match=rf"Holds\.thing: a {name} belongs to its process"):
            manager.submit(Holds(thing))
        with pytest.raises(StateNotEncodable, match="belongs to its process"):
            manager.submit(HoldsPickled(thing))

        class Refers(Procedure):
            def execute(self, ctx, thing=thing):
                return Status.done(thing)

        with pytest.raises(UsageError, match="belongs to its process") as caught:
            manager.submit(Refers())
        assert "msgspec" not in str(caught.value)


def test_what_handles_ask_of_a_manager_is_not_its_public_face():
    for face in (ProcedureManager, ProcedureClient, StoppedStore, InlineManager):
        assert {"end_of", "ended", "output_of", "post"}.isdisjoint(dir(face)), face


@pytest.mark.parametrize("face", [ProcedureManager, ProcedureClient, ProcedureExecutor, StoreReader, DurableFuture])
def test_every_public_method_says_what_it_is_for(face):
    for name, member in inspect.getmembers(face, callable):
        if not name.startswith("_") and getattr(member, "__module__", "").startswith("actorproc"):
            assert inspect.getdoc(member), f"{face.__name__}.{name}"
