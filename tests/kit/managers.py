"""Settings of managers whose tests need nothing special of the workers."""

from __future__ import annotations

from typing import Any

from actorproc.config import Config

__all__ = ["LIGHT"]

LIGHT: dict[str, Any] = {"config": Config(spares=0), "preload": ["tests.kit.in_workers"]}
"""No spare, and no pytest in the workers: both cost more than most tests."""
