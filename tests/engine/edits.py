"""A program that is edited between two runs of one store, with procedures that stand at every step of it.

`Program` is the program before the edit, as text; an edit is what is replaced in it by what. Each procedure is told by
its field `stand` where it is to stand when the program is stopped. What steps and undos do is noted in a `Diary`.
"""

from __future__ import annotations

import re
import sys
import types
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from actorproc import Procedure, ProcedureInfo, RetryLater, Status
from actorproc.model.states import TERMINAL
from actorproc.store.base import ProcedureStore
from actorproc.store.memory import MemoryStore
from actorproc.testing.inline import FAST, InlineManager, VirtualClock
from tests.kit.waiting import wait_until

LATER = 5000.0
"""Seconds a step that is to be repeated waits: until the clock is moved."""
_ROUNDS = 3
"""How often the clock is moved: a step that is tried again waits once."""
HINT = re.compile(
    r"migrate|@migrates|aliases|type_name|on_change|order=|was=|register|version|codec|signing_key|[Bb]ring|write"
)
"""A reason that has none of these does not say what to write."""


class Diary:
    """What happened outside of the engine: steps and undos that were begun, and that have ended."""

    def __init__(self) -> None:
        self.began: Counter[tuple[str, str]] = Counter()
        self.done: Counter[tuple[str, str]] = Counter()
        """By procedure and step."""
        self.undone: Counter[tuple[str, str]] = Counter()
        self.keys: dict[tuple[str, str], set[str]] = {}
        """Idempotency keys of a step."""
        self.is_open = False
        """What stands goes on."""

    def step(self, procedure, ctx, name, result=None) -> object:
        """A step: it is done and goes on, or the procedure stands before, in or behind it."""
        place = (ctx.id.removesuffix(".kid"), name)
        self.began[place] += 1
        self.keys.setdefault(place, set()).add(ctx.idempotency_key)
        if procedure.stand == f"in {name}" and not self.is_open:
            raise RetryLater(after=LATER)
        self.done[place] += 1
        if procedure.stand == f"behind {name}":
            return Status.wait(f"go {place[0]}")
        if procedure.stand.startswith("undo ") and name == "four":
            raise ValueError("it fails at last")
        return result

    def undo(self, procedure, ctx, name: str) -> None:
        """An undo: it is done, or cannot be done yet."""
        if procedure.stand == f"undo {name}" and not self.is_open:
            raise RuntimeError("not yet")
        self.undone[ctx.id.removesuffix(".kid"), name] += 1


