"""Sagas: ordered steps, each with its undo (Garcia-Molina and Salem, 1987)."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, Unpack, dataclass_transform

import msgspec

from actorproc.errors import InvalidStatus, UsageError
from actorproc.model.ids import Mode
from actorproc.procedure.authoring.async_context import AsyncContext, called
from actorproc.procedure.authoring.context import Context
from actorproc.procedure.authoring.dropped_work import PLAIN_RESULTS, dropped_work
from actorproc.procedure.authoring.procedure import Procedure
from actorproc.procedure.authoring.saga_position import ON_CHANGE, Detour, OnChange, Route
from actorproc.procedure.authoring.saga_steps import (
    BoundStep,
    Step,
    bound_steps_of,
    check_steps,
    policies_of,
    state_order,
    step,
    undoes,
)
from actorproc.procedure.authoring.status import Done, Executing, Sleeping, Status, Suspending, Waiting
from actorproc.procedure.authoring.submittable import R_co
from actorproc.procedure.declaring.class_line import ClassOptions
from actorproc.procedure.declaring.idle_methods import warn_of_idle_methods
from actorproc.procedure.declaring.step_policies import check_step_policies
from actorproc.procedure.encoding.state import StateRefused
from actorproc.procedure.values.members import is_class_variable, overrides, own_annotations, reserve

__all__ = ["Saga", "SagaOptions", "Step", "step"]

_SHAPE = "_engine_dataclass_shape"
_DATACLASS_OPTIONS = frozenset({"init", "repr", "eq", "order", "unsafe_hash", "frozen", "kw_only"})
_NEXT = Status.executing()
_set = object.__setattr__  # the class may be frozen


class SagaOptions(ClassOptions, total=False):
    """Options of a saga's class line: those of a procedure class and of a dataclass."""

    init: bool
    repr: bool
    eq: bool
    order: bool | tuple[str, ...]
    unsafe_hash: bool
    frozen: bool
    kw_only: bool
    on_change: OnChange


