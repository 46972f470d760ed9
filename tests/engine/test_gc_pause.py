"""A start, and a submit of very many, pause the host's cycle collector and leave it as it was."""

from __future__ import annotations

import gc
import os
import sys
import threading

import pytest

from actorproc import Procedure, ProcedureManager, Status
from actorproc.engine.runtime.gc_pause import collector_paused, collector_paused_for
from actorproc.errors import UsageError


@pytest.fixture(autouse=True)
def _collector_as_before():
    yield
    gc.enable()


@pytest.mark.parametrize("was_enabled", [True, False])
def test_the_collector_stands_still_meanwhile_and_is_then_as_before(was_enabled):
    (gc.enable if was_enabled else gc.disable)()

    with collector_paused():
        assert not gc.isenabled()

    assert gc.isenabled() is was_enabled


def test_the_collector_goes_on_after_a_failure():
    with pytest.raises(ValueError, match="damaged"), collector_paused():
        raise ValueError("damaged")

    assert gc.isenabled()


@pytest.mark.parametrize("was_enabled", [True, False])
def test_pauses_of_several_threads_end_with_the_last(was_enabled):
    (gc.enable if was_enabled else gc.disable)()
    one, other = collector_paused(), collector_paused()

    one.__enter__()
    other.__enter__()
    one.__exit__(None, None, None)
    assert not gc.isenabled()
    other.__exit__(None, None, None)

    assert gc.isenabled() is was_enabled


def test_many_threads_that_pause_it_at_once_leave_it_as_it_was():
    def pause():
        for _ in range(2000):
            with collector_paused():
                pass

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=pause) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)

    assert gc.isenabled()


def test_a_copy_that_is_forked_in_a_pause_collects():
    with collector_paused():
        child = os.fork()
        if child == 0:
            os._exit(0 if gc.isenabled() else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert not gc.isenabled()

    assert gc.isenabled()


@pytest.mark.parametrize(("count", "goes_on"), [(10, True), (100_000, False)])
def test_it_stands_still_only_for_many(count, goes_on):
    with collector_paused_for(count):
        assert gc.isenabled() is goes_on

    assert gc.isenabled()


class Looking(Procedure):
    """Notes whether the collector works while its state is taken."""

    seen: list[bool] = []  # noqa: RUF012 - of the class, for the test

    def dump(self):
        self.seen.append(gc.isenabled())
        return "state"

    def execute(self, ctx):
        return Status.done()


def test_a_submit_of_many_pauses_it_while_they_are_described_and_a_refused_one_sets_it_going_again(tmp_path):
    with ProcedureManager(tmp_path / "state", workers=1, procedures=[Looking]) as manager:
        manager.pause(reason="only submits are wanted")
        Looking.seen.clear()
        manager.submit_many([Looking() for _ in range(1000)])
        assert not any(Looking.seen)
        assert gc.isenabled()

        with pytest.raises(UsageError, match="3 is no procedure"):
            manager.submit_many([*(Looking() for _ in range(1000)), 3])
        assert gc.isenabled()
