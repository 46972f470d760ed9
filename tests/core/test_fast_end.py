"""The short way to the end decides what the long way decides, and ends that come together are decided about once."""

from __future__ import annotations

import random

import pytest

from actorproc.core import coordinator
from actorproc.model.ids import Mode, WorkerId
from actorproc.model.messages.commands import Reply, Resolve, RunStep
from actorproc.model.messages.events import (
    AbortRequested,
    BypassRequested,
    CrashReport,
    PauseRequested,
    ResumeRequested,
    RetryRequested,
    RollbackRequested,
    Signalled,
    StepEnded,
    WorkerLeaving,
    WorkerLost,
    WorkerReady,
)
from actorproc.model.messages.outcomes import Advanced, Answered, Failed, Finished, Slept, Suspended, Waited
from actorproc.model.policies import LockKey
from actorproc.model.rows.records import ErrorInfo
from actorproc.model.rows.writes import PutProcedure
from actorproc.model.states import ProcedureState
from tests.core.harness import CoreHarness, difference
from tests.simulator.core_sim.fake_shell import FakeShell
from tests.simulator.core_sim.simulation import simulate

DONE = Finished(state=b"end", output=b"out", elapsed=0.0001)


def _no(*_):
    return False


def test_the_same_histories_on_both_ways_leave_the_same_trace(monkeypatch):
    monkeypatch.setattr(FakeShell, "takes", False)
    taken = 0
    short = coordinator.end_straight

    def counted(*arguments):
        nonlocal taken
        was_short = short(*arguments)
        taken += was_short
        return was_short

    monkeypatch.setattr(coordinator, "end_straight", counted)
    straight = [simulate(seed, check_every=1000).digest for seed in range(1, 301)]
    monkeypatch.setattr(coordinator, "end_straight", _no)

    assert [simulate(seed, check_every=1000).digest for seed in range(1, 301)] == straight
    assert taken > 30


