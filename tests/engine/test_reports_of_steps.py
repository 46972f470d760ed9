"""`Limits(heartbeat=…)` and the details of heartbeats, with real processes that hang, freeze and die."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from actorproc import Limits, Procedure, ProcedureClient, RetryPolicy, Saga, Status, StoreReader, step
from actorproc.config import Config
from actorproc.errors import ProcedureFailed, StepTimeout, WorkerCrashed
from tests.kit.stores import FullDisk
from tests.kit.waiting import wait_until

pytestmark = pytest.mark.processes

SILENCE = Limits(heartbeat=2.0, grace=0.1)
"""Long enough for a worker that starts on a busy machine."""


@dataclass
class Silent(Procedure):
    """Its first attempt falls silent in a way that is given."""

    how: str
    limits = SILENCE
    retry = RetryPolicy(max_attempts=2, base=0.01, retry_on=(StepTimeout,))

    def execute(self, ctx):
        if ctx.attempt > 1:
            return Status.done(ctx.last_heartbeat)
        if self.how != "from the begin":
            for number in range(30):
                ctx.heartbeat(number / 30, details={"number": number})
                time.sleep(0.02)
        if self.how == "in C code that holds the lock":
            ctypes.PyDLL(None).usleep(30_000_000)
        elif self.how == "frozen":
            os.kill(os.getpid(), signal.SIGSTOP)
        elif self.how == "deaf":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        elif self.how == "while it logs and shows":
            while True:
                ctx.log.info("alive")
                ctx.expose("alive", True)
                time.sleep(0.05)
        time.sleep(30)
        return Status.done("never")


@pytest.mark.parametrize(
    "how",
    ["from the begin", "asleep", "in C code that holds the lock", "frozen", "deaf", "while it logs and shows"],
)
def test_a_silent_attempt_ends_and_the_next_one_has_the_last_details(open_manager, how):
    manager = open_manager(workers=1)

    handle = manager.submit(Silent(how))

    assert handle.result(60) == (None if how == "from the begin" else {"number": 29})
    (attempt,) = manager.attempts(handle.id)
    assert attempt.error.kind == "timeout"
    assert attempt.error.crash.kind == "heartbeat-limit"
    assert "step 1 sent no heartbeat for 2 s (Limits.heartbeat)" in attempt.error.message
    assert handle.info().crashes == 0


class Fatal(Procedure):
    limits = SILENCE

    def execute(self, ctx):
        time.sleep(30)


def test_without_a_policy_for_it_silence_fails_the_step_as_other_limits_of_time_do(open_manager):
    manager = open_manager(workers=1)

    with pytest.raises(ProcedureFailed) as failure:
        manager.submit(Fatal()).result(60)

    assert isinstance(failure.value.cause, StepTimeout)
    assert failure.value.cause.kind == "heartbeat-limit"


def test_the_limit_may_come_with_the_submit(open_manager):
    manager = open_manager(workers=2)

    given = manager.submit(Asleep(), limits=Limits(heartbeat=0.3, grace=0.1))

    assert isinstance(given.exception(60).cause, StepTimeout)


class SlowToLoad(Procedure):
    """Its state takes longer to load than its step may be silent."""

    def dump(self):
        return b"slow"

    @classmethod
    def load(cls, data):
        del data
        time.sleep(1.5)
        return cls()

    def execute(self, ctx):
        return Status.done(ctx.attempt)


@pytest.mark.parametrize("threads", [1, 3])
def test_a_step_is_not_silent_while_its_state_is_loaded(open_manager, threads):
    manager = open_manager(workers=1)
    limits = Limits(heartbeat=0.5, grace=0.1, threads=threads)

    # One of them: on a busy machine the short step itself may get no processor for half a second.
    one = next(one for _ in range(5) if (one := manager.submit(SlowToLoad(), limits=limits)).result(60) == 1)

    assert manager.attempts(one.id) == []


class Asleep(Procedure):
    def execute(self, ctx):
        time.sleep(30)


@dataclass
class Beside(Procedure):
    """Steps that run at once in one worker, of which one is silent."""

    limits = Limits(threads=3, heartbeat=2.0, grace=0.1)
    folder: str
    is_silent: bool

    def execute(self, ctx):
        if self.is_silent:
            time.sleep(30)
        while not Path(self.folder, "over").exists():
            ctx.heartbeat()
            time.sleep(0.05)
        return Status.done(ctx.attempt)


def test_of_steps_beside_each_other_the_silent_one_is_charged(open_manager, tmp_path):
    manager = open_manager(workers=1)
    others = [manager.submit(Beside(str(tmp_path), False)) for _ in range(2)]
    silent = manager.submit(Beside(str(tmp_path), True))

    failure = silent.exception(60)
    (tmp_path / "over").touch()

    assert isinstance(failure.cause, StepTimeout)
    assert f"no heartbeat for {Beside.limits.heartbeat:g} s" in str(failure)
    for other in others:
        other.result(60)
        assert manager.attempts(other.id) == []


class Undo(Saga):
    limits = SILENCE
    rollback_retry = RetryPolicy(max_attempts=3, base=0.01)

    @step
    def reserve(self, ctx):
        return None

    @reserve.undo
    def release(self, ctx):
        ctx.expose("undo saw", ctx.last_heartbeat)
        ctx.heartbeat(details=ctx.attempt)
        if ctx.attempt == 1:
            time.sleep(30)

    @step
    def pay(self, ctx):
        raise KeyError


def test_an_undo_has_the_limit_as_well_and_is_always_tried_again(open_manager):
    manager = open_manager(workers=1)
    handle = manager.submit(Undo())

    handle.exception(60)

    assert handle.info().state == "ROLLEDBACK"
    assert handle.info().exposed == {"undo saw": 1}


# ---------------------------------------------------------------------- deaths
@dataclass
class Dies(Procedure):
    how: str
    limits = Limits(crashes=3)

    def execute(self, ctx):
        ctx.expose("attempt", ctx.attempt)
        ctx.expose("seen", ctx.last_heartbeat)
        ctx.heartbeat(details=("row", ctx.attempt))
        if ctx.attempt == 1:
            if self.how == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            os._exit(3)
        return Status.done(ctx.last_heartbeat)


@pytest.mark.parametrize("how", ["kill", "exit"])
def test_what_a_worker_said_before_its_death_is_kept(open_manager, how):
    manager = open_manager(workers=1)

    handle = manager.submit(Dies(how))

    assert handle.result(60) == ("row", 1)
    assert handle.info().exposed == {"attempt": 2, "seen": ("row", 1)}


class Always(Procedure):
    limits = Limits(crashes=1)

    def execute(self, ctx):
        ctx.expose("last words", "here it ends")
        os._exit(3)


def test_a_procedure_that_fails_over_a_death_shows_what_it_showed(open_manager):
    manager = open_manager(workers=1)

    handle = manager.submit(Always())

    assert isinstance(handle.exception(60).cause, WorkerCrashed)
    assert handle.info().exposed == {"last words": "here it ends"}


@dataclass
class Sits(Procedure):
    folder: str
    limits = Limits(crashes=9)

    def execute(self, ctx):
        ctx.expose("seen", ctx.last_heartbeat)
        ctx.expose("attempt", ctx.attempt)
        ctx.heartbeat(details=ctx.attempt)
        Path(self.folder, f"begun {ctx.attempt}").touch()
        while not Path(self.folder, "over").exists():
            time.sleep(0.01)
        return Status.done(ctx.last_heartbeat)


@pytest.mark.parametrize("verb", ["kill", "bypass", "replace", "abort"])
def test_what_operators_do_to_a_running_step(open_manager, tmp_path, verb):
    manager = open_manager(workers=1)
    handle = manager.submit(Sits(str(tmp_path)), id="sits")
    wait_until((tmp_path / "begun 1").exists)
    wait_until(lambda: handle.info().exposed == {"seen": None, "attempt": 1})

    if verb == "kill":
        assert manager.kill("sits")
        wait_until((tmp_path / "begun 2").exists)
        (tmp_path / "over").touch()
        assert handle.result(60) == 1
        assert handle.info().exposed == {"seen": 1, "attempt": 2}
    elif verb == "bypass":
        manager.bypass("sits", force=True)
        handle.wait(60)
        assert handle.info().exposed == {"seen": None, "attempt": 1}
    elif verb == "abort":
        manager.abort("sits", force=True)
        handle.wait(60)
        assert handle.info().exposed == {"seen": None, "attempt": 1}
    else:
        (tmp_path / "over").touch()
        assert handle.result(60) is None


def test_others_see_the_same_values_while_the_step_runs_and_after_the_end(open_manager, tmp_path):
    manager = open_manager(workers=1)
    handle = manager.submit(Sits(str(tmp_path)), id="sits")
    wait_until(lambda: handle.info().exposed == {"seen": None, "attempt": 1})

    with ProcedureClient(tmp_path / "state") as client, StoreReader(tmp_path / "state") as reader:
        for face in (client, reader):
            assert face.info("sits").exposed == {"seen": None, "attempt": 1}
            (listed,) = face.list()
            assert listed.exposed == {"seen": None, "attempt": 1}
    (tmp_path / "over").touch()
    handle.result(60)
    manager.stop()
    with StoreReader(tmp_path / "state") as reader:
        assert reader.info("sits").exposed == {"seen": None, "attempt": 1}


HOST = """
import sys, time
from actorproc import Procedure, ProcedureManager, Status
sys.path.insert(0, {folder!r})
from sitting import Sits

