"""Commands: actions due once the writes of the same decision are on disk. Imperative, frozen."""

from __future__ import annotations

import msgspec

from actorproc.errors import ActorprocError
from actorproc.model.ids import StepToken, WorkerId
from actorproc.model.names import step_in_words
from actorproc.model.policies import StepLimits
from actorproc.model.rows.asks import AskKey
from actorproc.model.rows.writes import Write
from actorproc.model.states import ProcedureState

__all__ = [
    "AddWorker",
    "AnswerWorker",
    "AskAbort",
    "Command",
    "Decision",
    "KillWorker",
    "Reply",
    "Resolve",
    "ResolveAsk",
    "RetireWorker",
    "RunStep",
    "SendAgain",
    "StartWorker",
    "StopWorker",
    "TakeBack",
]


class RunStep(msgspec.Struct, frozen=True, gc=False):
    """Hand a step to a worker. The engine adds the state, read from the store, when `warm` is false."""

    token: StepToken
    type_name: str
    warm: bool
    """The worker ran the step before this one and still holds the live object."""
    root: str
    parent: str | None
    replayed: bool
    """This step was handed out before and may have half run."""
    aborting: bool
    deadline: float | None
    children_step: int
    """Step whose children's outcomes this step sees; 0: none."""
    unit: str | None = None
    """Mode ROLLBACK: the undo unit to undo."""
    record: int = 0
    """Number of the step record that holds the state."""
    event: bytes | None = None
    """Payload of the event waited for."""
    wall_time: float | None = None
    grace: float = 1.0
    heartbeat: float | None = None
    limits: StepLimits | None = None
    """Limits of the step besides those of its time; None: there are none."""
    recovered: bool = False
    """The first step handed out since the manager was started again: the recovery hooks run."""
    generation: int = 1
    begun: int = 0
    """Steps of earlier generations, as in the head."""
    step_name: str | None = None
    """Name of the step, or label of the undo; None: it has a number only."""
    queued: float = 0.0
    """Seconds for which it waited for a worker."""
    trace: bytes = b""
    """Context of the trace in which it runs; "": in none."""

    @property
    def step_in_words(self) -> str:
        """The step by name, or by number."""
        return step_in_words(self.token.step, self.step_name)


class StartWorker(msgspec.Struct, frozen=True, gc=False):
    """Start a worker for this procedure alone; asking again while there is one changes nothing."""

    procedure: str
    host: str = ""
    """Name of the host that is to have it; empty: any, or the only one."""


class StopWorker(msgspec.Struct, frozen=True, gc=False):
    """End this worker in order: it has nothing in hand and gets nothing more."""

    worker: WorkerId


class AddWorker(msgspec.Struct, frozen=True, gc=False):
    """Keep a worker in one more slot, beside those there are."""


class RetireWorker(msgspec.Struct, frozen=True, gc=False):
    """End this worker in order after the step it is in, and give its slot up."""

    worker: WorkerId


class TakeBack(msgspec.Struct, frozen=True, gc=False):
    """Ask a worker to give back prefetched steps it has not begun."""

    worker: WorkerId
    tokens: tuple[StepToken, ...]


class SendAgain(msgspec.Struct, frozen=True, gc=False):
    """Send a step once more, with its state, behind all that its worker has, for it has the live object no more."""

    token: StepToken
    aborting: bool
    """An abort was asked, perhaps since it was sent first."""


class AskAbort(msgspec.Struct, frozen=True, gc=False):
    """Tell the running step that an abort was asked (`ctx.aborting`)."""

    token: StepToken


class KillWorker(msgspec.Struct, frozen=True, gc=False):
    """Kill this worker because of the step in it."""

    worker: WorkerId
    token: StepToken
    reason: str
    kind: str = ""
    """Kind of the report of its death; "": as it ended."""


class Reply(msgspec.Struct, frozen=True, gc=False):
    """Resolve a waiting caller: with ids, a bool, a number, or an error."""

    reply: int
    value: tuple[str, ...] | bool | int | None = None
    error: ActorprocError | None = None


class AnswerWorker(msgspec.Struct, frozen=True, gc=False):
    """Answer a request a running step made (`remember`)."""

    token: StepToken
    request: int


class Resolve(msgspec.Struct, frozen=True, gc=False):
    """A procedure reached a terminal state: resolve its handles and watchers."""

    id: str
    state: ProcedureState


class ResolveAsk(msgspec.Struct, frozen=True, gc=False):
    """Tell those who wait for the reply to an ask, before the end of its procedure."""

    id: str
    ask: AskKey
    value: bytes | None = None
    """The encoded reply, "": the step that took it gave none. None: it was withdrawn."""


Command = (
    RunStep
    | SendAgain
    | StartWorker
    | StopWorker
    | AddWorker
    | RetireWorker
    | TakeBack
    | AskAbort
    | KillWorker
    | Reply
    | AnswerWorker
    | Resolve
    | ResolveAsk
)


class Decision(msgspec.Struct, frozen=True, gc=False):
    """Result of one event. Commands go out only after all writes are durable (as raft's Ready)."""

    writes: list[Write]
    commands: list[Command]
