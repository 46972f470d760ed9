"""A store where everything is stuck: each trouble is found by one look and mended by one verb, through commands alone."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Place

pytestmark = pytest.mark.processes

LONG = "evil" + "-:@." * 31
"""As long as an id may be."""
EVIL = "owned\x1b[31m\u202e\nSUCCESS"
WORKS = '''
import ctypes, os, select, signal
from dataclasses import dataclass
from actorproc import Limits, LockKey, Procedure, RetryPolicy, Saga, Status, step

MENDED = "mended"

@dataclass
class Region(Procedure):
    """Holds a key; the first one hangs in C code."""
    hangs: bool = False
    def lock_keys(self):
        return [LockKey.write("region/eu")]
    def execute(self, ctx):
        if self.hangs:
            select.select([], [], [])
        return Status.done("read")

@dataclass
class Flaky(Procedure):
    """Is tried again, for ever and seldom."""
    def execute(self, ctx):
        raise ConnectionError("no route to the bank")

Flaky.retry = RetryPolicy(max_attempts=1000, base=600.0, cap=600.0, retry_on=(ConnectionError,))

@dataclass
class Breaks(Procedure):
    """Its worker dies in one way or another, until it is mended."""
    how: str
    limits = Limits(crashes=1)
    def execute(self, ctx):
        if not os.path.exists(MENDED):
            if self.how == "segv":
                ctypes.string_at(0)
            elif self.how == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            elif self.how == "abort":
                os.abort()
            os._exit(3)
        return Status.done("whole")

class Halves(Saga):
    """Fails, and its undo fails as well: its key is poisoned."""
    def poison_keys(self):
        return ["shop/items"]
    @step
    def first(self, ctx):
        pass
    @first.undo
    def unfirst(self, ctx):
        raise OSError("disk is read-only")
    @step
    def second(self, ctx):
        raise ValueError("an item has no price")

Halves.rollback_retry = RetryPolicy(max_attempts=1)

@dataclass
class Leaf(Procedure):
    waits: bool
    def execute(self, ctx):
        return Status.wait("paid") if self.waits and ctx.event is None else Status.done()

@dataclass
class Wide(Procedure):
    """Has many children, of which one waits."""
    began: bool = False
    def execute(self, ctx):
        if self.began:
            return Status.done(len(ctx.children))
        self.began = True
        return Status.suspended([(f"{ctx.id}.{n}", Leaf(n == 17)) for n in range(40)])
'''
GONE = '''
@dataclass
class Gone(Procedure):
    """Its class is not there any more when the service comes back."""
    def execute(self, ctx):
        return Status.wait("never")
'''


@pytest.fixture(scope="module")
def depot(tmp_path_factory, commands):
    found = Place(tmp_path_factory.mktemp("depot"), commands)
    module = found.directory / "jobs.py"
    module.write_text(WORKS + GONE)
    found.serve(workers=3)
    found("submit", "jobs:Gone", "--id", "gone")
    found.until(lambda: found.phase("gone") == "waiting")
    found.end()
    module.write_text(WORKS)
    found.serve(workers=3)
    found("submit", "jobs:Region", "hangs=true", "--id", "read-us")
    found.until(lambda: found.phase("read-us") == "running")
    for name in ("read-eu", "read-asia"):
        found("submit", "jobs:Region", "--id", name)
    for kind, name in (("Flaky", "flaky"), ("Halves", "halves"), ("Wide", "wide")):
        found("submit", f"jobs:{kind}", "--id", name)
    for how in ("segv", "kill", "abort", "exit"):
        found("submit", "jobs:Breaks", f"how={how}", "--id", f"breaks-{how}")
    found("submit", "jobs:Leaf", "waits=true", "--id", LONG, "--owner", EVIL, "--tag", EVIL)
    found.until(lambda: {found.state(f"breaks-{how}") for how in ("segv", "kill", "abort", "exit")} == {"FAILED"})
    found.until(lambda: found.state("halves") == "FAILED" and found.phase("flaky") == "retrying")
    found.until(lambda: found.phase("wide") == "suspended" and found.phase(LONG) == "waiting")
    yield found
    found.end()


def test_a_list_shows_all_trouble_in_one_look(depot):
    shown = depot.said("list")
    first = [line.split()[0] for line in shown.splitlines()[1:]]

    assert {"read-us", "read-eu", "flaky", "halves", "wide", "gone", "breaks-segv"} <= set(first)
    assert not [name for name in first if name.startswith("wide.")]
    assert "\x1b" not in shown
    assert "\u202e" not in shown


def test_the_status_and_one_look_of_top_name_the_class_that_is_gone(depot):
    status, top = depot.said("status"), depot.said("top")
    (found,) = depot.rows("status")

    assert "parked    1 of jobs.Gone: no class is registered as that: actorproc list --type jobs.Gone" in status
    assert found["unregistered"] == {"jobs.Gone": 1}
    assert "jobs.Region" in found["health"]["types"]
    (row,) = [line.split() for line in top.splitlines() if line.startswith("gone ")]
    assert row[:4] == ["gone", "Gone", "WAITING", "parked"]
    assert "\x1b" not in top
    assert "\u202e" not in top


def test_show_and_why_agree_on_the_one_whose_class_is_gone(depot):
    shown = depot.said("show", "gone")

    assert "parked: no class is registered as 'jobs.Gone'" in shown
    assert "parked: no class is registered as 'jobs.Gone'" in depot.said("why", "gone")
    (found,) = depot.rows("show", "gone")
    assert found["phase"] == "parked"


@pytest.mark.parametrize(
    ("look", "says", "verb", "ends"),
    [
        pytest.param(["why", "read-eu"], "read-us (Region) runs step 1", ["abort", "read-us", "--force"], "read-eu", id="locked chain, hung in C"),
        pytest.param(["why", "flaky"], "ConnectionError: no route to the bank", ["abort", "flaky", "--force"], "flaky", id="retry loop"),
        pytest.param(["why", "gone"], "jobs.Gone", ["bypass", "gone"], "gone", id="a class that is gone"),
        pytest.param(["why", "wide"], "wide.17", ["signal", "wide.17", "1"], "wide", id="many children"),
        pytest.param(["show", "evil"], "waiting", ["signal", "evil", "1"], LONG, id="an id from hell"),
    ],
)  # fmt: skip
def test_each_is_found_in_one_look_and_mended_by_one_verb(depot, look, says, verb, ends):
    shown = depot.said(*look)

    assert says in shown
    assert "\x1b" not in shown
    assert depot(*verb)[0] == 0
    depot.until(lambda: depot.state(ends) in ("SUCCESS", "FAILED", "ROLLEDBACK"))


def test_a_poisoned_key_is_found_and_given_back(depot):
    assert "shop/items" in depot.said("poisons")
    assert "disk is read-only" in depot.said("why", "halves")
    assert depot("clear-poison", "shop/items")[0] == 0
    assert depot.rows("poisons") == []


@pytest.mark.parametrize(
    ("how", "words"), [("segv", "SIGSEGV"), ("kill", "SIGKILL"), ("abort", "SIGABRT"), ("exit", "exited with code 3")]
)
def test_four_kinds_of_crash_are_told_in_words_and_run_again(depot, how, words):
    shown = depot.said("show", f"breaks-{how}").splitlines()
    place = next(number for number, line in enumerate(shown) if words in line)

    assert place < next((number for number, line in enumerate(shown) if 'File "' in line), len(shown))
    assert sum("Fatal Python error" in line for line in shown) <= 1
    (depot.directory / "mended").touch()
    assert depot("retry", f"breaks-{how}")[0] == 0
    depot.until(lambda: depot.state(f"breaks-{how}") == "SUCCESS")


def test_failed_attempts_are_shown_with_their_words(depot):
    shown, failed = depot.said("show", "halves"), depot.said("steps", "halves", "--failed")
    (detail,) = depot.rows("show", "halves")

    assert "failed attempts" in shown
    assert "second" in failed
    assert "ValueError: an item has no price" in failed
    assert "an item has no price" in {attempt["error"]["message"] for attempt in detail["failed_attempts"]}
