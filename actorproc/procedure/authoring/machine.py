"""Procedures that are state machines over the user's own enum (after IoTDB and HBase)."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping
from enum import Enum
from typing import Any, ClassVar, Unpack

from actorproc.errors import InvalidStatus, UsageError
from actorproc.procedure.authoring.async_context import AsyncContext, StepContext, called
from actorproc.procedure.authoring.context import Context
from actorproc.procedure.authoring.procedure import RESERVED, Procedure, is_generator, not_plain, say_option
from actorproc.procedure.authoring.status import Executing, Status, Suspending
from actorproc.procedure.authoring.submittable import R_co
from actorproc.procedure.declaring.class_line import ClassOptions
from actorproc.procedure.declaring.policies import Limits, RetryPolicy
from actorproc.procedure.declaring.signatures import HOOKS
from actorproc.procedure.declaring.step_policies import StepPolicies, check_step_policies, checked_step_policies
from actorproc.procedure.encoding.state import StateRefused, no_undo, of_another_kind
from actorproc.procedure.values.members import hook, member, option, overrides, reserve

__all__ = ["StateMachineProcedure"]

_END = ""
_OWN_HOOKS = {
    "execute_from_state": "self, ctx, state",
    "rollback_state": "self, ctx, state",
    "is_rollback_supported": "self, state",
    "is_no_return": "self, state",
}
_POLICIES = ("state_retry", "state_limits")
_OWN_NAMES = (*_OWN_HOOKS, *_POLICIES, "add_child", "cycles", "current_state", "execute")


class MachineOptions(ClassOptions, total=False):
    """Options in the class line of a state machine."""

    state_retry: Mapping[Any, RetryPolicy]
    state_limits: Mapping[Any, Limits]


class StateMachineProcedure(Procedure[R_co]):
    """Set ``initial_state`` to a member of an enum and override `execute_from_state`.

    The state reached is stored by name. Each state that ran is one undo unit: `rollback_state` is called for them in
    reverse.

    States may have retries and limits of their own: ``state_retry = {Phase.COPY: RetryPolicy(…)}`` and
    ``state_limits = {Phase.COPY: Limits(…)}``, as attributes or in the class line. Fields that they do not give are
    those of ``retry`` and ``limits`` of the class. Limits are for the state and for its undo.
    """

    # The position has slots, so that __dict__ holds fields and nothing else. What is ours has names that Python makes
    # distinct (two underscores), for attributes and helpers of the user may begin with one. Slots are named as Python
    # calls them in the end: attrs looks for each of them.
    __slots__ = (
        "_StateMachineProcedure__children",
        "_StateMachineProcedure__cycles",
        "_StateMachineProcedure__reached",
    )
    initial_state: ClassVar[Enum]
    state_retry: ClassVar[Mapping[Any, RetryPolicy]] = {}
    state_limits: ClassVar[Mapping[Any, Limits]] = {}
    _engine_has_position: ClassVar[bool] = True
    _engine_reserved: ClassVar[frozenset[str]] = RESERVED | frozenset(_OWN_NAMES)
    _engine_forms: ClassVar[Mapping[str, str]] = {**HOOKS, **_OWN_HOOKS}

    def __init_subclass__(cls, **options: Unpack[MachineOptions]) -> None:
        given: dict[str, Any] = {**options}
        own = {name: given.pop(name) for name in _POLICIES if name in given}
        super().__init_subclass__(**given)
        for name, value in own.items():
            say_option(cls, name, value)
        cls._engine_step_policies = _policies_of_states(cls)
        check_step_policies(cls, cls._engine_step_policies.items())

    def execute_from_state(
        self, ctx: StepContext, state: Any
    ) -> Enum | Status | Coroutine[Any, Any, Enum | Status | None] | None:
        """Do the work of a state.

        With children added by `add_child`, the next state (or the end) comes when they are finished.

        Args:
            ctx: Facts and requests of the step.
            state: The present state.

        Returns:
            The next state, a `Status` to stay in this one, or None at the end.
        """
        raise NotImplementedError

    def rollback_state(self, ctx: StepContext, state: Any) -> Status | Coroutine[Any, Any, Status | None] | None:
        """Undo the work of a state. Must be idempotent.

        Args:
            ctx: Facts and requests of the undo.
            state: The state that ran.

        Returns:
            None when it is undone, or ``Status.executing()`` to be called again.
        """
        raise NotImplementedError

    def is_rollback_supported(self, state: Any) -> bool:
        """True if `rollback_state` has something to undo for a state.

        Args:
            state: The state.

        Returns:
            True or False. Default: True if `rollback_state` is overridden.
        """
        del state
        return self._engine_supports_rollback()

    def is_no_return(self, state: Any) -> bool:
        """True if a state is a point of no return: once it was begun, failures only retry forward.

        Args:
            state: The state.

        Returns:
            True or False. Default: False.
        """
        del state
        return False

    def add_child(self, procedure: Procedure | tuple[str, Procedure]) -> None:
        """Start a child when the step returns.

        Not in a step that ends with another `Status` than ``suspended``, or ``executing`` without ``after``,
        ``acquire`` and ``no_return``: that fails the step with `InvalidStatus`.

        Args:
            procedure: A procedure, or an ``(id, procedure)`` pair.
        """
        self.__added().append(procedure)

    @property
    def cycles(self) -> int:
        """Number of times in a row that the state did not change."""
        return self.__repeats()

    @property
    def current_state(self) -> Any:
        """The state that runs next; None at the end."""
        return self.__state()

    def execute(self, ctx: Context) -> Status:
        """Run the current state.

        Raises:
            InvalidStatus: `execute_from_state` returned something else than a state, a `Status` or None.
        """
        state = self.__state()
        if state is None:
            return Status.done()
        # A class with a field "cycles", say, has no such property: what is ours is asked for by names of our own.
        run = hook(type(self), "execute_from_state") if self._engine_taken else type(self).execute_from_state
        self.__set("children", [])
        return self.__status(state, run(self, ctx, state))

    def __status(self, state: Any, result: Any) -> Status:
        """The status of a step of a state that returned this."""
        children = self.__added()
        self.__set("children", [])
        if isinstance(result, Status):
            self.__set("cycles", self.__repeats() + 1)
            return _with_children(result, children)
        if result is not None and not isinstance(result, type(self.initial_state)):
            kind = type(self.initial_state).__qualname__
            name = type(self).__qualname__
            msg = f"{name}.execute_from_state returns a {kind}, a Status or None, not {result!r:.120}"
            raise InvalidStatus(msg)
        self.__set("cycles", self.__repeats() + 1 if result is state else 0)
        self.__set("reached", result)
        if children:
            return Status.suspended(children)
        return Status.done() if result is None else Status.executing()

    async def _engine_execute_async(self, ctx: AsyncContext) -> Status:
        if overrides(type(self), StateMachineProcedure, "execute"):
            return await super()._engine_execute_async(ctx)
        state = self.__state()
        if state is None:
            return Status.done()
        self.__set("children", [])
        return self.__status(state, await called(hook(type(self), "execute_from_state"), self, ctx, state))

    @classmethod
    def _engine_functions(cls) -> Iterable[Callable[..., Any]]:
        return (*super()._engine_functions(), hook(cls, "execute_from_state"), hook(cls, "rollback_state"))

    @staticmethod
    def _engine_brings_undo(namespace: Mapping[str, Any]) -> bool:
        return "rollback_state" in namespace and "rollback_state" not in namespace.get("_engine_taken", ())

    @classmethod
    def _engine_value_classes(cls) -> Iterable[type]:
        return (*option(cls, "uses"), type(getattr(cls, "initial_state", None)))

    @classmethod
    def _engine_check_class(cls) -> None:
        if not isinstance(getattr(cls, "initial_state", None), Enum):
            msg = f"{cls.__qualname__} needs initial_state = a member of an enum"
            raise UsageError(msg)
        if not overrides(cls, StateMachineProcedure, "execute_from_state"):
            msg = f"{cls.__qualname__} defines no execute_from_state()"
            raise UsageError(msg)
        if overrides(cls, Procedure, "rollback"):
            msg = (
                f"{cls.__qualname__} defines rollback(), which nothing calls in a StateMachineProcedure; "
                "override rollback_state()"
            )
            raise UsageError(msg)
        for name in _OWN_HOOKS:
            function = member(cls, name)
            if is_generator(function) or (name.startswith("is_") and not_plain(function)):
                msg = f"{cls.__qualname__} has {name}() as a coroutine or a generator; it must be a plain function"
                raise UsageError(msg)

    def __added(self) -> list[Any]:
        added: list[Any] | None = getattr(self, "_StateMachineProcedure__children", None)
        if added is None:
            added = []
            self.__set("children", added)
        return added

    def __state(self) -> Any:
        return getattr(self, "_StateMachineProcedure__reached", self.initial_state)

    def __repeats(self) -> int:
        repeats: int = getattr(self, "_StateMachineProcedure__cycles", 0)
        return repeats

    def __set(self, name: str, value: Any) -> None:
        # The class may be frozen, or a msgspec.Struct, of which `object.__setattr__` wants to know nothing.
        StateMachineProcedure.__dict__[f"_StateMachineProcedure__{name}"].__set__(self, value)

    @classmethod
    def _engine_step_names(cls) -> tuple[str, ...]:
        names = tuple(type(cls.initial_state).__members__)
        undone = overrides(cls, StateMachineProcedure, "rollback_state")
        return (*names, *(f"undo {name}" for name in names)) if undone else names

    def _engine_next_unit(self) -> str | None:
        state = self.__state()
        if state is None or not self._engine_supports_rollback():
            return None
        return str(state.name) if hook(type(self), "is_rollback_supported")(self, state) else None

    def _engine_next_name(self) -> str | None:
        state = self.__state()
        return None if state is None else str(state.name)

    def _engine_next_no_return(self) -> bool:
        state = self.__state()
        return state is not None and bool(hook(type(self), "is_no_return")(self, state))

    @classmethod
    def _engine_hinted_functions(cls) -> Iterable[Callable[..., Any]]:
        return (*super()._engine_hinted_functions(), member(cls, "execute_from_state"))

    def _engine_on_timeout(self, ctx: Context) -> Status | None:
        self.__set("children", [])
        return self.__timed_out(super()._engine_on_timeout(ctx))

    async def _engine_on_timeout_async(self, ctx: AsyncContext) -> Status | None:
        self.__set("children", [])
        return self.__timed_out(await super()._engine_on_timeout_async(ctx))

    def __timed_out(self, status: Any) -> Status | None:
        """The status of `on_timeout` with the children that it added."""
        children = self.__added()
        self.__set("children", [])
        return _with_children(status, children) if isinstance(status, Status) else status

    def _engine_undo(self, ctx: Context, unit: str) -> Status | None:
        self._engine_check_unit(unit)
        undone: Status | None = hook(type(self), "rollback_state")(self, ctx, self.__member(unit))
        return undone

    async def _engine_undo_async(self, ctx: AsyncContext, unit: str) -> Status | None:
        self._engine_check_unit(unit)
        undone: Status | None = await called(hook(type(self), "rollback_state"), self, ctx, self.__member(unit))
        return undone

    def _engine_check_unit(self, unit: str) -> None:
        if not overrides(type(self), StateMachineProcedure, "rollback_state"):
            raise StateRefused(no_undo(type(self), "rollback_state"))
        self.__member(unit)

    def _engine_rewind(self) -> None:
        self.__set("cycles", 0)
        self.__set("reached", self.initial_state)

    def _engine_position(self) -> Any:
        state = self.__state()
        return [_END if state is None else state.name, self.__repeats()]

    def _engine_restore(self, position: Any) -> None:
        if len(position) != 2 or type(position[1]) is not int:
            raise StateRefused(of_another_kind(type(self).__qualname__, "the position of a saga"))
        name, cycles = position
        self.__set("cycles", cycles)
        self.__set("reached", None if name == _END else self.__member(name))

    def __member(self, name: str) -> Any:
        kind = type(self.initial_state)
        if name not in kind.__members__:
            owner = type(self).__qualname__
            msg = (
                f"{kind.__qualname__} has no state {name!r} any more, and {owner} was stored with it; bring it back, "
                f"or write {name} = ... with the value of the one that has its place now, behind that one"
            )
            raise StateRefused(msg)
        return kind[name]


reserve(StateMachineProcedure, _OWN_NAMES)


def _policies_of_states(cls: Any) -> dict[str, StepPolicies]:
    """Policies by name of a state, its aliases included. Raises `TypeError`."""
    retry, limits = (_by_state(cls, name) for name in _POLICIES)
    found: dict[str, StepPolicies] = {}
    for state in dict.fromkeys((*retry, *limits)):
        own = checked_step_policies(
            retry.get(state), limits.get(state), f"the state {state.name} of {cls.__qualname__}"
        )
        found |= {name: own for name, member in type(state).__members__.items() if member is state}
    return found


def _by_state(cls: Any, name: str) -> Mapping[Enum, Any]:
    said = option(cls, name)
    example = "RetryPolicy(…)" if name == "state_retry" else "Limits(…)"
    if not isinstance(said, Mapping):
        msg = f"{cls.__qualname__} has {name}={said!r:.60}; it must be a mapping of states, {{Phase.ONE: {example}}}"
        raise TypeError(msg)
    initial = getattr(cls, "initial_state", None)
    kind = type(initial) if isinstance(initial, Enum) else Enum
    for state, value in said.items():
        if not isinstance(state, kind):
            known = ", ".join(kind.__members__) if kind is not Enum else "members of its enum"
            msg = f"{cls.__qualname__} has {state!r:.60} in {name}, which is none of its states: {known}"
            raise TypeError(msg)
        if value is None:
            msg = f"{cls.__qualname__} has None in {name} of the state {state.name}; write {example}, or leave it out"
            raise TypeError(msg)
    return said


def _with_children(status: Status, children: list[Any]) -> Status:
    if not children:
        return status
    if isinstance(status, Executing):
        if status.after or status.acquire or status.no_return:
            msg = (
                f"children were added by a step that returned {status!r:.120}: after, acquire and no_return are for a "
                "next step that comes at once; return them from a step that adds no children"
            )
            raise InvalidStatus(msg)
        return Status.suspended(children)
    if isinstance(status, Suspending):
        given = [child if name is None else (name, child) for name, child in status.children]
        return Status.suspended(
            [*given, *children],
            wait=status.resume,
            max_parallel=status.max_parallel,
            on_parent_end=status.on_parent_end,
        )
    msg = f"children were added by a step that returned {status!r:.80}; return the next state, None or executing()"
    raise InvalidStatus(msg)
