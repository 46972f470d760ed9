"""What a class declares, and how its state is written and read."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, ClassVar

import msgspec
import pytest

from actorproc import (
    DuplicateType,
    Limits,
    LockKey,
    Procedure,
    RetryPolicy,
    Saga,
    StateMachineProcedure,
    StateNotEncodable,
    Status,
    UsageError,
)
from actorproc.model.policies import LockMode
from actorproc.procedure.authoring.keys import limit_keys_of, lock_keys_of, poison_keys_of
from actorproc.procedure.runtime.engine_side import StateRefused, TypeRegistry, TypeRuntime


class Grade(Enum):
    GOOD = 1


@dataclass
class Inner:
    grade: Grade


@dataclass
class Declared(Procedure):
    name: str
    inner: list[Inner] = field(default_factory=list)
    ratio: float = 0.5

    def execute(self, ctx):
        return Status.done()


class Plain(Procedure):
    def __init__(self, size: int, grade: Grade = Grade.GOOD):
        self.size = size
        self.grade = grade
        self._cache = object()

    def execute(self, ctx):
        return Status.done()


class AsStruct(Procedure, msgspec.Struct):
    name: str
    grade: Grade = Grade.GOOD

    def execute(self, ctx):
        return Status.done()


class Texts(Procedure):
    def __init__(self, text):
        self.text = text

    def execute(self, ctx):
        return Status.done()

    def dump(self):
        return self.text

    @classmethod
    def load(cls, data):
        return cls(data)


def reloaded(procedure: Procedure) -> Any:
    runtime = TypeRuntime.of_class(type(procedure))
    new = runtime.describe(procedure)
    return runtime.load(new.state, new.codec, new.version)


@pytest.mark.parametrize("procedure", [Declared("a", [Inner(Grade.GOOD)], 2.0), AsStruct("b")], ids=repr)
def test_declared_fields_come_back(procedure):
    assert reloaded(procedure) == procedure


def test_a_plain_class_keeps_its_attributes_without_the_private_ones_and_without_init():
    back = reloaded(Plain(7))

    assert vars(back) == {"size": 7, "grade": Grade.GOOD}


def test_an_attrs_class_keeps_its_fields():
    attrs = pytest.importorskip("attrs")

    @attrs.frozen
    class WithAttrs(Procedure):
        name: str
        sizes: tuple = attrs.field(factory=tuple)

        def execute(self, ctx):
            return Status.done()

    assert reloaded(WithAttrs("a", (1,))) == WithAttrs("a", (1,))


def test_a_state_machine_may_be_an_attrs_class():
    attrs = pytest.importorskip("attrs")

    @attrs.define
    class Machine(StateMachineProcedure):
        sizes: list = attrs.field(factory=list)
        initial_state = Grade.GOOD

        def execute_from_state(self, ctx, state): ...

    assert reloaded(Machine([1])) == Machine([1])
    assert reloaded(Machine([1])).current_state is Grade.GOOD


@pytest.mark.parametrize("base", [Procedure, Saga, StateMachineProcedure])
def test_the_slots_of_a_base_class_are_found_under_their_names(base):
    # By attrs, for one, and by whatever else makes a class anew.
    assert [name for name in base.__slots__ if not hasattr(base, name)] == []


def test_a_slotted_frozen_dataclass_is_a_procedure_too():
    @dataclass(frozen=True, slots=True)
    class Narrow(Procedure):
        name: str

        def execute(self, ctx):
            return Status.done()

    assert reloaded(Narrow("x")) == Narrow("x")


@pytest.mark.parametrize("dumped", [b"\x80raw", "text", "", b"", b"\x92\x01"])
def test_load_gets_exactly_what_dump_returned(dumped):
    back = reloaded(Texts(dumped))

    assert type(back.text) is type(dumped)
    assert back.text == dumped


def test_a_dump_of_a_class_derived_from_text_or_bytes_is_the_text_or_the_bytes():
    class Marked(str):
        __slots__ = ()

        def __str__(self) -> str:
            return self

    for dumped, plain in ((Marked("text"), "text"), (type("Raw", (bytes,), {})(b"raw"), b"raw")):
        back = reloaded(Texts(dumped))
        assert (back.text, type(back.text)) == (plain, type(plain))


def test_a_dump_that_is_neither_bytes_nor_text_is_refused():
    with pytest.raises(StateNotEncodable, match="bytes or str"):
        TypeRuntime.of_class(Texts).describe(Texts({"a": 1}))


def test_dump_and_load_may_be_called_by_a_subclass():
    class Wrapped(Declared):
        def dump(self):
            return super().dump()

        @classmethod
        def load(cls, data):
            return super().load(data)

    assert reloaded(Wrapped("n")) == Wrapped("n")


def test_equal_objects_have_the_same_digest_and_others_not():
    runtime = TypeRuntime.of_class(Declared)

    one, two, three = (runtime.describe(Declared(name)).digest for name in "aab")

    assert one == two != three
    assert len(one) == 16


def test_a_field_that_cannot_be_kept_is_named():
    with pytest.raises(StateNotEncodable, match=r"Declared\.inner\[0\]\.grade: .*object"):
        TypeRuntime.of_class(Declared).describe(Declared("x", [Inner(object())]))


def test_an_attribute_that_is_no_field_would_be_lost_and_is_refused():
    procedure = Declared("x")
    procedure.extra = 1

    with pytest.raises(StateNotEncodable, match=r"Declared\.extra"):
        TypeRuntime.of_class(Declared).describe(procedure)


def test_private_and_cached_attributes_are_no_state():
    @dataclass
    class Cached(Procedure):
        size: int

        @functools.cached_property
        def double(self):
            return 2 * self.size

        def execute(self, ctx):
            return Status.done()

    procedure = Cached(2)
    assert procedure.double == 4
    procedure._note = object()

    assert vars(reloaded(procedure)) == {"size": 2}


def test_an_attribute_of_a_mixin_is_an_option():
    class Harmless:
        version = 4

    cls = type("Fine", (Harmless, Procedure), {"execute": lambda self, ctx: Status.done()})

    assert TypeRuntime.of_class(cls).meta.version == 4


def test_a_class_variable_of_a_reserved_name_is_how_it_is_set():
    class Fine(Procedure):
        version: ClassVar[int] = 3
        limits = Limits(crashes=1)

        def execute(self, ctx):
            return Status.done()

    meta = TypeRuntime.of_class(Fine).meta

    assert (meta.version, meta.crashes) == (3, 1)


def test_an_attribute_of_a_reserved_name_is_refused_at_submit():
    class Sneaky(Procedure):
        def __init__(self):
            self.version = 9

        def execute(self, ctx):
            return Status.done()

    with pytest.raises(StateNotEncodable, match="version"):
        TypeRuntime.of_class(Sneaky).describe(Sneaky())


def test_the_meta_says_what_the_class_overrides():
    class Careful(Declared):
        retry = RetryPolicy(max_attempts=9)
        on_child_failure = "resume"
        lock_scope = "step"

        def rollback(self, ctx): ...
        def abort(self, ctx): ...
        def on_timeout(self, ctx): ...

    meta, plain = TypeRuntime.of_class(Careful).meta, TypeRuntime.of_class(Declared).meta

    assert (meta.rollback_supported, meta.asks_abort, meta.has_on_timeout) == (True, True, True)
    assert (meta.retry.max_attempts, meta.on_child_failure, meta.lock_scope) == (9, "resume", "step")
    assert (plain.rollback_supported, plain.asks_abort, plain.has_on_timeout) == (False, False, False)
    assert meta.type_name.endswith("Careful")


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({}, "execute"),
        ({"execute": lambda self, ctx: 1, "version": "2"}, "version"),
        ({"execute": lambda self, ctx: 1, "codec": "json"}, "codec"),
        ({"execute": lambda self, ctx: 1, "codec": "pickle"}, "signing key"),
        ({"execute": lambda self, ctx: 1, "type_name": ""}, "type_name"),
        ({"execute": lambda self, ctx: 1, "retry": 3}, "RetryPolicy"),
        ({"execute": lambda self, ctx: 1, "limits": {}}, "Limits"),
        ({"execute": lambda self, ctx: 1, "on_child_failure": "x"}, "on_child_failure"),
        ({"execute": lambda self, ctx: 1, "lock_scope": "x"}, "lock_scope"),
        ({"execute": lambda self, ctx: 1, "uses": [int]}, "uses"),
    ],
)
def test_a_class_that_cannot_run_is_refused_at_registration(body, text):
    with pytest.raises(UsageError, match=text):
        TypeRuntime.of_class(type("Bad", (Procedure,), body))


def test_a_class_with_an_async_method_runs_on_an_event_loop_and_others_do_not():
    class Async(Procedure):
        async def execute(self, ctx): ...

    class Plain(Procedure):
        def execute(self, ctx): ...

    class Undone(Plain):
        async def rollback(self, ctx): ...

    assert [TypeRuntime.of_class(cls).meta.tasks for cls in (Async, Plain, Undone)] == [100, 0, 100]


def test_locks_and_poisons_are_asked_at_submit():
    class Locking(Declared):
        def lock_keys(self):
            yield LockKey.write("a/b")
            yield LockKey.write("a/b")

        def poison_keys(self):
            return ["a/c"]

    new = TypeRuntime.of_class(Locking).describe(Locking("x"))

    assert (new.locks, new.poisons) == ((LockKey.write("a/b"),), ("a/c",))


def test_a_lock_key_that_is_text_is_refused():
    class Locking(Declared):
        def lock_keys(self):
            return ["a/b"]

    with pytest.raises(UsageError, match="lock_keys"):
        TypeRuntime.of_class(Locking).describe(Locking("x"))


# ---------------------------------------------------------------- versions
def older_state() -> bytes:
    return TypeRuntime.of_class(Declared).codec.encode({"title": "old"})


def test_migrate_gets_the_decoded_fields_of_an_older_version():
    class Newer(Declared):
        version = 2

        @classmethod
        def migrate(cls, data, from_version):
            assert from_version == 1
            return {"name": data["title"]}

    back = TypeRuntime.of_class(Newer).load(older_state(), "data", 1)

    assert (back.name, back.inner, back.ratio) == ("old", [], 0.5)


def test_migrate_gets_the_raw_value_of_an_overridden_dump():
    class NewerTexts(Texts):
        version = 2

        @classmethod
        def migrate(cls, data, from_version):
            return data.upper()

    runtime = TypeRuntime.of_class(NewerTexts)

    assert runtime.load(runtime.dump_state(NewerTexts("abc")), "data", 1).text == "ABC"


def test_a_state_of_another_version_without_migrate_is_refused():
    class Newer(Declared):
        version = 2

    with pytest.raises(StateRefused, match=r"version 1.*version 2"):
        TypeRuntime.of_class(Newer).load(older_state(), "data", 1)


def test_a_state_with_a_field_the_class_lost_is_refused_with_its_name():
    with pytest.raises(StateRefused, match="title"):
        TypeRuntime.of_class(Declared).load(older_state(), "data", 1)


@pytest.mark.parametrize("state", [b"", b"\xff", b"\x92", b"\x92\x01\x80", b"\x01", b"\x81\xa1x", b"\xc1"])
def test_bytes_that_are_no_state_are_refused(state):
    with pytest.raises(StateRefused):
        TypeRuntime.of_class(Declared).load(state, "data", 1)


# ---------------------------------------------------------------- the registry
def test_registering_a_class_again_changes_nothing():
    registry = TypeRegistry()

    assert registry.register(Declared) is registry.register(Declared)
    assert registry.for_object(Declared("x")) is registry.get(Declared.type_name)
    assert registry.names() == (Declared.type_name,)


def test_a_class_made_in_a_function_replaces_its_earlier_edition():
    def edition():
        class Local(Declared): ...

        return Local

    registry = TypeRegistry()
    first, second = registry.register(edition()), registry.register(edition())

    assert (first.revision, second.revision) == (1, 2)
    assert registry.get(first.type_name) is second


def test_another_class_under_a_taken_name_is_a_duplicate():
    class Impostor(Declared):
        type_name = Declared.type_name

    registry = TypeRegistry()
    registry.register(Declared)

    with pytest.raises(DuplicateType, match="type_name"):
        registry.register(Impostor)


def test_used_procedures_are_registered_along():
    class Parent(Declared):
        uses = (AsStruct, Grade)

    registry = TypeRegistry()
    registry.register(Parent)

    assert registry.get(AsStruct.type_name) is not None


def load_with_prefix(data):
    return Texts(f"loaded {data}")


def load_otherwise(data):
    return Texts(data)


def test_a_loader_gets_what_dump_returned():
    runtime = TypeRegistry().register_loader("texts", load_with_prefix)

    assert runtime.load(TypeRuntime.of_class(Texts).dump_state(Texts("x")), "data", 1).text == "loaded x"


def test_another_loader_under_a_taken_name_is_a_duplicate():
    registry = TypeRegistry()
    registry.register_loader("texts", load_with_prefix)
    registry.register_loader("texts", load_with_prefix)

    with pytest.raises(DuplicateType):
        registry.register_loader("texts", load_otherwise)


def test_a_loader_takes_the_place_of_its_class_own_load():
    registry = TypeRegistry()
    registry.register(Texts)
    registry.register_loader(Texts.type_name, load_with_prefix)

    runtime = registry.for_object(Texts("x"))
    new = runtime.describe(Texts("x"))

    assert runtime.load(new.state, new.codec, 1).text == "loaded x"


def test_a_loader_that_returns_no_procedure_refuses_the_state():
    runtime = TypeRuntime.of_loader("odd", lambda data: data)

    with pytest.raises(StateRefused, match="no Procedure"):
        runtime.load(TypeRuntime.of_class(Texts).dump_state(Texts("x")), "data", 1)


# ---------------------------------------------------------------- the signed pickle codec
class Pickled(Procedure):
    codec = "pickle"

    def __init__(self, value):
        self.value = value

    def execute(self, ctx):
        return Status.done()


class Trap:
    sprung: ClassVar[list[int]] = []

    def __reduce__(self):
        return _spring, ()


def _spring():
    Trap.sprung.append(1)


def test_a_pickled_state_comes_back_with_the_right_key():
    runtime = TypeRegistry(signing_key=b"k" * 32).register(Pickled)
    new = runtime.describe(Pickled(range(3)))

    assert new.codec == "pickle"
    assert runtime.load(new.state, "pickle", 1, new.id).value == range(3)


def test_the_field_that_cannot_be_pickled_is_named():
    runtime = TypeRuntime.of_class(Pickled, signing_key=b"k" * 32)

    with pytest.raises(StateNotEncodable, match=r"Pickled\.value cannot be pickled: TypeError: .*generator"):
        runtime.describe(Pickled(n for n in range(3)))


def test_a_changed_or_foreign_pickle_is_refused_before_anything_is_decoded():
    Trap.sprung.clear()
    foreign = TypeRegistry(signing_key=b"other").register(Pickled)
    ours = TypeRegistry(signing_key=b"k" * 32).register(Pickled)
    planted = foreign.describe(Pickled(Trap()), id="one").state
    good = ours.describe(Pickled(1), id="one").state
    assert ours.load(good, "pickle", 1, "one").value == 1

    for state in (planted, *(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :] for at in range(2, len(good)))):
        with pytest.raises(StateRefused):
            ours.load(state, "pickle", 1, "one")
    assert Trap.sprung == []
    foreign.load(planted, "pickle", 1, "one")
    assert Trap.sprung == [1]  # so it would have been noticed


def test_a_long_pickled_state_is_checked_as_a_short_one_is():
    runtime = TypeRegistry(signing_key=b"k" * 32).register(Pickled)
    content = bytes(range(256)) * 300
    new = runtime.describe(Pickled(content))
    good = new.state

    assert runtime.load(good, "pickle", 1, new.id).value == content
    changed = (good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :] for at in (0, 1, 4, 5, 36, 37, 40_000, len(good) - 1))
    for state in (*changed, good[:-1], good + b"x"):
        with pytest.raises(StateRefused):
            runtime.load(state, "pickle", 1, new.id)
    with pytest.raises(StateRefused, match="belongs to another procedure"):
        runtime.load(good, "pickle", 1, "another")


def test_the_digest_of_a_long_pickled_state_tells_states_apart():
    runtime = TypeRegistry(signing_key=b"k" * 32).register(Pickled)
    content = b"x" * 100_000

    digests = [
        runtime.describe(Pickled(value)).digest for value in (content, content, content + b"x", b"y" + content[1:])
    ]

    assert digests[0] == digests[1]
    assert len(set(digests)) == 3


async def _later(self, ctx):
    yield


async def _awaited(self):
    return ()


def _piecemeal(self, ctx):
    yield


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("version", 2**63, "has the version"),
        ("undo_children", "no", "undo_children = 'no'; it must be True or False"),
        ("lock_keys", [LockKey.write("a")], "lock_keys = .* it must be a method"),
        ("execute", 5, "has execute = 5; it must be a method"),
        ("abort", False, "has abort = False; it must be a method"),
        ("execute", _later, r"execute\(\) that is a coroutine or a generator"),
        ("rollback", _later, r"rollback\(\) that is a coroutine or a generator"),
        ("abort", _later, r"an abort\(\) that is a coroutine or a generator"),
        ("on_completed", _later, r"on_completed\(\) that is a coroutine or a generator"),
        ("lock_keys", _awaited, r"a lock_keys\(\) that is a coroutine or a generator; it must be a plain function"),
        ("limits", Limits(tasks=5), r"has no 'async def' step, and Limits\(tasks=5\) is for these; write threads=5"),
        ("execute", _piecemeal, r"execute\(\) that is a coroutine or a generator"),
        ("rollback", _piecemeal, r"a rollback\(\) that is a coroutine or a generator"),
    ],
)
def test_a_class_with_a_wrong_attribute_or_method_is_refused_with_its_name(name, value, said):
    cls = type("Crooked", (Procedure,), {"execute": lambda self, ctx: Status.done(), name: value})

    with pytest.raises(
        UsageError, match=f"^Crooked has .*{said}" if not said.startswith("has") else f"^Crooked {said}"
    ):
        TypeRegistry().register(cls)


def test_keys_may_come_one_by_one():
    class Several(Procedure):
        def lock_keys(self):
            yield LockKey.write("a")
            yield LockKey.write("b")

        def execute(self, ctx):
            return Status.done()

    assert lock_keys_of(Several(), "Several") == (LockKey.write("a"), LockKey.write("b"))


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        ("lock_keys", None),
        ("lock_keys", LockKey.write("a")),
        ("lock_keys", [LockKey("a", "write")]),
        ("lock_keys", [LockKey("a", 7)]),
        ("lock_keys", [LockKey(5, LockMode.WRITE)]),
        ("lock_keys", [LockKey("a//b", LockMode.WRITE)]),
        ("poison_keys", None),
        ("poison_keys", ["\ud800"]),
        ("poison_keys", ["x" * 300]),
        ("poison_keys", ["a\0b"]),
        ("limit_keys", None),
    ],
)
def test_wrong_keys_are_refused_with_the_name_of_the_method(name, keys):
    cls = type("Crooked", (Procedure,), {name: lambda self: keys, "execute": lambda self, ctx: Status.done()})
    keys_of = {"lock_keys": lock_keys_of, "poison_keys": poison_keys_of, "limit_keys": limit_keys_of}

    with pytest.raises(UsageError, match=rf"Crooked\.{name}\(\) gives"):
        keys_of[name](cls(), "Crooked")
