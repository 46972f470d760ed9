"""Directories whose names are bytes that are no UTF-8, or hang on the working directory."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass

import pytest

from actorproc import Procedure, ProcedureClient, Status, StoreInUse, StoreReader, UsageError
from actorproc.api.stopped import StoppedStore

pytestmark = pytest.mark.processes


@dataclass
class Add(Procedure):
    a: int
    b: int
    codec = "pickle"

    def execute(self, ctx):
        return Status.done(self.a + self.b)


@pytest.fixture
def odd(tmp_path):
    """A path that is no UTF-8, as Python shows it."""
    if sys.platform == "darwin":
        pytest.skip("file systems of macOS take UTF-8 alone")
    return tmp_path / os.fsdecode(b"state\xff\xfe")


def test_a_store_in_a_directory_whose_name_is_no_utf8_works_as_any_other(open_manager, odd):
    manager = open_manager(odd, workers=1)
    handle = manager.submit(Add(1, 2))
    assert handle.result(30) == 3

    with pytest.raises(StoreInUse):
        open_manager(odd, workers=1)
    copy = odd.with_name(odd.name + "-copy")
    manager.backup(copy)
    manager.compact()
    for path in (odd, copy):
        with StoreReader(path) as reader:
            assert reader.info(handle.id).state == "SUCCESS"
    manager.stop()
    assert open_manager(odd, workers=1).run(Add(3, 4)) == 7


def test_a_relative_path_is_that_of_the_moment_in_which_it_was_given(open_manager, tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    manager = open_manager("state", workers=1)
    client, stopped = ProcedureClient("state"), StoppedStore("state")
    handle = manager.submit(Add(1, 2))
    assert handle.result(30) == 3

    monkeypatch.chdir(tmp_path / "elsewhere")
    manager.stop()
    assert not (tmp_path / "state" / "control.sock").exists()
    with stopped:
        assert stopped.has_ended(handle.id)
    manager.start()

    assert manager.get(handle.id).result(30) == 3
    with client:
        assert client.run(Add(3, 4)) == 7
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_manager_whose_directory_was_moved_away_leaves_the_next_one_there_its_socket(open_manager, tmp_path):
    first = open_manager(workers=1)
    (tmp_path / "state").rename(tmp_path / "moved")
    open_manager(workers=1)

    first.stop()

    with ProcedureClient(tmp_path / "state", patience=20) as client:
        assert client.run(Add(3, 4)) == 7


def test_a_path_may_be_bytes_and_not_empty(open_manager, tmp_path):
    assert open_manager(os.fsencode(tmp_path / "state"), workers=1).run(Add(1, 2)) == 3
    for empty in ("", b""):
        with pytest.raises(ValueError, match="path of a store is empty"):
            open_manager(empty)


def test_a_client_reaches_the_manager_there_and_is_told_what_it_cannot_send(open_manager, odd, tmp_path):
    open_manager(odd, workers=1)
    with ProcedureClient(odd) as client:
        assert client.run(Add(1, 2)) == 3
        client.backup(tmp_path / "copy")
        with pytest.raises(UsageError, match=r"\\udcff.* is no UTF-8 and cannot be sent"):
            client.backup(odd.with_name(odd.name + "-copy"))


def test_the_command_line_looks_into_a_store_there(open_manager, odd):
    manager = open_manager(odd, workers=1)
    manager.run(Add(1, 2))
    for verb in ("list", "status", "doctor"):
        done = subprocess.run(
            [sys.executable, "-m", "actorproc", "--path", odd, verb], check=False, capture_output=True, text=True
        )
        assert (done.returncode, done.stderr) == (0, "")
