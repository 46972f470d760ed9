"""Target of a verb: the running manager through its socket, or the stopped store itself."""

from __future__ import annotations

import argparse
import time
from types import TracebackType
from typing import TYPE_CHECKING, TypeGuard

from actorproc.cli.output.output import complain
from actorproc.cli.select.common import PATIENCE, directory, open_client, open_reader, quiet, start_command
from actorproc.errors import ManagerStopped, StoreInUse

if TYPE_CHECKING:
    from actorproc.api.client import ProcedureClient
    from actorproc.api.reader import OwnerInfo
    from actorproc.api.stopped import StoppedStore

    Steering = ProcedureClient | StoppedStore
    """Has the verbs."""

__all__ = ["Steered", "is_stopped"]

_PAUSE = 0.02


def is_stopped(engine: Steering) -> TypeGuard[StoppedStore]:
    """No manager runs, so what has to run runs later."""
    return hasattr(engine, "has_ended")


class Steered:
    """Opens the target of a command's verbs. A context manager.

    A manager answers, or the store is taken. When one comes or goes meanwhile, what is there then is tried, with the
    patience of the beginning. A stopped store is ours alone inside the ``with``, so nothing in it may wait for people
    or pipes.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._opened: Steering | None = None
        self.is_stopped = False
        """No manager runs: what is asked is written into the store."""

    def __enter__(self) -> Steering:
        self._opened = self._open()
        return self._opened

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._opened is not None:
            self._opened.close()

    def _open(self) -> Steering:
        quiet()
        until, manager = time.monotonic() + PATIENCE, self._manager()
        while True:
            try:
                return self._own() if manager is None else self._reached()
            except (ManagerStopped, StoreInUse):
                before, manager = manager, self._manager()
                if manager != before:  # one has gone, or was quicker
                    until = time.monotonic() + PATIENCE
                elif time.monotonic() > until:
                    raise
                time.sleep(_PAUSE)

    def _manager(self) -> OwnerInfo | None:
        with open_reader(self._options) as reader:
            return reader.owner()

    def _reached(self) -> ProcedureClient:
        client = open_client(self._options)
        try:
            client._engine.reach()
        except BaseException:
            client.close()
            raise
        return client

    def _own(self) -> StoppedStore:
        from actorproc.api.stopped import StoppedStore

        if not self.is_stopped:
            complain(f"no manager runs on {directory(self._options)}: taking the stopped store")
        store = StoppedStore(directory(self._options))
        store.open()
        self.is_stopped = True
        return store

    @property
    def path(self) -> str | None:
        """The store as --path said it, for commands to type."""
        return getattr(self._options, "path", None)

    @property
    def applied(self) -> str:
        """To whom it was said, as an outcome tells it."""
        return "stopped store" if self.is_stopped else "manager"

    def tell(self) -> None:
        """Say that no manager runs, and what follows from it."""
        if self.is_stopped:
            where = f"no manager runs on {directory(self._options)}: this was applied to the stopped store"
            complain(f"{where}; what has to run runs when one starts: {start_command(self._options)}")
