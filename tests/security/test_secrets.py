"""S17: what is marked as Secret is kept, and shown nowhere."""

from __future__ import annotations

import base64
import copy
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated

import msgspec
import pytest

import actorproc
from actorproc import Procedure, ProcedureFailed, Saga, Secret, Status, UsageError, procedure, step
from actorproc.cli.main import main
from actorproc.procedure.runtime.engine_side import TypeRegistry
from actorproc.procedure.values.redaction import redacted
from tests.kit.managers import LIGHT

CANARY = "correct-horse-battery-staple"
Token = Annotated[str, Secret]
here = sys.modules[__name__]


@dataclass
class Account:
    name: str
    password: Annotated[str, Secret] = field(repr=False)  # a dataclass that is a mere value prints itself


class Charge(Saga):
    """Holds the canary in every way there is."""

    card: Annotated[str, Secret]
    alias: Token
    account: Account
    wrapped: Secret[str]
    many: list[Secret[str]] = field(default_factory=list)
    by_name: dict[str, tuple[Secret[str], int]] = field(default_factory=dict)
    ending: str = "well"

    @step
    def remember(self, ctx):
        assert self.card == self.alias == self.account.password == self.wrapped.reveal() == CANARY
        assert ctx.remember("token", lambda: Secret(self.card)).reveal() == CANARY
        ctx.log.info("charging %s with %s", self.wrapped, self)

    @remember.undo
    def forget(self, ctx):
        assert self.card == CANARY

    @step
    def end(self, ctx):
        assert self.many[0] == self.by_name["a"][0] == Secret(CANARY)
        if self.ending == "crash":
            os.kill(os.getpid(), signal.SIGABRT)
        if self.ending == "error":
            raise ValueError(f"cannot charge {self!r} {self.wrapped}")
        if self.ending == "sleep":
            return Status.sleep(3600)
        return {"receipt": Secret(CANARY)}


def charge(ending="well"):
    hidden = Secret(CANARY)
    return Charge(CANARY, CANARY, Account("alice", CANARY), hidden, [hidden], {"a": (hidden, 1)}, ending)


def test_s17_a_secret_shows_asterisks_and_gives_its_value_when_asked():
    secret = Secret(CANARY)

    for text in (repr(secret), str(secret), f"{secret}", f"{secret!r:>5}", repr([secret]), repr({"a": secret})):
        assert CANARY not in text
        assert "*" in text
    assert secret.reveal() == secret.get_secret_value() == CANARY
    assert secret == Secret(CANARY) == copy.deepcopy(secret)
    assert secret != Secret("another")
    assert secret != CANARY
    assert len({secret, Secret(CANARY)}) == 1


@dataclass
class Plain(Procedure):
    token: Annotated[str, Secret]
    user: str = "alice"

    def execute(self, ctx):
        return Status.done()


@dataclass
class Below(Plain):
    more: int = 1


@dataclass
class Optional(Procedure):
    token: Annotated[str, Secret] | None = None
    more: list[Annotated[str, Secret]] = field(default_factory=lambda: [CANARY])
    user: str = "alice"

    def execute(self, ctx):
        return Status.done()


@dataclass
class ByName(Procedure):
    token: Token | None
    other: here.Token | None = None
    more: list[Token] = field(default_factory=lambda: [CANARY])
    user: str = "alice"

    def execute(self, ctx):
        return Status.done()


class Packed(msgspec.Struct, Procedure):
    token: Annotated[str, Secret]

    def execute(self, ctx):
        return Status.done()


class Loose(Procedure):
    token: Token

    def __init__(self):
        self.token, self.user = CANARY, "alice"

    def execute(self, ctx):
        return Status.done()


@procedure
def pay(user: str, token: Annotated[str, Secret]):
    return user


@pytest.mark.parametrize(
    "make",
    [
        lambda: Plain(CANARY),
        lambda: Below(CANARY),
        lambda: Optional(CANARY),
        lambda: ByName(CANARY, CANARY),
        lambda: Packed(CANARY),
        Loose,
        lambda: pay("alice", CANARY),
    ],
)
def test_s17_every_kind_of_procedure_hides_a_marked_field_and_keeps_it(make: Callable[[], Procedure]):
    made = make()
    runtime = TypeRegistry().for_object(made)
    state = runtime.describe(made).state

    assert CANARY not in repr(made)
    assert "alice" in repr(made) or isinstance(made, Packed)
    back = runtime.load(state, "data", 1)
    assert back.token == CANARY
    assert CANARY.encode() in state  # kept as it is, which the documents say
    assert CANARY.encode() not in redacted(state)


