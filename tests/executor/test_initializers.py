"""Initializers: what they set of the worker's process."""

from __future__ import annotations

import functools
import os

import pytest

from actorproc import Limits, ProcedureExecutor, ProcedureManager
from actorproc.executor import CallBroken
from tests.executor.calls import die, die_once, process_traits, set_up

pytestmark = pytest.mark.processes


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.setenv("ACTORPROC_TEST_PLAIN", "of the program")
    (tmp_path / "place").mkdir()
    return tmp_path / "place"


def expected(place):
    return {
        "data": 3 << 30,
        "files": 512,
        "set": "set",
        "plain": None,
        "directory": str(place),
        "umask": 0o027,
        "handler": True,
        "recursion": 1234,
    }


@pytest.mark.parametrize(
    "options", [{}, {"limits": Limits(memory=2**30, processes=4, nice=19)}, {"max_tasks_per_child": 2}], ids=str
)
def test_what_an_initializer_sets_stays_for_the_life_of_the_worker(open_executor, place, options):
    executor = open_executor(max_workers=1, initializer=set_up, initargs=(place,), **options)
    wanted = expected(place)
    if "limits" in options:
        wanted.pop("data")  # inside of a call the limit of the call holds, which is lower

    for spoils in (False, True, False, True, False):
        found = executor.submit(process_traits, spoils).result(30)
        assert {name: found[name] for name in wanted} == wanted
        assert found["data"] <= 3 << 30


def test_a_worker_that_takes_the_place_of_a_dead_one_is_set_up_too(open_executor, place, tmp_path):
    executor = open_executor(max_workers=1, initializer=set_up, initargs=(place,))

    assert executor.submit(die_once, tmp_path / "marker").result(30) == "survived"
    assert isinstance(executor.submit(die).exception(60), CallBroken)
    assert executor.submit(process_traits).result(30) == expected(place)


def test_an_initializer_of_a_script_sets_the_process_too(open_executor, place):
    def start(directory):
        os.chdir(directory)

    executor = open_executor(max_workers=1, initializer=functools.partial(start, directory=place))
    assert [executor.submit(os.getcwd).result(30) for _ in range(3)] == [str(place)] * 3


def test_in_the_workers_of_another_manager_it_stays_for_one_call(tmp_path, place):
    with ProcedureManager(tmp_path / "state", workers=1) as manager:
        plain = ProcedureExecutor(manager)
        before = plain.submit(process_traits).result(30)
        with ProcedureExecutor(manager, initializer=set_up, initargs=(place,)) as executor:
            assert executor.submit(process_traits).result(30) == expected(place)
            assert executor.submit(process_traits).result(30) == before
        plain.shutdown()


def test_a_failed_initializer_leaves_nothing_behind(tmp_path, place):
    with ProcedureManager(tmp_path / "state", workers=1) as manager:
        plain = ProcedureExecutor(manager)
        before = plain.submit(process_traits).result(30)
        with ProcedureExecutor(manager, initializer=set_up, initargs=(place, True)) as executor:
            assert isinstance(executor.submit(process_traits).exception(30), CallBroken)
        assert plain.submit(process_traits).result(30) == before
        plain.shutdown()
