"""A worker of `bare.py`: takes frames of steps and calls from the socket it inherits, runs them, and answers."""

from __future__ import annotations

import pickle
import socket
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

LENGTH = 4
"""Bytes in front of a frame that say how long it is."""
STEP, CALL = 0, 1


@dataclass
class Count:
    """As the procedure of `steps.py`."""

    steps: int
    done: int = 0

    def execute(self) -> bool:
        self.done += 1
        return self.done >= self.steps


def frames_of(buffer: bytearray) -> Iterator[bytes]:
    """The whole frames at the front of what was received; they are taken out of it."""
    at = 0
    while len(buffer) - at >= LENGTH:
        end = at + LENGTH + int.from_bytes(buffer[at : at + LENGTH], "little")
        if len(buffer) < end:
            break
        yield bytes(buffer[at + LENGTH : end])
        at = end
    del buffer[:at]


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(LENGTH, "little") + body


def ran(kind: int, state: bytes) -> tuple[bool, bytes]:
    """Whether that was the last step, and the state or the result."""
    if kind == CALL:
        function, arguments = pickle.loads(state)
        return True, pickle.dumps(function(*arguments), 5)
    count = Count(**msgspec.msgpack.decode(state))
    is_last = count.execute()
    return is_last, msgspec.msgpack.encode(vars(count))


def main() -> None:
    end, is_together = socket.socket(fileno=int(sys.argv[1])), sys.argv[2] == "together"
    encode, decode = msgspec.msgpack.Encoder().encode, msgspec.msgpack.Decoder().decode
    buffer = bytearray()
    while chunk := end.recv(1 << 18):
        buffer += chunk
        for frame in frames_of(buffer):
            answers = []
            for name, kind, state in decode(frame):
                answers.append((name, *ran(kind, state)))
                if not is_together:
                    end.sendall(framed(encode(answers)))
                    answers = []
            if answers:
                end.sendall(framed(encode(answers)))


if __name__ == "__main__":
    main()
