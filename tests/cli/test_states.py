"""``state``, ``states``, ``diff`` and the values in ``show``: read from a store whose classes are gone."""

from __future__ import annotations

import pytest

from actorproc.api.client import ProcedureClient
from actorproc.errors import UnknownStep

pytestmark = pytest.mark.processes

SHOP = """
from dataclasses import dataclass, field
from typing import Annotated
from actorproc import Procedure, Saga, Secret, Status, procedure, step

@dataclass
class Item:
    name: str
    price: float

@dataclass
class Order(Saga):
    n: int
    at: float = 1.5
    password: Annotated[str, Secret] = "hunter2"
    items: list[Item] = field(default_factory=list)
    @step
    def reserve(self, ctx):
        self.items.append(Item(ctx.remember("name", lambda: "a\\x1b[31m"), 1.5))
    @reserve.undo
    def unreserve(self, ctx):
        pass
    @step
    def ask(self, ctx):
        self.n += 1
        return Status.wait("paid")
    @step
    def ship(self, ctx):
        return Status.done({"n": self.n, "token": Secret("hunter2")})

class Short(Saga):
    n: int
    @step
    def only(self, ctx):
        return self.n + 1

@dataclass
class Long(Procedure):
    keep_steps = 2
    n: int = 0
    def execute(self, ctx):
        self.n += 1
        return Status.executing() if self.n < 9 else Status.wait("never")

@procedure
def letters(text):
    return len(text)
"""


@pytest.fixture(scope="module")
def shop(tmp_path_factory, commands):
    from tests.cli.conftest import Place

    found = Place(tmp_path_factory.mktemp("shop"), commands)
    (found.directory / "jobs.py").write_text(SHOP)
    found.serve()
    found("submit", "jobs:Order", "n=1", "--id", "order")
    found("submit", "jobs:letters", "text=hello", "--id", "letters", "--wait")
    found("submit", "jobs:Long", "--id", "long")
    found.until(lambda: found.phase("order") == "waiting" and found.phase("long") == "waiting")
    yield found
    found.end()


def test_the_output_of_a_function_and_its_input_are_shown(shop):
    shown = shop.said("-o", "table", "show", "letters")
    (detail,) = shop.rows("show", "letters")

    assert "output      5\n" in shown
    assert "text: 'hello'" in shown
    assert (detail["output"], detail["input"]) == (5, {"text": "hello"})


def test_a_state_is_shown_as_it_is_now_and_as_it_was(shop):
    now, (was,) = shop.said("-o", "table", "state", "order"), shop.rows("state", "order", "--step", "1")

    assert "n: 2" in now
    assert "items: [Item(name='a\\x1b[31m', price=1.5)]" in now
    assert "at ship" in now
    assert was["state"] == {"n": 1, "at": 1.5, "password": {"$type": "secret", "text": "*" * 10}, "items": []}
    assert was["position"] == "reserve"


def test_no_secret_is_in_any_look(shop):
    for looks in (("show", "order"), ("state", "order"), ("states", "order"), ("diff", "order", "1")):
        for form in ("table", "wide", "json", "jsonl"):
            assert "hunter2" not in shop.said("-o", form, *looks)


def test_states_and_diff_tell_what_changed(shop):
    assert [row["changed"] for row in shop.rows("states", "order")] == [[], ["items"], ["n"]]
    table = shop.said("-o", "table", "states", "order").splitlines()
    assert table[3].split()[:3] == ["3", "ship", "wait"]
    assert table[3].endswith("n=2")
    (diff,) = shop.rows("diff", "order", "2", "3")
    assert diff["changes"] == [
        {"path": "(position)", "before": "ask", "after": "ship"},
        {"path": "n", "before": "1", "after": "2"},
    ]


def test_a_saga_that_has_ended_stands_at_no_step(shop):
    shop("submit", "jobs:Short", "n=1", "--id", "ended", "--wait")

    assert [row["position"] for row in shop.rows("states", "ended")] == ["only", ""]
    assert shop.rows("diff", "ended", "1")[0]["changes"] == [
        {"path": "(position)", "before": "only", "after": None},
        {"path": "(output)", "before": None, "after": "2"},
    ]


def test_a_diff_with_the_end_tells_the_output(shop):
    (diff,) = shop.rows("diff", "letters", "1", "2")
    (same,) = shop.rows("diff", "letters", "2", "2")

    assert diff["changes"] == [{"path": "(output)", "before": None, "after": "5"}]
    assert same["changes"] == []
    assert "  (output)\n    + 5\n" in shop.said("-o", "table", "diff", "letters", "1")


def test_the_generation_of_what_was_restarted_is_told(shop):
    once = shop.said("-o", "table", "steps", "letters"), shop.said("-o", "table", "show", "letters")
    for text in ("a", "ab"):
        shop("submit", "jobs:letters", f"text={text}", "--id", "again", "--on-existing", "restart", "--wait")

    header, first, last = shop.said("-o", "table", "steps", "again").splitlines()
    assert (header.split()[1], first.split()[1], last.split()[1]) == ("GEN", "2", "2")
    assert ", generation 2\n" in shop.said("-o", "table", "show", "again")
    assert "GEN" in shop.said("-o", "wide", "list", "--prefix", "again")
    assert "GEN" not in once[0]
    assert "generation" not in once[1]


def test_a_trimmed_step_and_one_that_never_was_are_answered_in_words(shop):
    code, _, trimmed = shop("state", "long", "--step", "3")
    assert code == 3
    assert "record 3 of long was trimmed (keep_steps)" in trimmed
    code, _, never = shop("diff", "order", "1", "77")
    assert code == 3
    assert "order has no record 77: its records end with 3" in never


def test_a_client_gives_the_same(shop):
    with ProcedureClient(str(shop.store)) as client:
        assert [info.number for info in client.states("order")] == [1, 2, 3]
        assert client.state("order", 1).state.plain()["n"] == 1
        with pytest.raises(UnknownStep, match="trimmed"):
            client.state("long", 3)
        with pytest.raises(TypeError, match="number of a record"):
            client.state("order", "1")


def test_the_result_of_a_call_is_told_as_a_pickle(shop):
    from actorproc import ProcedureExecutor

    with ProcedureExecutor(shop.directory / "calls", max_workers=1) as executor:
        executor.submit_as("call", complex, 1, 2).result(60)

    looks = [shop.said("-o", form, "--path", "calls", "show", "call") for form in ("table", "json")]
    assert "output      pickle, " in looks[0]
    assert '"$type": "pickle"' in looks[1]
    assert "output pickle, " in shop.said("-o", "table", "--path", "calls", "states", "call")
