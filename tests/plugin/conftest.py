"""What the tests of the plugin share."""

from __future__ import annotations

from tests.kit.fixtures import until
from tests.kit.warm_workers import warm_workers

__all__ = ["until", "warm_workers"]
