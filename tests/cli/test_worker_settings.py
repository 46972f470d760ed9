"""Settings of ``actorproc worker``: its options go before those from outside the program."""

from __future__ import annotations

import pytest

from actorproc import Procedure, Status
from actorproc.cli.main import main

pytest.importorskip("psycopg")


class Job(Procedure):
    def execute(self, ctx):
        return Status.done()


@pytest.mark.parametrize(
    ("options", "outside", "seconds"),
    [((), None, 30.0), ((), "2m", 120.0), (("--stop-timeout", "5s"), "2m", 5.0), (("--stop-timeout", "5s"), None, 5.0)],
)
def test_a_stop_waits_as_the_options_say_or_else_the_settings(tmp_path, monkeypatch, options, outside, seconds):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ACTORPROC_STOP_TIMEOUT", raising=False)
    if outside is not None:
        monkeypatch.setenv("ACTORPROC_STOP_TIMEOUT", outside)
    served = []
    monkeypatch.setattr("actorproc.cli.service.worker.begin_log", lambda *_: None)
    monkeypatch.setattr(
        "actorproc.cli.service.service.serve_host",
        lambda host, *, notifier, stop_timeout: served.append((host.agent._stop_timeout, stop_timeout)) or 0,
    )

    assert main(["--path", "postgresql://nowhere.invalid/db", "worker", __name__, *options]) == 0
    assert served == [(seconds, seconds)]


def test_a_file_of_settings_that_is_not_there_is_told_in_words(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ACTORPROC_CONFIG", "none.toml")

    assert main(["--path", "postgresql://nowhere.invalid/db", "worker", __name__]) == 2
    assert "none.toml" in capsys.readouterr().err
