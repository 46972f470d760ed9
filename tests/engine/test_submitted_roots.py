"""`ctx.submit_root` on the real engine."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from pathlib import Path

import pytest

from actorproc import Procedure, ProcedureFailed, ProcedureManager, RetryPolicy, Saga, Status, step
from tests.kit.managers import LIGHT
from tests.kit.waiting import BOUND

KEPT = []


@dataclass
class Mail(Procedure):
    to: str = ""

    def execute(self, ctx):
        return Status.done(f"mail to {self.to} by {ctx.id}")


class Orders(Saga):
    """Its class of mails is brought to the manager by the answer of the step."""

    folder: str
    how: str = ""
    mails: tuple = ()
    retry = RetryPolicy(max_attempts=3, base=0.01, retry_on=(ConnectionError,))

    @step
    def send(self, ctx):
        self.mails = (ctx.submit_root(Mail("ann"), tags=["m"]), ctx.submit_root(Mail("ben"), id="bens"))
        first = not Path(self.folder, "tried").exists()
        Path(self.folder, "tried").touch()
        if first and self.how == "crash":
            os.kill(os.getpid(), signal.SIGKILL)
        if first and self.how == "error":
            raise ConnectionError("once more")
        KEPT.append(ctx)

    @send.undo
    def unsend(self, ctx):
        if self.how == "undo":
            ctx.submit_root(Mail("carl"), id="carls")

    @step
    def end(self, ctx):
        if self.how == "undo":
            raise ValueError("no")
        if self.how == "late":
            KEPT[-1].submit_root(Mail("late"))
        return list(self.mails)


class Clash(Saga):
    @step
    def send(self, ctx):
        ctx.submit_root(Mail("other"), id="bens")


class Wrong(Saga):
    @step
    def send(self, ctx):
        ctx.submit_root("a mail")


@pytest.fixture
def manager(tmp_path):
    with ProcedureManager(tmp_path / "s", workers=2, **LIGHT) as made:
        yield made


@pytest.mark.parametrize("how", ["", "crash", "error"])
def test_roots_come_once_however_often_the_step_is_tried(manager, tmp_path, how):
    handle = manager.submit(Orders(str(tmp_path), how), id="o")
    first, second = handle.result(BOUND)

    assert manager.get(first).result(BOUND) == f"mail to ann by {first}"
    assert manager.get(second).result(BOUND) == "mail to ben by bens"
    assert [info.id for info in manager.list(tag="m")] == [first]
    assert {info.id for info in manager.list()} == {"o", first, "bens"}
    assert manager.info(first).parent_id is None
    again = manager.restart("o")
    assert again.result(BOUND)[0] != first  # the generation is part of the default id


def test_a_root_outlives_the_undo_and_an_undo_may_submit_one(manager, tmp_path):
    with pytest.raises(ProcedureFailed):
        manager.run(Orders(str(tmp_path), "undo"), timeout=BOUND)
    assert manager.get("bens").result(BOUND) == "mail to ben by bens"
    assert manager.get("carls").result(BOUND) == "mail to carl by carls"


def test_a_taken_id_and_what_is_no_procedure_fail_the_step_in_words(manager, tmp_path):
    manager.run(Orders(str(tmp_path)), timeout=BOUND)
    with pytest.raises(ProcedureFailed, match=r"submit_root: procedure bens .* another initial state"):
        manager.run(Clash(), timeout=BOUND)
    with pytest.raises(ProcedureFailed, match="submit_root takes a Procedure, not 'a mail'"):
        manager.run(Wrong(), timeout=BOUND)


def test_a_context_whose_step_is_over_submits_nothing(tmp_path):
    with (
        ProcedureManager(tmp_path / "s", workers=1, **LIGHT) as manager,
        pytest.raises(ProcedureFailed, match="is over"),
    ):
        manager.run(Orders(str(tmp_path), "late"), timeout=BOUND)
