"""S17: fields of the type `Secret` hide plain values as well, as a command line gives them."""

from __future__ import annotations

import sys
import typing
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, make_dataclass
from typing import Annotated, Any, Final, NamedTuple, NewType, Optional

import msgspec
import pytest

from actorproc import Procedure, Saga, Secret, Status, procedure, step
from actorproc.procedure.encoding.state import format_of
from actorproc.procedure.runtime.engine_side import TypeRegistry
from actorproc.procedure.values.redaction import redacted
from actorproc.procedure.values.secrets.secret import SecretField
from actorproc.procedure.values.secrets.secret_hints import hiding
from actorproc.procedure.values.viewing import viewed_state

CANARY = "correct-horse-battery-staple"
Hidden = Secret[str]
Password = NewType("Password", Secret[str])


@dataclass
class Account:
    user: str
    password: Secret[str] = field(repr=False)
    old: list[Secret[str]] = field(default_factory=list, repr=False)


class Point(NamedTuple):
    name: str
    key: Secret[str] | str


def marks(value: Any) -> Any:
    """The value with marks in place of what is hidden of it."""
    if isinstance(value, SecretField):
        return ["hidden", value.value]
    if isinstance(value, dict):
        return {key.value if isinstance(key, SecretField) else key: marks(part) for key, part in value.items()}
    return type(value)(map(marks, value)) if isinstance(value, list | tuple) else value


HIDE = ["hidden", CANARY]
S = Secret(CANARY)


@pytest.mark.parametrize(
    ("hint", "value", "hidden"),
    [
        (Secret, CANARY, HIDE),
        (Secret[str], CANARY, HIDE),
        (Secret[str], "", ["hidden", ""]),
        (Secret[int], 7, ["hidden", 7]),
        (Secret[dict], {"a": 1}, ["hidden", {"a": 1}]),
        (Secret[str], None, None),
        (Secret[str], S, S),
        (Secret[str] | None, CANARY, HIDE),
        (Optional[Secret[str]], CANARY, HIDE),  # noqa: UP045 - as it was written once
        (Secret[str] | None, None, None),
        (Secret[str] | None, S, S),
        (Secret[str] | str, CANARY, HIDE),
        (Secret | str, CANARY, HIDE),
        (int | Secret[str], 7, 7),
        (int | Secret[str], CANARY, HIDE),
        (Account | Secret, Account("a", CANARY), Account("a", CANARY)),
        (Hidden, CANARY, HIDE),
        (Password, CANARY, HIDE),
        (Annotated[Secret[str], "of the till"], CANARY, HIDE),
        (Final[Secret[str]], CANARY, HIDE),
        (list[Secret[str]], [CANARY, None, S], [HIDE, None, S]),
        (list[Secret[str] | None] | None, [CANARY, None], [HIDE, None]),
        (list[Secret[str]], CANARY, HIDE),
        (Sequence[Secret[str]], (CANARY,), (HIDE,)),
        (list[Secret[str]] | Secret[str], [S], [S]),
        (list[Secret[str]] | Secret[str], CANARY, HIDE),
        (tuple[str, Secret[str]], ("alice", CANARY), ("alice", HIDE)),
        (tuple[str, Secret[str]], ["alice", CANARY], ["alice", HIDE]),
        (tuple[Secret[str], ...], (CANARY, S), (HIDE, S)),
        (tuple[str, Secret[str]], ("alice", S, CANARY), ("alice", S, HIDE)),
        (dict[str, Secret[str]], {"alice": CANARY, "bob": S}, {"alice": HIDE, "bob": S}),
        (dict[Secret[str], int], {CANARY: 1}, {CANARY: 1}),
        (Mapping[str, tuple[Secret[str], int]], {"a": (CANARY, 1)}, {"a": (HIDE, 1)}),
        (dict[str, list[Secret[str]]] | None, {"a": [CANARY]}, {"a": [HIDE]}),
        (Annotated[Secret[str], Secret] | None, None, ["hidden", None]),
    ],
)
def test_s17_plain_values_in_the_places_of_secrets_are_hidden_and_all_else_stays(hint, value, hidden):
    hide = hiding(hint)

    assert hide is not None
    assert marks(hide(value)) == hidden


