"""The control socket of a manager that stops."""

from __future__ import annotations

import os
import socket
import threading

import msgspec
import pytest

import actorproc
from actorproc import Procedure, Status
from actorproc.control.wire import SOCKET_FILE, RemoteCall, encode, framed, read_frame
from actorproc.errors import ManagerStopped
from actorproc.store.lmdb.store import LmdbStore
from tests.kit.managers import LIGHT
from tests.kit.waiting import BOUND, wait_until

pytestmark = pytest.mark.processes


class Done(Procedure):
    def execute(self, ctx):
        return Status.done()


def test_a_client_whose_question_waits_for_a_commit_is_told_of_the_end_before_its_thread_is_waited_for(
    tmp_path, monkeypatch
):
    free, waiting, order = threading.Event(), threading.Event(), []
    commit = LmdbStore.commit

    def slow(store, writes, epoch, batch=0):
        waiting.set()
        assert free.wait(BOUND)
        commit(store, writes, epoch, batch)

    def submit():
        with pytest.raises(ManagerStopped):
            manager.submit(Done())

    with actorproc.ProcedureManager(tmp_path / "state", workers=1, **LIGHT) as manager:
        tree = manager._tree
        wait_until(tree.is_settled)
        monkeypatch.setattr(LmdbStore, "commit", slow)
        submits = threading.Thread(target=submit)
        submits.start()
        assert waiting.wait(BOUND)
        with socket.socket(socket.AF_UNIX) as sock:
            sock.connect(os.fspath(tmp_path / "state" / SOCKET_FILE))
            read_frame(sock, 10_000)
            body = encode((None, None, None, False, False, 10, None))
            sock.sendall(framed(RemoteCall(1, "watch", "", msgspec.Raw(body))))
            wait_until(lambda: len(tree._replies._waiting) > 2)  # the submit, the watch, and that it begins
            (connection,) = tree.at_close[0].__self__._connections
            reader = connection.threads[0]
            close, join = tree._replies.close, reader.join

            def closed(error):
                order.append("told")
                free.set()
                close(error)

            def joined(timeout=None):
                order.append("waited for")
                join(timeout)

            monkeypatch.setattr(tree._replies, "close", closed)
            monkeypatch.setattr(reader, "join", joined)
            manager.stop(drain=False, timeout=0.1)
        submits.join(BOUND)

    assert order[0] == "told"
    assert not reader.is_alive()
