"""Labels and resources with the manager's own workers: what is offered, what waits, and what is said of it."""

from __future__ import annotations

import logging
import os
import time
from pathlib import Path

import pytest

from actorproc import Limits, ProcedureManager, Saga, step
from actorproc.errors import UsageError


class OnGpu(Saga):
    limits = Limits(on=("gpu",), resources={"gpu": 1})
    seen: str
    tag: str

    @step
    def go(self, ctx):
        with Path(self.seen).open("a") as seen:
            seen.write(f"+{self.tag}\n")
        time.sleep(0.02)
        with Path(self.seen).open("a") as seen:
            seen.write(f"-{self.tag}\n")
        return os.getpid()


class Anywhere(Saga):
    @step
    def go(self, ctx):
        return "ran"


def test_what_this_machine_does_not_offer_waits_and_says_so_and_runs_where_it_is_offered(tmp_path, caplog, until):
    caplog.set_level(logging.WARNING, "actorproc")
    seen = tmp_path / "seen"
    with ProcedureManager(tmp_path / "state", workers=2, procedures=[OnGpu, Anywhere]) as manager:
        for number in range(2):
            manager.submit(OnGpu(str(seen), str(number)), id=f"gpu-{number}")
        assert manager.run(Anywhere()) == "ran"
        until(lambda: any("waits for a host with gpu" in record.message for record in caplog.records))
        assert "waits for a host with gpu" in manager.why("gpu-0").says
        assert manager.info("gpu-0").reason == "for a host with gpu and 1 gpu; none that is connected has that"
        assert manager.run(Anywhere()) == "ran"
        told = [record for record in caplog.records if "waits for a host with gpu" in record.message]
        assert len(told) == 1, "said once, however many wait"
    with ProcedureManager(
        tmp_path / "state", workers=2, procedures=[OnGpu, Anywhere], labels=("gpu",), resources={"gpu": 1}
    ) as manager:
        for number in range(2):
            assert manager.get(f"gpu-{number}").result(timeout=30)
    lines = seen.read_text().split()
    assert [line[0] for line in lines] == ["+", "-", "+", "-"], "one at a time, though there are two workers"


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"on": "gpu"}, r'write \("gpu",\)'),
        ({"on": ("a b",)}, "a label has letters"),
        ({"on": (1,)}, "has the label 1"),
        ({"resources": {"gpu": 0}}, "has 0 of 'gpu'"),
        ({"resources": {"gpu": True}}, "has True of 'gpu'"),
        ({"resources": {"gpu": float("nan")}}, "has nan of 'gpu'"),
        ({"resources": {"": 1}}, "names the resource ''"),
        ({"resources": ["gpu"]}, "is a mapping such as"),
    ],
)
def test_a_demand_that_makes_no_sense_is_refused_in_words(wrong, words, tmp_path):
    with pytest.raises(UsageError, match=words):
        Limits(**wrong)
    offer = {"labels": wrong["on"]} if "on" in wrong else wrong
    with pytest.raises(ValueError, match=words):
        ProcedureManager(tmp_path, **offer)


def test_limits_with_a_demand_are_equal_hashed_and_in_order():
    one = Limits(on=["ssd", "gpu", "gpu"], resources={"b": 2, "a": 0.5})
    assert one.on == ("gpu", "ssd")
    assert dict(one.resources) == {"a": 0.5, "b": 2}
    assert hash(one) == hash(Limits(on=("gpu", "ssd"), resources={"a": 0.5, "b": 2}))


def test_limits_of_one_submit_ask_for_a_host(tmp_path, until):
    with ProcedureManager(tmp_path, workers=1, procedures=[Anywhere], labels=("ssd",)) as manager:
        assert manager.submit(Anywhere(), limits=Limits(on=("ssd",))).result(timeout=30) == "ran"
        waits = manager.submit(Anywhere(), limits=Limits(on=("gpu",)))
        until(lambda: "a host with gpu" in (manager.info(waits.id).reason or ""))
        assert manager.abort(waits.id)
        assert waits.wait(timeout=30)
