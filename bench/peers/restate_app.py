"""The service of `restate_server.py`, where hypercorn finds it."""

from __future__ import annotations

import restate

counter = restate.Service("counter")


@counter.handler()
async def run(context: restate.Context, steps: int) -> int:
    done = 0
    while done < steps:
        done = await context.run_typed("count", count, number=done)
    return done


def count(number: int) -> int:
    return number + 1


app = restate.app([counter])
