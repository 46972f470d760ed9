"""Keepers of workers' memory: a death is heard before the memory is free, and nobody sees more of them than that."""

from __future__ import annotations

import fcntl
import logging
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from kept import keepers_of
from pool_listener import Listener, is_gone
from steps_under_test import Count, Do

from actorproc.workers.child.process_state import memory_keeper
from actorproc.workers.os import memory_keepers
from actorproc.workers.os.memory_keepers import Keeper, Keepers, find_keeper, is_missed
from actorproc.workers.os.timers import PoolTimers
from actorproc.workers.os.usage import free_memory
from actorproc.workers.pool import pool_thread
from tests.kit.waiting import wait_until

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or sys.version_info >= (3, 14), reason="keepers are made on Linux, up to Python 3.13"
)

PLAIN = b"""\
5581a0000000-5581a0200000 r-xp 00000000 fe:00 1184 /usr/bin/python3.11
5581a0400000-5581a0401000 rw-p 00200000 fe:00 1184 /usr/bin/python3.11
5581a1000000-5581a1200000 rw-p 00000000 00:00 0 [heap]
7f0300753000-7f0300757000 rw-p 00000000 00:00 0
7f0301000000-7f0301001000 r--p 00000000 fe:00 1190 /usr/lib/locale/C.utf8/LC_CTYPE
7fb803985000-7fb80398c000 r--s 00000000 fe:00 3388 /usr/lib/x86_64-linux-gnu/gconv/gconv-modules.cache
7ffd1c5f2000-7ffd1c613000 rw-p 00000000 00:00 0 [stack]
"""


class Dead:
    """A worker's process that has died, and whose keeper has ended already."""

    def __init__(self, keeper) -> None:
        self.keeper = keeper

    def let_go(self) -> None:
        """Done."""

    def forget_keeper(self) -> None:
        self.keeper = None


def keeper_of(host: Listener, worker) -> int:
    (found,) = keepers_of(host.pid(worker))
    return found


def test_a_worker_has_a_keeper_that_is_nobodys_child_and_has_nothing_open(host: Listener) -> None:
    worker = host.boot()

    keeper = psutil.Process(keeper_of(host, worker))

    assert keeper.ppid() not in {os.getpid(), host.pid(worker)}
    assert keeper.pid not in [child.pid for child in psutil.Process().children(recursive=True)]
    assert os.getpgid(keeper.pid) == keeper.pid
    assert keeper.num_threads() == 1
    (lifeline,) = (fd.readlink() for fd in Path(f"/proc/{keeper.pid}/fd").iterdir())
    assert str(lifeline).startswith("pipe:")
    assert keeper.memory_info().rss == psutil.Process(host.pid(worker)).memory_info().rss


def test_a_keeper_ends_after_its_worker_and_not_before(host: Listener) -> None:
    worker = host.boot()
    pid, keeper = host.pid(worker), keeper_of(host, worker)

    assert host.finish(worker, Count(1)) == 1
    assert not is_gone(keeper)
    os.kill(pid, signal.SIGKILL)

    assert host.died(worker).report.signal == "SIGKILL"
    assert is_gone(pid)
    wait_until(lambda: is_gone(keeper))


def test_a_worker_whose_keeper_was_killed_works_on_and_its_death_is_heard(host: Listener) -> None:
    worker = host.boot()

    os.kill(keeper_of(host, worker), signal.SIGKILL)

    assert host.finish(worker, Count(1)) == 1
    os.kill(host.pid(worker), signal.SIGKILL)
    assert host.died(worker).report.signal == "SIGKILL"


def test_signals_to_a_keeper_do_not_reach_the_program_whose_memory_it_has(host: Listener) -> None:
    worker = host.boot()
    keeper = keeper_of(host, worker)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGALRM):
        os.kill(keeper, number)

    assert host.finish(worker, Count(1)) == 1
    assert not is_gone(keeper)


def test_no_keeper_is_left_when_the_pool_is_closed(listen: Callable[..., Listener]) -> None:
    host = listen(spares=1)
    pids = [host.pid(host.boot(slot)) for slot in range(2)]
    wait_until(lambda: len(psutil.Process().children()) >= 3)
    pids += [child.pid for child in psutil.Process().children()]
    assert keepers_of(*pids)

    host.pool.close(5)

    assert keepers_of(*pids) == []