class _Play:
    """Procedures of all kinds, mostly plain ones, are submitted, answered and disturbed as a seed says."""

    def __init__(self, seed: int, *, together: bool = False) -> None:
        self.together = together
        self.random = random.Random(seed)
        self.harness = CoreHarness(self.random.choice((1, 2, 3)))
        self.harness.register("Asks", asks_abort=True)
        self.harness.register("Steps", lock_scope="step")
        self.harness.register(
            "Undoes", rollback_supported=True, on_child_failure=self.random.choice(("fail", "resume"))
        )
        if self.random.random() < 0.5:
            self.harness.core._state.workers.table._expected.update(
                T=0.005, Undoes=0.005, Asks=0.005
            )  # as after many answers: some in hand
        self.names: list[str] = []
        self.decisions: list[object] = []
        self.answered: list[object] = []
        self.lives = 1

    def run(self, moves: int = 120) -> list[object]:
        for _ in range(moves):
            self.harness.now += 0.001
            self.random.choices((self._submit, self._answer, self._disturb), (3, 8, 2))[0]()
        for _ in range(500):
            if not self.harness.inbox:
                break
            self._answer(plain=True)
        return self.decisions

    def _tell(self, event: object) -> None:
        decision = self.harness.handle(event)
        for command in decision.commands:
            if isinstance(command, Resolve):
                self.harness.inbox.pop(command.id, None)
        commands = [repr(one) if isinstance(one, Reply) else one for one in decision.commands]  # errors are unequal
        self.decisions.append((decision.writes, commands))

    def _new(self, name: str) -> object:
        drawn = self.random.random()
        traits: dict[str, object] = {}
        if drawn < 0.08:
            traits = {"locks": (LockKey.write(self.random.choice(("k", "p"))),)}
        elif drawn < 0.16:
            traits = {"deadline": self.harness.now + self.random.choice((0.003, 60.0))}
        elif drawn < 0.4:
            traits = {"unit": ""}
        elif drawn < 0.44:
            traits = {"limit_keys": ("smtp",)}
        elif drawn < 0.5:
            traits = {"poisons": ("p",)}
        elif drawn < 0.6:
            traits = {"priority": self.random.randrange(-1, 2), "tags": ("t",)}
        self.names.append(name)
        kind = "Undoes" if "unit" in traits else self.random.choice(("T", "T", "T", "Asks"))
        if "locks" in traits and self.random.random() < 0.6:
            kind = "Steps"
        return self.harness.new(name, kind, **traits)

    def _submit(self) -> None:
        self.decisions.append(repr(self.harness.submit(self._new(f"p{len(self.names)}"))))

    def _answer(self, *, plain: bool = False) -> None:
        runs = list(self.harness.inbox.values())
        if not runs:
            return
        if self.together:
            self._answer_some(self.random.sample(runs, min(len(runs), self.random.randrange(1, 6))), plain=plain)
            return
        run = self.random.choice(runs)
        token = run.token
        del self.harness.inbox[token.procedure]
        self.answered.append(token)
        self._tell(StepEnded(token, self._outcome(run, plain=plain)))

    def _answer_some(self, runs: list[RunStep], *, plain: bool) -> None:
        answers = [StepEnded(run.token, self._outcome(run, plain=plain)) for run in runs]
        for run in runs:
            del self.harness.inbox[run.token.procedure]
        self.harness.answer_all(answers)
        assert _agenda_is_empty(self.harness)
        assert difference(self.harness) is None

    def _outcome(self, run: RunStep, *, plain: bool) -> object:
        if run.token.mode is Mode.ASK_ABORT:
            return Answered(allowed=True)
        if plain or run.token.mode is not Mode.EXECUTE:
            return DONE
        drawn = self.random.random()
        if drawn < 0.12 and run.token.step == 1:
            first = len(self.names)
            children = tuple(self._new(f"p{first + place}") for place in range(self.random.randrange(1, 5)))
            how = {
                "wait": self.random.choice(("all", "any", "each")),
                "on_parent_end": self.random.choice(("abort", "leave")),
                "max_parallel": self.random.choice((None, None, 1)),
            }
            return Suspended(state=b"s", children=children, **how)
        other = {
            0.2: Failed(error=ErrorInfo("step", "ValueError", "no"), retryable=self.random.random() < 0.5),
            0.21: Slept(state=b"z", seconds=0.001),
            0.22: Waited(state=b"w", event="go"),
            0.35: Advanced(
                state=b"a",
                unit=self.random.choice((None, "made")),
                no_return=self.random.random() < 0.1,
                poisons=self.random.choice((None, None, (), ("p",))),
            ),
        }
        return next((outcome for bound, outcome in other.items() if 0.12 <= drawn < bound), DONE)

    def _disturb(self) -> None:
        kind = self.random.choice(
            (self._ask, self._ask, self._ask, self._signal, self._repeat, self._kill, self._leave)
        )
        kind()

    def _ask(self) -> None:
        """Something is asked of a procedure, most often of one that runs."""
        name = self.random.choice(list(self.harness.inbox) or self.names or ["nobody"])
        if self.random.random() < 0.4 and self.names:
            name = self.random.choice(self.names)
        if self.harness.core.view(name) is None:
            return
        forced = self.random.random() < 0.3
        asked = (
            AbortRequested(name, 7, force=forced),
            BypassRequested(name, 7, force=forced, ancestors=self.random.random() < 0.5),
            PauseRequested(name, 7),
            ResumeRequested(name, 7),
            RetryRequested(name, 7),
            RollbackRequested(name, 7),
        )
        self._tell(self.random.choice(asked))

    def _signal(self) -> None:
        number = self.random.randrange(100)
        self._tell(Signalled(self.random.choice(self.names or ["go"]), b"x", 7, dedup=f"d{number}"))

    def _repeat(self) -> None:
        """An answer comes that came before."""
        if self.answered:
            self._tell(StepEnded(self.random.choice(self.answered), DONE))

    def _kill(self) -> None:
        worker = WorkerId(0, self.lives)
        self.lives += 1
        report = CrashReport(kind="signal", message="killed", code=-9, signal="SIGKILL")
        self.harness.inbox = {name: run for name, run in self.harness.inbox.items() if run.token.worker != worker}
        self._tell(WorkerLost(worker, report))
        self._tell(WorkerReady(WorkerId(0, self.lives)))

    def _leave(self) -> None:
        self._tell(WorkerLeaving(WorkerId(0, self.lives)))


