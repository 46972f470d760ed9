"""Rows about classes that a script defines: results refer to the script's own, and change none of them."""

import abc
import collections
import concurrent.futures
import contextlib
import dataclasses
import enum
import functools
import pathlib
import sys
import tempfile
import time
import typing

import attrs
import msgspec
import pydantic
from trial import OfThePackage, play, row


def same(value):
    return value


def fail(error):
    raise error


def caught(call, kind, function, *arguments):
    """The exception of this kind that a call raises."""
    try:
        call(function, *arguments)
    except kind as error:
        return error
    return None


# ---------------------------------------------------------------- dataclasses
@dataclasses.dataclass
class Point:
    x: int


def moved(point):
    return Point(point.x + 1)


def made():
    return {"first": Point(1), "rest": [Point(2), (Point(3),)]}


@row("a dataclass comes back equal, call after call")
def _(call):
    return all(call(moved, Point(number)) == Point(number + 1) for number in range(5))


@row("dataclasses that a call makes, inside of containers")
def _(call):
    return all(call(made) == made() for _ in range(3))


@row("a class as the result is the script's class")
def _(call):
    return call(same, Point) is Point and call(type, Point(1)) is Point


@row("fields of a dataclass have no default afterwards that they had not before")
def _(call):
    call(moved, Point(1))
    no_default = dataclasses.fields(Point)[0].default is dataclasses.MISSING

    @dataclasses.dataclass
    class Longer(Point):
        y: int

    return no_default and Longer(1, 2) == Longer(1, 2)


@dataclasses.dataclass
class Options:
    name: str = "x"
    numbers: list = dataclasses.field(default_factory=list)
    _: dataclasses.KW_ONLY
    strict: bool = False


@row("a dataclass with defaults, factories and keyword-only fields")
def _(call):
    return all(call(same, Options("a", [1], strict=True)) == Options("a", [1], strict=True) for _ in range(2)) and (
        Options() == Options("x", [])
    )


@dataclasses.dataclass(frozen=True, slots=True, order=True)
class Frozen:
    x: int
    y: "int" = 2


@row("a frozen dataclass with slots")
def _(call):
    back = [call(same, Frozen(number)) for number in range(3)]
    return back == [Frozen(0), Frozen(1), Frozen(2)] and type(back[0]) is Frozen and {back[1]} == {Frozen(1)}


@dataclasses.dataclass
class Failure(Exception):
    code: int


@row("a dataclass exception is caught by its class")
def _(call):
    return all(caught(call, Failure, fail, Failure(number)).code == number for number in range(3))


T = typing.TypeVar("T")


@dataclasses.dataclass
class Box(typing.Generic[T]):
    content: T


@row("a generic dataclass, and an alias of it")
def _(call):
    return (
        call(same, Box[int](1)) == Box(1)
        and call(same, Box[int]) == Box[int]
        and call(same, Box(Point(1))) == Box(Point(1))
    )


class Outer:
    @dataclasses.dataclass
    class Inner:
        x: int

    class Kind(enum.Enum):
        A = 1


@row("classes inside of classes, by their full names")
def _(call):
    return (
        call(same, Outer.Inner(1)) == Outer.Inner(1)
        and call(same, Outer.Kind.A) is Outer.Kind.A
        and call(repr, Outer.Inner(1)) == "Outer.Inner(x=1)"
    )


# ---------------------------------------------------------------- nothing is modified
class Order:
    rate, open_orders, NONE = 0.05, {}, object()

    def __init__(self, number):
        self.number = number

    def total(self):
        return self.rate * self.number


def raised_rate(order):
    Order.rate = 0.5
    Order.open_orders[order.number] = "worker"
    return order


@row("class attributes stay as the program has them")
def _(call):
    none = Order.NONE
    call(raised_rate, Order(1))  # pickling notes the names of its slots in the class
    before = dict(vars(Order))
    order = call(raised_rate, Order(1))
    return (
        type(order) is Order
        and (Order.rate, Order.open_orders, Order.NONE) == (0.05, {}, none)
        and dict(vars(Order)) == before
    )


