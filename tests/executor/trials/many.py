"""Many calls in a loop with a class of the script. Arguments: the folder, and how many."""

import dataclasses
import sys

from actorproc import ProcedureExecutor


@dataclasses.dataclass
class Point:
    x: int


def moved(point):
    return Point(point.x + 1)


def main(folder, count):
    with ProcedureExecutor(folder, max_workers=2) as executor:
        futures = [executor.submit(moved, Point(number)) for number in range(count)]
        right = sum(future.result() == Point(number + 1) for number, future in enumerate(futures))
    print(f"{right} of {count} are right")


main(sys.argv[1], int(sys.argv[2]))
