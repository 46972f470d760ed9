"""Reports of a running step: the values it shows (`Context.expose`), and the details of its heartbeats."""

from __future__ import annotations

import math
import threading
from typing import Any, Protocol

import msgspec

from actorproc.errors import StateNotEncodable
from actorproc.model.exact import exact_text
from actorproc.procedure.encoding.value_codec import NOTE, ValueCodec
from actorproc.procedure.values.codec import MAX_STATE, check_size
from actorproc.procedure.values.kinds.base import encode, is_text

__all__ = ["MOST_KEYS", "Reporting", "as_fraction", "details_in"]

MOST_KEYS = 100
"""Keys of one procedure."""
_LONGEST_KEY = 128
_ROUNDING = 1e-6
"""Progress that is summed up of fractions may be beyond 1.0 by so much."""
_KEPT = 1024
"""Bytes of a value up to which it is kept, so that one that is shown again unchanged is not sent again."""
_HEAD, _NIL = b"\x93", b"\xc0"
"""Beginning of an array of three, and nothing, in msgpack."""
_sizes = msgspec.msgpack.Decoder(dict[str, int])
_note = msgspec.msgpack.Decoder(tuple[int, msgspec.Raw, msgspec.Raw])


def details_in(note: bytes, attempt: int | None = None) -> bytes | None:
    """Details that an attempt is given by a stored note; without `attempt` those that the next one is given.

    A note is an array: the attempt that sent the heartbeat, the details that it was given itself, and its own.
    """
    sender, before, own = _note.decode(note)
    given = bytes(before if sender == attempt else own)
    return None if given == _NIL else given


class _Channel(Protocol):
    """Way to the engine: the part of `StepChannel` that is used here."""

    def request(self, kind: str, key: str = "", value: bytes = b"", step: int = 0) -> bytes | None:
        """Ask and wait."""
        ...

    def expose(self, key: str, value: bytes) -> None:
        """Send a value."""
        ...

    def heartbeat(
        self, progress: float | None, message: str | None, details: bytes | None = None, key: str = "", step: int = 0
    ) -> None:
        """Send a sign of life."""
        ...


class Reporting:
    """Reports of one attempt of a step, and the sizes of all values that its procedure shows. For any thread.

    Args:
        channel: Way to the engine.
        codec: The class's own.
        place: The procedure, the number of the step as the store has it, and that of the attempt.
        beat_key: Key of the note with the details of the last heartbeat.
        may_repeat: An attempt before this one may have left something.
    """

    def __init__(
        self, channel: _Channel, codec: ValueCodec, place: tuple[str, int, int], beat_key: str, *, may_repeat: bool
    ) -> None:
        self._channel = channel
        self._codec = codec
        self._id, self._step, self._attempt = place
        self.beat_key = beat_key
        """Key of the note with the details of the last heartbeat."""
        self._lock = threading.RLock()
        self._before: tuple[bytes | None] | None = None if may_repeat else (None,)
        """Details of the last heartbeat of earlier attempts; None: not asked for yet."""
        is_first = self._step == 1 and not may_repeat
        self._sizes: dict[str, int] | None = {} if is_first else None
        """Bytes of each value; None: those of earlier steps are not known yet."""
        self._sent: dict[str, bytes] = {}

    @property
    def knows_sizes(self) -> bool:
        """An `expose` does not have to ask for them."""
        return self._sizes is not None

    def learn_sizes(self, answer: bytes | None) -> None:
        """Take the answer to "exposed", unless it came before."""
        with self._lock:
            if self._sizes is None:
                self._sizes = _sizes.decode(answer or b"\x80")

    def learn_details(self, note: bytes | None) -> None:
        """Take the note with the details of the last heartbeat of earlier attempts."""
        self._before = (None if note is None else details_in(note, self._attempt),)

    def details_before(self) -> bytes | None:
        """Details of the last heartbeat of earlier attempts, encoded; None: there are none."""
        with self._lock:
            if self._before is None:
                self.learn_details(self._channel.request("recall", self.beat_key, b"", self._step))
            assert self._before is not None
            return self._before[0]

    def heartbeat(self, progress: float | None, message: str | None, details: bytes) -> None:
        """Send a heartbeat with details. Its note holds those that this attempt was given as well, for a replay."""
        with self._lock:
            before = self.details_before() or _NIL
            if len(before) + len(details) > MAX_STATE:
                before = _NIL
            note = _HEAD + encode(self._attempt) + before + details
            self._channel.heartbeat(progress, message, note, self.beat_key, self._step)

    def expose(self, key: object, value: Any) -> None:
        """Send a value unless it is the one that was sent last. Raises as `Context.expose`."""
        name = _checked(key)
        encoded = self._encoded(name, value)
        with self._lock:
            if self._sent.get(name) == encoded:
                return
            if self._sizes is None:
                self.learn_sizes(self._channel.request("exposed"))
            assert self._sizes is not None
            self._check_room(self._sizes, name, len(encoded))
            self._channel.expose(name, encoded)
            self._sizes[name] = len(encoded)
            if len(encoded) <= _KEPT:
                self._sent[name] = encoded
            else:
                self._sent.pop(name, None)

    def _encoded(self, name: str, value: Any) -> bytes:
        where = f"expose({name!r})"
        try:
            return self._codec.data.encode(value, where)  # typed data can be shown without the class, a pickle cannot
        except StateNotEncodable:
            if not self._codec.pickles:
                raise
            return self._codec.encode(value, where, NOTE + self._id)

    def _check_room(self, sizes: dict[str, int], name: str, size: int) -> None:
        if name not in sizes and len(sizes) >= MOST_KEYS:
            msg = (
                f"expose({name!r}, …): {self._id} shows {MOST_KEYS} values already, which is the most; use one of its "
                f"keys again, or expose one mapping in the place of several values"
            )
            raise ValueError(msg)
        others = sum(sizes.values()) - sizes.get(name, 0)
        what = f"expose({name!r}, …): with {others} bytes of other values it"
        check_size(others + size, what if others else f"the value of expose({name!r}, …)")


def _checked(key: object) -> str:
    if not isinstance(key, str):
        msg = f"expose(key, value) takes a text as its key, such as 'copied', not {key!a:.60}"
        raise TypeError(msg)
    if not 0 < len(key) <= _LONGEST_KEY or not is_text(key) or not key.isprintable():
        msg = (
            f"expose({key!a:.60}, …): a key has 1 to {_LONGEST_KEY} characters, and no control characters, such as "
            "'rows copied'"
        )
        raise ValueError(msg)
    return exact_text(key)


def as_fraction(progress: Any) -> float:
    """Progress from 0 to 1. Raises `TypeError` or `ValueError` in the words of `Context.heartbeat`."""
    try:
        number = float(progress)  # numbers of other libraries are welcome
    except (TypeError, ValueError, OverflowError) as error:
        msg = (
            f"heartbeat(progress=…) is a number from 0 to 1 or None, not {progress!r:.60}; what the next attempt is to "
            "have goes by name: heartbeat(details=…)"
        )
        raise TypeError(msg) from error
    if not -_ROUNDING <= number <= 1.0 + _ROUNDING:
        if not math.isfinite(number):
            msg = f"heartbeat(progress={progress!r:.60}): it must be finite"
            raise ValueError(msg)
        hint = f": {progress!r:.20} of 100 is {number / 100:g}" if 1 < number <= 100 else ""
        msg = f"heartbeat(progress=…) is a fraction from 0 to 1, not {progress!r:.60}{hint}"
        raise ValueError(msg)
    return min(max(number, 0.0), 1.0)
