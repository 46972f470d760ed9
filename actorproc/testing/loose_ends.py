"""Loose ends of a history: acts of its operator that bring every procedure to an end, if it can end."""

from __future__ import annotations

from collections.abc import Callable

from actorproc.model.states import TERMINAL
from actorproc.testing.world import World

__all__ = ["LooseEnds"]

_Act = Callable[[str], object]


class LooseEnds:
    """Finds what is still paused, parked or waiting, and has it resumed, registered or its event published."""

    def __init__(self, world: World, *, resume: _Act, register: _Act, publish: _Act) -> None:
        self._world = world
        self._resume = resume
        self._register = register
        self._publish = publish
        self._asked_again = False
        """Parked classes were registered once more, and nothing came of it yet."""

    def lift_pauses(self, *, of_manager: bool) -> bool:
        """Resume what is paused, and the manager (""). False when nothing is."""
        names = [head.id for head in self._world.store.scan() if head.paused is not None]
        if of_manager:
            names.append("")
        for name in names:
            self._resume(name)
        return bool(names)

    def end_open_waits(self) -> bool:
        """Register the classes that somebody still needs, then publish the events. False when nobody needs any."""
        heads = list(self._world.store.scan())
        unfinished = [head for head in heads if head.state not in TERMINAL]
        # In an undo, one that ended is parked as well.
        parked = sorted({head.type_name for head in heads if head.parked is not None})
        if parked and not self._asked_again:
            self._asked_again = True
            for type_name in parked:
                self._register(type_name)
            return True
        self._asked_again = False
        events = sorted({head.event for head in unfinished if head.event is not None})
        for event in events:
            self._publish(event)
        return bool(events)
