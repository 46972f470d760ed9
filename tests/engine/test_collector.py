"""A start pauses the host's cycle collector and leaves it as it was."""

from __future__ import annotations

import gc

import pytest

from actorproc.actors.collector import collector_paused


@pytest.fixture(autouse=True)
def _collector_as_before():
    yield
    gc.enable()


@pytest.mark.parametrize("was_enabled", [True, False])
def test_the_collector_stands_still_meanwhile_and_is_then_as_before(was_enabled):
    (gc.enable if was_enabled else gc.disable)()

    with collector_paused():
        assert not gc.isenabled()

    assert gc.isenabled() is was_enabled


def test_the_collector_goes_on_after_a_failure():
    with pytest.raises(ValueError, match="damaged"), collector_paused():
        raise ValueError("damaged")

    assert gc.isenabled()
