"""Values of common types come back as exactly what they were, also out of a worker; others are refused in words."""

from __future__ import annotations

import functools
import ipaddress
import socket
import subprocess
import sys
import threading
from collections import Counter, OrderedDict, defaultdict, deque
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, ClassVar, Generic, Literal, TypeVar
from zoneinfo import ZoneInfo

import pydantic
import pytest
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, RootModel, SecretBytes, SecretStr

from actorproc import Procedure, ProcedureManager, Status, ValueAdapter
from actorproc.errors import StateNotEncodable, ValueNotDecodable
from actorproc.procedure.runtime.type_runtime import TypeRuntime
from actorproc.procedure.values.codec import PLAIN, DataCodec
from actorproc.procedure.values.redaction import redacted

np = pytest.importorskip("numpy")
T = TypeVar("T")


class Color(Enum):
    RED = 1


@dataclass(frozen=True)
class Item:
    value: Any


class Line(BaseModel):
    sku: str
    qty: int = 1


class Cart(BaseModel):
    lines: list[Line]
    color: Color = Color.RED
    at: datetime | None = None


class Tags(RootModel[list[str]]):
    pass


class Box(BaseModel, Generic[T]):
    inside: T


class Open(BaseModel):
    model_config = ConfigDict(extra="allow", frozen=True)
    name: str


class Checked(BaseModel):
    low: int
    high: int
    _seen: list[int] = PrivateAttr(default_factory=list)
    runs: ClassVar[list[str]] = []

    @pydantic.model_validator(mode="after")
    def in_order(self):
        self.runs.append("validated")
        if self.low > self.high:
            raise ValueError("out of order")
        return self

    @functools.cached_property
    def width(self):
        return self.high - self.low


class Cat(BaseModel):
    kind: Literal["cat"] = "cat"
    lives: int = 9


class Dog(BaseModel):
    kind: Literal["dog"] = "dog"
    name: str = "Rex"


class Pet(BaseModel):
    pet: Annotated[Cat | Dog, Field(discriminator="kind")]


class Login(BaseModel):
    user: str
    password: SecretStr
    key: SecretBytes = SecretBytes(b"\x00k")
    home: pydantic.HttpUrl | None = None


@dataclass
class Keeper(Procedure):
    """Reaches the classes of this file."""

    value: Any
    hint: Cart | Tags | Box[int] | Box[Line] | Open | Checked | Pet | Login | Item | None = None

    def execute(self, ctx):
        return Status.done((self.value, repr(type(self.value))))


RUNTIME = TypeRuntime.of_class(Keeper)
CODEC = RUNTIME.codec


def back(value):
    return CODEC.decode(CODEC.encode(value, "value"))


def digest(value):
    return RUNTIME.describe(Keeper(value)).digest


def alike(one, two):
    """Equal, of one class all the way down."""
    if type(one) is not type(two):
        return False
    if isinstance(one, np.ndarray):
        return (
            one.dtype == two.dtype
            and one.shape == two.shape
            and one.flags.writeable == two.flags.writeable
            and _raw(one) == _raw(two)
        )
    if isinstance(one, np.generic):
        return one.dtype == two.dtype and _raw(np.asarray(one)) == _raw(np.asarray(two))
    if isinstance(one, defaultdict) and one.default_factory is not two.default_factory:
        return False
    if isinstance(one, deque):
        return one.maxlen == two.maxlen and alike(list(one), list(two))
    if isinstance(one, dict):
        return alike(list(one.items()), list(two.items()))
    if isinstance(one, Item):
        return alike(one.value, two.value)
    if isinstance(one, datetime):
        return one == two and one.fold == two.fold and type(one.tzinfo) is type(two.tzinfo)
    if isinstance(one, list | tuple):
        return len(one) == len(two) and all(map(alike, one, two))
    return bool(one == two)


def _raw(array):
    if array.dtype.names:
        return [_raw(array[name]) for name in array.dtype.names]
    return array.tolist() if array.dtype.char in "gG" else array.tobytes()


