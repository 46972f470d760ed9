"""Debounced submits from other processes: managers killed before they answer, clients beside each other, garbage."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

import actorproc
from actorproc import Procedure, Status
from actorproc.api.stopped import StoppedStore
from tests.kit.mortal_manager import mortal_manager, while_it_dies
from tests.kit.waiting import BOUND, outcome_of, wait_until

pytestmark = pytest.mark.processes

STORED = "(past := write.record.past) and past.debounce and len(past.debounce.runs[0][1]) == 8 * int(sys.argv[2])"


@dataclass
class Save(Procedure):
    """Writes its text into a file."""

    path: str
    text: str

    def execute(self, ctx):
        with Path(self.path).open("a") as file:
            file.write(f"{self.text}\n")
        return Status.done(self.text)


@pytest.fixture
def mortal(tmp_path, request):
    """A manager that dies when it has stored so many submits of one run, and is about to answer the last of them."""
    with mortal_manager(tmp_path / "state", STORED, str(request.param)) as process:
        yield process


@pytest.mark.parametrize("within", [0.05, 3.0])
@pytest.mark.parametrize("mortal", [1, 2, 3], indirect=True)
def test_a_submit_whose_answer_was_lost_with_its_manager_counts_once(mortal, serve, tmp_path, within, request):
    """With the short wait its run has begun, and mostly ended, when the client asks the next manager."""
    number = request.node.callspec.params["mortal"]
    saved = tmp_path / "saved"
    with actorproc.ProcedureClient(tmp_path / "state", patience=BOUND) as client:

        def submitted(text, seconds):
            return outcome_of(lambda: client.submit(Save(str(saved), text), debounce="doc", within=seconds))

        handles = [submitted(str(earlier), 1000.0) for earlier in range(number - 1)]
        handles.append(while_it_dies(mortal, serve, lambda: submitted("last", within)))

        assert [handle.result(BOUND) for handle in handles] == ["last"] * number
        assert len({handle.id for handle in handles}) == 1
        wait_until(lambda: all(info.state == "SUCCESS" for info in client.list()))
        assert saved.read_text() == "last\n"
        another = submitted("another", 0.05)
        assert another.result(BOUND) == "another"
        assert another.id != handles[0].id


HOST = """
import sys
from actorproc import Config, ProcedureManager
from tests.control.test_debounces import Save

with ProcedureManager(sys.argv[1], workers=1, config=Config(spares=0), procedures=[Save]) as manager:
    for text in sys.argv[4:]:
        handle = manager.submit(Save(sys.argv[2], text), debounce="doc", within=float(sys.argv[3]))
        print(handle.id, flush=True)
    if float(sys.argv[3]) < 1:
        handle.result(60)
    print("over", flush=True)
    sys.stdin.read()
"""


def test_a_host_that_is_killed_between_submits_and_the_begin_runs_the_last_one_of_all_lives(tmp_path):
    names, saved = [], tmp_path / "saved"
    for life, texts in enumerate((("a", "b"), ("c",), (), ("d", "e", "last"))):
        within = "0.2" if life == 3 else "600"
        arguments = [sys.executable, "-c", HOST, str(tmp_path / "state"), str(saved), within, *texts]
        with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as host:
            names += [host.stdout.readline() for _ in texts]
            assert host.stdout.readline() == "over\n"
            host.kill()

    assert len(set(names)) == 1
    assert saved.read_text() == "last\n"


def test_two_clients_have_handles_of_one_run(serve, tmp_path):
    serve()
    saved = str(tmp_path / "saved")
    with (
        actorproc.ProcedureClient(tmp_path / "state") as one,
        actorproc.ProcedureClient(tmp_path / "state") as other,
    ):
        first = one.submit(Save(saved, "a"), debounce="doc", within=1000.0)
        last = other.submit(Save(saved, "b"), debounce="doc", within=0.1)

        assert first.id == last.id
        assert first.result(BOUND) == last.result(BOUND) == "b"
        assert one.run(Save(saved, "c"), debounce="doc", within=0.1, timeout=BOUND) == "c"


def test_a_stopped_store_takes_debounced_submits_for_the_next_manager(serve, tmp_path):
    saved = str(tmp_path / "saved")
    with actorproc.ProcedureManager(tmp_path / "state", workers=1):
        pass
    names = []
    for text in ("a", "b"):
        with StoppedStore(tmp_path / "state") as store:
            names.append(store.submit(Save(saved, text), debounce="doc", within=0.5).id)
    assert names[0] == names[1]
    serve()
    with actorproc.ProcedureClient(tmp_path / "state") as client:
        another = client.submit(Save(saved, "c"), debounce="doc", within=0.1)  # which brings the class
        assert client.get(names[0]).result(BOUND) == "b"
        assert another.result(BOUND) == "c"
