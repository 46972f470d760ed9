"""Requests of callers and operators in a history: calls made from actions, and the operator who draws them."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from msgspec.structs import replace

from actorproc.model.ids import event_target
from actorproc.model.messages.events import (
    AbortRequested,
    Acknowledged,
    BypassRequested,
    DeleteRequested,
    ForkRequested,
    KillRequested,
    PauseRequested,
    PoisonCleared,
    Published,
    ReloadBegan,
    Resized,
    RestartRequested,
    ResultsTaken,
    ResumeRequested,
    RetryRequested,
    RollbackRequested,
    ScheduleDeclared,
    ScheduleSteered,
    Signalled,
    SignalsWithdrawn,
    Submitted,
)
from actorproc.model.rows.asks import AskKey
from actorproc.model.rows.record_parts import TOKEN
from actorproc.model.rows.records import IdReuse, NewProcedure, ProcedureRecord
from actorproc.model.states import TERMINAL, ProcedureState
from tests.simulator.generators.debounces import Debounces
from tests.simulator.generators.scripts import ClientAction, Scenario
from tests.simulator.rules.judge import Entry

__all__ = [
    "FIRST_ANEW",
    "FIRST_REPORTS",
    "FIRST_RESTARTS",
    "LAST_ANEW",
    "RESUBMITS",
    "Call",
    "Operator",
    "Resubmits",
    "anew",
    "call_of",
    "described",
]

Call = (
    Submitted
    | AbortRequested
    | Acknowledged
    | BypassRequested
    | DeleteRequested
    | ForkRequested
    | KillRequested
    | PauseRequested
    | PoisonCleared
    | ReloadBegan
    | Resized
    | RestartRequested
    | ResultsTaken
    | ResumeRequested
    | RetryRequested
    | RollbackRequested
    | ScheduleDeclared
    | ScheduleSteered
    | Signalled
    | Published
    | SignalsWithdrawn
)
"""Request for whose answer a caller waits."""

_WHY = "in a test"
FIRST_RESTARTS = 40_000_000_000
"""Seed from which on ids are submitted again with a policy: seeds that were kept before mean what they meant."""
FIRST_REPORTS = 60_000_000_000
"""Seed from which on steps show values and send heartbeats with details as well."""
FIRST_ANEW = 70_000_000_000
"""First of the seeds, up to those of hosts, in which ended roots are restarted by their ids, and roots are forked."""
LAST_ANEW = 79_999_999_999
_POLICIES = ("restart", "restart", "restart-failed", "restart-failed", "error")

RESUBMITS = frozenset({"resubmit", "repeat", "debounce", "debounce-again"})
"""Kinds of actions whose submits `Resubmits` makes."""
_SENDERS = (b"", b"s" * 25, b"", b"s" * 25 + b"vendor=1")
"""Contexts of traces in which signals are sent, by turns."""


_WITH_A_REASON: dict[str, Callable[[str, int, str], RetryRequested | RollbackRequested | KillRequested]] = {
    "retry": RetryRequested,
    "rollback": RollbackRequested,
    "kill": KillRequested,
}


def call_of(action: ClientAction, reply: int) -> Call:
    """The call of an action that is one; a pause or a resume without a target is of the whole manager."""
    target, *options = action.targets or ("",)
    match action.kind:
        case "abort" | "force":
            return AbortRequested(target, reply, force=action.kind == "force")
        case "clear":
            return PoisonCleared(target, reply)
        case "retry" | "rollback" | "kill":
            return _WITH_A_REASON[action.kind](target, reply, _WHY)
        case "bypass":
            children, ancestors, force = (name in options for name in ("children", "ancestors", "force"))
            return BypassRequested(target, reply, children=children, ancestors=ancestors, force=force)
        case "pause" | "resume":
            return (PauseRequested if action.kind == "pause" else ResumeRequested)(target or None, reply, _WHY)
        case "resize":
            return Resized(int(target), None, reply)
        case "delete":
            return DeleteRequested(target, reply, force="force" in options)
        case "acknowledge":
            return Acknowledged(target, reply)
        case "reload":
            return ReloadBegan(reply)
        case "taken":
            return ResultsTaken((target,), reply)
        case "withdraw":
            is_id = "id" in options
            return SignalsWithdrawn(target if is_id else None, None if is_id else target, reply, reason=_WHY)
        case _:
            return _sent(action, reply)


def _sent(action: ClientAction, reply: int) -> Signalled | Published:
    target, *options = action.targets
    if action.kind == "ask":
        name, id_ = options
        return Signalled(target, b"signal ask %s" % id_.encode(), reply, ask=AskKey(name, id_))
    dedup = options[0] if options else None
    payload = b"signal %d" % reply if dedup is None else b"signal " + dedup.encode()
    make = Published if action.kind == "publish" else Signalled
    return make(target, payload, reply, dedup, trace=_SENDERS[reply % len(_SENDERS)])


_KINDS: dict[type[Call], str] = {
    AbortRequested: "abort",
    Acknowledged: "acknowledge",
    BypassRequested: "bypass",
    DeleteRequested: "delete",
    KillRequested: "kill",
    PauseRequested: "pause",
    ResumeRequested: "resume",
    RetryRequested: "retry",
    RollbackRequested: "rollback",
}


def described(call: Call) -> tuple[str, str, bytes] | None:
    """Kind, target and payload of a call for the journal.

    None for a submit, which is noted when it is made, and for a resize or a reload, of which nothing is stored.
    """
    match call:
        case Submitted() | RestartRequested() | ForkRequested() | Resized() | ReloadBegan():
            return None
        case ScheduleDeclared() | ScheduleSteered():
            return None
        case ResultsTaken():
            return "taken", call.ids[0], b""
        case Signalled():
            return "signal", call.id, call.payload
        case Published():
            return "publish", event_target(call.name), call.payload
        case SignalsWithdrawn():
            return "withdraw", call.id or event_target(call.name or ""), b""
        case PoisonCleared():
            return "clear", call.path, b""
        case _:
            return _KINDS[type(call)], call.id or "", b""


def anew(
    action: ClientAction, new: list[NewProcedure], heads: list[ProcedureRecord], number: int
) -> RestartRequested | ForkRequested | None:
    """The request of a "restart" or a "fork", whose second target is the new id; None: there is nothing to do it to."""
    head = next((head for head in heads if head.id == action.targets[0]), None)
    if head is None:
        return None
    token = number.to_bytes(TOKEN, "big")
    if action.kind == "restart":
        again = replace(new[0], reuse=IdReuse("restart", token))
        return RestartRequested(head.id, number, again, head.generation, _WHY)
    fork = replace(new[0], id=action.targets[1], reuse=IdReuse("error", token))
    return ForkRequested(head.id, number, fork, 1, _WHY)


class Resubmits:
    """Submits of ids that may exist, with a policy; the newest of them may arrive once more. Debounced submits too."""

    def __init__(self) -> None:
        self._debounces = Debounces()
        self._newest: tuple[NewProcedure, ...] = ()

    def of(self, action: ClientAction, new: list[NewProcedure], number: int) -> tuple[NewProcedure, ...]:
        """Procedures that an action of `RESUBMITS` submits; none where there is nothing to repeat.

        `number` is one that no other submit of the history has.
        """
        if action.kind.startswith("debounce"):
            return self._debounces.of(action, new)
        if action.kind == "resubmit":
            policy: Any = action.targets[1]
            self._newest = (replace(new[0], reuse=IdReuse(policy, number.to_bytes(TOKEN, "big"))),)
        return self._newest

    @staticmethod
    def entries(call: int, procedures: tuple[NewProcedure, ...]) -> list[Entry]:
        """Entries of the journal about a submit."""
        if procedures[0].debounce is not None:
            return [("debounce", call, procedures[0])]
        marked = [("resubmit", call, new.id, new.reuse.token) for new in procedures if new.reuse is not None]
        return [("submit", call, tuple(new.id for new in procedures)), *marked]


class Operator:
    """An operator that looks at what is stored and asks for things now and then. Has chance of its own."""

    def __init__(self, seed: int, scenario: Scenario, *, restarts: bool, anew: bool) -> None:
        """`restarts`: ids are submitted again with policies. `anew`: some of these are restarts by id, and forks."""
        self._anew = anew
        self.random: Callable[[], float] = Random(f"operator of {seed}").random
        self._bystander = scenario.bystander
        self._roots = [name for name in scenario.roots if name != scenario.bystander]
        self._left = int(self.random() * 14)
        """Requests still to come."""
        self._last_dedup = 0
        self._is_to_restart = restarts

    def wants(self) -> bool:
        """True if the next move is the operator's."""
        return self._left > 0 and self.random() < 0.06

    def below(self, bound: int) -> int:
        """A number from 0 to below the bound."""
        return int(self.random() * bound)

    def action(self, heads: list[ProcedureRecord]) -> ClientAction | None:
        """Request of the operator, given all stored heads; None when there is no procedure to ask about."""
        heads = [head for head in heads if head.root != self._bystander]
        if not heads:
            return None
        self._left -= 1
        if self._is_to_restart and (again := self._again(heads)) is not None:
            return again
        missing = [name for name in self._roots if all(head.id != name for head in heads)]
        if missing and self.random() < 0.3:
            return ClientAction("submit", (missing[self.below(len(missing))],))
        failed = [head for head in heads if head.state is ProcedureState.FAILED and head.parent is None]
        if failed and self.random() < 0.5:
            kinds = ("retry", "retry", "retry", "bypass", "delete", "acknowledge")
            return ClientAction(kinds[self.below(len(kinds))], (failed[self.below(len(failed))].id,))
        live = [head for head in heads if head.state not in TERMINAL]
        if live and self.random() < 0.85:
            heads = live
        return self._about(heads[self.below(len(heads))])

    def _again(self, heads: list[ProcedureRecord]) -> ClientAction | None:
        """An id that exists is submitted with a policy, or an earlier submit of that kind comes once more."""
        roots = [head for head in heads if head.id in self._roots]
        ended = [head for head in roots if head.state in TERMINAL]
        draw = self.random()
        if draw > 0.5 or not roots:
            return None
        if draw > 0.4:
            return ClientAction("repeat", ())
        chosen = ended if ended and draw < 0.3 else roots
        policy = _POLICIES[self.below(len(_POLICIES))]
        if self._anew and policy != "restart-failed":
            target = chosen[self.below(len(chosen))].id
            return (
                ClientAction("restart", (target,))
                if policy == "restart"
                else ClientAction("fork", (target, f"{target}-fork{self.below(4)}"))
            )
        return ClientAction("resubmit", (chosen[self.below(len(chosen))].id, policy))

    def _about(self, head: ProcedureRecord) -> ClientAction:
        kinds = ("bypass", "bypass", "pause", "pause", "pause all", "resume", "resume all", "rollback", "force")
        kind = (*kinds, "abort", "retry", "delete", "acknowledge", "signal", "signal")[self.below(15)]
        if kind.endswith("all"):
            return ClientAction(kind.split(" ")[0], ("",))
        if kind == "bypass":
            options = tuple(name for name in ("children", "ancestors", "force") if self.random() < 0.5)
            return ClientAction(kind, (head.id, *options))
        if kind == "delete":
            return ClientAction(kind, (head.root, "force") if self.random() < 0.5 else (head.root,))
        if kind == "signal":
            if self.random() < 0.6:
                self._last_dedup += 1
            kind, target = ("publish", "event0") if self.random() < 0.5 else (kind, head.id)
            return ClientAction(kind, (target, f"id {target} {self._last_dedup}"))
        return ClientAction(kind, (head.id if kind not in {"rollback", "acknowledge"} else head.root,))