def test_a_file_that_a_dead_worker_had_mapped_is_free_when_its_death_is_told(host: Listener, tmp_path: Path) -> None:
    path = tmp_path / "locked"
    path.write_bytes(b"\0" * 4096)
    worker = host.boot()
    host.start(worker, Do("map_a_locked_file", str(path)))
    host.heartbeat(worker)

    os.kill(host.pid(worker), signal.SIGKILL)
    host.died(worker)

    with path.open("r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # raises while the old mapping holds the lock


def test_memory_of_which_there_is_not_as_much_again_is_waited_for(
    host: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = host.boot()
    keeper = find_keeper(keeper_of(host, worker), host.pid(worker))
    assert keeper is not None
    held = psutil.Process(keeper.pid).memory_info().rss
    monkeypatch.setattr(memory_keepers, "_LITTLE", held // 2)

    monkeypatch.setattr(memory_keepers, "free_memory", lambda: 4 * held)
    assert not keeper.holds_what_is_missed()
    monkeypatch.setattr(memory_keepers, "free_memory", lambda: held)
    assert keeper.holds_what_is_missed()
    monkeypatch.setattr(memory_keepers, "_LITTLE", 2 * held)
    assert not keeper.holds_what_is_missed()
    keeper.close()


@pytest.mark.parametrize(
    ("limit", "free"), [("1000000", 400_000), ("500000", 0), ("max", None)], ids=["room", "over it", "no limit"]
)
def test_free_memory_is_what_the_control_group_leaves(tmp_path: Path, limit: str, free: int | None) -> None:
    group = tmp_path / "mount" / "service"
    group.mkdir(parents=True)
    (group / "memory.max").write_text(limit)
    (group / "memory.current").write_text("600000")
    own = tmp_path / "own"
    own.write_text("1:name=systemd:/elsewhere\n0::/service\n")

    found = free_memory(tmp_path / "mount", own)

    assert found == free if free is not None else found > 1_000_000


@pytest.mark.parametrize(
    "line",
    [
        b"7f0300753000-7f0300757000 rw-s 00000000 fe:00 4711 /data/table.bin",
        b"7f0300753000-7f0300757000 r--s 10000000 fe:00 4711 /data/table.bin",
        b"7f0300753000-7f0300757000 r-xs 00000000 fe:00 4711 /data/table.bin",
        b"7f0300753000-7f0300757000 rw-s 00000000 00:01 4711 /SYSV00000000 (deleted)",
        b"7f0300753000-7f0300757000 rw-p 00000000 00:0f 4711 /anon_hugepage (deleted)",
        b"7f0300753000-7f0300757000 rw-p 00000000 00:05 4711 /dev/nvidia0",
        b"7f0300753000-7f0300757000 rw-p 00000000 fe:00 4711 /data/copy on write.npy",
        b"7f0300753000-7f0300757000 rw-s 00000000 00:0e 4711 anon_inode:[io_uring]",
    ],
)
def test_what_others_see_of_a_dead_workers_memory_is_missed(line: bytes) -> None:
    assert not is_missed(PLAIN)
    assert is_missed(PLAIN + line + b"\n")


def test_a_worker_that_is_watched_without_pidfds_has_no_keeper(listen: Callable[..., Listener]) -> None:
    host = listen(use_pidfd=False)

    assert keepers_of(host.pid(host.boot())) == []


def test_a_keeper_is_not_among_the_processes_that_a_worker_has_started(host: Listener) -> None:
    worker = host.boot()
    keeper_of(host, worker)

    assert not host.pool.processes(worker)


def test_where_nobody_collects_what_has_ended_no_more_keepers_are_made_for_a_while(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(memory_keepers, "_MOST_UNCOLLECTED", 3)
    monkeypatch.setattr(memory_keepers, "_COLLECTED_WITHIN", 0.0)
    uncollected = {1_000_001, 1_000_002, 1_000_004}
    monkeypatch.setattr(memory_keepers, "_has_ended", lambda pid: pid in uncollected)
    timers = PoolTimers()
    several = Keepers(timers)
    several.close()  # what is taken from now on is let go at once

    def dies(pid: int) -> None:
        several.take(Dead(SimpleNamespace(pid=pid, is_gone=lambda: True)))
        timers.run_due()

    for pid in (1_000_001, 1_000_002, 1_000_003):
        dies(pid)
    assert several.are_of_use()
    with caplog.at_level(logging.WARNING):
        dies(1_000_004)
        assert not several.are_of_use()
        assert not several.are_of_use()
    assert caplog.text.count("does not collect the processes that have ended") == 1

    uncollected.clear()
    assert several.are_of_use()
    assert not several


def test_a_number_that_is_no_keepers_is_not_believed(host: Listener) -> None:
    mine, other = host.pid(host.boot(0)), host.pid(host.boot(1))
    (keeper,) = keepers_of(mine)

    assert find_keeper(keeper, other) is None
    for pid in (1, os.getpid(), mine, 2**40, -1, 0):
        assert find_keeper(pid, mine) is None
    found = find_keeper(keeper, mine)
    assert found is not None
    found.close()


def test_a_keeper_that_ends_already_is_waited_for(host: Listener, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when the kernel, out of memory, kills all that have this memory: its mappings are gone, its memory is not."""
    worker = host.boot()
    keeper = find_keeper(keeper_of(host, worker), host.pid(worker))
    assert keeper is not None
    assert not keeper.holds_what_is_missed()

    monkeypatch.setattr(memory_keepers, "_read", lambda path: b"0 0 0 0 0 0 0\n" if path.endswith("statm") else b"")

    assert keeper.holds_what_is_missed()
    keeper.close()


def test_a_keeper_ends_also_when_somebody_else_has_the_other_end_of_the_lifeline(host: Listener) -> None:
    worker = host.boot()
    pid, keeper = host.pid(worker), keeper_of(host, worker)
    lifeline = host.pool._links[worker].process.lifeline_fd
    copy = os.dup(lifeline)

    os.kill(pid, signal.SIGKILL)

    assert host.died(worker).report.signal == "SIGKILL"
    wait_until(lambda: is_gone(keeper))
    os.close(copy)


def test_a_death_is_told_as_it_was_however_long_its_memory_is_waited_for(
    host: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool_thread, "_EOF_PATIENCE", 0.2)
    monkeypatch.setattr(memory_keepers, "_PATIENCE", 1.0)
    monkeypatch.setattr(Keeper, "holds_what_is_missed", lambda _self: True)
    monkeypatch.setattr(Keeper, "is_gone", lambda _self: False)
    worker = host.boot()

    host.start(worker, Do("segfault"))
    died = host.died(worker)

    assert died.report.kind == "signal"
    assert died.report.signal == "SIGSEGV"


@pytest.mark.parametrize("error", [MemoryError, RuntimeError("ctypes is not allowed here"), OSError])
def test_a_worker_that_can_have_no_keeper_does_without(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [])

    def fails(_lifeline: int) -> int:
        raise error

    monkeypatch.setattr(memory_keeper, "_start", fails)
    reader, writer = os.pipe()

    assert memory_keeper.start_keeper(reader) == 0

    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == before
    os.close(reader)
    os.close(writer)
