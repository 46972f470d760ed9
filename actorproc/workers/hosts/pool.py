"""The pool of a manager that leads: workers of its own machine, and of the hosts that have joined it.

::

    launch, send, kill … ──▶ the machine of the slot: the local pool, or a session with the agent of a host
    booted, said, died … ◀── one listener for all
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from typing import Any

from actorproc.errors import UsageError
from actorproc.model.crash_report import CrashReport
from actorproc.model.ids import StepToken, WorkerId
from actorproc.model.policies import StepLimits
from actorproc.model.slots import host_of
from actorproc.workers.base import PoolEvent, PoolSettings, WorkerDied, WorkerInfo, WorkerPool
from actorproc.workers.hosts.admission import HostAdmission
from actorproc.workers.hosts.messages import (
    ForgetSpares,
    HostQuestion,
    KillOnHost,
    Launch,
    Send,
    StopOnHost,
    ToHost,
    WatchOnHost,
)
from actorproc.workers.hosts.remote_host import answers, ask_all
from actorproc.workers.protocol.frames import ToWorker
from actorproc.workers.protocol.log_entry import LogEntry

__all__ = ["HostedPool"]

_SOON = 0.5
"""Seconds that a host may take for the facts of its workers. Screens ask for them each second."""


class HostedPool(HostAdmission):
    """A `WorkerPool` over several machines.

    Args:
        local: The pool of this machine, not open yet.
        epoch: Epoch of the manager.
        settings: Settings of the manager for all workers.
        patience: Seconds of silence after which a host is lost.
        own_number: Number that this machine had as a host of an earlier leader; it is given to no other. Default: 0.
    """

    def __init__(
        self,
        local: WorkerPool,
        *,
        epoch: int,
        settings: PoolSettings,
        patience: float,
        own_number: int = 0,
    ) -> None:
        super().__init__(epoch=epoch, settings=settings, patience=patience, own_number=own_number)
        self._local = local
        self._questions = itertools.count(1)

    def open(self, sink: Callable[[PoolEvent], None]) -> None:
        """Open the pool of this machine; hosts may come from now on."""
        self._sink = sink
        self._local.open(sink)

    @property
    def ear(self) -> Any:
        """The ear at which another thread can listen to the workers of this machine; None: there is none."""
        return getattr(self._local, "ear", None)

    def launch(self, worker: WorkerId, *, replace: bool = False) -> None:
        """Start a worker on the machine of its slot. On one that is gone it is dead at once."""
        number = host_of(worker.slot)
        if number == 0:
            self._local.launch(worker, replace=replace)
            return
        host = self._hosts.get(number)
        if host is None:
            self._left_already(worker)
            return
        with host.lock:
            if host.gone:
                self._left_already(worker)
                return
            if worker in host.workers:
                msg = f"worker {worker.slot}.{worker.incarnation} lives already; give a new one the next incarnation"
                raise UsageError(msg)
            host.workers[worker] = None
            host.send(Launch(worker, replace))

    def _left_already(self, worker: WorkerId) -> None:
        report = CrashReport(kind="stopped", message="its host has left")
        self._sink(WorkerDied(worker, report, booted=False))

    def send(self, worker: WorkerId, messages: Sequence[ToWorker]) -> None:
        """Send messages to a worker."""
        if host_of(worker.slot) == 0:
            self._local.send(worker, messages)
        elif messages:
            self._tell(worker, Send(worker, list(messages)))

    def forget_spares(self) -> None:
        """End the spares of all machines."""
        self._local.forget_spares()
        for host in list(self._hosts.values()):
            host.send(ForgetSpares())

    def stop(self, worker: WorkerId) -> None:
        """Ask for an orderly end."""
        if host_of(worker.slot) == 0:
            self._local.stop(worker)
        else:
            self._tell(worker, StopOnHost(worker))

    def kill(
        self,
        worker: WorkerId,
        *,
        grace: float = 0.0,
        blamed: StepToken | None = None,
        reason: str = "",
        kind: str = "",
        ask: bool = True,
    ) -> None:
        """Have a worker killed by its machine."""
        if host_of(worker.slot) == 0:
            self._local.kill(worker, grace=grace, blamed=blamed, reason=reason, kind=kind, ask=ask)
        else:
            self._tell(worker, KillOnHost(worker, grace, blamed, reason, kind, ask))

    def watch(self, worker: WorkerId, token: StepToken, limits: StepLimits) -> None:
        """Have a running step sampled by its machine."""
        if host_of(worker.slot) == 0:
            self._local.watch(worker, token, limits)
        else:
            self._tell(worker, WatchOnHost(worker, token, limits))

    def _tell(self, worker: WorkerId, message: ToHost) -> None:
        host = self._hosts.get(host_of(worker.slot))
        if host is not None and worker in host.workers:
            host.send(message)

    # ------------------------------------------------------------ questions
    def stack(self, token: StepToken, timeout: float = 5.0) -> str:
        """The stack of a running step, from its machine; "" when that does not answer in time."""
        number = host_of(token.worker.slot)
        if number == 0:
            return self._local.stack(token, timeout)
        host = self._hosts.get(number)
        if host is None:
            return ""
        question = HostQuestion(next(self._questions), "stack", token, timeout=timeout)
        [(_, answer)] = answers([(host, question)], ask_all([(host, question)]), timeout)
        return "" if answer is None else answer.stack

    def facts(self, timeout: float = 5.0) -> dict[WorkerId, WorkerInfo]:
        """Facts of all workers; of a machine that is silent, or does not answer soon, what is known here."""
        hosts = self.hosts
        connected = [host for host in hosts if host.session.is_connected]
        asked = [(host, HostQuestion(next(self._questions), "facts")) for host in connected]
        futures = ask_all(asked)
        found = self._local.facts(timeout)
        for host in hosts:
            found.update(host.known_facts())
        for host, answer in answers(asked, futures, min(timeout, _SOON)):
            if answer is not None:
                found.update((worker, fact) for worker, fact in answer.facts if worker in host.workers)
        return found

    def logs(self, procedure: str, timeout: float = 5.0) -> list[LogEntry]:
        """Output of a procedure from all machines, oldest first; one that does not answer is named in a line."""
        asked = [(host, HostQuestion(next(self._questions), "logs", None, procedure)) for host in self.hosts]
        futures = ask_all(asked)
        found = list(self._local.logs(procedure, timeout))
        for host, answer in answers(asked, futures, timeout):
            if answer is not None:
                found += answer.logs
            else:
                text = f"host {host.name} ({host.hello.name}) did not answer: its output is not shown"
                found.append(LogEntry(at=time.time(), stream="log", text=text, level=30, logger="actorproc.host"))
        return sorted(found, key=lambda entry: entry.at)

    def close(self, timeout: float) -> None:
        """Close the pool of this machine. Hosts keep their workers, and look for the next leader."""
        self.say_farewell()
        self._local.close(timeout)
        self.end_sessions()
