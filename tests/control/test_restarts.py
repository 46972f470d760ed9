"""Submits of ids that exist, from another process: a manager killed between their commit and their answer."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

import pytest

import actorproc
from actorproc import DuplicateProcedure, NotAllowed, Procedure, ProcedureFailed, Status
from tests.kit.waiting import BOUND, outcome_of

pytestmark = pytest.mark.processes

MORTAL = """
import os, signal, sys
from actorproc import Config, ProcedureManager
from actorproc.engine.pipeline.command_executor import CommandExecutor
from actorproc.model.rows.writes import PutProcedure

honest = CommandExecutor._reply

def die(self, command, batch):
    if any(type(write) is PutProcedure and write.was is None and write.record.tokens for write in batch.writes):
        os.kill(os.getpid(), signal.SIGKILL)
    honest(self, command, batch)

CommandExecutor._reply = die
with ProcedureManager(sys.argv[1], workers=2, config=Config(spares=0)) as manager:
    print("up", flush=True)
    sys.stdin.read()
"""


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
    process = subprocess.Popen(
        [sys.executable, "-c", MORTAL, tmp_path / "state"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "up\n"
    yield process
    process.kill()
    process.wait(BOUND)
    process.stdin.close()
    process.stdout.close()


def submitted(client, keys, policy):
    """The handle, or the error."""
    return outcome_of(lambda: client.submit(Booking(str(keys)), id="x", on_existing=policy))


def submitted_while_it_dies(client, keys, policy, mortal, serve):
    """What a submit gives whose first manager was killed, and which the next one answers."""
    found = []
    call = threading.Thread(target=lambda: found.append(submitted(client, keys, policy)))
    call.start()
    assert mortal.wait(BOUND) == -signal.SIGKILL
    serve(config="Config(spares=0)")
    call.join(BOUND)
    return found[0]


@pytest.mark.parametrize("policy", ["restart-failed", "restart"])
def test_a_restart_whose_answer_was_lost_with_its_manager_counts_once(mortal, serve, tmp_path, policy):
    keys = tmp_path / "keys"
    with actorproc.ProcedureClient(tmp_path / "state", patience=BOUND) as client:
        with pytest.raises(ProcedureFailed):
            client.submit(Booking(str(keys), fails=True), id="x").result(BOUND)
        handle = submitted_while_it_dies(client, keys, policy, mortal, serve)

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
        handle = submitted_while_it_dies(client, keys, "error", mortal, serve)

        assert handle.result(BOUND) == 1
        assert isinstance(submitted(client, keys, "error"), DuplicateProcedure)
        assert set(keys.read_text().split()) == {"x.1"}
