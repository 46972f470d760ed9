"""Named calls whose ids exist: made again, or refused, as `on_existing` says."""

from __future__ import annotations

from pathlib import Path

import pytest

from actorproc import DuplicateProcedure, NotAllowed, Procedure, Status
from actorproc.executor import ProcedureExecutor
from tests.executor.calls import add
from tests.kit.waiting import BOUND

pytestmark = [pytest.mark.processes, pytest.mark.usefixtures("results_stay")]


class Waits(Procedure):
    def execute(self, ctx):
        return Status.wait("never")


def count(path, *, works):
    """The number of this call of the file, as its result or its error."""
    file = Path(path)
    number = len(file.read_text()) + 1 if file.exists() else 1
    file.write_text("x" * number)
    if not works:
        raise ValueError(number)
    return number


@pytest.fixture
def executor(tmp_path):
    with ProcedureExecutor(tmp_path / "state", max_workers=1) as made:
        yield made


def called(executor, policy, path, *, works=True, id="c"):
    return executor.submit_with(id=id, on_existing=policy)(count, path, works=works)


def test_a_call_that_failed_is_made_again_and_one_that_succeeded_is_not(executor, tmp_path):
    path = tmp_path / "calls"
    assert called(executor, "restart-failed", path, works=False).exception(BOUND).args == (1,)
    assert called(executor, "same", path).exception(BOUND).args == (1,)

    assert called(executor, "restart-failed", path).result(BOUND) == 2
    with pytest.raises(NotAllowed, match="has succeeded"):
        called(executor, "restart-failed", path).result(BOUND)
    with pytest.raises(DuplicateProcedure):
        called(executor, "error", path).result(BOUND)

    assert called(executor, "same", path).result(BOUND) == 2
    assert called(executor, "restart", path).result(BOUND) == 3
    assert executor.manager.info("c").generation == 3
    assert path.read_text() == "xxx"


def test_each_use_of_a_submit_with_a_policy_is_one_of_its_own(executor, tmp_path):
    restart = executor.submit_with(id="c", on_existing="restart")

    assert [restart(count, tmp_path / "calls", works=True).result(BOUND) for _ in range(3)] == [1, 2, 3]


def test_the_id_of_something_else_is_refused(executor):
    executor.submit(add, 1).result(BOUND)
    executor.manager.submit(Waits(), id="w")
    for policy in ("error", "restart-failed", "restart"):
        with pytest.raises(DuplicateProcedure):
            executor.submit_with(id="w", on_existing=policy)(add, 1).result(BOUND)
    executor.manager.abort("w")


def test_a_call_that_has_not_ended_is_not_restarted_and_goes_on(executor, tmp_path):
    executor.submit(add, 1).result(BOUND)
    executor.manager.pause(reason="in a test")
    first = executor.submit_as("c", add, 1)
    first.durable(BOUND)
    again = executor.submit_with(id="c", on_existing="restart")(add, 5)
    with pytest.raises(NotAllowed, match="has not ended"):
        again.result(BOUND)
    executor.manager.resume()

    assert first.result(BOUND) == add(1)


@pytest.mark.parametrize("options", [{"on_existing": "restart"}, {"on_existing": "no", "id": "c"}])
def test_a_policy_without_an_id_and_one_that_there_is_not_are_refused(executor, options):
    with pytest.raises(ValueError, match="on_existing"):
        executor.submit_with(**options)
