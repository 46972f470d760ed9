"""Messages to procedures: signals to one procedure, events for the procedure that waits for them."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

from actorproc.api.verbs.base import EngineVerbs
from actorproc.engine.arguments import (
    checked_by,
    checked_dedup,
    checked_event,
    checked_reason,
    checked_receiver,
    kept_target,
)
from actorproc.engine.end_waiters import AskResult
from actorproc.engine.messages import Patience
from actorproc.errors import EngineError, StateTooLarge, UsageError
from actorproc.model.messages.events import Published, Signalled, SignalsWithdrawn
from actorproc.model.rows.asks import AskKey
from actorproc.procedure.runtime.engine_side import encode_payload, plain_payload

__all__ = ["SignalVerbs"]


class SignalVerbs(EngineVerbs):
    """`signal`, `publish`, `withdraw`."""

    def signal(
        self,
        id: str,
        payload: Any = None,
        dedup: str | None = None,
        *,
        reason: str | None = None,
        by: str | None = None,
    ) -> bool:
        """Send a signal to one procedure, which gets it at its next ``Status.wait``, of any event.

        Durable when it returns. A signal that comes before the wait is kept for it, at most 1000 for a procedure, and
        goes when the procedure ends. In a ``FAILED`` tree it stays for a `retry`.

        Args:
            id: The procedure; a child is as good as a root.
            payload: The step finds it in ``ctx.event``. It may hold all that a state may hold. The classes in it must
                be named by the receiver's type hints or its ``uses``. Default: None.
            dedup: Signals to one procedure with equal texts count once, also across restarts and after the first was
                taken. The last 1000 such texts are remembered (100,000 of all procedures and events). Default: None.
            reason: An operator's reason; with it, or with ``by``, the signal is recorded (`audit`). Default: None.
            by: Name of the one who asks, for `audit`. Default: None, the user of this process.

        Returns:
            False when the procedure has ended, and nothing was sent.

        Raises:
            UnknownProcedure: No procedure has this id, or it was removed.
            InvalidId: The id is no id.
            StateNotEncodable: The payload cannot be kept, or the receiver, whose class is registered here, does not
                know a class in it.
            StateTooLarge: The payload takes more bytes than `Config.max_state`.
            NotAllowed: 1000 signals to it wait already.
            ManagerStopped: No manager runs.
        """
        name, once, why = checked_receiver(id), _checked_dedup(dedup), checked_reason(reason)
        who = None if reason is None and by is None else checked_by(by)
        data = self._checked_size(self._payload_for(name, payload))
        accepted: bool = self._running().request(lambda reply: Signalled(name, data, reply, once, why, who))
        return accepted

    def publish(
        self,
        name: str,
        payload: Any = None,
        dedup: str | None = None,
        *,
        reason: str | None = None,
        by: str | None = None,
    ) -> None:
        """Send an event to the procedure that has waited for its name longest, or else to the next one that does.

        Durable when it returns. One event wakes one procedure. While none waits it is kept, at most 1000 under a name
        and 100,000 in all, for `Config.retain_signals` seconds; `signals` lists what is kept.

        Args:
            name: The name that steps wait for: ``Status.wait(name)``.
            payload: As in `signal`. A procedure that takes an event with a class that it does not know is parked. It
                goes on when its class is registered again and knows it. Default: None.
            dedup: As in `signal`, of the events with this name. Default: None.
            reason: As in `signal`. Default: None.
            by: Name of the one who asks, for `audit`. Default: None, the user of this process.

        Raises:
            StateNotEncodable: The payload cannot be kept.
            StateTooLarge: The payload takes more bytes than `Config.max_state`.
            NotAllowed: As many events are kept as may be.
            ManagerStopped: No manager runs.
        """
        event, once, why = checked_event(name), _checked_dedup(dedup), checked_reason(reason)
        who = None if reason is None and by is None else checked_by(by)
        data = self._checked_size(encode_payload(payload))
        self._running().request(lambda reply: Published(event, data, reply, once, why, who))

    def withdraw(
        self,
        id: str | None = None,
        *,
        event: str | None = None,
        number: int | None = None,
        reason: str | None = None,
        by: str | None = None,
    ) -> int:
        """Remove signals, or events, that no procedure has taken yet. Durable when it returns, and recorded (`audit`).

        Args:
            id: The procedure to which they were sent. Default: None.
            event: Or the name under which they were published. Default: None.
            number: Only the one with this `SignalInfo.number`, at least 1. Default: None, all of them.
            reason: An operator's reason; it is recorded. Default: None.
            by: Name of the one who asks, for `audit`. Default: None, the user of this process.

        Returns:
            The number of those removed.

        Raises:
            UsageError: Neither ``id`` nor ``event`` is given, or both are.
            ValueError: ``number`` is no such number.
            ManagerStopped: No manager runs.
        """
        if kept_target(id, event) is None:
            raise UsageError("say what to withdraw: signals to an id, or event=… for those published under a name")
        if number is not None and (isinstance(number, bool) or not isinstance(number, int) or number < 1):
            msg = f"withdraw(number=…) is the number of a signal, at least 1, not {number!r:.60}"
            raise ValueError(msg)
        why, who = checked_reason(reason), checked_by(by)
        removed: int = self._running().request(lambda reply: SignalsWithdrawn(id, event, reply, number, why, who))
        return removed

    # ------------------------------------------------------------ what handles ask (HandleSource)
    def _send_ask(self, id: str, ask: AskKey, payload: Any) -> Future[bool]:
        """Send an ask to a procedure; the future of its being durable, False: the procedure has ended."""
        data = self._checked_size(self._payload_for(id, payload))
        return self._running().ask(lambda reply: Signalled(id, data, reply, ask=ask))

    def _answer_to(self, id: str, ask: AskKey, patience: Patience) -> Future[AskResult]:
        """Future of the outcome of an ask that was sent; `patience` says what keeps that waiting."""
        return self._running().watch_ask(id, ask, patience)

    def _reply_in(self, answer: AskResult, id: str) -> Any:
        """The decoded reply of a procedure."""
        head = self._running().store.procedure(id)
        return self._types.decode_reply("" if head is None else head.type_name, answer.reply, id)

    def _payload_for(self, receiver: str, payload: Any) -> bytes:
        """A payload as bytes; where the receiver's class is registered here, as that class can take it."""
        data = plain_payload(payload)
        if data is not None:
            return data
        try:
            head = self._running().store.procedure(receiver)
        except EngineError:  # damaged, or in trouble: that is for the engine to say
            head = None
        runtime = None if head is None else self._types.runtime_named(head.type_name)
        return encode_payload(payload) if runtime is None else runtime.encode_value(payload, receiver)

    def _checked_size(self, data: bytes) -> bytes:
        if len(data) > self._config.max_state:
            msg = (
                f"the payload has {len(data)} bytes; Config.max_state is {self._config.max_state}. Keep large data in "
                "a file and send its path"
            )
            raise StateTooLarge(msg)
        return data


def _checked_dedup(dedup: str | None) -> str | None:
    return None if dedup is None else checked_dedup(dedup)
