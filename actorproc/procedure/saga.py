"""Sagas: ordered steps, each with its undo (Garcia-Molina and Salem, 1987)."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import types
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, Generic, TypeVar, Unpack, dataclass_transform, overload

import msgspec

from actorproc.errors import InvalidStatus, UsageError
from actorproc.procedure.context import Context
from actorproc.procedure.declaring import ClassOptions
from actorproc.procedure.dropped import PLAIN_RESULTS, dropped_work
from actorproc.procedure.idle_methods import warn_of_idle_methods
from actorproc.procedure.members import overrides, own_annotations, reserve
from actorproc.procedure.procedure import Procedure, not_plain
from actorproc.procedure.signatures import check_call
from actorproc.procedure.state import StateRefused
from actorproc.procedure.status import Sleeping, Status, Suspending, Waiting

__all__ = ["Saga", "SagaOptions", "Step", "step"]

S = TypeVar("S")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
F = TypeVar("F", bound=Callable[[Any, Context], Any])

_END = ""
_UNDOES = "__actorproc_undoes__"
_SHAPE = "_engine_dataclass_shape"
_DATACLASS_OPTIONS = frozenset({"init", "repr", "eq", "order", "unsafe_hash", "frozen", "kw_only"})
_NEXT = Status.executing()
_set = object.__setattr__  # the class may be frozen
_WRAPPERS = (types.FunctionType, staticmethod, classmethod)
_METHOD = "self, ctx"


def _check_plain(function: Any, what: str) -> None:
    if not inspect.isfunction(function):
        msg = f"{what} is a method (self, ctx), not {function!r:.80}; write a 'def …(self, ctx)' that calls it"
        raise TypeError(msg)
    if not_plain(function):
        msg = (
            f"{what} {function.__name__!r} is a coroutine or a generator; steps and undos are plain functions, which "
            "may call asyncio.run(…)"
        )
        raise TypeError(msg)
    check_call(function, _METHOD, f"{what} {function.__qualname__}")


def _undoes(member: Any) -> str | None:
    """The step of a base class that this function undoes."""
    return getattr(member, _UNDOES, None) if inspect.isfunction(member) else None


class Step(Generic[R_co]):
    """One step of a `Saga`, made by `step`. On an instance it is the method that was decorated."""

    _engine_is_step: ClassVar[bool] = True

    def __init__(self, function: Callable[[Any, Context], R_co], *, no_return: bool = False) -> None:
        _check_plain(function, "step")
        self.function = function
        self.name = function.__name__
        self.no_return = no_return
        self.undo_function: Callable[[Any, Context], Any] | None = None
        self._is_of_class = False
        self.__doc__ = function.__doc__

    def undo(self, function: F) -> F:
        """Decorates the method ``(self, ctx)`` that undoes this step; returns it as it is.

        It returns None when it is done, or ``Status.executing()`` to be called again. It must be idempotent, and
        must cope with a step that ran half. ``@Base.pay.undo`` in a subclass is for that subclass alone.
        """
        is_inherited = self._is_of_class
        if self.undo_function is not None and not is_inherited:
            msg = f"step {self.name!r} has an undo already"
            raise TypeError(msg)
        _check_plain(function, f"the undo of step {self.name!r}")
        if function.__name__ == self.name:
            msg = f"the undo of step {self.name!r} would take the place of the step; give it a name of its own"
            raise TypeError(msg)
        if is_inherited:
            setattr(function, _UNDOES, self.name)
        else:
            self.undo_function = function
        return function

    def __set_name__(self, _owner: type, _name: str) -> None:
        self._is_of_class = True

    @overload
    def __get__(self, instance: None, owner: type) -> Step[R_co]: ...
    @overload
    def __get__(self, instance: object, owner: type) -> Callable[[Context], R_co]: ...
    def __get__(self, instance: object, owner: type) -> Step[R_co] | Callable[[Context], R_co]:
        if instance is None:
            return self
        return self.function.__get__(instance, owner)  # type: ignore[no-any-return]


@overload
def step(function: Callable[[S, Context], R], /) -> Step[R]: ...
@overload
def step(*, no_return: bool = False) -> Callable[[Callable[[S, Context], R]], Step[R]]: ...
def step(function: Any = None, /, *, no_return: bool = False) -> Any:
    """Decorates a method ``(self, ctx)`` of a `Saga`: one step, run in the order of definition.

    It returns a value (go on; the last step's value is the output) or a `Status`: ``executing`` repeats the step,
    ``suspended``, ``sleep`` and ``wait`` go on at the next one, ``done`` ends early. When the last step waits, the
    payload of the event is the output. ``no_return=True`` declares it the point of no return: from there, failures
    only retry forward. Other decorators stand below this one. A value that is work which nothing would run fails the
    step with `InvalidStatus`: a procedure, a function that was not called, a coroutine.

    Raises:
        TypeError: the function is no ``def …(self, ctx)``.
    """
    if function is not None:
        return Step(function)
    return lambda decorated: Step(decorated, no_return=no_return)


class _Stage:
    """One step as one class has it, overrides applied."""

    __slots__ = ("name", "no_return", "run", "undo", "unit")

    def __init__(self, name: str, run: Callable[..., Any], undo: Callable[..., Any] | None, *, no_return: bool) -> None:
        self.name = name
        self.run = run
        self.undo = undo
        self.no_return = no_return
        self.unit = None if undo is None else name


class SagaOptions(ClassOptions, total=False):
    """What a saga may say in its class line: options of a procedure class and of a dataclass."""

    init: bool
    repr: bool
    eq: bool
    order: bool
    unsafe_hash: bool
    frozen: bool
    kw_only: bool


@dataclass_transform(field_specifiers=(dataclasses.field,))
class Saga(Procedure):
    """A dataclass procedure made of `step`s in the order of definition, each with an optional undo.

    Steps of base classes come first; an overridden step keeps its place, and its undo unless it brings another.
    On failure the undos of all steps that were started run in reverse, the failing one's included.

    Options of the dataclass stand in the class line: ``class Order(Saga, kw_only=True)``; all of
    `dataclasses.dataclass` but ``slots``, ``weakref_slot`` and ``match_args``.
    """

    # The position has a slot, so that __dict__ holds fields and nothing else. What is ours has names that Python makes
    # distinct (two underscores), for attributes and helpers of the user may begin with one. The slot is named as Python
    # calls it in the end: attrs looks for each of them.
    __slots__ = ("_Saga__at",)
    __stages: ClassVar[tuple[_Stage, ...]] = ()
    _engine_has_position: ClassVar[bool] = True

    def __init_subclass__(cls, **options: Unpack[SagaOptions]) -> None:
        given: dict[str, Any] = {**options}
        made = {name: given.pop(name) for name in _DATACLASS_OPTIONS & given.keys()}
        super().__init_subclass__(**given)
        if issubclass(cls, msgspec.Struct):  # which the interpreter does not survive once it is made a dataclass
            msg = f"{cls.__qualname__} is a Saga, so it is a dataclass, and cannot be a msgspec.Struct as well"
            raise TypeError(msg)
        _check_steps(cls)
        _make_dataclass(cls, made)
        cls.__stages = _stages_of(cls)
        warn_of_idle_methods(cls, {stage.undo for stage in cls.__stages})

    def execute(self, ctx: Context) -> Status:
        """Run the step at the current position."""
        stages = self.__stages
        at = self.__index()
        if at >= len(stages):
            return Status.done(ctx.event)  # the last step waited, and no other one sees what came
        result = stages[at].run(self, ctx)
        if isinstance(result, Status):
            if isinstance(result, Suspending | Sleeping | Waiting):
                _set(self, "_Saga__at", at + 1)
            return result
        if type(result) not in PLAIN_RESULTS and (problem := dropped_work(result)) is not None:
            msg = f"the step {stages[at].name!r} {problem}"
            raise InvalidStatus(msg)
        _set(self, "_Saga__at", at + 1)
        return Status.done(result) if at + 1 == len(stages) else _NEXT

    @classmethod
    def _engine_check_class(cls) -> None:
        if not cls.__stages and not overrides(cls, Saga, "execute"):
            msg = f"{cls.__qualname__} has no @step"
            raise UsageError(msg)
        if _shape_of(cls) != cls.__dict__[_SHAPE]:
            msg = (
                f"{cls.__qualname__} was a dataclass before its decorator @dataclass saw it, which comes too late for "
                "what it says; say it in the class line, as in class Order(Saga, kw_only=True), without the decorator"
            )
            raise UsageError(msg)
        if overrides(cls, Procedure, "rollback"):
            msg = f"{cls.__qualname__} defines rollback(), which nothing calls in a Saga; give its steps an undo each"
            raise UsageError(msg)

    @staticmethod
    def _engine_parts(namespace: Mapping[str, Any]) -> Iterable[str]:
        steps = [part for part in namespace.values() if isinstance(part, Step)]
        undos = [part.undo_function for part in steps]
        for name, part in namespace.items():
            if isinstance(part, Step) or _undoes(part) is not None or (inspect.isfunction(part) and part in undos):
                yield name

    @staticmethod
    def _engine_brings_undo(namespace: Mapping[str, Any]) -> bool:
        return any(
            _undoes(member) is not None or (isinstance(member, Step) and member.undo_function is not None)
            for member in namespace.values()
        )

    @classmethod
    def _engine_hinted_functions(cls) -> Iterable[Callable[..., Any]]:
        return tuple(stage.run for stage in cls.__stages)

    def __index(self) -> int:
        # An object that was never loaded nor run has no position yet.
        return getattr(self, "_Saga__at", 0)

    def __stage(self) -> _Stage | None:
        at = self.__index()
        return self.__stages[at] if at < len(self.__stages) else None

    def _engine_next_unit(self) -> str | None:
        stage = self.__stage()
        supported = self._engine_supports_rollback() if self._engine_taken else self.rollback_supported
        return None if stage is None or not supported else stage.unit

    def _engine_next_no_return(self) -> bool:
        stage = self.__stage()
        return stage is not None and stage.no_return

    def _engine_undo(self, ctx: Context, unit: str) -> Status | None:
        undone = self.__undo_of(unit)(self, ctx)
        if type(undone) not in PLAIN_RESULTS and (problem := dropped_work(undone)) is not None:
            msg = f"the undo of step {unit!r} {problem}"
            raise InvalidStatus(msg)
        # What an undo returns beside a Status is of no use to anybody.
        return undone if isinstance(undone, Status) else None

    def _engine_check_unit(self, unit: str) -> None:
        self.__undo_of(unit)

    def __undo_of(self, unit: str) -> Callable[..., Any]:
        for stage in self.__stages:
            if stage.name == unit and stage.undo is not None:
                return stage.undo
        msg = f"{type(self).__qualname__} has no step {unit!r} with an undo any more, and that step is to be undone"
        raise StateRefused(msg)

    def _engine_rewind(self) -> None:
        _set(self, "_Saga__at", 0)

    def _engine_position(self) -> Any:
        stage = self.__stage()
        return _END if stage is None else stage.name

    def _engine_restore(self, position: Any) -> None:
        names = [stage.name for stage in self.__stages]
        if position == _END:
            _set(self, "_Saga__at", len(names))
        elif position in names:
            _set(self, "_Saga__at", names.index(position))
        else:
            msg = f"{type(self).__qualname__} has no step {position!r} any more, and the procedure stands before it"
            raise StateRefused(msg)


reserve(Saga, ("execute",))


def _check_steps(cls: type) -> None:
    """Raise `TypeError` for a step that the class would not have, or not as one."""
    annotated = own_annotations(cls)
    for name, member in vars(cls).items():
        msg = None
        if isinstance(member, Step):
            if name in annotated:
                msg = f"{cls.__qualname__}.{name} is both a field and a step; rename one of them"
        elif (hidden := _hidden_step(member, 4)) is not None:
            msg = (
                f"a decorator above @step hides the step {hidden.name!r} of {cls.__qualname__}, "
                "which would not be run; write @step as the uppermost one"
            )
        if msg is not None:
            raise TypeError(msg)


def _hidden_step(member: Any, room: int) -> Step[Any] | None:
    """A step that no class has, which a decorator has wrapped up in this."""
    if isinstance(member, Step):
        return None if member._is_of_class else member
    if room == 0 or not isinstance(member, _WRAPPERS):
        return None
    inside = [getattr(member, "__wrapped__", None)]
    for cell in getattr(member, "__closure__", None) or ():
        with contextlib.suppress(ValueError):  # it is empty as yet
            inside.append(cell.cell_contents)
    return next((found for part in inside if (found := _hidden_step(part, room - 1)) is not None), None)


def _make_dataclass(cls: type, options: dict[str, Any]) -> None:
    if "__dataclass_fields__" in cls.__dict__:  # it was one before `@dataclass(slots=True)` made it again
        return
    options.setdefault(
        "frozen", any(_params(base).frozen for base in cls.__mro__[1:] if dataclasses.is_dataclass(base))
    )
    own = {name: cls.__dict__.get(name) for name in own_annotations(cls)}
    dataclasses.dataclass(**options)(cls)
    setattr(cls, _SHAPE, _shape_of(cls))
    for name, field in own.items():
        if isinstance(field, dataclasses.Field) and field.default_factory is not dataclasses.MISSING:
            setattr(cls, name, field)  # for a `@dataclass` above the class, which would find no default any more


def _params(cls: Any) -> Any:
    return cls.__dataclass_params__


def _shape_of(cls: Any) -> tuple[Any, ...]:
    """What a decorator above the class would change of it."""
    fields = tuple((field.name, field.init, field.kw_only) for field in dataclasses.fields(cls))
    return (fields, *(getattr(_params(cls), name) for name in sorted(_DATACLASS_OPTIONS - {"kw_only"})))


def _stages_of(cls: type) -> tuple[_Stage, ...]:
    found: dict[str, Step[Any] | None] = {}
    undos: dict[str, Callable[..., Any]] = {}
    for base in reversed(cls.__mro__):
        for name, member in base.__dict__.items():
            if isinstance(member, Step):
                found[name] = member
                if member.undo_function is not None:
                    undos[name] = member.undo_function
            elif (undone := _undoes(member)) is not None:
                undos[undone] = member
        for name, undo in undos.items():
            # A subclass that overrides the undo method by its name means this step's undo.
            override = base.__dict__.get(undo.__name__)
            if undo.__name__ != "_" and inspect.isfunction(override) and not _is_undo_of_other(override, found, name):
                undos[name] = override
    return tuple(
        _Stage(name, _override(cls, name, entry), undos.get(name), no_return=entry.no_return)
        for name, entry in found.items()
        if entry is not None
    )


def _is_undo_of_other(function: Callable[..., Any], found: dict[str, Step[Any] | None], name: str) -> bool:
    return any(entry is not None and entry.undo_function is function and key != name for key, entry in found.items())


def _override(cls: type, name: str, entry: Step[Any]) -> Callable[..., Any]:
    """The step's function, or the plain method by which a subclass overrides it."""
    for base in cls.__mro__:
        member = base.__dict__.get(name)
        if isinstance(member, Step):
            return member.function
        if inspect.isfunction(member):
            return member
    return entry.function
