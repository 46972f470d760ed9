"""Values whose classes changed since they were stored: read, migrated, or parked with the reason; never half made."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections import defaultdict
from dataclasses import dataclass, field, make_dataclass
from enum import Enum, Flag
from typing import Any, NamedTuple

import attrs
import msgspec
import pydantic
import pytest

from actorproc import Procedure, Status, decode_value, migrates, value
from actorproc.errors import UsageError, ValueNotDecodable
from actorproc.procedure.encoding.state import StateRefused
from actorproc.procedure.runtime.type_runtime import TypeRuntime
from actorproc.procedure.values.codec import DataCodec


def named(cls, name="Line"):
    """The class under a stored name that editions of it share."""
    cls.__module__, cls.__qualname__, cls.__name__ = "shop", name, name
    return cls


def stored(made, *classes):
    return DataCodec("Order", classes or [type(made)]).encode(made)


def read(data, *classes, **options):
    return DataCodec("Order", classes, **options).decode(data)


@named
@dataclass
class Old:
    sku: str


OLD = stored(Old("a"))


def editions():
    """Today's class with a field more, in each form; and what that field is when it has a default."""
    yield "dataclass", named(make_dataclass("L", [("sku", str), ("price", int)])), None
    yield "slots", named(dataclass(slots=True)(type("L", (), {"__annotations__": {"sku": str, "price": int}}))), None
    yield "frozen", named(make_dataclass("L", [("sku", str), ("price", int)], frozen=True)), None
    yield "kw_only", named(make_dataclass("L", [("price", int), ("sku", str)], kw_only=True)), None
    yield "attrs", named(attrs.make_class("L", {"sku": attrs.field(), "price": attrs.field()})), None
    yield "attrs slots", named(attrs.make_class("L", {"sku": attrs.field(), "price": attrs.field()}, slots=True)), None
    yield "struct", named(msgspec.defstruct("L", [("sku", str), ("price", int)])), None
    yield "named tuple", named(NamedTuple("L", [("sku", str), ("price", int)])), None
    yield "init=False", named(make_dataclass("L", [("sku", str), ("price", int, field(init=False))])), None
    init_false = {"sku": attrs.field(), "price": attrs.field(init=False)}
    yield "attrs init=False", named(attrs.make_class("L", init_false)), None
    yield "default", named(make_dataclass("L", [("sku", str), ("price", int, 3)])), 3
    yield "factory", named(make_dataclass("L", [("sku", str), ("price", list, field(default_factory=list))])), []
    yield "struct default", named(msgspec.defstruct("L", [("sku", str), ("price", int, 3)])), 3
    yield (
        "init=False with default",
        named(make_dataclass("L", [("sku", str), ("price", int, field(default=3, init=False))])),
        3,
    )
    takes_self = attrs.field(default=attrs.Factory(lambda self: self.sku * 2, takes_self=True))
    yield "takes_self", named(attrs.make_class("L", {"sku": attrs.field(), "price": takes_self})), "aa"
    frozen = attrs.make_class("L", {"sku": attrs.field(), "price": takes_self}, frozen=True, slots=True)
    yield "takes_self, frozen", named(frozen), "aa"


EDITIONS = list(editions())


@pytest.mark.parametrize(("cls", "default"), [each[1:] for each in EDITIONS], ids=[each[0] for each in EDITIONS])
@pytest.mark.parametrize("wrap", [lambda v: v, lambda v: [v], lambda v: {"k": (v,)}], ids=["bare", "list", "nested"])
def test_a_field_that_came_has_its_default_or_the_value_is_refused_whole(cls, default, wrap):
    data = stored(wrap(Old("a")), Old)

    if default is None:
        with pytest.raises(ValueNotDecodable, match=r"'shop:Line' has no field 'price', which the class needs"):
            read(data, cls)
    else:
        found = read(data, cls)
        while not hasattr(found, "sku"):
            found = found[0] if not isinstance(found, dict) else found["k"]
        assert (found.sku, found.price) == ("a", default)


