"""The journal, the referee, and the check of real histories: each broken promise is seen in a history that breaks it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from actorproc.model.policies import LockKey, LockMode
from actorproc.model.rows.records import LockRecord, ProcedureRecord, StepKind, StepRecord
from actorproc.model.states import ProcedureState
from actorproc.testing.histories.real_histories import check_journal
from actorproc.testing.journal import Journal, JournalLine, Referee
from tests.simulator.rules.invariants import StoreDump

HOST, WORKER, OTHER = 100, 101, 102


def line(kind: str, id: str = "A", step: int = 0, **more) -> JournalLine:
    root, _, child = id.partition(".")
    mode = more.pop("mode", "execute" if step else "")
    fields = {"at": 0, "pid": WORKER, "host": HOST, "epoch": 1 if step else 0, "parent": root if child else None}
    return JournalLine(kind=kind, procedure=id, root=root, step=step, mode=mode, **(fields | more))


def run(id: str, step: int, **more) -> list[JournalLine]:
    """A whole execution; forward, the state after step n is "n"."""
    forward = more.get("mode", "execute") == "execute"
    return [
        line("enter", id, step, state=str(step - 1) if forward else "", **more),
        line("exit", id, step, state=str(step) if forward else "", **more),
    ]


def head(id: str, state: ProcedureState, records: int, **more) -> ProcedureRecord:
    root, _, child = id.partition(".")
    parent = root if child else None
    return ProcedureRecord(
        id=id, type_name="T", version=1, root=root, parent=parent, seq=1, state=state, records=records, **more
    )


def log(id: str, *kinds: StepKind) -> list[StepRecord]:
    return [
        StepRecord(procedure=id, number=number, kind=kind, at=0.0, slot=-1 if number == 1 else 0, label="u")
        for number, kind in enumerate(kinds, 1)
    ]


SUBMIT = [line("submitted"), line("acknowledged")]
STEP, COMMIT, ROLLBACK = StepKind.STEP, StepKind.COMMIT, StepKind.ROLLBACK


def sound() -> tuple[list[JournalLine], StoreDump]:
    """A parent of two steps with one child between them."""
    lines = [*SUBMIT, *run("A", 1), *run("A.1", 1), *run("A", 2), line("resolved", text="SUCCESS")]
    heads = {
        "A": head("A", ProcedureState.SUCCESS, 3, children=1),
        "A.1": head("A.1", ProcedureState.SUCCESS, 2),
    }
    return lines, StoreDump(heads, {"A": log("A", STEP, STEP, COMMIT), "A.1": log("A.1", STEP, COMMIT)}, [], [])


def undone() -> tuple[list[JournalLine], StoreDump]:
    """Two units, undone in reverse."""
    forward = [*run("A", 1, unit="u"), *run("A", 2, unit="v")]
    back = [*run("A", 2, mode="rollback", unit="v"), *run("A", 2, mode="rollback", unit="u")]
    heads = {"A": head("A", ProcedureState.ROLLEDBACK, 2, rollback_supported=True)}
    return [*SUBMIT, *forward, *back], StoreDump(heads, {"A": log("A", STEP, STEP)}, [], [])


def numbers(lines: list[JournalLine], dump: StoreDump) -> set[int]:
    return {violation.number for violation in check_journal(lines, dump)}


def test_a_sound_history_breaks_nothing() -> None:
    assert check_journal(*sound()) == []
    assert check_journal(*undone()) == []


def test_a_lost_root_and_a_ghost_are_seen() -> None:
    lines, dump = sound()

    assert 1 in numbers([*lines, line("acknowledged", "B")], dump)
    assert 2 in numbers([*lines, *run("B", 1)], dump)
    assert 2 in numbers(lines[1:], dump)


def test_a_record_nobody_executed_is_seen() -> None:
    lines, dump = sound()

    assert numbers([entry for entry in lines if entry.procedure != "A.1"], dump) == {3}
    dump.steps["A.1"].pop()
    assert numbers(lines, dump) == {4, 14}


def test_a_repeated_step_needs_a_kill() -> None:
    lines, dump = sound()
    again = [*SUBMIT, *run("A", 1), *run("A", 1), *lines[4:]]
    killed = [*SUBMIT, *run("A", 1), line("killing", "", pid=WORKER), *run("A", 1, pid=OTHER), *lines[4:]]
    restarted = [*SUBMIT, *run("A", 1), line("killing", "", pid=HOST), *run("A", 1, epoch=2, pid=OTHER, host=9)]

    assert numbers(again, dump) == {6}
    assert numbers(killed, dump) == set()
    assert numbers([*restarted, *(msgspec.structs.replace(entry, epoch=2) for entry in lines[4:])], dump) == set()


def test_a_step_that_goes_back_is_seen() -> None:
    lines, dump = sound()

    assert 6 in numbers([*lines[:-1], *run("A", 1)], dump)


def test_steps_of_old_epochs_and_after_the_end_are_seen() -> None:
    lines, dump = sound()

    assert 7 in numbers([*lines, *run("A", 3)], dump)
    assert 7 in numbers([*SUBMIT, *run("A", 1, epoch=2), *lines[4:]], dump)
    assert 7 in numbers([*undone()[0], *run("A", 3)], undone()[1])


def test_two_runners_are_seen() -> None:
    lines, dump = sound()
    entered = line("enter", "A", 1, state="0", pid=OTHER)

    assert 8 in numbers([*SUBMIT, entered, *lines[2:]], dump)
    assert numbers([*SUBMIT, entered, line("killing", "", pid=OTHER), *lines[2:]], dump) == set()


def test_a_step_that_began_when_its_host_was_dead_is_cut_short_with_it() -> None:
    lines, dump = sound()
    orphan = line("enter", step=1, state="0", host=1)
    again = [*run("A", 1, epoch=2, pid=OTHER, host=9), *run("A.1", 1, epoch=2, host=9)]
    rest = [*run("A", 2, epoch=2, pid=OTHER, host=9), lines[-1]]

    # The kill is of a process that no line of that epoch has as its host.
    assert numbers([*SUBMIT, line("killing", "", pid=HOST), orphan, *again, *rest], dump) == set()
    alive = line("enter", step=1, state="0")
    assert numbers([*SUBMIT, alive, *again, *rest], dump) == {8}


def test_a_step_from_another_state_is_seen() -> None:
    lines, dump = sound()
    lines[6] = msgspec.structs.replace(lines[6], state="stale")

    assert numbers(lines, dump) == {9}


def test_a_conflict_and_a_lock_left_behind_are_seen() -> None:
    lines, dump = sound()

    assert numbers([*lines, line("conflict", "A", 1)], dump) == {10}
    dump.locks.append(LockRecord("a", LockMode.WRITE, "A", "A", 0.0))
    assert numbers(lines, dump) == {10}


def test_undo_out_of_order_or_left_out_is_seen() -> None:
    lines, dump = undone()

    assert numbers([*lines[:6], *lines[8:], *lines[6:8]], dump) == {11}
    assert numbers(lines[:8], dump) == {11}


def test_a_parent_that_does_not_wait_is_seen() -> None:
    lines, dump = sound()

    inside = [*lines[:5], *lines[6:8], lines[5], lines[8]]
    assert numbers(inside, dump) == {12}


def test_a_missing_child_or_parent_is_seen() -> None:
    lines, dump = sound()
    del dump.heads["A.1"]
    assert 13 in numbers(lines, dump)

    lines, dump = sound()
    del dump.heads["A"]
    assert 13 in numbers(lines, dump)


def test_an_outcome_that_changes_is_seen() -> None:
    lines, dump = sound()

    assert numbers([*lines, line("resolved", text="FAILED")], dump) == {14}


def test_a_line_that_a_kill_cut_short_counts_as_not_written(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    journal.submitted("A")
    with journal.path.open("ab") as file:
        file.write(b'\n{"kind":"acknowl')
    journal.submitted("B")

    assert [(entry.kind, entry.procedure) for entry in journal.lines()] == [("submitted", "A"), ("submitted", "B")]


def test_a_referee_sees_what_excludes_and_nothing_else(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    referee = Referee(tmp_path / "canaries", journal)

    with referee.hold("shelf", shared=True) as first, referee.hold("shelf", shared=True) as second:
        assert first
        assert second
    with referee.hold("shelf/1") as first, referee.hold("shelf/2") as second:
        assert first
        assert second
    assert journal.lines() == []
    for outer, inner, is_shared in (("shelf", "shelf", True), ("shelf", "shelf/1", False), ("shelf/1", "shelf", False)):
        with referee.hold(outer) as first, referee.hold(inner, shared=is_shared) as second:
            assert first
            assert not second
    assert [entry.kind for entry in journal.lines()] == ["conflict"] * 3


def test_a_referee_takes_the_keys_of_the_engine(tmp_path: Path) -> None:
    referee = Referee(tmp_path / "canaries", Journal(tmp_path / "journal"))

    with referee.hold(LockKey.read("shelf")) as first, referee.hold(LockKey.read("shelf")) as second:
        assert first
        assert second
    with referee.hold(LockKey.write("é" * 100)) as first, referee.hold("é" * 100) as second:
        assert first
        assert not second
    for key, error in (("shelf//1", ValueError), ("", ValueError), (3, TypeError)):
        with pytest.raises(error, match="lock key"), referee.hold(key):  # type: ignore[arg-type]
            pass


def test_lines_of_many_processes_stay_whole(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    program = """
import sys
from actorproc.testing.journal import Journal
for count in range(200):
    Journal(sys.argv[1]).submitted(f"{sys.argv[2]}-{count}-" + "x" * 100)
"""
    writers = [subprocess.Popen([sys.executable, "-c", program, str(journal.path), str(n)]) for n in range(4)]

    assert [writer.wait(30) for writer in writers] == [0] * 4
    assert len({entry.procedure for entry in journal.lines()}) == 800


def test_a_step_may_import_the_journal_without_the_store() -> None:
    program = "import actorproc.testing.journal, sys; sys.exit('lmdb' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
