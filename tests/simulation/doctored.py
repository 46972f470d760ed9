"""Histories in which one line was changed, so that one rule of the checker must speak: for `test_checker`.

Each change takes what a sound history left, and gives it back with one promise broken; None: there is nothing in it that
could be changed so. What the core does is not touched: it is the judge that is on trial.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import msgspec
from msgspec.structs import replace

from actorproc.errors import UnknownProcedure
from actorproc.model.ids import Mode, StepToken, WorkerId
from actorproc.model.messages.outcomes import Failed, Refused
from actorproc.model.policies import Scheduling
from actorproc.model.rows.asks import AskKey, ask_of, enclosed
from actorproc.model.rows.cold_trees import is_debounced
from actorproc.model.rows.enqueued import EnqueuedRecord, waiting_key
from actorproc.model.rows.record_parts import TOKEN
from actorproc.model.rows.records import NewProcedure, PoisonRecord, ProcedureRecord, StepKind
from actorproc.model.rows.writes import (
    DeleteEnqueued,
    DeleteProcedure,
    DeleteReply,
    DeleteUndo,
    PutAttempt,
    PutChild,
    PutExposed,
    PutLock,
    PutPoison,
    PutProcedure,
    PutReply,
    PutSchedule,
    PutStep,
    PutUndo,
    TrimLog,
    Write,
)
from actorproc.model.states import TERMINAL, ProcedureState
from actorproc.testing.histories.evidence import StoreDump
from tests.simulator.rules.cancel_rules import BY_OPERATOR
from tests.simulator.rules.judge import Entry

__all__ = ["CHANGES", "Change", "Left"]

_NEW_REPLY = 10**9
"""A number that no call of a history has."""


class Left(msgspec.Struct):
    """What a history left for its judge."""

    journal: list[Entry]
    dump: StoreDump
    bystander: str | None
    scheduling: Scheduling


Change = Callable[[Left], Left | None]


# ------------------------------------------------------------ parts
def _journal(left: Left, journal: list[Entry]) -> Left:
    return replace(left, journal=journal)


def _with(left: Left, place: int, *more: Entry) -> Left:
    """These lines come before the line at this place."""
    return _journal(left, [*left.journal[:place], *more, *left.journal[place:]])


def _without(left: Left, place: int, *instead: Entry) -> Left:
    return _journal(left, [*left.journal[:place], *instead, *left.journal[place + 1 :]])


def _lines(left: Left, kind: str) -> Iterator[tuple[int, Entry]]:
    return ((place, line) for place, line in enumerate(left.journal) if line[0] == kind)


def _writes(left: Left, kind: type[Write]) -> Iterator[tuple[int, int, Any]]:
    """Place of the commit, place in it, and the write."""
    for place, (_, _, writes) in _lines(left, "commit"):
        yield from ((place, at, write) for at, write in enumerate(writes) if type(write) is kind)


def _rewritten(left: Left, place: int, at: int, *instead: Write) -> Left:
    """The write at this place of a commit is another one, several, or none."""
    kind, epoch, writes = left.journal[place]
    return _without(left, place, (kind, epoch, [*writes[:at], *instead, *writes[at + 1 :]]))


def _heads(left: Left) -> Iterator[tuple[int, ProcedureRecord | None, ProcedureRecord]]:
    """Each head that was stored, with the one before it, and the place of the commit."""
    before: dict[str, ProcedureRecord] = {}
    for place, _, write in _writes(left, PutProcedure):
        yield place, before.get(write.record.id), write.record
        before[write.record.id] = write.record


def _stored(*heads: ProcedureRecord) -> Entry:
    return ("commit", 1, [PutProcedure(head, None if number < 0 else _WAS) for number, head in enumerate(heads)])


_WAS: Any = object()
"""The checker asks only whether there is one."""


def _dumped(left: Left, **changed: Any) -> Left:
    return replace(left, dump=replace(left.dump, **changed))


def _succeeded(left: Left) -> ProcedureRecord | None:
    found = (head for head in left.dump.heads.values() if head.state is ProcedureState.SUCCESS and head.parent is None)
    return next((head for head in found if head.run == 1 and not head.bypassed), None)


# ------------------------------------------------------------ executions
def _enters(left: Left, *, warm: bool | None = None, mode: Mode = Mode.EXECUTE) -> Iterator[tuple[int, Entry]]:
    for place, line in _lines(left, "enter"):
        if line[1].mode is mode and (warm is None or line[5] is warm):
            yield place, line


def _two_run_at_once(left: Left) -> Left | None:
    return next((_with(left, place, line) for place, line in _enters(left)), None)


def _an_older_epoch_comes_after_a_newer_one(left: Left) -> Left | None:
    for place, (kind, token, *rest) in _enters(left):
        newer = replace(token, epoch=token.epoch + 1)
        return _with(left, place, (kind, newer, *rest), ("cut", newer))
    return None


def _a_step_runs_once_more_after_all(left: Left) -> Left | None:
    head = _succeeded(left)
    ran = [line for _, line in _enters(left) if head is not None and line[1].procedure == head.id]
    return _journal(left, [*left.journal, ran[-1]]) if ran else None


def _a_step_runs_again_at_once(left: Left) -> Left | None:
    for place, line in _lines(left, "exit"):
        began = left.journal[place - 1]
        if began[0] == "enter" and began[1] == line[1] and not isinstance(line[3], Failed | Refused):
            return _with(left, place + 1, began, line)
    return None


def _starts_with_another_state(*, warm: bool) -> Change:
    def change(left: Left) -> Left | None:
        for place, (kind, token, unit, _, *rest) in _enters(left, warm=warm):
            return _without(left, place, (kind, token, unit, b"another", *rest))
        return None

    return change


# ------------------------------------------------------------ the step log
def _a_record_is_written_twice(left: Left) -> Left | None:
    return next((_rewritten(left, place, at, write, write) for place, at, write in _writes(left, PutStep)), None)


def _a_record_is_left_out(left: Left) -> Left | None:
    for place, at, write in _writes(left, PutStep):
        if write.record.number > 1:
            return _rewritten(left, place, at, PutStep(replace(write.record, number=write.record.number + 1)))
    return None


def _children_are_miscounted(left: Left) -> Left | None:
    for id, head in left.dump.heads.items():
        if head.child_states:
            counts = (head.child_states[0] + 1, *head.child_states[1:])
            return _dumped(left, heads={**left.dump.heads, id: replace(head, child_states=counts)})
    return None


def _attempts_are_left_out(left: Left) -> Left | None:
    for place, _, write in _writes(left, PutAttempt):
        heads = [other.record for other in left.journal[place][2] if isinstance(other, PutProcedure)]
        failed = write.record
        if any(
            head.id == failed.procedure and head.step == failed.step and head.errors + head.crashes and not head.rolling
            for head in heads
        ):
            kind, epoch, writes = left.journal[place]
            kept = [other for other in writes if not isinstance(other, PutAttempt)]
            return _without(left, place, (kind, epoch, kept))
    return None


def _stored_attempts_are_others(left: Left) -> Left | None:
    if not any(left.dump.attempts.values()):
        return None
    return _dumped(left, attempts={name: [] for name in left.dump.attempts})


def _reports_are_left_out(left: Left) -> Left | None:
    for place, _, write in _writes(left, PutExposed):
        kind, epoch, writes = left.journal[place]
        records = [other.record.procedure for other in writes if isinstance(other, PutStep) and other.record.slot >= 0]
        if records.count(write.record.procedure) == 1:
            kept = [other for other in writes if other is not write]
            return _without(left, place, (kind, epoch, kept))
    return None


def _stored_values_are_others(left: Left) -> Left | None:
    return _dumped(left, exposed={}) if left.dump.exposed else None


def _tags_come_of_nothing(left: Left) -> Left | None:
    place, at, write = list(_writes(left, PutProcedure))[-1]
    other = PutProcedure(replace(write.record, tags=("at=none",)), write.was)
    return _rewritten(left, place, at, other)


def _a_state_is_not_found(left: Left) -> Left | None:
    for place, at, write in _writes(left, PutProcedure):
        past = write.record.past
        if write.was is not None and past is not None and past.searchable:
            other = replace(write.record, past=replace(past, searchable=()))
            return _rewritten(left, place, at, PutProcedure(other, write.was))
    return None


def _stored_tags_are_others(left: Left) -> Left | None:
    tagged = next((head for head in left.dump.heads.values() if head.tags), None)
    return None if tagged is None else _dumped(left, heads=left.dump.heads | {tagged.id: replace(tagged, tags=())})


def _an_end_is_taken_back(left: Left) -> Left | None:
    head = _succeeded(left)
    if head is None:
        return None
    return _journal(left, [*left.journal, _stored(replace(head, state=ProcedureState.RUNNABLE))])


def _steps_become(change: Callable[[list[Any]], list[Any]]) -> Change:
    def changed(left: Left) -> Left | None:
        head = _succeeded(left)
        if head is None:
            return None
        return _dumped(left, steps={**left.dump.steps, head.id: change(left.dump.steps[head.id])})

    return changed


# ------------------------------------------------------------ families
def _links(left: Left) -> Iterator[tuple[int, int, Any]]:
    return _writes(left, PutChild)


def _a_child_is_linked_twice(left: Left) -> Left | None:
    return next((_rewritten(left, place, at, write, write) for place, at, write in _links(left)), None)


def _the_first_child_is_not_linked(left: Left) -> Left | None:
    links = list(_links(left))
    for (place, at, write), (_, _, later) in pairwise(links):
        if (later.record.parent, later.record.step) == (write.record.parent, write.record.step):
            return _rewritten(left, place, at)
    return None


def _new_children(left: Left) -> Iterator[tuple[int, int, Any]]:
    found = _writes(left, PutProcedure)
    return (entry for entry in found if entry[2].was is None and entry[2].record.parent is not None)


def _a_child_is_created_twice(left: Left) -> Left | None:
    return next((_rewritten(left, place, at, write, write) for place, at, write in _new_children(left)), None)


def _a_child_comes_before_its_parent(left: Left) -> Left | None:
    waiting = (write for _, _, write in _new_children(left) if write.record.state not in TERMINAL)
    return next((_with(left, 0, ("commit", 1, [write])) for write in waiting), None)


def _a_parent_is_resumed_twice(left: Left) -> Left | None:
    for place, before, head in _heads(left):
        waited = before is not None and before.state is ProcedureState.WAITING and before.interrupted is None
        is_plain = not head.rolling and head.awaiting and head.state is ProcedureState.RUNNABLE
        if before is not None and waited and is_plain and before.step == head.step:
            return _with(left, place + 1, _stored(before, head))
    return None


def _who_was_not_resumed_sees_children(left: Left) -> Left | None:
    for place, line in _enters(left):
        if line[1].step == 1:
            return _with(left, place + 1, ("children", line[1], 0, ()))
    return None


def _children_are_seen(change: Callable[[tuple[Any, ...]], tuple[Any, ...] | None], *, twice: bool = False) -> Change:
    def changed(left: Left) -> Left | None:
        for place, (kind, token, since, rows) in _lines(left, "children"):
            other = change(rows)
            if other is not None and token.mode is Mode.EXECUTE:
                line = (kind, token, since, other)
                return _with(left, place + 1, line) if twice else _without(left, place, line)
        return None

    return changed


# ------------------------------------------------------------ locks and poison keys
def _poison_keys_are_gone_at_the_end(left: Left) -> Left | None:
    return _dumped(left, poisons=[]) if left.dump.poisons else None


def _a_poisoned_key_is_given(left: Left) -> Left | None:
    forward = {head.id for head in left.dump.heads.values() if head.state is ProcedureState.SUCCESS}
    for place, _, write in _writes(left, PutLock):
        if write.record.root in forward:
            poison = PoisonRecord(write.record.path, "stranger", "stranger", 0.0, "made up")
            return _with(left, place, ("commit", 1, [PutPoison(poison)]))
    return None


# ------------------------------------------------------------ undo
def _an_undo_runs_after_its_record(left: Left) -> Left | None:
    began: dict[tuple[str, str | None], Entry] = {}
    units = {(write.record.root, write.record.seq): write.record for _, _, write in _writes(left, PutUndo)}
    rolling = {place: head.id for place, _, head in _heads(left) if head.state not in TERMINAL and head.undone}
    for place, line in enumerate(left.journal):
        if line[0] == "enter" and line[1].mode is Mode.ROLLBACK:
            began[line[1].procedure, line[2]] = line
        for write in line[2] if line[0] == "commit" else ():
            unit = units.get((write.root, write.seq)) if type(write) is DeleteUndo else None
            entered = None if unit is None else began.get((unit.procedure, unit.label))
            if entered is not None and rolling.get(place) == unit.procedure:
                return _with(left, place + 1, entered, ("cut", entered[1]))
    return None


def _a_skipped_undo_is_listed_nowhere(left: Left) -> Left | None:
    if not any(write.record.outcome == "skipped" for _, _, write in _writes(left, PutStep)):
        return None
    for place, at, write in list(_writes(left, PutProcedure)):
        if write.record.leftovers:
            left = _rewritten(left, place, at, PutProcedure(replace(write.record, leftovers=()), write.was))
    return left


# ------------------------------------------------------------ callers and operators
def _a_handle_is_told_an_end_before_it(left: Left) -> Left | None:
    for place, before, head in _heads(left):
        if before is None and head.parent is None and head.state not in TERMINAL:
            return _with(left, place + 1, ("resolve", head.id, ProcedureState.SUCCESS, b""))
    return None


def _a_stored_procedure_is_told_to_be_unknown(left: Left) -> Left | None:
    for place, before, head in _heads(left):
        if before is None and head.parent is None:
            call = ("call", _NEW_REPLY, "abort", head.id, b"")
            return _with(left, place + 1, call, ("reply", _NEW_REPLY, None, UnknownProcedure("made up")))
    return None


def _a_signal_to_an_unknown_procedure_is_acknowledged(left: Left) -> Left | None:
    call = ("call", _NEW_REPLY, "signal", "never-submitted", b"payload")
    return _with(left, len(left.journal), call, ("reply", _NEW_REPLY, True, None))


def _an_acknowledged_root_is_gone(left: Left) -> Left | None:
    head = _succeeded(left)
    if head is None:
        return None
    heads = {id: other for id, other in left.dump.heads.items() if id != head.id}
    return _dumped(left, heads=heads)


def _nobody_submitted_a_root(left: Left) -> Left | None:
    head = _succeeded(left)
    if head is None:
        return None
    asked = {line[1] for _, line in _lines(left, "submit") if head.id in line[2]}
    gone = [line for line in left.journal if line[0] not in {"submit", "reply"} or line[1] not in asked]
    return _journal(left, gone) if asked else None


def _the_bystander_is_charged(left: Left) -> Left | None:
    for place, at, write in _writes(left, PutProcedure):
        if write.record.id == left.bystander:
            return _rewritten(left, place, at, PutProcedure(replace(write.record, errors=1), write.was))
    return None


def _the_bystander_fails(left: Left) -> Left | None:
    if left.bystander not in left.dump.heads:
        return None
    head = left.dump.heads[left.bystander]
    return _dumped(left, heads={**left.dump.heads, head.id: replace(head, state=ProcedureState.FAILED)})


def _fewer_roots_might_run(left: Left) -> Left | None:
    if left.scheduling.max_running is None:
        return None
    return replace(left, scheduling=replace(left.scheduling, max_running=0))


def _there_are_no_slots(left: Left) -> Left | None:
    none = dict.fromkeys(left.scheduling.concurrency, 0)
    return replace(left, scheduling=replace(left.scheduling, concurrency=none)) if none else None


def _a_signal_goes_to_two(left: Left) -> Left | None:
    for place, _, head in _heads(left):
        others = [other for at, _, other in _heads(left) if at < place and other.id != head.id]
        if others and (head.payload or b"").startswith(b"signal id "):
            return _with(left, place + 1, _stored(replace(others[-1], payload=head.payload)))
    return None


def _too_much_is_trimmed(left: Left) -> Left | None:
    place, at, write = next(_writes(left, TrimLog), (0, 0, None))
    return None if write is None else _rewritten(left, place, at, replace(write, last=write.last + 100))


# ------------------------------------------------------------ schedules
def _moves(left: Left) -> list[tuple[int, int, Any]]:
    """Rows of the first schedule that fired twice, each with another firing than the one before it."""
    found: dict[str, list[tuple[int, int, Any]]] = {}
    for place, at, write in _writes(left, PutSchedule):
        rows = found.setdefault(write.record.id, [])
        if write.record.fired and (not rows or rows[-1][2].record.fired != write.record.fired):
            rows.append((place, at, write))
    return next((rows for rows in found.values() if len(rows) > 1), [])


def _row_becomes(change: Callable[[Any, Any], dict[str, Any]]) -> Change:
    """The second firing of a schedule has a row that is changed by the one before it."""

    def changed(left: Left) -> Left | None:
        first, second = [*_moves(left), None, None][:2]
        if first is None or second is None or first[2].record.anchor != second[2].record.anchor:
            return None
        place, at, write = second
        return _rewritten(left, place, at, PutSchedule(replace(write.record, **change(first[2].record, write.record))))

    return changed


def _a_firing_comes_twice(left: Left) -> Left | None:
    first, second = [*_moves(left), None, None][:2]
    if first is None or second is None:
        return None
    id_ = first[2].record.id_of(first[2].record.fired)
    made = next((w for _, _, w in _writes(left, PutProcedure) if w.record.id == id_ and w.was is None), None)
    place, at, write = second
    return None if made is None else _rewritten(left, place, at, write, made, first[2])


def _a_firing_comes_alone(left: Left) -> Left | None:
    rows = _moves(left)
    return _rewritten(left, rows[0][0], rows[0][1]) if rows else None


# ------------------------------------------------------------ what is enqueued
def _a_row_goes_alone(left: Left) -> Left | None:
    """A row is taken out in a commit that creates no procedure of it."""
    for place, at, write in _writes(left, PutProcedure):
        new = NewProcedure(id="lost", type_name=write.record.type_name, state=b"", digest=b"d")
        row = EnqueuedRecord(key=waiting_key(1.0, bytes(8)), at=1.0, new=new)
        changed = _rewritten(left, place, at, write, DeleteEnqueued(row.key))
        return _with(changed, place, ("enqueued", row))
    return None


# ------------------------------------------------------------ running steps whose undo is decided
_FORCE = "aborted by force"


def _sent(left: Left, *modes: Mode, is_beyond: bool = False) -> Iterator[tuple[int, Any, ProcedureRecord]]:
    """Steps that were sent, each with the head that was durable then; those past the point of no return, or not."""
    heads: dict[str, ProcedureRecord] = {}
    for place, line in enumerate(left.journal):
        if line[0] == "commit":
            heads.update((write.record.id, write.record) for write in line[2] if type(write) is PutProcedure)
        elif line[0] == "sent" and line[1].mode in modes and line[1].procedure in heads:
            head = heads[line[1].procedure]
            if is_beyond == (head.unit_no_return and head.step == line[1].step):
                yield place, line[1], head


def _is_told(*modes: Mode, is_beyond: bool = False) -> Change:
    def change(left: Left) -> Left | None:
        found = _sent(left, *modes, is_beyond=is_beyond)
        return next((_with(left, place + 1, ("ask-abort", token)) for place, token, _ in found), None)

    return change


def _is_killed(*modes: Mode, is_beyond: bool = False) -> Change:
    def change(left: Left) -> Left | None:
        found = _sent(left, *modes, is_beyond=is_beyond)
        return next((_with(left, place + 1, ("kill", token, _FORCE)) for place, token, _ in found), None)

    return change


def _a_kill_is_charged(left: Left) -> Left | None:
    for place, token, head in _sent(left, Mode.EXECUTE):
        charged = _stored(replace(head, crashes=head.crashes + 1))
        return _with(left, place + 1, ("ask-abort", token), ("kill", token, _FORCE), charged)
    return None


def _a_kill_by_an_operator_is_charged(left: Left) -> Left | None:
    for place, token, head in _sent(left, Mode.EXECUTE):
        charged = _stored(replace(head, errors=head.errors + 1))
        return _with(left, place + 1, ("kill", token, BY_OPERATOR), charged)
    return None


def _a_running_step_is_not_told(left: Left) -> Left | None:
    decided = {
        (place, head.id)
        for place, before, head in _heads(left)
        if head.rolling and not head.bypassing and before is not None and not before.rolling
    }
    commit = -1
    running: set[Any] = set()
    at_commit: set[Any] = set()
    for place, line in enumerate(left.journal):
        if line[0] == "commit":
            commit, at_commit = place, set(running)
        elif line[0] == "sent":
            running.add(line[1])
        elif line[0] in {"exit", "cut", "returned"}:
            running.discard(line[1])
        elif line[0] == "worker-died":
            running = {token for token in running if token.worker != line[1]}
        elif line[0] == "host-died":
            running.clear()
        elif line[0] == "ask-abort":
            if (commit, line[1].procedure) not in decided or line[1] not in at_commit:
                running.discard(line[1])  # told before, for an abort that was asked for
                continue
            return _with(_without(left, place), place, _stored())
    return None


# ------------------------------------------------------------ new code
def _old_code_runs_after_new(left: Left) -> Left | None:
    old: tuple[Any, ...] = ()
    for place, line in enumerate(left.journal):
        if line[0] == "reload":
            old = line[1]
        elif line[0] == "host-died":
            old = ()
        elif line[0] in {"worker-died", "worker-left"}:
            old = tuple(worker for worker in old if worker != line[1])
        elif line[0] == "enter" and old and line[1].worker not in old:
            return _with(left, place + 1, ("sent", replace(line[1], worker=old[-1], mode=Mode.ASK_ABORT), 1, False))
    return None


def _placed(left: Left) -> Iterator[tuple[int, int, Any]]:
    return ((place, at, write) for place, at, write in _writes(left, PutStep) if write.record.outcome == "placed")


def _nothing_placed_a_saga(left: Left) -> Left | None:
    for _, _, write in _placed(left):
        name = write.record.procedure
        return _journal(left, [line for line in left.journal if line[0] != "exit" or line[1].procedure != name])
    return None


def _a_placed_saga_sees_something_else(left: Left) -> Left | None:
    for place, _, write in _placed(left):
        for at, head in enumerate(left.journal[place][2]):
            if type(head) is PutProcedure and head.record.id == write.record.procedure and not head.record.rolling:
                return _rewritten(left, place, at, PutProcedure(replace(head.record, payload=b"another"), head.was))
    return None


def _the_undo_of_a_placed_step_stays(left: Left) -> Left | None:
    for place, _, _ in _placed(left):
        for at, write in enumerate(left.journal[place][2]):
            if type(write) is DeleteUndo:
                return _rewritten(left, place, at)
    return None


def _the_undo_of_a_refused_attempt_stays(left: Left) -> Left | None:
    for place, at, write in _writes(left, PutUndo):
        heads = [other.record for other in left.journal[place][2] if type(other) is PutProcedure]
        is_parked = any(head.id == write.record.procedure and head.parked and not head.rolling for head in heads)
        before = left.journal[max(0, place - 12) : place]
        kinds = {line[0] for line in before}
        if write.record.attempt > 1 and is_parked and kinds.isdisjoint({"host-died", "worker-died", "commit-failed"}):
            return _rewritten(left, place, at)
    return None


def _an_unfinished_procedure_is_removed(left: Left) -> Left | None:
    for place, before, head in _heads(left):
        if before is not None and head.state not in TERMINAL:
            return _with(left, place + 1, ("commit", 1, [DeleteProcedure(head)]))
    return None


def _a_result_is_taken_and_stays(left: Left) -> Left | None:
    head = _succeeded(left)
    if head is None or head.children:
        return None
    call = ("call", _NEW_REPLY, "taken", head.id, b"")
    return _with(left, len(left.journal), call, ("reply", _NEW_REPLY, (), None))


# ------------------------------------------------------------ restarts
def _created_anew(left: Left, least: int) -> Iterator[tuple[int, int, ProcedureRecord]]:
    """Roots that began a generation of this number or a later one with a submit, and their places."""
    for place, at, write in _writes(left, PutProcedure):
        if write.was is None and write.record.generation >= least:
            yield place, at, write.record


def _a_generation_is(least: int, change: Callable[[ProcedureRecord], ProcedureRecord]) -> Change:
    """The first head of a generation of at least this number is another one."""

    def doctor(left: Left) -> Left | None:
        for place, at, record in _created_anew(left, least):
            return _rewritten(left, place, at, PutProcedure(change(record), None))
        return None

    return doctor


def _a_submit_restarts_twice(left: Left) -> Left | None:
    for place, at, record in _created_anew(left, 3):
        if record.past is not None and len(record.tokens) > TOKEN:
            past = replace(record.past, tokens=record.tokens[TOKEN:])
            return _rewritten(left, place, at, PutProcedure(replace(record, past=past), None))
    return None


def _a_restart_leaves_no_token(left: Left) -> Left | None:
    granted = {line[1] for _, line in _lines(left, "reply") if line[3] is None}
    for place, (kind, reply, id_, _) in _lines(left, "resubmit"):
        if reply in granted:
            return _without(left, place, (kind, reply, id_, b"another!"))
    return None


def _placed_steps(left: Left) -> Iterator[tuple[int, int, str]]:
    """Executions of steps that ask for a host: the places of the lines about worker and host, and the host."""
    demands: dict[str, tuple[str, ...]] = {}
    types: dict[str, str] = {}
    workers: dict[object, tuple[int, str]] = {}
    hosts: dict[str, int] = {}
    for place, (kind, *fields) in enumerate(left.journal):
        if kind == "demand" and fields[1] and fields[2]:
            demands[fields[0]] = fields[1]
        elif kind == "host":
            hosts[fields[0]] = place
        elif kind == "worker-on":
            workers[fields[0]] = place, fields[1]
        elif kind == "commit":
            types |= {write.record.id: write.record.type_name for write in fields[1] if isinstance(write, PutProcedure)}
        elif kind == "enter" and fields[0].mode is Mode.EXECUTE and types.get(fields[0].procedure) in demands:
            at, host = workers[fields[0].worker]
            yield at, hosts[host], host


def _a_step_runs_on_another_host(left: Left) -> Left | None:
    for at, _, _ in _placed_steps(left):
        kind, worker, _ = left.journal[at]
        return _without(left, at, (kind, worker, "cpus"))
    return None


def _a_host_has_less(left: Left) -> Left | None:
    for _, at, _ in _placed_steps(left):
        kind, name, labels, _ = left.journal[at]
        return _without(left, at, (kind, name, labels, {}))
    return None


def _on_a_host(token: StepToken, *, later: int = 0) -> StepToken:
    """The token of a step that a worker of another host has, maybe of a later attempt."""
    return replace(token, worker=WorkerId(1000, 1), attempt=token.attempt + later)


def _a_step_runs_again_beside_a_live_host(left: Left) -> Left | None:
    for at, (kind, token, *rest) in _lines(left, "enter"):
        if token.mode is Mode.EXECUTE:
            return _with(left, at, (kind, _on_a_host(token), *rest), (kind, _on_a_host(token, later=1), *rest))
    return None


def _a_step_is_charged_with_its_host(left: Left) -> Left | None:
    heads: dict[str, ProcedureRecord] = {}
    for place, _, write in _writes(left, PutProcedure):
        record = write.record
        before = heads.get(record.id)
        heads[record.id] = record
        if (
            before is not None
            and record.errors > before.errors
            and (record.run, record.step) == (before.run, before.step)
        ):
            token = StepToken(1, WorkerId(1000, 1), record.id, record.step, record.attempt, Mode.EXECUTE)
            return _with(left, place, ("sent", token, record.records, False), ("worker-gone", token.worker, True))
    return None


def _a_step_is_alone_beside_another(left: Left) -> Left | None:
    """The worker of a step that runs elsewhere is on the host of a step that runs alone."""
    losses: dict[str, int] = {}
    workers: dict[object, tuple[int, str]] = {}
    running: dict[str, object] = {}
    for place, (kind, *fields) in enumerate(left.journal):
        if kind == "worker-on":
            workers[fields[0]] = place, fields[1]
        elif kind == "commit":
            writes = [write for write in fields[1] if isinstance(write, PutProcedure)]
            losses |= {write.record.id: write.record.host_losses for write in writes}
        elif kind in {"exit", "cut"}:
            running.pop(fields[0].procedure, None)
        elif kind == "host-died":
            running.clear()
        elif kind == "enter" and fields[0].mode is not Mode.ASK_ABORT:
            token = fields[0]
            if losses.get(token.procedure, 0) >= 3 and running:
                at, _ = workers[next(iter(running.values()))]
                worker = left.journal[at][1]
                return _without(left, at, ("worker-on", worker, workers[token.worker][1]))
            running[token.procedure] = token.worker
    return None


def _a_step_runs_where_the_code_is_another(left: Left) -> Left | None:
    types: dict[str, str] = {}
    workers: dict[object, str] = {}
    codes: dict[str, int] = {}
    for place, (kind, *fields) in enumerate(left.journal):
        if kind == "worker-on":
            workers[fields[0]] = fields[1]
        elif kind == "code":
            codes[fields[0]] = place
        elif kind == "commit":
            types |= {write.record.id: write.record.type_name for write in fields[1] if isinstance(write, PutProcedure)}
        elif kind == "enter" and fields[0].mode is Mode.EXECUTE and workers.get(fields[0].worker) in codes:
            host = workers[fields[0].worker]
            return _without(left, codes[host], ("code", host, (types[fields[0].procedure],)))
    return None


# ------------------------------------------------------------ debounced submits
def _debounced(left: Left) -> Iterator[tuple[int, int, ProcedureRecord | None, ProcedureRecord]]:
    """Heads of roots that were submitted so, with those before them, and their places."""
    before: dict[str, ProcedureRecord] = {}
    for place, at, write in _writes(left, PutProcedure):
        record = write.record
        if record.past is not None and record.past.debounce is not None and record.generation == 1:
            yield place, at, before.get(record.id), record
        before[record.id] = record


def _marked(record: ProcedureRecord, **changed: Any) -> ProcedureRecord:
    assert record.past is not None
    assert record.past.debounce is not None
    return replace(record, past=replace(record.past, debounce=replace(record.past.debounce, **changed)))


def _a_debounced_submit_counts_twice(left: Left) -> Left | None:
    for place, at, before, record in _debounced(left):
        assert record.past is not None
        assert record.past.debounce is not None
        (name, tokens), *others = record.past.debounce.runs
        if before is not None and len(tokens) > TOKEN and is_debounced(record) and before.past is not None:
            twice = _marked(record, runs=((name, tokens[TOKEN:] + tokens), *others))
            return _rewritten(left, place, at, PutProcedure(twice, _WAS))
    return None


def _a_wait_is_longer(left: Left) -> Left | None:
    for place, at, before, record in _debounced(left):
        if before is None and is_debounced(record):
            return _rewritten(left, place, at, PutProcedure(replace(record, due_at=1e9), None))
    return None


def _a_wait_ends_early(left: Left) -> Left | None:
    for place, at, before, record in _debounced(left):
        is_over = record.past is not None and record.past.debounce is not None and not record.past.debounce.waits
        if before is not None and is_debounced(before) and is_over:
            return _rewritten(left, place, at, PutProcedure(replace(record, updated_at=0.0), _WAS))
    return None


def _two_wait_for_a_key(left: Left) -> Left | None:
    waiting: dict[str, str] = {}
    for place, at, before, record in _debounced(left):
        assert record.past is not None
        assert record.past.debounce is not None
        key = record.past.debounce.key
        if before is None and is_debounced(record) and (other := next((k for k in waiting if k != key), None)):
            return _rewritten(left, place, at, PutProcedure(_marked(record, key=other), None))
        waiting.pop(key, None)
        if is_debounced(record):
            waiting[key] = record.id
    return None


def _an_earlier_state_stays(left: Left) -> Left | None:
    names = {record.id for _, _, _, record in _debounced(left)}
    for place, at, write in _writes(left, PutStep):
        if write.record.procedure in names and write.record.number == 1:
            return _rewritten(left, place, at, PutStep(replace(write.record, state=b"0:7:0")))
    return None


def _another_run_is_answered(left: Left) -> Left | None:
    calls = {line[1] for _, line in _lines(left, "debounce")}
    for place, (kind, reply, _, error) in _lines(left, "reply"):
        if reply in calls and error is None:
            return _without(left, place, (kind, reply, ("k9:9",), None))
    return None


# ------------------------------------------------------------ asks
def _replies(left: Left) -> Iterator[tuple[int, int, Any]]:
    return _writes(left, PutReply)


def _an_ask_is_answered_twice(left: Left) -> Left | None:
    return next((_rewritten(left, place, at, write, write) for place, at, write in _replies(left)), None)


def _a_reply_is_of_no_step(left: Left) -> Left | None:
    for place, at, write in _replies(left):
        return _rewritten(left, place, at, PutReply(replace(write.record, value=b"another")))
    return None


def _a_reply_goes_alone(left: Left) -> Left | None:
    for place, at, write in _replies(left):
        return _rewritten(left, place, at, write, DeleteReply(write.record.procedure, write.record.mark))
    return None


def _a_reply_is_left_out(left: Left) -> Left | None:
    return next((_rewritten(left, place, at) for place, at, _ in _replies(left)), None)


def _an_ask_goes_to_another_wait(left: Left) -> Left | None:
    waits = {(write.record.procedure, write.record.number): (place, at) for place, at, write in _writes(left, PutStep)}
    for _, _, head in _heads(left):
        ask = ask_of(head.payload)
        if ask is not None and not head.rolling:
            place, at = waits[head.id, head.state_at or head.records]
            record = left.journal[place][2][at].record
            return _rewritten(left, place, at, PutStep(replace(record, awaits="another")))
    return None


def _an_ask_is_taken_again(left: Left) -> Left | None:
    for place, _, write in _replies(left):
        for at, _, head in _heads(left):
            if at == place and head.id == write.record.procedure:
                again = enclosed(AskKey(write.record.name, write.record.ask), b"")
                return _with(left, place + 1, _stored(replace(head, payload=again)))
    return None


def _one_who_asked_is_told(*said: Any) -> Change:
    """A change that tells a caller this of a new root, which has neither taken the ask nor ended."""
    kind, *rest = said

    def change(left: Left) -> Left | None:
        for place, before, head in _heads(left):
            if before is None and head.parent is None and head.state not in TERMINAL:
                return _with(left, place + 1, (kind, head.id, AskKey("ask0", "made up"), *rest))
        return None

    return change


def _another_reply_is_told(left: Left) -> Left | None:
    for place, (kind, id, ask, value) in _lines(left, "resolve-ask"):
        if value is not None:
            return _without(left, place, (kind, id, ask, b"another"))
    return None


def _an_end_is_told_instead_of_a_reply(left: Left) -> Left | None:
    for place, _, write in _replies(left):
        ask = AskKey(write.record.name, write.record.ask)
        return _with(left, place + 1, ("ask-ended", write.record.procedure, ask))
    return None


CHANGES: dict[str, tuple[int, str, Change]] = {
    "a debounced submit counts twice": (33, "one submit changed", _a_debounced_submit_counts_twice),
    "a debounced root waits longer": (33, "and should until", _a_wait_is_longer),
    "a debounced root begins early": (33, "before its time", _a_wait_ends_early),
    "two debounced roots wait for a key": (33, "waits beside", _two_wait_for_a_key),
    "a debounced root begins with an earlier state": (33, "and its last submit was", _an_earlier_state_stays),
    "a debounced submit is answered with another run": (33, "and is durable in", _another_run_is_answered),
    "an ask is answered twice": (20, "was answered twice", _an_ask_is_answered_twice),
    "a reply is of no step": (20, "and no step has answered so", _a_reply_is_of_no_step),
    "a reply goes without its procedure": (20, "is gone, and that procedure is not", _a_reply_goes_alone),
    "a reply is left out": (20, "ended well, and no reply is noted", _a_reply_is_left_out),
    "an ask goes to another wait": (20, "and waited for another", _an_ask_goes_to_another_wait),
    "an ask is taken again": (20, "which has its reply", _an_ask_is_taken_again),
    "an ask is told to be gone": (20, "told that the ask is gone", _one_who_asked_is_told("resolve-ask", None)),
    "another reply is told": (20, "was told b'another'", _another_reply_is_told),
    "an end is told instead of a reply": (20, "told of its end, and stored is", _an_end_is_told_instead_of_a_reply),
    "who asked is told an end before it": (20, "end, and it has not ended", _one_who_asked_is_told("ask-ended")),
    "a row goes without its procedure": (34, "and took out the rows of", _a_row_goes_alone),
    "a firing comes twice": (28, "fired twice", _a_firing_comes_twice),
    "a firing comes without its schedule": (28, "and moved schedules for", _a_firing_comes_alone),
    "a schedule fires behind itself": (
        28,
        " behind ",
        _row_becomes(lambda before, _: {"fired": before.fired - 1}),
    ),
    "a schedule fires between its instants": (
        28,
        "which is no instant of",
        _row_becomes(lambda _, row: {"fired": row.fired + 1}),
    ),
    "a watermark goes back": (
        28,
        "went back from",
        _row_becomes(lambda before, _: {"watermark": before.watermark - 1.0}),
    ),
    "tags come of nothing": (35, "has the tags", _tags_come_of_nothing),
    "a state is not found": (35, "is found by", _a_state_is_not_found),
    "stored tags are others": (35, "is left with the tags", _stored_tags_are_others),
    "a step runs where the code is another": (27, "has other code", _a_step_runs_where_the_code_is_another),
    "a step is alone beside another": (27, "to have it for itself", _a_step_is_alone_beside_another),
    "a step runs on another host": (27, "and asks for", _a_step_runs_on_another_host),
    "a host has less than steps take": (27, "steps take", _a_host_has_less),
    "a step runs again beside a live host": (31, "runs again, although nothing", _a_step_runs_again_beside_a_live_host),
    "a step is charged with its host": (32, "was lost with its host, and charged", _a_step_is_charged_with_its_host),
    "an undo is told of an abort": (22, "undoes, and was told", _is_told(Mode.ROLLBACK)),
    "an undo is killed for an abort": (22, "undoes, and was killed", _is_killed(Mode.ROLLBACK)),
    "a step past the point of no return is told": (
        22,
        "is past the point of no return, and was told",
        _is_told(Mode.EXECUTE, is_beyond=True),
    ),
    "a step past the point of no return is killed": (
        22,
        "is past the point of no return, and was killed",
        _is_killed(Mode.EXECUTE, is_beyond=True),
    ),
    "a step is killed that was not told": (22, "and had not been told", _is_killed(Mode.EXECUTE)),
    "a kill for an abort is charged": (22, "for an abort, and charged with it", _a_kill_is_charged),
    "a kill by an operator is charged": (22, "by an operator, and charged with it", _a_kill_by_an_operator_is_charged),
    "a running step is not told": (22, "and it was not told", _a_running_step_is_not_told),
    "a procedure begins as its second generation": (
        14,
        "yet it had not ended",
        _a_generation_is(1, lambda record: replace(record, generation=2)),
    ),
    "a generation is left out": (
        14,
        "behind",
        _a_generation_is(2, lambda record: replace(record, generation=record.generation + 1)),
    ),
    "a submit restarts twice": (20, "one submit of", _a_submit_restarts_twice),
    "a restart leaves no token": (1, "the restart of", _a_restart_leaves_no_token),
    "two run at once": (8, "still runs", _two_run_at_once),
    "an older epoch comes after a newer one": (7, "runs after epoch", _an_older_epoch_comes_after_a_newer_one),
    "a step runs after the end": (7, "runs although", _a_step_runs_once_more_after_all),
    "a step runs whose result is stored": (6, "its result is durable", _a_step_runs_once_more_after_all),
    "a step runs again for nothing": (6, "nothing happened since its answer", _a_step_runs_again_at_once),
    "a step starts with another state": (9, "starts with", _starts_with_another_state(warm=False)),
    "a worker goes on with another state": (9, "goes on warm", _starts_with_another_state(warm=True)),
    "a record is written twice": (4, "was written twice", _a_record_is_written_twice),
    "children are miscounted": (12, "counts its children as", _children_are_miscounted),
    "attempts are left out": (25, "no attempt was recorded", _attempts_are_left_out),
    "stored attempts are others": (25, "the attempts stored of", _stored_attempts_are_others),
    "reports are left out": (26, "and its end is stored without that", _reports_are_left_out),
    "shown values are others": (26, "the values that", _stored_values_are_others),
    "a record is left out": (4, "after the one before it", _a_record_is_left_out),
    "an end is taken back": (14, "was SUCCESS and became RUNNABLE", _an_end_is_taken_back),
    "the last record is gone": (4, "has numbers", _steps_become(lambda steps: steps[:-1])),
    "a log is trimmed too far": (4, "were trimmed", _too_much_is_trimmed),
    "a record in the middle is gone": (
        4,
        "trimmed up to",
        _steps_become(lambda steps: steps[:1] + steps[2:] if len(steps) > 2 else []),
    ),
    "a record has changed": (
        4,
        "changed after its commit",
        _steps_become(lambda steps: [replace(steps[0], state=b"another"), *steps[1:]]),
    ),
    "the closing record is none": (
        14,
        "succeeded with 0 closing records",
        _steps_become(lambda steps: [*steps[:-1], replace(steps[-1], kind=StepKind.STEP)]),
    ),
    "a child is linked twice": (13, "was linked twice", _a_child_is_linked_twice),
    "the first child is not linked": (13, "have the places", _the_first_child_is_not_linked),
    "a child is created twice": (13, "was created twice", _a_child_is_created_twice),
    "a child comes before its parent": (13, "was stored before its parent", _a_child_comes_before_its_parent),
    "a parent is resumed twice": (12, "was resumed twice", _a_parent_is_resumed_twice),
    "who was not resumed sees children": (12, "was never resumed for it", _who_was_not_resumed_sees_children),
    "a child is seen with another output": (
        12,
        ", it is ",
        _children_are_seen(lambda rows: ((*rows[0][:2], b"another"), *rows[1:]) if rows else None),
    ),
    "a repeated step sees its children otherwise": (
        12,
        "an execution before it saw",
        _children_are_seen(lambda rows: rows[::-1] if len(rows) > 1 else None, twice=True),
    ),
    "poison keys are gone": (10, "the commits left", _poison_keys_are_gone_at_the_end),
    "a poisoned key is given": (10, "had poisoned as", _a_poisoned_key_is_given),
    "an undo runs after its record": (11, "again after its record", _an_undo_runs_after_its_record),
    "a skipped undo is listed nowhere": (11, "was skipped and", _a_skipped_undo_is_listed_nowhere),
    "a handle is told an end before it": (20, "yet it has not ended", _a_handle_is_told_an_end_before_it),
    "a stored procedure is told to be unknown": (20, "yet it is stored", _a_stored_procedure_is_told_to_be_unknown),
    "an acknowledged root is gone": (1, "was acknowledged and is not in the store", _an_acknowledged_root_is_gone),
    "nobody submitted a root": (2, "was never submitted", _nobody_submitted_a_root),
    "the bystander is charged": (17, "was charged with an error", _the_bystander_is_charged),
    "the bystander fails": (17, "the bystander is FAILED", _the_bystander_fails),
    "more roots run than may": (21, "roots run, 0 may", _fewer_roots_might_run),
    "slots are given that are not there": (21, "hold slots of", _there_are_no_slots),
    "a signal to an unknown procedure is acknowledged": (
        20,
        "there is no such procedure",
        _a_signal_to_an_unknown_procedure_is_acknowledged,
    ),
    "old code runs after new code": (24, "was handed to a worker with old code", _old_code_runs_after_new),
    "nothing placed a saga": (24, "no code placed it", _nothing_placed_a_saga),
    "a placed saga sees something else": (24, "sees", _a_placed_saga_sees_something_else),
    "the undo of a step that was placed stays": (24, "stays", _the_undo_of_a_placed_step_stays),
    "the undo of a refused attempt stays": (24, "was refused unbegun", _the_undo_of_a_refused_attempt_stays),
    "an unfinished procedure is removed": (1, "before it had ended", _an_unfinished_procedure_is_removed),
    "a result is taken and stays": (20, "was taken, and it is still stored", _a_result_is_taken_and_stays),
    "a signal goes to two": (20, "was delivered to", _a_signal_goes_to_two),
}
"""What is done to a history, the number of the promise that is broken by it, and words of what must be said."""