def test_models_of_pydantic_are_held_to_the_same():
    class Line(pydantic.BaseModel):
        sku: str

    class Needs(pydantic.BaseModel):
        sku: str
        price: int

    class Has(pydantic.BaseModel):
        sku: str
        price: int = pydantic.Field(default_factory=lambda data: len(data["sku"]))

    data = stored(named(Line)(sku="abc"))

    with pytest.raises(ValueNotDecodable, match="no field 'price'"):
        read(data, named(Needs))
    assert read(data, named(Has)).price == 3


def test_a_field_that_had_no_value_has_none_again_and_is_not_missing():
    cls = make_dataclass("L", [("sku", str), ("total", int, field(init=False))])
    slotted = dataclass(slots=True)(type("S", (), {"__annotations__": {"sku": str, "total": int}}))
    emptied = slotted("a", 1)
    del emptied.total
    for made in (cls("a"), emptied):
        found = read(stored(made), type(made))
        assert found.sku == "a"
        assert not hasattr(found, "total")


@dataclass
class Top(Procedure):
    sku: str
    type_name = "shop.Top"

    def execute(self, ctx):
        return Status.done()


@dataclass
class TopLater(Procedure):
    sku: str
    total: int = field(init=False)
    type_name = "shop.Top"

    def __post_init__(self):
        self.total = 1

    def execute(self, ctx):
        return Status.done()


def test_a_procedure_without_a_needed_field_is_refused_also_when_post_init_would_have_set_it():
    state = TypeRuntime.of_class(Top).describe(Top("a")).state

    with pytest.raises(StateRefused, match="no field 'total'"):
        TypeRuntime.of_class(TopLater).load(state, "data", 1)


def test_a_procedure_whose_field_has_no_value_yet_comes_back_without_one():
    live = TopLater("a")
    del live.total
    runtime = TypeRuntime.of_class(TopLater)

    assert not hasattr(runtime.load(runtime.describe(live).state, "data", 1), "total")


# ---------------------------------------------------------------- versions and migrations
@named
@dataclass
class Line:
    code: str
    quantity: int = 1


@named
@value(version=2)
@dataclass
class LineTwo:
    code: str


@migrates(LineTwo)
def migrate_line(plain, version):
    if version == 1:
        return {"code": plain["sku"].upper()}
    raise LookupError(version)


class Color(Enum):
    RED = 1


class Crimson(Enum):
    CRIMSON = 1


named(Color, "Color")
named(Crimson, "Color")


@migrates(Crimson)
def migrate_color(plain, version):
    return {"RED": "CRIMSON"}[plain]


@dataclass
class Cart:
    lines: list
    color: Any = None


def test_a_migration_is_asked_when_the_version_differs_and_when_the_class_cannot_make_it():
    assert read(OLD, LineTwo) == LineTwo("A")
    assert read(stored(LineTwo("x")), LineTwo) == LineTwo("x")
    assert read(stored(Color.RED), Crimson) is Crimson.CRIMSON


@pytest.mark.parametrize(
    "wrap", [lambda v: [v, v], lambda v: {"a": {"b": v}}, lambda v: Cart([v]), lambda v: defaultdict(list, a=[v])]
)
def test_it_is_asked_for_values_wherever_they_are(wrap):
    assert read(stored(wrap(Old("a")), Old, Cart), LineTwo, Cart) == wrap(LineTwo("A"))


def test_keys_and_members_of_sets_are_migrated_too():
    assert read(stored({Color.RED: {Color.RED}}, Color), Crimson) == {Crimson.CRIMSON: {Crimson.CRIMSON}}


