"""Classes arrive in a fresh interpreter, by path or by value."""

from __future__ import annotations

import functools
import pickle
import subprocess
import sys
import textwrap
from typing import NewType, ParamSpec, TypeVarTuple

import msgspec
import pytest

from actorproc import Procedure, Status, UnknownType, UsageError, procedure
from actorproc.model.messages.definitions import Definition
from actorproc.procedure.runtime.class_shipping import definition_of, resolve
from actorproc.procedure.runtime.engine_side import TypeRegistry, TypeRuntime
from actorproc.procedure.shipping.by_value import dumped
from actorproc.procedure.values.type_names import command_of_module
from actorproc.testing.torture.procedures import Errand

RECEIVER = """
import json, sys
import msgspec
from actorproc.model.messages.definitions import Definition
from actorproc.model.ids import Mode
from actorproc.procedure.authoring.context import Context
from actorproc.procedure.runtime.class_shipping import resolve

class Channel:
    def request(self, kind, key="", value=b"", step=0): return None
    def heartbeat(self, progress, message): pass
    def log(self, parts): pass
    def aborting(self): return False

definition, state = msgspec.msgpack.Decoder(tuple[Definition, bytes]).decode(sys.stdin.buffer.read())
runtime = resolve(definition)
for number in range(1, 9):
    live = runtime.load(state, "data", 1)
    ctx = Context(Channel(), id="p", type_name=runtime.type_name, root_id="p", step=number)
    outcome, _ = runtime.run(live, ctx, Mode.EXECUTE, None, None)
    if not hasattr(outcome, "persist"):
        break
    state = outcome.state
assert hasattr(outcome, "output"), outcome
print(json.dumps([runtime.type_name, runtime.revision, definition.module, repr(runtime.decode_output(outcome.output)),
                  sorted({"lmdb", "pykka"} & set(sys.modules))]))
"""

SENDER = """
import sys
import msgspec
from actorproc.procedure.runtime.engine_side import TypeRegistry
from actorproc.procedure.runtime.class_shipping import definition_of

def ship(made):
    runtime = TypeRegistry().for_object(made)
    sys.stdout.buffer.write(msgspec.msgpack.encode((definition_of(runtime, 3), runtime.describe(made).state)))
"""

SAGA = """
from __future__ import annotations
from dataclasses import dataclass, field
from enum import Enum
from actorproc import Saga, Status, step, procedure, StateMachineProcedure

class Kind(Enum):
    BOOK = 1

@dataclass
class Item:
    kind: Kind
    price: int

PREFIX = "total "

def total(items): return PREFIX + str(sum(item.price for item in items))

class Order(Saga):
    items: list[Item] = field(default_factory=list)
    paid: bool = False

    @step
    def pay(self, ctx): self.paid = True
    @pay.undo
    def refund(self, ctx): self.paid = False
    @step
    def ship(self, ctx) -> tuple[Kind, str]: return self.items[0].kind, total(self.items)

@procedure
def double(kind: Kind, number: int = 4):
    return kind.name, number * 2

class Walk(StateMachineProcedure):
    initial_state = Kind.BOOK
    def __init__(self): self.seen = ()
    def execute_from_state(self, ctx, state):
        self.seen += (state,)
        return state if len(self.seen) < 2 else Status.done(self.seen)
"""


def in_fresh_interpreters(source, tmp_path, *, module=None, path=()):
    """What the receiver printed after one interpreter shipped a procedure to another."""
    file = tmp_path / "program.py"
    file.write_text(textwrap.dedent(source))
    command = [sys.executable, "-m", module] if module else [sys.executable, str(file)]
    sent = subprocess.run(command, capture_output=True, check=False, cwd=tmp_path, timeout=60)
    assert sent.returncode == 0, sent.stderr.decode()
    prepared = f"import sys; sys.path[:0] = {[str(entry) for entry in path]!r}\n" + RECEIVER
    got = subprocess.run(
        [sys.executable, "-c", prepared], input=sent.stdout, capture_output=True, check=False, timeout=60
    )
    assert got.returncode == 0, got.stderr.decode()
    return msgspec.json.decode(got.stdout)


@pytest.mark.parametrize(
    ("made", "output", "type_name"),
    [
        ("Order([Item(Kind.BOOK, 3), Item(Kind.BOOK, 4)])", "(<Kind.BOOK: 1>, 'total 7')", "__main__.Order"),
        ("double(Kind.BOOK)", "('BOOK', 8)", "__main__.double"),
        ("Walk()", "(<Kind.BOOK: 1>, <Kind.BOOK: 1>)", "__main__.Walk"),
    ],
)
def test_a_class_of_a_script_runs_in_another_interpreter(tmp_path, made, output, type_name):
    got = in_fresh_interpreters(f"{SAGA}\n{SENDER}\nship({made})", tmp_path)

    assert got == [type_name, 3, None, output, []]


