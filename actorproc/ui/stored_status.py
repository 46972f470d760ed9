"""Status of a store as it is stored: one pass over the procedures that have not ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from actorproc.core.state.phases import seen_in_store
from actorproc.model.states import TERMINAL, Phase, ProcedureState
from actorproc.store.reading import ReadingStore

__all__ = ["stored_status", "unfinished_status", "unregistered_types"]

_NAMED = 10
"""Stuck procedures that are named."""


def stored_status(store: ReadingStore, unfinished: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The ``status`` as plain data; moments as epoch seconds. Facts that only a manager knows are left empty.

    Args:
        store: open for reading.
        unfinished: what `unfinished_status` found a moment ago. Default: None, it is asked now.
    """
    owner = store.owner()
    size = store.size()
    live = unfinished if unfinished is not None else unfinished_status(store)
    kept = store.kept_signals()
    return {
        "path": str(store.path),
        "store_id": store.store_id,
        "epoch": store.epoch,
        "owner": None if owner is None else {"pid": owner.pid, "host": owner.host},
        "paused": store.paused,
        "states": {str(state): count for state, count in store.count_states().items()},
        "phases": live["phases"],
        "types": live["types"],
        "oldest": live["oldest"],
        "stuck": live["stuck"],
        "unregistered": {},
        "locks": len(store.locks()),
        "lock_waiting": live["phases"].get(str(Phase.LOCKED_OUT), 0),
        "poisons": [poison.path for poison in store.poisons()],
        "signals": len(kept),
        "oldest_signal_at": min((signal.at for signal in kept), default=None),
        "procedures": size.procedures,
        "steps": size.steps,
        "file_bytes": size.file,
        "used_bytes": size.used,
        "health": None,
    }


def unfinished_status(store: ReadingStore) -> dict[str, Any]:
    """Numbers by phase and type, the oldest one and the stuck ones, of what has not ended: a look at each."""
    phases: dict[str, int] = {}
    types: dict[str, int] = {}
    oldest: dict[str, Any] | None = None
    stuck: list[str] = []
    is_owned = store.owner() is not None
    for state in (state for state in ProcedureState if state not in TERMINAL):
        for head in store.scan(state=state, skip_damaged=True):
            phase, _ = seen_in_store(head, is_owned=is_owned)
            phases[str(phase)] = phases.get(str(phase), 0) + 1
            types[head.type_name] = types.get(head.type_name, 0) + 1
            if phase is Phase.STUCK and len(stuck) < _NAMED:
                stuck.append(head.id)
            if oldest is None or head.created_at < oldest["created_at"]:
                oldest = {
                    "id": head.id,
                    "type_name": head.type_name,
                    "phase": str(phase),
                    "created_at": head.created_at,
                }
    return {"phases": phases, "types": types, "oldest": oldest, "stuck": stuck}


def unregistered_types(types: Mapping[str, int], registered: Sequence[str]) -> dict[str, int]:
    """Numbers of unfinished procedures by type, of types that a manager does not know; none when it knows none."""
    return {name: count for name, count in types.items() if name not in registered} if registered else {}
