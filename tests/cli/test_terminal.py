"""A real terminal, and data that wants to do things to it."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys

import pytest

pytestmark = pytest.mark.processes

EVIL = "\x1b]0;owned\x07\x1b[2J\x9b31m\r\nfake-id SUCCESS\u202e\u2066\u200b\x00end"
"""Sets a title, clears the screen, colours, begins a line of its own, turns text around, ends a C string."""
OURS = re.compile(rb"\x1b\[(?:0|1|3[1236])m")


def on_a_terminal(place, *arguments: str) -> bytes:
    """The bytes that a terminal gets from a command."""
    parent, child = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "actorproc", *arguments],
        cwd=place.directory,
        stdin=child,
        stdout=child,
        stderr=child,
        env=os.environ | {"PYTHONIOENCODING": "utf-8", "TERM": "xterm"},
    )
    os.close(child)
    found = b""
    while True:
        try:
            chunk = os.read(parent, 65536)
        except OSError:  # Linux says so when the other end is closed
            break
        if not chunk:
            break
        found += chunk
    os.close(parent)
    process.wait(60)
    return found


@pytest.fixture(scope="module", autouse=True)
def _evil(place):
    lock = EVIL.replace("\x00", "").replace("/", "")
    script = (
        "import sys, json, jobs\n"
        "from actorproc.api.client import ProcedureClient\n"
        "evil, lock = json.loads(sys.stdin.read())\n"
        "with ProcedureClient('state') as client:\n"
        "    safe = evil.replace(chr(0), '')\n"
        "    client.submit(jobs.Waits('go', evil), id='waits', owner=safe, tags=[safe])\n"
        "    client.submit(jobs.Waits(safe), id='odd-event')\n"
        "    client.submit(jobs.Fails(evil), id='fails')\n"
        "    client.get('fails').wait(50)\n"
        "    client.pause('waits', reason=safe)\n"
        "    client.submit(jobs.Hostile(lock), id='locks')\n"
        "    client.submit(jobs.Hostile(lock), id='locked-out')\n"
    )
    import json

    subprocess.run(
        [sys.executable, "-c", script],
        cwd=place.directory,
        input=json.dumps([EVIL, lock]),
        text=True,
        check=True,
        timeout=60,
    )
    place.until(lambda: place.phase("locks") == "waiting")


@pytest.mark.parametrize(
    "arguments",
    [
        ("list",),
        ("list", "-o", "wide"),
        ("list", "-o", "name"),
        ("status",),
        ("show", "waits"),
        ("show", "fails"),
        ("show", "locks"),
        ("tree", "fails"),
        ("steps", "fails"),
        ("locks",),
        ("locks", "-o", "name"),
        ("workers",),
        ("logs", "waits"),
        ("why", "waits"),
        ("why", "fails"),
        ("why", "locked-out"),
        ("why", "odd-event"),
        ("watch", "fails"),
        ("watch", "odd-event", "--timeout", "100ms"),
        ("show", EVIL.replace("\x00", "")),
        ("abort", "waits", "--reason", EVIL.replace("\x00", ""), "--dry-run"),
        ("signal", EVIL.replace("\x00", ""), "--dry-run"),
        ("clear-poison", EVIL.replace("\x00", "")),
        ("submit", "jobs:Waits", "event=" + EVIL.replace("\x00", ""), "--dry-run"),
    ],
)
def test_data_cannot_do_anything_to_the_terminal(place, arguments):
    written = OURS.sub(b"", on_a_terminal(place, *arguments))

    text = written.decode()
    assert text
    assert not re.search("[\x00-\x09\x0b\x0c\x0e-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069]", text)
    assert not [line for line in text.splitlines() if line.startswith("fake-id")]
    assert written.count(b"\r") == written.count(b"\r\n")


def test_one_row_is_one_line_whatever_is_in_it(place):
    lines = on_a_terminal(place, "list", "-o", "wide").decode().splitlines()

    assert len(lines) == 1 + len(place.rows("list"))


def test_json_keeps_every_character(place):
    rows = {row["id"]: row for row in place.rows("list")}

    assert rows["waits"]["owner"] == EVIL.replace("\x00", "")
    assert rows["fails"]["error"]["message"] == EVIL
    assert all(character.isprintable() for character in place("list")[1].replace("\n", ""))


def test_a_terminal_gets_colours_unless_it_wants_none(place, monkeypatch):
    assert b"\x1b[1m" in on_a_terminal(place, "list")
    monkeypatch.setenv("NO_COLOR", "1")
    assert on_a_terminal(place, "list").decode().split()[:3] == ["ID", "TYPE", "STATE"]


@pytest.mark.parametrize("arguments", [("list",), ("list", "--all"), ("workers",), ("steps", "fails")])
def test_a_row_fits_a_narrow_terminal(place, arguments, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    lines = on_a_terminal(place, *arguments).decode().splitlines()

    assert [line for line in lines[:-1] if len(line) > 80] == []
