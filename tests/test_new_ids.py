"""Ids of procedures that the engine names itself."""

import os
import threading
import time
import uuid

from actorproc.model import ids
from actorproc.model.ids import new_id


def test_a_new_id_is_a_uuid_of_version_7():
    made = uuid.UUID(new_id())

    assert (made.version, made.variant) == (7, uuid.RFC_4122)


def test_of_an_id_all_is_drawn_but_time_version_and_half_of_the_variant():
    made = [new_id() for _ in range(600)]

    assert {one[8] + one[13:15] + one[18] + one[23] for one in made} == {"--7--"}
    assert {one[19] for one in made} == set("89ab")
    for place in (15, 16, 17, 20, 21, 22, *range(24, 36)):
        assert {one[place] for one in made} == set("0123456789abcdef")
    assert len({one[15:] for one in made}) == 600


def test_ids_made_by_many_threads_are_all_different():
    made = [[] for _ in range(8)]

    def make(ids):
        ids += [new_id() for _ in range(2000)]

    threads = [threading.Thread(target=make, args=(ids,)) for ids in made]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(set().union(*made)) == 16_000


def test_a_forked_copy_draws_others_than_its_parent():
    new_id()  # some are drawn ahead
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(write, "".join(new_id()[19:] for _ in range(50)).encode())
        os._exit(0)
    ours = {new_id()[19:] for _ in range(50)}
    os.waitpid(pid, 0)
    os.close(write)
    with os.fdopen(read) as file:
        text = file.read()
    theirs = {text[at : at + 17] for at in range(0, len(text), 17)}

    assert len(theirs) == 50
    assert ours.isdisjoint(theirs)


def test_a_copy_forked_by_native_code_draws_others_too(monkeypatch):
    new_id()
    ahead = {*ids._drawn}
    time.sleep(0.002)  # a fork takes as long, and the time is part of an id
    monkeypatch.setattr(os, "getpid", lambda: -1)

    made = {new_id()[13:] for _ in range(50)}

    assert ahead
    assert made.isdisjoint(ahead)
