"""`Context`: a step's view of the world."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import msgspec

from actorproc.errors import NotAllowed, UnknownProcedure, ValueNotDecodable
from actorproc.model.exact import exact_text
from actorproc.model.ids import Mode, check_id, root_id
from actorproc.model.messages.definitions import OutcomeRow
from actorproc.model.names import LAST_HEARTBEAT, note_key
from actorproc.model.rows.asks import AskKey, opened
from actorproc.procedure.authoring.reporting import Reporting, as_fraction
from actorproc.procedure.authoring.step_requests import Describer, RequestList, StepChannel
from actorproc.procedure.authoring.submittable import Submittable
from actorproc.procedure.declaring.submit_options import Tags
from actorproc.procedure.encoding.child_outcomes import ChildOutcome, ChildOutcomes
from actorproc.procedure.encoding.step_logger import StepLogger
from actorproc.procedure.encoding.value_codec import NOTE, OUTPUT, PAYLOAD, PLAIN_VALUES, REPLY, ValueCodec
from actorproc.procedure.values.codec import PLAIN
from actorproc.procedure.values.kinds.base import is_text
from actorproc.support.instants import instant_of

if TYPE_CHECKING:
    from actorproc.procedure.declaring.environment import Environment

__all__ = ["ChildOutcome", "Context", "StepChannel", "StopStep", "UnreadableValue"]

T = TypeVar("T")

_LONGEST_MESSAGE = 1000
"""Characters of a heartbeat's message that are shown."""
_beginning = threading.Lock()
_rows = msgspec.msgpack.Decoder(list[OutcomeRow])
_SUFFIX = {Mode.ROLLBACK: "undo", Mode.ASK_ABORT: "abort", Mode.ON_TIMEOUT: "timeout"}


class StopStep(BaseException):
    """Thrown into user code by a worker that was told to stop; the one exception that ends no step of itself."""


class UnreadableValue(BaseException):
    """Thrown into a step that asks for a stored value which today's classes cannot read: its attempt is given up.

    No `Exception`, so that a step does not take a deploy for a failure of what it asked for, and acts on that.
    """


