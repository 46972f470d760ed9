"""Source of a page: the store itself for what is stored, and its manager for what only that knows.

All methods block, and are called in threads. Reading needs no manager. One that hangs is asked seldom, so that it costs
each page a moment at most.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import msgspec

from actorproc.api.client import ProcedureClient
from actorproc.api.reader import StoreReader
from actorproc.api.stopped import StoppedStore
from actorproc.errors import ActorprocError, ManagerStopped, StoreInUse
from actorproc.report.health import Health
from actorproc.report.metrics import NO_MANAGER, Metrics
from actorproc.store.home import home_of
from actorproc.ui.command_words import command_line, path_option
from actorproc.ui.text import plain_line
from actorproc.ui.views.header import RateMeter, Rates

if TYPE_CHECKING:
    from actorproc.api.manager import ProcedureManager
    from actorproc.api.watch import Watch
    from actorproc.report.changes import ChangeDigest

__all__ = ["AppliedTo", "ManagerLook", "PageSource"]

_T = TypeVar("_T")
AppliedTo = Literal["manager", "stopped store"]
ManagerState = Literal["up", "down", "hung", "refused", "no store"]
_PATIENCE = 1.0
"""Seconds that a look waits for a manager that does not answer."""
_VERB_PATIENCE = 5.0
"""Seconds that a verb waits for one."""
_FRESH = 0.95
"""Seconds for which a look at a manager that answers counts; of another one half of that."""
_AGAIN = 1.0
"""Seconds until a manager that did not answer is asked again."""
_PAUSE = 0.02


class ManagerLook(msgspec.Struct, frozen=True, kw_only=True):
    """State of the manager at one moment."""

    state: ManagerState
    pid: int | None = None
    host: str | None = None
    says: str = ""
    """State in one sentence."""
    do: str = ""
    """Command that would help; "": nothing is to be done."""
    health: Health | None = None
    metrics: Metrics | None = None
    rates: Rates = Rates()

    @property
    def is_up(self) -> bool:
        """The manager answers."""
        return self.state == "up"


class PageSource:
    """Dashboard and verbs of all browsers. Thread-safe.

    Args:
        of: The store's directory or URL, or a manager of this process.
    """

    def __init__(self, of: str | os.PathLike[str] | ProcedureManager) -> None:
        self.manager: ProcedureManager | None = None
        if isinstance(of, str | os.PathLike):
            self._home, self.given = home_of(of), os.fsdecode(of)
        else:
            self.manager, self._home, self.given = of, of._home, of._path
        self.words = self._home.words
        self.option = path_option(self.given, self.words)
        """The store as ``--path`` has it in a command to type."""
        self._lock = threading.Lock()
        self._asking = threading.Lock()
        """Held by the one thread that asks the manager how it does."""
        self._quick: StoreReader | None = None
        self._slow: StoreReader | None = None
        self._client: ProcedureClient | None = None
        self._look = ManagerLook(state="down")
        self._looked_at = -1e9
        self._ask_at = 0.0
        self._rates = RateMeter()

    def close(self) -> None:
        """Let go of the store and of the manager."""
        self.leave()
        with self._lock:
            readers, self._quick, self._slow = (self._quick, self._slow), None, None
        for reader in readers:
            if reader is not None:
                reader.close()

    def leave(self) -> None:
        """Close the connection to the manager; calls that wait for it end. The next call opens another one."""
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            with contextlib.suppress(ActorprocError):
                client.close()

    # ------------------------------------------------------------ the store
    def read(self, ask: Callable[[StoreReader], _T], *, slow: bool = False) -> _T:
        """The answer of the store. Long passes have a reader of their own, so that short ones need not wait."""
        return ask(self._reader(slow))

    def _reader(self, slow: bool) -> StoreReader:
        with self._lock:
            found = self._slow if slow else self._quick
            if found is None:
                found = StoreReader(self.given)
                if slow:
                    self._slow = found
                else:
                    self._quick = found
            return found

    # ------------------------------------------------------------ the manager
    def look(self) -> ManagerLook:
        """State of the manager, at most a second old. Never raises what the store or the manager brings about."""
        fresh = _FRESH if self._look.is_up else _FRESH / 2
        if time.monotonic() - self._looked_at < fresh:
            return self._look
        if not self._asking.acquire(blocking=self._looked_at < 0):
            return self._look  # another thread is asking
        try:
            if time.monotonic() - self._looked_at >= fresh:
                try:
                    self._look = self._fresh_look()
                except (ActorprocError, OSError) as error:
                    self._look = ManagerLook(state="no store", says=plain_line(error))
                self._looked_at = time.monotonic()
            return self._look
        finally:
            self._asking.release()

    def _fresh_look(self) -> ManagerLook:
        reader = self._reader(slow=False)
        owner = reader.owner()
        if owner is None:
            self.leave()
            start = command_line(self.option, "run", "MODULE")
            return ManagerLook(state="down", says="no manager runs on this store", do=start)
        if self.manager is None and self._is_suspended():
            self.leave()
            says = f"process {owner.pid} has the store, and was stopped by a signal"
            return ManagerLook(state="hung", pid=owner.pid, host=owner.host, says=says, do=f"kill -CONT {owner.pid}")
        if time.monotonic() < self._ask_at:
            return self._look
        state: ManagerState = "hung"
        try:
            engine = self._engine()
            health = engine.health()
            if health.status != "stopped":
                metrics = engine.metrics()
                rates = self._rates.take(metrics)
                return ManagerLook(
                    state="up",
                    pid=owner.pid,
                    host=owner.host,
                    says=f"process {owner.pid} is {health.status}",
                    health=health,
                    metrics=metrics,
                    rates=rates,
                )
            says = f"process {owner.pid} has the store and does not answer"
        except ManagerStopped as error:
            says = plain_line(error)
        except ActorprocError as error:
            state, says = "refused", plain_line(error)
        self.leave()
        self._ask_at = time.monotonic() + _AGAIN
        return ManagerLook(state=state, pid=owner.pid, host=owner.host, says=says, do="actorproc doctor")

    def _is_suspended(self) -> bool:
        owner = self._home.owner()
        return owner is not None and self._home.is_suspended(owner)

    def live(self, ask: Callable[[Any], _T]) -> _T:
        """The answer of the manager. Raises `ManagerStopped` in words when none answers."""
        look = self.look()
        if not look.is_up:
            raise ManagerStopped(f"{look.says}{f': {look.do}' if look.do else ''}")
        return ask(self._engine())

    def exposition(self) -> str:
        """Text for Prometheus: all metrics of the manager, or that none answers."""
        with contextlib.suppress(ManagerStopped):
            found: str = self.live(lambda engine: engine.metrics(whole=True)).prometheus()
            return found
        return NO_MANAGER

    def known(self, ask: Callable[[Any], _T]) -> _T:
        """The answer of the manager, or of the store where none answers: what is stored says a lot."""
        if self.look().is_up:
            with contextlib.suppress(ManagerStopped):
                return ask(self._engine())
        return self.read(ask)

    def watch(self) -> Watch[ChangeDigest]:
        """Digests of what changes, ten a second at most. Raises `ManagerStopped`."""
        found: Watch[ChangeDigest] = self._engine().watch(digest=0.1)
        return found

    def _engine(self) -> Any:
        if self.manager is not None:
            return self.manager
        with self._lock:
            if self._client is None:
                self._client = ProcedureClient(self.given, patience=_PATIENCE)
            return self._client

    # ------------------------------------------------------------ verbs
    def steer(self, act: Callable[[Any], _T]) -> tuple[_T, AppliedTo]:
        """Do a verb: to the manager, or to the stopped store itself. Raises the refusals of the engine."""
        if self.manager is not None:
            return act(self.manager), "manager"
        look = self.look()
        if look.state in ("hung", "refused"):
            raise ManagerStopped(f"{look.says}{f': {look.do}' if look.do else ''}")
        until = time.monotonic() + _VERB_PATIENCE
        while True:
            try:
                if self._reader(slow=False).owner() is not None:
                    with ProcedureClient(self.given, patience=_VERB_PATIENCE) as client:
                        return act(client), "manager"
                with StoppedStore(self.given) as store:
                    return act(store), "stopped store"
            except (ManagerStopped, StoreInUse):  # one has gone, or was quicker, at this very moment
                if time.monotonic() > until:
                    raise
                time.sleep(_PAUSE)
