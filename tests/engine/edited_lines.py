"""Edits of the saga in `edits`: what is replaced in its text by what."""

from __future__ import annotations

__all__ = ["EDITS", "HAS_OTHER_STEPS", "OTHERS"]

_THREE = """
    @step
    def three(self, ctx):
        return diary.step(self, ctx, "three")

    @three.undo
    def unthree(self, ctx):
        diary.undo(self, ctx, "three")
"""
_TWO = """
    @step
    def two(self, ctx):
        self.count += 1
        return diary.step(self, ctx, "two")

    @two.undo
    def untwo(self, ctx):
        diary.undo(self, ctx, "two")
"""
_ONE = """
    @step
    def one(self, ctx):
        self.found = ctx.remember("note", lambda: Line("remembered", Money(7)))
        return diary.step(self, ctx, "one")

    @one.undo
    def unone(self, ctx):
        diary.undo(self, ctx, "one")
"""
_FOUR = """
    @step
    def four(self, ctx):
        return diary.step(self, ctx, "four", "the end")

    @four.undo
    def unfour(self, ctx):
        diary.undo(self, ctx, "four")
"""
_HEAD = "@dataclass\nclass Order(Saga):\n"
_NEW = """
    @step
    def new(self, ctx):
        diary.step(self, ctx, "new")

    @new.undo
    def unnew(self, ctx):
        diary.undo(self, ctx, "new")
"""
_MACHINE = """
class Place(Enum):
    A = 1
    B = 2

@dataclass
class Order(StateMachineProcedure):
    stand: str
    name: str = "Ada"
    count: int = 3
    line: Line = field(default_factory=lambda: Line("pen", Money(5)))
    color: Color = Color.RED
    found: Any = None
    initial_state = Place.A
    type_name = "shop.Order"

    def execute_from_state(self, ctx, state):
        diary.step(self, ctx, f"state {state}")
        return Place.B if state is Place.A else None

    def rollback_state(self, ctx, state):
        diary.undo(self, ctx, f"state {state}")
"""
_PROCEDURE = """
@dataclass
class Order(Procedure):
    stand: str
    name: str = "Ada"
    count: int = 3
    line: Line = field(default_factory=lambda: Line("pen", Money(5)))
    color: Color = Color.RED
    found: Any = None
    type_name = "shop.Order"

    def execute(self, ctx):
        return Status.done(diary.step(self, ctx, "whole"))

    def rollback(self, ctx):
        diary.undo(self, ctx, "whole")
"""
_REST = _ONE + _TWO + _THREE + _FOUR
_WHOLE = "class Order(Saga):"


def _line(**traits: str) -> tuple[str, str]:
    """The class line, and what is set below it."""
    return "    rollback_retry = LATER\n", "    rollback_retry = LATER\n" + "".join(
        f"    {name} = {text}\n" for name, text in traits.items()
    )


