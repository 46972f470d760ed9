"""An exit status becomes a sentence."""

from __future__ import annotations

import signal

import pytest

from actorproc.workers.pool import crash_reports
from actorproc.workers.pool.crash_reports import Remains, crash_report, name_of_signal, oom_kills
from actorproc.workers.protocol.exit_codes import EXIT_INTERNAL, EXIT_PROTOCOL, EXIT_TERMINATED
from actorproc.workers.protocol.frames import BootFailed


def exited(code: int) -> int:
    return code << 8


@pytest.mark.parametrize(
    ("remains", "kind", "message"),
    [
        (Remains(status=exited(3), booted=True), "exit", "exited with code 3, and it had not been told to"),
        (Remains(status=exited(0), booted=True, stop_asked=True), "stopped", "stopped as asked"),
        (Remains(status=exited(3), booted=True, stop_asked=True), "exit", "exited with code 3"),
        (Remains(status=signal.SIGSEGV, booted=True), "signal", "killed by signal 11 (SIGSEGV)"),
        (Remains(status=signal.SIGKILL, booted=True), "signal", "killed by signal 9 (SIGKILL)"),
        (
            Remains(status=signal.SIGKILL, booted=True, out_of_memory=True),
            "out-of-memory",
            "the kernel ran out of memory",
        ),
        (Remains(status=signal.SIGSEGV, booted=True, out_of_memory=True), "signal", "SIGSEGV"),
        (
            Remains(
                status=signal.SIGKILL, booted=True, out_of_memory=True, killed_as="timeout", kill_reason="too slow"
            ),
            "timeout",
            "too slow (killed by signal 9 (SIGKILL))",
        ),
        (Remains(status=exited(EXIT_PROTOCOL), booted=True), "protocol", "could not understand the bytes of its host"),
        (Remains(status=exited(EXIT_INTERNAL), booted=True), "exit", "failed in its own machinery"),
        (Remains(status=exited(EXIT_TERMINATED), booted=True), "signal", "SIGTERM in the middle of a step"),
        (
            Remains(status=exited(1), booted=False, stderr="a\nImportError: x\n"),
            "boot",
            "before it was ready: ImportError: x",
        ),
        (Remains(status=exited(91), booted=False, boot_failed=BootFailed("no module", "Trace")), "boot", "no module"),
        (Remains(status=None, booted=True), "exit", "another part of the host program collected its exit status"),
        (Remains(status=signal.SIGABRT | 0x80, booted=True), "signal", "(core dumped)"),
    ],
)
def test_a_death_has_a_kind_and_a_sentence(remains: Remains, kind: str, message: str) -> None:
    report = crash_report(remains)

    assert report.kind == kind
    assert message in report.message


def test_a_boot_failure_carries_the_workers_traceback() -> None:
    remains = Remains(status=exited(91), booted=False, boot_failed=BootFailed("no", "Traceback …"), stack="other")

    assert crash_report(remains).stack == "Traceback …"


def test_a_real_time_signal_has_a_number_for_a_name() -> None:
    assert name_of_signal(63) == "signal 63"


def test_the_kernels_counter_of_memory_kills_is_a_number_or_not_there() -> None:
    count = oom_kills()

    assert count is None or count >= 0


def test_the_kernels_counter_is_found_wherever_it_stands(tmp_path, monkeypatch) -> None:
    file = tmp_path / "vmstat"
    lines = [f"nr_something_{number} {number}\n" for number in range(20_000)]
    file.write_text("".join((*lines, "oom_kill_other 3\n", "oom_kill 17\n", *lines)))
    monkeypatch.setattr(crash_reports, "_VMSTAT", file)

    assert oom_kills() == 17
    file.write_text("".join(lines))
    assert oom_kills() is None
    file.unlink()
    assert oom_kills() is None
