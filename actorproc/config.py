"""Settings of a manager that are not part of what it runs."""

from __future__ import annotations

from dataclasses import dataclass

from actorproc.workers.frames import DEFAULT_MAX_FRAME

__all__ = ["Config"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Config:
    """Settings of a `ProcedureManager`; times in seconds, sizes in bytes.

    Raises `ValueError` naming the field and the rule.
    """

    stop_timeout: float = 30.0
    """How long leaving ``with`` may take: running steps are waited for, then their workers are killed."""
    boot_timeout: float = 30.0
    """How long `start` waits for the first answer of every worker."""
    max_frame: int = DEFAULT_MAX_FRAME
    """Longest message to or from a worker; a state must fit in it."""
    max_state: int = 16 * 1024 * 1024
    """Longest dumped state that `submit` accepts."""
    spares: int = 1
    """Warm spare worker processes that make a replacement immediate; 0: none."""
    warm_limit: int = 1024
    """Live procedure objects a worker keeps between steps; beyond it the least recently used is dropped."""
    restart_limit: int = 5
    """Boot failures and idle deaths of one worker slot within `restart_period` that park the slot."""
    restart_period: float = 30.0
    max_depth: int = 64
    """Deepest nesting of sub-procedures; the step that would exceed it fails, as with the two below."""
    max_children: int = 100_000
    """Children of one procedure, over all its steps."""
    max_tree: int = 1_000_000
    """Procedures under one root, the root included."""
    commit_backoff: float = 0.1
    """First wait before a refused commit is tried again; doubles each time."""
    commit_backoff_cap: float = 10.0
    signing_key: bytes | None = None
    """Signs pickled states (``codec = "pickle"``); default: a key made once and kept in the store's directory."""

    def __post_init__(self) -> None:
        for name in ("stop_timeout", "boot_timeout", "restart_period", "commit_backoff", "commit_backoff_cap"):
            if not getattr(self, name) > 0:
                msg = f"Config.{name} is {getattr(self, name)!r}; it must be a number of seconds above 0"
                raise ValueError(msg)
        least_of = {"max_frame": 8192, "max_state": 1, "spares": 0, "warm_limit": 0, "restart_limit": 1}
        least_of |= {"max_depth": 0, "max_children": 0, "max_tree": 1}
        for name, least in least_of.items():
            if getattr(self, name) < least:
                msg = f"Config.{name} is {getattr(self, name)!r}; it must be at least {least}"
                raise ValueError(msg)
        if self.max_state > self.max_frame - 4096:
            msg = f"Config.max_state ({self.max_state}) must be at least 4096 less than max_frame ({self.max_frame})"
            raise ValueError(msg)
