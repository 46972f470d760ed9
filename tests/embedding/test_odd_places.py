"""Directories on file systems of other machines, and interpreters that are not this program's: the ways out that exist."""

from __future__ import annotations

import multiprocessing
import multiprocessing.spawn
import os
import sys

import pytest

from actorproc import Config, EngineError, ProcedureClient, ProcedureManager, StoreReader, UsageError, WorkerBootFailed
from actorproc.api.stopped import StoppedStore
from actorproc.cli.main import main
from actorproc.procedure.authoring.function import procedure
from actorproc.store import directory

pytestmark = pytest.mark.processes


@procedure
def where(ctx):
    return os.getpid()


@pytest.fixture
def remote(monkeypatch):
    """Every directory is on a file system of another machine."""
    monkeypatch.delenv("ACTORPROC_ALLOW_ANY_FILESYSTEM", raising=False)  # fixtures of a whole module may set it
    monkeypatch.setattr(directory, "_filesystem_type", lambda _path: "9p")


def test_the_refusal_names_what_there_is(remote, tmp_path):
    with pytest.raises(EngineError, match=r"on a 9p file system") as refused:
        ProcedureManager(tmp_path / "state", workers=1).start()

    assert "Config(allow_any_filesystem=True)" in str(refused.value)
    assert "ACTORPROC_ALLOW_ANY_FILESYSTEM=1" in str(refused.value)


def test_a_program_that_knows_better_may_allow_it(remote, tmp_path, monkeypatch):
    config = Config(allow_any_filesystem=True)
    state = tmp_path / "state"
    with ProcedureManager(state, workers=1, config=config) as manager:
        manager.run(where(), id="here", timeout=60)
        with ProcedureClient(state, config=config) as client:
            assert client.info("here").state == "SUCCESS"
    with StoppedStore(state, config=config) as stopped:
        assert stopped.has_ended("here")
    with StoreReader(state, allow_any_filesystem=True) as reader:
        assert reader.info("here").state == "SUCCESS"
    with pytest.raises(EngineError, match="9p"):
        StoreReader(state)


@pytest.mark.parametrize(("word", "code"), [("1", 0), ("0", 4), ("", 4)])
def test_commands_are_told_by_the_environment(remote, tmp_path, monkeypatch, capsys, word, code):
    with ProcedureManager(tmp_path / "state", workers=1, config=Config(allow_any_filesystem=True)):
        pass
    monkeypatch.setenv("ACTORPROC_ALLOW_ANY_FILESYSTEM", word)

    assert main(["--path", str(tmp_path / "state"), "list"]) == code
    assert ("9p" in capsys.readouterr().err) == (code != 0)


# ------------------------------------------------------------ interpreters
@pytest.fixture
def other_python(tmp_path):
    """An interpreter that says that it was started."""
    place = tmp_path / "other-python"
    place.write_text(f'#!/bin/sh\necho started >> {tmp_path}/starts\nexec {sys.executable} "$@"\n')
    place.chmod(0o755)
    return place


def started(tmp_path):
    return (tmp_path / "starts").exists()


@pytest.fixture
def of_multiprocessing():
    """Put back what a test sets for all of `multiprocessing`."""
    before = multiprocessing.spawn.get_executable()
    yield
    multiprocessing.set_executable(before)


def test_workers_are_run_by_the_interpreter_of_the_configuration(tmp_path, other_python):
    config = Config(executable=str(other_python))
    with ProcedureManager(tmp_path / "state", workers=1, config=config) as manager:
        assert manager.run(where(), timeout=60)
    assert started(tmp_path)


def test_workers_are_run_by_the_interpreter_that_multiprocessing_was_given(tmp_path, other_python, of_multiprocessing):
    multiprocessing.set_executable(str(other_python))
    with ProcedureManager(tmp_path / "state", workers=1) as manager:
        assert manager.run(where(), timeout=60)
    assert started(tmp_path)


def test_the_configuration_comes_before_multiprocessing(tmp_path, other_python, of_multiprocessing):
    multiprocessing.set_executable("/nowhere/python")
    config = Config(executable=str(other_python))
    with ProcedureManager(tmp_path / "state", workers=1, config=config) as manager:
        assert manager.run(where(), timeout=60)
    assert started(tmp_path)


def test_a_program_without_an_interpreter_is_told_where_to_name_one(tmp_path, monkeypatch):
    monkeypatch.setattr(multiprocessing.spawn, "_python_exe", None)
    monkeypatch.setattr(sys, "executable", "")

    with pytest.raises(UsageError, match=r"no sys\.executable .*Config\(executable=…\)"):
        ProcedureManager(tmp_path / "state", workers=1).start()


def test_an_interpreter_that_is_not_there_is_told_with_its_setting(tmp_path):
    with pytest.raises(WorkerBootFailed, match=r"'/nowhere/python' \(Config\.executable"):
        ProcedureManager(tmp_path / "state", workers=1, config=Config(executable="/nowhere/python")).start()


@pytest.mark.parametrize("wrong", ["", 3, b"/usr/bin/python3", "a\0b", ["python3"]])
def test_what_is_no_interpreter_is_refused(wrong):
    with pytest.raises(ValueError, match=r"Config\.executable"):
        Config(executable=wrong)


@pytest.mark.parametrize("wrong", [None, 1, "yes"])
def test_the_permission_is_a_yes_or_a_no(wrong):
    with pytest.raises(ValueError, match=r"Config\.allow_any_filesystem"):
        Config(allow_any_filesystem=wrong)
