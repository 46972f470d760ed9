"""The live procedures of a worker, and the loop that runs their steps."""

from __future__ import annotations

from actorproc.procedure.context import StopStep
from actorproc.workers.child.actor import ProcedureActor
from actorproc.workers.child.desk import Desk
from actorproc.workers.child.dispatcher import Dispatcher

__all__ = ["Roster"]


class Roster:
    """Actors by procedure id, the least recently used first; at most `warm_limit` of them outlive their step."""

    def __init__(self, desk: Desk, warm_limit: int) -> None:
        self._desk = desk
        self._warm_limit = warm_limit
        self._dispatcher = Dispatcher(passing=(StopStep,))
        self._actors: dict[str, ProcedureActor] = {}

    def serve(self) -> None:
        """Run steps on this thread until the worker is to stop. Raises `StopStep`, and what broke the machinery."""
        desk, dispatcher = self._desk, self._dispatcher
        while (run := desk.take()) is not None:
            self._actor_of(run.token.procedure).actor_ref.tell(run)
            dispatcher.run()
            if desk.broken is not None:
                raise desk.broken
            desk.finished(run)
            self._passivate()
            desk.guard.restore()

    def _actor_of(self, procedure: str) -> ProcedureActor:
        """The live actor, now the most recently used."""
        actor = self._actors.pop(procedure, None)
        if actor is None or actor.actor_stopped.is_set():
            actor = ProcedureActor.create(self._dispatcher, self._desk, procedure)
        self._actors[procedure] = actor
        return actor

    def _passivate(self) -> None:
        """Forget the actor that has just stopped, and the least recently used ones beyond the limit."""
        actors = self._actors
        newest = next(reversed(actors))
        if actors[newest].actor_stopped.is_set():
            del actors[newest]
        while len(actors) > self._warm_limit:
            actors.pop(next(iter(actors))).stop()
        self._dispatcher.run()
