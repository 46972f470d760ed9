"""The directory of a store: made private, checked before it is trusted.

Other users of the machine are outside: they must neither read nor change a store, and nothing they could have
planted is opened. So the directory and the files in it belong to us, no other user can write to them, and none
of them is a symbolic link. The file system must keep memory maps and locks coherent, which remote ones do not.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
from pathlib import Path
from typing import Any

from actorproc.errors import EngineError, StoreDamaged, UsageError
from actorproc.support.staged_files import BLOBS

__all__ = [
    "BLOBS",
    "DATA_FILE",
    "KEY_FILE",
    "LOCK_FILE",
    "OWNER_FILE",
    "check_directory",
    "damaged_pages",
    "make_directory",
    "make_private",
    "new_private",
    "read_private",
    "refuse_url",
    "sync_names",
]

DATA_FILE = "data.mdb"
LOCK_FILE = "lock.mdb"
OWNER_FILE = "owner.lock"
KEY_FILE = "signing.key"
"""Signs pickled states; made by `actorproc.store.signing_key`, and a copy of a store is of no use without it."""

_REMOTE = re.compile(r"nfs\d?|cifs|smb\d?|smbfs|9p|ceph|afs|lustre|glusterfs|ncpfs|vboxsf|fuse(\..*)?|fuseblk")
_ALLOWED = "ACTORPROC_ALLOW_ANY_FILESYSTEM"
"""The environment's word for it: commands have no `Config`."""
_MOUNTS = Path("/proc/self/mountinfo")

_SCHEME = r"""[\s"'<]*((?:[A-Za-z][A-Za-z0-9+.-]+:)*[A-Za-z][A-Za-z0-9+.-]+)"""
"""Of a URL, also one with a blank or a quotation mark before it, as files of settings have, or with ``jdbc:``."""
_URL = re.compile(_SCHEME + "://")
_SQUEEZED = re.compile(_SCHEME + ":/(?!/)")
"""A URL that went through `pathlib`, which makes one slash of two."""
_DATABASE = ("postgresql", "postgres")


def make_directory(path: Path, *, allow_any_filesystem: bool = False) -> None:
    """Make the directory with mode 0700 if it is missing, then check it as `check_directory` does."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir(mode=0o700)
        path.chmod(0o700)  # the umask may have taken away even our own bits
        sync_names(path.parent)
    except FileExistsError:
        pass  # the check below says what is there
    except OSError as error:
        raise EngineError(
            f"cannot make the store's directory {path}: {error.strerror}; make it, or give a directory in which "
            "this user may write"
        ) from error
    check_directory(path, allow_any_filesystem=allow_any_filesystem)


def check_directory(path: Path, *, allow_any_filesystem: bool = False) -> None:
    """Raise an `EngineError` that says what to do unless this directory can hold a store of ours."""
    found = _lstat(path)
    if found is None:
        raise EngineError(f"there is no store at {path}: the directory does not exist")
    _check_owner(path, found, kind="directory")
    if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        raise EngineError(f"the store's directory {path} needs read, write and search permission: chmod u+rwx {path}")
    for name in (DATA_FILE, LOCK_FILE, OWNER_FILE, KEY_FILE):
        file = path / name
        inside = _lstat(file)
        if inside is not None:
            _check_owner(file, inside, kind="file")
            if not os.access(file, os.R_OK | os.W_OK):
                raise EngineError(f"the store's file {file} needs read and write permission: chmod u+rw {file}")
    blobs = _lstat(path / BLOBS)
    if blobs is not None:
        _check_owner(path / BLOBS, blobs, kind="directory")
        if not os.access(path / BLOBS, os.R_OK | os.W_OK | os.X_OK):
            raise EngineError(f"the directory {path / BLOBS} needs read, write and search permission: chmod u+rwx it")
    is_allowed = allow_any_filesystem or os.environ.get(_ALLOWED, "") not in {"", "0"}
    kind = None if is_allowed else _filesystem_type(path)
    if kind is not None and _REMOTE.fullmatch(kind):
        raise EngineError(
            f"the store's directory {path} is on a {kind} file system, where memory maps and locks are not safe; use "
            "a local disk. If only this machine ever opens it, allow that: Config(allow_any_filesystem=True) for a "
            f"program, {_ALLOWED}=1 in the environment of commands"
        )


def _check_owner(path: Path, found: os.stat_result, *, kind: str) -> None:
    expected = stat.S_ISDIR if kind == "directory" else stat.S_ISREG
    if stat.S_ISLNK(found.st_mode):
        raise EngineError(f"the store's {kind} {path} is a symbolic link, which is refused: give the real path")
    if not expected(found.st_mode):
        wanted = "directory" if kind == "directory" else "regular file"
        raise EngineError(f"the store's {kind} {path} is no {wanted}; give another path or move it away")
    if found.st_uid != os.geteuid():
        raise EngineError(
            f"the store's {kind} {path} belongs to user {found.st_uid} and this process runs as user "
            f"{os.geteuid()}; run as its owner, or change it: chown {os.geteuid()} {path}"
        )
    if found.st_mode & 0o022:
        raise EngineError(
            f"the store's {kind} {path} has mode {stat.S_IMODE(found.st_mode):04o}: others can write to it, so it "
            f"cannot be trusted; check what is in it, then: chmod go-w {path}"
        )


def sync_names(directory: Path) -> None:
    """Make the names of new files in a directory durable; LMDB syncs its files, not their names."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def new_private(file: str | os.PathLike[str]) -> int:
    """A new file of mode 0600, open for writing: the umask may take away even our own bits.

    Raises `FileExistsError` where there is anything, a link included, and other `OSError`s.
    """
    fd = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    os.fchmod(fd, 0o600)
    return fd