SAGA = """
from __future__ import annotations
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, ClassVar, Generic, TypeVar
import attrs
from actorproc import (
    LockKey, Procedure, RetryPolicy, Saga, StateMachineProcedure, Status, migrates, step, value,
)

LATER = RetryPolicy(max_attempts=100, base=5000.0, cap=5000.0, retry_on=(RuntimeError,))

@dataclass
class Money:
    amount: int
    unit: str = "EUR"

@dataclass
class Line:
    sku: str
    price: Money

class Color(Enum):
    RED = 1
    BLUE = 2

@dataclass
class Order(Saga):
    stand: str
    name: str = "Ada"
    count: int = 3
    line: Line = field(default_factory=lambda: Line("pen", Money(5)))
    color: Color = Color.RED
    found: Any = None
    rollback_retry = LATER

    def lock_keys(self):
        return []

    @step
    def one(self, ctx):
        self.found = ctx.remember("note", lambda: Line("remembered", Money(7)))
        return diary.step(self, ctx, "one")

    @one.undo
    def unone(self, ctx):
        diary.undo(self, ctx, "one")

    @step
    def two(self, ctx):
        self.count += 1
        return diary.step(self, ctx, "two")

    @two.undo
    def untwo(self, ctx):
        diary.undo(self, ctx, "two")

    @step
    def three(self, ctx):
        return diary.step(self, ctx, "three")

    @three.undo
    def unthree(self, ctx):
        diary.undo(self, ctx, "three")

    @step
    def four(self, ctx):
        return diary.step(self, ctx, "four", "the end")

    @four.undo
    def unfour(self, ctx):
        diary.undo(self, ctx, "four")
"""
_BEGIN = SAGA.index("@dataclass\nclass Order(")
_FIELDS = SAGA[SAGA.index("    stand: str") : SAGA.index("    def lock_keys")]
MACHINE = (
    SAGA[:_BEGIN]
    + """
class Place(Enum):
    one = 1
    two = 2
    three = 3
    four = 4

@dataclass
class Order(StateMachineProcedure):
"""
    + _FIELDS
    + """
    initial_state = Place.one

    def execute_from_state(self, ctx, state):
        following = self.following(state)
        return following if ctx.event is not None else diary.step(self, ctx, state.name, following)

    def following(self, state):
        return Status.done("the end") if state is Place.four else Place(state.value + 1)

    def rollback_state(self, ctx, state):
        diary.undo(self, ctx, state.name)
"""
)
PLAIN = (
    SAGA[:_BEGIN]
    + """
@dataclass
class Order(Procedure):
"""
    + _FIELDS
    + """
    at: int = 0

    def execute(self, ctx):
        name = ("one", "two", "three", "four", "end")[self.at]
        self.at += 1
        if name == "end":
            return Status.done("the end")
        return diary.step(self, ctx, name, Status.executing())

    def rollback(self, ctx):
        for name in (self.stand[5:], *(each for each in ("four", "three", "two", "one") if each != self.stand[5:])):
            diary.undo(self, ctx, name)
"""
)
FAMILY = (
    SAGA[:_BEGIN]
    + """
@dataclass
class Kid(Procedure):
    stand: str
    at: int = 0
    rollback_retry = LATER
    uses = (Line, Money)

    def execute(self, ctx):
        self.at += 1
        if self.at == 2 or ctx.event is not None:
            return Status.done(Line("child", Money(9)))
        return diary.step(self, ctx, "kid", Status.executing())

    def rollback(self, ctx):
        diary.undo(self, ctx, "kid")

@dataclass
class Order(Saga):
    stand: str
    found: Any = None
    rollback_retry = LATER
    uses = (Line, Money)

    @step
    def one(self, ctx):
        diary.step(self, ctx, "one")
        return Status.suspended([(ctx.id + ".kid", Kid(self.stand))])

    @one.undo
    def unone(self, ctx):
        diary.undo(self, ctx, "one")

    @step
    def two(self, ctx):
        self.found = [outcome.output for outcome in ctx.children.values()]
        return diary.step(self, ctx, "two", self.found)

    @two.undo
    def untwo(self, ctx):
        diary.undo(self, ctx, "two")

    @step
    def three(self, ctx):
        return diary.step(self, ctx, "four", "the end")

    @three.undo
    def unthree(self, ctx):
        diary.undo(self, ctx, "four")
"""
)
STEPS = ("one", "two", "three", "four")
STANDS = (
    "before",
    *(f"{how} {name}" for name in STEPS for how in ("in", "behind")),
    *(f"undo {name}" for name in STEPS),
)
FAMILY_STEPS = ("one", "kid", "two", "four")
FAMILY_STANDS = ("before", "in kid", "in two", "behind two", "in four", "undo kid", "undo two", "undo one", "undo four")
"""Every place of the saga: not begun, in a step, behind it, and in the undo of each."""


@dataclass(frozen=True)
class Seen:
    """Where a procedure is when nothing moves any more."""

    state: str
    is_parked: bool
    reason: str
    records: int

    @classmethod
    def of(cls, manager: InlineManager, name: str) -> Seen:
        """As the manager tells it. A result that it cannot give would be lost."""
        info = obstacle(manager, name)
        is_parked = info.phase == "parked"
        if info.state == "SUCCESS" and not is_parked:
            manager.get(name).result(timeout=30)
        reason = info.reason or (str(info.error) if info.error else "")
        return cls(str(info.state), is_parked, reason, len(manager.steps(name)))


def changed(text: str, *changes: tuple[str, str]) -> str:
    """The text with each of these changes, every one of which must fit."""
    for old, new in changes:
        assert old in text, f"the edit does not fit: {old!r}"
        text = text.replace(old, new)
    return text


def obstacle(manager: InlineManager, name: str) -> ProcedureInfo:
    """The procedure, or the child of it that is parked."""
    found = [info for info in manager.list(root=name) if info.phase == "parked"]
    return found[0] if found else manager.info(name)


