"""A new mode of locks is one member of `LockMode` with its bit: an upgradeable read is added to a copy of the module."""

from __future__ import annotations

import subprocess
import sys

import pytest

PATCHED = """
import importlib.util, sys

import msgspec

from importlib.machinery import SourceFileLoader

NAME = "actorproc.model.policies"
BIT = ("    WRITES = 8\\n", "    WRITES = 8\\n    UPGRADES = 16\\n")
MODE = ('_EVERYTHING, 20, True, "write"\\n', '''_EVERYTHING, 20, True, "write"
    UPGRADE = (
        3,
        LockBit.UPGRADES,
        LockBit.READS_BELOW,
        LockBit.WRITES_BELOW | LockBit.WRITES | LockBit.UPGRADES,
        LockBit.READS_BELOW | LockBit.READS | LockBit.UPGRADES,
        15,
        False,
        "upgrade",
    )
''')


class Patched(SourceFileLoader):
    def get_code(self, name):
        source = self.get_data(self.path).decode()
        for old, new in (BIT, MODE):
            assert source.count(old) == 1, old
            source = source.replace(old, new)
        return compile(source, self.path, "exec")


class Finder:
    @staticmethod
    def find_spec(name, path, target=None):
        if name == NAME:
            return importlib.util.spec_from_loader(name, Patched(name, path[0] + "/policies.py"))


sys.meta_path.insert(0, Finder)

from actorproc.core.locks.table import LockRequest, LockTable
from actorproc.model.policies import LockKey, LockMode
from actorproc.model.rows.records import LockRecord
from actorproc.report.info import mode_name

READ, UPGRADE, WRITE = LockMode.READ, LockMode.UPGRADE, LockMode.WRITE
"""


def run(program: str) -> str:
    """What this prints, with the mode added to the engine that it imports."""
    done = subprocess.run([sys.executable, "-c", PATCHED + program], check=True, capture_output=True, text=True)
    return done.stdout.strip()


GRANTS = """
table = LockTable()
def ask(name, path, mode):
    return table.request(LockRequest(name, name, (LockKey(path, mode),), frozenset((name,)), len(name), False))
first, second = {first}, {second}
print(ask("a", {above!r}, first), ask("bb", {below!r}, second))
table.release("a")
print(table.drain())
"""


@pytest.mark.parametrize(
    ("first", "second", "together"),
    [
        ("READ", "UPGRADE", True),
        ("UPGRADE", "READ", True),
        ("UPGRADE", "UPGRADE", False),
        ("UPGRADE", "WRITE", False),
        ("WRITE", "UPGRADE", False),
    ],
)
@pytest.mark.parametrize(("above", "below"), [("t", "t"), ("t", "t/x")])
def test_who_goes_beside_whom_follows_from_the_member(first, second, together, above, below):
    # An upgrade of a key below one that is held for upgrades is an intention to read there: it goes beside it.
    together = together or (above != below and first == second == "UPGRADE")

    granted, drained = run(GRANTS.format(first=first, second=second, above=above, below=below)).splitlines()

    assert granted == f"True {together}"
    assert drained == ("[]" if together else "['bb']")


def test_order_words_rows_and_poison_follow_from_the_member_too():
    program = """
row = LockRecord("t", UPGRADE, "p", "p", 1.0, int(READ))
assert msgspec.msgpack.decode(msgspec.msgpack.encode(row), type=LockRecord) == row
print(max(READ, UPGRADE) is UPGRADE, max(WRITE, UPGRADE) is WRITE, READ < UPGRADE < WRITE, 0 < UPGRADE)
print(mode_name(UPGRADE), UPGRADE.poisons, UPGRADE.is_exclusive, LockMode(3) is UPGRADE)
"""

    assert run(program).splitlines() == ["True True True True", "upgrade False False True"]


def test_a_report_knows_which_keys_exclude_each_other_as_the_table_does():
    program = """
from actorproc.model.policies import exclude_each_other

keys = [LockKey(path, mode) for path in ("t", "t/x", "t/y", "tx") for mode in LockMode]
def ask(table, name, key):
    return table.request(LockRequest(name, name, (key,), frozenset((name,)), len(name), False))
for one in keys:
    for other in keys:
        table = LockTable()
        assert ask(table, "a", one)
        assert exclude_each_other(one, other) is not ask(table, "bb", other), (one, other)
print(len(keys))
"""

    assert run(program) == "12"
