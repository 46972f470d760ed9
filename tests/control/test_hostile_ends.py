"""What a client says to the one behind the socket: not what it cannot take, and nothing to another user."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from actorproc import Config, EngineError, ProcedureClient, ProcedureManager
from actorproc.control.wire import SOCKET_FILE
from actorproc.model.messages.events import Signalled

pytestmark = pytest.mark.processes

BOUND = 30.0
FAKE = """
import os, socket, sys
os.setgid(65534); os.setuid(65534)
door = socket.socket(socket.AF_UNIX)
door.bind("control.sock")
door.listen()
print("open", flush=True)
print(door.accept()[0].recv(10_000))
"""


def test_a_call_longer_than_the_manager_takes_is_refused_and_not_sent_again_and_again(tmp_path):
    config = Config(max_frame=1 << 20, max_state=1 << 19, spares=0)
    with (
        ProcedureManager(tmp_path / "state", workers=1, config=config),
        ProcedureClient(tmp_path / "state", patience=BOUND) as client,
    ):
        sent = client._running().ask
        for _ in range(2):  # before the manager has said what it takes, and after
            refused = sent(lambda reply: Signalled("x", bytes(1 << 21), reply))
            with pytest.raises(EngineError, match="longer than a frame may be"):
                refused.result(BOUND)
        client.publish("x", 1)


@pytest.mark.skipif(os.geteuid() != 0, reason="becoming another user takes root")
def test_a_client_tells_nothing_to_another_user_who_answers_in_a_managers_place(tmp_path):
    place = tmp_path / "state"
    place.mkdir()
    os.chown(place, 65534, 65534)
    with (
        subprocess.Popen(
            [sys.executable, "-c", FAKE], cwd=place, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ) as fake,
        ProcedureClient(place, patience=BOUND) as client,
    ):
        assert fake.stdout is not None
        assert fake.stdout.readline() == "open\n"
        assert (place / SOCKET_FILE).is_socket()
        with pytest.raises(EngineError, match="belongs to user 65534"):
            client.signal("x", "secret")
        assert fake.stdout.readline() == "b''\n"
