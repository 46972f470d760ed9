"""Replay of one step, and of all of a store: the functions a worker uses, in this process."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from actorproc.api.replay.guard import RequestGuard
from actorproc.api.replay.recorded import RecordedChannel, children_since
from actorproc.api.replay.result import ReplayResult
from actorproc.api.replay.time_limit import DEFAULT, StepTookTooLong, TimeLimit
from actorproc.errors import UnknownProcedure, UnknownStep, UsageError
from actorproc.model.ids import Mode, check_id, fence_of
from actorproc.model.messages.outcomes import (
    Advanced,
    Failed,
    Finished,
    Outcome,
    Poisoned,
    Refused,
    Renewed,
    Slept,
    Suspended,
    Waited,
)
from actorproc.model.names import no_class_registered, note_key
from actorproc.model.rows.asks import rewritten
from actorproc.model.rows.record_parts import origin_of
from actorproc.model.rows.records import AttemptRecord, ErrorInfo, ProcedureRecord, StepKind, StepRecord
from actorproc.model.states import TERMINAL, ProcedureState
from actorproc.procedure.authoring.context import Context
from actorproc.procedure.encoding.payload import encode_payload
from actorproc.procedure.runtime.engine_side import StateRefused, TypeRegistry, TypeRuntime
from actorproc.procedure.values.error_text import in_words
from actorproc.report.states import StateChange, changes_between, missing_record, state_info_of
from actorproc.store.base import RecordStore

__all__ = ["Replayer", "StoredStep", "registry_of"]

_NAMES: dict[type, str] = {
    Advanced: "executing",
    Suspended: "suspended",
    Slept: "sleep",
    Waited: "wait",
    Renewed: "again",
    Finished: "done",
}
_NOTHING = object()
_UNSEEN = " where it is not shown: in a pickle, or behind the items that are"
Runner = Callable[[Callable[[], Any]], Any]
"""Runs the step: a debugger's way of calling it."""


class StoredStep(NamedTuple):
    """One step that can be run again."""

    procedure: str
    number: int
    undo: bool = False


