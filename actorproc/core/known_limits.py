"""The limits of a class's steps, with the answers that handing out a step asks for."""

from __future__ import annotations

import msgspec

from actorproc.model.policies import StepLimits, TypeMeta

__all__ = ["KnownLimits"]


class KnownLimits(msgspec.Struct, frozen=True, gc=False):
    """Limits with what is asked of them for every step, answered once."""

    limits: StepLimits
    is_plain: bool
    """Any worker will do, the step runs alone in it, and nothing but its time is limited."""
    meta: TypeMeta | None = None
    """The class that says so; None: the submit does."""
