"""Warm spares: kept ready, promoted into a dead worker's slot at once, and made to know the classes in use.

A spare that only has booted would still have to import the modules of the procedures it gets, and that is what takes
long. So it is told the classes that workers were given, the latest first, and loads them while it has nothing to do.
A class whose module ends or hangs a spare twice is left to the worker that runs its steps, where it is found out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial

from actorproc.support.engine_log import engine_logger
from actorproc.workers.os.process import WorkerProcess
from actorproc.workers.os.timers import PoolTimers
from actorproc.workers.pool.worker_link import WorkerLink
from actorproc.workers.protocol.frames import Define, Definition, FrameError, WarmUp, encode_frame

__all__ = ["Spares"]

logger = engine_logger("actorproc.pool")

_LAG = 0.02
"""Seconds between the use of a spare and the start of the next. The step that waits goes first, and the start of a
process holds the GIL for a moment."""
_PAUSE = 10.0
"""Seconds after a spare's death before the next one, unless a worker boots before."""
_WARM_UP_LAG = 0.3
"""Seconds before a spare loads what is new: the worker whose step needs it now does the same, and goes first."""
_WARM_UP_PATIENCE = 30.0
"""Seconds a spare has to load classes."""
_STRIKES = 2
_CLASSES = 64
"""So many classes a spare is told, those that were sent last."""


class Spares:
    """The spares of one pool. Used under the pool's lock, except `learn`.

    `start` begins the process of a link, `write` sends it a frame, `may_start` says whether this is a moment for it.
    """

    def __init__(
        self,
        *,
        wanted: int,
        max_frame: int,
        timers: PoolTimers,
        start: Callable[[WorkerLink], None],
        write: Callable[[WorkerLink, bytes], None],
        may_start: Callable[[], bool],
    ) -> None:
        self._wanted = wanted
        self._max_frame = max_frame
        self._timers = timers
        self._start = start
        self._write = write
        self._may_start = may_start
        self._links: list[WorkerLink] = []
        self._forgotten: list[WorkerLink] = []
        """Spares that are being ended and must not be taken."""
        self._is_allowed = False
        """Workers boot at all."""
        self._known: dict[str, Definition] = {}
        self._strikes: Counter[str] = Counter()

    def __iter__(self) -> Iterator[WorkerLink]:
        return iter(list(self._links))

    def __bool__(self) -> bool:
        return bool(self._links)

    # ------------------------------------------------------------------ coming and going
    def allow_soon(self) -> None:
        """A worker has booted: spares will, too."""
        self._timers.after(_LAG, self._allow)

    def _allow(self) -> None:
        self._is_allowed = True
        self.fill()

    def fill(self) -> None:
        """Start what is missing, one after the other, if this is a moment for it."""
        if self._is_allowed and len(self._links) < self._wanted and self._may_start():
            spare = WorkerLink(None, self._max_frame)
            self._links.append(spare)
            self._start(spare)
            self._timers.after(0.0, self.fill)

    def take(self) -> WorkerLink | None:
        """Any spare, to be given a name; the next is started soon."""
        there = [spare for spare in self._links if spare not in self._forgotten]
        if not there:
            return None
        best = next((spare for spare in there if spare.prepared), there[0])
        self._links.remove(best)
        self._timers.after(_LAG, self.fill)
        return best

    def take_ready(self) -> WorkerLink | None:
        """A spare that is ready to take the place of a worker in this moment."""
        for spare in self._links:
            if spare in self._forgotten:
                continue
            if spare.prepared and spare.process is not None and not spare.process.is_over():
                self._links.remove(spare)
                self._timers.after(_LAG, self.fill)
                return spare
        return None

    def forget(self) -> list[WorkerLink]:
        """Give none of these away any more: the caller ends them."""
        self._forgotten = list(self._links)
        return list(self._links)

    def is_forgotten(self, spare: WorkerLink) -> bool:
        """It was given up, so its end is no news."""
        return spare in self._forgotten

    def died(self, spare: WorkerLink) -> None:
        """Note the death of a spare, which concerns no step, and start the next one after a pause."""
        self._links.remove(spare)
        if spare in self._forgotten:
            self._forgotten.remove(spare)
            self._timers.after(0.0, self.fill)
            return
        self._is_allowed = False
        self._timers.after(_PAUSE, self._allow)

    # ------------------------------------------------------------------ warming up
    def learn(self, definition: Definition) -> bool:
        """A worker was sent this class; whether that is news. Called by those who send, one at a time."""
        known = self._known
        name = definition.meta.type_name
        if known.get(name) == definition:
            return False
        known.pop(name, None)
        known[name] = definition
        return True

    def warm_up(self) -> None:
        """There is news for spares, or a spare for the news: soon it loads what it does not know."""
        self._timers.after(_WARM_UP_LAG, self._warm_up)

    def _warm_up(self) -> None:
        for spare in self:
            if spare.prepared and spare.process is not None and not spare.process.is_over():
                self._tell(spare, spare.process)

    def _tell(self, spare: WorkerLink, process: WorkerProcess) -> None:
        latest = list(self._known.values())[-_CLASSES:]
        news = [
            definition
            for definition in latest
            if spare.told.get(definition.meta.type_name) != definition
            and self._strikes[definition.meta.type_name] < _STRIKES
        ]
        frames = [frame for definition in news if (frame := self._frame(definition))]
        spare.told |= {definition.meta.type_name: definition for definition in news}
        if not frames:
            return
        spare.prepared = False
        process.warming = tuple(definition.meta.type_name for definition in news)
        self._write(spare, b"".join(frames) + encode_frame([WarmUp()], self._max_frame))
        self._timers.after(_WARM_UP_PATIENCE, partial(self._end_if_stuck, process, process.warming))

    def _frame(self, definition: Definition) -> bytes:
        try:
            return encode_frame([Define(definition)], self._max_frame)
        except FrameError:
            return b""  # too long for a worker as well; the sender to a worker gets the error

    def blame(self, process: WorkerProcess) -> None:
        """A process died: if it was loading classes, they are suspects."""
        self._strikes.update(process.warming)

    def _end_if_stuck(self, process: WorkerProcess, names: tuple[str, ...]) -> None:
        if not process.closed and process.warming is names:
            logger.warning("a spare worker needs more than %g s to load %s", _WARM_UP_PATIENCE, ", ".join(names))
            process.kill_group()
