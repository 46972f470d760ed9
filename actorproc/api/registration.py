"""The types of one manager: its registry, and what the engine was told of it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, Literal, Protocol

import msgspec

from actorproc.api.deploys.code_files import CodeFiles
from actorproc.errors import UnknownType, UsageError, ValueNotDecodable
from actorproc.model.messages.definitions import Definition
from actorproc.model.rows.records import ErrorInfo
from actorproc.procedure.authoring.function import ProcedureFunction, class_behind
from actorproc.procedure.authoring.procedure import Procedure
from actorproc.procedure.encoding.signing import SigningKey
from actorproc.procedure.runtime.class_shipping import definition_of
from actorproc.procedure.runtime.engine_side import TypeRegistry, TypeRuntime, decode_value
from actorproc.procedure.values.members import option, type_name_of
from actorproc.store.home import Home

__all__ = ["Registration", "TypeListener"]

_REST_OF_FRAME = 4096
"""Bytes of a message beside what is sent by value."""


class TypeListener(Protocol):
    """A part that must know a type before it is submitted."""

    def register(self, definition: Definition) -> None:
        """A type is known, or known anew."""
        ...


class Registration:
    """Registers classes and loaders, and passes each on as a `Definition`. May be used from any thread.

    ``max_frame`` is how long a message to a worker may be, of which a class that is sent by value is the most.
    ``home`` keeps the key that signs pickled states, None when there is no such place; ``key`` is
    a key of the caller's own, or several, the newest first.
    """

    def __init__(self, home: Home | None, key: SigningKey | None, *, max_frame: int | None = None) -> None:
        self._home = home if key is None else None
        known = key or (home.keys() if home is not None and home.is_near else ())
        self._key = known or os.urandom(32)
        self._is_late = self._home is not None and not self._home.is_near
        """The keys are asked for when they are needed first: a module that makes this may be imported anywhere."""
        self._registry = TypeRegistry(signing_key=self._key)
        self._lock = threading.RLock()  # a signal handler may submit in the middle of its thread's submit
        self._announced: dict[str, TypeRuntime] = {}
        self._definitions: dict[str, Definition] = {}
        self._refused: dict[str, tuple[TypeRuntime, UsageError]] = {}
        """Types that are registered and cannot be sent to a worker, and why."""
        self._listener: TypeListener | None = None
        self._max_frame = max_frame
        self.reach: Callable[[Callable[[], SigningKey]], SigningKey] = _at_once
        """Asks the home; that of a client waits out a database that is away."""
        self.code = CodeFiles()
        """The files of what is registered."""

    @property
    def signing_key(self) -> SigningKey:
        """Key that signs and verifies what is pickled; final once the store is owned."""
        self._learn_keys()
        return self._key

    def registry(self, key: SigningKey | None) -> TypeRegistry:
        """All that is registered, in a registry of its own that verifies by this key."""
        with self._lock:
            return _registered_again(self._registry, key)

    def register(self, procedure_class: type | ProcedureFunction[..., Any]) -> None:
        """Make a class, or a function's, known, with those it `uses`."""
        with self._lock:  # not while a start puts another registry in the place of this one
            runtime = self._registry.register(procedure_class)
        self._announce(runtime, again=True)

    def register_loader(self, type_name: str, loader: Callable[[Any], Procedure]) -> None:
        """Make a type known by its loader."""
        with self._lock:  # as above
            runtime = self._registry.register_loader(type_name, loader)
        self._announce(runtime, again=True)

    def runtime_of(self, procedure: Procedure) -> TypeRuntime:
        """The runtime of an object's class, registered at need."""
        runtime = self._registry.for_object(procedure)
        self._announce(runtime)
        return runtime

    def runtime_named(self, type_name: str) -> TypeRuntime | None:
        """The runtime registered under this name; None when none is."""
        return self._registry.get(type_name)

    def decode_output(self, type_name: str, output: bytes, id: str) -> Any:
        """An output as the value it was; `id` is the procedure's.

        Raises `UnknownType` when a class must be registered for it, and `ValueNotDecodable` when its classes changed.
        """
        return self._decode("output", type_name, output, id)

    def decode_reply(self, type_name: str, reply: bytes, id: str) -> Any:
        """The reply to an ask as the value it was, as `decode_output`."""
        return self._decode("reply", type_name, reply, id)

    def _decode(self, what: Literal["output", "reply"], type_name: str, value: bytes, id: str) -> Any:
        self._learn_keys()
        runtime = self._registry.get(type_name)
        try:
            if runtime is None:
                return decode_value(value)
            return runtime.decode_output(value, id) if what == "output" else runtime.decode_reply(value, id)
        except ValueNotDecodable as error:
            if runtime is None:
                msg = (
                    f"the {what} of {id} is made of classes that are known once {type_name!r} is registered "
                    f"(procedures=[…] or register): {error}"
                )
                raise UnknownType(msg) from error
            msg = (
                f"the {what} of {id} ({type_name}) was stored by classes that have changed since: {error}. It is kept "
                "as it is: register the classes as they were (in their place, or in `uses`), and ask again"
            )
            raise ValueNotDecodable(msg) from error

    def original_of(self, error: ErrorInfo, type_name: str) -> BaseException | None:
        """The exception that a step raised, where its class is in `uses` of a registered class, first of this type."""
        if error.pickled:
            self._learn_keys()
        names = (type_name, *self._registry.names()) if error.pickled else ()
        runtimes = (self._registry.get(name) for name in names)
        return next(filter(None, (runtime.original(error.pickled) for runtime in runtimes if runtime)), None)

    def definitions(self) -> tuple[Definition, ...]:
        """All that is registered, with the key of the store. Call it once the store is owned."""
        with self._lock:
            if self._home is not None:
                known = self._key
                first = known if isinstance(known, bytes) else known[0]
                self._use(self.reach(partial(self._home.keep_key, first)))
                self._is_late = False
            self._take_in()  # what cannot be sent was told to the caller that registered it
            return tuple(self._definitions.values())

    def _learn_keys(self) -> None:
        if self._is_late and self._home is not None:
            with self._lock:
                self._use(self.reach(self._home.keys) or self._key)
                self._is_late = False

    def _use(self, key: SigningKey) -> None:
        known = self._key
        if key not in (known, (known,)):  # made, or rotated, after this one was constructed
            self._key = key
            self._registry = _registered_again(self._registry, key)
            self._announced.clear()

    def known(self) -> tuple[Definition, ...]:
        """All that was passed on."""
        with self._lock:
            return tuple(self._definitions.values())

    def announce_again(self) -> None:
        """Pass all on once more, with the files as they are now: what is parked is tried again."""
        with self._lock:
            for name, known in self._definitions.items():
                digest = self.code.digest_of(known.module)
                self._definitions[name] = msgspec.structs.replace(known, digest=digest)
        if self._listener is not None:
            for definition in self.known():
                self._listener.register(definition)

    def attach(self, listener: TypeListener) -> None:
        """Tell this listener what is registered from now on, and what was since `definitions` was read."""
        with self._lock:
            self._listener = listener
            for definition in list(self._definitions.values()):  # a signal handler may register one more
                listener.register(definition)

    # ------------------------------------------------------------ forks
    def hold(self) -> None:
        """Let no other thread be in the middle of something, so that a copy of this process finds it whole."""
        self._lock.acquire()
        self._registry.hold()

    def release(self) -> None:
        """Go on, in this process and in its copy."""
        self._registry.release()
        self._lock.release()

    def leave(self) -> None:
        """Tell the engine of another process no more."""
        self._listener = None

    def _announce(self, runtime: TypeRuntime, *, again: bool = False) -> None:
        """Pass a type on; with `again` also when it is known: what was parked for its refusal is tried once more."""
        name = runtime.type_name
        if self._announced.get(name) is not runtime:
            with self._lock:
                self._refused.pop(name, None)  # it is tried again: what it could not take along may be gone
                self._take_in()
                for refused in _with_used(runtime):
                    if refused in self._refused:
                        raise self._refused[refused][1]
        elif again and self._listener is not None:
            self._listener.register(self._definitions[name])

    def _take_in(self) -> None:
        """Look for what is new in the registry: a class brings along those it `uses`.

        A class that cannot be sent to a worker fails the call that registers or submits it; the others pass.
        """
        for name in self._registry.names():
            known = self._registry.get(name)
            if known is None or self._announced.get(name) is known:
                continue
            if name in self._refused and self._refused[name][0] is known:
                continue
            try:
                definition = definition_of(known)
                self._check_size(definition)
            except UsageError as error:
                self._refused[name] = known, error
                continue
            self._refused.pop(name, None)
            self.code.note((known.procedure_class, known.loader, *known.codec.classes))
            definition = msgspec.structs.replace(definition, digest=self.code.digest_of(definition.module))
            self._definitions[name] = definition
            if self._listener is not None:
                self._listener.register(definition)
            self._announced[name] = known  # last: who finds it there submits without waiting for the lock

    def _check_size(self, definition: Definition) -> None:
        size = len(definition.pickled or b"")
        if self._max_frame is not None and size > self._max_frame - _REST_OF_FRAME:
            msg = (
                f"{definition.meta.type_name} takes {size} bytes with all that its code refers to, more than a message "
                f"to a worker may have (Config.max_frame={self._max_frame}); load large data in the step, or in the "
                "manager's environment="
            )
            raise UsageError(msg)


def _at_once(ask: Callable[[], SigningKey]) -> SigningKey:
    return ask()


def _with_used(runtime: TypeRuntime) -> list[str]:
    """Names of a type and of all that its class `uses`."""
    names = [runtime.type_name]
    pending = [runtime.procedure_class]
    for cls in pending:  # it grows while it is read
        for used in map(class_behind, option(cls, "uses") if cls is not None else ()):
            name = type_name_of(used)
            if issubclass(used, Procedure) and name not in names:
                names.append(name)
                pending.append(used)
    return names


def _registered_again(old: TypeRegistry, key: SigningKey | None) -> TypeRegistry:
    new = TypeRegistry(signing_key=key)
    for name in old.names():
        runtime = old.get(name)
        if runtime is not None and runtime.procedure_class is not None:
            new.register(runtime.procedure_class)
        if runtime is not None and runtime.loader is not None:
            new.register_loader(name, runtime.loader)
    return new
