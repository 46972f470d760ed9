"""One owner at a time: a lock file that the kernel gives back when its process ends, however it ends.

The file stays where it is; the lock (flock) is what counts, and its text says who holds it. A forked child of
the host closes its copy at once, so that it cannot keep a dead owner's lock alive.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import time
import weakref
from pathlib import Path
from typing import NamedTuple, Self

from actorproc.errors import EngineError, StoreDamaged, StoreFormat, StoreInUse
from actorproc.store.directory import DATA_FILE, OWNER_FILE, make_private, read_private
from actorproc.store.lmdb.files.standard_files import occupy_standard_files
from actorproc.store.lmdb.page_check import boot_id, examined, inode_of
from actorproc.store.reading import OwnerRole, StoreOwner

__all__ = [
    "Owner",
    "OwnerLock",
    "examine_for_reader",
    "facts_in",
    "in_use",
    "is_suspended",
    "owner_facts",
    "owner_of",
    "refuse_redo",
]

_PATIENCE = {"command": 10.0}
"""Seconds to wait for a living owner, by its role: one that is gone in a moment."""
_NOBODY_LIVES = 2.0
"""Seconds to wait for an owner that is coming or going, or was killed while it started another process.

That one keeps the lock until it has closed its copy.
"""
_PAUSE = 0.005
_LONGEST = 1024
"""Bytes that are read of what an owner's file says."""
_UNSEALED = "boot unknown\n"
"""Left of a store that was owned and is not known to be sound: no boot is called so."""

_held: weakref.WeakSet[OwnerLock] = weakref.WeakSet()


class OwnerLock:
    """The exclusive lock of a store's directory, held until `release` or the end of the process."""

    def __init__(self, fd: int, path: Path, role: OwnerRole, last: dict[str, str]) -> None:
        self._fd = fd
        self._path = path
        self._role: OwnerRole = role
        self.last = last
        """Text of the owner before about itself, or its seal when it stopped in good order."""
        self._is_vouched_for = False
        self._pid = os.getpid()
        _held.add(self)

    @classmethod
    def acquire(cls, path: Path, role: OwnerRole = "manager") -> Self:
        """Take the lock, or raise `StoreInUse` naming the process that has it.

        A second owner inside this process is refused as well. A command that has it is waited for, some seconds at
        most: a manager must not fail to start because a verb was typed at that moment. So is the lock of a
        process that has just died.
        """
        occupy_standard_files()
        try:
            make_private(path)
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise EngineError(f"cannot open the owner lock {path}: {error.strerror}") from error
        try:
            _lock(fd, path)
        except OSError as error:
            os.close(fd)
            raise EngineError(f"cannot lock {path}: {error.strerror}; use a file system that knows flock") from error
        except BaseException:
            os.close(fd)
            raise
        last: dict[str, str] = {}
        try:
            last = facts_in(os.pread(fd, _LONGEST, 0).decode(errors="replace"))
            _write(fd, _about_us(role, fd) + _unsealed(last))
        except OSError:
            pass  # a full disk: the lock is held all the same, only its text is missing
        return cls(fd, path, role, last)

    @property
    def pid(self) -> int:
        """The process that took the lock; a forked child has another id and does not own it."""
        return self._pid

    def vouch(self) -> int:
        """Say that there is a sound store; until then the next owner looks at every page of what there is.

        Returns the time of the file system, in nanoseconds; 0 when it does not say.
        """
        try:
            self._is_vouched_for = True
            file = inode_of((self._path.parent / DATA_FILE).stat())
            _write(self._fd, f"{_about_us(self._role, self._fd)}boot {boot_id()}\ninode {file}\n")
            return os.fstat(self._fd).st_ctime_ns
        except OSError:
            return 0

    def release(self, seal: str = "") -> None:
        """Give the lock back, with `seal` for the next owner. Idempotent; a forked child only drops its copy.

        Without one the next owner looks at every page, and does not take a file that is gone by then for a new store.
        """
        fd, self._fd = self._fd, -1
        _held.discard(self)
        if fd < 0:
            return
        try:
            if os.getpid() == self._pid:
                _leave(fd, seal or (_UNSEALED if self._is_vouched_for else _unsealed(self.last)))
                # The lock belongs to the open file, which a child forked a moment ago still shares; so unlock it
                # and do not wait for the child's close. In a child the same call would unlock the parent.
                fcntl.flock(fd, fcntl.LOCK_UN)
        finally:
            os.close(fd)


def _lock(fd: int, path: Path) -> None:
    """Lock this file, once those who have it for a moment only have given it back. Raises `StoreInUse`.

    Commands may have it in turn, so the patience with an owner begins when it is first seen.
    """
    begun, before = time.monotonic(), None
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = owner_of(path)
            if owner != before:
                begun, before = time.monotonic(), owner
            patience = _NOBODY_LIVES if owner is None else _PATIENCE.get(owner.role, 0.0)
            if time.monotonic() - begun >= patience:
                raise _in_use(path, os.pread(fd, _LONGEST, 0).decode(errors="replace")) from None
            time.sleep(_PAUSE)
        else:
            return


def _unsealed(last: dict[str, str]) -> str:
    """Text about the data file until it is sealed: that there was one, and its last transaction."""
    if "boot" not in last and "sealed-size" not in last:
        return ""
    kept = ("sealed-size", "sealed-transaction", "sealed-boot") if "sealed-transaction" in last else ()
    return _UNSEALED + "".join(f"{name} {last[name]}\n" for name in kept if name in last)


