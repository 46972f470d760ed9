"""Outcomes of children, as a step of their parent sees them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from actorproc.errors import RemoteError
from actorproc.model.messages.definitions import OutcomeRow
from actorproc.model.states import ProcedureState

__all__ = ["ChildOutcome", "ChildOutcomes"]


class ChildOutcome:
    """End of one child (or its state, with ``wait="any"``): ``id``, ``type_name``, ``state``, ``output``, ``error``.

    ``error`` is a `RemoteError` with the child's message and traceback text, None when it did not fail. Made by the
    engine.

    Args:
        row: The outcome as the engine tells it.
        fetch: Called for the output when that is asked for.
    """

    __slots__ = ("_fetch", "_output", "_row", "error", "id", "state", "type_name")

    def __init__(self, row: OutcomeRow, fetch: Callable[[OutcomeRow], Any]) -> None:
        self.id = row.id
        self.type_name = row.type_name
        self.state = ProcedureState(row.state)
        self.error = None if row.error is None else RemoteError(row.error, row.error_traceback)
        self._row = row
        self._fetch = fetch
        self._output: tuple[Any] | None = None

    @property
    def output(self) -> Any:
        """Value of the child's ``Status.done``; None unless it succeeded. A long one is fetched when asked for."""
        if self._output is None:
            self._output = (self._fetch(self._row) if self.state is ProcedureState.SUCCESS else None,)
        return self._output[0]

    def __repr__(self) -> str:
        return (
            f"ChildOutcome(id={self.id!r}, type_name={self.type_name!r}, state={self.state.value}, error={self.error})"
        )


class ChildOutcomes(Mapping[str, ChildOutcome]):
    """Outcomes by id in the order the step gave its children; asked for at the first look."""

    def __init__(self, load: Callable[[], list[ChildOutcome]]) -> None:
        self._load = load
        self._found: dict[str, ChildOutcome] | None = None

    def _outcomes(self) -> dict[str, ChildOutcome]:
        if self._found is None:
            self._found = {outcome.id: outcome for outcome in self._load()}
        return self._found

    def __getitem__(self, id: str) -> ChildOutcome:
        return self._outcomes()[id]

    def __iter__(self) -> Iterator[str]:
        return iter(self._outcomes())

    def __len__(self) -> int:
        return len(self._outcomes())

    def __repr__(self) -> str:
        return f"{list(self._outcomes().values())!r}"
