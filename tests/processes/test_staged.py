"""Long outputs of workers come to the host as files, and none is left behind."""

from __future__ import annotations

import gc
import os
import signal
from dataclasses import dataclass
from pathlib import Path

import pytest

from actorproc import Procedure, ProcedureManager, Status
from actorproc.executor import ProcedureExecutor
from actorproc.model.ids import Mode, StepToken, WorkerId
from actorproc.model.messages.outcomes import Advanced, Finished
from actorproc.store.lmdb.files.blobs import BlobFiles
from actorproc.support.staged_files import LONG, StagedFile, drop_staged_by, in_file, taken, write_staged
from actorproc.workers.child.runtime.actor import _in_file
from actorproc.workers.pool.receiver import _take_output
from actorproc.workers.protocol.frames import Ended, FrameError, decode_from_worker, encode_frame
from tests.kit.waiting import wait_until


@pytest.fixture
def staging(tmp_path):
    (tmp_path / "staging").mkdir(mode=0o700)
    return tmp_path / "staging"


def test_a_staged_file_is_mapped_and_goes_with_its_mapping(staging):
    view = taken(str(staging), write_staged(str(staging), b"content"), 7)
    (file,) = staging.iterdir()

    assert (bytes(view), file.stat().st_mode & 0o777) == (b"content", 0o600)
    assert in_file(view) is view.obj
    assert in_file(view[1:]) is in_file(memoryview(b"content")) is in_file(b"content") is None
    del view
    gc.collect()
    assert not list(staging.iterdir())


def test_one_that_was_given_another_name_stays(staging):
    view = taken(str(staging), write_staged(str(staging), b"content"), 7)
    Path(view.obj.path).rename(staging / "kept")
    del view
    gc.collect()
    assert (staging / "kept").read_bytes() == b"content"


def test_what_is_no_staged_file_is_refused(staging, tmp_path):
    (tmp_path / "secret").write_bytes(b"content")
    (staging / "1-1.new").symlink_to(tmp_path / "secret")
    (staging / "1-2.new").mkdir()
    name = write_staged(str(staging), b"content")
    cases = [
        ("../secret", 7), ("secret", 7), (str(tmp_path / "secret"), 7), ("", 7), ("1-9.new", 7),
        ("1-1.new", 7), ("1-2.new", 7), (name, 8), (name, 6), (name, 0), (name, -1),
    ]  # fmt: skip
    for given, size in cases:
        with pytest.raises((OSError, ValueError)):
            taken(str(staging), given, size)
    with pytest.raises(ValueError, match="no file of a worker"):
        taken("", name, 7)
    assert (tmp_path / "secret").read_bytes() == b"content"


def test_what_a_dead_worker_staged_is_dropped_and_nothing_else(staging):
    write_staged(str(staging), b"of this process")
    for name in ("1-1.new", "11-1.new", "0123456789abcdef", "0123456789abcdef.taken", "1-notes"):
        (staging / name).write_bytes(b"x")
    drop_staged_by(str(staging), 1)
    drop_staged_by("", 1)
    drop_staged_by(str(staging / "missing"), 1)

    left = {file.name for file in staging.iterdir()}
    assert left >= {"11-1.new", "0123456789abcdef", "0123456789abcdef.taken", "1-notes"}
    assert "1-1.new" not in left
    assert len(left) == 5


@pytest.mark.parametrize("harm", ["no directory", "no space"])
def test_an_output_that_cannot_be_staged_goes_through_the_socket(staging, monkeypatch, harm):
    outcome = Finished(state=b"", output=b"x" * 100)
    if harm == "no space":
        monkeypatch.setattr(os, "write", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    else:
        staging.rmdir()
    assert _in_file(outcome, str(staging)) == (outcome, "", 0)
    assert not staging.exists() or not list(staging.iterdir())


def ended(outcome, name, size):
    token = StepToken(1, WorkerId(0, 1), "p", 1, 1, Mode.EXECUTE)
    return decode_from_worker(encode_frame([Ended(token, outcome, (), name, size)])[4:])


def test_a_worker_that_tells_of_a_file_that_is_not_there_breaks_the_protocol(staging):
    messages = ended(Finished(state=b"", output=b""), "1-1.new", 10)
    with pytest.raises(FrameError, match="cannot be taken over"):
        _take_output(messages[0], str(staging))
    messages = ended(Advanced(state=b""), write_staged(str(staging), b"x"), 1)
    with pytest.raises(FrameError, match="has none"):
        _take_output(messages[0], str(staging))


def give(size):
    return os.urandom(1) * size


def stage_and_die(path, staging, content):
    if not Path(path).exists():
        Path(path).touch()
        write_staged(staging, content)
        os.kill(os.getpid(), signal.SIGKILL)
    return content


@pytest.mark.processes
def test_results_come_as_files_and_are_what_was_returned(tmp_path, monkeypatch):
    staged = []
    monkeypatch.setattr(
        BlobFiles, "_of_worker", lambda self, file, real=BlobFiles._of_worker: staged.append(file) or real(self, file)
    )
    staging = tmp_path / "state" / "blobs"
    with ProcedureExecutor(tmp_path / "state", 2) as executor:
        assert len(executor.submit(give, LONG).result(60)) == LONG  # the directory is made for this one
        sizes = [LONG, LONG + 1, 2 * LONG + 3, LONG - 1]
        results = [future.result(60) for future in [executor.submit(give, size) for size in sizes]]
        assert [(len(result), len(set(result))) for result in results] == [(size, 1) for size in sizes]
        assert len(staged) >= 3
        content = os.urandom(LONG)
        future = executor.submit(stage_and_die, str(tmp_path / "died"), str(staging), content)
        assert future.result(60) == content
        staged.clear()
        wait_until(lambda: not [file for file in staging.iterdir() if file.suffix])
    assert all(isinstance(file, StagedFile) for file in staged)


@dataclass
class Gives(Procedure):
    size: int
    way: str = "data"

    def execute(self, ctx):
        if self.way == "parent" and ctx.step == 1:
            return Status.suspended([("child", Gives(self.size))])
        if self.way == "parent":
            return Status.done(len(ctx.children["child"].output))
        return Status.done(b"x" * self.size)


@dataclass
class GivesPickled(Procedure):
    codec = "pickle"
    size: int

    def execute(self, ctx):
        return Status.done({1, frozenset([b"x" * self.size])})


@pytest.mark.processes
def test_long_outputs_of_procedures_are_read_as_any_other(tmp_path):
    size = LONG + 10
    with ProcedureManager(tmp_path / "state", workers=2, procedures=[Gives, GivesPickled]) as manager:
        for number in range(3):
            assert manager.run(Gives(size), f"data{number}") == b"x" * size
            assert manager.run(GivesPickled(size), f"pickle{number}") == {1, frozenset([b"x" * size])}
        assert manager.run(Gives(size, "parent"), "parent") == size
    with ProcedureManager(tmp_path / "state", workers=2, procedures=[Gives, GivesPickled]) as manager:
        assert manager.get("data2").result(30) == b"x" * size
        assert manager.get("pickle2").result(30) == {1, frozenset([b"x" * size])}
        assert manager.get("child").result(30) == b"x" * size