@row("a result has today's class: attributes and methods that were replaced since")
def _(call):
    order = call(same, Order(1))
    rate, total = Order.rate, Order.total
    Order.rate, Order.total = 0.07, lambda self: "replaced"
    try:
        again = call(same, Order(2))
        return (again.rate, again.total(), order.total()) == (0.07, "replaced", "replaced") and Order.rate == 0.07
    finally:
        Order.rate, Order.total = rate, total


class Failed(Exception):
    seen = 0


@row("exceptions keep their class's attributes, and are the script's")
def _(call):
    Failed.seen = 5
    error = caught(call, Failed, fail, Failed("no", 1))
    return type(error) is Failed and error.args == ("no", 1) and Failed.seen == 5


class Plugin:
    registry = {}

    def __init_subclass__(cls):
        Plugin.registry[cls.__name__] = cls


class Csv(Plugin):
    pass


class Json(Plugin):
    pass


@row("a registry of subclasses holds the script's classes, once")
def _(call):
    back = call(same, [Csv(), Json()])
    return (
        [type(each) for each in back] == [Csv, Json]
        and Plugin.registry == {"Csv": Csv, "Json": Json}
        and (Plugin.__subclasses__() == [Csv, Json])
    )


class Tagged:
    tags = {}

    def __init_subclass__(cls, *, tag):
        cls.tag = tag
        Tagged.tags[tag] = cls


class Red(Tagged, tag="red"):
    pass


class Blue(Tagged, tag="blue"):
    def __init__(self):
        self.others = [Red()]


@row("subclasses whose class statement has keywords")
def _(call):
    back = call(same, Blue())
    return (type(back), back.tag, type(back.others[0])) == (Blue, "blue", Red) and Tagged.tags == {
        "red": Red,
        "blue": Blue,
    }


class Meta(type):
    made = []

    def __new__(cls, name, bases, space):
        cls.made.append(name)
        return super().__new__(cls, name, bases, space)

    def __eq__(cls, other):
        return isinstance(other, Meta) and cls.__name__ == other.__name__

    __hash__ = type.__hash__


class WithMeta(metaclass=Meta):
    pass


@row("a class with a metaclass that compares by name")
def _(call):
    return type(call(same, WithMeta())) is WithMeta and Meta.made == ["WithMeta"]


class Shape(abc.ABC):
    @abc.abstractmethod
    def area(self): ...


class Square(Shape):
    def area(self):
        return 4


@Shape.register
class Circle:
    pass


@row("abstract base classes and what is registered with them")
def _(call):
    return (
        isinstance(call(same, Square()), Shape)
        and isinstance(call(same, Circle()), Shape)
        and (call(same, Square()).area() == 4)
    )


class Slotted:
    __slots__ = ("a", "b")


@row("a class with slots")
def _(call):
    slotted = Slotted()
    slotted.a = 1
    back = call(same, slotted)
    return type(back) is Slotted and back.a == 1 and not hasattr(back, "b") and not hasattr(back, "__dict__")


class FromPackage(OfThePackage):
    pass


@row("a class of the script that derives from one of a module")
def _(call):
    back = call(same, FromPackage(3))
    return type(back) is FromPackage and back.number == 3 and type(call(same, OfThePackage(1))) is OfThePackage


class Temperature:
    class _Celsius:
        def __set_name__(self, owner, name):
            self.name = name

        def __get__(self, instance, owner=None):
            return self if instance is None else instance.__dict__[self.name]

        def __set__(self, instance, value):
            instance.__dict__[self.name] = float(value)

    degrees = _Celsius()

    @property
    def kelvin(self):
        return self.degrees + 273

    @classmethod
    def freezing(cls):
        made = cls()
        made.degrees = 0
        return made


@row("descriptors, properties and class methods")
def _(call):
    descriptor = vars(Temperature)["degrees"]
    back = call(Temperature.freezing)
    return type(back) is Temperature and back.kelvin == 273 and vars(Temperature)["degrees"] is descriptor


# ---------------------------------------------------------------- enums, tuples, other libraries
class Color(enum.Enum):
    RED = 1
    BLUE = "b"
    CRIMSON = 1


class Level(enum.IntEnum):
    LOW = 1


class Access(enum.Flag):
    READ = enum.auto()
    WRITE = enum.auto()


class Planet(enum.Enum):
    EARTH = (1, 2)

    def __init__(self, mass, radius):
        self.mass, self.radius = mass, radius


