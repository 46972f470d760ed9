"""One-step procedures made from plain functions."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, ClassVar, Concatenate, Generic, ParamSpec, TypeVar, overload

from actorproc.errors import InvalidStatus
from actorproc.model.policies import LockKey
from actorproc.procedure.authoring.async_context import AsyncContext
from actorproc.procedure.authoring.context import Context
from actorproc.procedure.authoring.dropped_work import PLAIN_RESULTS, dropped_work
from actorproc.procedure.authoring.procedure import Procedure, is_generator
from actorproc.procedure.authoring.status import Done, Status
from actorproc.procedure.authoring.submittable import R_co
from actorproc.procedure.declaring import unsubmitted
from actorproc.procedure.declaring.policies import Limits, RetryPolicy
from actorproc.procedure.values.hints import secret_fields
from actorproc.procedure.values.members import option
from actorproc.procedure.values.secrets.secret import shown
from actorproc.procedure.values.secrets.secret_hints import Hide
from actorproc.procedure.values.type_names import default_type_name

__all__ = ["FunctionProcedure", "ProcedureFunction", "class_behind", "procedure"]

P = ParamSpec("P")
R = TypeVar("R")


class FunctionProcedure(Procedure[R_co]):
    """A call that will be made in a worker: its fields are the bound arguments. Made by a `procedure` function."""

    __procedure_fields__: ClassVar[tuple[str, ...]] = ()
    __procedure_defaults__: ClassVar[dict[str, Any]] = {}
    _function: ClassVar[Callable[..., Any]]
    _locks: ClassVar[Callable[..., Iterable[LockKey]] | None] = None
    _takes_ctx: ClassVar[bool] = False
    _positional: ClassVar[tuple[str, ...]] = ()
    _keywords: ClassVar[tuple[str, ...]] = ()
    _rest: ClassVar[str | None] = None
    _more: ClassVar[str | None] = None
    __init__ = object.__init__  # calls are many, and each makes one

    def execute(self, ctx: Context) -> Status:
        """Call the function; its value is the output, a `Status` is taken as it is."""
        own = type(self)
        if unsubmitted.watched:
            unsubmitted.use(self)
        first = (ctx,) if own._takes_ctx else ()
        args, kwargs = own._call(self)
        result = own._function(*first, *args, **kwargs)
        return result if isinstance(result, Status) else own._done(result)

    @classmethod
    def _done(cls, result: Any) -> Status:
        """The status of a function that returned this value."""
        if type(result) not in PLAIN_RESULTS and (problem := dropped_work(result)) is not None:
            msg = f"{cls.__qualname__} {problem}"
            raise InvalidStatus(msg)
        return Done(result)

    async def _engine_execute_async(self, ctx: AsyncContext) -> Status:
        own = type(self)
        if unsubmitted.watched:
            unsubmitted.use(self)
        args, kwargs = own._call(self)
        first = (ctx,) if own._takes_ctx else ()
        result = await own._function(*first, *args, **kwargs)
        return result if isinstance(result, Status) else own._done(result)

    @classmethod
    def _engine_functions(cls) -> Iterable[Callable[..., Any]]:
        return (cls._function,)

    def lock_keys(self) -> Iterable[LockKey]:
        """Keys that ``locks=`` gives for these arguments."""
        locks = type(self)._locks
        if locks is None:
            return ()
        args, kwargs = type(self)._call(self)
        return locks(*args, **kwargs)

    @staticmethod
    def _engine_parts(namespace: Mapping[str, Any]) -> Iterable[str]:
        names: tuple[str, ...] = namespace.get("__procedure_fields__", ())
        return names

    @classmethod
    def _engine_hinted_functions(cls) -> Iterable[Callable[..., Any]]:
        return (cls._function,)

    @classmethod
    def _engine_secret_fields(cls) -> Mapping[str, Hide]:
        return secret_fields(cls._function)

    def _call(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        own, values = type(self), self.__dict__  # of the class: a parameter may have any name
        args = tuple(values[name] for name in own._positional)
        if own._rest is not None:
            args += tuple(values[own._rest])
        kwargs = {name: values[name] for name in own._keywords}
        if own._more is not None:
            kwargs.update(values[own._more])
        return args, kwargs

    def __repr__(self) -> str:
        return shown(self, type(self).__procedure_fields__, type(self)._engine_secret_fields(), most=60)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.__dict__ == self.__dict__

    __hash__ = None  # type: ignore[assignment]


class ProcedureFunction(Generic[P, R]):
    """Result of `procedure` for a function: calling it gives a `Procedure`; ``function`` is the original."""

    _engine_is_function: ClassVar[bool] = True

    def __init__(self, function: Callable[..., R], procedure_class: type[FunctionProcedure[R]], signature: Any) -> None:
        self.function = function
        self.procedure_class = procedure_class
        self._signature = signature
        functools.update_wrapper(self, function)

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> FunctionProcedure[R]:
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        made: FunctionProcedure[R] = self.procedure_class()
        made.__dict__.update(bound.arguments)
        if unsubmitted.steps_of:
            unsubmitted.note(made, self.function.__name__)
        return made

    def __repr__(self) -> str:
        return f"<procedure {option(self.procedure_class, 'type_name')}>"


def class_behind(subject: Any) -> Any:
    """The class of a procedure function; anything else is itself."""
    return subject.procedure_class if isinstance(subject, ProcedureFunction) else subject


class _Decorator:
    @overload
    def __call__(
        self, function: Callable[Concatenate[AsyncContext, P], Coroutine[Any, Any, R]], /
    ) -> ProcedureFunction[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> ProcedureFunction[P, R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[Context, P], R], /) -> ProcedureFunction[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> ProcedureFunction[P, R]: ...
    def __call__(self, function: Any, /) -> Any:
        return _made(function, self._options, self._locks)

    def __init__(self, options: dict[str, Any], locks: Callable[..., Iterable[LockKey]] | None) -> None:
        self._options = options
        self._locks = locks


@overload
def procedure(
    function: Callable[Concatenate[AsyncContext, P], Coroutine[Any, Any, R]], /
) -> ProcedureFunction[P, R]: ...
@overload
def procedure(function: Callable[P, Coroutine[Any, Any, R]], /) -> ProcedureFunction[P, R]: ...
@overload
def procedure(function: Callable[Concatenate[Context, P], R], /) -> ProcedureFunction[P, R]: ...
@overload
def procedure(function: Callable[P, R], /) -> ProcedureFunction[P, R]: ...
@overload
def procedure(
    *,
    name: str | None = None,
    version: int = 1,
    retry: RetryPolicy | None = None,
    limits: Limits | None = None,
    locks: Callable[..., Iterable[LockKey]] | None = None,
    uses: tuple[Any, ...] = (),
) -> _Decorator: ...
def procedure(
    function: Any = None,
    /,
    *,
    name: str | None = None,
    version: int = 1,
    retry: RetryPolicy | None = None,
    limits: Limits | None = None,
    locks: Callable[..., Iterable[LockKey]] | None = None,
    uses: tuple[Any, ...] = (),
) -> Any:
    """Makes one-step procedures of a function: ``manager.run(resize(path, width=640))``.

    Calling the function binds the arguments and runs nothing. A first parameter named ``ctx`` is given the `Context` of
    the step. As a decorator it stands above the function, with options or without.

    Args:
        function: A plain function.
        name: The type name. Default: "module.qualname".
        version: Version of the arguments, as of a class (`Procedure.version`). Default: 1.
        retry: Errors that are tried again. Default: ``RetryPolicy()``.
        limits: Limits of the step. Default: ``Limits()``.
        locks: Called with the arguments of the function; returns the lock keys. Default: None.
        uses: Classes that values are made of beyond the type hints, and other procedures. Default: none.

    Returns:
        The `ProcedureFunction`; with options a decorator that returns it.

    Raises:
        TypeError: It is no plain function (a method, a coroutine), or ``ctx`` is not its first parameter.
    """
    options = {"type_name": name, "version": version, "retry": retry, "limits": limits, "uses": uses}
    decorator = _Decorator({key: value for key, value in options.items() if value is not None}, locks)
    return decorator if function is None else decorator(function)


def _made(
    function: Callable[..., Any], options: dict[str, Any], locks: Callable[..., Iterable[LockKey]] | None
) -> ProcedureFunction[Any, Any]:
    if not inspect.isfunction(function):
        msg = f"@procedure decorates a plain function, not {function!r}"
        raise TypeError(msg)
    if is_generator(function):
        msg = f"{function.__qualname__} is a generator; @procedure takes a 'def' or an 'async def' without yield"
        raise TypeError(msg)
    signature = inspect.signature(function)
    parameters = list(signature.parameters.values())
    _check_parameters(function, parameters)
    takes_ctx = bool(parameters) and parameters[0].name == "ctx"
    parameters = parameters[1:] if takes_ctx else parameters
    body = {
        "__module__": function.__module__,
        "__qualname__": function.__qualname__,
        "__doc__": function.__doc__,
        "__procedure_fields__": tuple(parameter.name for parameter in parameters),
        "_function": staticmethod(function),
        "_takes_ctx": takes_ctx,
        "__procedure_defaults__": {
            parameter.name: parameter.default for parameter in parameters if parameter.default is not parameter.empty
        },
        **_calling(parameters),
    }
    if locks is not None:
        body["_locks"] = staticmethod(locks)
    options = {"type_name": default_type_name(function), **options}
    made = types.new_class(function.__name__, (FunctionProcedure,), options, lambda namespace: namespace.update(body))
    return ProcedureFunction(function, made, signature.replace(parameters=parameters))


def _check_parameters(function: Any, parameters: list[inspect.Parameter]) -> None:
    """Raise `TypeError` for a method, and for a context that is not the first parameter."""
    name, names = function.__name__, [parameter.name for parameter in parameters]
    if "." in function.__qualname__.rpartition("<locals>.")[2] and names[:1] in (["self"], ["cls"]):
        msg = (
            f"@procedure decorates a function, not the method {function.__qualname__}; move it out of its class, and "
            f"write 'def {name}({', '.join(names[1:])})', or make it the execute(self, ctx) of a Procedure"
        )
        raise TypeError(msg)
    for at, parameter in enumerate(parameters):
        is_context = parameter.name == "ctx" or _is_context(parameter.annotation)
        if is_context and (at > 0 or parameter.name != "ctx" or parameter.kind is parameter.KEYWORD_ONLY):
            rest = [each for each in names if each != parameter.name]
            msg = (
                f"{function.__qualname__} is given its Context as a first parameter of the name ctx; "
                f"write 'def {name}({', '.join(['ctx', *rest])})'"
            )
            raise TypeError(msg)


def _is_context(annotation: object) -> bool:
    if isinstance(annotation, str):
        return annotation.removeprefix("actorproc.") in {"Context", "AsyncContext"}
    return annotation is Context or annotation is AsyncContext


def _calling(parameters: list[inspect.Parameter]) -> dict[str, Any]:
    """Fields by the way in which they are passed."""
    by_position = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    rest = [each.name for each in parameters if each.kind is inspect.Parameter.VAR_POSITIONAL]
    more = [each.name for each in parameters if each.kind is inspect.Parameter.VAR_KEYWORD]
    return {
        "_positional": tuple(each.name for each in parameters if each.kind in by_position),
        "_keywords": tuple(each.name for each in parameters if each.kind is inspect.Parameter.KEYWORD_ONLY),
        "_rest": rest[0] if rest else None,
        "_more": more[0] if more else None,
    }
