"""The certificate of the user's in a manager that leads: for how long it is valid, and a new one in its files."""

from __future__ import annotations

import pytest

pytest.importorskip("cryptography", reason="the certificate of a link is made by cryptography (extra postgres)")

from actorproc import Config, ProcedureClient, ProcedureManager
from tests.kit.procedures import Add
from tests.link.test_links import write

pytestmark = pytest.mark.processes


def test_health_says_for_how_long_the_certificate_is_valid_and_a_new_one_is_used(url, tmp_path):
    files = write(tmp_path, "old", days=10)
    config = Config(tls=files, spares=0, allow_any_filesystem=True)
    with ProcedureManager(url, procedures=[Add], workers=1, config=config) as manager:
        health = manager.health()
        assert 9 < health.certificate_days <= 10
        assert health.status == "running"
        assert "the certificate of Config.tls is valid for 10 more days; replace its files" in health.problems
        with ProcedureClient(url) as before:
            assert before.run(Add(1, 2)) == 3

            write(tmp_path, "new", days=90)
            with ProcedureClient(url) as after:  # its link shows the new one, whose pin is in the leader's row
                assert after.run(Add(2, 3)) == 5
            assert 89 < manager.health().certificate_days <= 90
            assert before.run(Add(3, 4)) == 7, "links that stand go on"
        assert not any("certificate" in problem for problem in manager.health().problems)


def test_a_certificate_that_goes_with_its_manager_has_no_end_that_matters(url):
    with ProcedureManager(url, workers=1, config=Config(spares=0, allow_any_filesystem=True)) as manager:
        assert manager.health().certificate_days is None
