"""The worker's end of its channel."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SPEAKER = """
import signal, socket, threading
from actorproc.workers.child.runtime.channel import WorkerChannel
from actorproc.workers.protocol.frames import FrameBuffer, LogLine, decode_from_worker

class NoGuard:
    def uninterrupted(self, call, frame):
        call(frame)

here, host = socket.socketpair()
channel = WorkerChannel(here.detach(), NoGuard())
is_handled = threading.Event()
heard = []

def handler(*_):
    channel.send([LogLine(None, 20, "handler", "short")])
    is_handled.set()

def listen():
    host.recv(1, socket.MSG_PEEK)  # the main thread is in the middle of a frame that does not fit
    signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR2)
    is_handled.wait()
    frames = FrameBuffer()
    while len(heard) < 3:
        for body in frames.feed(host.recv(65536)):
            heard.extend(message.text[:5] for message in decode_from_worker(body))

signal.signal(signal.SIGUSR2, handler)
listener = threading.Thread(target=listen)
listener.start()
channel.send([LogLine(None, 20, "step", "x" * 10_000_000)])
channel.send([LogLine(None, 20, "step", "later")])
listener.join()
print(heard)
"""


def test_a_signal_handler_may_speak_in_the_middle_of_a_frame_of_its_thread() -> None:
    run = subprocess.run(
        [sys.executable, "-c", SPEAKER], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )

    assert run.stdout.strip() == "['xxxxx', 'short', 'later']", run.stderr