def _write(fd: int, text: str) -> None:
    """Over what is there, so that a full disk does not take it away."""
    data = text.encode()
    os.pwrite(fd, data, 0)
    os.ftruncate(fd, len(data))


def _leave(fd: int, seal: str) -> None:
    os.ftruncate(fd, 0)
    with contextlib.suppress(OSError):  # a full disk: there is no seal then
        os.pwrite(fd, seal.encode(), 0)


class Owner(NamedTuple):
    """The process that has a store open."""

    pid: int
    host: str
    role: str = "manager"


def owner_of(path: Path) -> Owner | None:
    """The process that holds the lock of this file, by its text; None: no living one, or it is a copy.

    The lock is not tried: that would get in the way of an owner who starts at this moment. An owner on another host
    cannot be looked at and counts as living.
    """
    try:
        text, file = read_private(path, _LONGEST)
    except OSError:
        return None
    facts = facts_in(text.decode(errors="replace"))
    if not facts.get("pid", "").isdecimal() or facts.get("lock") != inode_of(file):
        return None
    owner = Owner(int(facts["pid"]), facts.get("host", ""), facts.get("role", "manager"))
    if owner.host != socket.gethostname():
        return owner
    return owner if _start_ticks(owner.pid) == facts.get("started") else None


def is_suspended(owner: StoreOwner) -> bool:
    """True if this process of this host was stopped by a signal (SIGSTOP, Ctrl-Z), and is not continued yet."""
    return owner.host == socket.gethostname() and _stat_of(owner.pid)[:1] in (["T"], ["t"])


def _about_us(role: OwnerRole, fd: int) -> str:
    """The lock's own inode is in its text: a copy of the directory has no owner, though it says the same."""
    who = f"pid {os.getpid()}\nstarted {_start_ticks()}\nhost {socket.gethostname()}\nrole {role}\n"
    return f"{who}lock {inode_of(os.fstat(fd))}\n"


def examine_for_reader(directory: Path) -> bool:
    """Look at the data file before a mere reader maps it, unless an owner that lives has done so; whether it was done.

    Raises `StoreDamaged`. Not when an owner came meanwhile: then pages changed while they were looked at. When it has
    gone again, they are looked at once more.
    """
    path = directory / OWNER_FILE
    while owner_of(path) is None:
        left = _left_in(path)
        try:
            return examined(directory, facts_in(left[0]))
        except StoreDamaged:
            if owner_of(path) is None and _left_in(path) == left:
                raise
    return False


def refuse_redo(store: Path, last: dict[str, str], newest: int) -> None:
    """Refuse a store of an earlier version whose power was cut: its last commit may be where none looks now.

    Args:
        store: Its directory.
        last: The lines that its last owner left of itself.
        newest: Number of the last transaction of its data file.

    Raises:
        StoreFormat: It may lack a commit.
    """
    is_sealed = last.get("sealed-transaction") == str(newest)
    if not is_sealed and last.get("boot", boot_id()) != boot_id():
        raise StoreFormat(
            f"the store {store} was left by an earlier actorproc when the power failed, and its last commit may be in "
            "a place that is not known here; it was not changed. Open it once with the actorproc that wrote it, or "
            "export it with that one and import it into a new store"
        )


def owner_facts(directory: Path) -> dict[str, str]:
    """Words that the last owner of a store left of itself."""
    return facts_in(_left_in(directory / OWNER_FILE)[0])


def _left_in(path: Path) -> tuple[str, int]:
    """Text in an owner's file, and the time at which it was written; "" and 0 where there is none."""
    try:
        text, file = read_private(path, _LONGEST)
    except OSError:
        return "", 0
    return text.decode(errors="replace"), file.st_mtime_ns


def _start_ticks(pid: int | None = None) -> str:
    """Start of a process (None: this one), in clock ticks since boot: with the pid it names one process."""
    fields = _stat_of(pid)
    if not fields:
        return "unknown" if not Path("/proc/self").exists() else "gone"
    return "gone" if fields[0] in "ZX" else fields[19]  # a zombie is dead, though its status was not collected


def _stat_of(pid: int | None) -> list[str]:
    """Fields of a process in the kernel, from its state on; empty where there is none."""
    try:
        text = Path(f"/proc/{pid or 'self'}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()


def _in_use(path: Path, holder: str) -> StoreInUse:
    facts = facts_in(holder)
    pid = int(facts["pid"]) if facts.get("pid", "").isdecimal() else 0
    return in_use(path.parent, pid, facts.get("role", ""), facts.get("host", ""))


def in_use(store: str | os.PathLike[str], pid: int, role: str, host: str) -> StoreInUse:
    """The error for a store that is in use; `pid` 0 and the empty texts: it is not known."""
    if pid == os.getpid():
        who = f"another manager of this process ({pid})"
        help_ = "use that one, stop it, or use another directory"
    else:
        who = f"process {pid}" if pid else "another process"
        who = f"a command ({who})" if role == "command" else who
        if host and host != socket.gethostname():
            who += f" on host {host}"
        help_ = "stop it, or use another directory"
        if role != "command":
            help_ = f"reach its manager through ProcedureClient({os.fspath(store)!r}), {help_}"
    return StoreInUse(f"the store {store} is in use by {who}; {help_}", pid)


def facts_in(text: str) -> dict[str, str]:
    """The lines of an owner's file: a name, a blank, a value."""
    return dict(line.split(" ", 1) for line in text.splitlines() if " " in line)


def _close_copies_in_a_forked_child() -> None:
    for lock in list(_held):
        lock.release()


# Hooks cannot be taken back, so there is one for all locks that ever live.
os.register_at_fork(after_in_child=_close_copies_in_a_forked_child)
