"""A call of any function as a procedure: what `ProcedureExecutor` submits, and the bytes it consists of.

Function, arguments, result and exception travel pickled (by cloudpickle where plain pickle does not reach). They are
signed with the key of the store, so only data of this store's own manager and workers are decoded.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
import types
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

from actorproc.errors import UsageError
from actorproc.model.messages.definitions import CALL_TYPE
from actorproc.procedure.authoring.context import Context, StopStep
from actorproc.procedure.authoring.procedure import Procedure
from actorproc.procedure.authoring.status import Status
from actorproc.procedure.declaring.policies import RetryPolicy
from actorproc.procedure.encoding.pickles import LARGE, pickled, unpicklable
from actorproc.procedure.encoding.signing import SigningKey, opened, seal
from actorproc.procedure.shipping.by_value import dumped, returned, unimportable_by_value
from actorproc.procedure.shipping.importable import is_on_path
from actorproc.procedure.shipping.origins import loads, loads_returned
from actorproc.procedure.shipping.script_globals import pin
from actorproc.procedure.values.kinds.base import SCALARS

__all__ = [
    "BROKEN_INITIALIZER",
    "NOT_STARTED",
    "Call",
    "PickledCall",
    "call_chunk",
    "pickled_call",
    "pickled_initializer",
    "unpickled_error",
    "unpickled_result",
]

PickledCall: TypeAlias = bytes | tuple[bytes, ...]
"""A long one is in parts, which are joined when it is stored."""
_LONGEST_ERROR = 256 * 1024
"""Bytes of a pickled exception that are kept: it stands in the head of its procedure. A longer one is text only."""
_prepared: dict[bytes, tuple[dict[str, Any], dict[str, Any]]] = {}
"""Initializers this worker process has run, each with its globals and what it left behind in them."""
_preparing = threading.Lock()
_CODE = (type, types.FunctionType, types.ModuleType)


class _NotStarted(UsageError):
    """The function was not called: its arguments cannot be unpickled in the worker."""


class _BrokenInitializer(UsageError):
    """The function was not called: the executor's initializer failed in the worker."""


NOT_STARTED = f"{_NotStarted.__module__}.{_NotStarted.__qualname__}"
"""`ErrorInfo.type_name` of a call whose arguments could not be read."""
BROKEN_INITIALIZER = f"{_BrokenInitializer.__module__}.{_BrokenInitializer.__qualname__}"
"""`ErrorInfo.type_name` of a call whose initializer failed."""


@dataclass(eq=False)
class Call(Procedure):
    """``function(*args, **kwargs)`` in a worker. An exception ends it at once, unless the call came with a policy.

    ``call`` is the pickled triple, followed by a `RetryPolicy` where it has one; in the worker a view of its state when
    it is long. ``setup`` is the pickled initializer with its arguments (none: empty).
    """

    type_name = CALL_TYPE
    codec = "pickle"
    retry: ClassVar[RetryPolicy] = RetryPolicy(max_attempts=1, retry_on=())

    call: PickledCall | memoryview
    setup: bytes = b""
    _engine_tail: ClassVar[str] = "call"
    _engine_ends_stateless: ClassVar[bool] = True
    _engine_is_compared: ClassVar[bool] = False

    def execute(self, ctx: Context) -> Status:
        """Call it; the output is the signed result."""
        assert not isinstance(self.call, tuple)  # it was, in the host
        prepared = _prepare(self.setup, ctx) if self.setup else None
        function, args, kwargs, *policies = _unpickled(self.call)
        if policies:
            self._engine_own_retry = policies[0]
        if prepared is not None and prepared[1]:
            _hand_over(*prepared, function)
        result = function(*args, **kwargs)
        output = seal(_pickled_value(result), f"result of {ctx.id}", self._key)
        # The work is done: its arguments are not stored a second time, and large ones need not be kept at all.
        self._engine_is_spent = len(self.call) + len(self.setup) >= LARGE
        self.call = self.setup = b""
        return Status.done(output)

    def abort(self, ctx: Context) -> bool:
        """A call that runs is not interrupted, as with any executor."""
        del ctx
        return False

    def _engine_take_key(self, key: SigningKey | None) -> None:
        self._key = key

    def _engine_pickled_failure(self, error: BaseException, procedure: str) -> bytes:
        if isinstance(error, _NotStarted | _BrokenInitializer):
            return b""
        try:
            body = returned(error)
        except StopStep:
            raise
        except BaseException:  # noqa: BLE001 - __reduce__ is user code; the text of the exception is kept anyway
            return b""
        if len(body) > _LONGEST_ERROR:
            return b""
        return seal(body, f"exception of {procedure}", self._key)