def _left(play: _Play) -> tuple[object, ...]:
    """What is in memory at the end."""
    state = play.harness.core._state
    trees = {
        root: (tree.open, set(tree.running) if not tree.is_bare else set())
        for root, tree in state.residents.trees.items()
    }
    return (
        play.harness.core.fingerprint(),
        (
            dict(state.workers.warm),
            set(state.workers.suspects),
            dict(state.follow_ups.asking),
            dict(state.signals.taken),
            dict(state.workers.table.in_hand),
            trees,
        ),
        state.timers.entries(),
        state.residents.procs,
        state.counters.stale_results,
    )


@pytest.mark.parametrize("first", range(0, 400, 100))
def test_procedures_of_all_kinds_are_decided_alike_on_both_ways(monkeypatch, first):
    short = coordinator.end_straight
    ways = [0, 0]

    def counted(state, event, outcome):
        was_short = short(state, event, outcome)
        ways[was_short] += 1
        return was_short

    for seed in range(first, first + 100):
        monkeypatch.setattr(coordinator, "end_straight", counted)
        short_way, long_way = _Play(seed), _Play(seed)
        straight = short_way.run()
        monkeypatch.setattr(coordinator, "end_straight", _no)
        assert long_way.run() == straight, seed
        assert _left(long_way) == _left(short_way), seed

    assert min(ways) > 300  # as many took each way


@pytest.mark.parametrize("first", range(0, 300, 100))
def test_answers_that_come_together_leave_nothing_undone_and_memory_as_a_restart_would_make_it(monkeypatch, first):
    taken = 0
    take = coordinator.Coordinator.take

    def counted(self, event, now):
        nonlocal taken
        is_taken = take(self, event, now)
        taken += is_taken
        return is_taken

    monkeypatch.setattr(coordinator.Coordinator, "take", counted)
    for seed in range(first, first + 100):
        _Play(seed, together=True).run()

    assert taken > 300


def _with_children(count: int) -> CoreHarness:
    harness = _prefetching(workers=2)
    harness.submit(harness.new("parent"))
    harness.answer("parent", Suspended(state=b"s", children=tuple(harness.new(f"c{n:03}") for n in range(count))))
    return harness


def _heads(writes: list[object]) -> dict[str, object]:
    return {write.record.id: write.record for write in writes if isinstance(write, PutProcedure)}


def test_ends_that_come_together_write_their_parent_once_and_fill_the_workers():
    harness = _with_children(700)
    in_hand = [run.token for name, run in harness.inbox.items() if name != "parent"]

    decision = harness.answer_all(StepEnded(token, DONE) for token in in_hand[:40])

    heads = [write.record for write in decision.writes if isinstance(write, PutProcedure)]
    assert [head.pending for head in heads if head.id == "parent"] == [660]
    assert sum(head.state is ProcedureState.SUCCESS for head in heads) == 40
    assert sum(isinstance(command, RunStep) for command in decision.commands) == 40
    assert sum(isinstance(command, Resolve) for command in decision.commands) == 40


def test_ends_that_come_together_leave_what_one_after_the_other_leaves():
    found = []
    for together in (False, True):
        harness = _with_children(9)
        tokens = [run.token for name, run in harness.inbox.items() if name != "parent"]
        if together:
            harness.answer_all(StepEnded(token, DONE) for token in tokens)
        else:
            for token in tokens:
                harness.handle(StepEnded(token, DONE))
        runs = [command.token for command in harness.commands if isinstance(command, RunStep)]
        found.append((_heads(harness.writes), runs, harness.core.fingerprint()))

    assert found[0] == found[1]
    assert found[0][1][-1].procedure == "parent"


def test_another_event_is_decided_about_together_with_the_ends_taken_before_it():
    harness = _with_children(3)
    first, second, third = (harness.inbox[name].token for name in ("c000", "c001", "c002"))
    assert harness.core.take(StepEnded(first, DONE), harness.now)

    decision = harness.core.handle(StepEnded(second, Failed(error=ErrorInfo("step", "ValueError", "no"))), harness.now)

    heads = _heads(decision.writes)
    assert heads["c000"].state is ProcedureState.SUCCESS
    assert heads["c001"].error.message == "no"
    assert heads["parent"].succeeded == 1
    assert not harness.core.take(StepEnded(first, DONE), harness.now)  # it was answered
    assert not harness.core.take(StepEnded(third, Advanced(state=b"1")), harness.now)


