"""Player of one history: turn by turn until nothing is left to do, while its host may die in each."""

from __future__ import annotations

from actorproc.testing.histories.evidence import Violation
from tests.simulator.core_sim.histories import History
from tests.simulator.core_sim.world import HostCrash, World

__all__ = ["Player"]


class Player:
    """Plays and judges the history of one world. Subclasses say what a turn is."""

    MAX_TURNS: int
    """A history that needs more turns than this is taken to be stuck."""

    def __init__(self, seed: int, world: World) -> None:
        self.seed = seed
        self.world = world

    def run(self) -> History:
        """Play the history to its end and judge it."""
        for _ in range(self.MAX_TURNS):
            try:
                if not self._turn():
                    break
            except HostCrash:
                self._host_died()
        else:
            self.world.violate(15, f"still busy after {self.MAX_TURNS} turns")
        self._judge()
        return self.history()

    def outcome(self) -> History:
        """As `run`. An exception is a violation too (number 0), with the place it came from."""
        try:
            return self.run()
        except Exception as error:  # noqa: BLE001 - recorded as the history's outcome, with its seed
            self.world.violations.append(_raised(error))
            return self.history()

    def history(self) -> History:
        """History as far as it has come."""
        world = self.world
        return History(self.seed, world.violations, world.plan.effective, world.journal, world.scenario.steps)

    def _turn(self) -> bool:
        """Make one of the possible moves, drawn by chance; False when the history is over."""
        raise NotImplementedError

    def _host_died(self) -> None:
        """Another one starts."""
        raise NotImplementedError

    def _judge(self) -> None:
        """All is over: was every promise kept?"""
        raise NotImplementedError


def _raised(error: Exception) -> Violation:
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    where = "" if place is None else f" at {place.tb_frame.f_code.co_filename}:{place.tb_lineno}"
    return Violation(0, f"raised {type(error).__name__}: {error}{where}")
