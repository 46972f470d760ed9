"""Backoff: how long until the next attempt. Jitter is a function of the step, so a replay decides alike."""

from __future__ import annotations

import sys
import zlib

from actorproc.model.policies import Backoff

__all__ = ["delay", "is_exhausted"]


def delay(policy: Backoff, *, procedure: str, step: int, errors: int) -> float:
    """Seconds to wait before the attempt after error number `errors` (1 for the first).

    ``base * factor ** (errors - 1)``, capped, then lengthened by up to ``jitter`` of itself.
    """
    try:
        pause = min(policy.base * policy.factor ** (errors - 1), policy.cap)
    except OverflowError:  # beyond any float, and so beyond the cap
        pause = policy.cap if policy.base else 0.0
    spread = zlib.crc32(f"{procedure}\0{step}\0{errors}".encode()) / 0xFFFFFFFF
    return min(pause * (1.0 + policy.jitter * spread), sys.float_info.max)


def is_exhausted(policy: Backoff, *, errors: int, first_error_at: float, now: float) -> bool:
    """True if the budget is spent after `errors` failed attempts, the first of them at `first_error_at`."""
    if errors >= policy.max_attempts:
        return True
    return policy.max_elapsed is not None and now - first_error_at >= policy.max_elapsed
