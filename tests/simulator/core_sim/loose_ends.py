"""Loose ends of a history: acts of its operator that bring every procedure to an end, if it can end."""

from __future__ import annotations

from collections.abc import Callable

from actorproc.model.states import TERMINAL
from tests.simulator.core_sim.world import World

__all__ = ["LooseEnds"]

_MOST_ASKED = 3
"""Registrations of what is parked; each kind of refusal strikes once, so no more are needed."""
_Act = Callable[[str], object]


class LooseEnds:
    """Finds what is still paused, parked or waiting, and has it resumed, registered or its event published."""

    def __init__(self, world: World, *, resume: _Act, register: _Act, publish: _Act) -> None:
        self._world = world
        self._resume = resume
        self._register = register
        self._publish = publish
        self._asked = 0
        """Number of times that parked classes were registered once more since none was parked."""

    def lift_pauses(self, *, of_manager: bool) -> bool:
        """Resume what is paused, and the manager (""). False when nothing is."""
        names = [head.id for head in self._world.store.scan() if head.paused is not None]
        if of_manager:
            names.append("")
        for name in names:
            self._resume(name)
        return bool(names)

    def end_open_waits(self) -> bool:
        """Register the classes that are still needed, then publish the events. False when none is needed."""
        heads = list(self._world.store.scan())
        unfinished = [head for head in heads if head.state not in TERMINAL]
        # In an undo, one that ended is parked as well.
        parked = sorted({head.type_name for head in heads if head.parked is not None})
        if parked and self._asked < _MOST_ASKED:
            self._asked += 1
            for type_name in parked:
                self._register(type_name)
            return True
        self._asked = 0
        events = sorted({head.event for head in unfinished if head.event is not None})
        for event in events:
            self._publish(event)
        return bool(events)
