"""Calls of a client whose connection breaks, or whose manager refuses, in an unusual moment: all are answered."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import warnings

import pytest

import actorproc
from actorproc import Procedure, Status
from actorproc.config import Config
from actorproc.control import channel, connection
from actorproc.errors import EngineError, InternalError, ManagerStopped, UnknownType
from tests.kit.waiting import BOUND, outcome_of

pytestmark = pytest.mark.processes


@pytest.fixture
def client(serve):
    service = serve(config="Config(spares=0)")
    with actorproc.ProcedureClient(service.path, patience=30) as made:
        assert made.health().ok
        yield made


def test_what_follows_a_frame_in_which_ctrl_c_came_is_not_taken_for_its_rest(client):
    class Interrupted:
        """The socket; the first frame is cut in its middle."""

        def __init__(self, sock):
            self._sock = sock

        def sendall(self, data):
            self._sock.sendall(data[: len(data) // 2])
            raise KeyboardInterrupt

        def __getattr__(self, name):
            return getattr(self._sock, name)

    client._engine._channel._stream = Interrupted(client._engine._channel._stream)
    with pytest.raises(KeyboardInterrupt):
        client.metrics()

    assert outcome_of(client.metrics).uptime > 0


def test_a_reading_thread_that_fails_fails_who_waits_and_the_next_call_connects_again(client, monkeypatch):
    plain = channel.read_frame

    def once(*arguments):
        plain(*arguments)
        monkeypatch.setattr(channel, "read_frame", plain)
        raise MemoryError

    monkeypatch.setattr(channel, "read_frame", once)
    # The first answer is for the call of `read_frame` that waited already.
    first, failed, again = (outcome_of(client._engine.metrics) for _ in range(3))

    assert isinstance(failed, EngineError)
    assert "MemoryError" in str(failed)
    assert first.uptime < again.uptime


def _exit_of_a_fork(run):
    """The exit status of a forked child that runs this; -9 when it hangs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # it has threads, and forks
        child = os.fork()
    if child == 0:
        try:
            status = run()
        except BaseException:
            status = 99
            raise
        finally:
            os._exit(status)
    ends = []
    found = threading.Thread(target=lambda: ends.append(os.waitpid(child, 0)[1]), daemon=True)
    found.start()
    found.join(BOUND)
    if not ends:
        os.kill(child, signal.SIGKILL)
        found.join()
    return os.waitstatus_to_exitcode(ends[0])


def test_a_forked_child_is_told_that_its_client_is_none(client):
    assert _exit_of_a_fork(lambda: client.health().status != "stopped") == 0
    assert client.health().ok


def test_a_forked_child_is_told_that_its_watch_hears_nothing(client):
    def hears_something(watch):
        refused = 0
        with watch:
            for take in (watch.next, lambda: next(watch), lambda: asyncio.run(anext(watch))):
                with pytest.raises(ManagerStopped, match="forked child"):
                    take()
                refused += 1
        return refused != 3

    with client.watch() as watch:
        assert _exit_of_a_fork(lambda: hears_something(watch)) == 0
        assert client.health().ok


def test_a_class_that_is_longer_than_the_manager_takes_is_left_out_and_costs_no_other_call(serve, tmp_path, caplog):
    service = serve(config="Config(spares=0, max_state=1 << 20, max_frame=2 << 20)")
    text = bytes(range(256)) * (3 << 12)

    class Fat(Procedure):
        def execute(self, ctx, text=text):
            return Status.done(len(text))

    with actorproc.ProcedureClient(service.path, patience=30, procedures=[Fat], config=Config()) as made:
        assert isinstance(outcome_of(lambda: made.submit(Fat())), UnknownType)
        assert outcome_of(made.metrics).uptime > 0

    assert "Config.max_frame" in caplog.text


def test_requests_that_are_refused_at_once_give_their_turns_back(tmp_path, monkeypatch):
    monkeypatch.setattr(connection, "_CALLS", 3)
    manager = actorproc.ProcedureManager(tmp_path / "state", workers=1, config=Config(spares=0))
    with manager, actorproc.ProcedureClient(tmp_path / "state", patience=30) as made:
        assert made.health().ok
        replies = manager._tree._replies
        closed, replies._closed = replies._closed, [InternalError("a bug")]
        try:
            assert {type(outcome_of(lambda: made.pause("p"))) for _ in range(5)} == {InternalError}
        finally:
            replies._closed = closed