def _unpickled(call: bytes | memoryview) -> tuple[Any, ...]:
    try:
        parts: tuple[Any, ...] = loads(call)
    except StopStep:
        raise
    except BaseException as error:
        msg = f"the call's function or arguments cannot be unpickled in a worker: {type(error).__name__}: {error}"
        raise _NotStarted(msg) from error
    return parts


def _hand_over(names: dict[str, Any], left: dict[str, Any], function: Any) -> None:
    """Let a function of the initializer's module that does not share its globals see what it left there.

    They are shared, unless the worker got too many modules meanwhile, or no module has them.
    """
    for part in _unwrapped(function):
        scope = _private_globals(part)
        if scope is not None and scope is not names and scope.get("__name__") == names.get("__name__"):
            scope.update(left)


def _prepare(setup: bytes, ctx: Context) -> tuple[dict[str, Any], dict[str, Any]]:
    """Run an initializer unless this process has; its globals, and those of them that it set or refers to.

    Values that it set with ``global`` are not replaced by those that calls bring along. Its changes of the process
    stay where the workers are the executor's own.
    """
    with _preparing:
        known = _prepared.get(setup)
        if known is not None:
            return known
        try:
            initializer, args, *kept = loads(setup)
            names = next(filter(None, map(_private_globals, _unwrapped(initializer))), {})
            before = dict(names)
            with ctx._channel.keep_changes() if any(kept) else contextlib.nullcontext():
                initializer(*args)
        except StopStep:
            raise
        except BaseException as error:
            msg = f"the initializer failed: {type(error).__name__}: {error}"
            raise _BrokenInitializer(msg) from error
        was_set = {name for name, value in names.items() if name not in before or before[name] is not value}
        pin(names, was_set)
        left = {name: value for name, value in names.items() if name in was_set or not isinstance(value, _CODE)}
        _prepared[setup] = names, left
        return names, left


def _unwrapped(part: Any) -> Iterator[Any]:
    """Part that a partial is made of, the function of a chunk of calls among it; anything else is itself."""
    if isinstance(part, functools.partial):
        for inner in (part.func, *part.args):
            yield from _unwrapped(inner)
    else:
        yield part


def _private_globals(part: Any) -> dict[str, Any] | None:
    """The globals of a function that came by value; None for what came by name, and for what is no function."""
    if not hasattr(part, "__globals__"):
        part = getattr(part, "__func__", None) or vars(type(part)).get("__call__")
    scope = getattr(part, "__globals__", None)
    if not isinstance(scope, dict):
        return None
    module = sys.modules.get(scope.get("__name__", ""))
    return None if module is not None and vars(module) is scope else scope


def call_chunk(function: Callable[..., Any], chunk: Iterable[tuple[Any, ...]]) -> list[Any]:
    """The results of several calls, made in one go (``map`` with a chunksize)."""
    return [function(*args) for args in chunk]


# ---------------------------------------------------------------- to bytes, in the caller's thread
def pickled_call(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], policy: RetryPolicy | None = None
) -> PickledCall:
    """The call as bytes, a long one in parts. Raises what pickling raises, with a note that names the part."""
    try:
        if policy is not None:  # together: errors of the call are of the very classes that the policy names
            parts = (function, args, kwargs, policy)
            return _by_value(parts, (function, *args, *kwargs.values(), policy.retry_on, policy.never_on))
        return _call_as_bytes(function, args, kwargs)
    except Exception as error:
        numbered = {f"argument {number}": value for number, value in enumerate(args, 1)}
        named = {f"argument {name!r}": value for name, value in kwargs.items()}
        retry = {"the retry policy": policy} if policy is not None else {}
        part = unpicklable({"the function": function} | numbered | named | retry, dumped)
        if part is not None:
            error.add_note(f"{part} of the call cannot be pickled")
        raise


