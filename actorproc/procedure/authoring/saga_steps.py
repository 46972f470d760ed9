"""The steps of a saga as its classes define them: functions, undos, names and their order."""

from __future__ import annotations

import contextlib
import inspect
import types
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, ClassVar, Generic, Protocol, TypeVar, overload

from actorproc.procedure.authoring.async_context import AsyncContext
from actorproc.procedure.authoring.context import Context
from actorproc.procedure.authoring.procedure import is_generator
from actorproc.procedure.declaring.policies import Limits, RetryPolicy
from actorproc.procedure.declaring.signatures import check_call
from actorproc.procedure.declaring.step_policies import StepPolicies, checked_step_policies
from actorproc.procedure.values.members import own_annotations

__all__ = ["BoundStep", "Step", "bound_steps_of", "check_steps", "policies_of", "state_order", "step", "undoes"]

S = TypeVar("S")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
F = TypeVar("F", bound=Callable[[Any, Context], Any] | Callable[[Any, AsyncContext], Coroutine[Any, Any, Any]])

_ORDER = "_engine_order"
_UNDOES = "__actorproc_undoes__"
_WRAPPERS = (types.FunctionType, staticmethod, classmethod)
_METHOD = "self, ctx"


def _check_function(function: Any, what: str) -> None:
    if not inspect.isfunction(function):
        msg = f"{what} is a method (self, ctx), not {function!r:.80}; write a 'def …(self, ctx)' that calls it"
        raise TypeError(msg)
    if is_generator(function):
        msg = f"{what} {function.__name__!r} is a generator; steps and undos are 'def' or 'async def' without yield"
        raise TypeError(msg)
    check_call(function, _METHOD, f"{what} {function.__qualname__}")


def _checked_name(name: Any, what: str) -> str:
    """A name of a step in the store, and in idempotency keys, whose other parts stand between dots."""
    if type(name) is not str or not name.replace("-", "_").isidentifier():
        msg = f"@step({what}=…) takes names of letters, digits, '_' and '-' that begin with a letter, not {name!r:.60}"
        raise TypeError(msg)
    return name


def undoes(member: Any) -> str | None:
    """The step of a base class that this function undoes."""
    return getattr(member, _UNDOES, None) if inspect.isfunction(member) else None


class Step(Generic[R_co]):
    """One step of a `Saga`, made by `step`. On an instance it is the method that was decorated."""

    _engine_is_step: ClassVar[bool] = True

    def __init__(
        self,
        function: Callable[[Any, Context], R_co],
        *,
        no_return: bool = False,
        name: str | None = None,
        was: Any = (),
        retry: RetryPolicy | None = None,
        limits: Limits | None = None,
    ) -> None:
        _check_function(function, "step")
        self.function = function
        self.name = function.__name__
        self.policies = checked_step_policies(retry, limits, f"the step {self.name!r}")
        self.stored_name = None if name is None else _checked_name(name, "name")
        if isinstance(was, str) or not isinstance(was, Iterable):
            msg = f"@step(was=…) takes a tuple of names, was=({was!r},), not {was!r:.60}"
            raise TypeError(msg)
        self.was = tuple(_checked_name(each, "was") for each in was)
        self.no_return = no_return
        self.undo_function: Callable[..., Any] | None = None
        self._is_of_class = False
        self.__doc__ = function.__doc__

    def undo(self, function: F) -> F:
        """Decorates the method ``(self, ctx)`` that undoes this step.

        It returns None when it is done, or ``Status.executing()`` to be called again. It must be idempotent, and must
        cope with a step that ran half. ``@Base.pay.undo`` in a subclass is for that subclass alone.

        Args:
            function: The method; its name is another one than the step's.

        Returns:
            The method as it is.

        Raises:
            TypeError: The step has an undo already, or the function is no ``def …(self, ctx)``.
        """
        is_inherited = self._is_of_class
        if self.undo_function is not None and not is_inherited:
            msg = f"step {self.name!r} has an undo already"
            raise TypeError(msg)
        _check_function(function, f"the undo of step {self.name!r}")
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


