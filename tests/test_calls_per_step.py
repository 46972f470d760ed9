"""How many function calls a step costs, without a clock: what takes more of them got slower, on every machine.

Counted are the calls of Python and C functions on the way of a step through the host: the frame from the worker, the
decision, the rows that are stored, the frame to the worker. The same program makes the same calls each time, so the
bounds are close. Who makes the way shorter lowers them; who needs more raises them, and says why in the commit.
"""

import itertools
import subprocess
import sys
import threading
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import pytest

import actorproc
from actorproc import Config, Context, Procedure, ProcedureManager, Status
from actorproc.core import coordinator
from actorproc.model.messages.commands import RunStep
from actorproc.model.messages.events import StepEnded
from actorproc.model.messages.outcomes import Advanced, Finished, Suspended
from actorproc.store.committer import coalesce
from actorproc.store.rows.layout import rows_of
from actorproc.workers.protocol.frames import Ended, FrameBuffer, Run, decode_from_worker, encode_frame
from tests.core.harness import CoreHarness
from tests.kit.counting import calls_of

CALLS_OF_A_STEP = 55.6
CALLS_OF_A_STEP_THAT_QUEUES = 113.0
CALLS_OF_A_SUBMIT = 55.3
CALLS_OF_A_CHILD = 189.7
CALLS_OF_A_STEP_IN_A_WORKER = 81.3
"""As counted with CPython 3.11: a procedure's next step, in turn or behind other procedures' steps; a submit; a child from
its parent's step to its end; all that a worker's main thread does for a step, when nothing of the process can have
been changed."""
CALLS_OF_A_RUN, FILES_OF_A_RUN, CHANGES_OF_FILE_OF_A_RUN = 450, 93, 340
"""Of `ProcedureManager.run` with one step, in all threads of the host; of Python functions of the package alone."""
MODULES_TO_A_DECISION = 9
"""On the stack from the bytes of a worker's answer to the function that decides on it, both included."""
PACKAGE = str(Path(actorproc.__file__).parent)
MARGIN = 1.03
"""CPython 3.11, 3.12 and 3.13 count alike to a hundredth."""


class Host:
    """The host's side of steps, without threads: workers answer when they are told to."""

    def __init__(self, workers=2):
        self.harness = CoreHarness(workers=workers)
        self.batch = 0

    def submit(self, procedures):
        self.harness.submit(*(self.harness.new(f"p-{number:06}") for number in range(procedures)))
        self.commit()

    def commit(self):
        """The rows of all that was decided; then a frame for each worker, which is lost here."""
        self.batch += 1
        rows = rows_of(coalesce(self.harness.writes), self.batch)
        runs = [command for command in self.harness.commands if type(command) is RunStep]
        self.harness.writes.clear()
        self.harness.commands.clear()
        if runs:
            encode_frame([Run(run.token, run.type_name, run.root, run.parent, None, "", 0) for run in runs])
        return rows

    def answer(self, outcome_of):
        """Every step that was handed out ends; the answers come in one frame, and make one batch. How many there were."""
        handed_out, self.harness.inbox = self.harness.inbox, {}
        frame = encode_frame([Ended(run.token, outcome_of(run)) for run in handed_out.values()])
        messages = [message for body in FrameBuffer().feed(frame) for message in decode_from_worker(body)]
        self.harness.answer_all(StepEnded(message.token, message.outcome) for message in messages)
        self.commit()
        return len(handed_out)


def advanced(_run):
    return Advanced(state=b"0" * 40)


def finished(_run):
    return Finished(state=b"0" * 40, output=b"\x01")


def calls_per_step(in_flight):
    host = Host()
    host.submit(in_flight)
    for _ in range(5):  # until workers get as many at once as they ever get
        host.answer(advanced)
    calls, steps = calls_of(lambda: sum(host.answer(advanced) for _ in range(10)))
    return calls / steps


def calls_per_submit(procedures):
    host = Host()
    calls, _ = calls_of(lambda: host.submit(procedures))
    return calls / procedures


def calls_per_child(children):
    host = Host()
    host.submit(1)
    names = [f"c-{number:06}" for number in range(children)]
    news = tuple(host.harness.new(name) for name in names)

    def outcome(run):
        if run.token.procedure != "p-000000" or run.token.step > 1:
            return finished(run)
        return Suspended(state=b"0" * 40, children=news)

    def all_of_it():
        while host.harness.inbox:
            host.answer(outcome)

    calls, _ = calls_of(all_of_it)
    assert host.harness.core.view("p-000000") is None or host.harness.state("p-000000").name == "SUCCESS"
    return calls / children


def test_a_step_takes_no_more_calls_than_it_did():
    assert calls_per_step(256) <= CALLS_OF_A_STEP * MARGIN


def test_a_step_that_queues_takes_no_more_calls_than_it_did():
    assert calls_per_step(1000) <= CALLS_OF_A_STEP_THAT_QUEUES * MARGIN


def test_a_submit_takes_no_more_calls_than_it_did():
    assert calls_per_submit(1000) <= CALLS_OF_A_SUBMIT * MARGIN


def test_a_child_takes_no_more_calls_than_it_did():
    assert calls_per_child(1000) <= CALLS_OF_A_CHILD * MARGIN


@pytest.mark.parametrize("calls", [calls_per_step, calls_per_submit, calls_per_child])
def test_what_one_costs_does_not_grow_with_their_number(calls):
    # Both are more than all workers have in hand: a step that finds others waiting for a worker costs more calls.
    assert calls(4000) <= 1.05 * calls(1000)