class Replayer:
    """Runs stored steps again with the classes of a registry. Nothing is written.

    Args:
        store: where the procedures are; a manager may run on it.
        registry: the classes, with the keys by which pickles are believed.
        env: what ``ctx.env`` is. Default: None.
        allow_requests: let steps use the network and processes. Default: False.
        quiet: print no heartbeats and log lines of steps. Default: False.
        run: how the step is called, such as by a debugger. Default: it is just called.
        timeout: seconds that a step may take. Default: 60; None: as long as it wants, as under a debugger.
    """

    def __init__(
        self,
        store: RecordStore,
        registry: TypeRegistry,
        *,
        env: Any = None,
        allow_requests: bool = False,
        quiet: bool = False,
        run: Runner | None = None,
        timeout: float | None = DEFAULT,
    ) -> None:
        self._store = store
        self._registry = registry
        self._env = env
        self._allow = allow_requests
        self._quiet = quiet
        self._run = run or (lambda call: call())
        self._timeout = timeout
        self.error: BaseException | None = None
        """The exception of the last step that failed, with its frames."""

    def steps(self, id: str) -> list[StoredStep]:
        """Steps of a procedure of which the end is stored, in order."""
        head, records = self._log(id)
        attempts = self._store.attempts(head.id)
        found = []
        for place, (record, after) in enumerate(itertools.pairwise(records)):
            is_next = after.number - after.steps == record.number  # nothing between them was trimmed
            is_ended = after.outcome in _NAMES.values() and after.kind is not StepKind.ROLLBACK
            is_ended |= _Step.of(head, records, place, undo=False, attempts=attempts).failure is not None
            if record.kind is StepKind.STEP and record.state and is_next and is_ended:
                found.append(StoredStep(head.id, record.number))
        return found

    def unfinished(self, type_name: str | None = None) -> Iterator[str]:
        """Ids of procedures that have not ended."""
        for state in (state for state in ProcedureState if state not in TERMINAL):
            for head in self._store.scan(state=state, type_name=type_name, skip_damaged=True):
                yield head.id

    def newest(self, id: str, *, undo: bool = False) -> int:
        """The record of the step that failed, or that is next; with `undo` that of the last undo."""
        head, records = self._log(id)
        if undo:
            undone = [record for record in records if record.kind is StepKind.ROLLBACK and record.label is not None]
            undoable = undone or [record for record in records if record.kind is StepKind.STEP and record.label]
            if undoable:
                return undoable[-1].number
        if head.state is ProcedureState.FAILED or head.rolling or head.state is ProcedureState.ROLLEDBACK:
            forward = [record.number for record in records if record.kind is StepKind.STEP and record.state]
            wanted = head.error.step if head.error is not None and head.error.procedure == head.id else 0
            return wanted if wanted in forward else forward[-1] if forward else head.records
        usable = [record.number for record in records if record.state]
        if head.state in TERMINAL:
            usable = [number for number in usable if number < records[-1].number]
        return usable[-1] if usable else head.records

    def replay(
        self,
        id: str,
        step: int | None = None,
        *,
        undo: bool = False,
        fields: Mapping[str, Any] | None = None,
        event: Any = _NOTHING,
    ) -> ReplayResult:
        """Run a step again.

        Args:
            id: the procedure.
            step: number of the record from which it runs. Default: None, the one that failed or comes next.
            undo: run the undo of the step in place of the step. Default: False.
            fields: values to give to fields of the procedure before. Default: None.
            event: payload of ``ctx.event``. Default: the stored one.

        Raises:
            UnknownProcedure: nothing has this id.
            UnknownStep: there is no such record, or it holds no state; the message says why.
        """
        head, records = self._log(id)
        number = self.newest(id, undo=undo) if step is None else step
        place = next((place for place, record in enumerate(records) if record.number == number), None)
        if place is None:
            raise UnknownStep(missing_record(head, number, records))
        one = _Step.of(head, records, place, undo=undo, attempts=self._store.attempts(head.id))
        if not one.before.state:
            raise UnknownStep(
                f"record {number} of {id} has no state to run from: {state_info_of(head, one.before).missing}"
            )
        runtime = self._registry.get(head.type_name)
        if runtime is None:
            return one.not_replayable(no_class_registered(head.type_name, self._registry.names()))
        try:
            live = runtime.load(one.before.state, one.before.codec, one.before.version, head.id)
            _give(live, fields or {})
        except StateRefused as error:
            return one.not_replayable(error.reason)
        if undo and not one.unit and not _is_undoable(live):
            return one.not_replayable("nothing is to be undone of this step: it has no undo")
        if event is not _NOTHING and one.mode is Mode.ON_TIMEOUT:
            one = one._replace(mode=Mode.EXECUTE)
        payload = self._payload(one, event)
        if isinstance(payload, str):
            return one.not_replayable(payload)
        return self._ran(one, runtime, live, payload, changed=bool(fields) or event is not _NOTHING)

    def _log(self, id: str) -> tuple[ProcedureRecord, list[StepRecord]]:
        head = self._store.procedure(check_id(id))
        if head is None:
            msg = f"no procedure has the id {id!r}"
            raise UnknownProcedure(msg)
        return head, self._store.steps(id)

    def _payload(self, one: _Step, event: Any) -> bytes | str | None:
        """The payload that woke the step; None: it had waited for nothing; a text: why it is not known."""
        if event is not _NOTHING:
            before = one.after.event if one.after is not None else one.head.payload
            return rewritten(before or b"", lambda _: encode_payload(event))
        if one.mode is not Mode.EXECUTE or one.before.outcome != "wait":
            return None
        if one.number == one.head.step and one.head.state not in TERMINAL:
            if one.head.event is not None:
                return f"it waits for the event {one.head.event!r}; give a payload with --event"
            return one.head.payload
        if one.after is not None and one.after.event is not None:
            return one.after.event
        if one.head.payload is not None:  # the step failed, so nothing has taken the payload from the head
            return one.head.payload
        if one.failure is None:
            return f"no event {one.before.awaits!r} came, so nothing of it ran; give a payload with --event JSON"
        return "the payload of its event is not stored with the step; give it with --event JSON"

    def _ran(
        self, one: _Step, runtime: TypeRuntime, live: Any, payload: bytes | None, *, changed: bool
    ) -> ReplayResult:
        try:
            return self._run_turns(one, runtime, live, payload, changed=changed)
        except StepTookTooLong:
            limit = f"it still ran after {self._timeout:g} s and was stopped; --timeout (timeout=) gives it more"
            return one.not_replayable(limit)

    def _run_turns(
        self, one: _Step, runtime: TypeRuntime, live: Any, payload: bytes | None, *, changed: bool
    ) -> ReplayResult:
        self.error = None
        channel = RecordedChannel(self._store, one.head, one.after, quiet=self._quiet)
        own = runtime.runtime_of(live)
        self._watch_failures(own)
        guard = RequestGuard(allow=self._allow)
        wanted = 1 if one.after is None or one.undo else max(1, one.after.steps)
        state, outcome = one.before.state, None
        for turn in range(wanted):
            mode = one.mode if turn == 0 else Mode.EXECUTE
            context = self._context(one, runtime, channel, turn, mode)
            if turn == 0 and one.before.outcome == "suspended":
                context._before = state
            with guard, TimeLimit(self._timeout):
                outcome, _ = self._run(
                    lambda context=context, mode=mode, turn=turn: own.run(  # type: ignore[misc]
                        live, context, mode, one.unit, payload if turn == 0 else None
                    )
                )
            if isinstance(self.error, KeyboardInterrupt):
                raise self.error  # of the one who waits for it, and no error of the step
            if not isinstance(outcome, Advanced):
                break
        assert outcome is not None
        del own.__dict__["failed"]
        return one.result(outcome, channel, guard, changed=changed)

    def _watch_failures(self, own: TypeRuntime) -> None:
        """Keep the exception of a step, for a look at its frames."""
        failed = own.failed

        def noted(error: BaseException, *others: Any) -> Any:
            self.error = error
            return failed(error, *others)

        own.__dict__["failed"] = noted

    def _context(self, one: _Step, runtime: TypeRuntime, channel: RecordedChannel, turn: int, mode: Mode) -> Context:
        number = one.number + turn
        attempt = max(1, one.after.attempts if one.after is not None else one.head.attempt)
        if one.failure is not None:
            attempt = one.failure.attempt
        since = children_since(one.head, number, self._store.children(one.head.id)) if turn == 0 and not one.undo else 0
        if one.before.outcome != "suspended" and number != one.head.step:
            since = 0
        context = Context(
            channel,
            one.head.id,
            one.head.type_name,
            one.head.root,
            number - one.begun,
            attempt,
            mode,
            one.unit,
            one.head.parent,
            one.head.deadline,
            replayed=attempt > 1,
            replaying=True,
            _children_step=since,
            env=self._env,
            _codec=runtime.values,
            _outputs=self._values_of,
            generation=one.generation,
            _begun=one.begun,
            _fence=(one.after.fence if one.after is not None else 0) or fence_of(self._store.epoch, 0),
        )
        if mode is not Mode.ROLLBACK:
            before = note_key(mode, "")
            notes = self._store.notes(one.head.id, number)
            context._notes = {
                note.key.removeprefix(before): note.value for note in notes if note.key.startswith(before)
            }
            context._turns = {}
        return context

    def _values_of(self, type_name: str) -> Any:
        runtime = self._registry.get(type_name)
        return None if runtime is None else runtime.values