class _StepDecorator(Protocol):
    @overload
    def __call__(self, function: Callable[[S, AsyncContext], Coroutine[Any, Any, R]], /) -> Step[R]: ...
    @overload
    def __call__(self, function: Callable[[S, Context], R], /) -> Step[R]: ...


@overload
def step(function: Callable[[S, AsyncContext], Coroutine[Any, Any, R]], /) -> Step[R]: ...
@overload
def step(function: Callable[[S, Context], R], /) -> Step[R]: ...
@overload
def step(
    *,
    no_return: bool = False,
    name: str | None = None,
    was: tuple[str, ...] = (),
    retry: RetryPolicy | None = None,
    limits: Limits | None = None,
) -> _StepDecorator: ...
def step(
    function: Any = None,
    /,
    *,
    no_return: bool = False,
    name: str | None = None,
    was: tuple[str, ...] = (),
    retry: RetryPolicy | None = None,
    limits: Limits | None = None,
) -> Any:
    """Decorates a method ``(self, ctx)`` of a `Saga`: one step, run in the order of definition.

    It returns a value (go on; the last step's value is the output) or a `Status`: ``executing`` repeats the step,
    ``suspended``, ``sleep`` and ``wait`` go on at the next one, ``done`` ends early. When the last step waits, the
    payload of the event is the output. Other decorators stand below this one. Returned work that nothing would run
    fails the step with `InvalidStatus`: a procedure, a function that was not called, a coroutine.

    Args:
        function: The method.
        no_return: The step is the point of no return: from there, failures only retry forward. Default: False.
        name: The name of the step in the store and in idempotency keys. Default: that of the method.
        was: Names that the step had in earlier code. A procedure stored with one of them goes on here. Default: none.
        retry: Rules for its errors. Fields that are not given are the class's. Default: None, those of the class.
        limits: Limits of the step and of its undo, all but ``dedicated`` and ``threads``. Fields that are not given are
            the class's; limits of a submit go before both. Default: None, those of the class.

    Returns:
        The `Step`; with options a decorator that returns it.

    Raises:
        TypeError: The function is no ``def …(self, ctx)``, a name is none, or policies are none for a step.
    """
    if function is not None:
        return Step(function)
    checked_step_policies(retry, limits, "@step")
    return lambda decorated: Step(decorated, no_return=no_return, name=name, was=was, retry=retry, limits=limits)


class BoundStep:
    """One step as one class has it, overrides applied."""

    __slots__ = ("name", "no_return", "policies", "run", "undo", "unit", "was")

    def __init__(
        self,
        name: str,
        run: Callable[..., Any],
        undo: Callable[..., Any] | None,
        *,
        no_return: bool,
        was: tuple[str, ...] = (),
        policies: StepPolicies | None = None,
    ) -> None:
        self.name = name
        self.policies = policies
        self.was = was
        self.run = run
        self.undo = undo
        self.no_return = no_return
        self.unit = None if undo is None else name


def check_steps(cls: type) -> None:
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


def bound_steps_of(cls: type) -> tuple[BoundStep, ...]:
    found: dict[str, Step[Any]] = {}
    undos: dict[str, Callable[..., Any]] = {}
    for base in reversed(cls.__mro__):
        for name, member in base.__dict__.items():
            if isinstance(member, Step):
                found[name] = member
                if member.undo_function is not None:
                    undos[name] = member.undo_function
            elif (undone := undoes(member)) is not None:
                undos[undone] = member
        for name, undo in undos.items():
            # A subclass that overrides the undo method by its name means this step's undo.
            override = base.__dict__.get(undo.__name__)
            if undo.__name__ != "_" and inspect.isfunction(override) and not _is_undo_of_other(override, found, name):
                undos[name] = override
        found = _in_order(base, found)
    bound_steps = tuple(
        BoundStep(
            _stored_name(cls, name),
            _override(cls, name, entry),
            undos.get(name),
            no_return=entry.no_return,
            was=_former_names(cls, name),
            policies=_policies(cls, name),
        )
        for name, entry in found.items()
    )
    _check_names(cls, bound_steps)
    return bound_steps


