"""How many function calls a step costs, without a clock: what takes more of them got slower, on every machine.

Counted are the calls of Python and C functions on the way of a step through the host: the frame from the worker, the
decision, the rows that are stored, the frame to the worker. The same program makes the same calls each time, so the
bounds are close. Who makes the way shorter lowers them; who needs more raises them, and says why in the commit.
"""

import pytest

from actorproc.model.messages.commands import RunStep
from actorproc.model.messages.events import StepEnded
from actorproc.model.messages.outcomes import Advanced, Finished, Suspended
from actorproc.store.committer import coalesce
from actorproc.store.rows.layout import rows_of
from actorproc.workers.protocol.frames import Ended, FrameBuffer, Run, decode_from_worker, encode_frame
from tests.core.harness import CoreHarness
from tests.kit.counting import calls_of

CALLS_OF_A_STEP = 55.2
CALLS_OF_A_STEP_THAT_QUEUES = 113.2
CALLS_OF_A_SUBMIT = 52.8
CALLS_OF_A_CHILD = 190.8
"""As counted with CPython 3.11: a procedure's next step, in turn or behind other procedures' steps; a submit; a child from
its parent's step to its end."""
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
