"""The decision which hosts may run a type: by the digests of files, or by the revisions that the user names."""

from __future__ import annotations

import msgspec
import pytest

from actorproc.engine.runtime.type_table import TypeTable
from actorproc.engine.workers.host_code import HostCode
from actorproc.model.messages.definitions import Definition
from actorproc.model.policies import TypeMeta
from actorproc.workers.base import HostJoined

BY_NAME = Definition(TypeMeta(type_name="shop.Order"), module="shop", qualname="Order", digest="11")
BY_VALUE = Definition(TypeMeta(type_name="Order"), pickled=b"class")
BY_VALUE_NAMED = Definition(TypeMeta(type_name="shop.Order"), pickled=b"class")
FROZEN = msgspec.structs.replace(BY_NAME, digest="")


def other(definition: Definition, *, own: str = "", theirs: str = "", digests: dict[str, str] | None = None) -> bool:
    code = HostCode(TypeTable([definition]), own)
    event = code.joined(HostJoined(1, name="h1", labels=("gpu",), code=theirs, digests=digests or {}))
    assert (event.host, event.labels) == ("h1", ("gpu",))
    assert code.by_host() == {"h1": event.other_code}
    return event.other_code == (definition.meta.type_name,)


@pytest.mark.parametrize(
    ("definition", "revisions", "digest", "is_other"),
    [
        (BY_NAME, ("", ""), "11", False),
        (BY_NAME, ("", ""), "22", True),
        (BY_NAME, ("", ""), None, False),  # a worker will tell
        (BY_NAME, ("r1", ""), "22", True),  # only one of them has a revision: files decide
        (BY_NAME, ("", "r1"), "22", True),
        (BY_NAME, ("r1", "r1"), "22", False),  # the user knows better
        (BY_NAME, ("r1", "r2"), "11", True),
        (BY_NAME, ("r1", "r2"), None, True),
        (FROZEN, ("", ""), "22", False),  # no file here: `version` decides
        (FROZEN, ("r1", "r2"), None, True),
        (BY_VALUE, ("", ""), None, False),
        (BY_VALUE, ("r1", "r2"), None, False),  # it comes from the leader
    ],
)
def test_a_host_has_other_code_by_its_files_or_by_its_revision(definition, revisions, digest, is_other):
    digests = {} if digest is None else {definition.meta.type_name: digest}
    assert other(definition, own=revisions[0], theirs=revisions[1], digests=digests) is is_other


def test_a_type_that_is_registered_later_is_compared_with_what_hosts_named():
    code = HostCode(TypeTable(), "")
    code.joined(HostJoined(1, name="h1", digests={"shop.Order": "22"}))
    code.joined(HostJoined(2, name="h2", digests={"shop.Order": "11"}))
    assert [(event.host, event.other_code) for event in code.registered(BY_NAME)] == [("h1", ("shop.Order",))]
    assert code.registered(BY_NAME) == [], "nothing is new"


@pytest.mark.parametrize("before", [None, BY_VALUE_NAMED], ids=["at first", "after one that went by value"])
def test_a_type_of_a_client_or_of_a_step_waits_for_a_host_of_this_revision_as_well(before):
    code = HostCode(TypeTable() if before is None else TypeTable([before]), "r1")
    for number, revision in enumerate(("r1", "r2", ""), 1):
        assert code.joined(HostJoined(number, name=f"h{number}", code=revision)).other_code == ()
    assert [(event.host, event.other_code) for event in code.registered(FROZEN)] == [("h2", ("shop.Order",))]
    assert code.registered(FROZEN) == []
    assert [(event.host, event.other_code) for event in code.registered(BY_VALUE_NAMED)] == [("h2", ())]


def test_after_a_change_of_the_managers_file_the_workers_of_hosts_tell():
    code = HostCode(TypeTable([BY_NAME]), "")
    code.joined(HostJoined(1, name="h1", digests={"shop.Order": "22"}))
    [event] = code.registered(msgspec.structs.replace(BY_NAME, digest="33"))
    assert event.other_code == (), "its file may have been changed as well"
    told = code.returned(1, "shop.Order")
    assert told is not None
    assert told.other_code == ("shop.Order",)
    assert code.returned(1, "shop.Order") is None, "it is known"
    code.left(1)
    assert code.returned(1, "shop.Order") is None
    assert code.by_host() == {}


def test_only_workers_of_hosts_compare_files_and_none_where_revisions_decide():
    code = HostCode(TypeTable([BY_NAME]), "r1")
    code.joined(HostJoined(1, name="h1", code="r1"))
    code.joined(HostJoined(2, name="h2"))
    assert code.sent_to(0, BY_NAME).digest == "", "the manager's own workers have what it has"
    assert code.sent_to(1, BY_NAME).digest == ""
    assert code.sent_to(2, BY_NAME).digest == "11"


def test_the_file_of_a_client_says_nothing_about_that_of_the_manager():
    types = TypeTable()
    assert types.take(BY_NAME)
    known = types.get("shop.Order")
    assert known is not None
    assert known.digest == ""
