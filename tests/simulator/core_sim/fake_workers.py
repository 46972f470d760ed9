"""Fake worker processes: slots, incarnations, a queue of handed steps, an ordered channel, sudden death.

A worker begins a step, ends it, and its answer travels in its channel; a kill may strike before, between and
after. Whatever was in the channel is delivered before the death is told, as the real supervisor does.
"""

from __future__ import annotations

from collections import deque

from actorproc.model.ids import Mode, StepToken, WorkerId
from actorproc.model.messages.commands import AnswerWorker, RunStep, TakeBack
from actorproc.model.messages.events import (
    CrashReport,
    Event,
    NoteMade,
    StepEnded,
    StepReported,
    StepReturned,
    WorkerLeaving,
    WorkerLost,
    WorkerReady,
)
from actorproc.model.messages.outcomes import Failed, Outcome, Refused
from actorproc.model.names import LAST_HEARTBEAT
from actorproc.store.base import RecordStore
from tests.simulator.core_sim.fake_hosts import FakeHosts
from tests.simulator.core_sim.faults import FaultKind
from tests.simulator.core_sim.world import World, children_seen
from tests.simulator.generators.scripts import WALL_TIME, listens, placed_elsewhere, play

__all__ = ["NO_PLACE", "REPORTED", "FakeWorker", "FakeWorkers", "has_note", "reports"]


NO_PLACE = "today's code has no place for it"
"""Reason of one that is refused before its step began."""
REPORTED = "at"
"""Key of the value that steps show."""
_MAY_REFUSE = frozenset({Mode.EXECUTE, Mode.ROLLBACK})
"""Calls of user code that may meet a stored value that cannot be read."""


def reports(token: StepToken) -> bool:
    """True of every third step or undo: it shows a value, and sends a heartbeat with details."""
    return (token.step + token.attempt) % 3 == 0 and token.mode in _MAY_REFUSE


def has_note(store: RecordStore, token: StepToken) -> bool:
    """An attempt before this one has made the note of the step."""
    return any(note.key == "note" for note in store.notes(token.procedure, token.step))


class FakeWorker:
    """One life of one slot: at most one step begun, the others queued in the order they were handed out."""

    __slots__ = ("asked", "channel", "hanging", "id", "live", "queue", "reserved", "running", "started_at", "stopping")

    def __init__(self, id: WorkerId, reserved: str | None = None) -> None:
        self.id = id
        self.reserved = reserved
        """The one procedure it is there for."""
        self.stopping = False
        """It ends when it has nothing more to do or to say."""
        self.queue: deque[tuple[RunStep, bytes | None]] = deque()
        self.running: tuple[RunStep, bytes] | None = None
        self.started_at = 0.0
        self.hanging = False
        self.asked: int | None = None
        """Number of the request the running step waits for."""
        self.channel: deque[Event] = deque()
        self.live: dict[str, bytes] = {}
        """State of the live object of each procedure that ran here last."""

    @property
    def can_move(self) -> bool:
        """True if it has something to say or to do."""
        if self.channel:
            return True
        if self.running is not None:
            return not self.hanging and self.asked is None
        return bool(self.queue) or self.stopping


