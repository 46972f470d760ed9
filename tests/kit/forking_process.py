"""Process of `warm_workers`: it imports what each worker imports, and forks for its parent.

It has no threads and opens nothing. A worker must be a child of the manager's process, which waits for it: the system
call has a flag for that, which `os.fork` does not use.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import socket
import sys
import threading
from pathlib import Path

import actorproc.workers.child.main  # noqa: F401 - what a worker has imported when it reads its first frame

_CLONE3 = 435
_OF_THE_PARENT, _SET_TID, _CLEAR_TID = 0x8000, 0x0100_0000, 0x0020_0000
_ADDRESS_OF_TID = 40
"""Option of prctl: where the C library keeps the number of this thread, which `fork` would set anew in the child."""
_system = ctypes.PyDLL(None)


class _How(ctypes.Structure):
    """Arguments of clone3."""

    _fields_ = tuple(
        (name, ctypes.c_uint64)
        for name in ("flags", "pidfd", "child_tid", "parent_tid", "exit_signal", "stack", "stack_size", "tls")
    )


def _fork(tid: int) -> int:
    """As `os.fork`, but the child is one of this process's parent; -1 where the system has no such call."""
    how = _How(flags=_OF_THE_PARENT | _SET_TID | _CLEAR_TID, child_tid=tid)
    ctypes.pythonapi.PyOS_BeforeFork()
    pid = int(_system.syscall(_CLONE3, ctypes.byref(how), ctypes.sizeof(how)))
    if pid:
        ctypes.pythonapi.PyOS_AfterFork_Parent()
    else:
        ctypes.pythonapi.PyOS_AfterFork_Child()
    return pid


def _own_tid() -> int:
    address = ctypes.c_void_p()
    return 0 if _system.prctl(_ADDRESS_OF_TID, ctypes.byref(address), 0, 0, 0) else address.value or 0


def _taken(requests: socket.socket, size: int) -> bytes:
    return requests.recv(size, socket.MSG_WAITALL)


def serve(fd: int) -> None:
    """Fork for each request, until the parent has gone; returns in a worker."""
    requests = socket.socket(fileno=fd)
    Path("/proc/self/comm").write_text("forks-workers", encoding="ascii")
    tid = _own_tid()
    proof = _fork(tid) if tid else 0
    if tid and proof == 0:
        os._exit(0)
    gc.collect()
    gc.freeze()  # so that the collector writes to no page that processes share
    requests.send(max(proof, 0).to_bytes(4, "big"))
    while True:
        size, fds, _, _ = socket.recv_fds(requests, 4, 6)
        if not size:
            os._exit(0)
        environment = json.loads(_taken(requests, int.from_bytes(size, "big")))
        pid = _fork(tid)
        if pid == 0:
            _become_a_worker(requests, environment, fds)
            return
        for one in fds:
            os.close(one)
        if pid < 0:
            os._exit(1)


def _become_a_worker(requests: socket.socket, environment: list[list[str]], fds: list[int]) -> None:
    os.setsid()
    threading.main_thread()._set_native_id()  # which Python leaves as it was before a fork
    stdout, stderr, *passed = fds
    for number, one in ((1, stdout), (2, stderr)):
        os.dup2(one, number)
        os.close(one)
    requests.send(os.getpid().to_bytes(4, "big"))
    requests.close()
    os.environ.clear()
    os.environ.update(
        {os.fsdecode(bytes.fromhex(key)): os.fsdecode(bytes.fromhex(value)) for key, value in environment}
    )
    numbers = [*passed, -1][:4]
    sys.argv[:] = ["-c", sys.argv[1], *map(str, numbers), "actorproc-worker"]
