"""One connection at the top of a module, for all processes of a web server. One of them leads, the others are clients.

    pip install fastapi uvicorn gunicorn
    uvicorn web:app --workers 2
    gunicorn -w 2 [--preload] web:wsgi

    curl -X POST localhost:8000/orders/book

When the process that leads ends, another one takes its place, and no call fails. A server recycles its processes; where
steps are long, let `actorproc run web` lead, and write connect(…, lead=False).
"""

import json
import os
from contextlib import asynccontextmanager

from actorproc import Saga, connect, step


class Order(Saga[str]):
    item: str

    @step
    def ship(self, ctx):
        return f"{self.item} shipped"


# Opens nothing: each process does at its first use, also workers that import this module, which are clients.
hub = connect(os.environ.get("STATE", "state"), procedures=[Order], workers=1)


def wsgi(environ, start_response):
    """For gunicorn, and any other WSGI server."""
    item = environ["PATH_INFO"].rpartition("/")[2]
    answer = {"says": hub.run(Order(item), timeout=60), "process": os.getpid(), "role": hub.health().role}
    start_response("200 OK", [("content-type", "application/json")])
    return [json.dumps(answer).encode()]


def make_app():
    """For uvicorn."""
    from fastapi import FastAPI  # noqa: PLC0415 - gunicorn needs none of it

    @asynccontextmanager
    async def lifespan(app):
        async with hub:  # closed in good order, so that the next process leads at once
            yield

    made = FastAPI(lifespan=lifespan)

    @made.post("/orders/{item}")
    async def accept(item: str):
        said = await hub.submit(Order(item))
        return {"says": said, "process": os.getpid(), "role": hub.health().role}

    return made


def __getattr__(name):
    if name == "app":
        return make_app()
    raise AttributeError(name)
