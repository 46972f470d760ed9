"""The smallest saga: two steps, one undo. What it keeps lies in the directory `state`."""

from actorproc import ProcedureManager, Saga, step


class Order(Saga):  # a Saga is a dataclass: its fields are its persisted state
    item: str
    paid: bool = False

    @step
    def pay(self, ctx): self.paid = True
    @pay.undo
    def refund(self, ctx): self.paid = False
    @step
    def ship(self, ctx): return f"tracking-{ctx.idempotency_key}"


with ProcedureManager("state") as manager:  # a directory; starts workers, recovers what was unfinished
    print(manager.run(Order("book")))  # submit + wait for the output
