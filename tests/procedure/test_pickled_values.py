"""codec = "pickle" holds for outputs, notes and payloads; what no worker could load is refused when it is submitted."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

from actorproc import Procedure, Status
from actorproc.errors import StateNotEncodable, ValueNotDecodable
from actorproc.model.ids import Mode
from actorproc.procedure.runtime.type_runtime import TypeRuntime

KEY = b"k" * 32


class Thing:
    def __init__(self, a):
        self.a = a

    def __eq__(self, other):
        return type(other) is Thing and self.a == other.a

    __hash__ = None


class Making(Procedure):
    codec = "pickle"

    def execute(self, ctx):
        return Status.done((ctx.event, ctx.remember("thing", lambda: [Thing(2)])))


RUNTIME = TypeRuntime.of_class(Making, signing_key=KEY)


def test_outputs_notes_and_payloads_may_hold_what_a_pickled_state_may(context):
    payload = RUNTIME.encode_value({"sent": Thing(1)}, "p-1")
    ctx = context(_codec=RUNTIME.values)

    outcome, _ = RUNTIME.run(Making(), ctx, Mode.EXECUTE, None, payload)

    assert RUNTIME.decode_output(outcome.output, "p-1") == ({"sent": Thing(1)}, [Thing(2)])


@pytest.mark.parametrize("value", [None, 5, "x", [1, {"a": b"b"}]])
def test_what_is_plain_is_written_as_typed_data_which_everyone_can_read(value):
    data = TypeRuntime.of_class(type("Data", (Making,), {"codec": "data"}))

    assert data.decode_output(RUNTIME.encode_value(value)) == value


def test_a_class_that_changes_its_codec_reads_what_it_wrote_before():
    stored = RUNTIME.values.encode(Thing(3), "output", "output of a")
    now = TypeRuntime.of_class(type("Making", (Making,), {"codec": "data"}), signing_key=KEY)

    assert now.decode_output(stored, "a") == Thing(3)


@pytest.mark.parametrize(
    ("id_", "key", "change"),
    [("b", KEY, 0), ("a", b"o" * 32, 0), ("a", None, 0), ("a", KEY, 1), ("a", KEY, -1)],
    ids=["of another procedure", "of another store", "without a key", "changed", "cut"],
)
def test_nothing_is_unpickled_that_was_not_signed_for_this(id_, key, change):
    stored = RUNTIME.values.encode(Thing(3), "output", "output of a")
    if change:
        stored = stored[:-1] + (b"" if change < 0 else bytes([stored[-1] ^ 1]))
    cls = Making if key else type("Making", (Making,), {"codec": "data"})

    with pytest.raises(ValueNotDecodable):
        TypeRuntime.of_class(cls, signing_key=key).decode_output(stored, id_)


def test_a_value_that_cannot_be_pickled_is_refused_with_its_place():
    with pytest.raises(StateNotEncodable, match=r"payload to a .* cannot be pickled"):
        RUNTIME.encode_value({"f": lambda: 1}, "a")


def script(tmp_path, *parts):
    """What a program prints whose main module is made of these."""
    head = """
        import sys, types, typing
        from dataclasses import dataclass
        from typing import Any
        from actorproc import *
        class Thing:
            def __init__(self, a): self.a = a
            def __repr__(self): return f"Thing({self.a})"
        def make(): return Thing(7)
        class Made:
            def __reduce__(self): return make, ()
        """
    body = """
        with ProcedureManager(sys.argv[1], workers=1) as manager:
            for subject in subjects:
                try:
                    print(manager.run(subject, timeout=30))
                except (ActorprocError, TimeoutError) as error:
                    print(type(error).__name__, error)
        """
    file = tmp_path / "program.py"
    file.write_text("\n".join(map(textwrap.dedent, (head, *parts, body))))
    ran = subprocess.run(
        [sys.executable, file, tmp_path / "state"], capture_output=True, text=True, check=False, timeout=120
    )
    assert (ran.returncode, "Traceback" in ran.stderr) == (0, False), ran.stderr
    return ran.stdout.splitlines()


@pytest.mark.processes
def test_objects_of_plain_classes_of_a_script_go_to_workers_that_get_the_class(tmp_path):
    printed = script(
        tmp_path,
        """
        @dataclass
        class Using(Procedure):
            v: Any
            codec = "pickle"; uses = (Thing,)
            def execute(self, ctx): return Status.done(self.v)
        def helper(x): return Thing(x.a + 1)
        @dataclass
        class Helped(Procedure):
            v: Any
            codec = "pickle"
            def execute(self, ctx): return Status.done([helper(self.v), ctx.remember("n", lambda: Thing(9))])
        class Parent(Procedure):
            codec = "pickle"
            def execute(self, ctx):
                if ctx.step == 1: return Status.suspended([("kid", Helped(Thing(5)))])
                return Status.done(ctx.children["kid"].output)
        subjects = Using(Thing(1)), Helped(Thing(2)), Parent()
        """,
    )

    assert printed == ["Thing(1)", "[Thing(3), Thing(9)]", "[Thing(6), Thing(9)]"]


@pytest.mark.processes
def test_a_state_that_no_worker_could_load_is_refused_when_it_is_submitted(tmp_path):
    printed = script(
        tmp_path,
        """
        @dataclass
        class Keeping(Procedure):
            v: Any
            codec = "pickle"
            def execute(self, ctx): return Status.done(1)
        apart = types.ModuleType("apart"); sys.modules["apart"] = apart
        exec("class Far: pass", apart.__dict__)
        subjects = [Keeping(v) for v in (Thing(1), [Thing, 2], {1: Made()}, make, apart.Far())]
        """,
    )

    assert len(printed) == 5
    for line, named in zip(
        printed, ["main__.Thing", "main__.Thing", "main__.make", "main__.make", "apart.Far"], strict=True
    ):
        assert line.startswith("StateNotEncodable __main__.Keeping.v: no worker could load it: it refers to"), line
        assert named in line
    assert "name it in `uses`" in printed[0]


@pytest.mark.processes
def test_a_class_that_refers_to_a_module_that_no_worker_finds_is_refused(tmp_path):
    printed = script(
        tmp_path,
        """
        apart = types.ModuleType("apart"); sys.modules["apart"] = apart
        class Far(Procedure):
            def execute(self, ctx): return Status.done(apart.x)
        subjects = [Far()]
        """,
    )

    assert printed == [
        line for line in printed if line.startswith("UsageError __main__.Far cannot be sent to a worker")
    ]
    assert "the module 'apart' is in no place that a worker imports from" in printed[0]


@pytest.mark.processes
def test_a_hint_for_type_checkers_only_is_named_where_it_stands(tmp_path):
    (tmp_path / "prices.py").write_text("from dataclasses import dataclass\n@dataclass\nclass Price:\n    cents: int\n")
    printed = script(
        tmp_path,
        """
        import prices
        if typing.TYPE_CHECKING:
            from prices import Price
        @dataclass
        class Order(Procedure):
            price: "Price"
            def execute(self, ctx): return Status.done(1)
        @dataclass
        class Line:
            prices: "list[Price] | None"
        @dataclass
        class Nested(Procedure):
            line: Line
            def execute(self, ctx): return Status.done(1)
        class Giving(Procedure):
            def execute(self, ctx) -> "Status | Price": return Status.done(prices.Price(1))
        @procedure
        def function(n: int) -> "Price": return prices.Price(n)
        @dataclass
        class Right(Procedure):
            price: "Price"
            uses = (prices.Price,)
            def execute(self, ctx): return Status.done(self.price)
        subjects = Order(prices.Price(1)), Nested(Line([prices.Price(1)])), Giving(), function(1), Right(prices.Price(5))
        """,
    )
    text = "\n".join(printed)

    for hint, place in [("Price", "Order.price"), ("list[Price] | None", "Line.prices")]:
        assert f"the hint {hint!r} of {place} does not resolve at run time; import Price without" in text
    assert "StateNotEncodable: __main__.Giving output: " in text
    assert "the hint 'Status | Price' of Giving.execute.return does not resolve" in text
    assert "the hint 'Price' of function.return does not resolve" in text
    assert printed[-1] == "Price(cents=5)"
