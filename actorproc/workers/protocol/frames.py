"""Messages on a worker's channel, both directions, and their bytes.

A frame is a 4-byte big-endian length and a msgpack array of messages; a frame longer than the agreed
maximum is a protocol error. To a worker long states go beside frames (`workers.attachments`). Nothing is ever
unpickled by the host; the worker unpickles only what `Define` and `Prepare` bring, which come from its own host.

Rules: each `Ended` leaves before the next step begins. A worker runs its queue in the order of arrival.
Requests (`Ask`) carry a number of the worker's own; `StepAnswer` repeats it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence

import msgspec

from actorproc.errors import ActorprocError
from actorproc.model.exact import as_plain
from actorproc.model.ids import StepToken, WorkerId
from actorproc.model.messages.definitions import Definition, OutcomeRow
from actorproc.model.messages.outcomes import Outcome
from actorproc.model.policies import StepLimits
from actorproc.procedure.encoding.log_records import LogOrigin
from actorproc.workers.protocol.host_program import HostProgram

__all__ = [
    "ATTACHED",
    "DEFAULT_MAX_FRAME",
    "HEADER",
    "AbortAsked",
    "Ask",
    "Began",
    "BeginAttachment",
    "BootFailed",
    "CancelBegan",
    "CancelStep",
    "Define",
    "Definition",
    "Ended",
    "Exposed",
    "FrameBuffer",
    "FrameError",
    "FromWorker",
    "Heartbeat",
    "Leaving",
    "LogLine",
    "NeedState",
    "OutcomeRow",
    "Prepare",
    "Prepared",
    "Ready",
    "Returned",
    "Run",
    "Stack",
    "StackWanted",
    "StepAnswer",
    "Stop",
    "TakeBackSteps",
    "ToWorker",
    "WarmUp",
    "WorkerHello",
    "decode_from_worker",
    "decode_to_worker",
    "encode_frame",
]

HEADER = struct.Struct(">I")
DEFAULT_MAX_FRAME = 64 * 1024 * 1024
ATTACHED = 1 << 31
"""Set in a length: that many bytes are no frame, but go with one."""


class FrameError(ActorprocError):
    """The bytes on a worker's channel are not a frame of this protocol."""


class _Frame(msgspec.Struct, frozen=True, array_like=True, gc=False):
    pass


# ---------------------------------------------------------------- host to worker
class Prepare(_Frame, frozen=True, array_like=True, tag="prepare", gc=False):
    """First message: what to make ready while the worker has no name; a warm spare gets it long before its
    `WorkerHello`."""

    preload: tuple[str, ...] = ()
    """Modules imported now."""
    environment: bytes | None = None
    """cloudpickled factory of `ctx.env`, called once."""
    max_frame: int = DEFAULT_MAX_FRAME
    warm_limit: int = 1024
    """Live procedure objects kept between steps (an LRU)."""
    log_level: int = 20
    recycle_steps: int | None = None
    """Steps, seconds and bytes of growth after which the worker asks to be replaced; None: never."""
    recycle_age: float | None = None
    recycle_memory: int | None = None
    process_cgroup: str = ""
    """Folder of the control groups that limit the number of processes; "": there is none."""
    max_state: int = 0
    """Bytes that a state, an output or another value may have if they are more than by default."""
    max_call: int = 0
    """Bytes that arguments or a result of an executor's call may have if they are more than by default."""
    staging: bytes = b""
    """Directory for files with long outputs, as the system has its name; empty: there is none."""
    program: HostProgram = HostProgram()
    """Settings of the host program."""
    around_step: str = ""
    """Function that makes a context manager for each attempt, as ``module:function``; "": none does."""
    around_step_fails: bool = False
    """Errors of that function fail the step; else they are logged."""


class WorkerHello(_Frame, frozen=True, array_like=True, tag="hello", gc=False):
    """Second message: who the worker is from now on. Answered with `Ready` once the preparation is done."""

    epoch: int
    worker: WorkerId


