"""For steps of real procedures in real processes: a journal that survives every death, and a referee for locks.

Both live in files, so they survive every kill. A `Journal` line is one `write` of less than 4 KiB to a file opened for
appending, so the lines of all processes stand in one order. A kill can cut a line short only where it crosses a page,
and then it counts as not written. A `Referee` takes a kernel lock (``flock``) beside each lock the engine granted. That
one is gone exactly when its process is, so a conflict is proof that two steps ran under locks that exclude each other.

`actorproc.testing.histories.real_histories.check_journal` judges the lines together with the store. Nothing here loads
the store, so a worker process may import it.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import msgspec

from actorproc.model.ids import Mode
from actorproc.model.policies import LockKey, checked_lock_key
from actorproc.procedure.authoring.context import Context
from actorproc.procedure.authoring.procedure import Procedure
from actorproc.procedure.values.members import called
from actorproc.workers.child.runtime.step_line import StepLine

__all__ = ["Journal", "JournalLine", "Referee"]

_LONGEST_LINE = 4096
"""Bytes: a write that is no longer than a page is split once at most."""
_LONGEST_TEXT = 800
"""Characters of free text in a line."""
_LONGEST_NAME = 200
"""Characters of a canary's name; a file system takes 255 bytes."""


class JournalLine(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One line. `kind` is one of enter, effect, exit, raised, submitted, acknowledged, resolved, killing, conflict."""

    kind: str
    at: int
    """Monotonic nanoseconds; one clock for all processes of a machine."""
    pid: int
    host: int = 0
    """In lines of steps: the parent of the process, which is the host as long as that lives."""
    procedure: str = ""
    parent: str | None = None
    root: str = ""
    epoch: int = 0
    """Number of the host's start that handed the step out; 0 outside of steps."""
    step: int = 0
    attempt: int = 0
    mode: str = ""
    """Name of a `Mode` in lower case."""
    unit: str | None = None
    """Undo unit of an enter or exit: a saga's step name, "" for a whole procedure, None: nothing to undo."""
    state: str = ""
    """Hash of what `dump` gives."""
    text: str = ""


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(JournalLine).decode


class Journal:
    """A file of `JournalLine`s. Cheap to make, keeps nothing open: make one in each step from its path.

    A step writes ``enter`` when it begins, ``effect`` for what it does to the world, and ``exit`` when it is about to
    return; `step` does the first and the last. A caller writes ``submitted`` before and ``acknowledged`` after; a
    killer writes ``killing`` before the signal.

    Args:
        path: The file; it is made with the first line.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    # ------------------------------------------------------------ inside steps
    def enter(self, ctx: Context, procedure: Procedure) -> None:
        """Note that a step begins.

        Args:
            ctx: Context of the step.
            procedure: The procedure, with the state at the begin.
        """
        self._write_step("enter", ctx, procedure=procedure)

    def effect(self, ctx: Context, text: str = "") -> None:
        """Note that a step changed something outside.

        Args:
            ctx: Context of the step.
            text: The change. Default: "".
        """
        self._write_step("effect", ctx, text=text)

    def exit(self, ctx: Context, procedure: Procedure) -> None:
        """Note that a step is about to answer.

        Args:
            ctx: Context of the step.
            procedure: The procedure, with its last state: its fields must not change after this.
        """
        self._write_step("exit", ctx, procedure=procedure)

    def raised(self, ctx: Context, error: BaseException) -> None:
        """Note that a step is about to fail.

        Args:
            ctx: Context of the step.
            error: The error.
        """
        self._write_step("raised", ctx, text=type(error).__qualname__)

    @contextlib.contextmanager
    def step(self, ctx: Context, procedure: Procedure) -> Iterator[None]:
        """Enclose the whole body of a step or an undo: `enter`, then `exit`, or `raised` and the exception.

        Args:
            ctx: Context of the step.
            procedure: The procedure.

        Yields:
            None.
        """
        self.enter(ctx, procedure)
        try:
            yield
        except BaseException as error:
            self.raised(ctx, error)
            raise
        self.exit(ctx, procedure)

    # ------------------------------------------------------------ outside of steps
    def submitted(self, id: str) -> None:
        """Note that a root is about to be submitted.

        Args:
            id: Its id.
        """
        self._write(JournalLine(kind="submitted", at=time.monotonic_ns(), pid=os.getpid(), procedure=id))

    def acknowledged(self, id: str) -> None:
        """Note that `submit` returned: the root must be there from now on.

        Args:
            id: Its id.
        """
        self._write(JournalLine(kind="acknowledged", at=time.monotonic_ns(), pid=os.getpid(), procedure=id))

    def resolved(self, id: str, state: str) -> None:
        """Note that a handle gave a final state.

        Args:
            id: The procedure.
            state: The state.
        """
        self._write(JournalLine(kind="resolved", at=time.monotonic_ns(), pid=os.getpid(), procedure=id, text=state))

    def killing(self, pid: int, *, is_host: bool = False) -> None:
        """Note that a process is about to get SIGKILL; with a host all its workers end.

        Args:
            pid: The process.
            is_host: The process runs a manager. Default: False.
        """
        what = "host" if is_host else "worker"
        self._write(JournalLine(kind="killing", at=time.monotonic_ns(), pid=pid, text=what))

    def lines(self) -> list[JournalLine]:
        """All whole lines in the order they were written; empty when there is no file yet.

        May be called while others write. A line that a kill cut short, or that is being written just now, is left out.
        """
        try:
            content = self.path.read_bytes()
        except FileNotFoundError:
            return []
        return [line for text in content.split(b"\n") if text and (line := _decoded(text)) is not None]

    # ------------------------------------------------------------ inside
    def _write_step(self, kind: str, ctx: Context, *, procedure: Procedure | None = None, text: str = "") -> None:
        self._write(
            JournalLine(
                kind=kind,
                at=time.monotonic_ns(),
                pid=os.getpid(),
                host=os.getppid(),
                procedure=ctx.id,
                parent=ctx.parent_id,
                root=ctx.root_id,
                epoch=_epoch_of(ctx),
                step=ctx.step,
                attempt=ctx.attempt,
                mode=Mode(ctx.mode).name.lower(),
                unit=ctx.unit if procedure is None else _unit_of(ctx, procedure),
                state="" if procedure is None else _hash_of(procedure),
                text=text[:_LONGEST_TEXT],
            )
        )

    def _write(self, line: JournalLine) -> None:
        # The newline before it keeps it apart from a line that was cut short.
        encoded = b"\n%b\n" % _encode(line)
        if len(encoded) > _LONGEST_LINE:
            encoded = b"\n%b\n" % _encode(msgspec.structs.replace(line, text=line.text[:80] + "…"))
        fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            written = os.write(fd, encoded)
        finally:
            os.close(fd)
        if written != len(encoded):
            raise OSError(
                f"{self.path}: only {written} of {len(encoded)} bytes of a line were written; the disk is full"
            )


class Referee:
    """Proves that locks exclude: one canary file per key, locked by the kernel while a step runs.

    A conflict is a line in the journal, and the step goes on unharmed. The kernel knows shared and exclusive only. It
    does not see the conflict of a write below a key that another step reads, where both hold that key shared. Steps of
    one tree share the locks of their tree: a parent that runs beside its children (``wait="any"``) must not hold their
    keys here.

    Args:
        folder: Directory of the files.
        journal: The journal for conflicts.
    """

    def __init__(self, folder: str | os.PathLike[str], journal: Journal) -> None:
        self.folder = Path(folder)
        self.journal = journal

    @contextlib.contextmanager
    def hold(self, key: str | LockKey, *, shared: bool = False, ctx: Context | None = None) -> Iterator[bool]:
        """Hold a key (and, shared, every key above it) without waiting. Hold the keys that `lock_keys` returns.

        Args:
            key: A path or a `LockKey`, which itself says whether it is ``shared``.
            shared: Hold it shared. Default: False.
            ctx: Context of the step, for the line of a conflict. Default: None.

        Yields:
            True when it was free.

        Raises:
            TypeError: The key is no text and no `LockKey`.
            ValueError: The key can be none.
        """
        wanted = checked_lock_key(key) if isinstance(key, LockKey) else LockKey.write(key)
        shared = not wanted.mode.is_exclusive if isinstance(key, LockKey) else shared
        key = wanted.path
        self.folder.mkdir(parents=True, exist_ok=True)
        segments = key.split("/")
        held: list[int] = []
        try:
            is_free = True
            for depth in range(1, len(segments) + 1):
                path = "/".join(segments[:depth])
                is_free &= self._take(path, shared=shared or depth < len(segments), key=key, ctx=ctx, held=held)
            yield is_free
        finally:
            for fd in held:
                os.close(fd)

    def _take(self, path: str, *, shared: bool, key: str, ctx: Context | None, held: list[int]) -> bool:
        name = quote(path, safe="")
        if len(name) > _LONGEST_NAME:
            name = hashlib.blake2b(path.encode(), digest_size=16).hexdigest()
        fd = os.open(self.folder / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        held.append(fd)
        try:
            fcntl.flock(fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            text = f"{'shared' if shared else 'exclusive'} hold of {path} for {key}: it is held"
            if ctx is None:
                self.journal._write(JournalLine(kind="conflict", at=time.monotonic_ns(), pid=os.getpid(), text=text))
            else:
                self.journal._write_step("conflict", ctx, text=text)
            return False
        return True


def _decoded(text: bytes) -> JournalLine | None:
    try:
        return _decode(text)
    except msgspec.DecodeError:
        return None


def _epoch_of(ctx: Context) -> int:
    channel = ctx._channel
    return channel._token.epoch if isinstance(channel, StepLine) else 0


def _unit_of(ctx: Context, procedure: Procedure) -> str | None:
    """The undo unit the step belongs to; a forward step is told none, but its procedure knows."""
    if ctx.mode is not Mode.EXECUTE:
        return ctx.unit
    if procedure._engine_has_position:
        return procedure._engine_next_unit()
    return "" if procedure._engine_supports_rollback() else None


def _hash_of(procedure: Procedure) -> str:
    state = called(procedure, "dump")
    return hashlib.blake2b(state.encode() if isinstance(state, str) else state, digest_size=8).hexdigest()
