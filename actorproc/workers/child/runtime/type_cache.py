"""The procedure classes a worker knows, found when the first step needs them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

from actorproc.procedure.encoding.state import StateRefused
from actorproc.procedure.encoding.value_codec import ValueCodec
from actorproc.procedure.runtime.class_shipping import definition_of, file_digest, resolve
from actorproc.procedure.runtime.engine_side import TypeRuntime
from actorproc.procedure.values.error_text import in_words
from actorproc.workers.protocol.frames import Definition

__all__ = ["CodeRefused", "TypeCache"]


class CodeRefused(StateRefused):
    """The class of a step comes from another file than the manager's: the step is for another host."""


class TypeCache:
    """Definitions as the host sent them, and the classes made of them.

    A class is imported or unpickled at its first use, so that one that fails refuses its own procedures only.
    """

    def __init__(self) -> None:
        self._definitions: dict[str, Definition] = {}
        self._runtimes: dict[str, tuple[Definition, TypeRuntime]] = {}
        self._told: set[type] = set()
        self._digests: dict[str, str] = {}
        """SHA-256 of the files of modules."""

    def define(self, definition: Definition) -> None:
        """The host knows this type so; a later definition of the name replaces an earlier one. Any thread."""
        name = definition.meta.type_name
        if self._definitions.get(name) != definition:  # told again: live objects of the class stay good
            self._definitions[name] = definition

    def runtime(self, type_name: str) -> TypeRuntime:
        """The class at work. Raises `StateRefused` with the reason when there is none, or `MemoryError`."""
        definition = self._definitions.get(type_name)
        if definition is None:
            msg = f"the worker was never told what {type_name!r} is"
            raise StateRefused(msg)
        known = self._runtimes.get(type_name)
        if known is not None and known[0] is definition:
            return known[1]
        try:
            runtime = resolve(definition)
            if definition.digest:
                self._compare(definition)
        except (StateRefused, MemoryError):
            raise
        except BaseException as error:  # importing runs user code; a sys.exit() in it is a refusal as well
            msg = f"{type_name} cannot be loaded in a worker: {in_words(error)}"
            raise StateRefused(msg) from error
        self._runtimes[type_name] = (definition, runtime)
        return runtime

    def is_loaded(self, type_name: str) -> bool:
        """`runtime` does not have to import anything."""
        known = self._runtimes.get(type_name)
        return known is not None and known[0] is self._definitions.get(type_name)

    def _compare(self, definition: Definition) -> None:
        """Raise `CodeRefused` where the file of the class is another one than that of the manager.

        The file is read once, when it is first asked for: what was loaded counts, not what it has become since.
        """
        module = definition.module or ""
        if module not in self._digests:
            self._digests[module] = file_digest(module)
        own = self._digests[module]
        if own and own != definition.digest:
            msg = f"{definition.meta.type_name} is of other code here than where its manager runs"
            raise CodeRefused(msg)

    def load_all(self) -> None:
        """Make the classes that are not made yet; one that fails does so again, and in words, at its first step."""
        for type_name in list(self._definitions):
            with contextlib.suppress(StateRefused, MemoryError):
                self.runtime(type_name)

    def values_of(self, type_name: str) -> ValueCodec | None:
        """The codec of a type whose class is known here; None when it is not."""
        try:
            return self.runtime(type_name).values
        except (StateRefused, MemoryError):
            return None

    def announce(self, classes: Iterable[type], like: TypeRuntime) -> tuple[Definition, ...]:
        """Definitions of the classes the host has not been told of by this worker, nor told this worker of.

        Their revision is that of the class `like`, whose step made objects of them.
        """
        news = []
        for cls in classes:
            if cls in self._told:
                continue
            runtime = TypeRuntime.of_class(cls, signing_key=like.signing_key)
            if not self._is_known(runtime):
                news.append(definition_of(runtime, like.revision))
        return tuple(news)

    def _is_known(self, found: TypeRuntime) -> bool:
        """The host has told of this class; of another edition of it only, when it was edited since in a notebook."""
        definition = self._definitions.get(found.type_name)
        if definition is None or definition.pickled is None or definition.loader:
            return definition is not None
        try:
            return self.runtime(found.type_name).procedure_class is found.procedure_class
        except (StateRefused, MemoryError):
            return True

    def told(self, classes: Iterable[type]) -> None:
        """The host has been sent what `announce` gave for these classes."""
        self._told.update(classes)
