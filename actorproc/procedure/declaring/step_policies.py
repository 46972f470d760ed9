"""Policies that single steps of a class declare, put over those of the class field by field."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

from actorproc.errors import UsageError
from actorproc.model import policies as model
from actorproc.procedure.declaring.policies import Limits, RetryPolicy, given_by
from actorproc.procedure.values.members import option

__all__ = [
    "StepPolicies",
    "check_given_limits",
    "check_step_policies",
    "checked_step_policies",
    "laid_over",
    "retry_of",
    "stored_step_policies",
]

_OF_PROCEDURE = {
    "dedicated": "gives the procedure a worker for its whole life",
    "threads": "says how many of the class's steps share a worker",
    "tasks": "says how many of the class's steps share a worker",
}
T = TypeVar("T", Limits, RetryPolicy)


class StepPolicies(NamedTuple):
    """Policies of one step; None: those of its class."""

    retry: RetryPolicy | None = None
    limits: Limits | None = None


def checked_step_policies(retry: Any, limits: Any, what: str) -> StepPolicies:
    """The policies of one step. Raises `TypeError` for what is none, or is for whole procedures."""
    if retry is not None and not isinstance(retry, RetryPolicy):
        msg = f"{what} has retry={retry!r:.60}; it must be a RetryPolicy(…)"
        raise TypeError(msg)
    if limits is not None and not isinstance(limits, Limits):
        msg = f"{what} has limits={limits!r:.60}; it must be a Limits(…)"
        raise TypeError(msg)
    if limits is not None and (name := next((name for name in given_by(limits) if name in _OF_PROCEDURE), None)):
        msg = f"{what} has Limits({name}=…), which {_OF_PROCEDURE[name]}; say it in the limits of the class"
        raise TypeError(msg)
    return StepPolicies(retry, limits)


def laid_over(own: T | None, declared: T) -> T:
    """The options of a class, with those that a step or a submit gives in their place. Raises `UsageError`."""
    if own is None:
        return declared
    over = {name: getattr(own, name) for name in given_by(own)}
    return type(declared)(**{**{name: getattr(declared, name) for name in given_by(declared)}, **over})


def retry_of(live: Any, declared: RetryPolicy) -> RetryPolicy:
    """The policy of an object, else of the step that it stands at, else of its class."""
    if live._engine_own_retry is not None:
        own: RetryPolicy = live._engine_own_retry
        return own
    policies: Mapping[str, StepPolicies] = live._engine_step_policies
    found = policies.get(live._engine_next_name() or "") if policies else None
    return declared if found is None else laid_over(found.retry, declared)


def check_step_policies(cls: Any, policies: Iterable[tuple[str, StepPolicies]]) -> None:
    """Raise `TypeError` where limits of a step cannot go with those of its class."""
    declared = option(cls, "limits")
    if not isinstance(declared, Limits):
        return  # the registration says so
    for name, own in policies:
        try:
            merged = laid_over(own.limits, declared)
        except UsageError as error:
            msg = f"the limits of the step {name!r} of {cls.__qualname__} do not go with those of the class: {error}"
            raise TypeError(msg) from None
        if (limit := merged.of_the_process) and any(map(inspect.iscoroutinefunction, cls._engine_functions())):
            msg = (
                f"the step {name!r} of {cls.__qualname__} has Limits({limit}=…), which concerns the whole worker "
                "process, and steps of a class with 'async def' share theirs; leave it out, or do that work in a "
                "plain child procedure"
            )
            raise TypeError(msg)
        if merged.dedicated and (merged.on, merged.resources) != (declared.on, declared.resources):
            msg = (
                f"the step {name!r} of {cls.__qualname__} has on or resources of its own, and the class says "
                "dedicated=True: its one worker stays on its host; say on and resources in the limits of the class"
            )
            raise TypeError(msg)


def check_given_limits(type_name: str, given: model.StepLimits, meta: model.TypeMeta) -> None:
    """Raise `UsageError` where limits of a submit cannot go with those that the class, or a step of it, declares."""
    names = Limits.__struct_fields__
    declared = {"": meta.limits, **{name: policy.limits for name, policy in meta.steps.items()}}
    whole = given.over(meta.limits)
    for step, limits in declared.items():
        merged = given.over(limits)
        where = f"the step {step!r} of {type_name}" if step else type_name
        try:
            Limits(**{name: getattr(merged, name) for name in names})
        except UsageError as error:
            msg = f"the limits of the submit do not go with those of {where}: {error}"
            raise UsageError(msg) from None
        if merged.tasks and not meta.tasks:
            msg = (
                f"{where} has no 'async def' step, and Limits(tasks={merged.tasks}) is for these; write "
                f"threads={merged.tasks}"
            )
            raise UsageError(msg)
        if merged.dedicated and (merged.on, merged.resources) != (whole.on, whole.resources):
            msg = (
                f"the submit says dedicated=True, and {where} has on or resources of its own: its one worker stays on "
                "its host; give the submit on and resources too"
            )
            raise UsageError(msg)


def stored_step_policies(
    policies: Mapping[str, StepPolicies], retry: RetryPolicy, limits: Limits
) -> dict[str, model.StepPolicy]:
    """The policies of steps as the engine has them, put over those of the class."""
    found: dict[str, model.StepPolicy] = {}
    for name, own in policies.items():
        tried = laid_over(own.retry, retry)
        found[name] = model.StepPolicy(
            limits=laid_over(own.limits, limits).of_step, retry=tried.backoff, retries_overtime=tried.retries_overtime
        )
    return found
