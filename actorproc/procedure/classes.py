"""What the engine reads from a procedure class at registration, and what it refuses."""

from __future__ import annotations

import inspect
from typing import Any

from actorproc.errors import UsageError
from actorproc.model.exact import exact_text
from actorproc.model.policies import TypeMeta
from actorproc.procedure.function import ProcedureFunction
from actorproc.procedure.policies import Limits, RetryPolicy, is_count
from actorproc.procedure.procedure import Procedure, not_plain
from actorproc.procedure.signing import SigningKey

__all__ = ["check_class", "meta_of", "meta_of_loader"]

_CODECS = ("data", "pickle")
_HOOKS = ("before_recover", "after_recover", "on_timeout", "on_completed")
_ITERATED = ("lock_keys", "limit_keys", "poison_keys")
_METHODS = ("execute", "rollback", "abort", "dump", "load", "migrate", *_HOOKS, *_ITERATED)


def meta_of(cls: type[Procedure], type_name: str) -> TypeMeta:
    """The traits of a class, as its procedures carry them."""
    limits = cls.limits.of_step
    return TypeMeta(
        type_name=type_name,
        version=cls.version,
        retry=cls.retry.backoff,
        rollback_retry=cls.rollback_retry.backoff,
        rollback_supported=cls._engine_supports_rollback(),
        best_effort=cls.rollback_mode == "best-effort",
        on_child_failure="resume" if cls.on_child_failure == "resume" else "fail",
        undo_children=cls.undo_children,
        lock_scope="step" if cls.lock_scope == "step" else "procedure",
        crashes=limits.crashes,
        wall_time=limits.wall_time,
        grace=limits.grace,
        asks_abort=cls.abort is not Procedure.abort,
        has_on_timeout=cls.on_timeout is not Procedure.on_timeout,
        codec=exact_text(cls.codec),
        work_class=exact_text(cls.work_class),
        cpu_time=limits.cpu_time,
        memory=limits.memory,
        memory_hard=limits.memory_hard,
        dedicated=limits.dedicated,
        threads=limits.threads,
        nice=limits.nice,
        cpus=limits.cpus,
        processes=limits.processes,
        retries_overtime=cls.retry.retries_overtime,
    )


def meta_of_loader(type_name: str) -> TypeMeta:
    """For a loader: what its objects override is not known, so they are always asked."""
    return TypeMeta(type_name=type_name, asks_abort=True, has_on_timeout=True)


def check_class(cls: Any, signing_key: SigningKey | None) -> None:
    """Raise `UsageError` saying what is wrong with the class."""
    problem = _wrong_method(cls) or _wrong_attribute(cls) or _wrong_codec(cls, signing_key)
    if problem is not None:
        msg = f"{cls.__qualname__} {problem}"
        raise UsageError(msg)
    cls._engine_check_class()


def _wrong_method(cls: Any) -> str | None:
    if cls.execute is Procedure.execute:
        return "defines no execute()"
    for name in _METHODS:
        method = getattr(cls, name)
        if not callable(method):
            return f"has {name} = {method!r:.60}; it must be a method"
        if not_plain(method) and not (name in _ITERATED and inspect.isgeneratorfunction(method)):
            article = "an" if name[0] in "aeiou" else "a"
            return f"has {article} {name}() that is a coroutine or a generator; steps and hooks are plain functions"
    return None


def _wrong_attribute(cls: Any) -> str | None:
    if not isinstance(cls.type_name, str) or not 0 < len(cls.type_name) <= 255 or not cls.type_name.isprintable():
        return f"has the type_name {cls.type_name!r}; it must be 1 to 255 printable characters"
    if not is_count(cls.version, 0):
        return f"has the version {cls.version!r}; it must be a whole number"
    if not isinstance(cls.retry, RetryPolicy) or not isinstance(cls.rollback_retry, RetryPolicy):
        return "has a retry or rollback_retry that is no RetryPolicy"
    if not isinstance(cls.limits, Limits):
        return f"has limits = {cls.limits!r}; it must be a Limits"
    if cls.rollback_mode not in {"strict", "best-effort"}:
        return f"has rollback_mode = {cls.rollback_mode!r}; it must be 'strict' or 'best-effort'"
    if type(cls.undo_children) is not bool:
        return f"has undo_children = {cls.undo_children!r}; it must be True or False"
    if cls.on_child_failure not in {"fail", "resume"}:
        return f"has on_child_failure = {cls.on_child_failure!r}; it must be 'fail' or 'resume'"
    if cls.lock_scope not in {"procedure", "step"}:
        return f"has lock_scope = {cls.lock_scope!r}; it must be 'procedure' or 'step'"
    if not isinstance(cls.work_class, str) or not 0 < len(cls.work_class) <= 255:
        return f"has work_class = {cls.work_class!r}; it must be a name of 1 to 255 characters"
    if not isinstance(cls.uses, tuple) or not all(isinstance(used, type | ProcedureFunction) for used in cls.uses):
        return "has a uses that is no tuple of classes and procedure functions"
    return None


def _wrong_codec(cls: Any, signing_key: SigningKey | None) -> str | None:
    if cls.codec not in _CODECS:
        return f"has codec = {cls.codec!r}; it must be 'data' or 'pickle'"
    if cls.codec == "pickle" and signing_key is None:
        return "asks for the codec 'pickle', which needs a signing key; register it with one, or use the codec 'data'"
    if (cls.codec == "pickle" or cls.dump is not Procedure.dump) and cls._engine_secret_names():
        return (
            f"marks {min(cls._engine_secret_names())!r} as Secret, and its state is opaque (a pickle, or a dump() of "
            "its own), so that nobody could leave it out; use the codec 'data' and the fields as they are"
        )
    if cls.codec == "pickle" and cls.dump is not Procedure.dump:
        return "asks for the codec 'pickle' and overrides dump(); do one of the two"
    return None
