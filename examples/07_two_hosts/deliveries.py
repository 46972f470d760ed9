"""The procedures of both hosts, for ``actorproc run deliveries``."""

import time

from actorproc import Saga, step


class Delivery(Saga):
    """Three steps, of which any may be interrupted."""

    parcel: int
    packed: bool = False

    @step
    def pack(self, ctx):
        time.sleep(0.05)
        self.packed = True

    @step
    def drive(self, ctx):
        time.sleep(0.1)

    @step
    def hand_over(self, ctx):
        return f"parcel {self.parcel} delivered"