def test_what_a_migration_gives_is_completed_and_checked():
    def reading(result, cls=None):
        @named
        @value(version=5)
        @dataclass
        class Now:
            code: str
            more: list = field(default_factory=list)

        @migrates(Now)
        def migrate(plain, version):
            assert (plain.class_name, plain.version, dict(plain)) == ("shop:Line", 1, {"sku": "a"})
            return result(Now, plain)

        return read(OLD, Now)

    assert reading(lambda cls, plain: {"code": plain["sku"]}).more == []
    assert reading(lambda cls, plain: cls(plain["sku"], [1])).more == [1]
    for wrong in (
        lambda cls, plain: {},
        lambda cls, plain: {"code": 1, "gone": 2},
        lambda cls, plain: plain,
        lambda cls, plain: [plain],
        lambda cls, plain: plain["nothing"],
    ):
        with pytest.raises(ValueNotDecodable, match="the migration of 'shop:Line' from version 1 failed"):
            reading(wrong)


def test_a_value_of_a_later_version_is_refused_until_a_migration_reads_it():
    data = stored(LineTwo("x"))

    with pytest.raises(ValueNotDecodable, match="has version 2, the class has version 1; write a migration"):
        read(data, Line)


def test_the_class_around_a_value_that_cannot_be_made_is_asked_with_it_in_plain_form():
    @dataclass
    class Outer:
        line: Any

    @migrates(Outer)
    def migrate(plain, version):
        return {"line": plain["line"]["sku"]}

    @named
    @dataclass
    class NoLine:
        other: str

    assert read(stored(Outer(Old("a")), Outer, Old), Outer, NoLine) == Outer("a")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"version": 0}, "from 1"),
        ({"version": True}, "from 1"),
        ({"version": "2"}, "from 1"),
        ({"aliases": ["Line"]}, "module:Class"),
        ({"aliases": [5]}, "module:Class"),
        ({"aliases": "shop:"}, "module:Class"),
    ],
)
def test_a_wrong_declaration_of_a_value_is_refused(arguments, words):
    with pytest.raises(TypeError, match=words):
        value(**arguments)


def test_decorators_are_for_classes():
    with pytest.raises(TypeError, match="above a class"):
        value(version=2)(len)
    with pytest.raises(TypeError, match="takes the class"):
        migrates("Line")


# ---------------------------------------------------------------- names that changed
def test_a_renamed_class_is_found_by_its_earlier_name():
    @dataclass
    class Renamed:
        sku: str

    @value(aliases=["shop:Line"])
    @dataclass
    class Declared:
        sku: str

    assert read(OLD, Renamed, aliases={"shop:Line": Renamed}) == Renamed("a")
    assert read(OLD, Declared) == Declared("a")
    with pytest.raises(ValueNotDecodable, match=r"aliases = \{'shop:Line'"):
        read(OLD, Renamed)


def test_a_renamed_member_of_an_enum_is_found_by_its_earlier_name():
    class Paint(Enum):
        CRIMSON = 1

    class Renamed(Enum):
        RED = 1

    class Rights(Flag):
        READ = 1
        WRITE = 2

    assert read(stored(Color.RED), Paint, aliases={"shop:Color.RED": Paint.CRIMSON}) is Paint.CRIMSON
    assert read(stored(Color.RED), Renamed, aliases={"shop:Color": Renamed}) is Renamed.RED
    both = stored(Rights.READ | Rights.WRITE)
    assert read(both, Rights) == Rights.READ | Rights.WRITE
    with pytest.raises(ValueNotDecodable, match="has the member 'RED', which the class does not have"):
        read(stored(Color.RED), named(Paint, "Color"))


