"""The memory of a container: its limit is found, and the largest worker is killed before the container is full."""

from __future__ import annotations

import pytest

from actorproc.testing.pool_suite.listener import PoolListener
from actorproc.workers.hosts.memory_guard import MemoryGuard
from actorproc.workers.os.container_memory import ContainerMemory, container_memory
from actorproc.workers.pool.local_pool import LocalPool


def groups(tmp_path, files: dict[str, str], own: str) -> ContainerMemory | None:
    mount = tmp_path / "mount"
    for name, text in files.items():
        (mount / name).parent.mkdir(parents=True, exist_ok=True)
        (mount / name).write_text(text)
    (tmp_path / "own").write_text(own)
    return container_memory(mount, tmp_path / "own")


@pytest.mark.parametrize(
    ("files", "own", "limit", "used"),
    [
        ({"a/memory.max": "1000\n", "a/memory.current": "600\n", "a/memory.stat": "anon 1\n"}, "0::/a\n", 1000, 600),
        ({"a/memory.max": "max\n", "memory.max": "500\n", "memory.current": "9"}, "0::/a\n", 500, 9),
        ({"memory.max": "500\n", "memory.current": "90", "memory.stat": "inactive_file 40\n"}, "0::/x/y\n", 500, 50),
        ({"a/memory.max": "100", "a/b/memory.max": "70", "a/b/memory.current": "7"}, "0::/a/b\n", 70, 7),
        (
            {
                "memory/a/memory.limit_in_bytes": "800\n",
                "memory/a/memory.usage_in_bytes": "100\n",
                "memory/a/memory.stat": "inactive_file 1\ntotal_inactive_file 60\n",
            },
            "5:cpu:/z\n4:memory:/a\n",
            800,
            40,
        ),
    ],
    ids=["its own", "a group above", "a container's top", "the least of two", "version 1"],
)
def test_the_limit_and_the_use_of_a_container_are_found(tmp_path, files, own, limit, used):
    memory = groups(tmp_path, files, own)
    assert (memory.limit, memory.used()) == (limit, used)


@pytest.mark.parametrize(
    ("files", "own"),
    [
        ({}, ""),
        ({"memory.max": "max"}, "0::/\n"),
        ({"memory/memory.limit_in_bytes": "9223372036854771712"}, "4:memory:/\n"),
        ({"memory.max": "nonsense"}, "0::/../../x\n"),
    ],
)
def test_no_limit_is_no_container(tmp_path, files, own):
    assert groups(tmp_path, files, own) is None


def test_the_largest_worker_is_killed_at_nine_tenths_of_the_limit(tmp_path):
    memory = groups(tmp_path, {"memory.max": "1000", "memory.current": "899"}, "0::/\n")
    guard, pool = MemoryGuard(memory), PoolListener(LocalPool(spares=0))
    try:
        guard.guard(pool.pool)
        workers = [pool.boot(slot) for slot in range(2)]
        assert not guard.look()
        (tmp_path / "mount" / "memory.current").write_text("900")
        sizes = {worker: fact.rss for worker, fact in pool.pool.facts().items()}
        assert guard.look()
        largest = max(workers, key=sizes.get)
        report = pool.died(largest).report
        assert report.kind == "memory-limit"
        assert "the container of its host" in report.message
        assert not guard.look(), "what the first one had comes back first"
    finally:
        pool.pool.close(1.0)


def test_nothing_is_killed_where_nothing_can_be_read(tmp_path):
    memory = groups(tmp_path, {"memory.max": "1000"}, "0::/\n")
    guard = MemoryGuard(memory)
    guard.guard(None)
    assert not guard.look()
