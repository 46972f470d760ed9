"""A leader without an engine: it lets one host in, and its workers are a pool."""

from __future__ import annotations

import contextlib
import itertools
import secrets
import threading
import time

from actorproc.testing.torture.cluster.proxy import Proxy
from actorproc.workers.base import HostJoined, PoolFailed, WorkerBooted, WorkerDied, WorkerExceeded, WorkerMessages
from actorproc.workers.hosts.agent import HostAgent, HostOffer
from actorproc.workers.hosts.codec import encode_message
from actorproc.workers.hosts.handshake import HostWelcome, decode_hello
from actorproc.workers.hosts.messages import (
    BootedOnHost,
    CloseOut,
    Died,
    Draining,
    Exceeded,
    Farewell,
    ForgetSpares,
    HostAnswer,
    HostQuestion,
    KillOnHost,
    Launch,
    Left,
    Opened,
    PoolLost,
    Said,
    Send,
    StopOnHost,
    WatchOnHost,
    decode_from_host,
    lane_of,
)
from actorproc.workers.link.handshake import LinkRole
from actorproc.workers.link.listener import LinkListener, dial
from actorproc.workers.link.session import LinkSession, hear_first, say_first
from tests.kit.host_listener import certificate
from tests.kit.waiting import BOUND, wait_until

__all__ = ["Host", "PlainLeader"]

SECRET = bytes(range(32))


class PlainLeader:
    """Keeps one session; as a pool, it has the workers of the one host that came.

    Args:
        patience: As `Config.host_patience`. Default: 5.
        epoch: Its epoch. Default: 1.
        answer: Makes the reply to a hello that resumes nothing. Default: a welcome that keeps nothing.
        close_out: Close a host out that wants to leave. Default: True.
    """

    def __init__(self, *, patience=5.0, epoch=1, answer=None, close_out=True):
        self.patience, self.epoch, self.answer = patience, epoch, answer
        self.closes_out = close_out
        self.hellos = []
        self.left = threading.Event()
        self.opened = threading.Event()
        self.draining = threading.Event()
        self.session = None
        self.session_id = b""
        self._stream = None
        self.breaks = []
        self.told = []
        self._sink = None
        self._early = []
        self._questions = {}
        self._numbers = itertools.count(1)
        self._lock = threading.RLock()
        self.listener = LinkListener(
            "127.0.0.1",
            0,
            certificate=certificate(),
            secret=SECRET,
            silence=patience,
            roles=frozenset({LinkRole.HOST}),
        )
        self.closed = False
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def dial(self, port=None):
        """Connect as a host."""
        pin = certificate().current().pin
        return dial(
            "127.0.0.1",
            port or self.listener.port,
            secret=SECRET,
            pin=pin,
            role=LinkRole.HOST,
            epoch=0,
            name="here",
            within=3,
        )

    def _accept(self):
        while not self.closed:
            try:
                guest = self.listener.accept()
            except OSError:
                return
            with contextlib.suppress(OSError):
                stream = guest.admit()
                try:
                    self._let_in(stream, decode_hello(hear_first(stream, time.monotonic() + BOUND, 1 << 24)))
                finally:
                    if self.session is None or self._stream is not stream:
                        stream.close()
            if guest.peer is None:
                guest.close()

    def _let_in(self, stream, hello):
        self.hellos.append(hello)
        if self.session is not None and hello.session == self.session_id:
            welcome = HostWelcome(self.session_id, True, self.session.detach(), 1, "h1", self.epoch, self.patience)
        else:
            self.session_id = secrets.token_bytes(8)
            welcome = HostWelcome(self.session_id, False, 0, 1, "h1", self.epoch, self.patience)
            if self.answer is not None:
                welcome = self.answer(welcome, hello)
            if not isinstance(welcome, HostWelcome):
                say_first(stream, encode_message(welcome))
                return
            if self.session is not None:
                self.session.close()
            self.session = LinkSession(self._hear, self.breaks.append, silence=self.patience, name="host")
        say_first(stream, encode_message(welcome))
        self._stream = stream
        self.session.attach(stream, hello.received if welcome.resumed else 0)

    def _hear(self, data):
        message = decode_from_host(data)
        self.told.append(message)
        match message:
            case Opened():
                self._tell(HostJoined(1, message.limits, message.process_limits))
                self.opened.set()
            case BootedOnHost():
                self._tell(WorkerBooted(message.worker, message.pid))
            case Said():
                self._tell(WorkerMessages(message.worker, message.messages))
            case Died():
                self._tell(WorkerDied(message.worker, message.report, message.booted, message.successor))
            case Exceeded():
                self._tell(WorkerExceeded(message.worker, message.token, message.kind, message.why))
            case PoolLost():
                self._tell(PoolFailed(RuntimeError(message.why)))
            case HostAnswer():
                event, box = self._questions.pop(message.number)
                box.append(message)
                event.set()
            case Draining():
                self.draining.set()
                if self.closes_out:
                    self.put(CloseOut(BOUND))
            case Left():
                self.left.set()

    def _tell(self, event):
        with self._lock:
            if self._sink is None:
                self._early.append(event)
                return
            sink = self._sink
        sink(event)

    def put(self, message):
        """Send a message to the host."""
        self.session.put(lane_of(message), encode_message(message))

    def has_host(self):
        """A host has joined, and its pool is open."""
        return self.opened.is_set()

    # ------------------------------------------------------------ a pool
    def open(self, sink):
        wait_until(self.has_host)
        with self._lock:
            for event in self._early:
                sink(event)
            self._sink = sink

    def launch(self, worker, *, replace=False):
        self.put(Launch(worker, replace))

    def send(self, worker, messages):
        self.put(Send(worker, list(messages)))

    def forget_spares(self):
        self.put(ForgetSpares())

    def stop(self, worker):
        self.put(StopOnHost(worker))

    def kill(self, worker, *, grace=0.0, blamed=None, reason="", kind="", ask=True):
        self.put(KillOnHost(worker, grace, blamed, reason, kind, ask))

    def watch(self, worker, token, limits):
        self.put(WatchOnHost(worker, token, limits))

    def _ask(self, kind, timeout, **more):
        if self.closed:
            return HostAnswer(0)
        number = next(self._numbers)
        event, box = self._questions[number] = threading.Event(), []
        self.put(HostQuestion(number, kind, timeout=timeout, **more))
        return box[0] if event.wait(timeout) else HostAnswer(0)

    def stack(self, token, timeout=5.0):
        return self._ask("stack", timeout, token=token).stack

    def logs(self, procedure, timeout=5.0):
        return self._ask("logs", timeout, procedure=procedure).logs

    def facts(self, timeout=5.0):
        return dict(self._ask("facts", timeout).facts)

    def close(self, timeout):
        """Stop all workers of the host."""
        if self.session is not None and not self.left.is_set():
            self.put(CloseOut(timeout))
            self.left.wait(timeout + BOUND)
        self.vanish()

    # ------------------------------------------------------------ ends
    def farewell(self):
        """Lead no more, in order."""
        self.listener.close()
        self.put(Farewell("another one leads"))
        wait_until(lambda: not self.session.outstanding or not self.session.is_connected)
        self.vanish()

    def vanish(self):
        """Be gone, as a process that was killed."""
        self.closed = True
        self.listener.close()
        if self.session is not None:
            self.session.close()


