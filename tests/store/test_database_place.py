"""URLs of stores in databases: what they name, what is shown of them, and what is refused in words."""

from __future__ import annotations

import subprocess
import sys

import pytest

from actorproc.errors import UsageError
from actorproc.store.postgres.place import DEFAULT_STORE, is_database_url, place_of


@pytest.mark.parametrize(
    ("url", "store", "words"),
    [
        ("postgresql://db/app", DEFAULT_STORE, "postgresql://db/app"),
        ("postgres://db/app", DEFAULT_STORE, "postgresql://db/app"),
        ("POSTGRESQL://db/app", DEFAULT_STORE, "postgresql://db/app"),
        ("postgresql://ann:secret@db:5433/app?store=shop", "shop", "postgresql://ann@db:5433/app?store=shop"),
        ("postgresql://ann:sec%40ret@a:1,b:2/app", DEFAULT_STORE, "postgresql://ann@a:1,b:2/app"),
        ("postgresql://db/app?password=secret&sslmode=require", DEFAULT_STORE, "postgresql://db/app?sslmode=require"),
        ("postgresql://db/app?store=Caf%C3%A9", "Café", "postgresql://db/app?store=Caf%C3%A9"),
        ("postgresql:///app?host=/run/pg&store=actorproc", DEFAULT_STORE, "postgresql:///app?host=%2Frun%2Fpg"),
        ("postgresql://[::1]:5432/app", DEFAULT_STORE, "postgresql://[::1]:5432/app"),
    ],
)
def test_a_url_names_a_store_and_is_shown_without_a_password(url, store, words):
    place = place_of(url)

    assert (place.store, place.words) == (store, words)
    assert "secret" not in place.words
    assert "store=" not in place.url, "libpq knows no such parameter"
    assert place_of(place.words).words == words


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("postgresql://db/app?store=", "empty name"),
        (f"postgresql://db/app?store={'x' * 41}", "more than 40 bytes"),
        (f"postgresql://db/app?store={'%C3%A9' * 21}", "more than 40 bytes"),
        ("postgresql://db/app?store=pg_catalog", "belong to PostgreSQL"),
        ("postgresql://db/app?store=information_schema", "belong to PostgreSQL"),
        ("postgresql://db/app?store=a&store=b", "more than one store"),
        ('postgresql://db/app?store=a"b', "quotation mark"),
        ("postgresql://db/app?store=a'b", "quotation mark"),
        ("postgresql://db/app?store=a%5Cb", "quotation mark"),
        ("postgresql://db/app?store=a%00b", "cannot be shown"),
        ("postgresql://ann:sec#ret@db/app", "%23"),
        ("postgresql://db/app?store", "form postgresql://"),
        ("postgresql://[db/app", "form postgresql://"),
    ],
)
def test_a_url_that_cannot_be_used_is_refused_in_words_without_its_password(url, reason):
    with pytest.raises(UsageError, match=reason) as refused:
        place_of(url)

    assert "sec#ret" not in str(refused.value)


def test_two_stores_of_one_database_have_locks_of_their_own():
    one, other = place_of("postgresql://db/app?store=one"), place_of("postgresql://db/app?store=other")

    assert one.lock == place_of("postgresql://elsewhere/app?store=one").lock != other.lock
    assert -(2**63) <= one.lock < 2**63


@pytest.mark.parametrize("text", ["state", "/var/lib/shop", "postgresql:/x", "mysql://db/app", "x-postgresql://db", ""])
def test_other_texts_are_no_urls_of_databases(text):
    assert not is_database_url(text)


def test_the_package_does_not_import_psycopg():
    program = "import sys, actorproc, actorproc.store.postgres.place; sys.exit('psycopg' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