def test_an_alias_that_is_the_name_of_a_class_or_a_member_of_today_is_refused():
    @dataclass
    class Former:
        sku: str

    class Paint(Enum):
        RED = 1
        CRIMSON = 2

    class Same(Enum):
        CRIMSON = 1
        RED = CRIMSON

    class Other(Enum):
        RED = 5

    today, paint = named(Old), named(Paint, "Color")
    for classes, aliases in (
        ((today, Former), {"shop:Line": Former}),
        ((today, value(aliases=["shop:Line"])(Former)), {}),
        ((paint,), {"shop:Color.RED": paint.CRIMSON}),
        ((paint, Other), {"shop:Color.RED": Other.RED}),
        ((paint, Other), {"shop:Color": Other}),
    ):
        with pytest.raises(UsageError, match=r"Order has an alias 'shop:\w+(\.RED)?' for .* is the name of .* today"):
            DataCodec("Order", classes, aliases=aliases)

    assert read(OLD, today, aliases={"shop:Line": today}) == Old("a")
    same = named(Same, "Color")
    assert read(stored(Color.RED), same, aliases={"shop:Color.RED": same.CRIMSON}) is same.CRIMSON


def test_a_procedure_names_what_its_values_were_called_before():
    class Paint(Enum):
        CRIMSON = 1

    @dataclass
    class Renamed:
        sku: str

    class Before(Procedure, type_name="shop.Painting"):
        def execute(self, ctx):
            return Status.done()

    class Now(Procedure, type_name="shop.Painting", aliases={"shop:Color.RED": Paint.CRIMSON, "shop:Line": Renamed}):
        def execute(self, ctx):
            return Status.done()

    Before.uses = (Color, Old)
    live = Before()
    live.color, live.lines = Color.RED, [Old("a")]
    found = TypeRuntime.of_class(Now).load(TypeRuntime.of_class(Before).describe(live).state, "data", 1)

    assert (found.color, found.lines) == (Paint.CRIMSON, [Renamed("a")])


@pytest.mark.parametrize("aliases", [5, {"Line": Line}, {5: Line}, {"shop:Line": 5}, {"shop:Line": int}])
def test_wrong_aliases_of_a_procedure_are_refused_when_it_is_registered(aliases):
    class Wrong(Procedure, aliases=aliases):
        def execute(self, ctx):
            return Status.done()

    with pytest.raises(UsageError, match="alias"):
        TypeRuntime.of_class(Wrong)


# ---------------------------------------------------------------- migrate() of a procedure, and decode_value
def procedures(now, seen):
    @dataclass
    class Before(Procedure):
        line: Any
        color: Any = None
        type_name = "shop.Order"
        uses = (Old, Color)

        def execute(self, ctx):
            return Status.done()

    @dataclass
    class Now(Procedure):
        line: Any
        color: Any = None
        type_name = "shop.Order"
        version = 2
        uses = (named(make_dataclass("L", [("code", str)])), named(Enum("Color", {"BLUE": 1}), "Color"))

        def execute(self, ctx):
            return Status.done()

        @classmethod
        def migrate(cls, data, from_version):
            seen.append((data, from_version))
            return now(cls, data)

    return Before, Now


@pytest.mark.parametrize("wrap", [lambda v: v, lambda v: [v], lambda v: {"k": v}, lambda v: (v, 1)])
def test_migrate_gets_what_no_class_can_make_in_plain_form(wrap):
    seen = []
    before, now = procedures(lambda cls, data: {"line": cls.uses[0]("A"), "color": cls.uses[1]["BLUE"]}, seen)
    state = TypeRuntime.of_class(before).describe(before(wrap(Old("a")), Color.RED)).state

    live = TypeRuntime.of_class(now).load(state, "data", 1)

    assert (live.line.code, live.color.name) == ("A", "BLUE")
    [(data, version)] = seen
    assert version == 1
    assert data["line"] == wrap({"sku": "a"})
    assert (data["color"], data["color"].class_name) == ("RED", "shop:Color")


@pytest.mark.parametrize("wrap", [lambda v: v, lambda v: [[v]], lambda v: {"k": (v,)}])
def test_what_migrate_leaves_in_plain_form_is_refused(wrap):
    before, now = procedures(lambda cls, data: {"line": wrap(data["line"])}, [])
    state = TypeRuntime.of_class(before).describe(before(Old("a"))).state

    with pytest.raises(StateRefused, match="left a value of 'shop:Line' in plain form"):
        TypeRuntime.of_class(now).load(state, "data", 1)


