"""A FastAPI application in several processes. One service owns the engine, each web process has a client of it.

    pip install fastapi uvicorn
    actorproc run orders &
    uvicorn web:app --workers 2

    curl -X POST localhost:8000/orders -H 'content-type: application/json' -d '{"id": "o-1", "item": "book"}'
    curl -X POST localhost:8000/orders/o-1/payment -H 'content-type: application/json' -d '{"payer": "Ada"}'
    curl localhost:8000/orders/o-1/result

Either side may be killed and started again: while the service is down, requests wait for it.
"""

import os
from contextlib import asynccontextmanager

from fastapi import FastAPI, HTTPException
from orders import Order
from pydantic import BaseModel

from actorproc import ProcedureClient, ProcedureFailed, UnknownProcedure


class NewOrder(BaseModel):
    id: str
    item: str


class Payment(BaseModel):
    payer: str


@asynccontextmanager
async def lifespan(app):
    # In each web process, behind the fork: a client is for the process that made it.
    with ProcedureClient(os.environ.get("STATE", "state"), procedures=[Order], patience=10) as client:
        app.state.client = client
        yield


app = FastAPI(lifespan=lifespan)


@app.post("/orders", status_code=202)
def accept(order: NewOrder):
    handle = app.state.client.submit(Order(order.item), id=order.id)
    return {"id": handle.id, "process": os.getpid()}


@app.post("/orders/{id}/payment", status_code=202)
def pay(id: str, payment: Payment):
    _found(lambda: app.state.client.info(id))
    # The event's name would be anybody's; the id is this order's. The same payment sent again counts once.
    return {"taken": app.state.client.signal(id, payment.payer, dedup="payment")}


@app.get("/orders/{id}/result")
async def result(id: str):
    try:
        return await _found(lambda: app.state.client.get(id))
    except ProcedureFailed as failure:
        raise HTTPException(500, str(failure.cause)) from failure


def _found(look_up):
    try:
        return look_up()
    except UnknownProcedure as unknown:
        raise HTTPException(404, str(unknown)) from unknown
