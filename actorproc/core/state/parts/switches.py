"""Switches that keep steps from being handed out."""

from __future__ import annotations

__all__ = ["Switches"]


class Switches:
    """Part of the `EngineState`: switches that stop the handing out of steps. Only `paused` is stored."""

    def __init__(self) -> None:
        self.dispatching = True
        self.paused: str | None = None
        """Reason for which an operator paused the whole manager; None: it is not paused. Durable."""
        self.gated = False
        """Nothing is handed out until the gate is opened; not durable."""
        self.unattended = False
        """No class and no worker will come: what a class must be asked waits for the next manager. Not durable."""

    @property
    def hands_out(self) -> bool:
        """Steps may be handed out: no trouble, no pause of the whole manager, no closed gate."""
        return self.dispatching and self.paused is None and not self.gated

    def dispatch(self, *, on: bool) -> None:
        """Hand out steps, or none while there is trouble."""
        self.dispatching = on

    def pause(self, reason: str | None) -> None:
        """Pause the whole manager for this reason; None: let it go on."""
        self.paused = reason

    def gate(self, *, closed: bool) -> None:
        """Close the gate, or open it."""
        self.gated = closed

    def leave_unattended(self) -> None:
        """Only write down what operators want, for the next manager to do."""
        self.unattended = True