STANDARD = {
    "counter": Counter("abca"),
    "counter of zeros and negative counts": Counter({"a": 0, "b": -3, ("c", 1): 2.5}),
    "defaultdict of list": defaultdict(list, {"a": [1], 2: []}),
    "defaultdict of int": defaultdict(int, {Color.RED: 1}),
    "defaultdict without factory": defaultdict(None, {1: 2}),
    "defaultdict of a class": defaultdict(Line),
    "defaultdict of an enum": defaultdict(Color),
    "defaultdict in a defaultdict": defaultdict(defaultdict, {"x": defaultdict(set, {1: {2}})}),
    "ordered": OrderedDict([("b", 1), ("a", Counter())]),
    "deque": deque([1, deque([2], maxlen=1)], maxlen=3),
    "deque of length 0": deque(maxlen=0),
    "range": range(10),
    "empty range": range(5, 1),
    "range with step": range(0, -9, -2),
    "huge range": range(-(2**70), 2**80, 2**65),
    "range as a key": {range(3): 1},
    "complex": complex(-0.0, float("inf")),
    "zone": ZoneInfo("Europe/Berlin"),
    "zones": [UTC, timezone(timedelta(hours=1)), timezone(timedelta(hours=-2), "x")],
    "fold": datetime(2024, 10, 27, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"), fold=1),
    **{
        f"{text} as {kind.__name__}": kind(text)
        for kind, text in [
            (ipaddress.IPv4Address, "127.0.0.1"),
            (ipaddress.IPv6Address, "::1"),
            (ipaddress.IPv6Address, "fe80::1%eth0"),
            (ipaddress.IPv4Network, "10.0.0.0/8"),
            (ipaddress.IPv6Network, "fe80::/64"),
            (ipaddress.IPv4Interface, "10.1.2.3/8"),
            (ipaddress.IPv6Interface, "fe80::1%eth0/64"),
        ]
    },
    "addresses as keys": {ipaddress.ip_address("::1"): {ipaddress.ip_network("10.0.0.0/8")}},
}
STRUCTURED = np.dtype([("x", ">i2"), ("y", "f8", (2,)), ("when", "M8[ms]")], align=True)
OVERLAPPING = np.dtype({"names": ["a", "b"], "formats": ["<u4", "<u2"], "offsets": [0, 2], "itemsize": 12})
TITLED = np.dtype({"names": ["a", "b"], "formats": ["i4", "U3"], "titles": ["The a", None]})
ARRAYS = {
    "floats": np.linspace(0, 1, 7),
    "0-d": np.array(5),
    "empty": np.zeros((0, 3), "f4"),
    "big-endian": np.arange(4, dtype=">i4"),
    "columns": np.asfortranarray(np.arange(6).reshape(2, 3)),
    "3-d columns": np.asfortranarray(np.arange(24).reshape(2, 3, 4)),
    "every second": np.arange(10)[::2],
    "backwards": np.arange(10)[::-1],
    "transposed": np.arange(6).reshape(2, 3).T,
    "swapped axes": np.arange(24).reshape(2, 3, 4).swapaxes(1, 2),
    "broadcast": np.broadcast_to(np.arange(3), (2, 3)),
    "read-only": np.frombuffer(b"abcd", "u1"),
    "bool": np.array([True, False]),
    "half": np.array([1.5, -0.0], "f2"),
    "complex": np.array([1 + 2j, complex("nan")]),
    "long": np.array([1.1, 2.2], np.longdouble),
    "complex long": np.array([1.1 + 3j], np.clongdouble),
    "texts": np.array(["a", "bcd", "\0x"]),
    "bytes": np.array([b"a", b"bc\0"]),
    "void": np.array([b"ab", b"cd"], "V2"),
    "dates": np.array(["2024-01-01", "NaT"], "M8[D]"),
    "deltas": np.array([1, 2], "m8[25s]"),
    "structured": np.array([(1, (2.0, 3.0), "2024-01-01"), (4, (5.0, 6.0), "NaT")], STRUCTURED),
    "structured, turned": np.zeros((2, 3), STRUCTURED).T,
    "overlapping": np.zeros(2, OVERLAPPING),
    "titled": np.zeros(2, TITLED),
    "nested": np.zeros(2, [("in", [("a", "i1"), ("b", "i8")]), ("c", "S2")]),
    "no fields": np.zeros(2, np.dtype([])),
}
NUMBERS = [
    *(np.dtype(char).type(3) for char in "bBhHiIlLqQefdgFDG?"),
    np.float64("nan"),
    np.float64(-0.0),
    np.longdouble(1) / 3,
    np.str_("a\0"),
    np.str_(""),
    np.str_("\ud800"),
    np.bytes_(b"a\0"),
    np.datetime64("2024-01-01T00:00", "ns"),
    np.datetime64("NaT"),
    np.timedelta64(5, "D"),
    np.timedelta64(5),
    np.void(b"ab"),
    np.zeros(1, STRUCTURED)[0],
]
MODELS = {
    "nested": Cart(lines=[Line(sku="a"), Line(sku="b", qty=2)]),
    "with an aware time": Cart.model_validate_json('{"lines": [], "at": "2024-01-01T12:00:00+02:00"}'),
    "in UTC": Cart.model_validate_json('{"lines": [], "at": "2024-01-01T12:00:00Z"}'),
    "root": Tags(["x"]),
    "generic": Box[int](inside=5),
    "generic of a model": Box[Line](inside=Line(sku="a")),
    "extra": Open(name="n", more=[1, Counter("a")]),
    "union": Pet(pet={"kind": "dog", "name": "Bo"}),
    "secret": Login(user="u", password="p", home="https://example.org/a?b"),
}
ALL = {**STANDARD, **ARRAYS, **{f"{type(n).__name__} {n!r:.30}": n for n in NUMBERS}, **MODELS}


@pytest.mark.parametrize("value", ALL.values(), ids=ALL)
@pytest.mark.parametrize("wrap", [lambda v: v, lambda v: [v], lambda v: {"k": (v, Item(3))}, lambda v: deque([v])])
def test_it_comes_back_as_what_it_was_with_the_same_bytes_and_digest(value, wrap):
    given = wrap(value)
    found = back(given)

    assert alike(found, given)
    assert CODEC.encode(found) == CODEC.encode(given)
    assert digest(found) == digest(given)


@pytest.mark.processes
def test_they_come_back_out_of_a_worker_and_of_the_store(tmp_path):
    names = list(ALL)
    with ProcedureManager(tmp_path, workers=1) as manager:
        handles = manager.submit_many([Keeper(ALL[name]) for name in names])
        for name, handle in zip(names, handles, strict=True):
            found, kind = handle.result(timeout=30)
            assert alike(found, ALL[name]), name
            assert kind == repr(type(ALL[name])), name


EQUAL = {
    "ranges that count the same": (range(0, 3, 2), range(0, 4, 2)),
    "empty ranges": (range(0), range(5, 2)),
    "ranges of one": (range(1, 2, 5), range(1, 2)),
    "counters filled in another order": (Counter("ab"), Counter("ba")),
    "a counter with a zero": (Counter(a=1), Counter(a=1, b=0)),
    "defaultdicts filled in another order": (defaultdict(int, a=1, b=2), defaultdict(int, b=2, a=1)),
    "an array in columns": (np.arange(6).reshape(2, 3), np.asfortranarray(np.arange(6).reshape(2, 3))),
    "a view": (np.arange(10)[::2], np.array([0, 2, 4, 6, 8])),
    "a read-only array": (np.frombuffer(b"ab", "u1"), np.array([97, 98], "u1")),
    "models of which other fields were given": (Line(sku="a"), Line(sku="a", qty=1)),
}


@pytest.mark.parametrize(("one", "two"), EQUAL.values(), ids=EQUAL)
def test_equal_values_have_equal_digests(one, two):
    assert digest(one) == digest(two)
    assert digest({1: [one]}) == digest({1: [two]})


UNEQUAL = {
    "ordered dicts": (OrderedDict(a=1, b=2), OrderedDict(b=2, a=1)),
    "ranges": (range(3), range(0, 5, 2)),
    "factories": (defaultdict(int), defaultdict(list)),
    "classes of mappings": (Counter(a=1), {"a": 1}),
    "types of elements": (np.arange(3, dtype="i4"), np.arange(3, dtype="i8")),
    "byte orders": (np.arange(3, dtype=">i4"), np.arange(3, dtype="<i4")),
    "shapes": (np.zeros((2, 3)), np.zeros((3, 2))),
    "a number and an array of none": (np.float64(1), np.array(1.0)),
    "a number and numpy's": (1.0, np.float64(1)),
    "private parts": (Checked(low=1, high=2), None),
    "extra fields": (Open(name="a", b=1), Open(name="a", b=2)),
}


@pytest.mark.parametrize(("one", "two"), UNEQUAL.values(), ids=UNEQUAL)
def test_other_values_have_other_digests(one, two):
    assert digest(one) != digest(two)


def test_what_lies_between_the_fields_of_an_array_and_behind_its_floats_is_no_part_of_it():
    dirty = np.frombuffer(b"\xff" * (2 * STRUCTURED.itemsize), STRUCTURED).copy()
    for name, value in (("x", 1), ("y", 2.0), ("when", "2024-01-01")):
        dirty[name] = value
    clean = np.zeros(2, STRUCTURED)
    for name in STRUCTURED.names:
        clean[name] = dirty[name]
    long = np.frombuffer(b"\xff" * np.dtype("g").itemsize * 2, "g").copy()
    long[...] = 1.5

    assert CODEC.encode(dirty) == CODEC.encode(clean)
    assert CODEC.encode(long) == CODEC.encode(np.full(2, 1.5, "g"))


def test_an_array_keeps_the_order_it_has_in_memory_and_has_memory_of_its_own():
    given = np.asfortranarray(np.arange(6).reshape(2, 3))
    found = back(given)
    found[0, 0] = 9

    assert found.flags.f_contiguous
    assert given[0, 0] == 0
    assert back(np.arange(4)[::2]).flags.c_contiguous


class SubDict(dict):
    pass


class SubCounter(Counter):
    pass


class SubArray(np.ndarray):
    pass


class Plain:
    pass


REFUSED = {
    "objects": (np.array([1, None], dtype=object), "Python objects.*tolist"),
    "objects in a field": (np.zeros(1, [("a", "O")]), "Python objects"),
    "texts of any length": (np.array(["a"], np.dtypes.StringDType()), "Python objects"),
    "a masked array": (np.ma.array([1]), r"numpy\.asarray"),
    "a matrix": (np.arange(2).view(SubArray), r"numpy\.asarray"),
    "a record array": (np.rec.array([(1,)], dtype=[("a", "i4")]), r"numpy\.asarray"),
    "a record": (np.rec.array([(1,)], dtype=[("a", "i4")])[0], "dtype"),
    "a lambda as a factory": (defaultdict(lambda: 0), "default_factory.*function"),
    "a partial as a factory": (defaultdict(functools.partial(list)), "default_factory"),
    "an unknown class as a factory": (defaultdict(Plain), "Plain"),
    "a dict of its own class": (SubDict(a=1), r"dict\("),
    "a counter of its own class": (SubCounter("a"), r"Counter\("),
    "an object": (Plain(), "ValueAdapter"),
    "a lock": (threading.Lock(), r"ctx\.env"),
    "a socket": (socket.socket, "type"),
    "a generator": ((n for n in ()), r"ctx\.env"),
    "a function": (len, "code"),
    "an unknown model": (pydantic.create_model("Unknown", x=int)(x=1), "uses"),
}


@pytest.mark.parametrize(("value", "words"), REFUSED.values(), ids=REFUSED)
def test_the_others_are_refused_with_the_place_and_what_to_write(value, words):
    with pytest.raises(StateNotEncodable, match=rf"(?s)value\[2\]\['k'\]: .*{words}"):
        CODEC.encode([1, 2, {"k": value}], "value")


def test_a_socket_belongs_into_the_environment():
    with socket.socket() as sock, pytest.raises(StateNotEncodable, match=r"ctx\.env"):
        CODEC.encode(sock)


def test_what_is_wrong_inside_of_a_model_is_named_by_its_field():
    with pytest.raises(StateNotEncodable, match=r"order\.more\[0\]: .*Plain"):
        CODEC.encode(Open(name="a", more=[Plain()]), "order")


def test_a_model_comes_back_whole_and_no_validator_runs():
    given = Checked(low=1, high=2)
    given._seen.append(7)
    given.low = 5  # out of order now, and not validated
    assert given.width == -3  # kept on the object, not in the store
    Checked.runs.clear()

    found = back(given)

    assert Checked.runs == []
    assert (found.low, found.high, found._seen) == (5, 2, [7])
    assert "width" not in vars(found)
    assert found == Checked.model_construct(low=5, high=2, _seen=[7]) or found._seen == [7]


def test_a_model_remembers_which_fields_were_given_and_its_extra_fields():
    found = back(Open(name="a", size=3))

    assert found.model_dump() == {"name": "a", "size": 3}
    assert back(Line(sku="a")).model_dump(exclude_unset=True) == {"sku": "a"}
    with pytest.raises(pydantic.ValidationError):
        found.name = "b"


def test_a_field_that_a_model_has_now_has_its_default_in_older_values():
    class Older(BaseModel):
        a: int

    class Newer(BaseModel):
        a: int
        b: list[int] = Field(default_factory=list)
        c: str = "c"

    Newer.__qualname__ = Older.__qualname__
    found = DataCodec("P", [Newer]).decode(DataCodec("P", [Older]).encode(Older(a=1)))

    assert (found.a, found.b, found.c) == (1, [], "c")


def test_secrets_of_pydantic_are_left_out_of_an_export_and_hidden_where_they_are_shown():
    encoded = CODEC.encode([MODELS["secret"]])

    assert b"p" in encoded
    with pytest.raises(ValueNotDecodable, match="--reveal"):
        CODEC.decode(redacted(encoded))
    assert CODEC.decode(encoded)[0].password.get_secret_value() == "p"
    assert redacted(CODEC.encode([1])) == CODEC.encode([1])


class Money:
    def __init__(self, cents, currency):
        self.cents, self.currency = cents, currency

    def __eq__(self, other):
        return type(other) is Money and vars(self) == vars(other)

    def __hash__(self):
        return hash((self.cents, self.currency))


class MoneyAdapter(ValueAdapter):
    kind = Money

    @staticmethod
    def dump(value):
        return {"amount": Decimal(value.cents) / 100, "currency": value.currency}

    @staticmethod
    def load(data):
        return Money(int(data["amount"] * 100), data["currency"])


@pytest.mark.parametrize("wrap", [lambda v: v, lambda v: [v], lambda v: {v: {v}}, lambda v: Item((v, Counter({v: 2})))])
def test_an_adapter_keeps_values_of_its_class_wherever_they_are(wrap):
    codec = DataCodec("P", [MoneyAdapter, Item])

    assert codec.decode(codec.encode(wrap(Money(150, "EUR")))) == wrap(Money(150, "EUR"))


@dataclass
class Pay(Procedure):
    price: Annotated[Money, MoneyAdapter]

    def execute(self, ctx):
        return Status.done([self.price, ctx.remember("again", lambda: Money(1, "CHF"))])


@dataclass
class PayUsing(Procedure):
    price: Any
    uses = (MoneyAdapter,)

    def execute(self, ctx):
        return Status.done(self.price)


@pytest.mark.processes
def test_an_adapter_is_named_in_a_hint_or_in_uses(tmp_path):
    with ProcedureManager(tmp_path, workers=1) as manager:
        assert manager.run(Pay(Money(150, "EUR")), timeout=30) == [Money(150, "EUR"), Money(1, "CHF")]
        assert manager.run(PayUsing(Money(150, "EUR")), timeout=30) == Money(150, "EUR")


def test_an_adapter_reads_older_values_with_migrate_and_is_held_to_its_class():
    encoded = DataCodec("P", [MoneyAdapter]).encode(Money(150, "EUR"))

    class Newer(MoneyAdapter):
        version = 2

        @staticmethod
        def migrate(data, from_version):
            return {"cents": int(data["amount"] * 100) + from_version, "currency": data["currency"]}

        @staticmethod
        def load(data):
            return Money(data["cents"], data["currency"])

    class Wrong(MoneyAdapter):
        @staticmethod
        def load(data):
            return data

    assert DataCodec("P", [Newer]).decode(encoded) == Money(151, "EUR")
    with pytest.raises(ValueNotDecodable, match="another class"):
        DataCodec("P", [Wrong]).decode(encoded)
    with pytest.raises(ValueNotDecodable, match="adapter"):
        PLAIN.decode(encoded)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"kind": 5, "dump": staticmethod(str), "load": staticmethod(str)}, "kind must be"),
        ({"dump": staticmethod(str), "load": staticmethod(str)}, "kind must be"),
        ({"kind": Money, "dump": str.upper, "load": staticmethod(str)}, "static method"),
        ({"kind": Money, "dump": lambda value: value, "load": staticmethod(str)}, "static method"),
        ({"kind": Money, "load": staticmethod(str)}, r"defines no dump"),
        ({"kind": Money, "dump": staticmethod(str)}, r"defines no load"),
    ],
)
def test_an_adapter_is_checked_when_it_is_defined(body, words):
    with pytest.raises(TypeError, match=words):
        type("Bad", (ValueAdapter,), body)


def test_neither_numpy_nor_pydantic_is_loaded_with_the_engine():
    code = (
        "import sys, actorproc; from actorproc.procedure.values.codec import PLAIN; PLAIN.decode(PLAIN.encode([{1}]));"
        "print([name for name in ('numpy', 'pydantic') if name in sys.modules])"
    )

    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_a_value_of_numpy_says_so_where_numpy_is_not_installed(monkeypatch):
    encoded = CODEC.encode(np.arange(3))
    monkeypatch.setitem(sys.modules, "numpy", None)

    with pytest.raises(ValueNotDecodable, match="numpy, which is not installed"):
        CODEC.decode(encoded)