class Define(_Frame, frozen=True, array_like=True, tag="define", gc=False):
    """A procedure type, sent before the first step that needs it."""

    definition: Definition


class WarmUp(_Frame, frozen=True, array_like=True, tag="warmup", gc=False):
    """To a spare without a name: load the classes it was told of. Answered with `Prepared`, loaded or not."""


class Run(_Frame, frozen=True, array_like=True, tag="run", gc=False):
    """Run one step."""

    token: StepToken
    type_name: str
    root: str
    parent: str | None
    state: bytes | None
    """None: go on with the live object (`NeedState` when it is gone)."""
    codec: str
    version: int
    """Version of the class that wrote the state."""
    replayed: bool = False
    aborting: bool = False
    deadline: float | None = None
    children_step: int = 0
    unit: str | None = None
    event: bytes | None = None
    recovered: bool = False
    """The first step of the procedure since its host was started again."""
    limits: StepLimits | None = None
    """Limits that the worker has to set around the step; None: nothing."""
    is_timed: bool = False
    """True if its time is limited. Such a step is handed out alone: none follows it at once."""
    is_attached: bool = False
    """Its state is long and came before this frame (`workers.attachments`), as a `memoryview`."""
    generation: int = 1
    begun: int = 0
    """Steps of earlier generations: what the step sees as its number counts from there."""
    file: bytes = b""
    """Its state stands at the beginning of this file of the store, and the worker maps it; "": there is none.

    A worker that cannot map it answers `NeedState`.
    """
    size: int = 0
    """Bytes of that state."""
    step_name: str | None = None
    """Name of the step, for what it prints; None: it has a number only."""
    fence: int = 0
    """Fence of the attempt, which the step may hand to others."""
    tells_begin: bool = False
    """True if the time between its heartbeats is limited: it says `Began` when its code begins."""
    trace: bytes = b""
    """Context of the trace in which it runs, or `NOT_RECORDED`; "": nothing is traced."""


class TakeBackSteps(_Frame, frozen=True, array_like=True, tag="takeback", gc=False):
    tokens: tuple[StepToken, ...]


class AbortAsked(_Frame, frozen=True, array_like=True, tag="abort", gc=False):
    token: StepToken


class CancelStep(_Frame, frozen=True, array_like=True, tag="cancel", gc=False):
    """End an async step: its task is cancelled until it ends, and `Stopped` is its outcome, whatever it does.

    `CancelBegan` says that the event loop has come to it. An answer that was on its way counts.
    """

    token: StepToken
    kind: str
    """Kind of the report, as of a kill."""
    reason: str


class StepAnswer(_Frame, frozen=True, array_like=True, tag="answer", gc=False):
    """Answer to an `Ask`: `value` is the raw answer (msgpack), `error` a text when it was refused."""

    request: int
    value: bytes | None = None
    error: str | None = None


class StackWanted(_Frame, frozen=True, array_like=True, tag="stack?", gc=False):
    """Asks for the Python stack of a running step; `Stack` repeats the number."""

    request: int
    token: StepToken | None = None


class Stop(_Frame, frozen=True, array_like=True, tag="stop", gc=False):
    """Finish the running step, answer it, leave with exit code 0."""


# ---------------------------------------------------------------- worker to host
class Ready(_Frame, frozen=True, array_like=True, tag="ready", gc=False):
    pid: int
    python: str
    reader: int = 0
    """Number of the thread that reads the channel, as the system has it."""


class Prepared(_Frame, frozen=True, array_like=True, tag="prepared", gc=False):
    """The preparation is done; a spare that has said so can be named and given steps in one go.

    Said again after each `WarmUp`.
    """


class BootFailed(_Frame, frozen=True, array_like=True, tag="bootfailed", gc=False):
    reason: str
    traceback: str


