"""Limits given with a submit, and reports of dead workers, in stored records."""

from __future__ import annotations

from actorproc.model.crash_report import CrashReport
from actorproc.model.policies import StepLimits
from actorproc.model.rows.records import ErrorInfo, ProcedureRecord, StepKind, StepRecord
from actorproc.store.rows import codec
from actorproc.store.rows.tables import Table

CRASH = CrashReport(
    kind="signal",
    message="killed by signal 11 (SIGSEGV)",
    signal="SIGSEGV",
    stderr="the end",
    stack="Fatal Python error",
    peak_rss=123,
    cpu_time=0.5,
    duration=1.25,
)
ERROR = ErrorInfo("crash", "WorkerCrashed", "its worker crashed", crash=CRASH)


def test_a_head_keeps_the_limits_it_was_given_and_the_report_of_its_last_crash():
    limits = StepLimits(wall_time=2.5, memory_hard=1000, cpus=(0, 1), dedicated=True)
    head = ProcedureRecord(
        id="p", type_name="T", version=1, root="p", parent=None, seq=1, limits=limits, error=ERROR, crashes=1
    )

    again = codec.decode(Table.PROCEDURES, b"p", codec.encode(Table.PROCEDURES, b"p", head))

    assert again == head


def test_a_step_record_keeps_the_death_on_the_way_to_it():
    record = StepRecord(procedure="p", number=2, kind=StepKind.STEP, at=1.0, crash=ERROR)

    again = codec.decode(Table.STEPS, b"p2", codec.encode(Table.STEPS, b"p2", record))

    assert again == record