manager = ProcedureManager({state!r}, workers=1, procedures=[Sits]).start()
manager.submit(Sits({folder!r}), "job")
sys.stdin.read()
"""


def test_over_a_hosts_death_what_was_stored_is_given_to_the_next_attempt(open_manager, tmp_path, monkeypatch):
    source = Path(__file__).read_text()
    body = source[source.index("@dataclass\nclass Sits") : source.index('@pytest.mark.parametrize("verb"')]
    imports = "import time\nfrom dataclasses import dataclass\nfrom pathlib import Path\n"
    (tmp_path / "sitting.py").write_text(f"{imports}from actorproc import Limits, Procedure, Status\n{body}")
    script = HOST.format(folder=str(tmp_path), state=str(tmp_path / "state"))
    host = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE)
    try:
        wait_until((tmp_path / "begun 1").exists, 60)
        with StoreReader(tmp_path / "state") as reader:
            wait_until(lambda: reader.info("job").exposed == {"seen": None, "attempt": 1})
    finally:
        host.kill()
        host.communicate()
    monkeypatch.syspath_prepend(tmp_path)
    import sitting

    manager = open_manager(procedures=[sitting.Sits], workers=1)
    wait_until((tmp_path / "begun 2").exists)
    (tmp_path / "over").touch()

    assert manager.get("job").result(60) == 1
    assert manager.info("job").exposed == {"seen": 1, "attempt": 2}
    monkeypatch.delitem(sys.modules, "sitting")


# ---------------------------------------------------------------------- the store in trouble
@dataclass
class InTrouble(Procedure):
    folder: str
    dies: bool

    def execute(self, ctx):
        ctx.expose("attempt", ctx.attempt)
        ctx.expose("seen", ctx.last_heartbeat)
        Path(self.folder, f"begun {ctx.attempt}").touch()
        while ctx.attempt == 1 and not Path(self.folder, "full").exists():
            time.sleep(0.01)
        ctx.expose("in trouble", True)
        ctx.heartbeat(details="in trouble")
        if self.dies and ctx.attempt == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return Status.done(ctx.last_heartbeat)


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("dies", [False, True])
def test_what_is_shown_while_the_store_refuses_writes_is_stored_when_it_works_again(open_manager, tmp_path, dies, late):
    store = FullDisk(late=late)
    manager = open_manager(
        store=store, workers=1, config=Config(commit_backoff=0.01, commit_backoff_cap=0.05, spares=1)
    )
    handle = manager.submit(InTrouble(str(tmp_path), dies), id="job")
    wait_until(lambda: handle.info().exposed == {"attempt": 1, "seen": None})
    store.full = True
    (tmp_path / "full").touch()
    wait_until(lambda: store.refused)
    store.full = False

    assert handle.result(60) == ("in trouble" if dies else None)
    seen = {"attempt": 2, "seen": "in trouble"} if dies else {"attempt": 1, "seen": None}
    assert handle.info().exposed == seen | {"in trouble": True}
