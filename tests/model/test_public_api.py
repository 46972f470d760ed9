"""A model of what callers see, and Hypothesis doing as it likes with both: submits, signals, pauses, crashes, restarts.

The model knows no store, no worker and no time but hours; it says how each procedure must stand once nothing moves any
more. `ACTORPROC_EXAMPLES=1000` tries that many histories, other ones each time.
"""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, settings, strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, multiple, rule

from actorproc import DuplicateProcedure, LockKey, NotAllowed, Procedure, Status, UnknownProcedure
from actorproc.errors import StorageUnavailable
from actorproc.store.memory import MemoryStore
from actorproc.testing.inline import InlineManager, VirtualClock

EXAMPLES = int(os.environ.get("ACTORPROC_EXAMPLES", "0"))
HOUR = 3600.0
BOUND = 30.0
ENDED = {"success", "undone"}


@dataclass
class Walk(Procedure):
    """Follows a script: "go" on, "sleep" for an hour, "wait" for a signal, "fail"; its end is the end of the script."""

    script: list[str]
    shelf: str = ""
    at: int = 0
    heard: list[int] = field(default_factory=list)

    def lock_keys(self):
        return [LockKey.write(self.shelf)] if self.shelf else []

    def execute(self, ctx):
        if self.at and self.script[self.at - 1] == "wait":
            self.heard.append(ctx.event)
        if self.at == len(self.script):
            return Status.done(self.heard)
        order = self.script[self.at]
        self.at += 1
        if order == "sleep":
            return Status.sleep(HOUR)
        if order == "wait":
            return Status.wait(f"news of {ctx.id}")
        if order == "fail":
            raise ValueError("the script says so")
        return Status.executing()

    def rollback(self, ctx):
        return None


@dataclass
class Model:
    """What a caller expects of one procedure."""

    script: tuple[str, ...]
    shelf: str
    place: int
    at: int = 0
    stands: str = "ready"
    wakes: float = 0.0
    heard: list[int] = field(default_factory=list)
    letters: list[int] = field(default_factory=list)
    paused: bool = False
    has_lock: bool = False

    @property
    def is_over(self) -> bool:
        return self.stands in ENDED


class Store(MemoryStore):
    """Fails the next commits, some of them only after they were applied."""

    def __init__(self):
        super().__init__()
        self.trouble: list[bool] = []
        self.dead = threading.Event()

    def commit(self, writes, epoch, batch=0):
        if self.dead.is_set():
            raise StorageUnavailable("this host is dead")
        fails = self.trouble.pop(0) if self.trouble else None
        if fails is None or fails:
            super().commit(writes, epoch, batch)
        if fails is not None:
            raise StorageUnavailable("as the test wants it")

    def reopen(self):
        if self.dead.is_set():
            raise StorageUnavailable("this host is dead")
        super().reopen()