def read_private(file: str | os.PathLike[str], most: int) -> tuple[bytes, os.stat_result]:
    """The first `most` bytes of a small file of ours, and which file it is. Raises `OSError`.

    Something else may have been planted there: a link is not followed, a pipe without a writer is not waited for.
    """
    fd = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "it is no regular file", os.fspath(file))
        return os.pread(fd, most, 0), found
    finally:
        os.close(fd)


def make_private(file: Path) -> None:
    """Make an empty file of mode 0600 unless there is something."""
    with contextlib.suppress(FileExistsError):
        os.close(new_private(file))


def _lstat(path: Path) -> os.stat_result | None:
    try:
        return path.lstat()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise EngineError(f"cannot look at {path}: {error.strerror}; check the permissions of its parents") from error


def _filesystem_type(path: Path) -> str | None:
    """The type of the file system a path is on; None where the system does not say."""
    try:
        lines = _MOUNTS.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return None
    real = f"{path.resolve()}/"
    kind, depth = None, 0
    for line in lines:
        mount, _, source = line.partition(" - ")
        # The kernel writes blanks in names as \040 and the like.
        point = re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), mount.split(" ")[4]).rstrip("/") + "/"
        # A later line hides an earlier one at the same place.
        if real.startswith(point) and len(point) >= depth:
            kind, depth = source.split(" ")[0], len(point)
    return kind


def damaged_pages(path: Path, reason: str) -> StoreDamaged:
    """The file cannot be used: what its pages say does not hold together."""
    return StoreDamaged(
        f"pages of {path / DATA_FILE} are damaged, so it was not opened and is left as it is: {reason}. Save what can "
        f"be read with: actorproc --path {path} doctor --export-good GOOD.json, then import it into a new store; or "
        "restore a backup",
        reason=reason,
    )


def refuse_url(path: str | os.PathLike[str] | Any, why: str, *, database: bool = False) -> None:
    """Refuse a URL where a directory or a file is made: a directory of that name would be made in silence.

    Args:
        path: The path, or the URL, that the caller gave.
        why: First half of the message: what is kept where.
        database: URLs of databases are supported, where they are given as texts. Default: False.

    Raises:
        UsageError: It is a URL. The message has its scheme only: the rest may hold a password.
    """
    given = os.fsdecode(path)
    found = _URL.match(given)
    if found is None:
        found = _SQUEEZED.match(given)
        if found is None or os.path.lexists(f"{given[: found.end(1)]}:"):
            return  # also a directory that is really called so
        if not isinstance(path, os.PathLike) and found[1].lower() not in _DATABASE:
            return  # a text is taken as it is: 'C:/x' is a path
    scheme = found[1]
    if found.start(1) > 0:
        msg = f"{scheme}://… is a URL with {given[0]!r} before it: give the URL alone"
        raise UsageError(msg)
    supported = "the path of a directory, such as 'state' or '/var/lib/shop'"
    if database:
        supported += ", or a URL such as postgresql://db/app?store=NAME"
        if scheme.lower() in _DATABASE:
            msg = f"{scheme}:/… went through pathlib, which makes one slash of two: give the URL as a text"
            raise UsageError(msg)
    plain = "; for file:///…, give the path behind file://" if scheme.lower() == "file" else ""
    kind = f"URLs of the kind {scheme!r} are not supported"
    msg = f"{scheme}://… is a URL, and {why}: {kind}. Supported: {supported}{plain}"
    raise UsageError(msg)
