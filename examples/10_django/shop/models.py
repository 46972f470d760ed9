"""A model and, beside it, the procedure that works on it."""

from django.db import models

from actorproc import Saga, step


class Order(models.Model):
    item = models.CharField(max_length=100)
    state = models.CharField(max_length=20, default="new")

    def __str__(self):
        return f"{self.item} ({self.state})"


class Fulfil(Saga):
    order: int

    @step
    def pay(self, ctx):
        # A step may run twice: it sets what is to be, and does not add to what there is.
        Order.objects.filter(pk=self.order).update(state="paid")

    @pay.undo
    def refund(self, ctx):
        Order.objects.filter(pk=self.order).update(state="refunded")

    @step
    def ship(self, ctx):
        Order.objects.filter(pk=self.order).update(state="shipped")
        return Order.objects.get(pk=self.order).item
