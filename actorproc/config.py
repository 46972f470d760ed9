"""Settings of a manager that are not part of what it runs."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Self

from actorproc.model.policies import Retention, Scheduling
from actorproc.support.durations import OptionalSeconds, Seconds, in_seconds
from actorproc.workers.link.addresses import parsed_address
from actorproc.workers.protocol.frames import DEFAULT_MAX_FRAME

__all__ = ["Config"]

_REST_OF_CALL = 64 * 1024
"""Bytes of a message beside the arguments or the result of a call in it."""
_LEAST = {
    "max_frame": 8192,
    "max_state": 1,
    "max_call": 1,
    "spares": 0,
    "warm_limit": 0,
    "restart_limit": 1,
    "max_dedicated": 1,
    "log_bytes": 0,
    "log_bytes_total": 0,
    "log_file_bytes": 0,
    "max_depth": 0,
    "max_children": 0,
    "max_tree": 1,
}


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of a `ProcedureManager`; sizes in bytes, times in seconds or as a `datetime.timedelta`.

    Times are kept, and read, as seconds. Each field has its default, its unit and its meaning below, under headings.
    The table in the guide marks the ten that most programs set.

    Raises:
        ValueError: A value makes no sense; the message names the field and the rule.
    """

    # ------------------------------------------------------------ Start and stop
    stop_timeout: Seconds = Seconds(30.0)
    """Seconds that leaving ``with`` may take: running steps are waited for, then their workers are killed."""
    boot_timeout: Seconds = Seconds(30.0)
    """Seconds that `start` waits for the first answer of every worker. Workers started later have twice as long to
    boot; then they are killed, and their slot is parked."""
    control: bool = True
    """Let other processes reach the manager (`ProcedureClient`, the command line). With a directory these are processes
    of this user, through the socket ``control.sock`` in it; with a database those that may read the leader's row."""
    # ------------------------------------------------------------ Several machines, with a store in a database
    lease: Seconds = Seconds(5.0, endless=False)
    """Seconds after its last sign of life for which a manager that leads is taken for alive; at least 0.5."""
    host_patience: Seconds = Seconds(10.0, endless=False)
    """Seconds of silence after which a manager that leads takes a worker host for lost, and runs its steps elsewhere;
    at least 1. The host has killed its busy workers before, after six tenths of that."""
    code: str | None = None
    """Revision of the code, such as that of the version control. A host with another one than the leader's runs only
    classes that travel by value. Default: none, and the files of the classes are compared."""
    listen: str | None = None
    """Address on which a manager that leads lets the others in: ``host`` or ``host:port``. Default: the address by
    which this machine reaches the database, and a free port."""
    advertise: str | None = None
    """The address under which others reach `listen`, where it is another one: ``host`` or ``host:port``."""
    tls: tuple[str, str] | None = None
    """Files of a certificate and of its key (PEM) for `listen`; they are watched. Default: made at each start."""
    # ------------------------------------------------------------ Workers
    spares: int = 1
    """Warm spare worker processes that make a replacement immediate; 0: none."""
    executable: str | None = None
    """The Python interpreter that runs workers, a path or a name on ``PATH``: of the same version as this program's and
    with the same packages. Default: the one given to `multiprocessing.set_executable`, else `sys.executable`."""
    abort_grace: OptionalSeconds = OptionalSeconds(None, least="zero")
    """Seconds that a running step may go on after the undo of its procedure was decided, for classes whose
    `Limits.abort_grace` is None; then it is killed. None: it may go on to its end."""
    max_dedicated: int = 16
    """Workers that belong to one procedure each (``Limits.dedicated``) at the same time; more such procedures wait."""
    warm_limit: int = 1024
    """Live procedure objects a worker keeps between steps; beyond it the least recently used is dropped."""
    recycle_steps: int | None = None
    """Steps after which a worker is replaced by a fresh one, between two steps; None: never."""
    recycle_age: OptionalSeconds = OptionalSeconds(None)
    """Age in seconds after which a worker that ends a step is replaced; None: never."""
    recycle_memory: int | None = None
    """Bytes of growth of a worker's memory since its first step after which it is replaced; None: never."""
    stuck_after: Seconds = Seconds(10.0)
    """Seconds in their steps after which, if work waits, all workers count as stuck and an extra worker is started."""
    extra_worker_idle: Seconds = Seconds(60.0)
    """Seconds for which an extra worker may have nothing to do before it is stopped."""
    restart_limit: int = 5
    """Number of times within `restart_period` that workers of one slot may fail to boot, or end by themselves while
    idle, before the slot is parked. Workers killed by another process do not count."""
    restart_period: Seconds = Seconds(30.0)
    """Seconds in which `restart_limit` counts."""
    parked_for: Seconds = Seconds(30.0)
    """Seconds that a parked slot rests before one worker is tried in it; doubles after failures, up to 32-fold."""
    # ------------------------------------------------------------ Order and limits of work
    max_running: int | None = None
    """Greatest number of submitted procedures (roots) that run at once, from their first step to their end; the others
    wait. None: without limit."""
    max_queued: int = 1_000_000
    """Unfinished procedures that are accepted beyond `max_running`; then `submit` raises `ManagerBusy`."""
    concurrency: Mapping[str, int] = field(default_factory=dict)
    """Greatest number of procedures at once, by limit key; ``"tenant/*"`` holds for each key that begins so, singly."""
    rate: Mapping[str, tuple[int, float | timedelta]] = field(default_factory=dict)
    """By limit key ``(n, seconds)``: at most n procedures start in any span of that length, in seconds or as a
    timedelta."""
    priority_ageing: Seconds = Seconds(60.0)
    """Seconds of waiting for a worker that outweigh one level of priority; `math.inf`: no waiting does."""
    worker_shares: Mapping[str, float] = field(default_factory=dict)
    """The part of the workers, above 0 to 1, that a class of work may use while others want them; at least one."""
    reserved_workers: Mapping[str, int] = field(default_factory=dict)
    """Number of workers that are kept free for a class of work."""
    # ------------------------------------------------------------ Sizes
    max_state: int = 16 * 1024 * 1024
    """Longest dumped state that `submit` accepts, in bytes. States, outputs and notes of steps may be as long; 16 MiB
    are allowed in any case."""
    max_call: int = 1024**3
    """Longest pickled arguments, and longest pickled result, of a call of `ProcedureExecutor`, in bytes; below 2 GiB.
    16 MiB are allowed in any case."""
    max_frame: int = DEFAULT_MAX_FRAME
    """Longest message to or from a worker, in bytes, but for one with a call of `max_call`; a state must fit in it."""
    max_depth: int = 64
    """Deepest nesting of sub-procedures; the step that would exceed it fails."""
    max_children: int = 100_000
    """Greatest number of children of one procedure, over all its steps; the step that would exceed it fails."""
    max_tree: int = 1_000_000
    """Greatest number of procedures under one root, the root included; the step that would exceed it fails."""
    # ------------------------------------------------------------ Retention
    retain_for: OptionalSeconds = OptionalSeconds(7 * 86400.0, least="zero")
    """Seconds for which finished procedures are kept, with all that ran below them; None: for ever."""
    retain_count: int | None = None
    """Number of roots that finished last and are kept, however young the others are; None: all."""
    retain_failed_for: OptionalSeconds = OptionalSeconds(None, least="zero")
    """Seconds for which procedures are kept that own poisoned keys or could not be undone; None: until repaired."""
    retain_acknowledged: Seconds = Seconds(60.0, least="zero")
    """Seconds for which a procedure is kept after `ProcedureManager.acknowledge`."""
    retain_signals: OptionalSeconds = OptionalSeconds(7 * 86400.0, least="zero")
    """Seconds for which an event that was published and not taken by a procedure is kept; None: for ever. A signal
    to one procedure is kept as long as that may take it."""
    keep_steps: int | None = 100
    """Done steps that stay in the step log of a procedure with nothing to undo, at least; None: all. A class may say
    otherwise with its own ``keep_steps``."""
    sweep_interval: Seconds = Seconds(30.0, endless=False)
    """Seconds between searches for finished procedures and events to be removed; oftener, down to once a second, when a
    fifth of `retain_for` is less."""
    # ------------------------------------------------------------ Output of steps
    log_bytes: int = 256 * 1024
    """Bytes of output and log records kept of each procedure, in memory, the newest; 0: none."""
    log_bytes_total: int = 64 * 1024 * 1024
    """Bytes of output and log records of all procedures together, in memory. Those of the procedures that are silent
    for longest go first."""
    log_file_bytes: int = 16 * 1024 * 1024
    """Bytes of output and log records of all procedures together in two files beside the store, for later lives of the
    program; 0: none."""
    # ------------------------------------------------------------ The store, and trouble
    parked_grace: Seconds = Seconds(5.0, least="zero")
    """Seconds that a procedure is parked, or this manager runs, before that is logged as a warning and waiting callers
    get `ProcedureParked`: classes may be registered meanwhile. `math.inf`: never."""
    commit_backoff: Seconds = Seconds(0.1)
    """Seconds before a refused commit is tried again for the first time; doubles each time."""
    commit_backoff_cap: Seconds = Seconds(10.0)
    """Longest wait in seconds before a refused commit is tried again; with a store in a database 0.5 s at most."""
    allow_any_filesystem: bool = False
    """Allow a directory on a file system of other machines or of FUSE (NFS, 9p, rootless containers …),
    where memory maps and locks may fail. Only one machine may open it then, and no promise holds."""
    signing_key: bytes | tuple[bytes, ...] | None = None
    """Signs pickled states (``codec = "pickle"``); default: a key made once and kept in the store's directory.
    Of several the first signs, and all verify."""

    @classmethod
    def from_env(cls, file: str | os.PathLike[str] | None = None, **given: Any) -> Self:
        """Settings from outside the program. Those that go before others stand first.

        1. Arguments of this call.
        2. Variables of the environment: ``ACTORPROC_RETAIN_FOR=7d``.
        3. One file: that of ``file``, else of the variable ``ACTORPROC_CONFIG``, else ``actorproc.toml`` in the working
           directory, else the table ``[tool.actorproc]`` of ``pyproject.toml`` there.
        4. The defaults.

        Durations are seconds, or texts as ``30s``, ``5m``, ``2h``, ``7d``. Sizes are bytes, or texts as ``16MiB``.
        ``none`` is None. In a variable, mappings are JSON, and a pair of files has a comma. Keys are hexadecimal.

        Args:
            file: A TOML file that must be there. Default: None, as said above.
            **given: Settings, as of the constructor.

        Returns:
            The settings.

        Raises:
            ValueError: A name is no setting, or a value makes no sense; the message names the source, and the nearest
                name.
            OSError: The file that is asked for cannot be read.
            TypeError: An argument is no setting.
        """
        from actorproc.support.settings_sources import from_environment, from_file  # noqa: PLC0415 - for those who ask

        asked = file if file is not None else os.environ.get("ACTORPROC_CONFIG") or None
        found = from_file(cls, None if asked is None else Path(asked), Path.cwd())
        return cls(**{**found, **from_environment(cls, os.environ), **given})

    def __post_init__(self) -> None:
        self._check_retention()
        self._check_scheduling()
        self._check_key()
        for name, least in _LEAST.items():
            if not _is_count(getattr(self, name), least):
                msg = f"Config.{name} is {getattr(self, name)!r}; it must be a whole number, at least {least}"
                raise ValueError(msg)
        for name in ("recycle_steps", "recycle_memory"):
            if (most := getattr(self, name)) is not None and (not _is_span(most) or not most > 0):
                msg = f"Config.{name} is {most!r}; it must be a number above 0, or None"
                raise ValueError(msg)
        if self.keep_steps is not None and not _is_count(self.keep_steps, 1):
            msg = f"Config.keep_steps is {self.keep_steps!r}; it must be a number of steps, at least 1, or None"
            raise ValueError(msg)
        self._check_door()
        for name in ("control", "allow_any_filesystem"):
            if type(getattr(self, name)) is not bool:
                msg = f"Config.{name} is {getattr(self, name)!r}; it must be True or False"
                raise ValueError(msg)
        executable: Any = self.executable
        if executable is not None and (not isinstance(executable, str) or not executable or "\0" in executable):
            msg = f"Config.executable is {executable!r:.80}; it must be the path of a Python interpreter, or None"
            raise ValueError(msg)
        if self.max_frame >= 2**31:
            msg = f"Config.max_frame is {self.max_frame}; it must be less than 2 GiB"
            raise ValueError(msg)
        if self.max_call > 2**31 - _REST_OF_CALL - 1:
            msg = f"Config.max_call is {self.max_call}; it must be less than 2 GiB - {_REST_OF_CALL}"
            raise ValueError(msg)
        if self.max_state > self.max_frame - 4096:
            msg = f"Config.max_state ({self.max_state}) must be at least 4096 less than max_frame ({self.max_frame})"
            raise ValueError(msg)

    @property
    def _longest_frame(self) -> int:
        """Longest message between manager and workers, in bytes: `max_frame`, or a call of `max_call`."""
        return max(self.max_frame, self.max_call + _REST_OF_CALL)

    def _check_door(self) -> None:
        if self.lease < 0.5:
            msg = f"Config.lease is {self.lease!r}; it must be at least 0.5 seconds"
            raise ValueError(msg)
        if self.host_patience < 1.0:
            msg = f"Config.host_patience is {self.host_patience!r}; it must be at least 1 second"
            raise ValueError(msg)
        if self.code is not None and not (isinstance(self.code, str) and 0 < len(self.code) <= 200):
            msg = f"Config.code is {self.code!r:.80}; it must be a text of 1 to 200 characters, such as a revision"
            raise ValueError(msg)
        for name in ("listen", "advertise"):
            given: Any = getattr(self, name)
            if given is None:
                continue
            try:
                parsed_address(given if isinstance(given, str) else "")
            except ValueError as error:
                msg = f"Config.{name} is {given!r:.100}; it must be host, host:port or [ipv6]:port, or None"
                raise ValueError(msg) from error
        files: Any = self.tls
        if files is not None and not (
            isinstance(files, tuple) and len(files) == 2 and all(isinstance(file, str) and file for file in files)
        ):
            msg = f"Config.tls is {files!r:.100}; it must be a pair of files, certificate and key (PEM), or None"
            raise ValueError(msg)

    def _check_key(self) -> None:
        given: Any = self.signing_key
        keys = given if isinstance(given, tuple) else (given,)
        if given is not None and (not keys or not all(isinstance(key, bytes) and key for key in keys)):
            msg = "Config.signing_key must be bytes, a tuple of such, or None; no key may be empty"
            raise ValueError(msg)

    def _check_retention(self) -> None:
        count = self.retain_count
        if count is not None and (isinstance(count, bool) or not isinstance(count, int) or count < 0):
            msg = f"Config.retain_count is {count!r}; it must be a number of procedures, at least 0, or None"
            raise ValueError(msg)

    def _check_scheduling(self) -> None:
        if self.max_running is not None and not _is_count(self.max_running, 1):
            msg = f"Config.max_running is {self.max_running!r}; it must be a number of procedures, at least 1, or None"
            raise ValueError(msg)
        if not _is_count(self.max_queued, 0) or (self.max_running is None and self.max_queued == 0):
            msg = (
                f"Config.max_queued is {self.max_queued!r}; it must be a number of procedures, at least 1 "
                "(or 0 beside a max_running)"
            )
            raise ValueError(msg)
        for name, rule, words in (
            ("concurrency", _is_capacity, "a number of procedures, at least 1"),
            ("rate", _is_rate, "(number of starts, duration), such as (100, 60.0)"),
            ("worker_shares", _is_share, "above 0 and at most 1"),
            ("reserved_workers", _is_reservation, "a number of workers"),
        ):
            given: Any = getattr(self, name)
            if not isinstance(given, Mapping):
                msg = f"Config.{name} is {given!r:.80}; it maps names (1 to 255 characters) to {words}"
                raise ValueError(msg)  # noqa: TRY004 - as all of this class
            for key, value in given.items():
                if not isinstance(key, str) or not 0 < len(key) <= 255 or not rule(value):
                    msg = f"Config.{name} has {key!r}: {value!r}; it maps names (1 to 255 characters) to {words}"
                    raise ValueError(msg)

    def _scheduling(self, workers: int, max_workers: int) -> Scheduling:
        """Order, limits and shares of work, for the core.

        Args:
            workers: Number of workers.
            max_workers: Greatest number of workers while all are stuck.

        Returns:
            The settings, with times in seconds.
        """
        return Scheduling(
            priority_ageing=self.priority_ageing,
            max_running=self.max_running,
            max_queued=self.max_queued,
            concurrency=dict(self.concurrency),
            rate={key: (count, in_seconds(span, "a rate")) for key, (count, span) in self.rate.items()},
            shares={name: float(share) for name, share in self.worker_shares.items()},
            reserved=dict(self.reserved_workers),
            workers=workers,
            max_workers=max_workers,
            stuck_after=self.stuck_after,
            extra_worker_idle=self.extra_worker_idle,
            abort_grace=self.abort_grace,
        )

    @property
    def _retention(self) -> Retention:
        """Retention of finished trees and events, for the core."""
        return Retention(
            self.retain_for, self.retain_count, self.retain_failed_for, self.retain_acknowledged, self.retain_signals
        )


def _is_count(value: Any, least: int) -> bool:
    return type(value) is int and value >= least


def _is_capacity(value: Any) -> bool:
    return _is_count(value, 1)


def _is_reservation(value: Any) -> bool:
    return _is_count(value, 0)


def _is_span(value: Any) -> bool:
    """A number, `math.inf` as well."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return _is_span(value) and math.isfinite(value)


def _is_share(value: Any) -> bool:
    return _is_number(value) and 0 < value <= 1


def _is_rate(value: Any) -> bool:
    if not isinstance(value, tuple) or len(value) != 2:
        return False
    try:
        in_seconds(value[1], "a rate", least="above zero")
    except (TypeError, ValueError):
        return False
    return _is_count(value[0], 1)
