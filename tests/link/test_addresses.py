"""Addresses of leaders, as users write them and as they are published."""

from __future__ import annotations

import pytest

from actorproc.workers.link.addresses import (
    address_text,
    is_loopback,
    local_address_towards,
    machine_id,
    parsed_address,
)


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("db1", ("db1", 7)),
        ("db1.example:4711", ("db1.example", 4711)),
        ("10.0.0.5:0", ("10.0.0.5", 0)),
        ("::1", ("::1", 7)),
        ("[::1]:4711", ("::1", 4711)),
        ("[::1]", ("::1", 7)),
    ],
)
def test_an_address_is_read_and_written(text, parsed):
    assert parsed_address(text, 7) == parsed
    assert parsed_address(address_text(*parsed)) == parsed


@pytest.mark.parametrize(
    "text", ["", ":4711", "a b", "host:", "host:x", "host:70000", "[::1", "[::1]4711", "a/b", "h:٣"]
)
def test_what_is_no_address_is_refused(text):
    if text == "host:":
        assert parsed_address(text) == ("host", 0)
        return
    with pytest.raises(ValueError, match="address"):
        parsed_address(text)


@pytest.mark.parametrize(
    ("host", "loopback"),
    [("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("LocalHost.", True), ("10.0.0.1", False), ("db", False)],
)
def test_loopback_addresses_are_known(host, loopback):
    assert is_loopback(host) is loopback


@pytest.mark.parametrize("host", ["", "/var/run/postgresql", "127.0.0.1", "no.such.host.invalid"])
def test_the_way_to_a_database_of_this_machine_is_the_loopback_interface(host):
    assert is_loopback(local_address_towards(host))


def test_the_identity_of_a_machine_is_the_same_for_all_its_processes():
    assert machine_id() == machine_id()
    assert len(machine_id()) == 32