class Ended(_Frame, frozen=True, array_like=True, tag="ended", gc=False):
    """A step's answer. `definitions` brings types of children that this worker has not announced yet."""

    token: StepToken
    outcome: Outcome
    definitions: tuple[Definition, ...] = ()
    file: str = ""
    """The output of the outcome is long, and stands in this file of the staging directory
    (`actorproc.support.staged_files`)."""
    size: int = 0
    """Bytes of it."""
    began: float = 0.0
    """Epoch seconds of the worker's clock at which it began, for a step whose trace is recorded."""


class Returned(_Frame, frozen=True, array_like=True, tag="returned", gc=False):
    token: StepToken
    other_code: str = ""
    """Type of the step, if the file of its class is another one here than where its manager runs."""


class NeedState(_Frame, frozen=True, array_like=True, tag="needstate", gc=False):
    """The live object of a warm `Run` is gone; the step has not begun. Send it again with its state."""

    token: StepToken


class Ask(_Frame, frozen=True, array_like=True, tag="ask", gc=False):
    """A request of the running step.

    kind "remember" (key, value): durable before the answer. "recall" (key): value of an earlier note or nil.
    "query" (key=procedure id): `ProcedureInfo` as JSON-able dict. "children" (step): list of `OutcomeRow`.
    "output" (key=procedure id): encoded output. "exposed": bytes of each value that the procedure shows, by key.
    """

    request: int
    token: StepToken
    kind: str
    key: str = ""
    value: bytes = b""
    step: int = 0


class Heartbeat(_Frame, frozen=True, array_like=True, tag="beat", gc=False):
    token: StepToken
    progress: float | None
    message: str | None
    details: bytes | None = None
    """Note with details for the next attempt; None: those of an earlier heartbeat stay."""
    key: str = ""
    """Key of the note."""
    step: int = 0
    """The step that gives them; later than that of the token when those before it needed no record."""


class Exposed(_Frame, frozen=True, array_like=True, tag="exposed", gc=False):
    """The running step shows a value, which is stored within a second, or with its answer."""

    token: StepToken
    key: str
    value: bytes


class Began(_Frame, frozen=True, array_like=True, tag="began", gc=False):
    """A step that runs beside others begins now, on this thread: whose crash it is, the crashed thread says.

    Of a task on an event loop `thread` is its number in the worker (`crash_marks`).

    One of limited silence says it when its class and its state are there and its code begins.
    """

    token: StepToken
    thread: int
    in_code: bool = False


class CancelBegan(_Frame, frozen=True, array_like=True, tag="cancelbegan", gc=False):
    """The task of a step was cancelled for the first time: the event loop of the worker is not blocked."""

    token: StepToken


class Leaving(_Frame, frozen=True, array_like=True, tag="leaving", gc=False):
    """The worker runs no further step and gives back what it gets, until it is told to stop."""

    reason: str


class Stack(_Frame, frozen=True, array_like=True, tag="stack", gc=False):
    """Answer to `StackWanted`."""

    request: int
    text: str


class LogLine(_Frame, frozen=True, array_like=True, tag="log", gc=False):
    token: StepToken | None
    level: int
    name: str
    text: str
    trace: str = ""
    """Traceback and stack of the record; "": it has none."""
    origin: LogOrigin = LogOrigin()
    extra: bytes = b""
    """Its other attributes (`procedure.log_records`)."""


ToWorker = (
    Prepare
    | WorkerHello
    | WarmUp
    | Define
    | Run
    | TakeBackSteps
    | AbortAsked
    | CancelStep
    | StepAnswer
    | StackWanted
    | Stop
)
FromWorker = (
    Prepared
    | Ready
    | BootFailed
    | Began
    | CancelBegan
    | Ended
    | Returned
    | NeedState
    | Ask
    | Heartbeat
    | Exposed
    | Leaving
    | LogLine
    | Stack
)

