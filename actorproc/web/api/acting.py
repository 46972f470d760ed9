"""Handlers of the verbs: each is asked of the manager, or of the stopped store, and answered with an outcome."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from actorproc.errors import NotAllowed
from actorproc.ui.verbs import MANAGER_VERBS, VERBS, result_of
from actorproc.web.answers import ApiError, object_of

if TYPE_CHECKING:
    from actorproc.web.api.operations import CheckedRequest
    from actorproc.web.dashboard import Dashboard

__all__ = [
    "WORDS",
    "ResizeBody",
    "VerbBody",
    "clear_poison",
    "for_manager",
    "one",
    "outcome_of",
    "publish",
    "resize",
    "signal",
    "withdraw",
]

DRY_RUN = "would be done (dry run)"
WORDS = {
    name: {
        "title": verb.title,
        "says": f"{verb.says[0].upper()}{verb.says[1:]}. {verb.more}".rstrip(),
        "flags": dict(verb.flags),
        "many": verb.is_for_many,
        "harmful": verb.is_harmful,
    }
    for name, verb in (*VERBS.items(), *((f"manager/{name}", verb) for name, verb in MANAGER_VERBS.items()))
}
"""The verbs as the buttons and dialogs of the page have them, by the path of each."""


class VerbBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Body of a verb on one procedure."""

    reason: str | None = None
    """An operator's reason; it is recorded."""
    dry_run: bool = False
    """Only say what would be done."""
    force: bool = False
    """abort, bypass: kill the running step. delete: also one whose keys are poisoned."""
    children: bool = False
    """bypass: all its descendants too."""
    ancestors: bool = False
    """bypass: its ancestors too."""


class SignalBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A signal to one procedure."""

    payload: Any = None
    dedup: str | None = None
    """Signals with equal texts count once."""
    reason: str | None = None


class PublishBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An event for whichever procedure waits for its name."""

    event: str
    payload: Any = None
    dedup: str | None = None
    reason: str | None = None


class WithdrawBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Signals that are taken back: those to a procedure, or those of an event."""

    id: str | None = None
    event: str | None = None
    number: int | None = None
    reason: str | None = None


class PoisonBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A key that is sound again."""

    key: str
    reason: str | None = None


class ManagerBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request about the whole manager."""

    reason: str | None = None


class ResizeBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A number of worker processes."""

    workers: int


def outcome_of(
    subject: str | None, verb: str, result: Any = None, *, error: str | None = None, applied: str | None = None
) -> dict[str, Any]:
    """An ``outcome``."""
    fields = {"id": subject, "verb": verb, "ok": error is None, "result": result, "error": error}
    return object_of("outcome", {**fields, "applied_to": applied})


def act(engine: Any, verb: str, id: str, body: VerbBody, by: str) -> str:
    """Do a verb to one procedure; says what came of it. Raises the refusals of the engine."""
    known = VERBS[verb]
    flags = {name: True for name in known.flags if getattr(body, name)}
    for name in ("force", "children", "ancestors"):
        if getattr(body, name) and name not in known.flags:
            msg = f"{verb} takes no {name}"
            raise ValueError(msg)
    is_done, words = result_of(known, engine, id, flags, reason=body.reason, by=by)
    if not is_done and known.refuses:
        info = engine.info(id)
        stands = f"it has ended {info.state}" if info.finished_at is not None else f"it is {info.phase}"
        raise NotAllowed(f"{words}: {stands}")
    return words


def one(verb: str) -> Callable[[Dashboard, CheckedRequest], dict[str, Any]]:
    """The handler of a verb on one procedure."""

    def handle(board: Dashboard, asked: CheckedRequest) -> dict[str, Any]:
        id, body = asked.path["id"], msgspec.convert(asked.body, VerbBody)
        if body.dry_run:
            board.source.read(lambda reader: reader.info(id))
            return outcome_of(id, verb, DRY_RUN)
        result, applied = board.source.steer(lambda engine: act(engine, verb, id, body, asked.user))
        return outcome_of(id, verb, result, applied=applied)

    return handle


def signal(board: Dashboard, asked: CheckedRequest) -> dict[str, Any]:
    """Send a signal."""
    id, body = asked.path["id"], msgspec.convert(asked.body, SignalBody)
    done, applied = board.source.steer(
        lambda engine: engine.signal(id, body.payload, body.dedup, reason=body.reason, by=asked.user)
    )
    return outcome_of(id, "signal", "sent" if done else "has ended already", applied=applied)


def publish(board: Dashboard, asked: CheckedRequest) -> dict[str, Any]:
    """Publish an event."""
    body = msgspec.convert(asked.body, PublishBody)
    _, applied = board.source.steer(
        lambda engine: engine.publish(body.event, body.payload, body.dedup, reason=body.reason, by=asked.user)
    )
    return outcome_of(None, "publish", "published", applied=applied)


def withdraw(board: Dashboard, asked: CheckedRequest) -> dict[str, Any]:
    """Take signals back."""
    body = msgspec.convert(asked.body, WithdrawBody)
    number, applied = board.source.steer(
        lambda engine: engine.withdraw(body.id, event=body.event, number=body.number, reason=body.reason, by=asked.user)
    )
    return outcome_of(body.id, "withdraw", f"{number} withdrawn", applied=applied)


def clear_poison(board: Dashboard, asked: CheckedRequest) -> dict[str, Any]:
    """Give a poisoned key back."""
    body = msgspec.convert(asked.body, PoisonBody)
    done, applied = board.source.steer(lambda engine: engine.clear_poison(body.key, reason=body.reason, by=asked.user))
    return outcome_of(None, "clear-poison", "cleared" if done else "was not poisoned", applied=applied)


def resize(board: Dashboard, asked: CheckedRequest) -> dict[str, Any]:
    """Change the number of workers. Raises `ApiError` (409) when the manager is of another process."""
    body = msgspec.convert(asked.body, ResizeBody)
    manager = board.source.manager
    if manager is None:
        raise ApiError(
            409,
            "the number of workers is changed by the process that has the manager, and this page is in another one",
            "mount the page there: create_app(manager, …)",
        )
    manager.resize(body.workers)
    return outcome_of(None, "resize", f"{body.workers} workers", applied="manager")


def for_manager(verb: str) -> Callable[[Dashboard, CheckedRequest], dict[str, Any]]:
    """The handler of a verb on everything."""

    def handle(board: Dashboard, asked: CheckedRequest) -> dict[str, Any]:
        body = msgspec.convert(asked.body, ManagerBody)
        (_, result), applied = board.source.steer(
            lambda engine: result_of(MANAGER_VERBS[verb], engine, "", reason=body.reason, by=asked.user)
        )
        return outcome_of(None, verb, result, applied=applied)

    return handle
