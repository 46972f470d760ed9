"""The dashboard below /ops of a FastAPI application, behind the login that the application has.

    pip install fastapi uvicorn 'actorproc[web]'
    uvicorn app:app --timeout-graceful-shutdown 3

The limit lets the server stop while browsers hold live streams open.
"""

import hashlib
import hmac
import os
import secrets
from contextlib import asynccontextmanager

from fastapi import FastAPI, HTTPException, Response

from actorproc import ProcedureManager, Saga, step
from actorproc.web import create_app

SECRET = os.environ.get("SECRET", secrets.token_hex()).encode()
PEOPLE = {"ada": {"look", "kill", "abort", "retry"}, "guest": {"look"}}
"""Verbs that each user may do."""


class Report(Saga):
    numbers: list[int]

    @step
    def order(self, ctx):
        self.numbers.sort()
        return self.numbers


manager = ProcedureManager(os.environ.get("STATE", "state"), procedures=[Report], workers=1)


def signed(name):
    return f"{name}.{hmac.new(SECRET, name.encode(), hashlib.sha256).hexdigest()}"


def authorize(request, verb, id):
    """The name of the user, for the audit; None: refused."""
    given = request.cookies.get("login", "")
    name = given.partition(".")[0]
    return name if hmac.compare_digest(given, signed(name)) and verb in PEOPLE.get(name, ()) else None


pages = create_app(manager, authorize=authorize)


@asynccontextmanager
async def lifespan(app):
    # The page lets go of the store before the engine stops. Streams end before, by the limit of the server.
    async with manager, pages.running():
        yield


app = FastAPI(lifespan=lifespan)
app.mount("/ops", pages)


@app.post("/login/{name}")
def login(name: str, response: Response):
    if name not in PEOPLE:  # a real one asks for a password
        raise HTTPException(403)
    response.set_cookie("login", signed(name), httponly=True, samesite="strict")
    return {"name": name}


@app.post("/reports/{id}", status_code=202)
def accept(id: str, numbers: list[int]):
    return {"id": manager.submit(Report(numbers), id=id).id}