class Program:
    """One program under one name, with the store that its runs share."""

    def __init__(self, text: str, stands: Iterable[str] = STANDS, name: str = "shop") -> None:
        self.text = text
        self.name = name
        self.stands = tuple(stands)
        self.diary = Diary()
        self.clock = VirtualClock()
        store = MemoryStore()
        self.open_store: Callable[[], ProcedureStore] = lambda: store
        self.config = FAST
        self._had = {module: sys.modules.get(module) for module in (name, f"{name}.old", "elsewhere")}

    def close(self) -> None:
        """Its modules are as they were."""
        for module, had in self._had.items():
            sys.modules.pop(module, None)
            if had is not None:
                sys.modules[module] = had

    def edited(self, *changes: tuple[str, str]) -> str:
        """The text with each of these changes, every one of which must fit."""
        return changed(self.text, *changes)

    def order(self) -> type:
        """The class of the program that runs now."""
        return sys.modules[self.name].Order

    def result(self, name: str, text: str) -> object:
        """The output of a procedure that has ended, as this program reads it."""
        with self.running(text) as manager:
            return manager.get(name).result(timeout=30)

    def classes(self, text: str) -> list[type]:
        """The procedure classes of the program's module, loaded anew."""
        module = types.ModuleType(self.name)
        module.__dict__["diary"] = self.diary
        sys.modules[self.name] = module
        sys.modules["elsewhere"] = types.ModuleType("elsewhere")
        exec(compile(text, f"{self.name}.py", "exec"), module.__dict__)
        found = [thing for thing in vars(module).values() if isinstance(thing, type) and issubclass(thing, Procedure)]
        return [thing for thing in found if thing.__module__ in {self.name, "elsewhere"}]

    @contextmanager
    def running(self, text: str) -> Iterator[InlineManager]:
        """A manager over the store with the classes of this text."""
        manager = InlineManager(self.classes(text), config=self.config, store=self.open_store(), clock=self.clock)
        with manager:
            yield manager

    # ------------------------------------------------------------ the runs
    def begin(self, text: str | None = None, make: Callable[[type, str], object] | None = None) -> None:
        """The first run: one procedure for each place, which stands there when it ends."""
        text = self.text if text is None else text
        with self.running(text) as manager:
            cls = self.order()
            for stand in self.stands:
                made = cls(stand) if make is None else make(cls, stand)
                manager.submit(made, id=stand.replace(" ", "-"), delay=LATER if stand == "before" else 0)
            wait_until(lambda: all(self._stands(manager, stand) for stand in self.stands), 10)

    def _stands(self, manager: InlineManager, stand: str) -> bool:
        name = stand.replace(" ", "-")
        is_of_child = stand.endswith(" kid")
        if is_of_child and len(manager.list(root=name)) == 1:
            return False
        info = manager.info(f"{name}.kid" if is_of_child else name)
        if stand == "behind four" or info.state in TERMINAL:
            return True
        wanted = {"before": ("delayed", "queued"), "in": ("retrying",), "behind": ("waiting",)}
        kind = stand.split(" ", maxsplit=1)[0]
        if kind == "undo":
            return info.undo_error is not None
        return info.phase in wanted[kind]

    def go_on(self, text: str) -> dict[str, Seen]:
        """Another run, in which nothing keeps a procedure: where each is when nothing moves any more."""
        self.diary.is_open = True
        names = [stand.replace(" ", "-") for stand in self.stands]
        with self.running(text) as manager:
            for name in names:
                manager.publish(f"go {name}", "now")
            for _ in range(_ROUNDS):
                self.clock.advance(2 * LATER)
                wait_until(lambda: all(self._rests(obstacle(manager, name)) for name in names), 10)
            return {name: Seen.of(manager, name) for name in names}

    @staticmethod
    def _rests(info: ProcedureInfo) -> bool:
        return info.state in TERMINAL or info.phase in {"parked", "retrying", "waiting", "delayed"}

    # ------------------------------------------------------------ judging
    def wrong(self, seen: dict[str, Seen], *, is_over: bool = False) -> list[str]:
        """What must not be so: done twice, undone, lost, or parked without a word of what to write.

        `is_over`: nothing may be parked any more.
        """
        diary = self.diary
        found = [f"{name} did {what} {count} times" for (name, what), count in diary.done.items() if count > 1]
        found += [f"{name} undid {what} {count} times" for (name, what), count in diary.undone.items() if count > 1]
        found += [f"{place} has the keys {keys}" for place, keys in diary.keys.items() if len(keys) > 1]
        found += [f"{name} undid {what}" for name, what in diary.undone if not name.startswith("undo")]
        for name, now in seen.items():
            ends = {"ROLLEDBACK"} if name.startswith("undo") else {"SUCCESS"}
            if now.is_parked:
                if not HINT.search(now.reason):
                    found.append(f"{name} is parked, and nothing is said of what to write: {now.reason}")
                if is_over:
                    found.append(f"{name} is still parked: {now.reason}")
            elif now.state not in ends:
                found.append(f"{name} is {now.state}: {now.reason}")
        return found

    def not_once(self, names: Iterable[str], steps: Iterable[str] = STEPS) -> list[str]:
        """Steps of these procedures that did not run once, and undos that did not."""
        counts = [("did", self.diary.done, name, what) for name in names for what in steps]
        counts += [
            ("undid", self.diary.undone, name, what) for name in names if name.startswith("undo") for what in steps
        ]
        return [
            f"{name} {how} {what} {count[name, what]} times"
            for how, count, name, what in counts
            if count[name, what] != 1
        ]