def policies_of(bound_steps: Iterable[BoundStep]) -> dict[str, StepPolicies]:
    """Policies of the steps that have their own, by name and by each former name."""
    own = [(bound_step, policies) for bound_step in bound_steps if (policies := bound_step.policies) is not None]
    return {name: policies for bound_step, policies in own for name in (*bound_step.was, bound_step.name)}


def _in_order(cls: type, found: dict[str, Step[Any]]) -> dict[str, Step[Any]]:
    """The steps in the order that a class states; those of other bases stand behind."""
    order: tuple[str, ...] = cls.__dict__.get(_ORDER, ())
    if not order:
        return found
    by_name = {_stored_name(cls, name): name for name in found}
    first = [by_name[name] for name in order if name in by_name]
    return {name: found[name] for name in dict.fromkeys((*first, *found))}


def state_order(cls: Any, order: Any) -> None:
    """Take the order of steps that a class line states. Raises `TypeError` unless it names each step once."""
    names = [order] if isinstance(order, str) or not isinstance(order, Iterable) else list(order)
    known = [bound_step.name for bound_step in bound_steps_of(cls)]
    if sorted(map(str, names)) != sorted(known):
        msg = (
            f"{cls.__qualname__} states order={order!r:.200}, which must name each of its steps once: "
            f"{', '.join(map(repr, known)) or 'it has none'}"
        )
        raise TypeError(msg)
    setattr(cls, _ORDER, tuple(names))


def _steps_named(cls: type, name: str) -> Iterable[Step[Any]]:
    return (member for base in cls.__mro__ if isinstance(member := base.__dict__.get(name), Step))


def _stored_name(cls: type, name: str) -> str:
    """An overridden step keeps its name, unless the new one says another."""
    return next((entry.stored_name for entry in _steps_named(cls, name) if entry.stored_name), name)


def _policies(cls: type, name: str) -> StepPolicies | None:
    """An overridden step keeps its retries and its limits, unless the new one brings others."""
    said = [entry.policies for entry in _steps_named(cls, name)]
    retry = next((each.retry for each in said if each.retry is not None), None)
    limits = next((each.limits for each in said if each.limits is not None), None)
    return None if retry is None and limits is None else StepPolicies(retry, limits)


def _former_names(cls: type, name: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(each for entry in _steps_named(cls, name) for each in entry.was))


def _check_names(cls: type, bound_steps: tuple[BoundStep, ...]) -> None:
    """Raise `TypeError` when a stored name would mean two steps."""
    names: dict[str, str] = {}
    for bound_step in bound_steps:
        if bound_step.name in names:
            msg = f"{cls.__qualname__} has two steps named {bound_step.name!r}; give one of them another name"
            raise TypeError(msg)
        names[bound_step.name] = bound_step.name
    for bound_step in bound_steps:
        for former in bound_step.was:
            if names.setdefault(former, bound_step.name) != bound_step.name:
                msg = (
                    f"{cls.__qualname__} says that the step {bound_step.name!r} was {former!r}, which is "
                    f"{'a step of its own' if former == names[former] else 'said of ' + repr(names[former]) + ' too'}; "
                    "drop it from one of them"
                )
                raise TypeError(msg)


def _is_undo_of_other(function: Callable[..., Any], found: dict[str, Step[Any]], name: str) -> bool:
    return any(entry.undo_function is function and key != name for key, entry in found.items())


def _override(cls: type, name: str, entry: Step[Any]) -> Callable[..., Any]:
    """The step's function, or the plain method by which a subclass overrides it."""
    for base in cls.__mro__:
        member = base.__dict__.get(name)
        if isinstance(member, Step):
            return member.function
        if inspect.isfunction(member):
            return member
    return entry.function
