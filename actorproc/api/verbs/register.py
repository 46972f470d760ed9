"""Types of a manager: classes and loaders that it knows, and their code when that changes under it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from actorproc.api.verbs.base import EngineVerbs
from actorproc.errors import NotAllowed
from actorproc.procedure.authoring.function import ProcedureFunction
from actorproc.procedure.authoring.procedure import Procedure
from actorproc.procedure.runtime.probing import differences

__all__ = ["RegisterVerbs"]

_C = TypeVar("_C", bound=type | ProcedureFunction[..., Any])


class RegisterVerbs(EngineVerbs):
    """`register`, `register_loader`, and the conditions of `reload`."""

    _is_service: bool

    def register(self, procedure_class: _C) -> _C:
        """Make a class or a `procedure` function known, before or after `start`. Usable as a decorator.

        Procedures that were parked for want of it go on.

        Args:
            procedure_class: The class or function.

        Returns:
            The class or function itself.

        Raises:
            UsageError: The class cannot be run.
            DuplicateType: Another class has its type name.
        """
        self._types.register(procedure_class)
        return procedure_class

    def register_loader(self, type_name: str, loader: Callable[[Any], Procedure]) -> None:
        """Make a type known by a function that loads its states.

        It takes the place of the `load` of a class that has this name too.

        Args:
            type_name: The type name in the store.
            loader: A function that turns a stored state into a procedure; it runs in a worker.

        Raises:
            UsageError: The name is empty or no text, or the loader is no function.
            DuplicateType: Another loader is registered under this name.
        """
        self._types.register_loader(type_name, loader)

    def _check_reload(self) -> None:
        """Raise `NotAllowed` when new workers would not go together with this process."""
        changed = self._types.code.changed()
        if changed and not self._is_service:
            msg = (
                f"{', '.join(changed)} changed, and this program has loaded it as it was: what it submits would be of "
                "the old code, and what its workers run of the new. Restart the program, as start(wait=…) allows "
                "without a gap"
            )
            raise NotAllowed(msg)
        wrong = differences(self._types.known())
        if wrong:
            facts = "; ".join(wrong)
            msg = f"the manager would decide by other facts than its workers, so none was replaced: {facts}. Restart it"
            raise NotAllowed(msg)

    def _reloaded(self) -> None:
        """All workers run the new code: what was parked is tried again."""
        self._types.code.accept()
        self._types.announce_again()