def test_decode_value_gives_the_fields_of_a_state_without_any_class():
    before, _ = procedures(None, [])
    state = TypeRuntime.of_class(before).describe(before([Old("a")], Color.RED)).state

    found = decode_value(state)
    made = decode_value(state, uses=[Old, Color])

    assert found == {"line": [{"sku": "a"}], "color": "RED"}
    assert (found["line"][0].class_name, found["line"][0].version) == ("shop:Line", 1)
    assert made == {"line": [Old("a")], "color": Color.RED}
    assert decode_value(state, uses=[LineTwo], aliases={"shop:Color.RED": Crimson.CRIMSON}) == {
        "line": [LineTwo("A")],
        "color": Crimson.CRIMSON,
    }


@pytest.mark.parametrize("data", [{"a": 1}, "text", None])
def test_decode_value_takes_bytes(data):
    with pytest.raises(TypeError, match="takes the bytes that load"):
        decode_value(data)


def test_decode_value_of_damaged_bytes_is_refused():
    with pytest.raises(ValueNotDecodable):
        decode_value(b"\xc1\xc1")


# ---------------------------------------------------------------- in workers
EDITION = """
    import sys
    sys.path.insert(0, {folder!r})
    from dataclasses import dataclass
    from actorproc import *
    {line}
    @dataclass
    class Basket(Procedure):
        line: Line
        type_name = "shop.Basket"
        def execute(self, ctx):
            return Status.wait("go") if ctx.event is None else Status.done(repr(self.line))
    with ProcedureManager({path!r}, workers=1, procedures=[Basket]) as manager:
        {what}
"""
OWN = "@dataclass\n    class Line:\n        sku: str"


def run_edition(tmp_path, line, what):
    program = tmp_path / "shop_program.py"
    text = EDITION.format(folder=str(tmp_path), line=line, path=str(tmp_path / "state"), what=what)
    program.write_text(textwrap.dedent(text))
    ran = subprocess.run([sys.executable, program], capture_output=True, text=True, check=False, timeout=90)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.strip()


SCRIPT = """@value(version=2)
    @dataclass
    class Line:
        code: str
    @migrates(Line)
    def read(plain, version): return {"code": plain["sku"] * version}"""
ELSEWHERE = """from shop_values import Line
    @migrates(Line)
    def read(plain, version): return {"code": plain["sku"] * version}"""
IMPORTED = "from shop_values import Line\n    import shop_migrations"


@pytest.mark.processes
@pytest.mark.parametrize(
    "line", [SCRIPT, ELSEWHERE, IMPORTED], ids=["of a script", "for a module", "of another module"]
)
def test_a_migration_reaches_the_workers_wherever_it_stands(tmp_path, line):
    first = OWN if line is SCRIPT else "from shop_values import Line"
    (tmp_path / "shop_values.py").write_text(
        "from dataclasses import dataclass\n@dataclass\nclass Line:\n    sku: str\n"
    )
    run_edition(tmp_path, first, 'manager.submit(Basket(Line("a")), id="b")')
    (tmp_path / "shop_values.py").write_text(
        "from dataclasses import dataclass\nfrom actorproc import value\n"
        "@value(version=2)\n@dataclass\nclass Line:\n    code: str\n"
    )
    (tmp_path / "shop_migrations.py").write_text(
        "from actorproc import migrates\nfrom shop_values import Line\n"
        "@migrates(Line)\ndef read(plain, version):\n    return {'code': plain['sku'] * version}\n"
    )

    printed = run_edition(tmp_path, line, 'manager.signal("b", 1); print(manager.get("b").result(timeout=60))')

    assert printed == "Line(code='a')"