K = (LockKey.write("k"),)
ON = Advanced(state=b"1", elapsed=1e-5)


def _waiting_for_a_poisoned_key(*strangers: tuple[str, dict[str, object]]) -> CoreHarness:
    """P gave its key up while it waits for its child C; others are in hand, or hold, as they say."""
    harness = _prefetching()
    harness.register("S", lock_scope="step")
    harness.submit(harness.new("P", "S", locks=K))
    harness.answer("P", Suspended(state=b"s", children=(harness.new("C"),)))
    for name, fields in strangers:
        harness.submit(harness.new(name, **fields))
    return harness


def _prefetching(workers: int = 1) -> CoreHarness:
    """As after many quick answers: workers get as many steps as they ever get."""
    harness = CoreHarness(workers)
    harness.core._state.workers.table._expected.update(T=1e-5, S=1e-5)
    return harness


def _together(harness: CoreHarness, *answers: tuple[str, object]) -> None:
    harness.answer_all([StepEnded(harness.inbox.pop(name).token, outcome) for name, outcome in answers])


def _agenda_is_empty(harness: CoreHarness) -> bool:
    state = harness.core._state
    return not (
        state.follow_ups.refused
        or state.follow_ups.victims
        or state.follow_ups.bereft
        or state.locks.table.has_news
        or state.follow_ups.scopes_to_advance
    )


def _error_of(harness: CoreHarness, name: str) -> str | None:
    record = harness.core.view(name)
    return record.error.type_name if record is not None and record.error is not None else None


def test_a_parent_that_wakes_for_a_poisoned_key_fails_before_the_next_end_takes_the_poison_back():
    harness = _waiting_for_a_poisoned_key(("Z", {"poisons": ("k",)}))

    _together(harness, ("C", DONE), ("Z", DONE))

    assert _error_of(harness, "P") == "KeyPoisoned"
    assert harness.state("Z") is ProcedureState.SUCCESS
    assert _agenda_is_empty(harness)


def test_the_same_when_the_poison_goes_with_a_parent_that_is_passed_over():
    harness = _waiting_for_a_poisoned_key(("R", {"poisons": ("k",)}))
    harness.answer("R", Suspended(state=b"s", children=(harness.new("A"), harness.new("B"))))
    harness.answer("A", Failed(error=ErrorInfo("error", "ValueError", "x"), retryable=True, after=1000.0))
    harness.handle(BypassRequested("A", 9, ancestors=True))

    _together(harness, ("C", DONE), ("B", DONE))

    assert _error_of(harness, "P") == "KeyPoisoned"
    assert harness.state("R") is ProcedureState.SUCCESS
    assert _agenda_is_empty(harness)


def test_a_parent_that_wakes_for_a_poisoned_key_fails_though_another_step_goes_straight_on():
    harness = _waiting_for_a_poisoned_key(("Z", {"poisons": ("k",)}), ("Q", {}))

    _together(harness, ("C", DONE), ("Q", ON))

    assert _error_of(harness, "P") == "KeyPoisoned"
    assert harness.inbox["Q"].token.step == 2
    assert _agenda_is_empty(harness)


def test_the_keys_of_a_parent_that_is_passed_over_are_given_on_though_another_step_goes_straight_on():
    harness = _prefetching()
    harness.submit(harness.new("P", locks=K))
    harness.answer("P", Suspended(state=b"s", children=(harness.new("A"), harness.new("B"))))
    harness.submit(harness.new("X", locks=K))
    harness.submit(harness.new("Q"))
    harness.answer("A", Failed(error=ErrorInfo("error", "ValueError", "x"), retryable=True, after=1000.0))
    harness.handle(BypassRequested("A", 9, ancestors=True))

    _together(harness, ("B", DONE), ("Q", ON))

    assert harness.state("P") is ProcedureState.SUCCESS
    assert set(harness.inbox) == {"Q", "X"}
    assert _agenda_is_empty(harness)
