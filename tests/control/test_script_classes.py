"""Classes of a script that a client submits to a service, and a reload that a client asks for."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import pytest

from actorproc import Procedure, ProcedureClient, ProcedureManager, Status
from tests.kit.managers import LIGHT

pytestmark = pytest.mark.processes


@dataclass
class OfScript(Procedure):
    type_name = "__main__.OfScript"
    number: int

    def execute(self, ctx):
        return Status.done(self.number)


@dataclass
class OfModule(Procedure):
    number: int

    def execute(self, ctx):
        return Status.done(self.number)


def test_a_client_is_warned_of_each_class_of_a_script_once(tmp_path, caplog):
    with (
        caplog.at_level(logging.WARNING, "actorproc"),
        ProcedureManager(tmp_path / "state", workers=1, **LIGHT),
        ProcedureClient(tmp_path / "state") as client,
    ):
        assert [client.run(OfScript(number)) for number in range(2)] == [0, 1]
        assert client.run(OfModule(2)) == 2

    warned = [record.getMessage() for record in caplog.records if "of this program's script" in record.getMessage()]
    assert len(warned) == 1
    assert "__main__.OfScript" in warned[0]


def test_a_client_reloads_the_workers(tmp_path):
    with ProcedureManager(tmp_path / "state", workers=1, **LIGHT) as manager:
        before = manager.health().slots[0].incarnation
        with ProcedureClient(tmp_path / "state") as client:
            assert client.reload(timeout=60) == 1
            assert client.run(OfModule(2)) == 2
        assert manager.health().slots[0].incarnation > before
