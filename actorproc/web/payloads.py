"""Values of users in answers: shown, hidden, or changed by a function of the host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import msgspec

from actorproc.report.states import StateInfo

__all__ = ["PayloadMode", "Payloads", "Redact"]

PayloadMode = Literal["shown", "hidden"]
Redact = Callable[[str, str, Any], Any]
"""Gives what is shown of a value, given the type of its procedure and its path: "fields.card.number"."""
_HIDDEN = "(hidden)"


class Payloads:
    """Visible part of states, inputs, outputs, notes and exposed values. Secrets are masked before.

    Args:
        mode: "hidden" shows none of them.
        redact: Called for each plain value. Default: None, they are shown as they are.
    """

    def __init__(self, mode: PayloadMode, redact: Redact | None = None) -> None:
        self.mode = mode
        self._redact = redact

    @property
    def are_covered(self) -> bool:
        """True if values are hidden, or replaced by others."""
        return self.mode == "hidden" or self._redact is not None

    def shown(self, type_name: str, path: str, value: Any) -> Any:
        """A value as it may be shown.

        Args:
            type_name: Type of the procedure.
            path: Name of the field of the answer.
            value: Plain data.
        """
        if value is None:
            return None
        if self.mode == "hidden":
            return _HIDDEN
        return value if self._redact is None else self._redacted(type_name, path, value)

    def _redacted(self, type_name: str, path: str, value: Any) -> Any:
        assert self._redact is not None
        if isinstance(value, dict):
            return {name: self._redacted(type_name, f"{path}.{name}", item) for name, item in value.items()}
        if isinstance(value, list):
            return [self._redacted(type_name, f"{path}[{place}]", item) for place, item in enumerate(value)]
        return self._redact(type_name, path, value)

    def compared(self, info: StateInfo) -> StateInfo:
        """A record for a comparison, its values replaced like all others. In the mode "hidden" the result hides them.

        Args:
            info: The record.
        """
        redact = self._redact
        if redact is None:
            return info

        def change(path: str, value: Any) -> Any:
            return redact(info.type_name, path, value)

        return msgspec.structs.replace(
            info,
            state=None if info.state is None else info.state.mapped("state", change),
            output=None if info.output is None else info.output.mapped("output", change),
        )

    def cover(self, body: dict[str, Any], *names: str) -> dict[str, Any]:
        """An answer whose fields of these names are shown as they may be."""
        for name in names:
            if name in body:
                value = body[name]
                if name == "exposed" and isinstance(value, dict):
                    body[name] = {key: self.shown(body["type_name"], f"exposed.{key}", v) for key, v in value.items()}
                else:
                    body[name] = self.shown(body.get("type_name", ""), name, value)
        return body