STEPS_IN_A_WORKER = """
from actorproc.model.ids import StepToken, WorkerId
from actorproc.procedure.runtime.class_shipping import definition_of
from actorproc.procedure.runtime.type_runtime import TypeRuntime
from actorproc.workers.child.process_state import process_state
from actorproc.workers.child.process_state.change_hooks import changes
from actorproc.workers.child.process_state.guard import Guard
from actorproc.workers.child.output.streams import Streams
from actorproc.workers.child.runtime.channel import WorkerChannel
from actorproc.workers.child.runtime.live_procedures import LiveProcedures
from actorproc.workers.child.runtime.worker_runtime import WorkerRuntime
from actorproc.workers.protocol.frames import Run
from actorproc import Procedure, Status
from tests.kit.counting import calls_of
import socket

class Count(Procedure):
    n = 0

    def execute(self, ctx):
        self.n += 1
        return Status.executing()

runtime, answered = TypeRuntime.of_class(Count), []
guard = Guard(lambda: None)
channel = WorkerChannel(socket.socketpair()[0].detach(), guard)
channel._write_out = answered.append
worker = WorkerRuntime(channel, guard)
worker.types.define(definition_of(runtime, 1))
changes.watch()
worker.streams = Streams(worker.output_owner)
worker.remember_process_state()
worker.guard._process_state._counted = worker.guard._process_state._looked
process_state._now = lambda: worker.guard._process_state._looked  # no time passes
procedures = LiveProcedures(worker, 1024)

def steps(number):
    for place in range(64):
        state = runtime.dump_state(Count()) if number == 1 else None
        token = StepToken(1, WorkerId(0, 1), f"p-{place}", number, 1)
        worker.put(Run(token, runtime.type_name, token.procedure, None, state, runtime.meta.codec, runtime.meta.version))
    worker.queue.put(None)
    procedures.serve()

for number in (1, 2, 3):
    steps(number)
answered.clear()
looks = []
worker.guard._process_state._differs = looks.append
calls, _ = calls_of(lambda: steps(4))
assert len(answered) == 64 and not looks
print(calls / 64)
"""


def test_a_step_takes_no_more_calls_in_its_worker_than_it_did():
    found = subprocess.run([sys.executable, "-c", STEPS_IN_A_WORKER], capture_output=True, text=True, check=True)
    assert float(found.stdout) <= CALLS_OF_A_STEP_IN_A_WORKER * MARGIN


@dataclass
class One(Procedure):
    n: int

    def execute(self, _ctx: Context) -> Status:
        return Status.done(self.n)


class Route:
    """Calls of the package's Python functions while it is watched, by thread, each as its file."""

    def __init__(self):
        self.by_thread = defaultdict(list)
        self.is_watched = False

    def heard(self, frame, event, _argument):
        if self.is_watched and event == "call" and (name := frame.f_code.co_filename).startswith(PACKAGE):
            self.by_thread[threading.get_ident()].append(name)

    def of(self, call):
        """The number of calls, of files, and of times that the next call of a thread is in another file."""
        self.by_thread.clear()
        self.is_watched = True
        call()
        self.is_watched = False
        routes = list(self.by_thread.values())
        changes = sum(a != b for route in routes for a, b in itertools.pairwise(route))
        return sum(map(len, routes)), len(set(itertools.chain(*routes))), changes


@pytest.fixture
def route():
    here, threads, route = sys.getprofile(), threading.getprofile(), Route()
    threading.setprofile(route.heard)
    sys.setprofile(route.heard)
    yield route
    sys.setprofile(here)
    threading.setprofile(threads)


def test_a_run_takes_no_more_calls_than_it_did(tmp_path, route):
    with ProcedureManager(tmp_path / "state", workers=1, procedures=[One], config=Config(spares=0)) as manager:
        numbers = []
        for number in range(20):
            while not manager._tree.is_settled():  # what follows the answer is not counted, nor what precedes the call
                pass
            numbers.append(route.of(lambda number=number: manager.run(One(number))))
        calls, files, changes = (min(column) for column in zip(*numbers, strict=True))

    assert calls <= CALLS_OF_A_RUN * MARGIN
    assert files <= FILES_OF_A_RUN
    assert changes <= CHANGES_OF_FILE_OF_A_RUN * MARGIN


@dataclass
class Two(Procedure):
    def execute(self, ctx: Context) -> Status:
        return Status.done() if ctx.step == 2 else Status.executing()


@pytest.mark.parametrize("decide", ["end_straight", "go_straight_on"])
def test_an_answer_passes_few_modules_before_it_is_decided_on(tmp_path, decide, monkeypatch):
    routes = []
    decides = getattr(coordinator, decide)

    def watched(*arguments):
        frame, files = sys._getframe(1), {decides.__code__.co_filename}
        while frame is not None:
            files.add(frame.f_code.co_filename)
            frame = frame.f_back
        if any(name.endswith("receiver.py") for name in files):  # else it was left to the manager's own thread
            routes.append({name for name in files if name.startswith(PACKAGE)})
        return decides(*arguments)

    monkeypatch.setattr(coordinator, decide, watched)
    with ProcedureManager(tmp_path / "state", workers=1, procedures=[Two], config=Config(spares=0)) as manager:
        while not routes:
            manager.run(Two())

    assert len(routes[0]) <= MODULES_TO_A_DECISION, sorted(routes[0])


def test_a_run_is_one_message_and_reads_nothing_back(tmp_path):
    with ProcedureManager(tmp_path / "state", workers=1, procedures=[One], config=Config(spares=0)) as manager:
        engine, told, read = manager._tree, [], []
        tell, ending = engine._to_manager, engine.store.ending
        engine._to_manager = lambda message: (told.append(type(message).__name__), tell(message))
        engine.store.ending = lambda id: (read.append(id), ending(id))[1]

        assert manager.run(One(3)) == 3

        assert told == ["Submitted"]
        assert read == []
