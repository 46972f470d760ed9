"""How much disk does a procedure take that goes on for long, and what does a round of it cost?

    python bench/long_lived.py [--rounds 10000] [--state 50000]

One procedure runs so many steps over a state of so many bytes, and makes a note of the same size in each. The size of
the file is taken at each tenth: with the step log trimmed (``keep_steps``, the default), with a generation for every
ten steps (`Status.again`), and with all records kept, for a tenth of the rounds.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common import fresh_store, options, report

from actorproc import Config, Procedure, ProcedureManager, Status

_GENERATION = 10


@dataclass
class Loop(Procedure):
    """Runs its rounds, with a new generation every so many of them (0: never)."""

    rounds: int
    every: int
    blob: bytes
    done: int = 0

    def execute(self, ctx: Any) -> Status:
        """Change the state, make a note, go on."""
        ctx.remember("note", lambda: self.blob)
        self.done += 1
        self.blob = self.done.to_bytes(8) + self.blob[8:]
        ctx.heartbeat(self.done / self.rounds)
        if self.done == self.rounds:
            return Status.done(self.done)
        return Status.again(self) if self.every and self.done % self.every == 0 else Status.executing()


def play(rounds: int, every: int, size: int, keep: int | None) -> dict[str, Any]:
    """The file after each tenth of the rounds, and the time of a round."""
    config = Config(keep_steps=keep, spares=0)
    with fresh_store() as path, ProcedureManager(path, workers=1, config=config, procedures=[Loop]) as manager:
        begun = time.perf_counter()
        handle = manager.submit(Loop(rounds, every, bytes(size)), id="loop")
        samples: list[float] = []
        while True:
            has_ended = handle.wait(0.01)
            done = rounds if has_ended else (manager.info("loop").progress or 0.0) * rounds
            while len(samples) < 10 * done / rounds:
                samples.append(Path(path, "data.mdb").stat().st_size / 2**20)
            if has_ended:
                break
        took = time.perf_counter() - begun
        assert handle.result() == rounds
        return {
            "round_ms": took / rounds * 1e3,
            "file_mib": [round(sample, 1) for sample in samples[:10]],
            "growth_second_half": samples[9] / samples[4],
            "records": len(manager.steps("loop")),
        }


def main() -> None:
    """Play the three ways."""
    given = options(__doc__, rounds=(10_000, 60), state=(50_000, 1_000))
    ways = {
        "trimmed": play(given.rounds, 0, given.state, 100),
        "generations": play(given.rounds, _GENERATION, given.state, 100),
        "all kept": play(max(20, given.rounds // 10), 0, given.state, None),
    }
    text = [
        f"{name}: {way['records']} records left, {way['round_ms']:.2f} ms a round, file in MiB {way['file_mib']}"
        for name, way in ways.items()
    ]
    report("long_lived", ways, text)


if __name__ == "__main__":
    main()