@row("members of enums are the script's own")
def _(call):
    return (
        call(same, Color.RED) is Color.RED
        and call(same, [Color.BLUE, Level.LOW]) == [Color.BLUE, Level.LOW]
        and call(same, Access.READ | Access.WRITE) is Access.READ | Access.WRITE
        and call(same, {Color.CRIMSON: 1}) == {Color.RED: 1}
    )


@row("members of an enum with values of several parts")
def _(call):
    return call(same, Planet.EARTH) is Planet.EARTH


Pair = collections.namedtuple("Pair", "left right")


class Typed(typing.NamedTuple):
    x: int
    y: int = 2


@row("named tuples")
def _(call):
    pair, typed = call(same, (Pair(1, 2), Typed(1)))
    return (type(pair), type(typed)) == (Pair, Typed) and (pair.right, typed.y) == (2, 2)


@attrs.define
class Attrs:
    x: int
    many: list = attrs.Factory(list)


@attrs.frozen
class FrozenAttrs:
    x: int


class Model(pydantic.BaseModel):
    x: int
    many: list[int] = []


@row("classes of attrs")
def _(call):
    return all(
        call(same, Attrs(1, [2])) == Attrs(1, [2]) and call(same, FrozenAttrs(1)) == FrozenAttrs(1) for _ in range(2)
    )


@row("models of pydantic")
def _(call):
    return all(call(same, Model(x=1, many=[2])) == Model(x=1, many=[2]) for _ in range(2)) and set(
        Model.model_fields
    ) == {"x", "many"}


class Part(msgspec.Struct, frozen=True, tag="part"):
    v: int = 2


class Base(msgspec.Struct, kw_only=True):
    a: int
    b: list = []


class Struct(Base, array_like=True):
    part: Part = msgspec.field(default_factory=Part)
    other: object = msgspec.field(default=None, name="oth")

    def total(self):
        return self.a + self.part.v


def make_struct():
    return Struct(a=1, b=[2], other=Struct(a=3))


def encoded(struct):
    return msgspec.json.encode(struct), struct.total(), Struct(a=5)


@row("structs of msgspec")
def _(call):
    encoding, total, made = call(encoded, make_struct())
    return (
        call(make_struct) == make_struct()
        and (type(call(same, Struct(a=1))), call(same, Part())) == (Struct, Part())
        and (encoding, total, made) == (msgspec.json.encode(make_struct()), 3, Struct(a=5))
    )


# ---------------------------------------------------------------- what cloudpickle alone cannot send back
P = typing.ParamSpec("P")
Ts = typing.TypeVarTuple("Ts")
Id = typing.NewType("Id", int)


class Cached:
    def __init__(self, x):
        self.x = x

    @functools.cached_property
    def double(self):
        return 2 * self.x


class Memo:
    @functools.lru_cache(maxsize=8)
    def square(self, x):
        return x * x


class Hinted:
    def find(self, number: Id) -> Id:
        return number

    def wrap(self, function: typing.Callable[P, T], *rest: typing.Unpack[Ts]) -> typing.Callable[P, T]:
        return function


class Dispatching:
    @functools.singledispatchmethod
    def show(self, value):
        return "object"

    @show.register
    def _(self, value: int):
        return "int"


class Assorted:
    half = functools.partialmethod(divmod, 2)
    static = staticmethod(len)

    @contextlib.contextmanager
    def opened(self):
        yield self

    async def later(self):
        return 1


def used(instance, name, *arguments):
    found = getattr(instance, name)
    if callable(found):
        found(*arguments)
    return instance


for title, example in {
    "a class with a cached_property": (Cached(2), "double"),
    "a class with an lru_cache method": (Memo(), "square", 2),
    "a class with NewType, ParamSpec and TypeVarTuple in its hints": (Hinted(), "find", 1),
    "a class with a singledispatchmethod": (Dispatching(), "show", 1),
    "a class with partial, static, context manager and async methods": (Assorted(), "opened"),
}.items():

    @row(title)
    def _(call, example=example):
        return all(type(call(used, *example)) is type(example[0]) for _ in range(2))


@row("what was cached in an instance comes back with it")
def _(call):
    return call(used, Cached(2), "double").__dict__ == {"x": 2, "double": 4}