def _is_timed_out(
    head: ProcedureRecord, record: StepRecord, after: StepRecord | None, attempts: list[AttemptRecord]
) -> bool:
    """True if `on_timeout` ran from a record, or is the next to run: it has no payload, and no other mark."""
    if record.outcome != "wait":
        return False
    if after is not None and after.kind is not StepKind.ROLLBACK:
        return after.event is None and after.number - after.steps == record.number
    if any(one.mode is Mode.ON_TIMEOUT and one.step == record.number for one in attempts):
        return True
    is_next = after is None and record.number == head.step
    return is_next and head.state is ProcedureState.RUNNABLE and head.event is not None


class _Step(NamedTuple):
    """One step with the records around it."""

    head: ProcedureRecord
    before: StepRecord
    """Has the state from which it runs."""
    after: StepRecord | None
    """Record of its end; None: there is none yet."""
    number: int
    mode: Mode
    unit: str | None
    begun: int
    generation: int
    failure: AttemptRecord | None
    """Its last attempt, where it came to no other end."""

    @classmethod
    def of(
        cls,
        head: ProcedureRecord,
        records: list[StepRecord],
        place: int,
        *,
        undo: bool,
        attempts: list[AttemptRecord],
    ) -> _Step:
        """The step that runs from a record; of a rollback's record the undo that it closes."""
        record = records[place]
        begins = [other.number for other in records[: place + 1] if other.outcome == "again"]
        begun = begins[-1] - 1 if begins else origin_of(head.begun, head.past)
        generation = head.generation - sum(other.outcome == "again" for other in records[place + 1 :])
        after = records[place + 1] if place + 1 < len(records) else None
        mode, unit, before = Mode.EXECUTE, record.label, record
        if record.kind is StepKind.ROLLBACK and record.label is not None:
            mode, after = Mode.ROLLBACK, record
            before = next((other for other in reversed(records[:place]) if other.state), record)
        elif undo:
            mode, unit = Mode.ROLLBACK, record.label or ""
            before = next((other for other in records[place + 1 :] if other.state), record)
            after = next((other for other in records if other.kind is StepKind.ROLLBACK and other.label == unit), None)
            if after is not None:
                earlier = [other for other in records if other.number < after.number and other.state]
                before = earlier[-1] if earlier else before
        elif _is_timed_out(head, record, after, attempts):
            mode = Mode.ON_TIMEOUT
        ended = after is not None and (mode is Mode.ROLLBACK or after.kind is not StepKind.ROLLBACK)
        if mode is Mode.ROLLBACK:  # one that has not succeeded comes after those that have, and is the next to do
            undone = {other.label: other.number for other in records if other.kind is StepKind.ROLLBACK and other.label}
            ended |= not undone.keys() >= {other.label for other in records[place + 1 :] if other.label}
            attempts = [one for one in attempts if one.step > max(undone.values(), default=0)]
        else:
            attempts = [one for one in attempts if one.step == record.number]
        failed = [] if ended else [one for one in attempts if one.mode is mode]
        newest = max(failed, key=lambda one: one.ended_at, default=None)
        return cls(head, before, after, record.number, mode, unit, begun, generation, newest)

    @property
    def undo(self) -> bool:
        """It is undone."""
        return self.mode is Mode.ROLLBACK

    def not_replayable(self, reason: str) -> ReplayResult:
        """The answer in words."""
        return self._result("", "not replayable", reason)

    def result(self, outcome: Outcome, channel: RecordedChannel, guard: RequestGuard, *, changed: bool) -> ReplayResult:
        """The outcome of the replay, beside the stored one."""
        if isinstance(outcome, Refused):
            return self._result("", "not replayable", outcome.reason)
        words = _in_words(outcome)
        state = getattr(outcome, "state", b"")
        now = self._with_state(state) if state else None
        was = state_info_of(self.head, self.before)
        changes = () if now is None else tuple(changes_between(was, state_info_of(self.head, now)))
        verdict, reason, differences = self._compared(outcome, now)
        if changed and verdict == "differs":
            reason += " (fields or the event were set by hand)"
        return self._result(
            words,
            verdict,
            reason,
            changes=changes,
            differences=tuple(differences),
            children=tuple(f"{child.id} ({child.type_name})" for child in getattr(outcome, "children", ())),
            locks=tuple(f"{key.mode.name.lower()} {key.path}" for key in getattr(outcome, "acquire", ())),
            remembered=tuple(channel.remembered),
            refused=tuple(guard.refused),
            written=tuple(guard.written),
            traceback=outcome.error.traceback if isinstance(outcome, Failed | Poisoned) else "",
        )

    def _with_state(self, state: bytes) -> StepRecord:
        return StepRecord(
            procedure=self.head.id, number=0, kind=StepKind.STEP, at=0.0, state=state, codec=self.before.codec
        )

    def _compared(self, outcome: Outcome, now: StepRecord | None) -> tuple[Any, str, list[StateChange]]:
        after = self.after
        error = self._stored_error()
        if isinstance(outcome, Failed | Poisoned):
            if error is None:
                return ("differs", f"it failed, and is stored as {after.outcome}", []) if after else _nothing()
            said = (outcome.error.type_name, outcome.error.message)
            if said == (error.type_name, error.message):
                return "same", "the same error as stored", []
            return "differs", f"the stored error is {error.type_name}: {error.message}", []
        if after is None or (error is not None and after.kind is StepKind.ROLLBACK and not self.undo):
            if error is None:
                return _nothing()
            return "differs", f"it did not fail; the stored error is {error.type_name}: {error.message}", []
        if self.undo:
            return self._states(after, now, after.outcome)
        name = _NAMES.get(type(outcome), "")
        if name != after.outcome:
            return "differs", f"it ended as {name}, and is stored as {after.outcome}", []
        if isinstance(outcome, Finished):
            if outcome.output == after.output:
                return "same", f"the same output as record {after.number}", []
            one, other = (state_info_of(self.head, self._with_state(data)) for data in (after.output, outcome.output))
            found = changes_between(one, other)
            return "differs", "the output differs" + ("" if found else _UNSEEN), found
        return self._states(after, now, name)

    def _states(self, after: StepRecord, now: StepRecord | None, name: str) -> tuple[Any, str, list[StateChange]]:
        if now is None or not after.state or now.state == after.state:
            return "same", f"{name} as record {after.number}", []
        found = changes_between(state_info_of(self.head, after), state_info_of(self.head, now))
        if not found:
            return "differs", f"the state differs from record {after.number}{_UNSEEN}", []
        paths = ", ".join(change.path for change in found[:5])
        return "differs", f"the state differs from record {after.number} in {paths}", found

    def _stored_error(self) -> ErrorInfo | None:
        """The error with which the step is stored to have failed."""
        if self.after is not None and self.after.kind is StepKind.STEP:
            return None
        if self.failure is not None:
            return self.failure.error
        for error in (self.after.error if self.after is not None else None, self.head.error):
            if error is not None and error.kind == "error" and (not error.step or error.step == self.number):
                return error
        return None

    def _result(self, outcome: str, verdict: Any, reason: str, **others: Any) -> ReplayResult:
        return ReplayResult(
            procedure=self.head.id,
            type_name=self.head.type_name,
            step=self.number,
            step_name=getattr(self.before, "step_name", None) if not self.undo else self.unit or None,
            undo=self.undo,
            outcome=outcome,
            verdict=verdict,
            reason=reason,
            **others,
        )


