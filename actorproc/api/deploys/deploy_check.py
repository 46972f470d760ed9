"""The deploy check: unfinished procedures, read with the classes that are to run them, and none of them run.

Each stored state goes through the functions a worker uses (`TypeRuntime.load`, and `Context` for values), so the
check parks exactly what a worker would park. It reads a store that a manager may be writing to, and changes nothing.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, NoReturn

from actorproc.errors import ActorprocError
from actorproc.model.ids import Mode
from actorproc.model.messages.definitions import OutcomeRow
from actorproc.model.names import LAST_HEARTBEAT, no_class_registered
from actorproc.model.rows.asks import opened
from actorproc.model.rows.records import NoteRecord, ProcedureRecord, StepRecord, UndoRecord
from actorproc.model.states import TERMINAL, ProcedureState
from actorproc.procedure.authoring.context import Context, UnreadableValue
from actorproc.procedure.authoring.function import ProcedureFunction
from actorproc.procedure.authoring.procedure import Procedure
from actorproc.procedure.authoring.reporting import details_in
from actorproc.procedure.encoding.log_records import LogParts
from actorproc.procedure.encoding.signing import SigningKey
from actorproc.procedure.encoding.value_codec import PAYLOAD, ValueCodec
from actorproc.procedure.runtime.engine_side import StateRefused, TypeRegistry, TypeRuntime
from actorproc.procedure.values.error_text import in_words
from actorproc.procedure.values.kinds.base import LEFT_OUT
from actorproc.report.deploy_report import DeployFinding, DeployReport, Verdict
from actorproc.store.base import RecordStore
from actorproc.store.home import home_of

__all__ = ["check_deploy", "examined"]

Lookup = Callable[[str], TypeRuntime | None]

_SHOWN = 5
"""Ids that a finding names."""
_REPEATED = 3
"""Looks at a procedure that goes on while it is looked at."""


def check_deploy(
    procedures: Iterable[type | ProcedureFunction[..., Any]],
    path: str | os.PathLike[str],
    *,
    signing_key: SigningKey | None = None,
) -> DeployReport:
    """Read every unfinished procedure of a store with these classes, and run none of them.

    Of user code only what reads a state is called: `load`, `migrate`, migrations of values and loaders.

    Args:
        procedures: the classes and `procedure` functions as the manager is to have them, with what they `uses`.
        path: the directory of the store; a manager may run on it.
        signing_key: the key or keys of ``Config.signing_key``; default: those kept beside the store.

    Returns:
        The procedures that go on and those that would be parked, by type, step and reason.

    Raises:
        EngineError: there is no store at the path, or it cannot be read.
        UsageError: a class cannot be run, or the path is a URL.
        ValueError: the path is empty.
    """
    # A store without a key has nothing that is pickled, or nothing that a manager would believe: it makes a new key.
    home = home_of(path)
    registry = TypeRegistry(signing_key=signing_key or home.keys() or os.urandom(32))
    for procedure_class in procedures:
        registry.register(procedure_class)
    with home.reader() as store:
        return examined(store, registry.get, registry.names())


def examined(store: RecordStore, lookup: Lookup, names: Iterable[str]) -> DeployReport:
    """The report about a store that is open, and the types that are registered.

    Args:
        store: what is read.
        lookup: the runtime of a type by its name; None when it is not registered.
        names: all names that `lookup` knows.
    """
    look = _Look(store, lookup, tuple(names))
    found: dict[tuple[str, str, Verdict, str], list[str]] = {}
    checked = 0
    for root in _unfinished_roots(store):
        heads, units = store.tree(root)
        for head, own in _members(heads, units):
            judged = look.at(head, own)
            if judged is not None:
                checked += 1
                found.setdefault((head.type_name, *judged), []).append(head.id)
    findings = tuple(
        DeployFinding(
            type_name=type_name, step=step, verdict=verdict, reason=reason, count=len(ids), ids=tuple(ids[:_SHOWN])
        )
        for (type_name, step, verdict, reason), ids in found.items()
    )
    return DeployReport(checked=checked, findings=findings)


def _unfinished_roots(store: RecordStore) -> Iterator[str]:
    """Roots of trees with a member that has not ended."""
    unfinished = (state for state in ProcedureState if state not in TERMINAL)
    yield from dict.fromkeys(head.root for state in unfinished for head in store.scan(state=state, skip_damaged=True))


def _members(
    heads: Iterable[ProcedureRecord], units: Iterable[UndoRecord]
) -> Iterator[tuple[ProcedureRecord, list[UndoRecord]]]:
    """The members of a tree whose states a worker may still load, with what there is to undo of each."""
    own: dict[str, list[UndoRecord]] = {}
    for unit in units:
        own.setdefault(unit.procedure, []).append(unit)
    root_ended = True
    for head in heads:
        if head.parent is None:
            root_ended = head.state in TERMINAL
        to_undo = own.get(head.id, [])
        if head.state not in TERMINAL or (to_undo and not root_ended):
            yield head, to_undo


class _Judged(NamedTuple):
    step: str
    verdict: Verdict
    reason: str


class _Look:
    """Reads one procedure after the other."""

    def __init__(self, store: RecordStore, lookup: Lookup, names: tuple[str, ...]) -> None:
        self._store = store
        self._lookup = lookup
        self._names = names

    def at(self, head: ProcedureRecord, units: list[UndoRecord]) -> _Judged | None:
        """The fate of a procedure; None when it has ended, or was removed, while it was looked for."""
        for _ in range(_REPEATED):
            record = self._store.step(head.id, head.state_at or head.records)
            if record is not None:
                break
            now = self._store.procedure(head.id)
            if now is None or (now.state in TERMINAL and head.state not in TERMINAL):
                return None
            head = now
        else:
            return _Judged(_number(head), "unknown", "its record could not be read: it went on at every look")
        runtime = self._lookup(head.type_name)
        if runtime is None:
            step = _step_of(head, TypeRuntime.stored_position(record.state))
            return _Judged(step, "parks", no_class_registered(head.type_name, self._names))
        if head.rolling and not units and not head.undoing:
            return _Judged(_number(head), "goes-on", "")
        step = _step_of(head, TypeRuntime.stored_position(record.state))
        has_ended = head.state in TERMINAL
        try:
            live = _loaded(head, runtime, record)
            if not head.rolling and not has_ended and live._engine_is_moved():
                live._engine_settle()
            self._read_values(head, runtime.runtime_of(live))
        except StateRefused as error:
            if LEFT_OUT in error.reason:
                return _Judged(step, "unknown", error.reason)
            return _Judged(step, "parks-when-undone" if has_ended else "parks", error.reason)
        reason = _undo_refused(live, units)
        if reason:
            return _Judged(step, "parks" if head.rolling and not has_ended else "parks-when-undone", reason)
        return _Judged(step, "goes-on", "")

    def _read_values(self, head: ProcedureRecord, own: TypeRuntime) -> None:
        """Read what the step in hand may ask for, as its context would. Raises `StateRefused`."""
        context = Context(
            _NoChannel(),
            head.id,
            head.type_name,
            head.root,
            head.step - head.begun,
            mode=Mode.ROLLBACK if head.rolling else Mode.EXECUTE,
            _codec=own.values,
            _outputs=self._values_of,
        )
        try:
            for note in self._notes(head):
                if LAST_HEARTBEAT not in note.key:
                    context._note(note.key, note.value)
                elif (details := details_in(note.value)) is not None:
                    context._details(details)
            if not head.rolling and head.state not in TERMINAL:
                self._read_arrivals(head, context, own.values)
        except UnreadableValue as error:
            raise StateRefused(context._unreadable[0] if context._unreadable else str(error)) from error

    def _read_arrivals(self, head: ProcedureRecord, context: Context, values: ValueCodec) -> None:
        """Read the event that woke it, signals that wait for it, and outputs of children whose end it sees."""
        if head.payload:
            context._take_event(head.payload, values)
        for event in self._store.events(head.id):
            if event.payload and not event.taken:
                sent = opened(event.payload)[1]
                context._read(values, sent, PAYLOAD, head.id, "the payload of a signal that waits for it")
        since = head.awaiting or (head.group if head.state is ProcedureState.WAITING and head.event is None else 0)
        if since:
            for link in self._store.children(head.id):
                child = self._store.procedure(link.child) if link.step >= since else None
                if child is not None and child.state is ProcedureState.SUCCESS:
                    self._read_output(child, context)

    def _read_output(self, child: ProcedureRecord, context: Context) -> None:
        closing = self._store.step(child.id, child.records)
        if closing is not None and closing.output:
            context._output_of(
                OutcomeRow(child.id, child.type_name, str(child.state), closing.output, closing.codec, None)
            )

    def _notes(self, head: ProcedureRecord) -> Iterator[NoteRecord]:
        number = (head.undo_step or head.records + 1) if head.rolling else head.step
        return iter(self._store.notes(head.id, number))

    def _values_of(self, type_name: str) -> ValueCodec | None:
        runtime = self._lookup(type_name)
        return None if runtime is None else runtime.values


def _loaded(head: ProcedureRecord, runtime: TypeRuntime, record: StepRecord) -> Procedure:
    """The object, as a worker makes it. Raises `StateRefused`."""
    try:
        return runtime.load(record.state, record.codec, record.version, head.id)
    except (StateRefused, KeyboardInterrupt):
        raise
    except BaseException as error:  # load is user code; a sys.exit() in it is a refusal as well
        msg = f"{head.type_name} cannot load its state: {in_words(error)}"
        raise StateRefused(msg) from error


def _undo_refused(live: Procedure, units: list[UndoRecord]) -> str:
    """Reason why the undo of one of these would be parked; "" when none would."""
    for label in dict.fromkeys(unit.label for unit in reversed(units)):
        try:
            live._engine_check_unit(label)
        except StateRefused as error:
            return error.reason
    return ""


class _NoChannel:
    """In the place of the channel of a step: nothing runs, so nothing asks."""

    def request(self, kind: str, key: str = "", value: bytes = b"", step: int = 0) -> NoReturn:
        """Refuse."""
        del key, value, step
        msg = f"{kind!r} was asked in a deploy check, which runs no step"
        raise ActorprocError(msg)

    def heartbeat(
        self, progress: float | None, message: str | None, details: bytes | None = None, key: str = "", step: int = 0
    ) -> None:
        """Notify no watcher."""

    def expose(self, key: str, value: bytes) -> None:
        """Show no value."""

    def log(self, parts: LogParts) -> None:
        """Notify no watcher."""

    def aborting(self) -> bool:
        """No step runs."""
        return False

    def keep_changes(self) -> contextlib.AbstractContextManager[None]:
        """Nothing is put back."""
        return contextlib.nullcontext()


def _step_of(head: ProcedureRecord, position: Any) -> str:
    """The step in words: the name in a stored position, else the number."""
    while isinstance(position, list | tuple) and position:
        position = position[0]
    return position if isinstance(position, str) and position else _number(head)


def _number(head: ProcedureRecord) -> str:
    return str(head.step - head.begun)
