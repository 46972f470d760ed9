"""One trace over a change of leaders: steps run on a host, the leader is killed, and the next one goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("psycopg", reason="needs the extra postgres")
pytest.importorskip("cryptography", reason="needs the extra postgres")

from actorproc import ProcedureClient
from tests.databases import database_or_skip, new_store
from tests.kit.waiting import BOUND, wait_until
from tests.telemetry.led import Trip
from tests.telemetry.test_one_trace import spans_of

pytestmark = pytest.mark.processes
ROOT = Path(__file__).parents[2]


@pytest.fixture
def start(tmp_path, monkeypatch):
    """Start a manager that leads or follows, or a host; what is left is killed."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state-home"))
    database_or_skip()
    url, programs = new_store(), []

    def begin(role, home="state-home"):
        program = subprocess.Popen(
            [sys.executable, "-m", "tests.telemetry.led", url, str(tmp_path), role],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"XDG_STATE_HOME": str(tmp_path / home)},
        )
        programs.append(program)
        assert program.stdout.readline().strip() == "ready"
        return program

    begin.url = url
    yield begin
    for program in programs:
        program.kill()
        program.communicate()


def ran(folder):
    try:
        return (folder / "ran").read_text().split()
    except FileNotFoundError:
        return []


def names(folder):
    return [span.name for span in spans_of(folder)]


@pytest.mark.parametrize(
    ("home", "is_host_killed"),
    [
        pytest.param("state-home", False, id="one machine"),
        pytest.param("elsewhere", False, id="two machines", marks=pytest.mark.nightly),
        pytest.param("state-home", True, id="the host dies too"),
    ],
)
def test_a_trace_is_one_and_complete_over_a_change_of_leaders(start, recording, tmp_path, home, is_host_killed):
    leader, host = start("lead"), start("host")
    start("lead", home)
    with ProcedureClient(start.url, procedures=[Trip]) as client:
        with recording.request() as request:
            handle = client.submit(Trip(str(tmp_path)), "t")
        wait_until(lambda: ran(tmp_path) == ["1", "2"])
        # On another machine it is not known which spans the leader had recorded.
        wait_until(lambda: names(tmp_path).count("actorproc.step Trip.travel") == 1)

        leader.send_signal(signal.SIGKILL)
        if is_host_killed:
            host.send_signal(signal.SIGKILL)
            start("host")
        (tmp_path / "go").touch()
        assert handle.result(timeout=2 * BOUND) >= 1
    wait_until(lambda: "actorproc.procedure Trip" in names(tmp_path))

    spans = spans_of(tmp_path)
    above = request.get_span_context()
    ids = {span.id: span for span in spans}
    assert len(ids) == len(spans)
    assert {span.trace for span in spans} == {f"0x{above.trace_id:032x}"}
    (root,) = [span for span in spans if span.name == "actorproc.procedure Trip"]
    assert root.above == f"0x{above.span_id:016x}"
    assert root.attributes["actorproc.procedure.state"] == "SUCCESS"
    assert {span.above for span in spans} - {root.above} <= set(ids)
    steps = [span for span in spans if span.name.startswith("actorproc.step Trip.")]
    assert {span.above for span in steps} == {root.id}
    travels = [span for span in steps if span.name.endswith(".travel")]
    assert "SIGKILL" in travels[0].words
    assert travels[1].links == [travels[0].id]
    assert [span.words for span in travels[1:]].count("") == 1
    assert len(travels) == len(ran(tmp_path))
    assert [span.words for span in steps if not span.name.endswith(".travel")] == ["", ""]
    (child,) = [span for span in spans if span.name == "actorproc.procedure Visit"]
    assert child.above == root.id