EDITS: dict[str, tuple[tuple[str, str], ...]] = {
    # ---------------------------------------------------------------- fields
    "nothing": (),
    "a field with a default": (("    found: Any = None\n", "    found: Any = None\n    extra: int = 1\n"),),
    "a field with a factory": (
        ("    found: Any = None\n", "    found: Any = None\n    extra: list[int] = field(default_factory=list)\n"),
    ),
    "a field without a default": (("    stand: str\n", "    stand: str\n    extra: int\n"),),
    "a field is gone": (('    name: str = "Ada"\n', ""),),
    "a field is renamed": (('    name: str = "Ada"\n', '    called: str = "Ada"\n'),),
    "a field is renamed, without a default": (
        ("    stand: str\n", "    stand: str\n    called: str\n"),
        ('    name: str = "Ada"\n', ""),
    ),
    "a field has another type": (('    name: str = "Ada"\n', "    name: int = 3\n"),),
    "a field has a wider type": (("    count: int = 3\n", "    count: int | None = 3\n"),),
    "a field has a type that takes all": (("    line: Line", "    line: Any"),),
    "a field is a list now": (('    name: str = "Ada"\n', "    name: list[str] = field(default_factory=list)\n"),),
    "an int is a bool now": (("    count: int = 3\n", "    count: bool = False\n"), ("        self.count += 1\n", "")),
    "an int is a float now": (("    count: int = 3\n", "    count: float = 3.0\n"),),
    "an int is a str now": (("    count: int = 3\n", '    count: str = ""\n'), ("        self.count += 1\n", "")),
    "a str is an enum now": (('    name: str = "Ada"\n', "    name: Color = Color.RED\n"),),
    "an object is a dict now": (
        (
            '    line: Line = field(default_factory=lambda: Line("pen", Money(5)))\n',
            "    line: dict[str, Any] = field(default_factory=dict)\n",
        ),
    ),
    "fields in another order": (
        ('    name: str = "Ada"\n    count: int = 3\n', '    count: int = 3\n    name: str = "Ada"\n'),
    ),
    "a default is another one": (('    name: str = "Ada"\n', '    name: str = "Bob"\n'),),
    "a default is gone": (("    stand: str\n", "    stand: str\n    name: str\n"), ('    name: str = "Ada"\n', "")),
    "a field is not of __init__ any more": (
        ('    name: str = "Ada"\n', '    name: str = field(default="Ada", init=False)\n'),
        ("@dataclass\nclass Order", "class Order"),
    ),
    "a field is of the class now": (('    name: str = "Ada"\n', '    name: ClassVar[str] = "Ada"\n'),),
    "the class has slots": ((_HEAD, _HEAD.replace("@dataclass", "@dataclass(slots=True)")),),
    "the class takes keywords only": (
        (_WHOLE, "class Order(Saga, kw_only=True):"),
        ("@dataclass\nclass Order", "class Order"),
    ),
    "the class is made by attrs": (
        (_HEAD, "@attrs.define(slots=False)\nclass Order(Saga):\n"),
        ("field(default_factory", "attrs.field(factory"),
    ),
    # ---------------------------------------------------------------- nested
    "a nested field with a default": (
        ("    amount: int\n", "    amount: int\n    extra: int = 1\n"),
        ("    extra: int = 1\n    unit", "    unit"),
        ('"EUR"\n', '"EUR"\n    extra: int = 1\n'),
    ),
    "a nested field without a default": (
        ("    amount: int\n", "    amount: int\n    extra: int\n"),
        ("Money(5)", "Money(5, 1)"),
        ("Money(7)", "Money(7, 1)"),
    ),
    "a nested field is gone": (("    amount: int\n", ""), ("Money(5)", "Money()"), ("Money(7)", "Money()")),
    "a nested field is renamed": (("    amount: int\n", "    cents: int\n"),),
    "a nested field has another type": (("    amount: int\n", "    amount: str\n"),),
    "a nested class is renamed": (
        ("class Money:", "class Sum:"),
        ("    price: Money", "    price: Sum"),
        ("Money(5)", "Sum(5)"),
        ("Money(7)", "Sum(7)"),
    ),
    "a nested class is frozen": (("@dataclass\nclass Money:", "@dataclass(frozen=True)\nclass Money:"),),
    "a nested class has slots": (("@dataclass\nclass Money:", "@dataclass(slots=True)\nclass Money:"),),
    "a nested class is made by attrs": (("@dataclass\nclass Money:", "@attrs.define\nclass Money:"),),
    "a nested class says its version": (("@dataclass\nclass Money:", "@value(version=2)\n@dataclass\nclass Money:"),),
    "a nested class is gone": (
        ("    sku: str\n    price: Money\n", "    sku: str\n"),
        (", Money(5))", ")"),
        (", Money(7))", ")"),
        ('@dataclass\nclass Money:\n    amount: int\n    unit: str = "EUR"\n', ""),
    ),
    "a nested class is moved": (
        ("@dataclass\nclass Line:\n", '@dataclass\nclass Line:\n    __module__ = "elsewhere"\n'),
    ),
    "a member of an enum is gone": (("    RED = 1\n", ""), ("Color.RED", "Color.BLUE")),
    "a member of an enum is renamed": (("    RED = 1\n", "    CRIMSON = 1\n"), ("Color.RED", "Color.CRIMSON")),
    "a member of an enum has another value": (("    RED = 1\n", "    RED = 7\n"),),
    "a member of an enum is new": (("    RED = 1\n", "    GREEN = 3\n    RED = 1\n"),),
    "an enum is a str now": (("    color: Color = Color.RED\n", '    color: str = "RED"\n'),),
    "an enum is renamed": (
        ("class Color(", "class Colour("),
        ("color: Color = Color.RED", "color: Colour = Colour.RED"),
    ),
    # ---------------------------------------------------------------- steps
    "a step is renamed": (
        ("def two(", "def zwei("),
        ("@two.undo", "@zwei.undo"),
    ),
    "a step is renamed, and says so": (
        ("    @step\n    def two(", '    @step(name="zwei", was=("two",))\n    def zwei('),
        ("@two.undo", "@zwei.undo"),
    ),
    "two steps are one": ((_THREE, ""), ("    @step\n    def two(", '    @step(was=("three",))\n    def two(')),
    "a first step is new": ((_ONE, _NEW + _ONE),),
    "a step in the middle is new": ((_THREE, _NEW + _THREE),),
    "a last step is new": ((_FOUR, _FOUR + _NEW),),
    "the first step is gone": ((_ONE, ""),),
    "a step in the middle is gone": ((_TWO, ""),),
    "the last step is gone": ((_FOUR, ""),),
    "two steps change places": ((_TWO, "%TWO%"), (_THREE, _TWO), ("%TWO%", _THREE)),
    "the last step is the first": ((_FOUR, ""), (_ONE, _FOUR + _ONE)),
    "all steps are turned round": ((_REST, _FOUR + _THREE + _TWO + _ONE),),
    "the order is kept by the class line": (
        (_REST, _FOUR + _THREE + _TWO + _ONE),
        (_WHOLE, 'class Order(Saga, order=("one", "two", "three", "four")):'),
    ),
    "a step is moved into a base class": (
        (_THREE, ""),
        (_HEAD, "class Base(Saga):" + _THREE + "\n@dataclass\nclass Order(Base):\n"),
    ),
    "all steps are moved into a base class": (
        (_REST, ""),
        (_HEAD, "class Base(Saga):" + _REST + "\n@dataclass\nclass Order(Base):\n"),
    ),
    "two steps change places, and what is left out runs": (
        (_TWO, "%TWO%"),
        (_THREE, _TWO),
        ("%TWO%", _THREE),
        (_WHOLE, 'class Order(Saga, on_change="run"):'),
    ),
    "two steps change places, and what is left out stays out": (
        (_TWO, "%TWO%"),
        (_THREE, _TWO),
        ("%TWO%", _THREE),
        (_WHOLE, 'class Order(Saga, on_change="skip"):'),
    ),
    "a first step is new, and runs": ((_ONE, _NEW + _ONE), (_WHOLE, 'class Order(Saga, on_change="run"):')),
    "a first step is new, and stays out": ((_ONE, _NEW + _ONE), (_WHOLE, 'class Order(Saga, on_change="skip"):')),
    "an undo is gone": (('    @two.undo\n    def untwo(self, ctx):\n        diary.undo(self, ctx, "two")\n', ""),),
    "an undo has another name": (("def untwo(", "def take_two_back("),),
    "the body of a step is another": (
        ('return diary.step(self, ctx, "three")', 'return diary.step(self, ctx, "three", 3)'),
    ),
    "a step is the point of no return": (("    @step\n    def three(", "    @step(no_return=True)\n    def three("),),
    # ---------------------------------------------------------------- the class
    "locks are new": (("        return []\n", '        return [LockKey.write("a")]\n'),),
    "locks are of another object": (("        return []\n", "        return [LockKey.read(self.name)]\n"),),
    "locks by the step": (
        (_line()[0], _line(lock_scope='"step"')[1]),
        ("        return []\n", "        return [LockKey.write(self.stand)]\n"),
    ),
    "fewer retries": ((_line()[0], _line(retry="RetryPolicy(max_attempts=1)")[1]),),
    "a wall time": ((_line()[0], _line(wall_time="30.0")[1]),),
    "fewer records are kept": ((_line()[0], _line(keep_steps="1")[1]),),
    "a limit key": (("    def lock_keys", '    def limit_keys(self):\n        return ["k"]\n\n    def lock_keys'),),
    "the version is raised": ((_line()[0], _line(version="2")[1]),),
    "the version is raised, and read": (
        (_line()[0], _line(version="2")[1]),
        (
            "    def lock_keys",
            "    @classmethod\n    def migrate(cls, data, from_version):\n        return data\n\n    def lock_keys",
        ),
    ),
    "the class is renamed": (("class Order(Saga):", "class Purchase(Saga):"), (_FOUR, _FOUR + "\nOrder = Purchase\n")),
    "the class is renamed, and says so": (
        ("class Order(Saga):", 'class Purchase(Saga):\n    type_name = "shop.Order"'),
    ),
    "the class is moved": ((_HEAD, _HEAD + '    __module__ = "elsewhere"\n'),),
    "the class is moved, and says so": (
        (_HEAD, _HEAD + '    __module__ = "elsewhere"\n    type_name = "shop.Order"\n'),
    ),
    "the class is gone": ((_REST, ""), ("class Order(Saga):", "class Order:")),
    "the codec is pickle": ((_line()[0], _line(codec='"pickle"')[1]),),
    "a saga is a procedure": ((_REST, ""), (_HEAD, _PROCEDURE + "\n@dataclass\nclass Rest:\n")),
    "a saga is a state machine": ((_REST, ""), (_HEAD, _MACHINE + "\n@dataclass\nclass Rest:\n")),
    "a failure of a child goes on": ((_line()[0], _line(on_child_failure='"resume"')[1]),),
    "its children are not undone": ((_line()[0], _line(undo_children="False")[1]),),
    "an undo as far as it goes": ((_line()[0], _line(best_effort="True")[1]),),
}