class FakeWorkers:
    """All workers of one host, and what is coming up to replace the dead."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.live: dict[WorkerId, FakeWorker] = {}
        self.booting: list[WorkerId] = [WorkerId(slot, 1) for slot in range(world.scenario.slots)]
        self._reserved: dict[WorkerId, str] = {}
        """Coming workers that belong to one procedure each."""
        self._retired: set[WorkerId] = set()
        """Workers whose slots go with them."""
        self.hosts = FakeHosts(world, self)
        self._slots = world.scenario.slots
        """Slots used so far, those of reserved and extra workers included."""
        self._last_request = 0
        self._killed_by: str | None = None
        """A procedure whose step kills its worker each time it begins."""

    @property
    def staying(self) -> int:
        """Workers for all that are not about to leave."""
        coming = sum(worker not in self._reserved for worker in self.booting)
        return coming + sum(worker.reserved is None and not worker.stopping for worker in self.live.values())

    @property
    def can_boot(self) -> list[WorkerId]:
        """Coming workers whose hosts are there."""
        return [worker for worker in self.booting if self.hosts.takes(worker)]

    # ------------------------------------------------------------ moves the loop makes
    def boot(self) -> None:
        """One of the coming workers is ready."""
        coming = self.can_boot
        worker = coming[self.world.pick(len(coming))]
        self.booting.remove(worker)
        reserved = self._reserved.pop(worker, None)
        self.live[worker] = FakeWorker(worker, reserved)
        host = self.hosts.of(worker)
        if host:
            self.world.journal.append(("worker-on", worker, host))
        self.world.inbox.append(WorkerReady(worker, reserved=reserved, host=host))

    def move(self, worker: FakeWorker) -> None:
        """The worker's channel is read, or its step goes on, or the next one begins."""
        is_quiet = not (worker.queue or worker.running)
        has_hung = worker.hanging and self.world.reports  # it does nothing else, and has reported before
        if worker.channel and (is_quiet or self.world.random() < 0.5 or has_hung):
            self._read_channel(worker)
        elif worker.running is not None:
            if not worker.hanging and worker.asked is None:
                self._end(worker)
        elif worker.queue:
            if self.world.plan.fires(FaultKind.WORKER_BEFORE):
                self.kill(worker, "signal")
            else:
                self._begin(worker)
        elif worker.stopping:
            self._leave(worker)

    def hanging_until(self) -> tuple[float, FakeWorker] | None:
        """The hanging step whose wall time ends first."""
        hanging = [worker for worker in self.live.values() if worker.hanging]
        if not hanging:
            return None
        worker = min(hanging, key=lambda worker: worker.started_at)
        return worker.started_at + WALL_TIME, worker

    # ------------------------------------------------------------ commands of the host
    def hand_out(self, worker: FakeWorker, command: RunStep, state: bytes | None) -> None:
        """A `Run` frame arrives; state None: go on with the live object."""
        self.world.journal.append(("sent", command.token, command.record, command.warm))
        worker.queue.append((command, state))

    def take_back(self, command: TakeBack) -> None:
        """Give back what has not begun; what has begun stays, and its answer counts."""
        worker = self.live.get(command.worker)
        if worker is None:
            return
        wanted = command.tokens
        first = worker.queue[0][0].token if worker.queue else None
        could_begin = worker.running is None and first in wanted
        is_late = any(all(item[0].token != token for item in worker.queue) for token in wanted)
        if (could_begin or is_late) and self.world.plan.fires(FaultKind.TAKE_BACK_RACE) and could_begin:
            self._begin(worker)
        for item in [item for item in worker.queue if item[0].token in wanted]:
            worker.queue.remove(item)
            self.world.journal.append(("returned", item[0].token))
            worker.channel.append(StepReturned(item[0].token))

    def hire(self, procedure: str, host: str = "") -> None:
        """A worker for this procedure alone is wanted; nothing happens when there is one, or one is coming."""
        there = [worker.reserved for worker in self.live.values()]
        coming = next((worker for worker, name in self._reserved.items() if name == procedure), None)
        if coming is not None:
            self.hosts.choose(coming, host)
        elif procedure not in there and self.hosts.starts_on(host):
            hired = self._add()
            self._reserved[hired] = procedure
            self.hosts.choose(hired, host)

    def forget_hired(self, host: str) -> None:
        """Workers that this host was asked for, and that have not come up, will not."""
        for worker in [worker for worker in self._reserved if self.hosts.of(worker) == host]:
            if self.hosts.is_chosen(worker):
                del self._reserved[worker]
                self.booting.remove(worker)

    def add(self) -> None:
        """One more worker is wanted."""
        self._add()

    def stop(self, worker_id: WorkerId, *, retire: bool = False) -> None:
        """This worker is to end in order, and its slot with it when it retires."""
        worker = self.live.get(worker_id)
        if worker is not None:
            worker.stopping = True
            if retire:
                self._retired.add(worker_id)

    def want_to_leave(self, worker: FakeWorker) -> None:
        """This worker asks to be replaced: it ran long enough."""
        self.world.journal.append(("leaving", worker.id))
        self.world.inbox.append(WorkerLeaving(worker.id))

    def answer(self, command: AnswerWorker) -> None:
        """A note is durable: the step that made it goes on."""
        worker = self.live.get(command.token.worker)
        if worker is not None and worker.asked == command.request:
            worker.asked = None

    def tell_of_abort(self, token: StepToken) -> None:
        """A running step hears of an abort: one that hangs ends if it listens."""
        worker = self.live.get(token.worker)
        if worker is not None and worker.running is not None and worker.running[0].token == token:
            worker.hanging = worker.hanging and not listens(token)

    def kill(self, worker: FakeWorker, kind: str, *, blamed: StepToken | None = None, crashed: bool = True) -> None:
        """A worker dies: what it answered before is delivered first, then its death is told."""
        if self.live.pop(worker.id, None) is None:
            return
        if worker.running is not None:
            self._cut(worker, FaultKind.ANSWER_OLD)
        self.world.journal.append(("worker-died", worker.id))
        self.world.inbox.extend(worker.channel)
        report = CrashReport(kind=kind, message="killed")
        self.world.inbox.append(WorkerLost(worker.id, report, blamed=blamed, crashed=crashed))
        self._replace(worker)

    def host_died(self) -> None:
        """Workers end with their host; the last thing one of them said may come late."""
        for worker in self.live.values():
            if worker.running is not None:
                self._cut(worker, FaultKind.ANSWER_LATE)
            elif worker.channel and self.world.plan.fires(FaultKind.ANSWER_LATE):
                self.world.late.append(worker.channel[0])
        self.live = {}

    # ------------------------------------------------------------ inside
    def _add(self) -> WorkerId:
        added = WorkerId(self._slots, 1)
        self._slots += 1
        self.booting.append(added)
        return added

    def _leave(self, worker: FakeWorker) -> None:
        del self.live[worker.id]
        self.world.journal.append(("worker-left", worker.id))
        report = CrashReport(kind="stopped", message="stopped as asked")
        self.world.inbox.append(WorkerLost(worker.id, report, crashed=False))
        self._replace(worker)

    def _replace(self, worker: FakeWorker) -> None:
        """The slot of a worker that is gone is filled again, unless it was there for one procedure, or retired."""
        if worker.reserved is None and worker.id not in self._retired:
            self.booting.append(WorkerId(worker.id.slot, worker.id.incarnation + 1))
        self._retired.discard(worker.id)

    def _read_channel(self, worker: FakeWorker) -> None:
        if self.world.plan.fires(FaultKind.WORKER_AFTER):
            self.kill(worker, "signal")
            return
        event = worker.channel.popleft()
        self.world.inbox.append(event)
        if isinstance(event, StepEnded) and self.world.plan.fires(FaultKind.ANSWER_TWICE):
            self.world.late.append(event)

    def _begin(self, worker: FakeWorker) -> None:
        command, state = worker.queue.popleft()
        token = command.token
        if state is None:
            state = worker.live.get(token.procedure)
        if state is None:  # the live object is gone: the shell sends the state (`NeedState`)
            record = self.world.store.step(token.procedure, command.record)
            if record is None:
                self.world.violate(5, f"{token} was handed out before record {command.record} was stored")
                return
            state = record.state
        fields = (token, command.unit, state, command.record, command.warm, command.children_step)
        self.world.journal.append(("enter", *fields))
        if command.children_step and token.mode is Mode.EXECUTE:
            rows = children_seen(self.world.store, token.procedure, command.children_step)
            self.world.journal.append(("children", token, command.children_step, rows))
        worker.running = (command, state)
        worker.started_at = self.world.now
        if self._strikes(token):
            self.kill(worker, "signal")
        else:
            self._report(worker, token)
            if token.mode is Mode.EXECUTE:
                self._prepare(worker, command, state)

    def _report(self, worker: FakeWorker, token: StepToken) -> None:
        """What the shell tells the core of a step that shows a value, and sends a heartbeat with details."""
        if self.world.reports and reports(token):
            said = b"%d.%d" % (token.step, token.attempt)
            self.world.journal.append(("report", token, REPORTED, LAST_HEARTBEAT))
            worker.channel.append(StepReported(token, ((REPORTED, said),), said, LAST_HEARTBEAT))

    def _strikes(self, token: StepToken) -> bool:
        """True if the worker is killed during this step."""
        world = self.world
        if self._killed_by == token.procedure:
            if world.random() < 0.4:
                self._killed_by = None
            return True
        if world.plan.fires(FaultKind.WORKER_AGAIN):
            self._killed_by = token.procedure
            return True
        return world.plan.fires(FaultKind.WORKER_DURING)

    def _prepare(self, worker: FakeWorker, command: RunStep, state: bytes) -> None:
        """Act of a forward step before it can answer: hang, or make a note and wait until it is durable."""
        token = command.token
        operation = self.world.scenario.programs[command.type_name].operations[int(state.split(b":", 1)[0])]
        if token.attempt <= operation.hangs:
            worker.hanging = True
        elif operation.note and not has_note(self.world.store, token):
            self._last_request += 1
            worker.asked = self._last_request
            worker.channel.append(NoteMade(token, "note", b"%d" % token.attempt, worker.asked))

    def _outcome(self, command: RunStep, state: bytes) -> Outcome:
        token = command.token
        program = self.world.scenario.programs[command.type_name]
        return play(program, token.procedure, state, token.mode, command.unit, token.attempt)

    def _of_new_code(self, command: RunStep, state: bytes) -> Outcome | None:
        """The answer of a saga whose steps have changed: nothing ran. None: its code is what it was."""
        world, token = self.world, command.token
        if token.mode is not Mode.EXECUTE:
            return None
        if world.plan.fires(FaultKind.UNBEGUN):
            is_passing = (token.step + token.attempt) % 2 == 0
            return Refused(reason=NO_PLACE, is_passing=is_passing, is_unbegun=True)
        program = world.scenario.programs[command.type_name]
        placed = placed_elsewhere(program, token.procedure, state, leaves_out=token.step % 2 == 0)
        return placed if placed is not None and world.plan.fires(FaultKind.PLACED) else None

    def _end(self, worker: FakeWorker) -> None:
        assert worker.running is not None
        command, state = worker.running
        worker.running = None
        token = command.token
        if token.mode in _MAY_REFUSE and self.world.plan.fires(FaultKind.REFUSED):
            # The type that would mend it is now and then another one, as that of a child with an unreadable output.
            needs = min(self.world.scenario.programs) if self.world.random() < 0.5 else ""
            is_passing = token.mode is Mode.EXECUTE and (token.step + token.attempt) % 2 == 0
            outcome: Outcome = Refused(reason="not today", needs=needs, is_passing=is_passing)
        else:
            outcome = self._of_new_code(command, state) or self._outcome(command, state)
        if isinstance(outcome, (Failed, Refused)) or self.world.random() < 0.05:
            # After a failure the object is thrown away; now and then a sound one is evicted.
            worker.live.pop(token.procedure, None)
        else:
            worker.live[token.procedure] = outcome.state
        self.world.journal.append(("exit", token, command.unit, outcome))
        worker.channel.append(StepEnded(token, outcome))

    def _cut(self, worker: FakeWorker, late: FaultKind) -> None:
        """A running step ends with its worker; its answer may have been written and come much too late."""
        assert worker.running is not None
        command, state = worker.running
        worker.running = None
        self.world.journal.append(("cut", command.token))
        if worker.asked is None and not worker.hanging and self.world.plan.fires(late):
            self.world.late.append(StepEnded(command.token, self._outcome(command, state)))
