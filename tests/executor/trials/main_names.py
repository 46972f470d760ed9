"""A script whose calls look for its definitions in ``__main__``: rows by name, as JSON."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import datetime as dt
import inspect
import json
import multiprocessing
import pickle
import sys
import typing

import pydantic

from actorproc import ProcedureExecutor, ProcedureManager, procedure

print("top level", file=sys.stderr)


@dataclasses.dataclass
class Inner:
    when: dt.date
    outer: Outer | None = None


@dataclasses.dataclass
class Outer:
    inner: Inner
    more: list[Inner]
    odd: NoSuchThing = 0  # noqa: F821 - hints may name what is not there


class Item(pydantic.BaseModel):
    name: str


class Order(pydantic.BaseModel):
    number: int
    first: Item | None = None
    items: list[Item] = []
    parent: Order | None = None


class Plain:
    def __init__(self, value):
        self.value = value

    def __eq__(self, other):
        return type(other) is Plain and other.value == self.value

    __hash__ = None


def square(value):
    return value * value


def make(value):
    return Plain(value)


def typed(inner: Inner, item: Item | None = None) -> dt.date:
    raise NotImplementedError


def hints_of_a_class():
    return typing.get_type_hints(Inner) == {"when": dt.date, "outer": Outer | None}


def hints_of_a_function():
    return list(typing.get_type_hints(typed).values()) == [Inner, Item | None, dt.date]


def hints_of_a_class_made_in_the_call():
    class Local:
        plain: Plain

    return typing.get_type_hints(Local) == {"plain": Plain}


def hint_that_nothing_has():
    try:
        typing.get_type_hints(Outer)
    except NameError as error:
        return "NoSuchThing" in str(error)
    return False


def pydantic_models():
    order = Order(number=1, first=Item(name="a"), items=[Item(name="b")], parent=Order(number=0))
    return Order.model_validate(order.model_dump()) == order and Order.model_rebuild(force=True)


def pickled_in_the_call():
    return pickle.loads(pickle.dumps(Plain(3))) == Plain(3)


def unpickled_in_the_call(data):
    return pickle.loads(data) == Plain(5)


def unpickled_though_not_referred_to(data):
    try:
        pickle.loads(data)
    except AttributeError as error:
        return "Can't get attribute 'Inner' on <module '__main__'" in str(error)
    return False


def source_of_a_function():
    return inspect.getsource(square).startswith("def square")


def source_of_a_class():
    return inspect.getsource(Plain).startswith("class Plain")


def file_of_main():
    return sys.modules["__main__"].__file__ == __file__


def pool(method):
    with multiprocessing.get_context(method).Pool(1) as made:
        return made.map(square, [1, 2]) == [1, 4] and made.map(make, [1]) == [Plain(1)]


def process_pool(method):
    context = multiprocessing.get_context(method)
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as made:
        return list(made.map(square, [1, 2])) == [1, 4] and list(made.map(make, [1])) == [Plain(1)]


@procedure
def step(ctx):
    return hints_of_a_class() and pickled_in_the_call() and pool("spawn")


def rows():
    """Function and arguments of each row, by its name."""
    found = {function.__name__.replace("_", " "): (function,) for function in PLAIN}
    found["unpickled, not referred to"] = unpickled_though_not_referred_to, pickle.dumps(Inner(None))
    found["unpickled in the call"] = unpickled_in_the_call, pickle.dumps(Plain(5))
    for method in multiprocessing.get_all_start_methods():
        found[f"pool, {method}"] = pool, method
        found[f"process pool, {method}"] = process_pool, method
    return found


PLAIN = (
    hints_of_a_function,
    hints_of_a_class,
    hints_of_a_class_made_in_the_call,
    hint_that_nothing_has,
    pydantic_models,
    pickled_in_the_call,
    source_of_a_function,
    source_of_a_class,
    file_of_main,
)


def main():
    outcomes = {}
    with ProcedureManager(sys.argv[1], workers=1) as manager, ProcedureExecutor(manager) as executor:
        not_referred_to, *others = sorted(rows().items(), key=lambda row: "not referred" not in row[0])
        for name, (function, *arguments) in (not_referred_to, *others):
            try:
                outcomes[name] = executor.submit(function, *arguments).result(60)
            except Exception as error:  # noqa: BLE001 - the row tells it
                outcomes[name] = repr(error)
        outcomes["a step of a procedure"] = manager.run(step(), timeout=60)
    print(json.dumps(outcomes))


if __name__ == "__main__":
    main()
