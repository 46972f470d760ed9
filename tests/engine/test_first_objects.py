"""The first object of an unregistered class: it is made known while others submit, too."""

from __future__ import annotations

import signal
import threading
from dataclasses import dataclass

from actorproc import Procedure, Status
from actorproc.api import registration
from actorproc.engine.engine import EngineTree
from actorproc.engine.gateway import Gateway
from actorproc.store.home import home_of
from actorproc.testing import InlineManager


@dataclass
class New(Procedure):
    def execute(self, ctx):
        return Status.done("done")


@dataclass
class Other(Procedure):
    def execute(self, ctx):
        return Status.done("done too")


def test_a_thread_that_comes_second_does_not_overtake_the_class_that_the_first_one_makes_known(monkeypatch):
    is_there, may_go = threading.Event(), threading.Event()
    plain, ends = EngineTree.register, []

    def register(tree, definition):
        is_there.set()
        assert may_go.wait(30)
        plain(tree, definition)

    with InlineManager() as manager:
        monkeypatch.setattr(EngineTree, "register", register)
        threads = [threading.Thread(target=lambda: ends.append(manager.run(New()))) for _ in range(2)]
        threads[0].start()
        assert is_there.wait(30)
        threads[1].start()
        threads[1].join(0.2)  # time to come too early; in order, it waits for the first
        may_go.set()
        for thread in threads:
            thread.join(30)

    assert ends == ["done", "done"]


def test_a_signal_handler_may_submit_a_new_class_while_its_thread_makes_one_known(monkeypatch):
    for of_handler in (New, Other):
        plain, ends = EngineTree.register, []

        def register(tree, definition, plain=plain):
            monkeypatch.setattr(EngineTree, "register", plain)
            signal.raise_signal(signal.SIGUSR1)
            plain(tree, definition)

        with InlineManager() as manager:

            def handler(*_, manager=manager, of_handler=of_handler, ends=ends):
                ends.append(manager.submit(of_handler()))

            before = signal.signal(signal.SIGUSR1, handler)
            try:
                monkeypatch.setattr(EngineTree, "register", register)
                assert manager.run(New()) == "done"
            finally:
                signal.signal(signal.SIGUSR1, before)
            assert ends[0].result(30).startswith("done")


def test_a_signal_handler_may_wait_for_one_procedure_while_its_thread_begins_to_wait_for_another(monkeypatch):
    plain, heard = Gateway.watch_anew, []

    def watched(gateway, id, patience):
        monkeypatch.setattr(Gateway, "watch_anew", plain)
        signal.raise_signal(signal.SIGUSR1)
        return plain(gateway, id, patience)

    with InlineManager([New]) as manager:
        one, other = manager.submit(New(), delay=1000), manager.submit(New(), delay=1000)
        before = signal.signal(signal.SIGUSR1, lambda *_: other.add_done_callback(heard.append))
        try:
            monkeypatch.setattr(Gateway, "watch_anew", watched)
            one.add_done_callback(heard.append)
        finally:
            signal.signal(signal.SIGUSR1, before)
        manager.skip()
        assert [one.result(30), other.result(30)] == ["done", "done"]

    assert len(heard) == 2


def test_a_class_that_is_registered_while_a_start_takes_the_key_of_its_store_is_not_forgotten(tmp_path, monkeypatch):
    home = home_of(tmp_path)
    registered = registration.Registration(home, None)
    again = registration._registered_again

    def slow(registry, key):
        made = again(registry, key)
        late.start()
        late.join(0.2)  # time to come in between; in order, it waits
        return made

    late = threading.Thread(target=lambda: registered.register(New))
    monkeypatch.setattr(registration, "_registered_again", slow)
    monkeypatch.setattr(home, "keep_key", lambda key: (b"another key" * 3,))
    registered.definitions()
    late.join(30)

    assert [definition.meta.type_name for definition in registered.definitions()] == [f"{__name__}.New"]