@dataclass_transform(field_specifiers=(dataclasses.field,))
class Saga(Procedure[R_co]):
    """A dataclass procedure made of each `step` in the order of definition, each with an optional undo.

    Steps of base classes come first; an overridden step keeps its place, and its undo unless it brings another. On
    failure the undos of all steps that were started run in reverse, the failing one's included.

    A procedure stored by earlier code goes on by the names of its steps. A step that is done never runs again; steps
    behind all that are done run. New code may have a step that has not run before one that is done, or lack the next
    step. Then ``on_change`` in the class line decides: ``"park"`` (default), ``"run"`` the first step that has not run,
    or ``"skip"`` those before the last done one. ``order=("reserve", "pay")`` states the order of the steps.
    ``@step(name=…, was=(…))`` keeps the identity of a renamed one.

    Options of the dataclass stand in the class line: ``class Order(Saga, kw_only=True)``; all of
    `dataclasses.dataclass` but ``slots``, ``weakref_slot`` and ``match_args``.
    """

    # The position has a slot, so that __dict__ holds fields and nothing else. What is ours has names that Python makes
    # distinct (two underscores), for attributes and helpers of the user may begin with one. The slot is named as Python
    # calls it in the end: attrs looks for each of them.
    __slots__ = ("_Saga__at", "_Saga__detour")
    __bound_steps: ClassVar[tuple[BoundStep, ...]] = ()
    __route: ClassVar[Route] = Route("Saga", (), "park")
    _engine_has_position: ClassVar[bool] = True

    def __init_subclass__(cls, **options: Unpack[SagaOptions]) -> None:
        given: dict[str, Any] = {**options}
        made = {name: given.pop(name) for name in _DATACLASS_OPTIONS & given.keys()}
        order = made.pop("order") if not isinstance(made.get("order", False), bool) else None
        on_change = given.pop("on_change", None)
        super().__init_subclass__(**given)
        if issubclass(cls, msgspec.Struct):  # which the interpreter does not survive once it is made a dataclass
            msg = f"{cls.__qualname__} is a Saga, so it is a dataclass, and cannot be a msgspec.Struct as well"
            raise TypeError(msg)
        check_steps(cls)
        _make_dataclass(cls, made)
        if order is not None:
            state_order(cls, order)
        cls.__bound_steps = bound_steps_of(cls)
        cls._engine_step_policies = policies_of(cls.__bound_steps)
        check_step_policies(cls, cls._engine_step_policies.items())
        cls.__route = Route(cls.__qualname__, cls.__bound_steps, _on_change_of(cls, on_change, cls.__route.on_change))
        warn_of_idle_methods(cls, {bound_step.undo for bound_step in cls.__bound_steps})

    def execute(self, ctx: Context) -> Status:
        """Run the step at the current position.

        Raises:
            InvalidStatus: The step returned work that nothing would run.
        """
        bound_steps = self.__bound_steps
        at = getattr(self, "_Saga__at", 0)
        if at >= len(bound_steps):
            return Status.done(ctx.event)  # the last step waited, and no other one sees what came
        return self.__status(at, bound_steps[at].run(self, ctx))

    def __status(self, at: int, result: Any) -> Status:
        """The status of a step that returned this."""
        bound_steps = self.__bound_steps
        if isinstance(result, Status):
            if isinstance(result, Suspending | Sleeping | Waiting):
                self.__pass(at)
            elif type(result) is Executing:
                detour = self.__written_out()
                name = detour.names[at]
                detour.repeats[name] = detour.repeats.get(name, 0) + 1
            return result
        if type(result) not in PLAIN_RESULTS and (problem := dropped_work(result)) is not None:
            msg = f"the step {bound_steps[at].name!r} {problem}"
            raise InvalidStatus(msg)
        return _NEXT if self.__pass(at) < len(bound_steps) else Done(result)

    async def _engine_execute_async(self, ctx: AsyncContext) -> Status:
        if overrides(type(self), Saga, "execute"):
            return await super()._engine_execute_async(ctx)
        at = self.__index()
        if at >= len(self.__bound_steps):
            return Status.done(ctx.event)
        return self.__status(at, await called(self.__bound_steps[at].run, self, ctx))

    @classmethod
    def _engine_functions(cls) -> Iterable[Callable[..., Any]]:
        yield from super()._engine_functions()
        for bound_step in cls.__bound_steps:
            yield bound_step.run
            if bound_step.undo is not None:
                yield bound_step.undo

    @classmethod
    def _engine_check_class(cls) -> None:
        if not cls.__bound_steps and not overrides(cls, Saga, "execute"):
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
            if isinstance(part, Step) or undoes(part) is not None or (inspect.isfunction(part) and part in undos):
                yield name

    @staticmethod
    def _engine_brings_undo(namespace: Mapping[str, Any]) -> bool:
        return any(
            undoes(member) is not None or (isinstance(member, Step) and member.undo_function is not None)
            for member in namespace.values()
        )

    @classmethod
    def _engine_hinted_functions(cls) -> Iterable[Callable[..., Any]]:
        return tuple(bound_step.run for bound_step in cls.__bound_steps)

    @classmethod
    def _engine_step_names(cls) -> tuple[str, ...]:
        undone = [f"undo {bound_step.name}" for bound_step in cls.__bound_steps if bound_step.undo is not None]
        return (*(bound_step.name for bound_step in cls.__bound_steps), *undone)

    def __index(self) -> int:
        # An object that was never loaded nor run has no position yet.
        return getattr(self, "_Saga__at", 0)

    def __written_out(self) -> Detour:
        detour: Detour | None = getattr(self, "_Saga__detour", None)
        if detour is None:
            detour = self.__route.detour(self.__index())
            _set(self, "_Saga__detour", detour)
        return detour

    def __pass(self, at: int) -> int:
        """The step at this index is done; the index of the next one."""
        detour: Detour | None = getattr(self, "_Saga__detour", None)
        if detour is None:
            following = at + 1
        else:
            following, detour = self.__route.passed(at, detour)
            _set(self, "_Saga__detour", detour)
        _set(self, "_Saga__at", following)
        return following

    def _engine_next(self) -> tuple[str | None, bool, str | None]:
        at, bound_steps = self.__index(), self.__bound_steps
        if at >= len(bound_steps):
            return None, False, None
        bound_step = bound_steps[at]
        detour: Detour | None = getattr(self, "_Saga__detour", None)
        name = bound_step.name if detour is None else detour.names[at]
        supported = self._engine_supports_rollback() if self._engine_taken else self.rollback_supported
        if bound_step.unit is None or not supported:
            return None, bound_step.no_return, name
        return bound_step.unit if detour is None else name, bound_step.no_return, name

    def _engine_next_unit(self) -> str | None:
        return self._engine_next()[0]

    def _engine_next_name(self) -> str | None:
        return self._engine_next()[2]

    def _engine_next_no_return(self) -> bool:
        return self._engine_next()[1]

    def _engine_undo(self, ctx: Context, unit: str) -> Status | None:
        undo, name, detour = self.__next_undo(unit)
        return None if undo is None else _undone(detour, unit, name, undo(self, ctx))

    async def _engine_undo_async(self, ctx: AsyncContext, unit: str) -> Status | None:
        undo, name, detour = self.__next_undo(unit)
        return None if undo is None else _undone(detour, unit, name, await called(undo, self, ctx))

    def __next_undo(self, unit: str) -> tuple[Callable[..., Any] | None, str, Detour]:
        """The undo of a step, None if it is undone; the name under which it was begun; and the way as it went."""
        at = self.__undoable(unit)
        undo = self.__bound_steps[at].undo
        assert undo is not None, unit
        detour = self.__written_out()
        name = detour.names[at]
        # It may have been begun twice, as an edit of the order put others before it meanwhile.
        return (None if name in detour.undone else undo), name, detour

    def _engine_check_unit(self, unit: str) -> None:
        self.__undoable(unit)

    def __undoable(self, unit: str) -> int:
        """The index of a step that has this name and an undo. Raises `StateRefused`."""
        at = self.__route.find(unit)
        if at is not None and self.__bound_steps[at].undo is not None:
            return at
        problem = (
            f"has no step {unit!r} with an undo any more, and that step is to be undone; bring it back, or write "
            f"@step(was=({unit!r},)) where it has another name now"
        )
        if at is not None:
            problem = f"has no undo of step {unit!r} any more, and that step is to be undone; write one"
        msg = f"{type(self).__qualname__} {problem}"
        raise StateRefused(msg)

    def _engine_rewind(self) -> None:
        _set(self, "_Saga__at", 0)
        _set(self, "_Saga__detour", None)

    def _engine_key(self, mode: Mode, unit: str | None) -> str | None:
        detour: Detour | None = getattr(self, "_Saga__detour", None)
        if mode is Mode.ROLLBACK:
            at = self.__route.find(unit or "")
            if at is None:
                return None
            turn = 0 if detour is None else detour.turn
            name = self.__route.names[at] if detour is None else detour.names[at]
            return f"{name}.undo.{turn + 1}" if turn else f"{name}.undo"
        at = self.__index()
        if mode is not Mode.EXECUTE or at >= len(self.__bound_steps):
            return None
        if detour is None:
            return self.__route.names[at]
        name = detour.names[at]
        repeats = detour.repeats.get(name, 0)
        return f"{name}.{repeats + 1}" if repeats else name

    def _engine_position(self) -> Any:
        return self.__route.stored(self.__index(), getattr(self, "_Saga__detour", None))

    def _engine_restore(self, position: Any) -> None:
        at, detour = self.__route.restored(position)
        _set(self, "_Saga__at", at)
        _set(self, "_Saga__detour", detour)

    def _engine_is_moved(self) -> bool:
        detour: Detour | None = getattr(self, "_Saga__detour", None)
        return detour is not None and (detour.is_moved or detour.refusal is not None)

    def _engine_settle(self) -> None:
        detour = self.__written_out()
        if detour.refusal is not None:
            raise StateRefused(detour.refusal)
        detour.is_moved = False


