"""The keys a procedure names: of what it locks, of what it leaves poisoned, and of the limits it counts under."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from actorproc.errors import UsageError
from actorproc.model.policies import LockKey, checked_lock_key
from actorproc.procedure.authoring.procedure import Procedure
from actorproc.procedure.declaring.submit_options import checked_limit_keys, listed_keys
from actorproc.procedure.values.members import called

__all__ = ["limit_keys_of", "lock_keys_of", "poison_keys_of"]


def lock_keys_of(procedure: Procedure, type_name: str) -> tuple[LockKey, ...]:
    """Keys of `lock_keys`, each once. Raises `UsageError` for what is no `LockKey`."""
    wanted = "LockKey values such as LockKey.write('a/b')"
    return _paths(called(procedure, "lock_keys"), f"{type_name}.lock_keys()", wanted, checked_lock_key)


def poison_keys_of(procedure: Procedure, type_name: str) -> tuple[str, ...]:
    """Keys of `poison_keys`, each once. Raises `UsageError` for what is no path of a key."""
    wanted = "key paths such as 'catalog/db/table'"
    return _paths(
        called(procedure, "poison_keys"), f"{type_name}.poison_keys()", wanted, lambda key: LockKey.write(key).path
    )


def limit_keys_of(procedure: Procedure, type_name: str) -> tuple[str, ...]:
    """Keys of `limit_keys`, each once. Raises as `checked_limit_keys`."""
    return checked_limit_keys(called(procedure, "limit_keys"), f"{type_name}.limit_keys()")


def _paths(keys: Any, source: str, wanted: str, checked: Callable[[Any], object]) -> tuple[Any, ...]:
    """The keys as `checked` gives them back, each once."""
    found: dict[Any, None] = {}
    for key in listed_keys(keys, source, wanted):
        try:
            found[checked(key)] = None
        except (TypeError, ValueError) as error:
            msg = f"{source} gives {wanted}, not {key!r:.80}: {error}"
            raise UsageError(msg) from None
    return tuple(found)