class Callers(RuleBasedStateMachine):
    ids = Bundle("ids")

    @initialize()
    def begin(self):
        self.known: dict[str, Model] = {}
        self.hours = 0.0
        self.places = 0
        self.all_paused = False
        self.lose = 0
        self.clock = VirtualClock()
        self.store = Store()
        self.open()

    def open(self):
        def loses(_):
            self.lose -= self.lose > 0
            return self.lose > 0

        self.manager = InlineManager([Walk], store=self.store, clock=self.clock, loses=loses, workers=2)
        self.manager.start()

    def told(self, verb, *arguments, **options):
        """Ask the manager; what is refused because of the disk was not done, and is asked again."""
        deadline = time.monotonic() + BOUND
        while True:
            try:
                return getattr(self.manager, verb)(*arguments, **options)
            except StorageUnavailable:
                assert time.monotonic() < deadline
                time.sleep(0.002)
                self.clock.advance(0.01)

    # ------------------------------------------------------------ what callers do
    @rule(
        target=ids,
        name=st.sampled_from("abcdef"),
        script=st.lists(st.sampled_from(["go", "go", "sleep", "wait", "fail"]), max_size=4).map(tuple),
        shelf=st.sampled_from(["", "", "shelf/1", "shelf/2"]),
    )
    def submit(self, name, script, shelf):
        known = self.known.get(name)
        if known is not None and (known.script, known.shelf) != (script, shelf):
            with pytest.raises(DuplicateProcedure):
                self.told("submit", Walk(list(script), shelf), id=name)
            return multiple()
        assert self.told("submit", Walk(list(script), shelf), id=name).id == name
        if known is None:
            self.places += 1
            self.known[name] = Model(script, shelf, self.places)
        self.settle()
        return name

    @rule(name=ids, number=st.integers(0, 9))
    def signal(self, name, number):
        model = self.known.get(name)
        if model is None:
            return  # deleted: a signal would wait for the next of this name
        assert self.told("signal", name, number) is not model.is_over
        if not model.is_over:
            model.letters.append(number)
        self.settle()

    @rule(name=ids)
    def abort(self, name):
        model = self.known.get(name)
        if model is None:
            with pytest.raises(UnknownProcedure):
                self.told("abort", name)
            return
        may = not model.is_over
        assert self.told("abort", name) is may
        if may:
            model.stands = "aborting"
        self.settle()

    @rule(name=ids)
    def pause(self, name):
        model = self.known.get(name)
        if model is not None:
            assert self.told("pause", name) is not model.is_over
            model.paused = model.paused or not model.is_over
            self.settle()

    @rule(name=ids)
    def resume(self, name):
        model = self.known.get(name)
        if model is not None:
            assert self.told("resume", name) is (model.paused and not model.is_over)
            model.paused = False
            self.settle()

    @rule()
    def pause_all(self):
        self.told("pause")
        self.all_paused = True

    @rule()
    def resume_all(self):
        assert self.told("resume") is self.all_paused
        self.all_paused = False
        self.settle()

    @rule(name=ids)
    def delete(self, name):
        model = self.known.get(name)
        if model is None:
            assert self.told("delete", name) is False
        elif model.is_over:
            assert self.told("delete", name) is True
            del self.known[name]
        else:
            with pytest.raises(NotAllowed):
                self.told("delete", name)

    # ------------------------------------------------------------ what happens to them
    @rule(hours=st.sampled_from([0.5, 1.5]))
    def time_passes(self, hours):
        self.hours += hours
        self.clock.advance(hours * HOUR)
        self.settle()

    @rule(answers=st.integers(1, 2))
    def workers_will_die(self, answers):
        """The workers of the next steps die when their answers are due."""
        self.lose = answers + 1

    @rule(trouble=st.lists(st.booleans(), min_size=1, max_size=3))
    def disk_will_fail(self, trouble):
        self.store.trouble = trouble

    @rule(in_order=st.booleans())
    def host_ends(self, in_order):
        old = self.store
        if not in_order:
            old.dead.set()
        else:
            old.trouble = []
        self.manager.stop(drain=in_order, timeout=BOUND)
        self.store = Store()
        self.store.__dict__.update({k: v for k, v in old.clone().__dict__.items() if k not in ("trouble", "dead")})
        self.open()
        self.settle()

    # ------------------------------------------------------------ the model
    def settle(self):
        """Let everything move that can."""
        moved = True
        while moved:
            moved = False
            for model in sorted(self.known.values(), key=lambda one: one.place):
                moved = self.move(model) or moved

    def move(self, model):
        if model.is_over:
            return False
        if model.stands == "ready" and model.shelf and not model.has_lock:
            # Locks are granted in the order of submits, to what is paused too.
            rivals = [one for one in self.known.values() if one.shelf == model.shelf and one is not model]
            if any(one.has_lock for one in rivals):
                return False
            model.has_lock = True
        if self.all_paused or model.paused:
            return False
        if model.stands == "aborting":
            self.end(model, "undone")
            return True
        if model.stands == "sleeping" and self.hours < model.wakes:
            return False
        if model.stands == "waiting":
            if not model.letters:
                return False
            model.heard.append(model.letters.pop(0))
        if model.at == len(model.script):
            self.end(model, "success")
            return True
        order = model.script[model.at]
        model.at += 1
        if order == "fail":
            self.end(model, "undone")
        elif order == "sleep":
            model.stands, model.wakes = "sleeping", self.hours + 1.0
        else:
            model.stands = "waiting" if order == "wait" else "ready"
        return True

    @staticmethod
    def end(model, how):
        model.stands = how
        model.has_lock = False
        model.paused = False

    # ------------------------------------------------------------ both, compared
    def seen(self, name):
        info = self.manager.info(name)
        return {"SUCCESS": "success", "ROLLEDBACK": "undone"}.get(info.state.name, info.phase.value)

    def expected(self, model):
        if model.is_over:
            return {model.stands}
        if model.paused or self.all_paused:
            # A pause shows as such; what sleeps or waits below it goes on doing so, and what has nothing to undo ends.
            stands = {"paused", "sleeping", "waiting", "rolling-back", "locked-out", "queued"}
            return stands | {"undone"} if model.stands == "aborting" else stands
        if model.stands == "ready":
            return {"locked-out"}
        return {model.stands}

    @invariant()
    def everybody_stands_as_expected(self):
        if not hasattr(self, "known"):
            return
        deadline = time.monotonic() + BOUND
        while True:
            wrong = {
                name: (self.seen(name), self.expected(model))
                for name, model in self.known.items()
                if self.seen(name) not in self.expected(model)
            }
            if not wrong and self.manager.pool.is_idle:
                break
            assert time.monotonic() < deadline, f"after {BOUND} s: {wrong}"
            if not self.manager.pool.is_idle or wrong:
                time.sleep(0.002)
                if self.lose or self.store.trouble:
                    self.clock.advance(0.01)  # backoffs
        assert [info.id for info in self.manager.list()] == [
            name for name, _ in sorted(self.known.items(), key=lambda item: item[1].place)
        ]
        for name, model in self.known.items():
            if model.stands == "success":
                assert self.manager.get(name).result(BOUND) == model.heard
        for name, model in self.known.items():
            if model.stands == "aborting" and self.seen(name) == "undone":
                self.end(model, "undone")
        self.settle()
        holders = {lock.holder for lock in self.manager.locks()}
        assert holders == {name for name, model in self.known.items() if model.has_lock}

    def teardown(self):
        if hasattr(self, "manager"):
            self.manager.stop(drain=False, timeout=BOUND)


TestWhatCallersSee = Callers.TestCase
TestWhatCallersSee.settings = settings(
    max_examples=EXAMPLES or 40,
    stateful_step_count=25,
    deadline=None,
    derandomize=not EXAMPLES,
    suppress_health_check=list(HealthCheck),
    print_blob=True,
)