TOOLS = """
import functools
from dataclasses import dataclass
from typing import NewType, ParamSpec, TypeVarTuple, Unpack
from actorproc import Procedure, Status

P = ParamSpec("P")
Ts = TypeVarTuple("Ts")

def logged(function):
    def wrapper(*args: P.args, **kwargs: P.kwargs): return function(*args, **kwargs)
    return wrapper

def together(*values: Unpack[Ts]) -> tuple[Unpack[Ts]]: return values

@functools.cache
def fibonacci(number): return number if number < 2 else fibonacci(number - 1) + fibonacci(number - 2)

@functools.lru_cache(maxsize=3, typed=True)
def twice(number): return 2 * number

@functools.singledispatch
def kind(value): return "any"

@kind.register
def _(value: int): return "int"

Amount = NewType("Amount", int)
exec("type Amounts = list[Amount]" if sys.version_info >= (3, 12) else "Amounts = list[Amount]")

@dataclass
class Uses(Procedure):
    amount: Amount
    more: Amounts = ()
    @functools.cached_property
    def half(self): return self.amount // 2
    @logged
    def execute(self, ctx):
        found = twice.cache_parameters()
        return Status.done((fibonacci(20), twice(Amount(3)), found["maxsize"], kind(3), kind(""), together(self.half)))
"""


def test_cached_functions_types_and_properties_of_a_script_travel_with_it(tmp_path):
    got = in_fresh_interpreters(f"{SENDER}\n{TOOLS}\nship(Uses(Amount(8)))", tmp_path)

    assert got[3] == "(6765, 6, 3, 'int', 'any', (4,))"


@pytest.mark.parametrize(
    "of_a_module", ["cached", "Amount", "P", "Ts", *(["Loop"] if sys.version_info >= (3, 12) else [])]
)
def test_what_a_module_has_goes_by_its_name(of_a_module):
    subject = globals()[of_a_module]

    assert pickle.loads(dumped(subject)) is subject


Amount = NewType("Amount", int)
P = ParamSpec("P")
Ts = TypeVarTuple("Ts")
if sys.version_info >= (3, 12):
    exec("type Loop = list[Loop]")


@functools.cache
def cached(): ...


def test_a_class_made_in_a_function_runs_in_another_interpreter(tmp_path):
    body = textwrap.indent(SAGA.replace("from __future__ import annotations", ""), "    ")
    source = f"{SENDER}\ndef make():\n{body}\n    return Order([Item(Kind.BOOK, 3)])\nship(make())"

    got = in_fresh_interpreters(source, tmp_path)

    assert got[0] == "__main__.make.<locals>.Order"
    assert got[3] == "(<Kind.BOOK: 1>, 'total 3')"


def test_an_importable_class_and_function_go_by_path(tmp_path):
    (tmp_path / "shop_for_test.py").write_text(SAGA)

    for made, output in (
        ("Order([Item(Kind.BOOK, 3)])", "(<Kind.BOOK: 1>, 'total 3')"),
        ("double(Kind.BOOK)", "('BOOK', 8)"),
    ):
        got = in_fresh_interpreters(f"from shop_for_test import *\n{SENDER}\nship({made})", tmp_path, path=[tmp_path])
        assert got[2:4] == ["shop_for_test", output]


