"""Time that passes when the history says so, and the alarm that rings then."""

from __future__ import annotations

from actorproc.engine.runtime.clock import Alarm
from tests.simulator.core_sim.world import World

__all__ = ["HeldAlarm", "SimulatedClock"]


class SimulatedClock:
    """The clocks of the engine. The wall clock is that of the world; the other one never jumps."""

    def __init__(self, world: World) -> None:
        self._world = world

    def wall(self) -> float:
        """Epoch seconds."""
        return self._world.now

    def monotonic(self) -> float:
        """Seconds since the history began."""
        return self._world.elapsed

    def go_on(self, seconds: float) -> None:
        """So much time passes."""
        self._world.elapsed += seconds
        self._world.now += seconds

    def jump(self, seconds: float) -> None:
        """Set the wall clock forward or back."""
        self._world.now += seconds


class HeldAlarm(Alarm):
    """An alarm without its thread: it rings when it is told to."""

    def earliest(self) -> tuple[float, str] | None:
        """Earliest due time, and its name; None: nothing is due."""
        return min(((when, name) for name, (when, _) in self._deadlines.items()), default=None)

    def pipeline(self, name: str) -> None:
        """This deadline has come."""
        _, pipeline = self._deadlines.pop(name)
        pipeline()
