"""Results that an earlier run of a program stored, under names.

Arguments: the folder, and "store" or "read"; prints a JSON object of titles and whether all was right.
"""

import dataclasses
import enum
import functools
import json
import sys
import typing

from actorproc import ProcedureExecutor


@dataclasses.dataclass
class Point:
    x: int
    rest: list = dataclasses.field(default_factory=list)


class Color(enum.Enum):
    RED = 1


class Refused(Exception):
    pass


class Plain:
    seen = 0

    @functools.cached_property
    def double(self):
        return 2

    class Part:
        pass


class Typed(typing.NamedTuple):
    x: int


Id = typing.NewType("Id", int)


def point():
    return Point(1, [Point(2)])


def color():
    return [Color.RED, Color]


def refuse():
    raise Refused("no")


def plain():
    made = Plain()
    made.part, made.typed = Plain.Part(), Typed(1)
    return made


def functions():
    return [point, Id]


CALLS = {call.__name__: call for call in (point, color, refuse, plain, functions)}
CHECKS = {
    "point": lambda found: found == Point(1, [Point(2)]) and type(found) is Point,
    "color": lambda found: found[0] is Color.RED and found[1] is Color,
    "plain": lambda found: (type(found), type(found.part), type(found.typed)) == (Plain, Plain.Part, Typed),
    "functions": lambda found: found == [point, Id],
}


def right(name, future):
    try:
        result = future.result(60)
    except Refused as error:
        return name == "refuse" and error.args == ("no",)
    return CHECKS[name](result)


def main(folder, phase):
    before = {cls: dict(vars(cls)) for cls in (Point, Color, Plain, Refused)}
    with ProcedureExecutor(folder, max_workers=1) as executor:
        found = {name: right(name, executor.submit_as(name, call)) for name, call in CALLS.items()}
        found |= {f"get {name}": right(name, executor.get(name)) for name in CALLS}
        if phase == "read":
            found["unchanged"] = all(dict(vars(cls)) == before[cls] for cls in before)
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:3])
