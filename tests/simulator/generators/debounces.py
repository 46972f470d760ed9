"""Debounced submits of a random scenario: of few keys, by turns, and now and then one that comes once more.

Drawn from a stream of its own, and only for seeds from `FIRST_SEED` on, so that seeds that were kept before there was
any of this mean what they meant.
"""

from __future__ import annotations

from random import Random

import msgspec

from actorproc.model.rows.record_parts import TOKEN, DebounceTerms
from actorproc.model.rows.records import NewProcedure
from tests.simulator.generators.scripts import ClientAction, Scenario

__all__ = ["FIRST_SEED", "Debounces", "add_debounces"]

FIRST_SEED = 100_000_000_000
"""The first seed of a history that has them."""
_KEYS = ("k0", "k1")
_AGAIN = 3
"""Submits back, of which one comes once more; fewer than the runs of which a root knows."""


def add_debounces(scenario: Scenario, random: Random) -> Scenario:
    """The scenario with submits of two keys, mostly of one root each, among everything else."""
    actions = list(scenario.actions)
    roots = [name for name in scenario.roots if name != scenario.bystander]
    draw = random.random
    usual = {key: roots[int(draw() * len(roots))] for key in _KEYS}
    place = 0
    for _ in range(3 + int(draw() * 8)):
        key = _KEYS[int(draw() * len(_KEYS))]
        root = usual[key] if draw() < 0.85 else roots[int(draw() * len(roots))]
        within = 1 + int(draw() * 10)
        at_most = within + int(draw() * 20) if draw() < 0.5 else 0
        found = [ClientAction("debounce", (root, key, str(within), str(at_most)))]
        if draw() < 0.4:
            found = [*[ClientAction("nap", ())] * int(draw() * 4), *found]
        if draw() < 0.4:
            found += [
                *[ClientAction("nap", ())] * int(draw() * 4),
                ClientAction("debounce-again", (str(int(draw() * _AGAIN)),)),
            ]
        place = min(len(actions), place + int(draw() * 4))
        actions[place:place] = found
        place += len(found)
    return msgspec.structs.replace(scenario, actions=tuple(actions))


class Debounces:
    """Debounced submits that were made; each has a state of its own, but those with the option "same"."""

    def __init__(self) -> None:
        self._made: list[NewProcedure] = []

    def of(self, action: ClientAction, new: list[NewProcedure]) -> tuple[NewProcedure, ...]:
        """The procedure that a "debounce" or "debounce-again" submits; none where there is nothing to repeat."""
        if action.kind == "debounce-again":
            back = 1 + int(action.targets[0])
            return (self._made[-back],) if back <= len(self._made) else ()
        number = len(self._made) + 1
        _, key, within, at_most, *options = action.targets
        terms = DebounceTerms(key, float(within), float(at_most), number.to_bytes(TOKEN, "big"))
        state = b"0:%d:0" % (0 if options else 1000 * number)
        self._made.append(
            msgspec.structs.replace(
                new[0], id=f"{key}:{number}", state=state, digest=state, due_at=None, debounce=terms
            )
        )
        return (self._made[-1],)
