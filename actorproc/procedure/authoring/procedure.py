"""The base class of everything that can be submitted."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, Unpack

from actorproc.errors import InvalidStatus, RetryLater, UsageError
from actorproc.model.policies import LockKey, LockScope
from actorproc.procedure.authoring.async_context import StepContext, called
from actorproc.procedure.authoring.submittable import R_co, Submittable
from actorproc.procedure.declaring.class_line import (
    OPTIONS,
    ClassOptions,
    explain_arguments,
    refuse_unknown_options,
    warn_of_idle_options,
)
from actorproc.procedure.declaring.policies import Limits, RetryPolicy
from actorproc.procedure.declaring.signatures import HOOKS, MAY_BE_ASYNC, check_hooks
from actorproc.procedure.declaring.step_policies import StepPolicies
from actorproc.procedure.encoding.state import StateRefused, format_of, no_undo
from actorproc.procedure.values.hints import secret_fields
from actorproc.procedure.values.members import (
    convert_inherited,
    hook,
    member,
    names_of_class,
    option,
    overrides,
    reserve,
    said_by,
)
from actorproc.procedure.values.secrets.secret import shown
from actorproc.procedure.values.secrets.secret_hints import Hide, mentions_secret
from actorproc.procedure.values.type_names import default_type_name

if TYPE_CHECKING:
    from actorproc.model.ids import Mode
    from actorproc.procedure.authoring.async_context import AsyncContext
    from actorproc.procedure.authoring.context import Context
    from actorproc.procedure.authoring.status import Status

__all__ = ["RESERVED", "Procedure", "is_generator", "not_plain", "refuse_unrun", "unrun_kind"]

_UNRUN = (types.CoroutineType, types.GeneratorType, types.AsyncGeneratorType)


class Procedure(Submittable[R_co]):
    """A multi-step operation that either finishes or is undone (Greptime's Procedure, IoTDB's, HBase's ProcedureV2).

    Override `execute`; it is called until it returns ``Status.done``. Each call is a step: when it returns, the
    state (`dump`) is stored, and after a crash the next call starts from there. A step may run twice, so it must be
    idempotent. State is the declared fields of a dataclass, attrs class or `msgspec.Struct`, else every attribute
    whose name does not begin with ``_``.
    """

    # No __dict__ of its own, so that it mixes with slotted classes and with msgspec.Struct.
    __slots__ = ()

    type_name: ClassVar[str]
    """Name in the store and in the registry; default "module.QualName"."""
    rollback_retry: ClassVar[RetryPolicy] = RetryPolicy(max_attempts=10, retry_on=(Exception, RetryLater))
    """As ``retry``, for an undo."""
    rollback_supported: ClassVar[bool]
    """There is something to undo. Default: True where the class, or the nearest base that decides it, has an undo of
    its own: it overrides `rollback` (`StateMachineProcedure.rollback_state`), or a step of its `Saga` has an undo."""
    rollback_mode: ClassVar[Literal["strict", "best-effort"]] = "strict"
    """ "best-effort": an undo that gave up is recorded and skipped, and the rollback goes on. See `ProcedureInfo`'s
    ``leftovers``."""
    on_child_failure: ClassVar[Literal["fail", "resume"]] = "fail"
    """ "resume" hands failures to the parent in ``ctx.children`` instead of failing it."""
    undo_children: ClassVar[bool] = True
    """False leaves finished children to this procedure's own `rollback`."""
    lock_scope: ClassVar[LockScope] = "procedure"
    """ "step" gives the locks back between steps."""
    work_class: ClassVar[str] = "default"
    """The class of work its steps belong to, for `Config.worker_shares` and `Config.reserved_workers`."""
    keep_steps: ClassVar[int | None] = None
    """Done steps whose records and notes stay in the step log, at least; the first always does. None: all where there
    may be something to undo, else as many as `Config.keep_steps` says."""

    if not TYPE_CHECKING:  # ordinary words: a type checker lets a class use them for fields of any type
        version: ClassVar[int] = 1
        """Version of the dumped state; raise it together with `migrate`."""
        retry: ClassVar[RetryPolicy] = RetryPolicy()
        """Rules for trying errors of a step again: which, how often and when."""
        limits: ClassVar[Limits] = Limits()
        """Limits of a step; `ProcedureManager.submit` may say otherwise for one procedure."""
        uses: ClassVar[tuple[Any, ...]] = ()
        """Classes and `procedure` functions registered with this one: its children's, and
        those its values are made of beyond the type hints."""
        aliases: ClassVar[Mapping[str, Any]] = {}
        """Earlier names of classes and members of enums that its stored values are made of, as
        ``{"old.module:Line": Line, "shop:Color.RED": Color.CRIMSON}``."""
        codec: ClassVar[str] = "data"
        """ "pickle" is opt-in: signed, and checked before anything is decoded."""
        searchable: ClassVar[tuple[str, ...]] = ()
        """Names of declared fields by whose values lists find its procedures (``list(where=…)``): 16 at most, of texts,
        whole numbers, booleans, enums, UUIDs and dates, and of none that is secret."""

    def __init_subclass__(cls, **options: Unpack[ClassOptions]) -> None:
        given: dict[str, Any] = {**options}
        keywords = {name: given.pop(name) for name in OPTIONS & given.keys()}
        refuse_unknown_options(cls, given, super().__init_subclass__)
        super().__init_subclass__(**given)
        cls._engine_taken = names_of_class(cls, cls._engine_parts)
        cls._engine_said = said = said_by(cls, keywords)
        if cls._engine_taken:
            convert_inherited(cls)
            warn_of_idle_options(cls)
        check_hooks(cls, cls._engine_forms)
        explain_arguments(cls)
        if "__repr__" not in cls.__dict__ and mentions_secret(cls):
            cls.__repr__ = _repr_without_secrets  # type: ignore[assignment]
        if "type_name" not in said and ("type_name" not in cls.__dict__ or "type_name" in cls._engine_taken):
            say_option(cls, "type_name", default_type_name(cls))
        if "_engine_found_undo" in cls.__dict__ or (
            "rollback_supported" not in said
            and ("rollback_supported" not in cls.__dict__ or "rollback_supported" in cls._engine_taken)
        ):
            cls._engine_found_undo = _rolls_back(cls)
            say_option(cls, "rollback_supported", cls._engine_found_undo)

    def execute(self, ctx: StepContext) -> Status | Coroutine[Any, Any, Status]:
        """Do the next step and say what comes then. Called again after a crash with the last stored state."""
        raise NotImplementedError

    def rollback(self, ctx: StepContext) -> Status | Coroutine[Any, Any, Status | None] | None:
        """Undo what `execute` did; must be idempotent. None: done; ``Status.executing()``: call it again."""
        raise NotImplementedError

    def abort(self, ctx: StepContext) -> bool | Coroutine[Any, Any, bool]:
        """True if it may be aborted now; asked again after each step while it says no."""
        del ctx
        return True

    if TYPE_CHECKING:  # ordinary words again
        dump: Any
        load: Any
        migrate: Any
    else:

        def dump(self) -> bytes | str:
            """The state to store."""
            return format_of(type(self)).dump_fields(self)

        @classmethod
        def load(cls, data: Any) -> Self:
            """The object of a stored state. Does not call ``__init__``.

            Any exception parks the procedure with its text as the reason, save `MemoryError`: that counts as a failed
            attempt of the step, and a fresh worker makes the next one.

            Args:
                data: The data that `dump` returned, or `migrate` made of it.

            Returns:
                The object.
            """
            made: Self = format_of(cls).load_fields(data)
            return made

        @classmethod
        def migrate(cls, data: Any, from_version: int) -> Any:
            """Turn the state of an older version into the input of `load`.

            Args:
                data: The mapping of fields when `dump` is not overridden, else what `dump` returned then.
                from_version: `version` of the class then.

            Returns:
                The input of `load`.

            Raises:
                NotImplementedError: The class does not override this.
            """
            del data
            version = option(cls, "version")
            msg = f"the state has version {from_version}, the class has version {version} and no migrate()"
            raise NotImplementedError(msg)

    def lock_keys(self) -> Iterable[LockKey]:
        """The locks it needs, all granted before its first step."""
        return ()

    def limit_keys(self) -> Iterable[str]:
        """Keys whose limits (`Config.concurrency`, `Config.rate`) count it; asked once, when it is submitted."""
        return ()

    def poison_keys(self) -> Iterable[str]:
        """Keys it poisons as of now; asked when it is submitted and after each step."""
        return ()

    def before_recover(self, ctx: StepContext) -> Coroutine[Any, Any, None] | None:
        """Called before a step, an undo or `on_timeout` that may have half run, or is the first since a restart.

        ``ctx.replayed`` says the former, ``ctx.recovered`` the latter. May run more than once; raising fails the step.
        """

    def after_recover(self, ctx: StepContext) -> Coroutine[Any, Any, None] | None:
        """Called when such a call has succeeded, before its state is stored."""

    def on_timeout(self, ctx: StepContext) -> Status | Coroutine[Any, Any, Status | None] | None:
        """Called when a ``Status.wait`` timed out. None fails the procedure with `WaitTimeout`."""
        del ctx
        return None

    def on_completed(self, ctx: StepContext) -> Coroutine[Any, Any, None] | None:
        """Clean-up after ``Status.done``, before it is recorded. May run twice; what it raises is only logged."""

    # ------------------------------------------------------------ between the engine and Saga, StateMachineProcedure
    @classmethod
    def _engine_supports_rollback(cls) -> bool:
        return bool(option(cls, "rollback_supported"))

    @staticmethod
    def _engine_parts(namespace: Mapping[str, Any]) -> Iterable[str]:
        """Names of what a namespace defines beside fields, options and hooks."""
        del namespace
        return ()

    @staticmethod
    def _engine_brings_undo(namespace: Mapping[str, Any]) -> bool:
        """Something undoes in what a class defines by itself."""
        return "rollback" in namespace and "rollback" not in namespace.get("_engine_taken", ())

    @classmethod
    def _engine_hinted_functions(cls) -> Iterable[Callable[..., Any]]:
        """Functions whose type hints name classes of this procedure's values."""
        init = cls.__dict__.get("__init__")
        execute = member(cls, "execute")
        return (execute,) if init is None else (execute, init)

    @classmethod
    def _engine_value_classes(cls) -> Iterable[type]:
        """Classes of this procedure's values beyond those its type hints name."""
        uses: tuple[Any, ...] = option(cls, "uses")
        return uses

    @classmethod
    def _engine_secret_fields(cls) -> Mapping[str, Hide]:
        """Fields that are secret by their hints, and what hides their values."""
        known: Mapping[str, Hide] | None = cls.__dict__.get("_engine_secrets")
        if known is None:
            known = secret_fields(cls)
            # Written to the class, which takes it along when it is sent to a worker by value.
            if known:
                cls._engine_secrets = known
        return known

    @classmethod
    def _engine_check_class(cls) -> None:
        """Raise `UsageError` when the class cannot be run."""
        found = next((name for base in cls.__mro__ for name, part in vars(base).items() if _is_step(part)), None)
        if found is not None:
            msg = f"{cls.__qualname__} has the step {found!r}, which nothing would run; derive the class from Saga"
            raise UsageError(msg)

    @classmethod
    def _engine_step_names(cls) -> tuple[str, ...]:
        """Names of all steps, and those of undos as "undo NAME"; empty: steps have numbers only."""
        return ()

    def _engine_next_unit(self) -> str | None:
        """Undo label of the next step."""
        return "" if self._engine_supports_rollback() else None

    def _engine_next_name(self) -> str | None:
        """Name of the next step; None: steps have numbers only."""
        return None

    def _engine_next_no_return(self) -> bool:
        """The next step is declared the point of no return."""
        return False

    def _engine_next(self) -> tuple[str | None, bool, str | None]:
        """The three of the next step."""
        return self._engine_next_unit(), self._engine_next_no_return(), self._engine_next_name()

    def _engine_on_timeout(self, ctx: Context) -> Status | None:
        """`on_timeout` with all that it asks for."""
        status: Status | None = hook(type(self), "on_timeout")(self, ctx)
        return status

    def _engine_undo(self, ctx: Context, unit: str) -> Status | None:
        """Undo one unit."""
        self._engine_check_unit(unit)
        undone: Status | None = hook(type(self), "rollback")(self, ctx)
        return undone

    @classmethod
    def _engine_functions(cls) -> Iterable[Callable[..., Any]]:
        """Functions of a class that run in steps; with one that is asynchronous, all its steps run on an event loop."""
        return (hook(cls, name) for name in MAY_BE_ASYNC)

    async def _engine_execute_async(self, ctx: AsyncContext) -> Status:
        """`execute` of an asynchronous class."""
        status: Status = await called(hook(type(self), "execute"), self, ctx)
        return status

    async def _engine_on_timeout_async(self, ctx: AsyncContext) -> Status | None:
        """`_engine_on_timeout` of an asynchronous class."""
        status: Status | None = await called(hook(type(self), "on_timeout"), self, ctx)
        return status

    async def _engine_undo_async(self, ctx: AsyncContext, unit: str) -> Status | None:
        """`_engine_undo` of an asynchronous class."""
        self._engine_check_unit(unit)
        undone: Status | None = await called(hook(type(self), "rollback"), self, ctx)
        return undone

    def _engine_check_unit(self, unit: str) -> None:
        """Raise `StateRefused` when this class has no undo for a unit that is stored."""
        del unit
        if not overrides(type(self), Procedure, "rollback"):
            raise StateRefused(no_undo(type(self), "rollback"))

    def _engine_position(self) -> Any:
        """Position beyond its fields, as plain data; only classes with ``_engine_has_position`` are asked."""
        return None

    def _engine_key(self, mode: Mode, unit: str | None) -> str | None:
        """The name of the step in its idempotency key; None: its number."""
        del mode, unit
        return None

    def _engine_is_moved(self) -> bool:
        """Its position was stored by other code, which would go on with another step."""
        return False

    def _engine_settle(self) -> None:
        """Stand where today's code would go on; raises `StateRefused` when that has no place for it."""

    def _engine_rewind(self) -> None:
        """Stand before the first step, as a new generation begins."""

    def _engine_restore(self, position: Any) -> None:
        """Take up a stored position; raises ValueError when the class no longer has it."""

    def _engine_pickled_failure(self, error: BaseException, procedure: str) -> bytes:
        """The exception that ended a step as signed bytes, for classes that can make it again; else none."""
        del error, procedure
        return b""

    def _engine_take_key(self, key: bytes | tuple[bytes, ...] | None) -> None:
        """Called in a worker with the keys of the store, for classes that sign bytes of their own."""

    _engine_has_position: ClassVar[bool] = False
    _engine_tail: ClassVar[str] = ""
    """A field of bytes that a pickled state holds uncopied when it is long, and that may then be a `memoryview`."""
    _engine_ends_stateless: ClassVar[bool] = False
    """Its closing record needs no state: nothing of it is undone, loaded or compared after a good end."""
    _engine_is_compared: ClassVar[bool] = True
    """A second submit of its id is the same one only with an equal state."""
    _engine_is_spent: bool = False
    """It has ended well, and the long state it began with is not needed any more."""
    _engine_own_retry: RetryPolicy | None = None
    """The policy that this object came with, instead of its class's."""
    _engine_step_policies: ClassVar[Mapping[str, StepPolicies]] = {}
    """Policies of steps that have their own, by each name of the step."""
    _engine_shipped_classes: ClassVar[tuple[type, ...]] = ()
    """In a worker that got the class by value: what its hints reach, resolved where the class was made."""
    _engine_reserved: ClassVar[frozenset[str]] = frozenset()
    """Names of options and hooks."""
    _engine_taken: ClassVar[frozenset[str]] = frozenset()
    """Names among these that the class, or a base of it, uses for fields and steps."""
    _engine_said: ClassVar[Mapping[str, Any]] = {}
    """Options that the class says beside a field or step of the same name."""
    _engine_forms: ClassVar[Mapping[str, str]] = HOOKS
    """Parameters of the hooks."""
    _engine_secrets: ClassVar[Mapping[str, Hide]] = {}
    _engine_found_undo: ClassVar[bool]
    """`rollback_supported` was found out, not declared."""


RESERVED = frozenset({"type_name", "rollback_supported", *(name for name in Procedure.__dict__ if name[0] != "_")})
"""Names of options and hooks; a class that uses one for a field or a step has no such option or hook of its own."""
Procedure._engine_reserved = RESERVED
reserve(Procedure, RESERVED)


def say_option(cls: Any, name: str, value: Any) -> None:
    """Have a class say an option, beside a field or a step of that name where it has one."""
    if name in cls._engine_taken:
        cls._engine_said[name] = value
    else:
        setattr(cls, name, value)


def _is_step(part: object) -> bool:
    return getattr(type(part), "_engine_is_step", False) is True


def _rolls_back(cls: type[Procedure]) -> bool:
    for base in cls.__mro__:
        own = base.__dict__
        if "_engine_brings_undo" in own:
            break
        if "_engine_found_undo" not in own:
            if "rollback_supported" in own.get("_engine_said", ()):
                return bool(own["_engine_said"]["rollback_supported"])
            if "rollback_supported" in own and "rollback_supported" not in own.get("_engine_taken", ()):
                return bool(own["rollback_supported"])
        if cls._engine_brings_undo(own):
            return True
    return False


def _repr_without_secrets(self: Procedure) -> str:
    found = format_of(type(self))
    fields = getattr(self, "__dataclass_fields__", {})
    names = vars(self) if found.names is None else found.names
    return shown(self, (name for name in names if name not in fields or fields[name].repr), found.secrets)


def is_generator(function: Any) -> bool:
    """Calling it would run nothing, and awaiting it is an error: it is a generator function."""
    return inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)


def not_plain(function: Any) -> bool:
    """Calling it would run nothing: it is a coroutine function or a generator function."""
    return inspect.iscoroutinefunction(function) or is_generator(function)


def refuse_unrun(returned: object, what: str) -> None:
    """Raise `InvalidStatus` for a coroutine or a generator that ``what`` has returned.

    `not_plain` does not see it where a decorator's plain function stands before the coroutine function.
    """
    problem = unrun_kind(returned)
    if problem is not None:
        msg = f"{what} {problem}"
        raise InvalidStatus(msg)


def unrun_kind(returned: object) -> str | None:
    """The problem with a returned coroutine or generator, in words; None for anything else. A coroutine is closed."""
    if not isinstance(returned, _UNRUN):
        return None
    if isinstance(returned, types.CoroutineType):
        returned.close()  # without a warning that says the same
    kind = type(returned).__name__.replace("_", " ")
    return (
        f"returned a {kind}, so nothing of it has run; write it, and decorators around it, as 'async def', so that it "
        "is awaited"
    )