def _nothing() -> tuple[Any, str, list[StateChange]]:
    return "nothing stored", "the end of this step is not stored, so there is nothing to compare with", []


def _in_words(outcome: Outcome) -> str:
    if isinstance(outcome, Failed | Poisoned):
        return f"failed: {outcome.error.type_name}: {outcome.error.message}"
    words = _NAMES.get(type(outcome), type(outcome).__name__)
    if isinstance(outcome, Waited):
        return f"{words} for the event {outcome.event!r}"
    if isinstance(outcome, Slept) and outcome.until is not None:
        return f"{words} until {datetime.fromtimestamp(outcome.until, UTC)}"
    if isinstance(outcome, Slept):
        return f"{words} for {outcome.seconds:g} s"
    return words


def _is_undoable(live: Any) -> bool:
    """A step without a label of its own can be undone: its class has one undo for all of it."""
    try:
        live._engine_check_unit("")
    except StateRefused:
        return False
    return True


def _give(live: Any, fields: Mapping[str, Any]) -> None:
    """Set fields of a procedure. Raises `UsageError` for one that it does not have."""
    for name, value in fields.items():
        if not hasattr(live, name):
            msg = f"{type(live).__qualname__} has no field {name!r}"
            raise UsageError(msg)
        try:
            setattr(live, name, value)
        except Exception as error:
            msg = f"{name} cannot be set: {in_words(error)}"
            raise UsageError(msg) from error


def registry_of(procedures: Iterable[Any], key: bytes | tuple[bytes, ...] | None) -> TypeRegistry:
    """The registry of these classes, which believes pickles signed with this key."""
    registry = TypeRegistry(signing_key=key or os.urandom(32))
    for procedure_class in procedures:
        registry.register(procedure_class)
    return registry
