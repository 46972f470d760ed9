"""The keys a procedure names: of what it locks, of what it leaves poisoned, and of the limits it counts under."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from actorproc.errors import UsageError
from actorproc.model.exact import exact_text
from actorproc.model.policies import LockKey, checked_lock_key
from actorproc.procedure.authoring.procedure import Procedure
from actorproc.procedure.values.members import called

__all__ = ["checked_limit_keys", "limit_keys_of", "lock_keys_of", "poison_keys_of"]

MAX_LIMIT_KEYS = 16
"""Limit keys of one procedure."""


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


def checked_limit_keys(keys: Any, source: str) -> tuple[str, ...]:
    """Limit keys as they are stored, each once; `source` says in an error where they came from."""
    listed = _listed(keys, source, "names such as 'smtp'")
    for key in listed:
        if not isinstance(key, str) or not 0 < len(key) <= 255 or not key.isprintable():
            msg = f"{source} gives names of 1 to 255 printable characters such as 'smtp', not {key!r:.60}"
            raise UsageError(msg)
    if len(listed) > MAX_LIMIT_KEYS:
        msg = f"{source} gives {len(listed)} keys; a procedure may have {MAX_LIMIT_KEYS}"
        raise UsageError(msg)
    return tuple(dict.fromkeys(map(exact_text, listed)))


def _paths(keys: Any, source: str, wanted: str, checked: Callable[[Any], object]) -> tuple[Any, ...]:
    """The keys as `checked` gives them back, each once."""
    found: dict[Any, None] = {}
    for key in _listed(keys, source, wanted):
        try:
            found[checked(key)] = None
        except (TypeError, ValueError) as error:
            msg = f"{source} gives {wanted}, not {key!r:.80}: {error}"
            raise UsageError(msg) from None
    return tuple(found)


def _listed(keys: Any, source: str, wanted: str) -> tuple[Any, ...]:
    """The keys one by one; a string is one of them, whatever else cannot be gone through is a mistake."""
    if isinstance(keys, str):
        return (keys,)
    if not isinstance(keys, Iterable):
        msg = f"{source} gives a list of {wanted}, not {keys!r:.80}"
        raise UsageError(msg)
    return tuple(keys)