class Context(msgspec.Struct, eq=False):
    """Facts and requests of a step. Made anew for each attempt; not usable after the step.

    - ``step`` counts from 1, anew in each ``generation`` (`Status.again`).
    - ``attempt`` counts how often this step was handed out.
    - ``replayed``: the step was started before and may have half run.
    - ``replaying``: this is no attempt but a replay (``actorproc replay``). Nothing of it is stored.
    - ``recovered``: the manager was started again since the procedure's last step, and this is its first one now.
    - ``deadline`` is epoch seconds.
    - ``event`` is the payload after a ``Status.wait``, and ``ask_id`` the id of an ask: it waits for a `reply`.
    - ``env`` is the object that the manager's ``environment`` factory made in this worker, as an `Environment`:
      ``ctx.env[DB]`` is a ``DB``.
    """

    _engine_is_no_value: ClassVar[bool] = True
    """It is a Struct only because those are made quickly: no state can hold one."""

    _channel: StepChannel
    id: str
    type_name: str
    root_id: str
    step: int
    attempt: int = 1
    mode: Mode = Mode.EXECUTE
    unit: str | None = None
    parent_id: str | None = None
    deadline: float | None = None
    replayed: bool = False
    recovered: bool = False
    _children_step: int = 0
    env: Environment = None  # type: ignore[assignment]
    _codec: ValueCodec = PLAIN_VALUES
    """The class's own."""
    _outputs: Callable[[str], ValueCodec | None] | None = None
    """Finds the codec of a child's type where its class is known."""
    _log_level: int = logging.INFO
    event: Any = None
    _children: ChildOutcomes | None = None
    _log: logging.Logger | None = None
    generation: int = 1
    _begun: int = 0
    """Steps of earlier generations."""
    _notes: dict[str, bytes] | None = None
    _turns: dict[str, Any] | None = None
    _before: bytes | memoryview | None = None
    """The state that the step began with, where the step before was suspended."""
    _live: Any = None
    """The procedure, where its steps have names."""
    _unreadable: tuple[str, str] | None = None
    """Reason for giving the attempt up, and the type whose class may mend that ("": only this one's)."""
    _reporting: Reporting | None = None
    replaying: bool = False
    _fence: int = 0
    _asked_for_fence: bool = False
    """The step may have put its fence into its state: a replay has to know it."""
    _around: Callable[[Context, Callable[[], Any]], Any] | None = None
    """Runs an attempt inside of the program's own context manager; None: it has none."""
    _step_name: str | None = ""
    """"": it was not asked for yet."""
    _runtime: Describer | None = None
    """None before and after the step."""
    _requests: RequestList | None = None
    _ask: AskKey | None = None
    """The ask that woke the step."""

    def __repr__(self) -> str:
        return f"Context(id={self.id!r}, step={self.step}, attempt={self.attempt})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        # Not all fields, as msgspec's own: `env` may hold secrets.
        return [("id", self.id), ("step", self.step), ("attempt", self.attempt)]

    @property
    def step_name(self) -> str | None:
        """Name of the step in a `Saga`, or of the state in a state machine, also in its undo; None elsewhere."""
        if self._step_name == "":
            # Kept: when a saga's step is over, its procedure stands at the next one.
            if self.mode is Mode.ROLLBACK:
                self._step_name = self.unit or None
            else:
                self._step_name = None if self._live is None else self._live._engine_next_name()
        return self._step_name

    @property
    def scheduled_at(self) -> datetime | None:
        """The instant, in UTC, for which a schedule started the root of this procedure; None: none did.

        It is read from the id of the root. It is nominal: catching up and jitter do not change it.
        """
        return instant_of(self.root_id)

    @property
    def aborting(self) -> bool:
        """True if an abort was asked, or the tree is cancelled for another cause: a long step may stop early."""
        return self._channel.aborting()

    @property
    def fence(self) -> int:
        """A number that grows: give it to systems that can compare, so that they refuse a writer that comes too late.

        It is greater for each further attempt of a step and for each further step of a procedure. It is also greater
        for each later holder of a lock, and for each later owner of the store. Procedures that run at the same time
        may have the same one, and so do steps that run in one go (``persist=False``). It fits into 64 bits.
        """
        self._asked_for_fence = True
        return self._fence

    @property
    def idempotency_key(self) -> str:
        """One text for every attempt of this step, and no other: give it to systems that can drop repeats.

        It begins with the procedure's id, and from the second generation on with the generation's number. The name of
        the step follows in a `Saga`, elsewhere its number. From the second repetition of a saga's step on
        (``Status.executing()``) the number of the repetition is part of it too. A submit under an id that was used and
        removed has its keys again.
        """
        start = self.id if self.generation == 1 else f"{self.id}.g{self.generation}"
        if self._live is not None and (name := self._live._engine_key(self.mode, self.unit)) is not None:
            return f"{start}.{name}"
        suffix = _SUFFIX.get(self.mode)
        key = f"{start}.{self.step}"
        if suffix is not None:
            key += f".{suffix}.{self.unit}" if self.unit else f".{suffix}"
        return key

    @property
    def children(self) -> Mapping[str, ChildOutcome]:
        """Outcomes of the children of the last ``Status.suspended``, in its order; a replay sees equal ones."""
        if self._children is None:
            self._children = ChildOutcomes(self._load_children)
        return self._children

    def remember(self, key: str, make: Callable[[], T]) -> T:
        """The value that a function gave the first time, in whichever attempt; it is durable before this returns.

        So "read the old value, then change it" is safe: a repeated step sees the value from before the change. Each
        call gives a new object: changes that the step makes to one are not remembered. If several threads of a step ask
        for one key, only one of them makes the value.

        Args:
            key: A name for the value, one in this step.
            make: Called without arguments when no attempt of this step has a value yet.

        Returns:
            The value.

        Raises:
            TypeError: ``key`` is no text.
            StateNotEncodable: The value cannot be kept.
        """
        key, notes, turn = self._turn_of(key, threading.RLock)
        with turn:  # of the threads of a step that ask for one key, one makes the value; `make` may ask for it itself
            value: T = self._remembered(key, make, notes)
            return value

    def _turn_of(self, key: str, new_turn: Callable[[], Any]) -> tuple[str, dict[str, bytes], Any]:
        """The checked key of a note, the notes there are, and the lock of the one who makes this one."""
        if not isinstance(key, str) or not is_text(key):
            msg = f"remember(key, …) takes a text as its key, not {key!a:.60}"
            raise TypeError(msg)
        key = exact_text(key)
        with _beginning:
            if self._notes is None:
                self._notes = {}
            if self._turns is None:
                self._turns = {}
            return key, self._notes, self._turns.setdefault(key, new_turn())

    def _remembered(self, key: str, make: Callable[[], Any], notes: dict[str, bytes]) -> Any:
        if key in notes:
            return self._note(key, notes[key])  # the step may have changed what it was given
        name = note_key(self.mode, key)
        if self._may_repeat:
            stored = self._channel.request("recall", name, b"", self._begun + self.step)
            if stored is not None:
                notes[key] = stored
                return self._note(key, stored)
        value = make()
        encoded = self._codec.encode(value, f"remember({key!r})", NOTE + self.id)
        self._channel.request("remember", name, encoded, self._begun + self.step)
        notes[key] = encoded
        return value

    @property
    def _may_repeat(self) -> bool:
        """An attempt before this one may have left something."""
        return self.replayed or self.attempt > 1 or self.mode is not Mode.EXECUTE

    def heartbeat(self, progress: float | None = None, message: str | None = None, *, details: Any = None) -> None:
        """Show how far the step is, and keep details for its next attempt.

        Silence ends a step only where its class says ``Limits(heartbeat=…)``. It does not wait, but for one thing: the
        first heartbeat with details in a repeated attempt asks the manager for those of the attempts before.

        Args:
            progress: A fraction from 0 to 1; a rounding error beyond 1.0 is cut off. Default: None.
            message: A text for people; 1000 characters of it are shown. Default: None.
            details: A value that `last_heartbeat` has in the next attempt of this step. Default: None, which leaves
                those of an earlier heartbeat as they are.

        Raises:
            TypeError: ``progress`` is no number, or ``message`` no text.
            ValueError: ``progress`` is outside of the range, such as a percentage, or not finite.
            StateNotEncodable: ``details`` cannot be kept.
            StateTooLarge: ``details`` take more bytes than `Config.max_state`.
        """
        if message is not None and (not isinstance(message, str) or not is_text(message)):
            msg = f"heartbeat(message=…) is a text or None, not {message!a:.60}"
            raise TypeError(msg)
        text = None if message is None else exact_text(message)[:_LONGEST_MESSAGE]
        fraction = None if progress is None else as_fraction(progress)
        if details is None:
            self._channel.heartbeat(fraction, text)
            return
        encoded = self._codec.encode(details, "heartbeat(details=…)", NOTE + self.id)
        self._reports.heartbeat(fraction, text, encoded)

    @property
    def last_heartbeat(self) -> Any:
        """Details of the last heartbeat that earlier attempts of this step sent with ``heartbeat(details=…)``.

        None in a first attempt, and when there were none. The manager stores them at most once a second while a step
        runs, and when the attempt ends or its worker dies. So they may be up to a second old where the host died. Each
        access gives a new object.
        """
        stored = self._reports.details_before()
        return None if stored is None else self._details(stored)

    def _details(self, stored: bytes) -> Any:
        return self._read(self._codec, stored, NOTE, self.id, "the details of the last heartbeat")

    @property
    def _reports(self) -> Reporting:
        with _beginning if self._reporting is None else nullcontext():
            if self._reporting is None:
                place = self.id, self._begun + self.step, self.attempt
                key = note_key(self.mode, LAST_HEARTBEAT + (self.unit or ""))
                self._reporting = Reporting(self._channel, self._codec, place, key, may_repeat=self._may_repeat)
            return self._reporting

    def expose(self, key: str, value: Any) -> None:
        """Show a value of the procedure, in `ProcedureInfo.exposed` and on the command line.

        The first call of a step may wait for the sizes of the values shown before; later ones do not wait. The value
        is durable within a second, or with the end of the step if that comes first, however the step ends. The newest
        value of a key is kept, over attempts, steps and undos, until the procedure is removed.

        Args:
            key: A name, one in this procedure: 1 to 128 characters without control characters.
            value: A value that a state could hold. Values of one procedure take at most `Config.max_state` bytes
                together.

        Raises:
            TypeError: ``key`` is no text.
            ValueError: ``key`` can be no key, or there are 100 others already.
            StateNotEncodable: The value cannot be kept.
            StateTooLarge: The values would take more bytes than `Config.max_state`.
            NotAllowed: The step is over, or this is a forked copy of its process.
        """
        self._reports.expose(key, value)

    def submit_root(
        self,
        procedure: Submittable,
        id: str | None = None,
        *,
        owner: str | None = None,
        priority: int = 0,
        delay: float | timedelta = 0,
        tags: Tags | None = None,
    ) -> str:
        """Submit a root of its own, in the commit of this step's success: never before, and not at all if it fails.

        The root is no child: the step does not wait for it, and an undo of this procedure leaves it alone. A repeated
        attempt names the same id again, and so submits it once. Where that id exists with another type or state, the
        step fails. `Config.max_queued` does not refuse it.

        Args:
            procedure: An instance of a procedure class.
            id: Its name for ever. Default: None, one made of this procedure, its generation, the step, and the place
                among the roots of the step.
            owner: As in `ProcedureManager.submit`. Default: None.
            priority: As in `ProcedureManager.submit`. Default: 0.
            delay: Seconds, or a timedelta, from the commit before it may start. Default: 0.
            tags: As in `ProcedureManager.submit`. Default: None.

        Returns:
            The id.

        Raises:
            InvalidId: The id is no id.
            StateNotEncodable: Its state cannot be stored.
            UsageError: Its class is wrong; the message says where.
            NotAllowed: The step is over, or this is `Procedure.abort`.
            TypeError: It is no procedure, or an option is of the wrong kind.
            ValueError: An option is out of range.
        """
        runtime, requests = self._granted_with_success("submit_root")
        given = None if id is None else check_id(id)
        return requests.add_root(
            procedure,
            runtime,
            lambda index: given or root_id(self.id, self.step, index, self.generation, self.mode),
            owner=owner,
            priority=priority,
            delay=delay,
            tags=tags,
        )

    @property
    def ask_id(self) -> str | None:
        """Id of the ask (`ProcedureHandle.ask`) that woke this step; None: none did."""
        return None if self._ask is None else self._ask.id

    def reply(self, value: Any = None) -> None:
        """Answer the ask that woke this step, in the commit of the step's success: never before, and not if it fails.

        A step that ends well without a reply leaves the one who asked with `NoReply`. An undo takes no ask.

        Args:
            value: A value that a state could hold. Default: None.

        Raises:
            NotAllowed: No ask woke this step, it has replied already, or it is over.
            StateNotEncodable: The value cannot be kept.
        """
        if self._runtime is None or self._ask is None:
            why = "was woken by no ask" if self._runtime is not None else "is over"
            msg = f"reply is for a step that takes an ask, and step {self.step} of {self.id} {why}; see ctx.ask_id"
            raise NotAllowed(msg)
        encoded = self._codec.encode(value, f"the reply to {self._ask.name!r}", REPLY + self.id)
        self._granted_with_success("reply")[1].add_reply(encoded, self._ask)

    def set_tag(self, key: str, value: str) -> None:
        """Give a tag of this procedure a value, in the commit of this step's success, and not at all if it fails.

        Lists find it by the new value from that commit on, and no more by an old one. An undo does not take it back:
        an undo step may set or remove tags itself. The last value that a step gives counts.

        Args:
            key: The key, without ``=``.
            value: The value. Key, ``=`` and value take at most 256 bytes in UTF-8, and a procedure has at most 100
                tags; with more, its step fails.

        Raises:
            TypeError: A key or a value is no text.
            ValueError: It is too long, or the step changes too many tags.
            NotAllowed: The step is over, or this is `Procedure.abort`.
        """
        self._granted_with_success("set_tag")[1].set_tag(key, value)

    def remove_tag(self, key: str) -> None:
        """Remove a tag of this procedure, in the commit of this step's success, and not at all if it fails.

        Args:
            key: The key of the tag, or a tag that is a plain word. One that is not there is no error.

        Raises:
            TypeError: The key is no text.
            ValueError: It can be no key, or the step changes too many tags.
            NotAllowed: The step is over, or this is `Procedure.abort`.
        """
        self._granted_with_success("remove_tag")[1].remove_tag(key)

    def _take_event(self, stored: bytes, codec: ValueCodec) -> None:
        """Have the payload of the signal or event that woke the step; "": it has none."""
        ask, payload = opened(stored)
        if self.mode is Mode.EXECUTE:
            self._ask = ask
        self.event = self._read(codec, payload, PAYLOAD, self.id, "the payload of the event") if payload else None

    def _granted_with_success(self, what: str) -> tuple[Describer, RequestList]:
        """The requests of the step that are granted with its success. Raises `NotAllowed` where there are none."""
        runtime = self._runtime
        if runtime is None or self.mode is Mode.ASK_ABORT:
            where = "abort() is a question" if runtime is not None else f"step {self.step} of {self.id} is over"
            msg = f"{what} is for steps that run: {where}"
            raise NotAllowed(msg)
        with _beginning:
            if self._requests is None:
                self._requests = RequestList()
            return runtime, self._requests

    def query(self, procedure_id: str) -> dict[str, Any]:
        """Facts of `ProcedureManager.info` about a procedure.

        Args:
            procedure_id: The procedure.

        Returns:
            The facts as plain data.

        Raises:
            UnknownProcedure: No procedure has this id.
            InvalidId: The id is no id.
        """
        return self._facts(procedure_id, self._channel.request("query", check_id(procedure_id)))

    @staticmethod
    def _facts(procedure_id: str, answer: bytes | None) -> dict[str, Any]:
        found = None if answer is None else PLAIN.decode(answer)
        if not isinstance(found, dict):
            msg = f"no procedure has the id {procedure_id!r}"
            raise UnknownProcedure(msg)
        return found

    @property
    def log(self) -> logging.Logger:
        """A logger whose lines go to the host's log with this procedure's id and step."""
        if self._log is None:
            self._log = StepLogger(self.type_name, self._log_level, self._channel.log)
        return self._log

    def _load_children(self) -> list[ChildOutcome]:
        if not self._children_step:
            return []
        return self._outcomes_in(self._channel.request("children", "", b"", self._children_step))

    def _outcomes_in(self, answer: bytes | None) -> list[ChildOutcome]:
        return [] if answer is None else [ChildOutcome(row, self._output_of) for row in _rows.decode(answer)]

    def _take_children(self, answer: bytes | None) -> None:
        """Have the outcomes that were asked for beforehand."""
        found = self._outcomes_in(answer)
        self._children = ChildOutcomes(lambda: found)

    def _output_of(self, row: OutcomeRow) -> Any:
        output = row.output
        if output is None:
            output = self._channel.request("output", row.id)
        if not output:
            return None
        found = None if self._outputs is None else self._outputs(row.type_name)
        what = f"the output of {row.id} ({row.type_name})"
        return self._read(found or self._codec, output, OUTPUT, row.id, what, row.type_name)

    def _note(self, key: str, stored: bytes) -> Any:
        return self._read(self._codec, stored, NOTE, self.id, f"what remember({key!r}) kept")

    def _read(self, codec: ValueCodec, data: bytes, kind: str, id: str, what: str, type_name: str = "") -> Any:
        """A stored value. A value that cannot be read ends the attempt: the procedure is parked with the reason."""
        try:
            return codec.decode(data, kind + id)
        except ValueNotDecodable as error:
            reason = f"{what} cannot be read: {error}"
            if self._unreadable is None:
                self._unreadable = reason, type_name
            raise UnreadableValue(reason) from error