@pytest.mark.parametrize(
    "value",
    [
        [CANARY],
        (CANARY,),
        {CANARY},
        frozenset((CANARY,)),
        deque([CANARY], 3),
        {CANARY: CANARY},
        OrderedDict({CANARY: CANARY}),
        defaultdict(list, {CANARY: CANARY}),
        Counter({CANARY: 2}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_containers_come_back_as_they_were(value):
    kind = type(value)
    hint = kind[Secret[str], Secret[str]] if kind in (dict, OrderedDict, defaultdict) else kind[Secret[str]]
    made = make_dataclass("Holds", [("held", hint)], bases=(Procedure,), namespace={"execute": lambda self, ctx: None})
    runtime, state = stored(made(value))

    back = runtime.load(state, "data", 1).held

    assert (type(back), back) == (kind, value)
    assert CANARY.encode() not in redacted(state)
    assert getattr(back, "maxlen", None) == getattr(value, "maxlen", None)


@pytest.mark.parametrize("hint", [str, str | None, list[str], dict[str, int], Account, Any, "Secret"])
def test_hints_without_secrets_hide_nothing(hint):
    assert hiding(hint) is None


@pytest.mark.skipif(sys.version_info < (3, 12), reason="names of types are of Python 3.12")
def test_names_of_types_stand_for_what_is_behind_them():
    scope: dict[str, Any] = {"Secret": Secret}
    exec(  # no syntax of 3.11
        "type Word = Secret[str]\n"
        "type Pair[A, B] = tuple[B, A]\n"
        "type Same[T] = T\n"
        "type Tree = Secret[str] | dict[str, Tree]\n"
        "type Json = str | list[Json]\n"
        "type Both = tuple[Json, Secret[str]]\n",
        scope,
    )

    assert marks(hiding(scope["Word"])(CANARY)) == HIDE
    assert marks(hiding(scope["Pair"][Secret[str], int])((1, CANARY))) == (1, HIDE)
    assert marks(hiding(scope["Same"][Secret[str]])(CANARY)) == HIDE
    assert marks(hiding(scope["Tree"])({"a": CANARY})) == {"a": HIDE}
    assert marks(hiding(scope["Tree"])({"a": {"b": CANARY}})) == {"a": ["hidden", {"b": CANARY}]}
    assert marks(hiding(scope["Both"])((["a"], CANARY))) == (["a"], HIDE)
    assert hiding(scope["Json"]) is None


# ---------------------------------------------------------------- procedures
@dataclass
class Fields(Procedure):
    password: Secret
    typed: Secret[str]
    maybe: Secret[str] | None
    named: Hidden
    many: list[Secret[str]]
    account: Account
    point: Point
    user: str = "alice"

    def execute(self, ctx):
        return Status.done()


class Steps(Saga):
    password: Secret
    typed: Secret[str]
    maybe: Secret[str] | None
    named: Hidden
    many: list[Secret[str]]
    account: Account
    point: Point
    user: str = "alice"

    @step
    def only(self, ctx):
        pass


class Packed(msgspec.Struct, Procedure):
    password: Secret
    typed: Secret[str]
    maybe: Secret[str] | None
    named: Hidden
    many: list[Secret[str]]
    account: Account
    point: Point
    user: str = "alice"

    def execute(self, ctx):
        return Status.done()


@procedure
def call(
    password: Secret,
    typed: Secret[str],
    maybe: Secret[str] | None,
    named: Hidden,
    many: list[Secret[str]],
    account: Account,
    point: Point,
    user: str = "alice",
):
    return user


@procedure
def rest(user: str, *many: Secret[str], **named: Secret[str]):
    return user


def stored(made):
    runtime = TypeRegistry().for_object(made)
    return runtime, runtime.describe(made).state


def fields_of(state):
    return dict(viewed_state(state)[1].items)


def with_(form):
    one = form(CANARY)
    return one, one, one, one, [one, one], Account("alice", one, [one]), Point("alice", one)


@pytest.mark.parametrize("make", [Fields, Steps, Packed, call])
def test_every_kind_of_procedure_hides_plain_values_of_secret_types_and_keeps_them(make):
    made = make(*with_(str))
    runtime, state = stored(made)
    back = runtime.load(state, "data", 1)

    assert CANARY not in str(viewed_state(state))
    assert "alice" in str(viewed_state(state))
    assert CANARY.encode() not in redacted(state)
    assert CANARY.encode() in state
    assert (back.password, back.typed, back.maybe, back.named, back.many) == (CANARY,) * 4 + ([CANARY] * 2,)
    assert (back.account, back.point) == (made.account, made.point)


@pytest.mark.parametrize("make", [Fields, Steps, call])
def test_the_repr_shows_neither_plain_values_nor_secrets_and_what_there_is_not(make):
    for form in (str, Secret):
        shown = repr(make(*with_(form)[:-1], Point("alice", S)))
        assert CANARY not in shown
        assert "user='alice'" in shown
    assert "maybe=None" in repr(make(S, S, None, S, [], Account("alice", S), Point("alice", S)))


def test_a_field_that_its_dataclass_does_not_show_stays_out_of_the_repr():
    hides = make_dataclass(
        "Hides",
        [("token", Secret[str]), ("body", bytes, field(repr=False))],
        bases=(Procedure,),
        namespace={"execute": lambda self, ctx: None},
    )

    assert repr(hides(CANARY, b"long")).endswith("Hides(token=**********)")


@pytest.mark.parametrize("make", [Fields, Steps, Packed, call])
def test_states_without_plain_values_are_the_bytes_they_were(make, monkeypatch):
    made = make(S, S, None, S, [S], Account("alice", S, [S]), Point("alice", S))
    form = format_of(type(made))
    now = form.dump_fields(made)

    assert form.secrets.keys() >= {"password", "typed", "maybe", "named", "many"}
    monkeypatch.setattr(form, "secrets", {})
    monkeypatch.setattr(form.codec, "_secrets", {})
    assert form.dump_fields(made) == now


def test_arguments_without_a_name_are_hidden_one_by_one():
    _, state = stored(rest("alice", CANARY, S, other=CANARY))
    _, secrets = stored(rest("alice", S, S, other=S))

    for found in (state, secrets):
        shown = fields_of(found)
        assert [item.type for _, item in shown["many"].items] == ["secret", "secret"]
        assert [(name, item.type) for name, item in shown["named"].items] == [("other", "secret")]
    assert CANARY.encode() not in redacted(state)
    assert CANARY not in repr(rest("alice", CANARY, other=CANARY))


def test_a_field_without_a_value_and_a_hint_that_cannot_be_resolved():
    @dataclass
    class Loose(Procedure):
        password: Secret[str]
        other: "Secret[NotThere] | None"  # noqa: F821, UP037

        def execute(self, ctx):
            return Status.done()

    made = Loose(CANARY, CANARY)
    del made.password
    _, state = stored(made)
    shown = fields_of(state)

    assert (shown["password"].type, shown["other"].type) == ("unset", "secret")
    made.other = None
    assert fields_of(stored(made)[1])["other"].type == "None"


def test_an_opaque_state_with_such_fields_is_accepted_as_before():
    class Own(Fields):
        def dump(self):
            return b"opaque"

        @classmethod
        def load(cls, data):
            return cls(*with_(str))

    assert TypeRegistry(signing_key=b"k" * 32).register(Own)


def test_all_hints_of_this_module_resolve():
    assert typing.get_type_hints(Fields)["typed"] == Secret[str]