HAS_OTHER_STEPS = {
    "a first step is new",
    "a first step is new, and runs",
    "a first step is new, and stays out",
    "a last step is new",
    "a saga is a procedure",
    "a saga is a state machine",
    "a step in the middle is gone",
    "a step in the middle is new",
    "a step is the point of no return",
    "an undo is gone",
    "two steps are one",
    "fewer retries",
    "its children are not undone",
    "the class is gone",
    "the class is renamed",
    "the first step is gone",
    "the last step is gone",
    "the last step is the first",
    "all steps are turned round",
    "a nested class is moved",
    "a field without a default",
    "a field is renamed, without a default",
    "a field has a type that takes all",
    "an int is a str now",
    "an object is a dict now",
    "a default is gone",
    "the class takes keywords only",
    "the class is made by attrs",
    "the class is renamed, and says so",
    "the class is moved",
    "the class is moved, and says so",
    "the codec is pickle",
    "locks are new",
}
"""Programs that have other steps, cannot stand at each of them, or cannot be begun with the values of the older one."""

_MACHINE_CLASS = "class Order(StateMachineProcedure):"
_PLACES = "    one = 1\n    two = 2\n    three = 3\n    four = 4\n"
_FROM_STATE = "    def execute_from_state"
_EXECUTE = "    def execute(self, ctx):\n        name ="
_STEPS_OF_SAGA = _REST
OTHERS: dict[str, dict[str, tuple[tuple[str, str], ...]]] = {
    "machine": {
        "nothing": (),
        "a field without a default": (("    stand: str\n", "    stand: str\n    extra: int\n"),),
        "a nested field is renamed": (("    amount: int\n", "    cents: int\n"),),
        "a state is renamed": (("    two = 2\n", "    zwei = 2\n"),),
        "a state is renamed, and its old name kept": (("    two = 2\n", "    zwei = 2\n    two = 2\n"),),
        "a state is gone": (("    two = 2\n    three = 3\n    four = 4\n", "    three = 2\n    four = 3\n"),),
        "a state is new": (
            ("    two = 2\n    three = 3\n    four = 4\n", "    new = 2\n    two = 3\n    three = 4\n    four = 5\n"),
        ),
        "states have other values": ((_PLACES, "    four = 14\n    three = 13\n    two = 12\n    one = 11\n"),),
        "it begins elsewhere": (("initial_state = Place.one", "initial_state = Place.two"),),
        "a machine is a saga of the same names": (
            (_MACHINE_CLASS, "class Order(Saga):"),
            (_FROM_STATE, _STEPS_OF_SAGA + "\n" + _FROM_STATE),
        ),
        "a machine is a procedure": (
            (_MACHINE_CLASS, "class Order(Procedure):"),
            ("    initial_state = Place.one\n", ""),
            (
                _FROM_STATE,
                '    def execute(self, ctx):\n        return diary.step(self, ctx, "whole")\n\n' + _FROM_STATE,
            ),
        ),
        "the version is raised": (("    initial_state", "    version = 2\n    initial_state"),),
        "some states cannot be undone": (
            (
                _FROM_STATE,
                "    def is_rollback_supported(self, state):\n        return state is Place.one\n\n" + _FROM_STATE,
            ),
        ),
    },
    "plain": {
        "nothing": (),
        "a field with a default": (("    at: int = 0\n", "    at: int = 0\n    extra: int = 1\n"),),
        "a field without a default": (("    stand: str\n", "    stand: str\n    extra: int\n"),),
        "the field of the position is renamed": (
            ("    at: int = 0\n", "    place: int = 0\n"),
            ("self.at", "self.place"),
        ),
        "a nested field is renamed": (("    amount: int\n", "    cents: int\n"),),
        "the version is raised": (("    at: int = 0\n", "    at: int = 0\n    version = 2\n"),),
        "a procedure is a saga": (
            ("class Order(Procedure):", "class Order(Saga):"),
            ("    def execute(", _REST + "\n    def _run("),
            ("    def rollback(", "    def _back("),
        ),
        "a procedure is a state machine": (
            (
                "@dataclass\nclass Order(Procedure):",
                "class Place(Enum):\n    one = 1\n\n@dataclass\nclass Order(StateMachineProcedure):\n    initial_state = Place.one",
            ),
            (
                "    def execute(",
                "    def execute_from_state(self, ctx, state):\n        diary.step(self, ctx, 'state')\n\n    def _run(",
            ),
            ("    def rollback(", "    def _back("),
        ),
        "the undo is gone": (("    def rollback(", "    def _back("),),
        "the class is gone": (("class Order(Procedure):", "class Order:"),),
    },
    "family": {
        "nothing": (),
        "the output has a field with a default": (("    price: Money\n", "    price: Money\n    extra: int = 1\n"),),
        "the output has a field without a default": (
            ("    price: Money\n", "    price: Money\n    extra: int\n"),
            ("Money(9))", "Money(9), 1)"),
        ),
        "the output has a field less": (("    sku: str\n    price: Money\n", "    sku: str\n"), (", Money(9))", ")")),
        "the output is of another class": (("Status.done(Line(", "Status.done((lambda *parts: list(parts))("),),
        "the class of the output is renamed": (
            ("class Line:", "class Row:"),
            ("Status.done(Line(", "Status.done(Row("),
            ("uses = (Line,", "uses = (Row,"),
        ),
        "the class of the output is no more used": (
            ("uses = (Line, Money)", "uses = ()"),
            ("Status.done(Line(", 'Status.done(dict(a="'),
            ('dict(a=""child", Money(9)))', 'dict(a="child"))'),
        ),
        "the child has a field without a default": (
            (
                "    at: int = 0\n    rollback_retry",
                "    at: int = 0\n    extra: int = field(kw_only=True)\n    rollback_retry",
            ),
            ("Kid(self.stand)", "Kid(self.stand, extra=1)"),
        ),
        "the class of the child is renamed": (("class Kid(", "class Boy("), ("Kid(self", "Boy(self")),
        "the child is left behind": (("Kid(self.stand))])", 'Kid(self.stand))], on_parent_end="leave")'),),
        "the child has no undo": (('    def rollback(self, ctx):\n        diary.undo(self, ctx, "kid")\n', ""),),
        "the parent has a first step more": (
            (
                "    @step\n    def one(",
                '    @step\n    def new(self, ctx):\n        diary.step(self, ctx, "new")\n\n    @step\n    def one(',
            ),
        ),
        "the step that takes the outputs is renamed": (("def two(", "def zwei("), ("@two.undo", "@zwei.undo")),
        "the parent does not undo its children": (
            (
                "    found: Any = None\n    rollback_retry = LATER\n    uses",
                "    found: Any = None\n    rollback_retry = LATER\n    undo_children = False\n    uses",
            ),
        ),
    },
}
