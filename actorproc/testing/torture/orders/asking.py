"""Asks under torture: roots that wait for asks and reply to them, those who ask, and the judge of the replies.

An order ``ask`` waits for an ask of its name, and the step of the next order replies. Each attempt gives another reply,
so two executions of that step that both count show. The ids of asks are fixed, and each life sends all of them again.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from random import Random
from typing import TYPE_CHECKING, Any

from actorproc.errors import (
    ManagerBusy,
    ManagerStopped,
    OutcomeUnknown,
    ProcedureFailed,
    StorageUnavailable,
    UnknownProcedure,
)
from actorproc.procedure.authoring.context import Context
from actorproc.procedure.values.codec import PLAIN
from actorproc.testing.histories.evidence import StoreDump, Violation
from actorproc.testing.journal import JournalLine
from actorproc.testing.torture.faults import WORKER_POINTS
from actorproc.testing.torture.record import EpisodeJournal

if TYPE_CHECKING:
    from actorproc.testing.torture.orders.roots import Root

__all__ = ["ask_all", "draw_asked", "judge_asks", "reply_to_ask"]

_NAMES = ("price", "place")
_PAUSE = 0.02
"""Seconds before an ask is sent again that met a store in trouble."""
_SURPLUS = 0.25
"""Share of asked roots that are asked once more than they reply."""
_FAILING = 0.2
"""Share of asked roots that fail in the end."""
_DEADLY = 0.3
"""Share of steps of asked roots whose worker dies in them once."""


# ------------------------------------------------------------ steps
def reply_to_ask(ctx: Context) -> None:
    """Reply, if the step has to: with what was asked, and what no other attempt replies."""
    if ctx.ask_id is not None:
        ctx.reply([ctx.event, ctx.step, time.monotonic_ns()])


# ------------------------------------------------------------ plans
def draw_asked(chance: Random) -> tuple[dict[str, Any], tuple[tuple[str, str, float], ...]]:
    """A root that replies to some asks, and the asks: name, id, and when each is sent."""
    names = [chance.choice(_NAMES) for _ in range(chance.randint(1, 4))]
    orders: list[dict[str, Any]] = []
    for name in names:
        orders.append({"do": "ask", "name": name})
        if chance.random() < 0.5:
            orders.append(_between(chance))
    orders.append({"do": "fail"} if chance.random() < _FAILING else {"do": "work", "seconds": 0.005})
    for order in orders[:-1]:
        if chance.random() < _DEADLY:
            order["die"] = [f"do:{chance.choice(WORKER_POINTS)}"]
    sent = [*names, *([chance.choice(_NAMES)] if chance.random() < _SURPLUS else [])]
    asks = tuple((name, f"ask-{number}", round(chance.uniform(0.0, 0.5), 3)) for number, name in enumerate(sent))
    return {"type": "asked", "orders": orders, "keys": []}, asks


def _between(chance: Random) -> dict[str, Any]:
    if chance.random() < 0.4:
        return {"do": "flaky", "times": chance.randint(1, 2)}
    return {"do": "work", "seconds": round(chance.uniform(0.001, 0.05), 4)}


# ------------------------------------------------------------ callers
def ask_all(manager: Any, journal: EpisodeJournal, root: Root, up: float) -> None:
    """Send all asks of a root, each twice at a time, and note the answers. Returns when all have one.

    Args:
        manager: The manager.
        journal: The journal of the episode.
        root: The root, which is there.
        up: Monotonic time from which the moments of the asks count.
    """
    threads = [
        threading.Thread(target=_ask, args=(manager, journal, root.id, name, id, up + after), daemon=True)
        for name, id, after in root.asks * 2
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _ask(manager: Any, journal: EpisodeJournal, root: str, name: str, id: str, at: float) -> None:
    time.sleep(max(0.0, at - time.monotonic()))
    while True:
        try:
            answer = manager.get(root).ask(name, id, id=id)
        except (StorageUnavailable, ManagerBusy, OutcomeUnknown):
            time.sleep(_PAUSE)
            continue
        except (ManagerStopped, UnknownProcedure):
            return
        except ProcedureFailed:
            journal.note("unanswered", procedure=root, unit=f"{name} {id}")
        else:
            journal.note("answered", procedure=root, unit=f"{name} {id}", text=json.dumps(answer))
        return


# ------------------------------------------------------------ judging
def judge_asks(roots: Iterable[Root], lines: Iterable[JournalLine], dump: StoreDump) -> Iterator[Violation]:
    """Broken promises to those who ask (20): one reply to each ask, the stored one, and none missing at a success."""
    asked = {root.id: root for root in roots if root.asks}
    stored: dict[tuple[str, str], str] = {}
    for id in asked:
        for reply in (dump.replies or {}).get(id, ()):
            stored[id, f"{reply.name} {reply.ask}"] = json.dumps(PLAIN.decode(reply.value)) if reply.value else ""
    for (id, ask), text in stored.items():
        if not text or f" {json.loads(text)[0]}" != ask[ask.index(" ") :]:
            yield Violation(20, f"the reply that is stored to {ask} of {id} is {text or 'none'}")
    for line in lines:
        if line.kind in {"answered", "unanswered"} and line.procedure in dump.heads:
            known = stored.get((line.procedure, line.unit or ""))
            said = line.text if line.kind == "answered" else None
            if said != known:
                yield Violation(20, f"{line.unit} of {line.procedure} was told {said}, and stored is {known}")
    for id, root in asked.items():
        head = dump.heads.get(id)
        if head is None or head.state.value != "SUCCESS":
            continue
        wanted = Counter(order["name"] for order in root.spec["orders"] if order["do"] == "ask")
        found = Counter(ask.partition(" ")[0] for owner, ask in stored if owner == id)
        if found != wanted:
            yield Violation(20, f"{id} has succeeded with replies {dict(found)}, its orders say {dict(wanted)}")