def test_s17_values_without_secrets_are_exported_byte_for_byte():
    plain = msgspec.msgpack.encode({"a": [1, 2.5, None, b"\x00", "text"], "b": {"c": [True]}})

    for data in (plain, b"", b"\xc1", b"\xd9", os.urandom(50)):
        assert redacted(data) == data


def test_s17_a_state_that_nobody_can_look_into_cannot_have_marked_fields():
    class Pickled(Plain):
        codec = "pickle"

    class Own(Plain):
        def dump(self):
            return self.token

    for kind in (Pickled, Own):
        with pytest.raises(UsageError, match="marks 'token' as Secret"):
            TypeRegistry(signing_key=b"k" * 32).register(kind)


def wait_until(holds):
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def hidden_forms():
    yield CANARY
    yield CANARY.encode().hex()
    for shift in range(3):  # base64 of it inside something longer
        encoded = base64.b64encode(b"\0" * shift + CANARY.encode()).decode()
        yield encoded[4:-4]


def test_s17_no_output_of_any_kind_shows_a_secret(tmp_path, caplog, capfd):
    caplog.set_level(logging.DEBUG)
    path = tmp_path / "store"
    seen = []
    with actorproc.ProcedureManager(path, workers=1, **LIGHT, procedures=[Charge]) as manager:
        result = manager.run(charge(), id="well")
        assert result["receipt"].reveal() == CANARY
        for ending in ("error", "crash"):
            with pytest.raises(ProcedureFailed) as failed:
                manager.run(charge(ending), id=ending)
            seen += [
                str(failed.value),
                repr(failed.value),
                failed.value.cause.__class__.__name__,
                str(failed.value.cause),
            ]
        manager.submit(charge("sleep"), id="sleep")
        manager.publish("mail", Secret(CANARY))
        wait_until(lambda: manager.info("sleep").phase == "sleeping")
        for name in ("well", "error", "crash", "sleep"):
            steps = manager.steps(name)
            seen += [repr(steps), str(steps), repr([one.to_dict() for one in steps])]
            seen += [repr(manager.info(name)), str(manager.info(name).to_dict()), repr(manager.get(name))]
            seen += [
                repr(manager.tree(name)),
                repr(manager.logs(name)),
                repr(manager.why(name)),
                repr(manager.audit(name)),
            ]
        seen += [repr(result), repr(charge()), str(manager.health()), manager.metrics().prometheus()]
        seen += [repr(manager.workers()), repr(manager.list()), repr(manager.locks())]
    plain = [["list"], ["status"], ["doctor"], ["locks"], ["poisons"], ["export", "--all"], ["export", "sleep"]]
    each = [
        [verb, name]
        for verb in ("show", "steps", "tree", "why", "logs", "state", "states")
        for name in ("well", "error", "crash", "sleep")
    ]
    for command in (*plain, *each):
        assert main(["--path", str(path), *command]) in (0, 1), command
        if command[0] != "export":
            main(["--path", str(path), command[0], "-o", "json", *command[1:]])
    text = "\n".join([*seen, caplog.text, *capfd.readouterr()])

    assert "charging" in text  # the step's own words are there
    assert "SIGABRT" in text
    for form in hidden_forms():
        assert form not in text, text[max(0, text.find(form) - 200) :][:400]


def test_s17_an_export_reveals_only_when_asked_and_what_was_left_out_parks_where_it_is_imported(tmp_path, capsys):
    path = tmp_path / "store"
    with actorproc.ProcedureManager(path, workers=1, **LIGHT, procedures=[Charge]) as manager:
        manager.run(charge(), id="ended")
        manager.submit(charge(), id="open", delay=2)
    for option, name in ((), "hidden"), (("--reveal",), "whole"):
        out = tmp_path / f"{name}.json"
        assert main(["--path", str(path), "export", "--all", *option, "--out", str(out)]) == 0
        steps = [step for tree in json.loads(out.read_text())["trees"] for step in tree["steps"]]
        stored = b"".join(base64.b64decode(step["state"]) + base64.b64decode(step["output"]) for step in steps)
        assert (CANARY.encode() in stored) is (name == "whole")
        assert b"alice" in stored
        copied = tmp_path / f"store-{name}"
        assert main(["--path", str(copied), "import", str(out)]) == 0
    capsys.readouterr()

    with actorproc.ProcedureManager(tmp_path / "store-hidden", workers=1, **LIGHT, procedures=[Charge]) as manager:
        wait_until(lambda: manager.info("open").phase == "parked")
        assert "its secrets were left out when it was exported" in manager.info("open").reason
    with actorproc.ProcedureManager(tmp_path / "store-whole", workers=1, **LIGHT, procedures=[Charge]) as manager:
        assert manager.get("open").result(30)["receipt"].reveal() == CANARY
