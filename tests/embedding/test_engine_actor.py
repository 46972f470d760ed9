"""The engine as an actor of a Pykka application."""

from __future__ import annotations

import os
import queue
import signal
import time

import pykka
import pytest

from actorproc import Config, ManagerStopped, ProcedureAborted, ProcedureManager, StoreInUse
from actorproc.embedding import EngineActor, EngineFailed
from tests.kit.procedures import Nap, Waits

pytestmark = pytest.mark.processes


class Supervisor(pykka.ThreadingActor):
    """Starts the engine, and another one when it fails."""

    use_daemon_thread = True

    def __init__(self, path, told):
        super().__init__()
        self.path = path
        self.told = told
        self.engine = None

    def on_start(self):
        self._start()

    def on_receive(self, message):
        if isinstance(message, EngineFailed):
            self.told.put(message)
            self._start()
        return self.engine

    def _start(self):
        config = Config(restart_limit=1, spares=0)
        self.engine = EngineActor.start(
            self.path, procedures=[Nap], workers=1, config=config, supervisor=self.actor_ref, stop_timeout=10
        )

    def on_stop(self):
        self.engine.stop()


@pytest.fixture(autouse=True)
def no_actor_is_left():
    yield
    pykka.ActorRegistry.stop_all(timeout=30)


def test_a_proxy_submits_and_asks_and_a_stop_drains(tmp_path, until):
    engine = EngineActor.start(tmp_path / "state", workers=1)
    proxy = engine.proxy()

    handle = proxy.submit(Nap(), id="nap").get(timeout=30)

    assert handle.result(30) == "rested"
    assert proxy.info("nap").get(timeout=30).state == "SUCCESS"
    assert proxy.get("nap").get(timeout=30).result(30) == "rested"
    assert proxy.health().get(timeout=30).ok
    marker = tmp_path / "began"
    running = proxy.submit(Nap(0.2, str(marker))).get(timeout=30)
    until(marker.exists)
    assert running.wait(0) is False
    engine.stop(timeout=30)
    assert running.result(0) == "rested"


def test_a_refused_call_is_the_callers_trouble_and_not_the_engines(tmp_path):
    proxy = EngineActor.start(ProcedureManager(tmp_path / "state", workers=1)).proxy()

    with pytest.raises(Exception, match="no procedure"):
        proxy.submit("nonsense").get(timeout=30)

    assert proxy.submit(Nap()).get(timeout=30).result(30) == "rested"


def test_an_engine_that_cannot_start_is_a_dead_actor_and_its_supervisor_knows_why(tmp_path, until):
    told = queue.SimpleQueue()

    class Listener(pykka.ThreadingActor):
        use_daemon_thread = True

        def on_receive(self, message):
            told.put(message)

    with ProcedureManager(tmp_path / "state", workers=1):
        engine = EngineActor.start(tmp_path / "state", workers=1, supervisor=Listener.start())
        failed = told.get(timeout=30)

    assert (failed.engine, type(failed.error)) == (engine, StoreInUse)
    until(lambda: not engine.is_alive())


def test_a_supervisor_replaces_an_engine_that_failed_and_nothing_is_lost(tmp_path, until):
    told = queue.SimpleQueue()
    supervisor = Supervisor.start(str(tmp_path / "state"), told)
    first = supervisor.ask("engine", timeout=30)
    manager = first.proxy().manager.get(timeout=30)
    assert first.proxy().submit(Nap(), id="nap").get(timeout=30).result(30) == "rested"

    worker = until(lambda: [worker for worker in manager.workers() if worker.state == "idle"])[0]
    os.kill(worker.pid, signal.SIGABRT)  # an idle death of its own, and the only slot is parked
    failed = told.get(timeout=30)

    assert failed.engine == first
    until(lambda: not first.is_alive())
    with pytest.raises(ManagerStopped):
        manager.submit(Nap())
    second = supervisor.ask("engine", timeout=30)
    assert second != first
    assert second.proxy().get("nap").get(timeout=30).result(30) == "rested"
    assert second.proxy().submit(Nap()).get(timeout=30).result(30) == "rested"


def test_stop_all_of_the_host_closes_the_engine_and_its_actor(tmp_path, until):
    engine = EngineActor.start(tmp_path / "state", workers=1)
    marker = tmp_path / "began"
    running = engine.proxy().submit(Nap(60, str(marker)), id="nap").get(timeout=30)
    until(marker.exists)
    before = time.monotonic()

    pykka.ActorRegistry.stop_all(timeout=30)

    assert time.monotonic() - before < 25
    assert not engine.is_alive()
    with pytest.raises(ManagerStopped):
        running.result(0)
    with ProcedureManager(tmp_path / "state", procedures=[Nap], workers=1) as again:
        assert again.info("nap").id == "nap"
        again.stop(drain=False, timeout=10)


def test_a_ready_manager_takes_no_options(tmp_path):
    with pytest.raises(TypeError, match="workers"):
        EngineActor.start(ProcedureManager(tmp_path / "state"), workers=2)


def test_the_other_verbs_of_a_proxy_reach_the_engine_too(tmp_path):
    engine = EngineActor.start(tmp_path / "state", workers=1)
    proxy = engine.proxy()

    first, second = proxy.submit_many([("first", Waits()), ("second", Waits())]).get(timeout=30)

    assert proxy.signal("first", "hello").get(timeout=30) is True
    assert first.result(30) == "hello"
    assert proxy.abort("second").get(timeout=30) is True
    with pytest.raises(ProcedureAborted):
        second.result(30)


def test_an_exception_of_the_hosts_own_message_fails_the_actor_and_frees_the_directory(tmp_path, until):
    class Careless(EngineActor):
        def on_receive(self, message):
            if message == "oops":
                raise RuntimeError(message)
            return super().on_receive(message)

    engine = Careless.start(tmp_path / "state", workers=1)
    engine.proxy().health().get(timeout=30)

    engine.tell("oops")

    until(lambda: not engine.is_alive())
    until(lambda: _is_free(tmp_path / "state"))


def _is_free(path):
    try:
        ProcedureManager(path, workers=1).start().stop()
    except StoreInUse:
        return False
    return True
