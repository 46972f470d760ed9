"""Verbs of operators in words: one table for the command line, the live screen and the page."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

__all__ = ["MANAGER_VERBS", "VERBS", "SteeringVerb", "result_of"]

_Act = Callable[..., Any]
_NONE: Mapping[str, Any] = MappingProxyType({})


class SteeringVerb(NamedTuple):
    """A verb as an operator sees it."""

    title: str
    """On a button."""
    says: str
    """Effect in one clause of a line, for the help of a command, menus and dialogs."""
    act: _Act
    """Does it: called with the engine, the id, and the reason, name and flags by their names."""
    done: str
    """Result in words."""
    refused: str
    """Result when the answer is False."""
    more: str = ""
    """Sentence about what it does besides."""
    forced: str = ""
    """Result with ``force``; "": the same."""
    later: str = ""
    """Result on a stopped store, if it happens when a manager starts."""
    ended: str = ""
    """Result on a stopped store of what has ended with it; "": that of a manager."""
    flags: Mapping[str, str] = _NONE
    """Options that are yes or no, with what each does."""
    is_for_roots: bool = False
    """Children cannot be asked for it."""
    is_for_many: bool = True
    """The page offers it for all that match."""
    is_harmful: bool = False
    """It ends or removes something."""
    refuses: bool = False
    """The answer False is a refusal."""


VERBS: dict[str, SteeringVerb] = {
    "kill": SteeringVerb(
        "Kill the step",
        "end the running attempt; the step runs again",
        lambda engine, id, **asked: engine.kill(id, **asked),
        "its attempt ends, and the step runs again",
        "no worker has a step of it, so there is nothing to kill",
        "Its worker gets SIGKILL; nothing is charged or undone.",
        is_for_many=False,
        is_harmful=True,
        refuses=True,
    ),
    "retry": SteeringVerb(
        "Retry",
        "run a failed root again",
        lambda engine, id, **asked: engine.retry(id, **asked) is not None,
        "runs again",
        "runs again already",
        "A new run goes on from where it failed.",
        later="runs again when a manager starts",
        is_for_roots=True,
    ),
    "restart": SteeringVerb(
        "Restart",
        "begin an ended root again from its first state",
        lambda engine, id, **asked: engine.restart(id, **asked) is not None,
        "begins again",
        "begins again already",
        "It is a new generation; what is stored of the one that ended is removed.",
        later="begins again when a manager starts",
        is_for_roots=True,
    ),
    "abort": SteeringVerb(
        "Abort",
        "ask it to end, and undo what it did",
        lambda engine, id, **asked: engine.abort(id, **asked),
        "asked to abort",
        "has ended already",
        forced="is undone",
        later="is asked to abort when a manager starts",
        ended="aborted",
        flags={"force": "do not ask, and kill the running step"},
        is_harmful=True,
    ),
    "rollback": SteeringVerb(
        "Roll back",
        "undo an unfinished root, as if it had failed",
        lambda engine, id, **asked: engine.rollback(id, **asked),
        "is rolled back",
        "was undone already",
        later="is rolled back when a manager starts",
        is_for_roots=True,
        is_harmful=True,
    ),
    "pause": SteeringVerb(
        "Pause",
        "hand out no more steps of it",
        lambda engine, id, **asked: engine.pause(id, **asked),
        "paused",
        "has ended already",
        "A step that runs may end.",
    ),
    "resume": SteeringVerb(
        "Resume",
        "lift its pause",
        lambda engine, id, **asked: engine.resume(id, **asked),
        "goes on",
        "was not paused itself",
        later="goes on when a manager starts",
    ),
    "bypass": SteeringVerb(
        "Bypass",
        "end it as if it had succeeded: the last resort",
        lambda engine, id, **asked: engine.bypass(id, **asked),
        "bypassed",
        "has ended already",
        "What is half done stays so: an operator has to see to it.",
        flags={
            "force": "kill the running step",
            "children": "all its descendants too",
            "ancestors": "its ancestors too",
        },
        is_for_many=False,
        is_harmful=True,
    ),
    "ack": SteeringVerb(
        "Acknowledge",
        "say that the result of a finished root was taken",
        lambda engine, id, **asked: engine.acknowledge(id, **asked),
        "acknowledged",
        "is not kept any more",
        "So it may be removed.",
        is_for_roots=True,
    ),
    "delete": SteeringVerb(
        "Delete",
        "remove a finished root and all below it",
        lambda engine, id, **asked: engine.delete(id, **asked),
        "deleted",
        "is not kept any more",
        "This cannot be undone.",
        flags={"force": "also if its keys are poisoned; the keys stay so"},
        is_for_roots=True,
        is_harmful=True,
    ),
}
"""Verbs on procedures by the name of the command, those that repair most gently first."""

MANAGER_VERBS: dict[str, SteeringVerb] = {
    "pause": SteeringVerb(
        "Pause all",
        "hand out no more steps of any procedure",
        lambda engine, _, **asked: engine.pause(**asked),
        "paused",
        "was paused already",
        "Steps that run may end.",
    ),
    "resume": SteeringVerb(
        "Resume all",
        "lift the pause of the manager",
        lambda engine, _, **asked: engine.resume(**asked),
        "goes on",
        "was not paused",
        later="goes on when a manager starts",
    ),
}
"""Verbs on everything."""


def result_of(
    verb: SteeringVerb,
    engine: Any,
    id: str,
    flags: Mapping[str, bool] = _NONE,
    *,
    reason: str | None = None,
    by: str | None = None,
) -> tuple[bool, str]:
    """Do a verb to one procedure, or to the whole manager. Raises the refusals of the engine.

    Args:
        verb: The verb.
        engine: A manager, a client, or a stopped store.
        id: The procedure; "": the manager.
        flags: Those of its flags that are set. Default: none.
        reason: Recorded with it. Default: none.
        by: Name that is recorded with it. Default: that of this process.

    Returns:
        The answer of the engine, and the result in words.
    """
    if verb.act(engine, id, reason=reason, by=by, **flags) is False:
        return False, verb.refused
    done = verb.forced if flags.get("force") and verb.forced else verb.done
    if not verb.later or not hasattr(engine, "has_ended"):  # there is a manager
        return True, done
    if id and engine.has_ended(id):
        return True, verb.ended or done
    return True, f"{done} when a manager starts" if done == verb.forced else verb.later