class Host:
    """An agent on threads of this process, and a proxy between it and its leader.

    Args:
        leader: The first leader.
        make_pool: Makes its pool.
        **more: Further arguments of `HostOffer` and of the agent.
    """

    def __init__(self, leader, make_pool, *, stop_timeout=10.0, **offer):
        self.leader = leader
        self.proxy = Proxy("127.0.0.1", leader.listener.port)
        self.pools = []
        self.error = None

        def made(settings, epoch):
            self.pools.append(make_pool())
            return self.pools[-1]

        self.agent = HostAgent(
            HostOffer(name="here", version="1", workers=2, **offer),
            connect=self._connect,
            seen_epoch=lambda: 0,
            make_pool=made,
            stop_timeout=stop_timeout,
        )
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _connect(self):
        if self.leader is None:
            raise ConnectionRefusedError("no manager leads")
        return self.leader.dial(self.proxy.port)

    def _run(self):
        try:
            self.agent.run()
        except Exception as error:  # noqa: BLE001 - the test looks at it
            self.error = error

    def follow(self, leader):
        """Another one leads from now on; None: none does."""
        proxy = self.proxy
        if leader is not None:
            self.proxy = Proxy("127.0.0.1", leader.listener.port)
        self.leader = leader
        proxy.close()

    def joined(self):
        return self.thread.join(BOUND)

    def close(self):
        self.agent.stop()
        self.thread.join(BOUND)
        assert not self.thread.is_alive()
        self.proxy.close()
