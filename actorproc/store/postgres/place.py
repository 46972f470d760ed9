"""Places of stores in databases: the URL that users give, and what of it may be shown.

Nothing here loads psycopg: a module that has a manager at its top is imported by workers too.
"""

from __future__ import annotations

import hashlib
import re
from typing import NamedTuple
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlencode, urlsplit

from actorproc.errors import UsageError

__all__ = ["CLOSED", "DEFAULT_STORE", "SCHEMES", "DatabasePlace", "is_database_url", "place_of"]

SCHEMES = ("postgresql", "postgres")
DEFAULT_STORE = "actorproc"
"""Name of the schema where the URL names none."""
CLOSED = "store_was_moved"
"""Name of the constraint that closes the table of what applications enqueue."""

_URL = re.compile(r"(?:postgresql|postgres)://", re.IGNORECASE)
_LONGEST_NAME = 40
"""Bytes of the name of a store. PostgreSQL cuts identifiers at 63, silently, and ours have additions."""
_SECRET = re.compile(r"pass(?!file)|secret|token|sslkey", re.IGNORECASE)
"""Parameters that are shown nowhere, misspelled ones too."""
_NOT_OURS = ("pg_", "information_schema")


class DatabasePlace(NamedTuple):
    """One store in one database."""

    url: str
    """For libpq, with a password if there is one; never shown."""
    store: str
    """Name of the schema."""
    words: str
    """The URL as it is shown: without a password."""

    @property
    def schema(self) -> str:
        """The schema as an identifier of SQL."""
        return '"' + self.store.replace('"', '""') + '"'

    @property
    def lock(self) -> int:
        """Key of the advisory lock of the store, a signed number of 64 bits."""
        digest = hashlib.blake2b(f"actorproc store\0{self.store}".encode(), digest_size=8).digest()
        return int.from_bytes(digest, signed=True)

    @property
    def channel(self) -> str:
        """The channel of notifications about what is enqueued, as an identifier of SQL that needs no quotes."""
        return f"actorproc_{self.lock & 0xFFFFFFFFFFFFFFFF:016x}"

    @property
    def has_password(self) -> bool:
        """The URL itself holds a password."""
        parts = urlsplit(self.url)
        return parts.password is not None or any(
            name.lower() in {"password", "sslpassword"} for name, _ in parse_qsl(parts.query)
        )


def is_database_url(text: str) -> bool:
    """True if a text that stands for a store is the URL of a database."""
    return _URL.match(text) is not None


def place_of(url: str) -> DatabasePlace:
    """The place that a URL stands for.

    Args:
        url: ``postgresql://[user@]host[:port][,…]/database[?store=NAME&…]``; other parameters are libpq's.

    Returns:
        The place.

    Raises:
        UsageError: The URL, or the name of the store in it, cannot be used.
    """
    try:
        parts = urlsplit(url)
        query = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError as error:
        scheme = url.partition(":")[0]
        raise UsageError(
            f"{scheme}://… cannot be read as the URL of a database ({_kind_of(error)}). "
            "It has the form postgresql://user@host:port/database?store=NAME"
        ) from None
    if "\0" in url or any(ord(letter) < 32 for letter in url):
        raise UsageError("the URL of a database holds a control character; give it without")
    if parts.fragment:
        raise UsageError("the URL of a database holds a '#': write it as %23 where it belongs to a name or a password")
    names = [value for name, value in query if name == "store"]
    if len(names) > 1:
        raise UsageError(f"the URL names more than one store: {', '.join(names)}; give one ?store=NAME")
    store = _checked_name(names[0] if names else DEFAULT_STORE)
    rest = [(name, value) for name, value in query if name != "store"]
    shown = [(name, value) for name, value in rest if not _SECRET.search(name)]
    if store != DEFAULT_STORE:
        shown.append(("store", store))
    return DatabasePlace(
        _put_together(parts, parts.netloc, rest), store, _put_together(parts, _without_password(parts), shown)
    )


def _checked_name(name: str) -> str:
    if not name:
        raise UsageError("the URL gives the store an empty name: leave ?store= out, or name it, such as ?store=shop")
    if len(name.encode()) > _LONGEST_NAME:
        raise UsageError(
            f"the name of the store {name[:_LONGEST_NAME]!r}… has more than {_LONGEST_NAME} bytes. "
            "PostgreSQL would cut it, and two stores could become one; give a shorter ?store=NAME"
        )
    if not name.isprintable() or set(name) & set("\"'\\"):
        raise UsageError(f"the name of the store, {name!r}, holds a quotation mark or a letter that cannot be shown")
    if name.lower().startswith(_NOT_OURS):
        raise UsageError(f"schemas such as {name!r} belong to PostgreSQL itself; give another ?store=NAME")
    return name


def _without_password(parts: SplitResult) -> str:
    user, at, hosts = parts.netloc.rpartition("@")
    return user.partition(":")[0] + at + hosts


def _put_together(parts: SplitResult, place: str, query: list[tuple[str, str]]) -> str:
    # "postgres" is libpq's other spelling of the scheme; one store has one name here.
    tail = f"?{urlencode(query, quote_via=quote)}" if query else ""
    return f"postgresql://{place}{quote(unquote(parts.path))}{tail}"


def _kind_of(error: ValueError) -> str:
    """Reason of `urllib` without what it quotes of the URL, which may hold a password."""
    return re.sub(r"""['"‘“].*""", "…", str(error))[:60]