@functools.total_ordering
class Ordered:
    def __init__(self, x):
        self.x = x

    def __eq__(self, other):
        return self.x == other.x

    def __lt__(self, other):
        return self.x < other.x

    __hash__ = None


class Stateful:
    def __init__(self, x):
        self.x, self.cache = x, object()

    def __getstate__(self):
        return {"x": self.x}

    def __setstate__(self, state):
        self.__init__(**state)


class Reduced:
    def __init__(self, x):
        self.x = x

    def __reduce__(self):
        return Reduced, (self.x,)


@row("classes with an order, a state or a reduction of their own")
def _(call):
    ordered, stateful, reduced = call(same, [Ordered(1), Stateful(2), Reduced(3)])
    return (
        ordered < Ordered(2)
        and (type(stateful), stateful.x) == (Stateful, 2)
        and (type(reduced), reduced.x) == (Reduced, 3)
    )


class NeedsTwo(Exception):
    def __init__(self, code, text):
        super().__init__(code, text)
        self.code = code


class NeedsMore(NeedsTwo):
    pass


def fail_with_notes():
    error = NeedsMore(7, "no stock")
    error.add_note("while counting")
    raise error


def fail_together():
    raise ExceptionGroup("both", [NeedsTwo(1, "a"), Failed("b")])


@row("exceptions with arguments, notes and bases of the script, and groups of them")
def _(call):
    error = caught(call, NeedsTwo, fail_with_notes)
    group = caught(call, ExceptionGroup, fail_together)
    return (type(error), error.code, error.__notes__) == (NeedsMore, 7, ["while counting"]) and (
        [type(each) for each in group.exceptions] == [NeedsTwo, Failed]
    )


# ---------------------------------------------------------------- functions, and classes without a name
@functools.lru_cache
def remembered(x):
    return x


@functools.singledispatch
def dispatched(value):
    return "object"


@dispatched.register
def _(value: int):
    return "int"


@row("functions of the script come back as themselves")
def _(call):
    return call(same, moved) is moved and call(same, [remembered, dispatched, Id, T]) == [remembered, dispatched, Id, T]


@row("a bound method of the script's class")
def _(call):
    return call(same, Order(2).total)() == 0.1


def make_classes():
    @dataclasses.dataclass
    class Local:
        x: int

    class Kind(enum.Enum):
        A = 1

    class Wrong(Exception):
        pass

    return Local, Kind, Wrong


@row("classes made in a function come back as themselves")
def _(call):
    local, kind, wrong = make_classes()
    return all(
        call(same, local(1)) == local(1) and call(same, kind.A) is kind.A and caught(call, wrong, fail, wrong())
        for _ in range(2)
    )


def make_in_worker():
    local, kind, wrong = make_classes()

    class Derived(Point):
        pass

    return [local(1), Derived(2)], kind.A


@row("classes that a call makes come back, derived from the script's")
def _(call):
    (local, derived), kind = call(make_in_worker)
    return local.x == 1 and isinstance(derived, Point) and kind.name == "A"


def given_back_when_told(point, folder):
    pathlib.Path(folder, "begun").touch()
    while not pathlib.Path(folder, "go on").exists():
        time.sleep(0.01)
    return point


@row("a class that is redefined meanwhile: the result is of today's")
def _(call):
    script, before = sys.modules[Point.__module__], Point

    @dataclasses.dataclass
    class Again:
        x: int

    Again.__qualname__ = Again.__name__ = "Point"
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(1) as threads:
        pending = threads.submit(call, given_back_when_told, before(1), folder)
        while not pathlib.Path(folder, "begun").exists() and not pending.done():
            time.sleep(0.01)
        script.Point = Again
        try:
            pathlib.Path(folder, "go on").touch()
            return type(pending.result()) is Again
        finally:
            script.Point = before


@row("a class that was redefined before: what is of the old one comes back as it went out")
def _(call):
    script, before = sys.modules[Point.__module__], Point
    call(same, before(1))

    @dataclasses.dataclass
    class Again:
        x: int

    Again.__qualname__ = Again.__name__ = "Point"
    script.Point = Again
    try:
        return type(call(same, before(1))) is before and type(call(same, Again(1))) is Again
    finally:
        script.Point = before


if __name__ == "__main__":
    play()
