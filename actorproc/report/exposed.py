"""Values that a procedure shows of itself (`Context.expose`), decoded without the classes of its program."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from actorproc.errors import ValueNotDecodable
from actorproc.model.rows.records import ExposedRecord
from actorproc.procedure.values.codec import PLAIN
from actorproc.procedure.values.redaction import redacted
from actorproc.procedure.values.secrets.secret import HIDDEN
from actorproc.procedure.values.viewing import ShownValue, viewed

__all__ = ["ExposedValues"]


class ExposedValues(dict[str, Any]):
    """Values by key. Secrets are asterisks, an object is the mapping of its fields, a member of an enum its name.

    A value that cannot be read without its classes is a text that says what it is.

    Args:
        records: The stored values. Default: none.
    """

    __slots__ = ("_stored",)

    def __init__(self, records: Iterable[ExposedRecord] = ()) -> None:
        self._stored = {record.key: record.value for record in records}
        super().__init__({key: _decoded(value) for key, value in self._stored.items()})

    def shown(self) -> dict[str, ShownValue]:
        """The values as trees for people, with the names of their types."""
        return {key: viewed(value) for key, value in self._stored.items()}

    def to_plain(self) -> dict[str, Any]:
        """Plain data that JSON can hold."""
        return {key: value.plain() for key, value in self.shown().items()}


def _decoded(data: bytes) -> Any:
    try:
        return PLAIN.decode_plain(redacted(data, HIDDEN))[0]
    except ValueNotDecodable:
        return viewed(data).inline()
