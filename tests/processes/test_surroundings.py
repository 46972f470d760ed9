"""Limits of resources are asked for after a step only when something can have changed them."""

import subprocess
import sys

import pytest

PROGRAM = """
from actorproc.workers.child import surroundings
from actorproc.workers.child.surroundings import Surroundings, hide_limits

hide_limits()
private = surroundings.resource  # as C code has it: nobody sees it being used
before = private.getrlimit(private.RLIMIT_NOFILE)
lower = before[0] - 1, before[1]
places = Surroundings(lambda: None)

def change():
{change}

def is_changed():
    return private.getrlimit(private.RLIMIT_NOFILE) != before

{steps}
"""
AT_ONCE = """
for _ in range(50):  # whenever the last look was
    change()
    assert is_changed()
    places.restore()
    assert not is_changed()
"""
IN_TIME = """
change()
assert is_changed()
while is_changed():  # a millisecond at most
    places.restore()
"""


@pytest.mark.parametrize(
    ("change", "steps"),
    [
        ("    import resource\n    resource.setrlimit(resource.RLIMIT_NOFILE, lower)", AT_ONCE),
        (
            """
    import ctypes
    two = (ctypes.c_ulong * 2)(*lower)
    assert ctypes.CDLL(None).setrlimit(int(private.RLIMIT_NOFILE), two) == 0
""",
            AT_ONCE,
        ),
        ("    private.setrlimit(private.RLIMIT_NOFILE, lower)", IN_TIME),
    ],
    ids=["resource", "ctypes", "C code"],
)
def test_a_limit_that_a_step_lowered_is_put_back(change, steps):
    program = PROGRAM.format(change=change, steps=steps)

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)

    assert done.returncode == 0, done.stderr


def test_limits_are_not_asked_for_when_nothing_can_have_changed_them():
    steps = """
asked = []
class Counting:
    def __getattr__(self, name):
        return getattr(private, name)
    def getrlimit(self, limit):
        asked.append(limit)
        return private.getrlimit(limit)
surroundings.resource = Counting()
surroundings.monotonic = lambda: places._looked + 0.0005
places.restore()
assert not asked
surroundings.monotonic = lambda: places._looked + 0.0015
places.restore()
assert len(asked) == len(surroundings._LIMITS)
surroundings.monotonic = lambda: places._looked - 5  # a step that plays with the clock
places.restore()
assert len(asked) == 2 * len(surroundings._LIMITS)
"""
    program = PROGRAM.format(change="    pass", steps=steps)

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)

    assert done.returncode == 0, done.stderr
