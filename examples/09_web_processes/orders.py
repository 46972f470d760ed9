"""The procedures of a shop, and nothing of the web: `actorproc run orders` runs them."""

from actorproc import Saga, Status, step


class Order(Saga):
    item: str
    payer: str = ""

    @step
    def reserve(self, ctx):
        return Status.wait("payment", timeout=3600)

    @step
    def pay(self, ctx):
        self.payer = ctx.event

    @step
    def ship(self, ctx):
        return f"{self.item} shipped to {self.payer}"
