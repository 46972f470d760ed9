"""Rows about globals of a script: what calls set or fill stays in their worker, and what the program changes arrives."""

import collections
import functools
import os
import sqlite3
import typing

from trial import play, row


def grows(call, function, *arguments):
    """What calls of each worker return is greater each time."""
    numbers = collections.defaultdict(list)
    for _ in range(8):
        worker, number = call(function, *arguments)
        numbers[worker].append(number)
    return all(sorted(set(found)) == found for found in numbers.values()) and max(map(len, numbers.values())) > 1


def loads_once(call, function):
    """Only the first call of each worker loads."""
    workers = [worker for worker, is_new in (call(function) for _ in range(8)) if is_new]
    return len(workers) == len(set(workers))


# ---------------------------------------------------------------- what calls set
counter = 0


def count():
    global counter
    counter += 1
    return os.getpid(), counter


@row("a global counter of a script counts on in its worker")
def _(call):
    return grows(call, count) and counter == 0


cache = {}


def cached():
    cache[len(cache)] = True
    return os.getpid(), len(cache)


@row("a dict of the script is a cache for the calls of a worker")
def _(call):
    return grows(call, cached) and not cache


connection = None


def connected():
    global connection
    is_new = connection is None
    if is_new:
        connection = sqlite3.connect(":memory:")
    return os.getpid(), is_new


@row("a connection that is opened when it is first needed is opened once in each worker")
def _(call):
    return loads_once(call, connected)


@functools.lru_cache
def model():
    loaded.append(1)
    return len(loaded)


loaded = []


def uses_model():
    before = len(loaded)
    model()
    return os.getpid(), len(loaded) > before


@row("a function under lru_cache runs once in each worker")
def _(call):
    return loads_once(call, uses_model)


class Registry:
    made = 0
    known: typing.ClassVar[list] = []

    def add(self):
        Registry.made += 1
        self.known.append(1)
        return os.getpid(), Registry.made + len(self.known)


def in_class():
    return Registry().add()


@row("attributes of a class that calls set and fill")
def _(call):
    return grows(call, in_class) and (Registry.made, Registry.known) == (0, [])


def in_function():
    in_function.calls = getattr(in_function, "calls", 0) + 1
    return os.getpid(), in_function.calls


@row("attributes of a function that calls set")
def _(call):
    return grows(call, in_function) and not vars(in_function)


def counting():
    number = 0

    def following():
        nonlocal number
        number += 1
        return os.getpid(), number

    return following


following = counting()


def in_closure():
    return following()


@row("variables of a closure that the script has under a name")
def _(call):
    return grows(call, in_closure)


def decorated(function):
    calls = []

    @functools.wraps(function)
    def wrapper(*arguments):
        calls.append(1)
        return os.getpid(), len(calls) + function(*arguments)

    return wrapper


@decorated
def counted(number):
    return number


def uses_counted():
    return counted(1)


@row("what a decorator keeps of the calls")
def _(call):
    return grows(call, counted, 1) and grows(call, uses_counted)


shared = []


def fills():
    shared.append(1)
    return os.getpid(), len(shared)


def fills_too():
    shared.append(2)
    return os.getpid(), len(shared)


@row("functions of a script share its globals")
def _(call):
    found = collections.defaultdict(list)
    for _ in range(6):
        for function in (fills, fills_too):
            worker, number = call(function)
            found[worker].append(number)
    return all(sorted(set(numbers)) == numbers for numbers in found.values())


@row("a lambda sees what functions have set")
def _(call):
    numbers = collections.defaultdict(int)
    for _ in range(8):
        worker, number = call(count)
        numbers[worker] = number
    seen = [call(lambda: (os.getpid(), counter)) for _ in range(4)]
    return all(number >= numbers[worker] > 0 for worker, number in seen if worker in numbers)


# ---------------------------------------------------------------- what is the same
MISSING = object()


class Unset:
    def __init__(self):
        self.name = "unset"


UNSET = Unset()


class Field:
    EMPTY = object()

    def __init__(self):
        self.value = Field.EMPTY


def is_same(missing, unset, field, default=MISSING):
    return missing is MISSING and unset is UNSET and field.value is Field.EMPTY and default is MISSING


@row("a default value that is compared by identity")
def _(call):
    return all(call(lambda default=MISSING: default is MISSING) for _ in range(6))


@row("markers of the script among the arguments, compared by identity, call after call")
def _(call):
    return all(call(is_same, MISSING, UNSET, Field()) for _ in range(6))


# ---------------------------------------------------------------- what the program changes
limit = 1


def limited():
    return limit


@row("a global that the program changes has its new value in the next call")
def _(call):
    global limit
    found = []
    for value in (2, 3, 2):
        limit = value
        found += [call(limited) for _ in range(4)]
    return found == [2] * 4 + [3] * 4 + [2] * 4


def helper():
    return "old"


def helped():
    return helper()


@row("a function that is defined again, as in a notebook")
def _(call):
    global helper
    before = [call(helped) for _ in range(4)]

    def helper():
        return "new"

    return before == ["old"] * 4 and [call(helped) for _ in range(4)] == ["new"] * 4


settings = {"depth": 1}


def depth():
    return settings["depth"]


@row("a dict that the program fills has its new items in the next call")
def _(call):
    found = [call(depth) for _ in range(4)]
    settings["depth"] = 2
    return found + [call(depth) for _ in range(4)] == [1] * 4 + [2] * 4


if __name__ == "__main__":
    play()
