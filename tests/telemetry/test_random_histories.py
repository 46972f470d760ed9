"""Spans of random histories of the core: each id once, each end and each attempt told, whatever happens between."""

from __future__ import annotations

from collections import Counter

import pytest

from actorproc.model.ids import Mode
from actorproc.model.rows.writes import PutAttempt, PutProcedure, PutStep
from actorproc.model.states import TERMINAL
from actorproc.telemetry.recorder import attempts_of, traced_part
from actorproc.telemetry.spans import SpanFacts
from actorproc.telemetry.timeline import SpanTimeline, trace_of
from tests.simulator.core_sim.fake_shell import FakeShell, SimulatedBatch
from tests.simulator.core_sim.simulation import Simulation

SEEDS = 120


class _Watched:
    """Takes what one life of a host after the other settles, as the engine tells it to a recorder."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.spans: list[SpanFacts] = []
        self.settled: list[SimulatedBatch] = []
        self.lives: dict[int, SpanTimeline] = {}
        settle, restore = FakeShell._settle, FakeShell._restore

        def begin(shell, stored, workers):
            if id(shell) not in self.lives:
                self.lives[id(shell)] = SpanTimeline()
                self.shells.append(shell)
                failed = attempts_of(stored.procedures, shell.world.store.attempts)
                self.lives[id(shell)].recovered(stored.procedures, failed)
            restore(shell, stored, workers)

        def note(shell, batch):
            part = traced_part(batch.writes, batch.commands, batch.events, routine=False)
            self.settled.append(batch)
            if part is not None:
                self.spans += self.lives[id(shell)].committed(part)
            settle(shell, batch)

        self.shells: list[FakeShell] = []
        monkeypatch.setattr(FakeShell, "_settle", note)
        monkeypatch.setattr(FakeShell, "_restore", begin)

    def ends(self) -> set[tuple[str, int, int]]:
        """Procedures whose ends were settled, with the number of their generation and of their run."""
        found = set()
        for batch in self.settled:
            for write in batch.writes:
                if type(write) is PutProcedure and trace_of(write.record) is not None:
                    head = write.record
                    if head.state in TERMINAL and not head.undoing:
                        found.add((head.id, head.generation, head.run))
        return found

    def attempts(self) -> int:
        """Number of attempts that were settled with an answer, or a death that counts."""
        count = 0
        for batch in self.settled:
            traced = {
                write.record.id
                for write in batch.writes
                if type(write) is PutProcedure and trace_of(write.record) is not None
            }
            for write in batch.writes:
                if type(write) is PutAttempt:
                    count += write.record.procedure in traced and write.record.mode is not Mode.ASK_ABORT
                elif type(write) is PutStep:
                    record = write.record
                    count += record.procedure in traced and record.slot >= 0 and record.outcome != "placed"
        return count


@pytest.mark.parametrize("first", range(0, SEEDS, 30))
def test_spans_of_random_histories_are_told_once(first, monkeypatch):
    recorded = 0
    for seed in range(first, first + 30):
        with monkeypatch.context() as patched:
            watched = _Watched(patched)
            simulation = Simulation(seed, check_every=1000)
            simulation.outcome()
        if simulation.world.went_back:
            continue
        counted = Counter((span.context[:16], span.span) for span in watched.spans)
        twice = [span for span in watched.spans if counted[span.context[:16], span.span] > 1]
        assert not twice, (seed, twice[:4])
        ended = Counter(
            (
                span.attributes["actorproc.procedure.id"],
                span.attributes.get("actorproc.procedure.generation", 1),
                span.attributes["actorproc.procedure.run"],
            )
            for span in watched.spans
            if span.name.startswith("actorproc.procedure") and span.attributes["actorproc.procedure.state"] != "again"
        )
        assert set(ended) == watched.ends(), seed
        told = [
            span
            for span in watched.spans
            if span.name.split()[0] in {"actorproc.step", "actorproc.undo", "actorproc.timeout"}
        ]
        answered = [span for span in told if span.attributes.get("actorproc.crash.kind") != "lost"]
        assert len(answered) == watched.attempts(), seed
        assert all(span.start <= span.end for span in told), seed
        recorded += len(watched.spans)
    assert recorded > 300
