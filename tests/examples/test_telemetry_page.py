"""The programs of the page about telemetry: JSON lines, structlog, Sentry, each with the real library."""

from __future__ import annotations

import gzip
import json
import logging
import os
import re
import signal
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.kit.waiting import wait_until

pytestmark = pytest.mark.processes

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reference" / "managers" / "telemetry.md").read_text(encoding="utf-8")


@pytest.fixture
def files(tmp_path):
    """The programs of the page that have names of files."""
    for name, text in re.findall(r"^```python file=(\S+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL):
        (tmp_path / name).write_text(text)
    return tmp_path


def environment(**more):
    return os.environ | {"PYTHONPATH": str(ROOT)} | more


def test_bound_values_of_structlog_are_in_the_json_lines_of_the_service(files):
    words = ["run", "shop", "--workers", "1", "--log-format", "json", "--around-step", "log_hooks:around_step"]
    log = (files / "log").open("w+")
    service = subprocess.Popen(
        [sys.executable, "-m", "actorproc", *words], cwd=files, env=environment(), stderr=log, stdout=log
    )
    try:
        wait_until(lambda: (files / "state" / "control.sock").exists() or service.poll() is not None)
        subprocess.run(
            [sys.executable, "-m", "actorproc", "submit", "shop:Order", "sku=pen", "--id", "order-1", "--wait"],
            cwd=files, env=environment(), check=True, capture_output=True,
        )  # fmt: skip
        wait_until(lambda: "reserved" in (files / "log").read_text())
    finally:
        service.send_signal(signal.SIGTERM)
        assert service.wait(30) == 0
        log.close()

    lines = [json.loads(line) for line in (files / "log").read_text().splitlines()]  # each line is an object
    (found,) = [line for line in lines if line["message"] == "reserved"]
    assert (found["logger"], found["level"], found["sku"]) == ("shop", "WARNING", "pen")
    assert (found["order"], found["where"]) == ("order-1", "reserve.1")
    assert (found["procedure"], found["step_name"], found["attempt"], found["slot"]) == ("order-1", "reserve", 1, 0)
    assert found["file"] == str(files / "shop.py")


class _Sentry(BaseHTTPRequestHandler):
    """Takes envelopes as the service does."""

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        lines = [json.loads(line) for line in body.split(b"\n") if line.startswith(b"{")]
        self.server.events += [line for line in lines if "event_id" in line and "platform" in line]
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_):
        pass


@pytest.fixture
def sentry():
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Sentry)
    server.events = []
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_sentry_is_told_of_errors_by_the_worker_and_of_deaths_by_the_manager(files, sentry):
    dsn = f"http://key@127.0.0.1:{sentry.server_port}/1"

    ended = subprocess.run(
        [sys.executable, "sentry_shop.py"], cwd=files, env=environment(SENTRY_DSN=dsn), capture_output=True, text=True,
        timeout=120, check=False,
    )  # fmt: skip

    assert ended.stdout.splitlines()[-1:] == ["FAILED"], ended.stderr
    wait_until(lambda: len(sentry.events) == 2)
    death, error = sorted(sentry.events, key=lambda event: "exception" in event)
    assert death["fingerprint"] == ["__main__.Order", "pack", "SIGKILL"]
    assert death["tags"]["procedure"] == "order-1"
    assert error["fingerprint"] == ["__main__.Order", "pay", "ValueError"]
    assert error["tags"] == {"procedure": "order-1", "type": "__main__.Order", "step": "pay", "attempt": 1}
    (raised,) = error["exception"]["values"]
    assert raised["value"] == "the card is not known"
    assert raised["stacktrace"]["frames"][-1]["function"] == "pay"


def test_a_session_is_rolled_back_with_its_attempt(files):
    ended = subprocess.run(
        [sys.executable, "session_shop.py"], cwd=files, env=environment(), capture_output=True, text=True, timeout=120,
        check=False,
    )  # fmt: skip

    assert ended.stdout.splitlines() == ["1 2"], ended.stderr


def test_the_formatter_is_set_up_as_the_page_says(tmp_path):
    (program,) = re.findall(r"^```python\n(import logging.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    said = 'logging.info("a %s", "b", extra={"who": None, "n": 1})\nlogging.getLogger("x").warning("no\\nway")\n'

    ended = subprocess.run(
        [sys.executable, "-c", program + said], env=environment(), capture_output=True, text=True, check=True
    )

    first, second = map(json.loads, ended.stderr.splitlines())
    assert (first["message"], first["level"], first["n"]) == ("a b", "INFO", 1)
    assert "who" not in first
    assert (second["logger"], second["message"]) == ("x", "no\nway")


def test_the_page_names_the_keys_that_lines_have():
    from actorproc.logging import JsonFormatter

    record = logging.makeLogRecord({"stack_info": "stack", "exc_text": "trace"})
    line = json.loads(JsonFormatter().format(record))

    assert [key for key in line if f"`{key}`" not in PAGE] == []