reserve(Saga, ("execute",))


def _on_change_of(cls: Any, said: Any, inherited: OnChange) -> OnChange:
    """The choice of the class line or of the body; a field or method of that name is none."""
    own = cls.__dict__.get("on_change")
    annotation = own_annotations(cls).get("on_change")
    is_field = annotation is not None and not is_class_variable(annotation)
    if said is None and isinstance(own, str) and not is_field:
        said = own
    if said is None:
        return inherited
    if said not in ON_CHANGE:
        msg = f"{cls.__qualname__} says on_change={said!r:.60}; it is one of {', '.join(map(repr, ON_CHANGE))}"
        raise TypeError(msg)
    choice: OnChange = said
    return choice


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
    """Traits that a decorator above the class would change."""
    fields = tuple((field.name, field.init, field.kw_only) for field in dataclasses.fields(cls))
    return (fields, *(getattr(_params(cls), name) for name in sorted(_DATACLASS_OPTIONS - {"kw_only"})))


def _undone(detour: Detour, unit: str, name: str, undone: Any) -> Status | None:
    """The status of an undo that returned this."""
    if type(undone) not in PLAIN_RESULTS and (problem := dropped_work(undone)) is not None:
        msg = f"the undo of step {unit!r} {problem}"
        raise InvalidStatus(msg)
    if isinstance(undone, Executing):
        detour.turn += 1
    else:
        detour.turn = 0
        detour.undone.append(name)
    # What an undo returns beside a Status is of no use.
    return undone if isinstance(undone, Status) else None
