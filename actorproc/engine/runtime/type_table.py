"""Table of procedure types, and of where workers find each of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from actorproc.model.messages.definitions import Definition
from actorproc.model.policies import TypeMeta

__all__ = ["TypeTable"]


class TypeTable:
    """Definitions by type name. The revision of a name grows when its definition changes."""

    def __init__(self, own: Iterable[Definition] = ()) -> None:
        """`own` are those of the host."""
        self._definitions: dict[str, Definition] = {}
        self._own: set[str] = set()
        """Names this program registered itself."""
        self._age: dict[str, int] = {}
        """Counts what was told here; a class that came with a step of another one is as old as that."""
        self._told = 0
        for definition in own:
            self.put(definition)

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
        self._told += 1
        self._age[name] = self._told
        return True

    def learn(self, definition: Definition, parent: str) -> bool:
        """Keep a definition that a worker brought with a step of `parent`, for a name that was not registered.

        One of a later edition of a script or notebook replaces the earlier one: its parent was told of after that.
        """
        name = definition.meta.type_name
        if name in self._definitions and not self._is_later_edition(definition, parent):
            return False
        learned = self._put(definition)
        self._age[name] = self._age.get(parent, 0)
        return learned

    def _is_later_edition(self, definition: Definition, parent: str) -> bool:
        name = definition.meta.type_name
        by = self._definitions.get(parent)
        if by is None or name in self._own or definition.pickled is None:
            return False
        # The worker may have run the step of a parent that is replaced since.
        return by.revision == definition.revision and self._age[parent] > self._age[name]

    def take(self, definition: Definition) -> bool:
        """Keep a definition of a client, unless this program has its own; it replaces what another client brought."""
        # The file of a client says nothing about the one that this machine has.
        return definition.meta.type_name not in self._own and self._put(msgspec.structs.replace(definition, digest=""))

    def all(self) -> tuple[Definition, ...]:
        """The newest definition of each name."""
        return tuple(self._definitions.values())

    def get(self, type_name: str) -> Definition | None:
        """The newest definition of this name."""
        return self._definitions.get(type_name)

    def metas(self) -> Iterator[TypeMeta]:
        """Traits of each type, for the core."""
        return (definition.meta for definition in self._definitions.values())
