"""Globals of a script that only the bodies of classes inside of functions use are in the worker as well."""

import functools
import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.processes

PROGRAM = """
import dataclasses, enum, json, sys, typing
from actorproc import Procedure, ProcedureExecutor, ProcedureManager, Status

K, UNUSED = 7, 8

class Money:
    def __init__(self, amount): self.amount = amount

def attribute():
    class A: n = K
    return A.n

def annotation():
    @dataclasses.dataclass
    class A: money: Money = None
    return A().money is None and 7

def default_of_a_method():
    class A:
        def f(self, k=K): return k
    return A().f()

def call():
    class A: n = Money(K).amount
    return A.n

def member_of_an_enum():
    class A(enum.Enum): ONE = K
    return A.ONE.value

def named_tuple():
    class A(typing.NamedTuple):
        money: Money
        n: int = K
    return A(None).n

def class_in_a_class():
    class A:
        class B: n = K
    return A.B.n

def function_in_a_function():
    def inner():
        class A: n = K
        return A.n
    return inner()

class Holder:
    def method(self):
        class A: n = K
        return A.n

def method_of_a_class():
    return Holder().method()

class Steps(Procedure):
    def execute(self, ctx):
        class A: n = K
        return Status.done(A.n)

if __name__ == "__main__":
    shapes = [attribute, annotation, default_of_a_method, call, member_of_an_enum, named_tuple, class_in_a_class,
              function_in_a_function, method_of_a_class]
    found = {}
    for shape in shapes:  # each in a worker that has heard of no other
        with ProcedureExecutor(f"{sys.argv[1]}/{shape.__name__}", max_workers=1) as executor:
            found[shape.__name__] = executor.submit(shape).result(60)
    with ProcedureManager(f"{sys.argv[1]}/steps", workers=1) as manager:
        found["a_step"] = manager.run(Steps(), timeout=60)
    print(json.dumps(found))
"""
SHAPES = [
    "attribute",
    "annotation",
    "default_of_a_method",
    "call",
    "member_of_an_enum",
    "named_tuple",
    "class_in_a_class",
    "function_in_a_function",
    "method_of_a_class",
    "a_step",
]


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    return functools.cache(functools.partial(played, tmp_path_factory.mktemp("bodies")))


def played(folder):
    program = folder / "program.py"
    program.write_text(PROGRAM)
    run = subprocess.run([sys.executable, program, folder], capture_output=True, text=True, check=False, timeout=170)
    assert run.returncode == 0, run.stderr[-4000:]
    return json.loads(run.stdout)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_class_body_in_a_function_finds_the_globals_of_its_script(found, shape):
    assert found()[shape] == 7