@pytest.fixture
def another_version(tmp_path, monkeypatch):
    """A checkout of another version of the package, in the working directory and in front of the path."""
    (tmp_path / "actorproc").mkdir()
    (tmp_path / "actorproc" / "__init__.py").write_text("raise AssertionError('the other version')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend("")


@pytest.mark.usefixtures("another_version")
def test_classes_of_this_package_go_by_path_also_where_another_version_is_found_first():
    definition = definition_of(TypeRuntime.of_class(Errand))

    assert definition.module == "actorproc.testing.torture.procedures"


@pytest.mark.usefixtures("another_version")
def test_a_process_of_ours_has_this_package_also_where_another_version_is_found_first():
    done = subprocess.run(command_of_module("actorproc", "--version"), capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("actorproc ")


def test_a_program_run_as_a_module_has_the_modules_name(tmp_path):
    package = tmp_path / "package_for_test"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "program.py").write_text(f"{SAGA}\n{SENDER}\nship(double(Kind.BOOK))")

    got = in_fresh_interpreters("", tmp_path, module="package_for_test.program")

    assert got[0] == "package_for_test.program.double"
    assert got[2] is None


def test_a_module_that_is_on_no_path_goes_by_value(tmp_path):
    source = f"""
import types, sys
made_up = types.ModuleType("made_up")
sys.modules["made_up"] = made_up
exec(compile({SAGA!r}, "made_up", "exec"), made_up.__dict__)
{SENDER}
ship(made_up.Order([made_up.Item(made_up.Kind.BOOK, 3)]))
"""

    got = in_fresh_interpreters(source, tmp_path)

    assert got == ["made_up.Order", 3, None, "(<Kind.BOOK: 1>, 'total 3')", []]


@procedure
def importable(x): ...


def test_what_cannot_be_pickled_is_a_usage_error_that_says_where_to_put_it():
    lock = __import__("threading").Lock()

    class Holding(Procedure):
        def execute(self, ctx):
            return Status.done(lock.locked())

    with pytest.raises(UsageError, match="environment="):
        definition_of(TypeRuntime.of_class(Holding))


def test_a_definition_that_leads_nowhere_is_an_unknown_type():
    meta = TypeRuntime.of_class(importable.procedure_class).meta

    for module, qualname in (("no_such_module_here", "X"), ("json", "nothing")):
        with pytest.raises(UnknownType, match="importable"):
            resolve(Definition(meta=meta, module=module, qualname=qualname))


def test_a_class_that_finds_no_memory_is_not_taken_for_unknown(tmp_path, monkeypatch):
    (tmp_path / "module_without_memory.py").write_text("raise MemoryError")
    monkeypatch.syspath_prepend(tmp_path)
    meta = TypeRuntime.of_class(importable.procedure_class).meta

    with pytest.raises(MemoryError):
        resolve(Definition(meta=meta, module="module_without_memory", qualname="X"))


def test_a_loader_is_shipped_as_a_loader():
    runtime = TypeRegistry().register_loader("doubled", importable)

    definition = definition_of(runtime)

    assert definition.loader
    assert resolve(definition).loader is not None


def test_pickling_leaves_the_hosts_settings_of_cloudpickle_alone():
    import cloudpickle

    before = cloudpickle.list_registry_pickle_by_value()
    definition_of(TypeRuntime.of_class(importable.procedure_class))

    assert cloudpickle.list_registry_pickle_by_value() == before


def test_code_that_goes_by_value_keeps_the_name_of_its_file_for_tracebacks():
    def outer():
        return lambda: 1 / 0

    made = pickle.loads(dumped(outer))

    assert made.__code__ is not outer.__code__
    assert {made.__code__.co_filename, made().__code__.co_filename} == {outer.__code__.co_filename}
    with pytest.raises(ZeroDivisionError) as failed:
        made()()
    assert str(failed.traceback[-1].statement).strip() == "return lambda: 1 / 0"


def test_what_a_module_stores_as_the_main_program_it_reads_when_it_is_imported(tmp_path):
    (tmp_path / "shop_for_test.py").write_text(
        SAGA
        + textwrap.dedent(
            """
            if __name__ == "__main__":
                from actorproc.procedure.runtime.engine_side import TypeRuntime
                new = TypeRuntime.of_class(Order).describe(Order([Item(Kind.BOOK, 3)]))
                print(new.type_name, new.state.hex(), new.digest.hex())
            """
        )
    )
    reader = """
        import sys
        from actorproc.procedure.runtime.engine_side import TypeRuntime
        from shop_for_test import Item, Kind, Order
        name, state, digest = sys.argv[1:]
        runtime = TypeRuntime.of_class(Order)
        order = Order([Item(Kind.BOOK, 3)])
        loaded = runtime.load(bytes.fromhex(state), "data", 1)
        print(name == Order.type_name, loaded == order, digest == runtime.describe(order).digest.hex())
        """
    stored = python(tmp_path, "-m", "shop_for_test").split()

    assert python(tmp_path, "-c", textwrap.dedent(reader), *stored).split() == ["True"] * 3


def test_a_class_that_came_by_value_refuses_a_state_without_a_field_that_has_no_default(tmp_path):
    (tmp_path / "sender.py").write_text(
        textwrap.dedent(
            """
            from dataclasses import dataclass, field
            import msgspec
            from actorproc import Procedure
            from actorproc.procedure.runtime.engine_side import TypeRuntime
            from actorproc.procedure.runtime.class_shipping import definition_of

            @dataclass
            class Job(Procedure):
                name: str
                added: int
                items: list[int] = field(default_factory=list)

                def execute(self, ctx): ...

            print(msgspec.msgpack.encode(definition_of(TypeRuntime.of_class(Job))).hex())
            """
        )
    )
    receiver = """
        import sys
        import msgspec
        from actorproc.model.messages.definitions import Definition
        from actorproc.procedure.runtime.class_shipping import resolve
        from actorproc.procedure.encoding.state import StateRefused
        runtime = resolve(msgspec.msgpack.decode(bytes.fromhex(sys.argv[1]), type=Definition))
        print(runtime.load(msgspec.msgpack.encode({"name": "x", "added": 1}), "data", 1))
        try:
            runtime.load(msgspec.msgpack.encode({"name": "x"}), "data", 1)
        except StateRefused as refused:
            print(refused.reason)
        """

    definition = python(tmp_path, "sender.py").strip()
    loaded, refused = python(tmp_path, "-c", textwrap.dedent(receiver), definition).splitlines()

    assert loaded == "Job(name='x', added=1, items=[])"
    assert refused == "the state has no field 'added', which Job needs; write migrate()"


def test_a_pickled_state_may_hold_objects_of_classes_of_a_script(tmp_path):
    (tmp_path / "sender.py").write_text(
        textwrap.dedent(
            """
            from dataclasses import dataclass
            import msgspec
            from actorproc import Procedure, Saga, step
            from actorproc.procedure.runtime.engine_side import TypeRuntime
            from actorproc.procedure.runtime.class_shipping import definition_of

            class Tool:
                def __init__(self, name): self.name = name

            @dataclass
            class Part:
                tool: Tool

            class Job(Saga):
                part: Part
                more: object = None
                codec = "pickle"

                @step
                def take(self, ctx): self.more = Tool("second")

            runtime = TypeRuntime.of_class(Job, signing_key=b"k" * 32)
            new = runtime.describe(Job(Part(Tool("first"))), id="job")
            print(msgspec.msgpack.encode(definition_of(runtime)).hex(), new.state.hex())
            """
        )
    )
    receiver = """
        import sys
        import msgspec
        from actorproc.model.messages.definitions import Definition
        from actorproc.procedure.runtime.class_shipping import resolve
        from actorproc.procedure.shipping.worker_main import show_what_comes
        show_what_comes()
        runtime = resolve(msgspec.msgpack.decode(bytes.fromhex(sys.argv[1]), type=Definition))
        job = runtime.load(bytes.fromhex(sys.argv[2]), "pickle", 1, "job")
        job.take(None)
        back = runtime.load(runtime.dump_state(job, "job"), "pickle", 1, "job")
        print(back.part.tool.name, back.more.name)
        """

    for command in (["sender.py"], ["-m", "sender"]):
        sent = python(tmp_path, *command).split()
        assert python(tmp_path, "-c", textwrap.dedent(receiver), *sent).split() == ["first", "second"]


def test_a_module_from_a_place_that_was_added_later_is_found_by_workers_that_run_already(tmp_path):
    for folder, words in (("known", "the known one"), ("later", "the later one")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "both_have_it.py").write_text(f"WORDS = {words!r}")
    (tmp_path / "later" / "late_for_test.py").write_text(SAGA)
    sender = """
        import os, sys
        import msgspec
        from actorproc.procedure.runtime.engine_side import TypeRuntime
        from actorproc.procedure.runtime.class_shipping import definition_of
        sys.path.insert(0, "later")
        import late_for_test
        print(msgspec.msgpack.encode(definition_of(TypeRuntime.of_class(late_for_test.Order))).hex())
        """
    receiver = """
        import sys
        import msgspec
        from actorproc.model.messages.definitions import Definition
        from actorproc.procedure.runtime.class_shipping import resolve
        sys.path.insert(0, "known")
        before = list(sys.path)
        definition = msgspec.msgpack.decode(bytes.fromhex(sys.argv[1]), type=Definition)
        print(resolve(definition).type_name, sys.path[:len(before)] == before)
        resolve(msgspec.structs.replace(definition, path=(b"no/absolute/path", b"/null\\0byte", *definition.path)))
        print(len(sys.path) == len(set(sys.path)), any("null" in entry or "absolute" in entry for entry in sys.path))
        import both_have_it
        print(both_have_it.WORDS)
        """

    definition = python(tmp_path, "-c", textwrap.dedent(sender)).strip()
    printed = python(tmp_path, "-c", textwrap.dedent(receiver), definition).splitlines()

    assert printed == ["late_for_test.Order True", "True False", "the known one"]


def python(folder, *command: str) -> str:
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, cwd=folder, check=True)
    return done.stdout
