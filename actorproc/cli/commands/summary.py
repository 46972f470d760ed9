"""Figures of ``status``: one pass over the procedures that have not ended, and the live manager's own."""

from __future__ import annotations

import argparse
import contextlib
from typing import Any

from actorproc.cli.select.common import directory, home

__all__ = ["status_of"]

_NAMED = 10


def status_of(options: argparse.Namespace) -> dict[str, Any]:
    """The status as plain data; moments as epoch seconds."""
    from actorproc.core.state.phases import seen_in_store
    from actorproc.model.plain import plain_dict
    from actorproc.model.states import TERMINAL, Phase, ProcedureState

    with home(options).reader() as store:
        owner = store.owner()
        size = store.size()
        phases: dict[str, int] = {}
        types: dict[str, int] = {}
        oldest: dict[str, Any] | None = None
        stuck: list[str] = []
        for state in (state for state in ProcedureState if state not in TERMINAL):
            for head in store.scan(state=state, skip_damaged=True):
                phase, _ = seen_in_store(head, is_owned=owner is not None)
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
        kept = store.kept_signals()
        found = {
            "path": str(store.path),
            "store_id": store.store_id,
            "epoch": store.epoch,
            "owner": None if owner is None else {"pid": owner.pid, "host": owner.host},
            "paused": store.paused,
            "states": {str(state): count for state, count in store.count_states().items()},
            "phases": phases,
            "types": types,
            "oldest": oldest,
            "stuck": stuck,
            "locks": len(store.locks()),
            "lock_waiting": phases.get(str(Phase.LOCKED_OUT), 0),
            "poisons": [poison.path for poison in store.poisons()],
            "signals": len(kept),
            "oldest_signal_at": min((signal.at for signal in kept), default=None),
            "procedures": size.procedures,
            "steps": size.steps,
            "file_bytes": size.file,
            "used_bytes": size.used,
            "health": None,
        }
    if owner is not None:
        from actorproc.api.client import ProcedureClient
        from actorproc.errors import ActorprocError

        with contextlib.suppress(ActorprocError), ProcedureClient(directory(options), patience=2.0) as client:
            health = client.health()
            found["health"] = plain_dict(health) if health.status != "stopped" else None
    return found
