"""Tests of procedures, and of the engine: `survives_crashes`, an engine without processes, crash points, simulations.

See docs/reference/procedures/testing.md. Names are imported at first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from actorproc.testing.crashes.survival import DidNotSurvive, SurvivalReport, survives_crashes
    from actorproc.testing.deploys import DidNotSurviveDeploy, survives_deploy
    from actorproc.testing.inline import InlineManager, VirtualClock
    from actorproc.testing.points import crash_point, crashing_at
    from actorproc.testing.replays import replay_steps

__all__ = [
    "DidNotSurvive",
    "DidNotSurviveDeploy",
    "InlineManager",
    "SurvivalReport",
    "VirtualClock",
    "crash_point",
    "crashing_at",
    "replay_steps",
    "survives_crashes",
    "survives_deploy",
]

_HOMES = {
    "DidNotSurvive": "crashes.survival",
    "DidNotSurviveDeploy": "deploys",
    "InlineManager": "inline",
    "SurvivalReport": "crashes.survival",
    "VirtualClock": "inline",
    "crash_point": "points",
    "crashing_at": "points",
    "replay_steps": "replays",
    "survives_crashes": "crashes.survival",
    "survives_deploy": "deploys",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        msg = f"module 'actorproc.testing' has no attribute {name!r}"
        raise AttributeError(msg)
    from importlib import import_module  # noqa: PLC0415

    value = getattr(import_module(f"actorproc.testing.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