_encode = msgspec.msgpack.Encoder(enc_hook=as_plain).encode
_from_worker = msgspec.msgpack.Decoder(list[FromWorker])
_to_worker = msgspec.msgpack.Decoder(list[ToWorker])


_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""Errors of msgspec for bytes of any kind: no message, text that is no UTF-8, lists in lists without end."""


def encode_frame(messages: Sequence[ToWorker] | Sequence[FromWorker], max_frame: int = DEFAULT_MAX_FRAME) -> bytes:
    """One frame holding these messages.

    Raises `FrameError` when it is longer than `max_frame` bytes, or holds what msgpack cannot say.
    """
    try:
        body = _encode(messages)
    except (TypeError, ValueError, OverflowError) as error:  # a lone surrogate, an int beyond 64 bits
        msg = f"a message cannot be encoded: {error}"
        raise FrameError(msg) from error
    if len(body) > max_frame:
        msg = f"a frame of {len(body)} bytes exceeds the maximum of {max_frame}"
        raise FrameError(msg)
    return HEADER.pack(len(body)) + body


def decode_from_worker(body: bytes | bytearray | memoryview) -> list[FromWorker]:
    """The messages of one frame body, host side."""
    try:
        return _from_worker.decode(body)
    except _UNREADABLE as error:
        msg = f"sent {len(body)} bytes that are no frame: {error}"
        raise FrameError(msg) from None


def decode_to_worker(body: bytes | bytearray | memoryview) -> list[ToWorker]:
    """The messages of one frame body, worker side."""
    try:
        return _to_worker.decode(body)
    except _UNREADABLE as error:
        msg = f"the host sent {len(body)} bytes that are no frame: {error}"
        raise FrameError(msg) from None


BeginAttachment = Callable[[int, bytes | memoryview, int], int]
"""Takes what is no frame, of this length: what there is of it so far, and the maximum. Says how many bytes it took."""


class FrameBuffer:
    """Cuts a byte stream into frame bodies; a partial frame at the end of the stream is dropped by its owner."""

    def __init__(self, max_frame: int = DEFAULT_MAX_FRAME, begin_attachment: BeginAttachment | None = None) -> None:
        self.max_frame = max_frame
        """The longest frame that is taken, in bytes."""
        self._begin_attachment = begin_attachment
        self._buffer = bytearray()
        self._wanted = HEADER.size

    def feed(self, chunk: bytes | memoryview) -> Iterator[bytes | memoryview]:
        """Add received bytes; yield the frame bodies that are complete, good until the next. Consume it to the end.

        Of an attachment that begins in them it takes what there is; the rest is not to come here. Raises `FrameError`
        at a bad length, after the good frames before it.
        """
        data = chunk  # the usual case: whole frames in one read
        if self._buffer:
            self._buffer += chunk
            if len(self._buffer) < self._wanted:
                return  # a long frame arrives in many reads; look at it once
            if len(self._buffer) == self._wanted > HEADER.size:
                whole, self._buffer, self._wanted = self._buffer, bytearray(), HEADER.size
                yield memoryview(whole)[HEADER.size :]  # as is the case for most of them: no need to copy it
                return
            data = bytes(self._buffer)
            self._buffer.clear()
        start = 0
        self._wanted = HEADER.size
        while len(data) - start >= HEADER.size:
            (length,) = HEADER.unpack_from(data, start)
            if length & ATTACHED and self._begin_attachment is not None:
                start += HEADER.size
                start += self._begin_attachment(length, data[start:], self.max_frame)
                continue
            if length > self.max_frame:
                msg = f"a frame announces {length} bytes; the maximum is {self.max_frame}"
                raise FrameError(msg)
            end = start + HEADER.size + length
            if len(data) < end:
                self._wanted = HEADER.size + length
                break
            yield data[start + HEADER.size : end]
            start = end
        self._buffer += data[start:]

    @property
    def is_partial(self) -> bool:
        """Bytes of an unfinished frame are waiting."""
        return bool(self._buffer)
