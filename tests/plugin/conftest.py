"""What the tests of the plugin share."""

from __future__ import annotations

from tests.kit.fixtures import until

__all__ = ["until"]
