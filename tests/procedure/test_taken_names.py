"""Fields and steps with the names of options and hooks: the class has them, and the engine does not take them for its own."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from enum import Enum
from typing import Any, ClassVar, Generic, TypeVar

import cloudpickle
import msgspec
import pytest

from actorproc import Limits, LockKey, Procedure, RetryPolicy, Saga, StateMachineProcedure, Status, procedure, step
from actorproc.model.ids import Mode
from actorproc.model.messages.outcomes import Advanced, Answered, Finished
from actorproc.procedure.authoring.procedure import RESERVED
from actorproc.procedure.runtime.engine_side import TypeRuntime
from actorproc.procedure.values.members import option

T = TypeVar("T")
OPTIONS_AND_HOOKS = sorted(RESERVED)
META = TypeRuntime.of_class(type("Plain", (Procedure,), {"execute": lambda self, ctx: Status.done()})).meta


class Phase(Enum):
    ONE = 1


def stored_and_loaded(made: Procedure, **options: Any) -> Any:
    runtime = TypeRuntime.of_class(type(made), **options)
    new = runtime.describe(made)
    return runtime.load(new.state, new.codec, new.version, new.id)


def unlike(meta, but=("type_name", "rollback_supported")):
    return [name for name in meta.__struct_fields__ if name not in but and getattr(meta, name) != getattr(META, name)]


def saga_with(name):
    return type(
        "Deploy", (Saga,), {"__annotations__": {name: str, "target": str}, "only": step(lambda self, ctx: self)}
    )


def dataclass_with(name):
    body = {"__annotations__": {name: str, "target": str}}
    if name != "execute":
        body["execute"] = lambda self, ctx: Status.done()
    return dataclass(type("Deploy", (Procedure,), body))


def slotted_with(name):
    return dataclass(slots=True)(
        type("Deploy", (Procedure,), {"__annotations__": {name: str, "target": str}, **_execute_unless(name)})
    )


def struct_with(name):
    body = {"__annotations__": {name: str, "target": str}, **_execute_unless(name)}
    return msgspec.StructMeta("Deploy", (Procedure, msgspec.Struct), body)


def attrs_with(name):
    attrs = pytest.importorskip("attrs")
    return attrs.define(
        type("Deploy", (Procedure,), {"__annotations__": {name: str, "target": str}, **_execute_unless(name)})
    )


def mixed_with(name):
    mixin = dataclass(type("Mixin", (), {"__annotations__": {name: str}}))
    return dataclass(type("Deploy", (mixin, Procedure), {"__annotations__": {"target": str}, **_execute_unless(name)}))


def machine_with(name):
    body = {
        "__annotations__": {name: str, "target": str},
        "initial_state": Phase.ONE,
        "execute_from_state": lambda self, ctx, state: None,
    }
    return dataclass(type("Deploy", (StateMachineProcedure,), body))


def _execute_unless(name):
    return {} if name == "execute" else {"execute": lambda self, ctx: Status.done()}


MAKERS = [saga_with, dataclass_with, slotted_with, struct_with, attrs_with, mixed_with, machine_with]


@pytest.mark.parametrize("name", OPTIONS_AND_HOOKS)
@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
def test_an_annotated_name_is_a_field_without_a_default_in_every_form_of_class(make, name):
    cls = make(name)
    if name == "execute" and make not in {saga_with, machine_with}:
        return  # such a class has nothing to run, and is told so

    deploy = cls("1.2", "here")

    assert (getattr(deploy, name), deploy.target) == ("1.2", "here")
    with pytest.raises(TypeError):
        cls(target="here")
    back = stored_and_loaded(deploy)
    assert getattr(back, name) == "1.2"
    meta = TypeRuntime.of_class(cls).meta
    assert unlike(meta) == []
    assert meta.type_name.endswith("Deploy")


@pytest.mark.parametrize("name", ["cycles", "current_state", "add_child", "is_no_return", "rollback_state"])
def test_a_field_of_a_state_machine_may_have_a_name_of_its_base(name, context):
    cls = machine_with(name)
    runtime = TypeRuntime.of_class(cls)
    deploy = stored_and_loaded(cls("1.2", "here"))

    outcome, _ = runtime.run(deploy, context(), Mode.EXECUTE, None, None)

    assert isinstance(outcome, Finished)
    assert getattr(deploy, name) == "1.2"


@pytest.mark.parametrize("name", [name for name in OPTIONS_AND_HOOKS if name != "execute"])
def test_a_step_and_an_undo_may_have_any_name(name, context):
    done = []

    class Etl(Saga):
        @step
        def extract(self, ctx): ...

        locals()[name] = step(lambda self, ctx: done.append("stepped"))

    runtime = TypeRuntime.of_class(Etl)
    live = stored_and_loaded(Etl())
    first, _ = runtime.run(live, context(), Mode.EXECUTE, None, None)
    second, _ = runtime.run(live, context(step=2), Mode.EXECUTE, None, None)

    assert (type(first), type(second), done) == (Advanced, Finished, ["stepped"])
    assert unlike(runtime.meta) == []


def test_a_step_called_execute_is_a_step(context):
    class Sql(Saga):
        @step
        def execute(self, ctx):
            return "executed"

    runtime = TypeRuntime.of_class(Sql)
    outcome, _ = runtime.run(Sql(), context(), Mode.EXECUTE, None, None)

    assert runtime.decode_output(outcome.output) == "executed"


@pytest.mark.parametrize("name", ["abort", "rollback", "on_completed", "load"])
def test_an_undo_is_no_hook_whatever_it_is_called(name, context):
    seen = []

    def undo(self, ctx):
        seen.append(name)

    undo.__name__ = name
    pay = step(lambda self, ctx: None)
    pay.undo(undo)
    cls = type("Order", (Saga,), {"pay": pay, name: undo})
    runtime = TypeRuntime.of_class(cls)

    assert unlike(runtime.meta) == []
    assert runtime.meta.rollback_supported
    assert isinstance(runtime.run(cls(), context(), Mode.EXECUTE, None, None)[0], Finished)
    assert seen == []
    assert runtime.run(cls(), context(), Mode.ASK_ABORT, None, None)[0] == Answered(allowed=True)
    runtime.run(cls(), context(mode=Mode.ROLLBACK), Mode.ROLLBACK, "pay", None)
    assert seen == [name]


def test_a_plain_method_below_a_step_overrides_the_step_and_is_no_hook(context):
    class Etl(Saga):
        seen: str = ""

        @step
        def load(self, ctx):
            return "base"

    class Own(Etl):
        def load(self, ctx):
            return "own"

    runtime = TypeRuntime.of_class(Own)
    outcome, _ = runtime.run(stored_and_loaded(Own()), context(), Mode.EXECUTE, None, None)

    assert runtime.decode_output(outcome.output) == "own"


def test_a_subclass_has_the_fields_of_its_base_and_the_options_of_the_base_before_it():
    class Careful(Saga):
        retry = RetryPolicy(max_attempts=9)
        version = 4

        @classmethod
        def migrate(cls, data, from_version):
            return {"version": "old", "migrate": data["migrate"], **data}

        @step
        def only(self, ctx): ...

    class Deploy(Careful):
        version: str
        retry: int
        migrate: bool = True

    class Below(Deploy):
        more: str = ""

    for cls in (Deploy, Below):
        meta = TypeRuntime.of_class(cls).meta
        assert (meta.version, meta.retry.max_attempts) == (4, 9)
        with pytest.raises(TypeError, match="retry"):
            cls("1.2")
        assert stored_and_loaded(cls("1.2", 3)) == cls("1.2", 3)
    assert (Careful.retry.max_attempts, Careful.version) == (9, 4)
    runtime = TypeRuntime.of_class(Deploy)
    old = runtime.load(b"\x92\x92\xa4only\x91\xa4only\x82\xa5retry\x03\xa7migrate\xc2", "data", 3)
    assert (old.version, old.retry, old.migrate) == ("old", 3, False)


def test_options_stand_in_the_class_line_also_beside_a_field_of_the_name():
    class Deploy(Saga, version=7, limits=Limits(crashes=1), retry=RetryPolicy(max_attempts=2), kw_only=True):
        version: str
        limits: list[int] = field(default_factory=list)

        @step
        def only(self, ctx): ...

    class Below(Deploy): ...

    class Own(Deploy, version=8):
        limits: ClassVar[Limits] = Limits(crashes=5)

    metas = [TypeRuntime.of_class(cls).meta for cls in (Deploy, Below, Own)]
    assert [(meta.version, meta.crashes, meta.retry.max_attempts) for meta in metas] == [
        (7, 1, 2),
        (7, 1, 2),
        (8, 5, 2),
    ]
    assert stored_and_loaded(Own(version="a")) == Own(version="a")
    assert TypeRuntime.of_class(type("BelowOwn", (Own,), {})).meta.crashes == 5
    assert Deploy.retry.max_attempts == 2


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("type_name", "shop.Fetch"),
        ("version", 3),
        ("retry", RetryPolicy(max_attempts=4)),
        ("rollback_retry", RetryPolicy(max_attempts=4)),
        ("rollback_supported", True),
        ("rollback_mode", "best-effort"),
        ("limits", Limits(crashes=1)),
        ("on_child_failure", "resume"),
        ("undo_children", False),
        ("lock_scope", "step"),
        ("work_class", "io"),
        ("codec", "pickle"),
    ],
)
def test_an_option_of_the_class_line_says_what_a_plain_attribute_says(name, value):
    class Said(Procedure, **{name: value}):
        def execute(self, ctx): ...

    assigned = type("Said", (Procedure,), {"execute": Said.execute, name: value, "__qualname__": Said.__qualname__})

    metas = [TypeRuntime.of_class(cls, signing_key=b"k" * 32).meta for cls in (Said, assigned)]
    assert metas[0] == metas[1] != META
    assert getattr(Said, name) == value
    assert TypeRuntime.of_class(dataclass(slots=True)(Said), signing_key=b"k" * 32).meta == metas[0]


def test_a_generic_or_abstract_class_takes_options_too():
    from abc import ABC, abstractmethod

    class Fetch(Procedure, ABC, Generic[T], retry=RetryPolicy(max_attempts=5)):
        version: T

        @abstractmethod
        def execute(self, ctx): ...

    @dataclass
    class Http(Fetch[str]):
        version: str

        def execute(self, ctx):
            return Status.done(self.version)

    assert TypeRuntime.of_class(Http).meta.retry.max_attempts == 5
    assert stored_and_loaded(Http("1.1")).version == "1.1"


def test_an_option_that_there_is_not_or_that_is_said_twice_is_a_type_error():
    with pytest.raises(
        TypeError, match=r"unknown keyword 'retries' .* options of a procedure class are aliases, codec, .*retry"
    ):
        type("Fetch", (Procedure,), {}, retries=3)
    with pytest.raises(TypeError, match="says 'version' twice"):
        type("Fetch", (Procedure,), {"version": 3}, version=4)


def test_an_annotated_option_is_a_field_and_warned_of():
    with pytest.warns(UserWarning, match=r"Fetch\.retry is annotated, so it is a field.*class Fetch\(…, retry=…\)"):

        @dataclass
        class Fetch(Procedure):
            retry: RetryPolicy = RetryPolicy(max_attempts=9)  # noqa: RUF009 - the mistake

            def execute(self, ctx): ...

    assert TypeRuntime.of_class(Fetch).meta.retry.max_attempts == 3


def test_parameters_of_a_function_may_have_any_name(context):
    @procedure(version=5, locks=lambda version, *rest, **more: [LockKey.write(version)])
    def deploy(version, retry=2, execute=3, *, type_name="x", load=None):
        return version, retry, execute, type_name, load

    runtime = TypeRuntime.of_class(deploy.procedure_class)
    new = runtime.describe(deploy("a", load=7))
    live = runtime.load(new.state, "data", 5)

    outcome, _ = runtime.run(live, context(), Mode.EXECUTE, None, None)

    assert runtime.decode_output(outcome.output) == ("a", 2, 3, "x", 7)
    assert (runtime.meta.version, runtime.meta.retry.max_attempts) == (5, 3)
    assert runtime.meta.type_name.endswith("deploy")


def test_a_field_that_is_not_set_yet_is_no_option():
    class Deploy(Saga):
        version: str = field(init=False)

        @step
        def only(self, ctx): ...

    assert not hasattr(Deploy(), "version")
    runtime = TypeRuntime.of_class(Deploy)
    assert not hasattr(runtime.load(runtime.describe(Deploy()).state, "data", 1), "version")


@pytest.mark.parametrize("make", [saga_with, dataclass_with, machine_with], ids=lambda make: make.__name__)
def test_a_class_that_travels_by_value_keeps_its_fields(make):
    cls = make("version")
    back = cloudpickle.loads(cloudpickle.dumps(cls))

    assert [each.name for each in fields(back)] == ["version", "target"]
    assert stored_and_loaded(back("1.2", "here")).version == "1.2"
    assert (TypeRuntime.of_class(back).meta.version, option(back, "version")) == (1, 1)


def test_hooks_of_every_kind_are_called(context):
    class Hooked(Procedure):
        seen: ClassVar[list[str]] = []

        def execute(self, ctx):
            return Status.done()

        @staticmethod
        def on_completed(ctx):
            Hooked.seen.append("completed")

        @classmethod
        def abort(cls, ctx):
            cls.seen.append("asked")
            return False

        def _before(self, kind, ctx):
            self.seen.append(kind)

        import functools

        before_recover = functools.partialmethod(_before, "before")

    runtime = TypeRuntime.of_class(Hooked)
    runtime.run(Hooked(), context(replayed=True), Mode.EXECUTE, None, None)
    assert runtime.run(Hooked(), context(), Mode.ASK_ABORT, None, None)[0] == Answered(allowed=False)
    assert Hooked.seen == ["before", "completed", "asked"]
