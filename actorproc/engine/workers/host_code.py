"""Code on hosts: the types of which each has other code than the manager, so that it runs no step of them.

A host names the digests of the files of its types when it joins. It did not name all, and the manager's own files may
change. So a worker compares the file of the class that it has imported as well, and gives a step back unbegun.
Revisions of the user (`Config.code`) decide in place of the files where both have one. Classes that travel by value,
or that come from no file, are the manager's own on every host.
"""

from __future__ import annotations

import msgspec

from actorproc.engine.runtime.type_table import TypeTable
from actorproc.model.messages.definitions import Definition
from actorproc.model.messages.events import HostAdded
from actorproc.workers.base import HostJoined

__all__ = ["HostCode"]


class HostCode:
    """Hosts and their code. Needs the manager's turn (`CombiningInbox`).

    Args:
        types: Types that the manager knows.
        revision: Revision of its code as the user names it; "": none.
    """

    def __init__(self, types: TypeTable, revision: str) -> None:
        self._types = types
        self._revision = revision
        self._hosts: dict[int, HostJoined] = {}
        self._other: dict[int, set[str]] = {}
        """Types of which a host has other code, by its number."""
        self._digests = {one.meta.type_name: one.digest for one in types.all()}
        """Digests of the manager's files, by type."""

    def joined(self, host: HostJoined) -> HostAdded:
        """A host has come; what the core is told of it."""
        self._hosts[host.host] = host
        self._other[host.host] = {one.meta.type_name for one in self._types.all() if self._is_other(host, one)}
        return self._event(host.host)

    def left(self, number: int) -> None:
        """A host is gone."""
        self._hosts.pop(number, None)
        self._other.pop(number, None)

    def returned(self, number: int, type_name: str) -> HostAdded | None:
        """A worker of this host has other code of this type; what the core is told, None: nothing is new."""
        if number not in self._hosts or type_name in self._other[number]:
            return None
        self._other[number].add(type_name)
        return self._event(number)

    def registered(self, definition: Definition) -> list[HostAdded]:
        """A type is known now, or anew, maybe with another file; what the core is told of hosts."""
        name, events = definition.meta.type_name, []
        was, self._digests[name] = self._digests.get(name), definition.digest
        for number, host in self._hosts.items():
            if was == definition.digest and not self._is_named(host):
                continue
            # What a host said of its files was said before the manager's own changed: then its workers tell.
            is_known = was is None or self._is_named(host)
            is_other = is_known and self._is_other(host, definition)
            if is_other is not (name in self._other[number]):
                self._other[number] ^= {name}
                events.append(self._event(number))
        return events

    def sent_to(self, number: int, definition: Definition) -> Definition:
        """The definition as a worker of this host gets it: without the digest where nothing is to be compared."""
        host = self._hosts.get(number)
        if not definition.digest or (host is not None and not self._is_named(host)):
            return definition
        return msgspec.structs.replace(definition, digest="")

    def by_host(self) -> dict[str, tuple[str, ...]]:
        """Types of which each host has other code, by the host's name."""
        return {self._hosts[number].name: tuple(sorted(types)) for number, types in self._other.items()}

    def _is_named(self, host: HostJoined) -> bool:
        """Both have a revision: no files are compared."""
        return bool(self._revision and host.code)

    def _is_other(self, host: HostJoined, definition: Definition) -> bool:
        if definition.module is None:
            return False
        if self._is_named(host):
            return self._revision != host.code
        own, theirs = definition.digest, host.digests.get(definition.meta.type_name, "")
        return bool(own and theirs) and own != theirs

    def _event(self, number: int) -> HostAdded:
        host = self._hosts[number]
        return HostAdded(host.name, host.labels, host.resources, tuple(sorted(self._other[number])))
