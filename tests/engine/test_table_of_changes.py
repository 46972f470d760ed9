"""The tables of the page "Code that changes": each row is tried as it is written there."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.engine.edited_lines import EDITS, OTHERS
from tests.engine.edits import FAMILY, FAMILY_STANDS, LATER, MACHINE, SAGA, STANDS, STEPS, Program, changed
from tests.kit.waiting import wait_until

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "procedures" / "code-changes.md"
PROGRAMS = {
    "saga": (SAGA, STANDS),
    "machine": (MACHINE, STANDS),
    "family": (FAMILY, FAMILY_STANDS),
}

Edit = tuple[tuple[str, str], ...]
ROWS: dict[str, list[Callable[[], None]]] = {}
"""By the first cell of the row as it stands on the page: what tries it."""


@pytest.fixture(autouse=True)
def _in_silence(caplog):
    caplog.set_level(logging.CRITICAL, logger="actorproc")


def rows_of_the_page() -> list[str]:
    """The first cells of all tables of the page, in order."""
    found: list[str] = []
    is_ours = False
    for line in PAGE.read_text().splitlines():
        first = line.split(" | ")[0].removeprefix("| ")
        if not line.startswith("|"):
            is_ours = False
        elif first in {"change", "what changed"}:
            is_ours = True
        elif is_ours and line.startswith("| "):
            found.append(first)
    return found


def row(text: str) -> Callable[[Callable[[], None]], Callable[[], None]]:
    """The function tries this row of the page."""

    def add(function: Callable[[], None]) -> Callable[[], None]:
        ROWS.setdefault(text, []).append(function)
        return function

    return add


@pytest.mark.parametrize("text", rows_of_the_page())
def test_what_a_row_of_the_page_says_is_so(text):
    assert text in ROWS, "a row of the page that no test tries"
    for attempt in ROWS[text]:
        attempt()


def test_every_test_of_a_row_has_its_row_on_the_page():
    assert set(ROWS) == set(rows_of_the_page())


# ---------------------------------------------------------------- how a row is tried
def tried(kind: str, edit: Edit, cure: Edit | None = None, *, parks: bool, cured_text: str | None = None) -> list[str]:
    """Run, edit, run, and where something is parked, write the cure and run; who was parked."""
    text, stands = PROGRAMS[kind]
    program = Program(text, stands)
    try:
        program.begin()
        seen = program.go_on(program.edited(*edit))
        assert program.wrong(seen) == []
        parked = [name for name, now in seen.items() if now.is_parked]
        assert bool(parked) is parks
        if cure is not None:
            cured = program.go_on(changed(program.edited(*edit), *cure))
            assert program.wrong(cured, is_over=True) == []
        return parked
    finally:
        program.close()


CLASS_LINE = "class Order(Saga):"
FIELDS = "    rollback_retry = LATER\n"


def says(**traits: str) -> tuple[str, str]:
    return FIELDS, FIELDS + "".join(f"    {name} = {value}\n" for name, value in traits.items())


def line(words: str) -> tuple[str, str]:
    return CLASS_LINE, f"class Order(Saga, {words}):"


def migrating(body: str) -> Edit:
    hook = f"    @classmethod\n    def migrate(cls, data, from_version):\n{body}        return data\n\n"
    return (says(version="2"), ("    def lock_keys", hook + "    def lock_keys"))


def before_order(text: str, marker: str = "@dataclass\nclass Order(") -> tuple[str, str]:
    return marker, text + "\n" + marker


# ---------------------------------------------------------------- steps
@row("a step behind all that are done is new, moved or gone, and another one comes next")
def _behind_all_that_are_done():
    for edit in ("a last step is new",):
        assert tried("saga", EDITS[edit], parks=False) == []
    # Of those that stand where the edit is behind all that are done, none is parked.
    assert not {"before", "in-one", "behind-one", "in-two"} & {
        *tried("saga", EDITS["a step in the middle is new"], parks=True)
    }
    assert not {"before", "in-one"} & {*tried("saga", EDITS["two steps change places"], parks=True)}
    assert not {"before", "in-one"} & {*tried("saga", EDITS["a step in the middle is gone"], parks=True)}


@row("a step that has not run stands before one that is done, or before one in the middle of its repeats")
def _before_one_that_is_done():
    edit = EDITS["two steps change places"]
    for cure in (line('order=("one", "two", "three", "four")'), line('on_change="run"'), line('on_change="skip"')):
        tried("saga", edit, (cure,), parks=True)


@row("the next step is gone")
def _the_next_step_is_gone():
    edit = EDITS["a step is renamed"]
    for cure in (("    @step\n    def zwei(", '    @step(was=("two",))\n    def zwei('),):
        parked = tried("saga", edit, (cure,), parks=True)
        assert {"behind-one", "in-two"} <= {*parked}
    tried("saga", EDITS["a step in the middle is gone"], (line('on_change="run"'), *_UNDO_OF_TWO), parks=True)


_ZWEI = (
    '    @step(was=("two",))\n    def zwei(self, ctx):\n        diary.step(self, ctx, "zwei")\n\n'
    '    @zwei.undo\n    def unzwei(self, ctx):\n        diary.undo(self, ctx, "two")\n\n'
)
_UNDO_OF_TWO: Edit = (("    @step\n    def three(", _ZWEI + "    @step\n    def three("),)


@row("a step moves into a base class, whose steps come first")
def _into_a_base_class():
    cure = ("class Order(Base):", 'class Order(Base, order=("one", "two", "three", "four")):')
    tried("saga", EDITS["a step is moved into a base class"], (cure,), parks=True)


@row("a step has another name")
def _another_name():
    cure = ("    @step\n    def zwei(", '    @step(was=("two",))\n    def zwei(')
    parked = tried("saga", EDITS["a step is renamed"], (cure,), parks=True)
    assert {"behind-one", "in-two", "behind-two", "in-three"} <= {*parked}


@row("two steps become one")
def _two_steps_become_one():
    three = EDITS["two steps are one"][0][0]
    separate = ('    @step(was=("three",))\n    def two(', "    @step\n    def two(")
    for cure in (
        (separate, ("    @step\n    def four(", three.lstrip("\n") + "\n    @step\n    def four(")),
        (line('on_change="run"'),),
    ):
        parked = tried("saga", EDITS["two steps are one"], cure, parks=True)
        assert set(parked) == {"behind-two", "in-three"}


@row("the undo of a step that ran is gone")
def _the_undo_is_gone():
    undo = '    @two.undo\n    def untwo(self, ctx):\n        diary.undo(self, ctx, "two")\n'
    parked = tried(
        "saga",
        EDITS["an undo is gone"],
        (("    @step\n    def three(", undo + "\n    @step\n    def three("),),
        parks=True,
    )
    assert set(parked) == {"undo-two", "undo-three", "undo-four"}


# ---------------------------------------------------------------- values
@row("a field came that has a default")
def _a_nested_default():
    tried("saga", EDITS["a nested field with a default"], parks=False)


@row("a field came that has none, or went, or was renamed")
def _a_nested_field():
    read = "@migrates(Money)\ndef read(plain, version):\n    return {}\n"
    renamed = '@migrates(Money)\ndef read(plain, version):\n    return {"cents": plain["amount"]}\n'
    more = '@migrates(Money)\ndef read(plain, version):\n    return plain | {"extra": 1}\n'
    tried("saga", EDITS["a nested field is gone"], (before_order(read),), parks=True)
    tried("saga", EDITS["a nested field is renamed"], (before_order(renamed),), parks=True)
    tried("saga", EDITS["a nested field without a default"], (before_order(more),), parks=True)


@row("a field means something else")
def _another_meaning():
    edit = (("    amount: int\n", "    amount: int  # in cents now\n"), ("Money(5)", "Money(500)"))
    tried("saga", edit, parks=False)
    says_so = before_order(
        '@migrates(Money)\ndef read(plain, version):\n    return plain | {"amount": plain["amount"] * 100}\n'
    )
    program = Program(SAGA, ("before",))
    try:
        program.begin()
        shown = 'return diary.step(self, ctx, "four", self.line.price.amount)'
        today = program.edited(
            ("@dataclass\nclass Money:", "@value(version=2)\n@dataclass\nclass Money:"),
            ('return diary.step(self, ctx, "four", "the end")', shown),
            says_so,
        )
        assert program.wrong(program.go_on(today), is_over=True) == []
        assert program.result("before", today) == 500
    finally:
        program.close()


@row("a class was renamed or moved")
def _a_nested_class_renamed():
    edit = EDITS["a nested class is renamed"]
    tried("saga", edit, (says(aliases='{"shop:Money": Sum}'),), parks=True)
    said = ("@dataclass\nclass Sum:", '@value(aliases=["shop:Money"])\n@dataclass\nclass Sum:')
    tried("saga", edit, (said,), parks=True)


@row("a member of an enum was renamed")
def _a_member_renamed():
    edit = EDITS["a member of an enum is renamed"]
    tried("saga", edit, (says(aliases='{"shop:Color.RED": Color.CRIMSON}'),), parks=True)
    read = "@migrates(Color)\ndef read(plain, version):\n    return Color.CRIMSON\n"
    tried("saga", edit, (before_order(read),), parks=True)


@row("a class went for good")
def _a_class_went():
    body = '        data["color"] = "RED"\n'
    edit = (*EDITS["an enum is a str now"], ("class Color(Enum):\n    RED = 1\n    BLUE = 2\n", ""))
    tried("saga", edit, migrating(body), parks=True)


# ---------------------------------------------------------------- classes
@row("a field with a default is added")
def _a_default():
    tried("saga", EDITS["a field with a default"], parks=False)
    tried("saga", EDITS["a field with a factory"], parks=False)


@row("a field without a default is added, or one is removed")
def _a_field():
    tried("saga", EDITS["a field without a default"], migrating('        data["extra"] = 1\n'), parks=True)
    tried("saga", EDITS["a field is gone"], migrating('        del data["name"]\n'), parks=True)


@row("a class of nested values changed")
def _a_nested_class():
    more = '@migrates(Line)\ndef read(plain, version):\n    return plain | {"extra": 1}\n'
    parked = tried(
        "family",
        OTHERS["family"]["the output has a field without a default"],
        (before_order(more, "@dataclass\nclass Kid("),),
        parks=True,
    )
    assert "in-two" in parked
    tried(
        "family",
        OTHERS["family"]["the class of the output is renamed"],
        (
            before_order("", "@dataclass\nclass Kid("),
            ("class Row:", 'class Row:\n    __doc__ = ""'),
            ("uses = (Row,", 'aliases = {"shop:Line": Row}\n    uses = (Row,'),
        ),
        parks=True,
    )


@row("the class has another name, or another module")
def _the_class_renamed():
    program = Program(SAGA)
    try:
        program.begin()
        today = program.edited(("class Order(Saga):", "class Purchase(Saga):"))
        seen = program.go_on(today)
        assert all(now.is_parked or now.state == "SUCCESS" for now in seen.values())
        assert all("type_name = 'shop.Order'" in now.reason for now in seen.values() if now.is_parked)
        moved = changed(SAGA, (CLASS_LINE, f'{CLASS_LINE}\n    __module__ = "elsewhere"'))
        assert all("'elsewhere.Order' is" in now.reason for now in program.go_on(moved).values() if now.is_parked)
        cured = changed(today, ("class Purchase(Saga):", 'class Purchase(Saga):\n    type_name = "shop.Order"'))
        assert program.wrong(program.go_on(cured), is_over=True) == []
    finally:
        program.close()


@row("the class is gone")
def _the_class_gone():
    program = Program(SAGA)
    try:
        program.begin()
        seen = program.go_on(program.edited(*EDITS["the class is gone"]))
        assert all(now.is_parked or now.state == "SUCCESS" for now in seen.values())
        assert sum(now.is_parked for now in seen.values()) >= len(STANDS) - 1
        assert program.wrong(program.go_on(SAGA), is_over=True) == []
    finally:
        program.close()


@row("what was done has no undo any more")
def _no_undo():
    parked = tried("saga", EDITS["an undo is gone"], parks=True)
    assert set(parked) <= {f"undo-{name}" for name in STEPS}
    gone = (("    def rollback_state(self, ctx, state):\n        diary.undo(self, ctx, state.name)\n", ""),)
    back = (
        "    def following(",
        "    def rollback_state(self, ctx, state):\n        diary.undo(self, ctx, state.name)\n\n    def following(",
    )
    parked = tried("machine", gone, (back,), parks=True)
    assert set(parked) == {f"undo-{name}" for name in STEPS}


@row("a saga, a state machine or a plain procedure becomes another of the three")
def _another_kind():
    for edit in ("a saga is a procedure", "a saga is a state machine"):
        tried("saga", EDITS[edit], parks=True)
    tried("machine", OTHERS["machine"]["a machine is a saga of the same names"], parks=True)
    tried("machine", OTHERS["machine"]["a machine is a procedure"], parks=True)


@row("a state of a state machine is gone, or has another name")
def _a_state():
    edit = OTHERS["machine"]["a state is renamed"]
    parked = tried("machine", edit, (("    zwei = 2\n", "    zwei = 2\n    two = zwei\n"),), parks=True)
    assert "in-two" in parked
    assert "in-one" not in parked


@row("the older code comes back")
def _the_older_code_comes_back():
    newer = {
        "a step in the middle is new": True,
        "a step is renamed, and says so": True,
        "the version is raised, and read": True,
        "a field with a default": True,
    }
    for edit, parks in newer.items():
        program = Program(SAGA, ("before", "behind one", "behind two", "undo one"))
        try:
            today = program.edited(*EDITS[edit])
            program.begin(today)
            older = program.go_on(SAGA)
            assert program.wrong(older) == []
            assert any(now.is_parked for now in older.values()) is parks
            assert program.wrong(program.go_on(today), is_over=True) == []
        finally:
            program.close()


@row("a file is half copied, or `load` meets an I/O error")
def _an_error_that_may_pass():
    program = Program(SAGA, ("behind one", "undo two"))
    trouble = '    @classmethod\n    def load(cls, data):\n        raise OSError("the disk is not there")\n\n'
    try:
        program.begin()
        program.diary.is_open = True
        names = ("behind-one", "undo-two")
        with program.running(program.edited(("    def lock_keys", trouble + "    def lock_keys"))) as manager:
            manager.publish("go behind-one", "now")
            program.clock.advance(2 * LATER)
            for name in names:
                wait_until(lambda name=name: (manager.info(name).reason or "").startswith("it cannot be read now"))
                wait_until(lambda name=name: "is tried again" in manager.why(name).says)  # not while it is tried
            for name in names:
                wait_until(lambda name=name: program.clock.advance(1.0) or manager.info(name).phase == "parked")
                assert "OSError: the disk is not there" in manager.info(name).reason
            assert (manager.info("behind-one").errors, manager.info("behind-one").crashes) == (0, 0)
        assert program.wrong(program.go_on(SAGA), is_over=True) == []
    finally:
        program.close()


@row("`version`, retries, limits or locks of a class")
def _facts():
    # That a reload is refused for each of them is tried in `test_reloading`.
    program = Program(SAGA, ("before", "in one"))
    try:
        program.begin()
        today = program.edited(
            ("    def lock_keys", '    def limit_keys(self):\n        return ["k"]\n\n    def lock_keys')
        )
        assert (
            program.wrong(program.go_on(changed(today, says(retry="RetryPolicy(max_attempts=7)"))), is_over=True) == []
        )
    finally:
        program.close()
    for edit in ("fewer retries", "a wall time", "locks by the step", "locks are of another object"):
        tried("saga", EDITS[edit], parks=False)
