"""Submits of ids that exist, from another process: a manager killed between their commit and their answer."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

import actorproc
from actorproc import DuplicateProcedure, NotAllowed, Procedure, ProcedureFailed, Status
from tests.kit.mortal_manager import mortal_manager, while_it_dies
from tests.kit.waiting import BOUND, outcome_of

pytestmark = pytest.mark.processes

STORED = "write.was is None and write.record.tokens"


@dataclass
class Booking(Procedure):
    """Writes its idempotency key into a file, and fails when it is to."""

    path: str
    fails: bool = False

    def execute(self, ctx):
        with Path(self.path).open("a") as file:
            file.write(f"{ctx.idempotency_key}\n")
        if self.fails:
            raise ValueError("no room")
        return Status.done(ctx.generation)


@pytest.fixture
def mortal(tmp_path):
    """A manager that dies when it has stored a submit with a policy and is about to answer."""
    with mortal_manager(tmp_path / "state", STORED) as process:
        yield process


def submitted(client, keys, policy):
    """The handle, or the error."""
    return outcome_of(lambda: client.submit(Booking(str(keys)), id="x", on_existing=policy))


@pytest.mark.parametrize("policy", ["restart-failed", "restart"])
def test_a_restart_whose_answer_was_lost_with_its_manager_counts_once(mortal, serve, tmp_path, policy):
    keys = tmp_path / "keys"
    with actorproc.ProcedureClient(tmp_path / "state", patience=BOUND) as client:
        with pytest.raises(ProcedureFailed):
            client.submit(Booking(str(keys), fails=True), id="x").result(BOUND)
        handle = while_it_dies(mortal, serve, lambda: submitted(client, keys, policy))

        assert handle.result(BOUND) == 2
        assert client.info("x").generation == 2
        assert set(keys.read_text().split()) == {"x.1", "x.g2.1"}
        another = submitted(client, keys, policy)
        if policy == "restart-failed":
            assert isinstance(another, NotAllowed)
        else:
            assert another.result(BOUND) == 3


def test_a_new_id_whose_answer_was_lost_with_its_manager_is_no_duplicate(mortal, serve, tmp_path):
    keys = tmp_path / "keys"
    with actorproc.ProcedureClient(tmp_path / "state", patience=BOUND) as client:
        handle = while_it_dies(mortal, serve, lambda: submitted(client, keys, "error"))

        assert handle.result(BOUND) == 1
        assert isinstance(submitted(client, keys, "error"), DuplicateProcedure)
        assert set(keys.read_text().split()) == {"x.1"}