def _call_as_bytes(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> PickledCall:
    if _is_reachable(function) and all(type(value) in SCALARS for value in (*args, *kwargs.values())):
        parts = pickled((function, args, kwargs), (*args, *kwargs.values()))
        return parts[0] if len(parts) == 1 else tuple(parts)
    return _by_value((function, args, kwargs), (function, *args, *kwargs.values()))


def pickled_initializer(
    initializer: Callable[..., object] | None, args: tuple[Any, ...], *, is_kept: bool = False
) -> bytes:
    """An initializer with its arguments as bytes; none for None. ``is_kept``: what it changes of the process stays."""
    return b"" if initializer is None else _by_value((initializer, args, is_kept), (initializer, *args))


def _by_value(subject: Any, parts: Iterable[Any]) -> bytes:
    names = {name for name in _modules_of(parts) if not _is_importable(name)}
    if not names:
        return dumped(subject)
    with unimportable_by_value(names):
        return dumped(subject)


def _is_reachable(function: Any) -> bool:
    """A worker finds this very function under its name."""
    name, qualname = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    if not isinstance(name, str) or not isinstance(qualname, str) or not _is_importable(name):
        return False
    found: Any = sys.modules.get(name)
    for part in qualname.split("."):
        found = getattr(found, part, None)
    return found is function


@functools.lru_cache(maxsize=1024)
def _is_importable(name: str) -> bool:
    module = sys.modules.get(name)
    return name != "__main__" and module is not None and is_on_path(module)


def _modules_of(values: Iterable[Any], room: int = 4) -> Iterator[str]:
    """Names of the modules that these values and their near parts come from."""
    for value in values:
        if type(value) in SCALARS:
            continue
        for owner in (value, type(value)):
            name = getattr(owner, "__module__", None)
            if isinstance(name, str):
                yield name
        if room:
            yield from _modules_of(_parts_of(value), room - 1)


def _parts_of(value: Any) -> Iterable[Any]:
    if isinstance(value, functools.partial):
        return (value.func, *value.args, *value.keywords.values())
    if isinstance(value, dict):
        return [*value.keys(), *value.values()]
    if isinstance(value, list | tuple | set | frozenset):
        return value
    owner = getattr(value, "__self__", None)  # of a bound method
    return () if owner is None else (owner,)


def _pickled_value(value: Any) -> bytes | list[bytes]:
    if type(value) in SCALARS:
        return pickled(value, (value,))
    _refuse_coroutines(value if type(value) is list else [value])  # those of a chunk are a list
    return returned(value)


def _refuse_coroutines(results: list[Any]) -> None:
    found = [result for result in results if type(result) is types.CoroutineType]
    if not found:
        return
    for coroutine in found:
        coroutine.close()  # without a warning that says the same
    msg = (
        f"{found[0].__qualname__}() is 'async def', and an executor awaits nothing, so nothing of it has run; submit a "
        "plain function that calls asyncio.run(), or make it a @procedure and submit that to a ProcedureManager"
    )
    raise TypeError(msg)


# ---------------------------------------------------------------- from bytes, in the host
def unpickled_result(sealed: object, procedure: str, key: SigningKey | None) -> Any:
    """Result of the call. Raises `StateRefused` for a wrong signature, and what the unpickling raises."""
    return loads_returned(opened(sealed, f"result of {procedure}", key))


def unpickled_error(sealed: bytes, procedure: str, key: SigningKey | None) -> BaseException | None:
    """Exception of the call; None when only its text is to be had."""
    if not sealed:
        return None
    try:
        error = loads_returned(opened(sealed, f"exception of {procedure}", key))
    except BaseException:  # noqa: BLE001 - classes of exceptions do what they like when they are made again
        return None
    return error if isinstance(error, BaseException) else None
