"""Reading of a procedure class at its registration, and reasons to refuse it."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from enum import Enum
from typing import Any

from actorproc.errors import UsageError
from actorproc.model.exact import exact_text
from actorproc.model.policies import TASKS, TypeMeta
from actorproc.procedure.authoring.async_context import is_async
from actorproc.procedure.authoring.function import ProcedureFunction
from actorproc.procedure.authoring.procedure import Procedure, is_generator, not_plain
from actorproc.procedure.declaring.policies import Limits, RetryPolicy, is_count
from actorproc.procedure.declaring.searchable import wrong_searchable
from actorproc.procedure.declaring.signatures import HOOKS, MAY_BE_ASYNC
from actorproc.procedure.declaring.step_policies import laid_over, stored_step_policies
from actorproc.procedure.encoding.signing import SigningKey
from actorproc.procedure.values.evolution import check_alias
from actorproc.procedure.values.fields import declared_fields
from actorproc.procedure.values.members import OptionsOf, is_class_variable, member, overrides, own_annotations
from actorproc.procedure.values.secrets.secret import SecretField

__all__ = ["check_class", "meta_of", "meta_of_loader", "runs_on_loop"]

_CODECS = ("data", "pickle")
_ITERATED = ("lock_keys", "limit_keys", "poison_keys")


def meta_of(cls: type[Procedure], type_name: str) -> TypeMeta:
    """The traits of a class, as its procedures carry them."""
    said = OptionsOf(cls)
    declared = said.limits
    if runs_on_loop(cls) and declared.tasks is None:
        declared = laid_over(Limits(tasks=TASKS), declared)
    limits = declared.of_step
    return TypeMeta(
        type_name=type_name,
        version=said.version,
        retry=said.retry.backoff,
        rollback_retry=said.rollback_retry.backoff,
        rollback_supported=cls._engine_supports_rollback(),
        best_effort=said.rollback_mode == "best-effort",
        on_child_failure="resume" if said.on_child_failure == "resume" else "fail",
        undo_children=said.undo_children,
        lock_scope="step" if said.lock_scope == "step" else "procedure",
        crashes=limits.crashes,
        wall_time=limits.wall_time,
        grace=limits.grace,
        asks_abort=overrides(cls, Procedure, "abort"),
        has_on_timeout=overrides(cls, Procedure, "on_timeout"),
        codec=exact_text(said.codec),
        work_class=exact_text(said.work_class),
        cpu_time=limits.cpu_time,
        memory=limits.memory,
        memory_hard=limits.memory_hard,
        dedicated=limits.dedicated,
        threads=limits.threads,
        tasks=limits.tasks or 0,
        nice=limits.nice,
        cpus=limits.cpus,
        processes=limits.processes,
        retries_overtime=said.retry.retries_overtime,
        abort_grace=limits.abort_grace,
        heartbeat=limits.heartbeat,
        lock_wait=limits.lock_wait,
        on=limits.on,
        resources=limits.resources,
        keep_steps=said.keep_steps,
        steps=stored_step_policies(cls._engine_step_policies, said.retry, declared),
    )


def meta_of_loader(type_name: str) -> TypeMeta:
    """For a loader: what its objects override is not known, so they are always asked."""
    return TypeMeta(type_name=type_name, asks_abort=True, has_on_timeout=True)


def check_class(cls: Any, signing_key: SigningKey | None) -> None:
    """Raise `UsageError` saying what is wrong with the class."""
    said = OptionsOf(cls)
    problem = (
        _wrong_method(cls)
        or _wrong_attribute(said)
        or _wrong_limits(said.limits, on_loop=runs_on_loop(cls))
        or _wrong_codec(cls, said, signing_key)
        or _lost_field(cls)
        or wrong_searchable(cls, said.searchable, dumps=overrides(cls, Procedure, "dump"))
    )
    if problem is not None:
        msg = f"{cls.__qualname__} {problem}"
        raise UsageError(msg)
    cls._engine_check_class()


def _wrong_method(cls: Any) -> str | None:
    if not overrides(cls, Procedure, "execute"):
        return "defines no execute()"
    for name in HOOKS:
        found = member(cls, name)
        method = found.__get__(None, cls) if hasattr(type(found), "__get__") else found
        if not callable(method):
            return f"has {name} = {method!r:.60}; it must be a method"
        may_wait = name in MAY_BE_ASYNC and not is_generator(method)
        if not_plain(method) and not may_wait and not (name in _ITERATED and inspect.isgeneratorfunction(method)):
            article = "an" if name[0] in "aeiou" else "a"
            wanted = "without yield" if name in MAY_BE_ASYNC else "a plain function"
            return f"has {article} {name}() that is a coroutine or a generator; it must be {wanted}"
    return None


def runs_on_loop(cls: type[Procedure]) -> bool:
    """The steps of a class run on an event loop: a function of it is written with ``async def``."""
    return any(map(is_async, cls._engine_functions()))


def _wrong_limits(limits: Limits, *, on_loop: bool) -> str | None:
    if not on_loop:
        if limits.tasks is None:
            return None
        return f"has no 'async def' step, and Limits(tasks={limits.tasks}) is for these; write threads={limits.tasks}"
    limit = "threads" if limits.threads > 1 else limits.of_the_process
    if not limit:
        return None
    return (
        f"has 'async def' steps, which share a worker process with others, and Limits({limit}=…) concerns the whole "
        "process"
        + ("; write tasks=" if limit == "threads" else "; leave it out, or do that work in a plain child procedure")
    )


def _wrong_attribute(said: OptionsOf) -> str | None:
    if not isinstance(said.type_name, str) or not 0 < len(said.type_name) <= 255 or not said.type_name.isprintable():
        return f"has the type_name {said.type_name!r}; it must be 1 to 255 printable characters"
    if not is_count(said.version, 0):
        return f"has the version {said.version!r}; it must be a whole number"
    if not isinstance(said.retry, RetryPolicy) or not isinstance(said.rollback_retry, RetryPolicy):
        return "has a retry or rollback_retry that is no RetryPolicy"
    if not isinstance(said.limits, Limits):
        return f"has limits = {said.limits!r}; it must be a Limits"
    if said.rollback_mode not in {"strict", "best-effort"}:
        return f"has rollback_mode = {said.rollback_mode!r}; it must be 'strict' or 'best-effort'"
    if type(said.undo_children) is not bool:
        return f"has undo_children = {said.undo_children!r}; it must be True or False"
    if said.on_child_failure not in {"fail", "resume"}:
        return f"has on_child_failure = {said.on_child_failure!r}; it must be 'fail' or 'resume'"
    if said.lock_scope not in {"procedure", "step"}:
        return f"has lock_scope = {said.lock_scope!r}; it must be 'procedure' or 'step'"
    if said.keep_steps is not None and not is_count(said.keep_steps, 1):
        return f"has keep_steps = {said.keep_steps!r}; it must be a number of steps, at least 1, or None"
    if not isinstance(said.work_class, str) or not 0 < len(said.work_class) <= 255:
        return f"has work_class = {said.work_class!r}; it must be a name of 1 to 255 characters"
    if not isinstance(said.uses, tuple) or not all(isinstance(used, type | ProcedureFunction) for used in said.uses):
        return "has a uses that is no tuple of classes and procedure functions"
    return _wrong_aliases(said.aliases)


def _wrong_aliases(aliases: Any) -> str | None:
    if not isinstance(aliases, Mapping):
        return f"has aliases = {aliases!r:.60}; it must be a mapping of earlier names to classes or members of enums"
    for name, now in aliases.items():
        try:
            check_alias(name)
        except TypeError as error:
            return f"has a wrong alias: {error}"
        if not isinstance(now, Enum) and (
            not isinstance(now, type) or (declared_fields(now) is None and not issubclass(now, Enum))
        ):
            return f"has an alias of {now!r:.60}; it must be a class with declared fields, an enum, or a member of one"
    return None


def _wrong_codec(cls: Any, said: OptionsOf, signing_key: SigningKey | None) -> str | None:
    dumps = overrides(cls, Procedure, "dump")
    if said.codec not in _CODECS:
        return f"has codec = {said.codec!r}; it must be 'data' or 'pickle'"
    if said.codec == "pickle" and signing_key is None:
        return "asks for the codec 'pickle', which needs a signing key; register it with one, or use the codec 'data'"
    marked = [name for name, hide in cls._engine_secret_fields().items() if hide is SecretField]
    if (said.codec == "pickle" or dumps) and marked:
        return (
            f"marks {min(marked)!r} as Secret, and its state is opaque (a pickle, or a dump() of "
            "its own), so that it could not be left out; use the codec 'data' and the fields as they are"
        )
    if said.codec == "pickle" and dumps:
        return "asks for the codec 'pickle' and overrides dump(); do one of the two"
    return None


def _lost_field(cls: Any) -> str | None:
    """A field that a subclass of a dataclass annotates, and that no decorator has made one."""
    fields = declared_fields(cls)
    if fields is None:
        return None
    for base in cls.__mro__:
        if (
            "_engine_taken" not in base.__dict__
            or declared_fields(base) is None
            or "__dataclass_params__" in vars(base)
        ):
            continue
        for name, annotation in own_annotations(base).items():
            if name[0] != "_" and name not in fields and not hasattr(base, name) and not is_class_variable(annotation):
                return (
                    f"annotates {name!r}, which is no field of it, so its value would be lost; "
                    f"write '@dataclass' above 'class {base.__name__}', as above its base class"
                )
    return None
