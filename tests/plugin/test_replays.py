"""Stored steps run again: they end as they did, say so when they do not, and touch nothing outside."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import pytest

from actorproc.api.replay.replayer import Replayer, registry_of
from actorproc.cli.main import main
from actorproc.errors import UnknownStep, UsageError
from actorproc.procedure.authoring.procedure import Procedure
from actorproc.procedure.authoring.saga import Saga, step
from actorproc.procedure.authoring.status import Status
from actorproc.procedure.declaring.policies import RetryPolicy
from actorproc.procedure.values.secrets.secret import Secret
from actorproc.testing import replay_steps

pytestmark = pytest.mark.processes

AFTER = {"acts": lambda: None, "adds": 1, "fails": False}
"""What the code of today does beside the code of then."""


@dataclass
class Piece(Procedure):
    n: int

    def execute(self, ctx):
        return Status.done(self.n * 2)


@dataclass
class Whole(Saga):
    n: int
    password: Annotated[str, Secret] = "hunter2"
    seen: list[int] = field(default_factory=list)

    @step
    def prepare(self, ctx):
        AFTER["acts"]()
        self.seen.append(ctx.remember("number", os.getpid))
        ctx.query(ctx.id)
        ctx.heartbeat(0.5, "half")

    @prepare.undo
    def unprepare(self, ctx):
        self.seen = []

    @step
    def spread(self, ctx):
        return Status.suspended([(f"{ctx.id}.{n}", Piece(n)) for n in (1, 2)])

    @step
    def collect(self, ctx):
        self.seen += [ctx.children[f"{ctx.id}.{n}"].output for n in (1, 2)]

    @step
    def last(self, ctx):
        self.n += AFTER["adds"]
        if self.n > 5 or AFTER["fails"]:
            raise ValueError(f"{self.n} is too many")
        return Status.done(self.n)


@dataclass
class Chained(Procedure):
    n: int = 0

    def execute(self, ctx):
        self.n += AFTER["adds"]
        return Status.executing(persist=self.n % 3 == 0) if self.n < 8 else Status.done(self.n)


@dataclass
class Trimmed(Procedure):
    keep_steps = 2
    n: int = 0

    def execute(self, ctx):
        self.n += 1
        return Status.executing() if self.n < 9 else Status.done(self.n)


@dataclass
class Woken(Procedure):
    got: str = ""

    def execute(self, ctx):
        if ctx.event is not None:
            self.got = ctx.event
            return Status.executing()
        return Status.done(self.got) if self.got else Status.wait("go")


@dataclass
class Resumed(Procedure):
    """Each attempt goes on from the last heartbeat of the one before, and sends some of its own."""

    n: int = 0
    retry = RetryPolicy(max_attempts=5, base=0.001)

    def execute(self, ctx):
        begin = ctx.last_heartbeat or 0
        self.n = begin
        ctx.expose("began at", begin)
        ctx.heartbeat(0.5, "half", details=begin + 5)
        if begin < 10:
            raise ConnectionError
        return Status.done(begin)


@dataclass
class Fails(Procedure):
    """Each way of failing, at its second attempt; undone by an undo that fails too, or by none."""

    how: str
    retry = RetryPolicy(max_attempts=5, base=0.001)
    rollback_retry = RetryPolicy(max_attempts=1)

    def execute(self, ctx):
        if ctx.attempt == 1:
            raise ConnectionError("once more")
        if self.how == "usage":
            ctx.expose("value", object())
        if self.how == "no status":
            return
        raise ValueError(f"attempt {ctx.attempt}")


@dataclass
class FailsTwice(Fails):
    def rollback(self, ctx):
        raise OSError("the disk is gone")


@dataclass
class TimedOut(Procedure):
    """Waits for what never comes: twice it goes on without, and then it is as `how` says."""

    how: str
    seen: list[str] = field(default_factory=list)

    def execute(self, ctx):
        self.seen.append(str(ctx.event))
        return (
            Status.done(self.seen) if self.how == "ends" and len(self.seen) > 4 else Status.wait("never", timeout=0.01)
        )

    def on_timeout(self, ctx):
        self.seen.append(f"late {ctx.remember('number', os.getpid)}")
        if len(self.seen) < 5:
            return Status.executing(persist=len(self.seen) > 2)
        if self.how == "raises":
            raise ValueError(f"{len(self.seen)} waits")
        return Status.executing() if self.how == "ends" else None


@dataclass
class Unprepared(Procedure):
    def execute(self, ctx):
        return Status.done(ctx.event) if ctx.event is not None else Status.wait("go", timeout=0.01)


LATE = ("ends", "raises", "gives up")
CLASSES = [Piece, Whole, Chained, Trimmed, Woken, Resumed, Fails, FailsTwice, TimedOut, Unprepared]
FAILING = ("usage", "no status", "error")


@pytest.fixture(scope="module")
def export(tmp_path_factory):
    """Procedures that ran in worker processes, as `actorproc export --reveal` writes them."""
    from actorproc import ProcedureManager

    place = tmp_path_factory.mktemp("past")
    with ProcedureManager(place / "state", workers=1, procedures=CLASSES) as manager:
        manager.run(Whole(1), id="good")
        handle = manager.submit(Whole(7), id="bad")
        handle.wait(60)
        for name, procedure in (("chained", Chained()), ("trimmed", Trimmed()), ("resumed", Resumed())):
            manager.run(procedure, id=name)
        for kind in (Fails, FailsTwice):
            for how in FAILING:
                manager.submit(kind(how), id=f"{kind.__name__}-{how.replace(' ', '-')}").wait(60)
        for how in LATE:
            manager.submit(TimedOut(how), id=f"late-{how.replace(' ', '-')}").wait(60)
        manager.submit(Unprepared(), id="unprepared").wait(60)
        woken = manager.submit(Woken(), id="woken")
        manager.signal("woken", "hello")
        woken.wait(60)
    assert main(["--path", str(place / "state"), "export", "--all", "--reveal", "--out", str(place / "all.json")]) == 0
    return place


@pytest.fixture
def replayer(export):
    return Replayer(store_of(export), registry_of(CLASSES, None), quiet=True)


def store_of(export):
    from actorproc.api.replay.exported import store_of_export

    return store_of_export(str(export / "all.json"))


@pytest.fixture
def today(monkeypatch):
    def change(**what):
        for name, value in what.items():
            monkeypatch.setitem(AFTER, name, value)

    return change


@pytest.mark.parametrize("name", ["good", "bad", "good.1", "chained", "trimmed", "resumed"])
def test_every_stored_step_ends_as_it_did(replayer, name):
    results = [replayer.replay(name, step.number) for step in replayer.steps(name)]

    assert results
    assert {(result.verdict, result.remembered) for result in results} == {("same", ())}


def test_steps_with_children_and_remembered_values_see_those_of_then(replayer):
    first, second, third = (replayer.replay("good", number) for number in (1, 2, 3))

    assert first.changes[0].after == "prepare" or first.changes[0].path == "(position)"
    assert second.outcome == "suspended"
    assert second.children == tuple(f"good.{n} ({Piece.type_name})" for n in (1, 2))
    assert [change.after for change in third.changes if change.path.startswith("seen")] == ["2", "4"]


def test_the_step_that_failed_is_the_one_that_is_replayed_and_fails_the_same(replayer):
    result = replayer.replay("bad")

    assert (result.step_name, result.outcome) == ("last", "failed: ValueError: 8 is too many")
    assert (result.verdict, result.reason) == ("same", "the same error as stored")
    assert "is too many" in result.traceback
    assert isinstance(replayer.error, ValueError)


@pytest.mark.parametrize("kind", ["Fails", "FailsTwice"])
@pytest.mark.parametrize("how", FAILING)
def test_a_step_that_failed_in_whatever_way_fails_the_same(replayer, how, kind):
    """The error of a step is that of its attempt; the procedure may have ended with another, such as of its undo."""
    name = f"{kind}-{how.replace(' ', '-')}"
    result = replayer.replay(name, 1)

    assert (result.verdict, result.reason) == ("same", "the same error as stored")
    assert [(step.number, step.undo) for step in replayer.steps(name)] == [(1, False)]


@pytest.mark.parametrize("how", FAILING)
def test_an_undo_that_failed_fails_the_same(replayer, how):
    result = replayer.replay(f"FailsTwice-{how.replace(' ', '-')}", undo=True)

    assert (result.undo, result.outcome) == (True, "failed: OSError: the disk is gone")
    assert (result.verdict, result.reason) == ("same", "the same error as stored")


def test_a_replay_has_the_heartbeat_that_the_attempt_was_given_and_prints_what_the_step_shows(export, capsys):
    from actorproc.api.replay.exported import store_of_export

    store = store_of_export(str(export / "all.json"))
    result = Replayer(store, registry_of(CLASSES, None)).replay("resumed", 1)

    assert (result.verdict, result.outcome) == ("same", "done")
    printed = capsys.readouterr().err
    assert "exposed began at = 10" in printed
    assert "50% half details: 15" in printed
    assert store.exposed(["resumed"])["resumed"][0].key == "began at"


def test_an_undo_is_replayed_too(replayer):
    result = replayer.replay("bad", 1, undo=True)

    assert (result.undo, result.step_name, result.outcome, result.verdict) == (True, "prepare", "done", "same")
    assert [change.path for change in result.changes if change.before != change.after][-1].startswith("seen")


@pytest.mark.parametrize(("step", "said"), [(None, "done"), (1, "done"), (2, None), (3, None), (4, None)])
def test_an_undo_is_that_of_the_newest_step_with_one_and_a_step_without_one_says_so(replayer, step, said):
    result = replayer.replay("good", step, undo=True)

    if said is None:
        assert (result.verdict, result.reason) == (
            "not replayable",
            "nothing is to be undone of this step: it has no undo",
        )
    else:
        assert (result.step, result.step_name, result.outcome) == (1, "prepare", said)


def test_what_has_no_undo_at_all_says_so(replayer):
    assert replayer.replay("chained", undo=True).reason == "nothing is to be undone of this step: it has no undo"


def test_code_that_changed_is_found_out(replayer, today):
    today(adds=2)
    assert replayer.replay("good", 4).verdict == "differs"
    assert "the output differs" in replayer.replay("good", 4).reason
    differing = replayer.replay("chained", replayer.steps("chained")[0].number)
    assert (differing.verdict, [change.path for change in differing.differences]) == ("differs", ["n"])
    today(adds=1, fails=True)
    assert "it failed, and is stored as done" in replayer.replay("good", 4).reason


def test_a_difference_that_no_look_shows_is_none_the_less_one(replayer, today):
    today(acts=lambda: None)
    whole = replayer.replay("good", 1, fields={"seen": list(range(500))})
    changed = replayer.replay("good", 4, fields={"seen": [1, 2, 3]})

    assert whole.verdict == "differs"
    assert changed.verdict == "same"  # the last step gives an output, in which that is not


def test_a_field_is_set_before(replayer):
    assert replayer.replay("bad", 4, fields={"n": 1}).outcome == "done"
    with pytest.raises(UsageError, match="no field 'nn'"):
        replayer.replay("bad", 4, fields={"nn": 1})


def test_a_trimmed_step_says_so(replayer):
    with pytest.raises(UnknownStep, match=r"record 3 of trimmed was trimmed \(keep_steps\)"):
        replayer.replay("trimmed", 3)


def test_an_event_is_the_stored_one_or_given(replayer):
    given = replayer.replay("woken", 2, event="hello")

    assert (given.outcome, given.verdict) == ("executing", "same")
    assert replayer.replay("woken", 2).verdict == "same"
    assert replayer.replay("woken", 2, event="other").verdict == "differs"


@pytest.mark.parametrize("how", LATE)
def test_a_wait_that_timed_out_is_replayed_as_its_on_timeout(replayer, how):
    name = f"late-{how.replace(' ', '-')}"
    results = {step.number: replayer.replay(name, step.number) for step in replayer.steps(name)}

    assert {(result.verdict, result.remembered) for result in results.values()} == {("same", ())}
    assert list(results)[:2] == [1, 2]
    assert replayer.replay(name).same


def test_a_wait_that_timed_out_can_be_replayed_with_an_event(replayer):
    assert replayer.replay("late-ends", 2, event="there").outcome == "wait for the event 'never'"


def test_a_step_of_which_nothing_ran_says_so_and_runs_with_an_event(replayer):
    result = replayer.replay("unprepared")

    assert (result.verdict, [step.number for step in replayer.steps("unprepared")]) == ("not replayable", [1])
    assert "no event 'go' came" in result.reason
    assert replayer.replay("unprepared", event="there").outcome == "done"


def connects():
    with socket.create_connection(("127.0.0.1", 9), timeout=1):
        pass


def connects_at_once():
    with socket.socket() as made:
        made.connect(("127.0.0.1", 9))


@pytest.mark.parametrize(
    ("act", "event"),
    [
        (connects, "socket.getaddrinfo of ('127.0.0.1', 9)"),
        (connects_at_once, "socket.connect of ('127.0.0.1', 9)"),
        (lambda: socket.getaddrinfo("localhost", 80), "socket.getaddrinfo"),
        (lambda: subprocess.run(["true"], check=False), "subprocess.Popen"),
        (lambda: os.system("true"), "os.system"),
        (os.fork, "os.fork"),
        (lambda: os._exit(0), "os._exit of (0,)"),
    ],
)
def test_network_and_processes_are_refused(replayer, today, act, event):
    today(acts=act)
    result = replayer.replay("good", 1)

    assert f"RequestRefused: a replay refuses {event}" in result.outcome
    assert result.refused[0].startswith(event)


def test_they_act_where_that_is_allowed(export, today):
    from actorproc.api.replay.exported import store_of_export

    store = store_of_export(str(export / "all.json"))
    today(acts=lambda: subprocess.run(["true"], check=True))
    allowed = Replayer(store, registry_of(CLASSES, None), quiet=True, allow_requests=True).replay("good", 1)

    assert allowed.verdict == "same"


def test_files_that_are_written_are_named(replayer, today, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "elsewhere"))
    today(acts=lambda: (tmp_path / "file").write_text("x"))

    assert replayer.replay("good", 1).written == (str(tmp_path / "file"),)


def test_a_file_is_written_where_no_temporary_directory_is_known_yet(replayer, today, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setenv("TMPDIR", str(tmp_path / "scratch"))
    for name in ("scratch", "scratch-2"):
        (tmp_path / name).mkdir()
        today(acts=lambda name=name: (tmp_path / name / "file").write_text("x"))
        written = replayer.replay("good", 1).written
        assert written == (() if name == "scratch" else (str(tmp_path / name / "file"),))


def test_heartbeats_and_log_records_of_a_replayed_step_are_printed_in_words(replayer, capsys):
    context_of = type(replayer)._context

    def with_log(self, *arguments, **options):
        context = context_of(self, *arguments, **options)
        context.log.warning("sold %s", "out")
        return context

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(replayer), "_context", with_log)
        patch.setattr(replayer, "_quiet", False)
        replayer.replay("good", 1)

    said = capsys.readouterr().err
    assert "  50% half\n" in said
    assert ": sold out\n" in said
    assert "LogParts" not in said


def test_temporary_files_without_a_name_are_no_written_files(replayer, today):
    def acts():
        with tempfile.TemporaryFile() as file:
            file.write(b"x")

    today(acts=acts)
    assert replayer.replay("good", 1).written == ()


def test_what_is_not_replayable_is_said_in_words(export):
    from actorproc.api.replay.exported import store_of_export

    store = store_of_export(str(export / "all.json"))
    result = Replayer(store, registry_of([Piece], None), quiet=True).replay("good", 1)

    assert result.verdict == "not replayable"
    assert "Whole" in result.reason


def test_an_export_gives_a_test_its_steps(export, today):
    mark = replay_steps(export / "all.json", CLASSES)
    steps = {case.id: case.values[0] for case in mark.args[1]}

    assert {"good-1", "good-4", "good.1-1", "bad-1", "bad-4"} <= set(steps)
    assert steps["bad-4"].run().reason == "the same error as stored"
    steps["good-4"].check()
    today(adds=2)
    with pytest.raises(AssertionError, match="step 4 of good: differs"):
        steps["good-4"].check()
    empty = export / "empty.json"
    empty.write_text(json.dumps({**json.loads((export / "all.json").read_text()), "trees": []}))
    with pytest.raises(UsageError, match="no step"):
        replay_steps(empty, CLASSES)


def test_the_command_replays_from_a_store_and_an_export(export, capsys, monkeypatch):
    monkeypatch.chdir(export)
    module = f"{__name__}:CLASSES"

    assert main(["replay", "bad", "--module", module]) == 0
    assert "same: the same error as stored" in capsys.readouterr().out
    assert main(["replay", "bad", "--file", "all.json", "--module", module, "--set", "n=1"]) == 1
    assert "it did not fail" in capsys.readouterr().out
    assert main(["replay", "trimmed", "--step", "3", "--module", module]) == 3
    assert main(["replay", "nothing", "--module", module]) == 3
    assert main(["replay", "--all", "--module", module]) == 0
    assert capsys.readouterr().err.endswith("no stored step to replay\n")
    assert main(["replay", "good", "--step", "4", "--trace", "--module", module]) == 0
    assert "self.n += AFTER" in capsys.readouterr().err
    assert main(["replay"]) == 2
    assert main(["replay", "good", "--module", "json"]) == 2


@pytest.mark.parametrize("stops", ["--pdb", "breakpoint"])
@pytest.mark.parametrize("typed", ["q\n", "n\nq\n", ""], ids=["quit", "later", "end-of-input"])
def test_a_debugger_that_is_left_is_no_end_of_the_step(export, typed, stops):
    script = export / "shop_of_then.py"
    script.write_text(f"from {__name__} import AFTER, CLASSES\n")
    options = ["--pdb"]
    if stops == "breakpoint":
        script.write_text(f"{script.read_text()}AFTER['acts'] = breakpoint\n")
        options = ["--step", "1", "--timeout", "0"]
    done = _debugged(export, typed, "good", *options)

    assert (done.returncode, done.stderr.splitlines()[-1]) == (130, "interrupted")
    assert "BdbQuit" not in done.stdout


def _debugged(export, typed, *arguments):
    return subprocess.run(
        ["python", "-m", "actorproc", "--path", "state", "replay", *arguments, "--module", "shop_of_then:CLASSES"],
        cwd=export,
        input=typed,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2]), "PATH": _path()},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_debugger_stops_at_the_first_line_of_the_step_and_where_it_fails(export):
    script = export / "shop_of_then.py"
    script.write_text(f"from {__name__} import CLASSES\n")
    done = _debugged(export, "p self.n\nc\np self.n\nq\n", "bad", "--pdb")

    assert "(Pdb) 7\n" in done.stdout
    assert "(Pdb) 8\n" in done.stdout
    assert "post mortem of ValueError" in done.stderr


def _path():
    import sys

    return f"{Path(sys.executable).parent}:{os.environ['PATH']}"


def test_a_step_knows_that_it_is_replayed(replayer, today):
    seen = []
    today(acts=lambda: seen.append(sys._getframe(1).f_locals["ctx"].replaying))

    assert replayer.replay("good", 1).same
    assert seen == [True]


def _endless() -> None:
    while True:
        pass


def _stubborn() -> None:
    with contextlib.suppress(BaseException):
        time.sleep(60)
    time.sleep(60)


@pytest.mark.parametrize("act", [_endless, lambda: time.sleep(60), _stubborn])
def test_an_endless_step_is_stopped_and_says_so(export, today, act):
    today(acts=act)
    before = signal.getsignal(signal.SIGALRM)
    replayer = Replayer(store_of(export), registry_of(CLASSES, None), quiet=True, timeout=0.2)

    result = replayer.replay("good", 1)

    assert result.verdict == "not replayable"
    assert result.reason == "it still ran after 0.2 s and was stopped; --timeout (timeout=) gives it more"
    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_an_endless_step_is_stopped_in_another_thread_too(export, today):
    today(acts=_endless)
    found = []
    replayer = Replayer(store_of(export), registry_of(CLASSES, None), quiet=True, timeout=0.2)

    thread = threading.Thread(target=lambda: found.append(replayer.replay("good", 1)))
    thread.start()
    thread.join(30)

    assert [result.verdict for result in found] == ["not replayable"]


def test_ctrl_c_ends_a_replay_and_is_no_error_of_the_step(replayer, today):
    today(acts=lambda: signal.raise_signal(signal.SIGINT))
    inherited = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's job in the background ignores it

    try:
        with pytest.raises(KeyboardInterrupt):
            replayer.replay("good", 1)
    finally:
        signal.signal(signal.SIGINT, inherited)


def test_the_command_has_a_time_limit_and_ends_what_holds_the_interpreter(export, tmp_path):
    module = tmp_path / "held.py"
    module.write_text(HELD)
    store = tmp_path / "state"
    made = [sys.executable, "-c", "import held; held.main()", str(store)]
    subprocess.run(made, cwd=tmp_path, check=True, timeout=120)
    command = [sys.executable, "-m", "actorproc", "--path", str(store), "replay", "p", "--step", "1", "--timeout"]

    stopped = subprocess.run(
        [*command, "300ms"], cwd=tmp_path, check=False, capture_output=True, text=True, timeout=120
    )
    held = subprocess.run(
        [*command, "300ms"],
        cwd=tmp_path,
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "HELD": "1"},
    )

    assert (stopped.returncode, "it still ran after 0.3 s" in stopped.stdout) == (5, True)
    assert held.returncode == 1
    assert "Timeout" in held.stderr
    assert "in execute" in held.stderr


HELD = """
import os, sys, time
from actorproc import Procedure, ProcedureManager, Status

class Holds(Procedure):
    def execute(self, ctx):
        if ctx.replaying:
            if os.environ.get("HELD"):
                sum(range(10**13))  # looks for no signals
            time.sleep(60)
        return Status.done(1)

def main():
    with ProcedureManager(sys.argv[1], workers=1, procedures=[Holds]) as manager:
        manager.run(Holds(), id="p")
"""
