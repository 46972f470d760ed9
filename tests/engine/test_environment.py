"""The environment of a worker's steps: found by class, and closed when the worker ends in order."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

import pytest

from actorproc import Environment, Procedure, ProcedureManager, Status
from actorproc.procedure.declaring.environment import entered
from actorproc.testing import InlineManager
from tests.kit.managers import LIGHT

pytestmark = pytest.mark.processes


class Pool:
    is_open = True


class WidePool(Pool):
    pass


@dataclass
class Look(Procedure):
    def execute(self, ctx):
        return Status.done((ctx.env[Pool].is_open, ctx.env[dict]["region"], Pool in ctx.env, int in ctx.env))


@dataclass
class Plain(Procedure):
    def execute(self, ctx):
        return Status.done(ctx.env["region"])


def factory_of(kind, mark):
    """Kinds of factories; each that can notes its end."""

    def made():
        return Environment(Pool(), {"region": "north"})

    def generator():
        yield made()
        mark.write_text(mark.read_text() + "closed" if mark.exists() else "closed")

    return {"function": made, "generator": generator, "manager": contextlib.contextmanager(generator)}[kind]


@pytest.mark.parametrize("kind", ["function", "generator", "manager"])
def test_a_factory_makes_it_and_a_generator_closes_it_at_the_end_of_the_worker(tmp_path, kind):
    mark = tmp_path / "mark"
    with ProcedureManager(tmp_path / "state", workers=1, environment=factory_of(kind, mark), **LIGHT) as manager:
        assert manager.run(Look(), timeout=60) == (True, "north", True, False)
        assert not mark.exists()
    assert (mark.read_text() if mark.exists() else "") == ("" if kind == "function" else "closed")


def test_the_inline_manager_closes_it_too(tmp_path):
    mark = tmp_path / "mark"
    with InlineManager(environment=factory_of("generator", mark)) as manager:
        assert manager.run(Look(), timeout=60)[0]
    assert mark.read_text().startswith("closed")


def test_what_is_no_environment_stays_what_it_is(tmp_path):
    with ProcedureManager(tmp_path / "state", workers=1, environment=lambda: {"region": "south"}, **LIGHT) as manager:
        assert manager.run(Plain(), timeout=60) == "south"


async def to_be_awaited():
    return Pool()


async def to_be_iterated():
    yield Pool()


@pytest.mark.parametrize("factory", [to_be_awaited, to_be_iterated, contextlib.asynccontextmanager(to_be_iterated)])
def test_a_factory_that_is_to_be_awaited_is_refused_in_words(factory):
    with pytest.raises(TypeError, match=r"is to be awaited, .*without 'async'"):
        entered(factory(), contextlib.ExitStack())


def test_objects_are_found_by_their_class_first_and_by_a_base_of_it_then():
    wide, plain = WidePool(), Pool()
    assert Environment(wide)[Pool] is wide
    assert Environment(wide, plain)[Pool] is plain
    assert Environment(wide, plain)[WidePool] is wide
    with pytest.raises(LookupError, match="no object of the class str; it has Pool"):
        Environment(plain)[str]
    with pytest.raises(LookupError, match="it has nothing"):
        Environment()[str]
    with pytest.raises(LookupError, match="more than one object"):
        Environment(wide, plain)[object]
    with pytest.raises(TypeError, match="two objects of the class Pool"):
        Environment(Pool(), Pool())


def test_a_second_yield_is_an_error_at_the_end_alone(tmp_path):
    def twice():
        yield Environment(Pool(), {"region": "east"})
        yield None

    with ProcedureManager(tmp_path / "state", workers=1, environment=twice, **LIGHT) as manager:
        assert manager.run(Look(), timeout=60)[1] == "east"
