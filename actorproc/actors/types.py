"""Where workers find each procedure type."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from actorproc.model.definitions import Definition
from actorproc.model.policies import TypeMeta

__all__ = ["TypeTable"]


class TypeTable:
    """Definitions by type name. The revision of a name grows when its definition changes."""

    def __init__(self) -> None:
        self._definitions: dict[str, Definition] = {}
        self._own: set[str] = set()
        """Names this program registered itself."""

    def put(self, definition: Definition) -> bool:
        """Keep a definition of the host, which replaces an earlier one; False when nothing changed."""
        self._own.add(definition.meta.type_name)
        return self._put(definition)

    def _put(self, definition: Definition) -> bool:
        name = definition.meta.type_name
        old = self._definitions.get(name)
        revision = old.revision if old is not None else 0
        if old is not None and msgspec.structs.replace(definition, revision=revision) == old:
            return False
        self._definitions[name] = msgspec.structs.replace(definition, revision=revision + 1)
        return True

    def learn(self, definition: Definition) -> bool:
        """Keep a definition a worker brought, unless the name is known: the host's own word comes first."""
        return definition.meta.type_name not in self._definitions and self._put(definition)

    def take(self, definition: Definition) -> bool:
        """Keep a definition of a client, unless this program has its own; it replaces what another client brought."""
        return definition.meta.type_name not in self._own and self._put(definition)

    def get(self, type_name: str) -> Definition | None:
        """The newest definition of this name."""
        return self._definitions.get(type_name)

    def metas(self) -> Iterator[TypeMeta]:
        """What the core must know of each type."""
        return (definition.meta for definition in self._definitions.values())
