"""A FastAPI application whose reports are made by procedures, and whose lifespan is the engine's.

Run it with one server process (the store has one owner):

    pip install fastapi uvicorn
    uvicorn app:app

    curl -X POST localhost:8000/reports -H 'content-type: application/json' -d '{"id": "may", "numbers": [3, 1, 2]}'
    curl localhost:8000/reports/may
    curl localhost:8000/reports/may/result

Kill the server at any moment and start it again: a report that was accepted is finished.
"""

import os
from contextlib import asynccontextmanager

from fastapi import FastAPI, HTTPException
from pydantic import BaseModel

from actorproc import ProcedureFailed, ProcedureManager, Saga, UnknownProcedure, step


class Report(Saga):
    numbers: list[int]
    ordered: list[int] | None = None

    @step
    def order(self, ctx):
        self.ordered = sorted(self.numbers)

    @step
    def summarize(self, ctx):
        if not self.ordered:
            raise ValueError("a report of no numbers")
        middle = self.ordered[len(self.ordered) // 2]
        return {"count": len(self.ordered), "middle": middle, "largest": self.ordered[-1]}


class Request(BaseModel):
    id: str
    numbers: list[int]


@asynccontextmanager
async def lifespan(app):
    # Started when the server is, in the process that serves; stopped, bounded in time, when the server is.
    async with ProcedureManager(os.environ.get("STATE", "state"), procedures=[Report], workers=2) as manager:
        app.state.manager = manager
        yield


app = FastAPI(lifespan=lifespan)


@app.post("/reports", status_code=202)
def accept(request: Request):
    # A plain function, so FastAPI runs it in a thread: it returns when the report is on disk.
    handle = app.state.manager.submit(Report(request.numbers), id=request.id)
    return {"id": handle.id}


@app.get("/reports/{id}")
def look(id: str):
    info = _found(lambda: app.state.manager.info(id))
    return {"id": info.id, "state": info.state, "phase": info.phase, "step": info.step}


@app.get("/reports/{id}/result")
async def result(id: str):
    # Waiting holds up neither the loop nor a thread.
    try:
        return await _found(lambda: app.state.manager.get(id))
    except ProcedureFailed as failure:
        raise HTTPException(500, str(failure.cause)) from failure


@app.get("/health")
def health():
    report = app.state.manager.health()
    return {"status": report.status, "problems": report.problems}


def _found(look_up):
    try:
        return look_up()
    except UnknownProcedure as unknown:
        raise HTTPException(404, str(unknown)) from unknown
