"""A test that finds a real bug: money that is moved twice when a worker dies at the wrong moment.

Moves money between two accounts in SQLite, once as it is mostly written and once as it must be, and lets
`survives_crashes` try every crash. Run it with pytest, or as a program.
"""

import sqlite3
import tempfile
from pathlib import Path

from actorproc import Saga, step
from actorproc.testing import DidNotSurvive, survives_crashes

SCHEMA = """
CREATE TABLE accounts (name TEXT PRIMARY KEY, cents INTEGER NOT NULL);
CREATE TABLE moved (key TEXT PRIMARY KEY);
INSERT INTO accounts VALUES ('alice', 1000), ('bob', 1000);
"""


class Transfer(Saga):
    """Each step is a transaction, so what could go wrong?"""

    database: str
    cents: int

    @step
    def withdraw(self, ctx):
        self.change(ctx, "alice", -self.cents)

    @withdraw.undo
    def give_back(self, ctx):
        self.change(ctx, "alice", self.cents)

    @step
    def deposit(self, ctx):
        self.change(ctx, "bob", self.cents)
        return "moved"

    def change(self, ctx, name, cents):
        # The transaction is durable before the engine has heard of it: after a crash in between it comes again.
        with sqlite3.connect(self.database) as connection:
            connection.execute("UPDATE accounts SET cents = cents + ? WHERE name = ?", (cents, name))
        connection.close()


class SafeTransfer(Transfer):
    """The key of the step goes into the same transaction, so a second one changes nothing."""

    def change(self, ctx, name, cents):
        with sqlite3.connect(self.database) as connection:
            if connection.execute("INSERT OR IGNORE INTO moved VALUES (?)", (ctx.idempotency_key,)).rowcount:
                connection.execute("UPDATE accounts SET cents = cents + ? WHERE name = ?", (cents, name))
        connection.close()


def try_crashes(kind, folder):
    """Every crash of a transfer; what is compared is the table of accounts."""
    database = str(Path(folder, "bank.db"))

    def reset():
        Path(database).unlink(missing_ok=True)
        connection = sqlite3.connect(database)
        connection.executescript(SCHEMA)
        connection.close()

    def accounts():
        connection = sqlite3.connect(database)
        rows = connection.execute("SELECT name, cents FROM accounts ORDER BY name").fetchall()
        connection.close()
        return rows

    return survives_crashes(kind(database, 250), observe=accounts, reset=reset)


def test_a_safe_transfer_survives_every_crash(tmp_path):
    try_crashes(SafeTransfer, tmp_path)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as here:
        try:
            try_crashes(Transfer, here)
        except DidNotSurvive as found:
            print(f"Transfer: {found}\n")
        print(f"SafeTransfer: {try_crashes(SafeTransfer, here)}")
