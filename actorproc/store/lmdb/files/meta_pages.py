"""The two meta pages at the head of a 64-bit LMDB file of data version 1, read without LMDB.

A transaction writes its number and its last page into one of the two, by turns; the newer one counts.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import NamedTuple

from actorproc.errors import EngineError, StoreDamaged, StoreFormat
from actorproc.store.directory import DATA_FILE

__all__ = ["MetaPages", "check_data_file", "last_transaction", "read_meta_pages"]

_MAGIC_AND_VERSION = struct.Struct("=II")
_AT = 16  # behind the header of the page
_PAGE_SIZE = struct.Struct("=I")
_PAGE_SIZE_AT = 40
_LAST = struct.Struct("=QQ")  # the last page in use, the number of the transaction
_LAST_AT = 136
_END = 152
_MAGIC = 0xBEEFC0DE
_PAGE_HEADER = struct.Struct("=Q2xHI")  # its number, its kind, and of a value of several pages their number
_OVERFLOW = 4


class MetaPages(NamedTuple):
    """Contents of the meta pages, and the length of the file."""

    size: int
    """Bytes in the file."""
    page_size: int
    """Bytes in a page."""
    last_pages: tuple[int, ...]
    """The last page in use, of each meta page that is there as a whole: two, or one of a file that was cut short."""
    transactions: tuple[int, ...]
    """The number of the transaction, of the same."""

    @property
    def newest(self) -> int:
        """The number of the last transaction."""
        return max(self.transactions)


def read_meta_pages(path: Path) -> MetaPages | None:
    """Meta pages of the store at `path`; None when there is no data file, or an empty one.

    Raises `StoreFormat` for what is no LMDB file of this kind, `EngineError` for one that cannot be read.
    """
    try:
        with (path / DATA_FILE).open("rb") as file:
            first = file.read(_END)
            if not first:
                return None
            page_size = _page_size(path, first)
            file.seek(page_size)
            second = file.read(_END)
            # Afterwards: an owner may be writing, and a file that has grown meanwhile must not look cut short.
            size = os.fstat(file.fileno()).st_size
    except FileNotFoundError:
        return None
    except OSError as error:
        raise EngineError(f"cannot read {path / DATA_FILE}: {error.strerror or error}") from error
    found = [_LAST.unpack_from(meta, _LAST_AT) for meta in (first, second) if len(meta) == _END]
    return MetaPages(size, page_size, tuple(last for last, _ in found), tuple(number for _, number in found))


def last_transaction(fd: int, page_size: int) -> int:
    """The newer number in the meta pages of an open data file. Raises `OSError`."""
    pages = (os.pread(fd, _LAST.size, number * page_size + _LAST_AT) for number in range(2))
    return max((_LAST.unpack(page)[1] for page in pages if len(page) == _LAST.size), default=0)


def _page_size(path: Path, head: bytes) -> int:
    if len(head) == _END:
        magic, version = _MAGIC_AND_VERSION.unpack_from(head, _AT)
        (page_size,) = _PAGE_SIZE.unpack_from(head, _PAGE_SIZE_AT)
        if magic == _MAGIC and version == 1 and page_size in {1 << bits for bits in range(8, 17)}:
            return int(page_size)
    raise StoreFormat(
        f"{path / DATA_FILE} is no actorproc store (no LMDB data file of version 1); it was not changed. Give another "
        "directory, or move the file away"
    )


def check_data_file(path: Path) -> None:
    """Look at an existing data file before it is mapped.

    Raises `StoreFormat` for what is no LMDB file of our kind, and `StoreDamaged` for a file that was cut short:
    LMDB would map it and the process would die of SIGBUS at the first missing page. No file, or an empty one
    (a first start that was killed), is a new store.
    """
    metas = read_meta_pages(path)
    if metas is None:
        return
    _, last_page = max(zip(metas.transactions, metas.last_pages, strict=True))
    size, needed = metas.size, (last_page + 1) * metas.page_size
    if len(metas.transactions) < 2 or (size < needed and not _short_tail_is_free(path, size, metas.page_size)):
        raise StoreDamaged(
            f"{path / DATA_FILE} has {size} bytes and needs {needed}: it was cut short; restore it from a backup "
            "(it is left as it is)",
            reason="the file was cut short",
        )


def _short_tail_is_free(path: Path, size: int, page_size: int) -> bool:
    """True if every page in use lies inside a file that is shorter than its last page.

    LMDB need not write pages that a transaction took and gave back. Rare, so the whole file may be walked.
    """
    from lmdb import verify  # noqa: PLC0415 - only for files that look cut short

    try:
        flaws = verify.verify(os.fspath(path), subdir=True)  # type: ignore[no-untyped-call]
    except verify.VerifyError:
        return False
    return not flaws and not _ends_in_a_value(path / DATA_FILE, size, page_size)


def _ends_in_a_value(file: Path, size: int, page_size: int) -> bool:
    """True if a value of several pages goes on behind the end of the file. `lmdb.verify` looks at its first page."""
    with file.open("rb") as pages:
        for number in range(2, size // page_size + 1):
            pages.seek(number * page_size)
            head = pages.read(_PAGE_HEADER.size)
            if len(head) == _PAGE_HEADER.size:
                own_number, kind, length = _PAGE_HEADER.unpack(head)
                if own_number == number and kind == _OVERFLOW and (number + length) * page_size > size:
                    return True
    return False
