"""A Pykka application that supervises the engine as one of its actors.

    python 04_pykka_application.py

The office submits orders through the engine's proxy. Half-way the only worker crashes, more often than the
engine puts up with here; the engine fails, its supervisor starts another one, and no order is lost.
"""

import os
import signal
import sys
import time

import pykka

from actorproc import Config, ManagerStopped, Saga, step
from actorproc.embedding import EngineActor, EngineFailed


class Order(Saga):
    item: str

    @step
    def pack(self, ctx):
        pass

    @step
    def ship(self, ctx):
        return f"{self.item} shipped"


class Supervisor(pykka.ThreadingActor):
    """One for one: an engine that failed is replaced."""

    def __init__(self, directory):
        super().__init__()
        self.directory = directory

    def on_start(self):
        self.start_engine()

    def on_receive(self, message):
        if isinstance(message, EngineFailed):
            print("the engine failed and is replaced")
            self.start_engine()

    def start_engine(self):
        self.engine = EngineActor.start(
            self.directory, procedures=[Order], workers=1, config=Config(restart_limit=1, spares=0),
            supervisor=self.actor_ref,
        )  # fmt: skip

    def current(self):
        return self.engine

    def on_stop(self):
        self.engine.stop()


class Office(pykka.ThreadingActor):
    """Takes orders. An order's id makes it safe to submit it again to another engine."""

    def __init__(self, supervisor):
        super().__init__()
        self.supervisor = supervisor.proxy()

    def order(self, item):
        while True:
            try:
                engine = self.supervisor.current().get().proxy()
                return engine.submit(Order(item), id=f"order-{item}").get().result(timeout=60)
            except (ManagerStopped, pykka.ActorDeadError):
                time.sleep(0.05)  # it is being replaced


def main(directory):
    supervisor = Supervisor.start(directory)
    office = Office.start(supervisor).proxy()
    try:
        print(office.order("book").get())
        manager = supervisor.proxy().current().get().proxy().manager.get()
        for worker in manager.workers():
            os.kill(worker.pid, signal.SIGABRT)
        while manager.health().status == "running":
            time.sleep(0.01)
        print(office.order("lamp").get())
        print(office.order("book").get())  # the same order again: it was shipped in the first engine's time
    finally:
        pykka.ActorRegistry.stop_all()


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "state")
