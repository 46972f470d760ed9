"""How many function calls a step costs in its worker, without a clock; as `tests/test_calls_per_step.py` for the host."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

CALLS_OF_A_STEP = 69.1 if sys.version_info < (3, 13) else 78.1
"""From the queue of the worker to the bytes of the answer, and the look at what the step left behind in its process.

As counted with CPython 3.11 and 3.12, and with 3.13. Who makes the way shorter lowers it."""
MARGIN = 1.03
PROGRAM = """
from dataclasses import dataclass

from actorproc import Procedure, Status
from actorproc.model.ids import StepToken, WorkerId
from actorproc.procedure.runtime.class_shipping import definition_of
from actorproc.procedure.runtime.type_runtime import TypeRuntime
from actorproc.workers.child.runtime.worker_runtime import WorkerRuntime
from actorproc.workers.child.process_state.guard import Guard
from actorproc.workers.child.process_state.limits import Limiter
from actorproc.workers.child.runtime.live_procedures import LiveProcedures
from actorproc.workers.child.output.streams import Streams
from actorproc.workers.child.process_state.change_hooks import changes
from actorproc.workers.protocol.frames import Ended, Run, encode_frame
from actorproc.workers.protocol.markers import UNOWNED
from tests.kit.counting import calls_of

STEPS = 2000

@dataclass
class Count(Procedure):
    done: int = 0

    def execute(self, ctx):
        self.done += 1
        return Status.executing()

class Sender:
    answers = 0

    def send(self, messages):
        encode_frame(messages)
        assert type(messages[0]) is Ended
        assert messages[0].outcome.steps == 1
        self.answers += 1

def give(worker, first, last):
    for step in range(first, last + 1):
        token = StepToken(1, WorkerId(0, 1), "p", step, 1)
        state = runtime.dump_state(Count(), "p") if step == 1 else None
        worker.put(Run(token, runtime.type_name, "p", None, state, "data", 1))
    worker.queue.put(None)

guard, sender = Guard(lambda: None), Sender()
changes.watch()
worker = WorkerRuntime(sender, guard, Limiter())
worker.streams = Streams(lambda: UNOWNED)
worker.remember_process_state()
runtime = TypeRuntime.of_class(Count)
worker.types.define(definition_of(runtime))
procedures = LiveProcedures(worker, 1024)
give(worker, 1, 100)
procedures.serve()
give(worker, 101, 100 + STEPS)
# By the clock something more is looked at once a millisecond: a step takes as long as it takes.
import actorproc.workers.child.process_state.process_state as process_state
process_state._LOOK_EVERY = guard._process_state._filling_takes = float("inf")
calls, _ = calls_of(procedures.serve)
assert sender.answers == 100 + STEPS
print(calls / STEPS)
"""


def test_a_step_takes_no_more_calls_in_its_worker_than_it_did():
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        cwd=Path(__file__).parents[2],
    )

    assert done.returncode == 0, done.stderr
    assert float(done.stdout) <= CALLS_OF_A_STEP * MARGIN
