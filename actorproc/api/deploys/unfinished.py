"""Figures about the procedures that have not ended, for scrapes: one pass over their heads."""

from __future__ import annotations

from itertools import islice

import msgspec

from actorproc.core.state.phases import seen_in_store
from actorproc.model.states import TERMINAL, ProcedureState
from actorproc.report.metrics import OTHER, TYPES
from actorproc.store.base import RecordStore

__all__ = ["UnfinishedFigures", "unfinished_figures"]

_MOST = 20_000
"""Heads that are looked at: of more the figures are not given, because a scrape may not cost seconds."""


class UnfinishedFigures(msgspec.Struct, frozen=True):
    """Numbers by phase, and the age of the oldest by type in seconds."""

    phases: dict[str, int]
    oldest: dict[str, float]


def unfinished_figures(store: RecordStore, now: float) -> UnfinishedFigures | None:
    """Look at all heads that have not ended; None when there are more than 20,000."""
    phases: dict[str, int] = {}
    created: dict[str, float] = {}
    left = _MOST
    for state in (state for state in ProcedureState if state not in TERMINAL):
        for head in islice(store.scan(state=state, skip_damaged=True), left + 1):
            left -= 1
            if left < 0:
                return None
            phase = str(seen_in_store(head, is_owned=True)[0])
            phases[phase] = phases.get(phase, 0) + 1
            name = head.type_name if head.type_name in created or len(created) < TYPES else OTHER
            created[name] = min(head.created_at, created.get(name, head.created_at))
    return UnfinishedFigures(phases, {name: max(0.0, now - at) for name, at in sorted(created.items())})
