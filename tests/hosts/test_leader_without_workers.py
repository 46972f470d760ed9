"""A manager with `workers=0`: it leads or waits for the lead, and other machines run the steps."""

from __future__ import annotations

import pytest

pytest.importorskip("cryptography", reason="the certificate of a link is made by cryptography (extra postgres)")

from actorproc import Limits, ProcedureManager, UsageError
from actorproc.cli.main import main
from tests.hosts.journalled import Noted
from tests.hosts.test_end_to_end import Program, config, joined, noted
from tests.kit.waiting import BOUND, wait_until

pytestmark = pytest.mark.processes


def test_it_leads_and_hosts_run_the_steps_those_with_workers_of_their_own_too(url, tmp_path, capsys):
    journal = tmp_path / "journal"
    with ProcedureManager(url, procedures=[Noted], workers=0, config=config()) as manager:
        assert manager.workers() == []
        waiting = manager.submit(Noted(str(journal), 2))
        own = manager.submit(Noted(str(journal), 2), limits=Limits(dedicated=True))
        words = "for a host: none has joined, and the manager that leads runs no steps itself"
        wait_until(lambda: waiting.info().reason == words)
        assert own.info().reason == words
        assert main(["why", waiting.id, "--path", url]) == 0
        assert f"is ready for step 1 and waits {words}" in capsys.readouterr().out
        health = manager.health()
        assert health.status == "degraded"
        assert "no host has joined" in health.problems[0]
        host = Program(tmp_path, "worker", "tests.hosts.journalled", "--path", url, "-n", "1")
        try:
            joined(host)
            assert (waiting.result(BOUND), own.result(BOUND)) == (2, 2)
            assert {int(parent) for *_, parent in noted(journal)} == {host.pid}
            assert manager.health().status == "running"
        finally:
            host.end()


def test_it_follows_without_being_a_host_and_takes_over_without_workers(url, tmp_path):
    journal = tmp_path / "journal"
    first = Program(tmp_path, "run", "tests.hosts.journalled", "--path", url, "-n", "0")
    try:
        wait_until(lambda: first.said("manager started") or first.said("leads") or first.process.poll() is not None)
        with ProcedureManager(url, procedures=[Noted], workers=0, config=config()) as manager:
            assert manager.health().role == "following"
            assert manager.hosts() == []
            first.process.kill()
            wait_until(lambda: manager.health().role == "leading")
            handle = manager.submit(Noted(str(journal), 1))
            host = Program(tmp_path, "worker", "tests.hosts.journalled", "--path", url, "-n", "1")
            try:
                assert handle.result(BOUND) == 1
                manager.resize(1)
                host.end()
                assert manager.run(Noted(str(journal), 1), timeout=BOUND) == 1, "it has a worker of its own now"
            finally:
                host.end()
    finally:
        first.end()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"max_workers": 2}, "a manager that runs no steps has neither max_workers nor labels"),
        ({"labels": ["gpu"]}, "a manager that runs no steps has neither max_workers nor labels"),
        ({"lead": False}, "workers=0: a manager needs at least one worker process"),
        ({"workers": -1}, "workers=-1: a manager needs at least one worker process"),
    ],
)
def test_what_makes_no_sense_with_it_is_refused_in_words(options, words):
    with pytest.raises((UsageError, ValueError), match=words):
        ProcedureManager("postgresql://nowhere/none", **{"workers": 0, **options})


def test_a_store_in_a_directory_needs_workers(tmp_path, capsys):
    with pytest.raises(ValueError, match=r"at least one worker process; only with a store in a database"):
        ProcedureManager(tmp_path, workers=0)
    assert main(["run", "tests.hosts.journalled", "--path", str(tmp_path), "-n", "0"]) == 2
    assert "only with a store in a database" in capsys.readouterr().err
