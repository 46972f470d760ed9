"""The live screen over a real store: with a manager that runs, hangs, dies and comes back, and without one."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time

import pytest

from actorproc import ProcedureClient, StoreReader
from actorproc.ui.kept import Kept
from actorproc.ui.top.actions import ACTIONS, carry_out
from actorproc.ui.top.look import DETAILS, Wanted
from actorproc.ui.top.source import StoreSource
from tests.kit.waiting import wait_until

pytestmark = pytest.mark.processes

EVIL = "[red]x[/red] \x1b]0;owned\x07\x1b[2J\x9b31m\r\nfake SUCCESS\u202e\u2066\u200b"
ACTION = {action.name: action for action in ACTIONS}


@pytest.fixture
def source(quiet):
    found = StoreSource(str(quiet.store))
    yield found
    found.close()


def until(source, condition, **wanted):
    """The first look of which this holds."""
    looks = []

    def look():
        looks.append(source.look(Wanted(**wanted)))
        return condition(looks[-1])

    wait_until(look)
    return looks[-1]


@pytest.fixture
def busy(quiet):
    """A service with a step that runs, one that waits for its lock, one that waits for an event, and a failed one."""
    quiet.serve(workers=2)
    quiet("submit", "jobs:Table", "name=eu", "stuck=true", "--id", "holder")
    quiet.until(lambda: quiet.phase("holder") == "running")
    for arguments in (
        ("jobs:Table", "name=eu", "--id", "waiter"),
        ("jobs:Waits", f"text={EVIL}", "--id", "waits", "--owner", EVIL, "--tag", EVIL),
        ("jobs:Fails", f"message={EVIL}", "--id", "fails"),
    ):
        assert quiet("submit", *arguments)[0] == 0
    quiet.until(lambda: quiet.state("fails") == "FAILED" and quiet.phase("waits") == "waiting")
    return quiet


def test_a_look_finds_workers_trouble_failures_and_locks(busy, source):
    now = until(source, lambda look: look.header.rates and look.header.rates.ended_series)
    locks = source.look(Wanted(pane="locks"))

    assert (now.header.status, now.header.counts["FAILED"], now.header.pid) == ("running", 1, now.header.pid)
    assert [worker.procedure for worker in now.workers].count("holder") == 1
    assert [(row.id, row.phase) for row in now.rows] == [("waiter", "locked-out")]
    assert [(group.error, group.count) for group in now.groups] == [("ValueError", 1)]
    assert [id for _, id in locks.lines] == ["holder", "waiter"]
    assert now.trouble == locks.trouble == ""


def test_procedures_are_filtered_searched_and_cut(busy, source):
    def ids(**wanted):
        return [row.id for row in source.look(Wanted(pane="procedures", **wanted)).rows]

    assert set(ids()) == {"holder", "waiter", "waits", "fails"}
    assert ids(filters={"state": ["FAILED"]}) == ["fails"]
    assert set(ids(filters={"type_name": "Table"})) == {"holder", "waiter"}
    assert ids(text="WAITER") == ["waiter"]
    cut = source.look(Wanted(pane="procedures", limit=2))
    assert (len(cut.rows), cut.is_more) == (2, True)
    wrong = source.look(Wanted(pane="procedures", filters={"root": "no such thing"}))
    assert wrong.header.status == "running"
    assert "no such thing" in wrong.trouble or wrong.rows == ()


@pytest.mark.parametrize("detail", DETAILS)
def test_each_side_of_a_procedure_is_shown_with_a_manager_and_without(busy, detail):
    source = StoreSource(str(busy.store))
    words = {
        "why": "catalog/eu",
        "steps": "submitted",
        "tree": "waiter  Table",
        "state": "record 1",
        "logs": "nothing",
        "stack": "no step of it runs",
    }
    live = source.look(Wanted(pane="procedure", id="waiter", detail=detail))
    busy.end()
    stopped = source.look(Wanted(pane="procedure", id="waiter", detail=detail))
    source.close()

    assert words[detail] in "\n".join(text for text, _ in live.lines)
    assert stopped.header.status == "stopped"
    assert (words[detail] if detail != "stack" else "no manager answers") in "\n".join(
        text for text, _ in stopped.lines
    )
    assert live.trouble == stopped.trouble == ""


@pytest.mark.parametrize("detail", DETAILS)
def test_a_procedure_that_is_gone_is_told_so(busy, source, detail):
    look = source.look(Wanted(pane="procedure", id="nobody", detail=detail))

    assert look.header.status == "running"
    assert "nobody" in look.trouble + "".join(text for text, _ in look.lines)


def test_hostile_words_are_harmless_wherever_they_are_shown(busy, source):
    carry_out(str(busy.store), ACTION["pause"], ["waits"], EVIL)
    texts = []
    for wanted in [
        Wanted(),
        Wanted(pane="procedures"),
        Wanted(pane="activity"),
        *(Wanted(pane="procedure", id=id, detail=detail) for id in ("waits", "fails") for detail in DETAILS),
    ]:
        look = source.look(wanted)
        texts += [text for text, _ in look.lines]
        texts += [row.why for row in look.rows]
        texts += [group.message for group in look.groups]
        texts += [worker.message for worker in look.workers]

    assert any("[red]x[/red]" in text for text in texts)
    assert not set("\x1b\x9b\x07\r\n\u202e\u2066\u200b") & set("".join(texts))


def test_a_manager_that_dies_hangs_and_comes_back_is_followed(busy, source):
    running = source.look(Wanted())
    busy.tell_service(signal.SIGSTOP)
    try:
        hung = until(source, lambda look: look.header.status == "hung")
        listed = source.look(Wanted(pane="procedures"))
    finally:
        busy.tell_service(signal.SIGCONT)
    again = until(source, lambda look: look.header.status == "running")
    busy.end()
    stopped = until(source, lambda look: look.header.status == "stopped")
    busy.serve()
    back = until(source, lambda look: look.header.status == "running" and look.workers)

    assert f"kill -CONT {running.header.pid}" in hung.header.problems[0]
    assert {row.id for row in listed.rows} == {"holder", "waiter", "waits", "fails"}
    assert again.header.pid == running.header.pid
    assert (stopped.header.pid, stopped.workers) == (None, ())
    assert {row.id for row in stopped.rows} == {"waiter"}
    assert back.header.pid != running.header.pid


def test_where_no_store_is_the_look_says_so_and_finds_one_that_comes(quiet, source):
    before = source.look(Wanted())
    quiet.serve()
    after = until(source, lambda look: look.header.status == "running")

    assert before.header.status == "no store"
    assert str(quiet.store) in before.header.problems[0]
    assert after.trouble == ""


def test_what_changed_is_seen_in_the_next_looks(busy, source):
    until(source, lambda look: look.header.counts.get("WAITING") == 1)
    busy("signal", "waits", "1")
    after = until(source, lambda look: look.header.counts.get("SUCCESS") == 1, pane="procedures")

    until(source, lambda look: {row.id: row.state for row in look.rows}["waits"] == "SUCCESS", pane="procedures")
    assert "WAITING" not in after.header.counts


# ---------------------------------------------------------------- verbs
def test_verbs_reach_the_manager_with_their_reason(busy):
    store = str(busy.store)

    assert carry_out(store, ACTION["pause"], ["waits"], "for lunch") == ["pause waits: paused"]
    assert carry_out(store, ACTION["abort --force"], ["holder"], "hangs") == ["abort --force holder: is undone"]
    busy.until(lambda: busy.state("waiter") == "SUCCESS")
    refused = carry_out(store, ACTION["abort"], ["fails", "nobody"], None)
    assert refused[0] == "abort fails: has ended already"
    assert refused[1].startswith("abort nobody: refused: ")
    with ProcedureClient(store) as client:
        assert [(row.verb, row.reason) for row in client.audit("waits")] == [("pause", "for lunch")]
    assert carry_out(store, ACTION["pause --manager"], [], "upgrade") == ["pause --manager manager: paused"]
    assert carry_out(store, ACTION["resume --manager"], [], None) == ["resume --manager manager: goes on"]


def test_verbs_take_the_stopped_store_when_no_manager_runs(busy):
    store = str(busy.store)
    busy.end()

    (said,) = carry_out(store, ACTION["pause"], ["waits"], "later")

    assert said == "pause waits: paused (in the stopped store)"
    with StoreReader(store) as reader:
        assert reader.info("waits").paused == "later"


def test_a_verb_on_no_store_is_refused_in_words(quiet):
    (said,) = carry_out(str(quiet.store), ACTION["kill"], ["job"], None)

    assert said.startswith("kill: ")
    assert str(quiet.store) in said


# ---------------------------------------------------------------- what is kept
def test_an_expensive_question_is_asked_again_only_when_its_cost_allows(monkeypatch):
    clock = {"now": 100.0, "used": 0.0}
    monkeypatch.setattr(time, "monotonic", lambda: clock["now"])
    monkeypatch.setattr(time, "thread_time", lambda: clock["used"])
    kept, asked = Kept(), []

    def ask():
        asked.append(clock["now"])
        clock["used"] += 0.05
        return [len(asked)]

    assert kept.of("a", ask) == kept.of("a", ask) == [1]
    kept.changed()
    assert kept.of("a", ask) == [1]  # 50 ms of processor time: not within 5 s
    clock["now"] += 5.1
    assert kept.of("a", ask) == [2]
    clock["now"] += 60
    assert kept.of("a", ask) == [2]  # nothing has changed
    assert kept.of("b", ask) == [3]  # another question waits for nothing


def test_what_a_digest_told_is_shown_until_the_rows_are_read_again(busy, source, monkeypatch):
    """Rows that cost much are read seldom; what changed meanwhile does not fall back to what they said."""
    until(source, lambda look: {row.id for row in look.rows} == {"waiter"})
    monkeypatch.setattr(source._listed, "_next_at", float("inf"))
    busy("abort", "holder", "--force")
    told = until(source, lambda look: look.rows[0].state == "SUCCESS")
    again = [source.look(Wanted()).rows[0].state for _ in range(3)]

    assert told.rows[0].id == "waiter"
    assert again == ["SUCCESS"] * 3


# ---------------------------------------------------------------- on a terminal
class Screen:
    """``actorproc top`` in a terminal of its own."""

    def __init__(self, place, *arguments, size=(80, 24), **environment):
        pid, self.end = pty.fork()
        if pid == 0:
            os.chdir(place.directory)
            os.environ.update({"TERM": "xterm-256color", "PYTHONIOENCODING": "utf-8"} | environment)
            os.execv(sys.executable, [sys.executable, "-m", "actorproc", "top", *arguments])
        self.pid, self.written, self.code = pid, b"", None
        fcntl.ioctl(self.end, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))

    def read(self, seconds=0.05):
        ready, _, _ = select.select([self.end], [], [], seconds)
        if ready:
            with contextlib.suppress(OSError):
                self.written += os.read(self.end, 65536)

    def until(self, condition):
        def now():
            self.read()
            return condition()

        wait_until(now)

    def shows(self, text):
        self.until(lambda: text in re.sub(rb"\x1b\[[0-9;?]*[a-zA-Z]", b"", self.written))

    def left(self):
        """The exit code, once it has ended."""
        ended = {}

        def over():
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                ended["code"] = os.waitstatus_to_exitcode(status)
            return bool(pid)

        self.until(over)
        self.read()
        os.close(self.end)
        return ended["code"]


@pytest.mark.parametrize("how", ["q", "\x03", signal.SIGTERM, signal.SIGHUP])
def test_the_terminal_is_given_back_as_it_was(busy, how):
    screen = Screen(busy, "--every", "200ms")
    screen.shows(b"waiter")
    if isinstance(how, str):
        os.write(screen.end, how.encode())
    else:
        os.kill(screen.pid, how)

    assert screen.left() == 0
    assert b"\x1b[?1049h" in screen.written
    assert screen.written.rindex(b"\x1b[?1049l") > screen.written.rindex(b"\x1b[?1049h")
    assert b"\x1b[?1000h" not in screen.written  # the mouse was never taken
    assert b"Traceback" not in screen.written


@pytest.mark.parametrize("is_told", [True, False], ids=["hang-up is told", "hang-up is ignored"])
def test_a_screen_ends_with_its_terminal(busy, is_told):
    """A window that is closed leaves no process behind, also below ``nohup``."""
    if not is_told:
        before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        screen = Screen(busy, "--every", "200ms")
    finally:
        if not is_told:
            signal.signal(signal.SIGHUP, before)
    screen.shows(b"waiter")
    os.close(screen.end)

    wait_until(lambda: os.waitpid(screen.pid, os.WNOHANG)[0])


def test_data_does_nothing_to_the_terminal_of_the_screen(busy):
    screen = Screen(busy, "--every", "200ms", size=(150, 40))
    screen.shows(b"ValueError")
    os.write(screen.end, b"2")
    screen.shows(b"[red]x[/red]")
    os.write(screen.end, b"q")

    assert screen.left() == 0
    text = screen.written.decode()
    assert "\x1b]0;owned" not in text
    assert not set("\x9b\u202e\u2066\u200b") & set(text)
    assert "[red]x[/red]" in re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text)


def test_a_dumb_terminal_and_a_pipe_get_one_look(busy):
    screen = Screen(busy, TERM="dumb")
    code = screen.left()
    piped = busy.run("top")

    assert code == piped.returncode == 0
    for shown in (screen.written.decode(), piped.stdout):
        assert "\x1b" not in shown
        assert {"workers", "in trouble", "failures"} <= set(shown.splitlines())


def test_without_the_extra_the_screen_says_which_one_it_needs_in_one_line(busy):
    code = (
        "import sys; sys.modules['textual'] = None; sys.stdin.isatty = sys.stdout.isatty = lambda: True\n"
        "from actorproc.cli.main import main; sys.exit(main(['top']))"
    )
    environment = os.environ | {"TERM": "xterm"}
    ended = subprocess.run(
        [sys.executable, "-c", code],
        cwd=busy.directory,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.count("\n") == 1
    assert "pip install 'actorproc[top]'" in ended.stderr


def test_one_look_at_no_store_is_refused_in_words(quiet):
    ended = quiet.run("top")

    assert ended.returncode == 2
    assert "state" in ended.stderr
