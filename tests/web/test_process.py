"""`actorproc web` as a process of its own: its address, its end, proxies, and life beside a service that is killed."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import ssl
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from actorproc.api.manager import ProcedureManager
from actorproc.errors import UsageError
from actorproc.web.place import address_of, place_of_page
from actorproc.web.serving import PageSettings, check_settings, read_token
from tests.kit.waiting import once_within
from tests.web.servers import command, service, until, web
from tests.web.test_live import Stream

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    path = tmp_path_factory.mktemp("process") / "store"
    ProcedureManager(path, workers=1).start().stop()
    return path


def get(address, path, token, headers=None, method="GET", body=None):
    parts = urlsplit(address)
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=20)
    given = {"Authorization": f"Bearer {token}", **(headers or {})}
    connection.request(method, f"{parts.path}{path}", body, headers=given)
    answer = connection.getresponse()
    found = answer.status, answer.read()
    connection.close()
    return found


def streams_of(address, token, count, topics="status"):
    port = urlsplit(address).port
    headers = {"Authorization": f"Bearer {token}"}
    found = [Stream(port, topics, headers=headers) for _ in range(count)]
    for stream in found:
        assert stream.until("hello")
    return found


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_stops_within_three_seconds_with_twenty_open_streams(store, number):
    def stop() -> float:
        with web(store) as (address, token, process):
            found = streams_of(address, token, 20)
            began = time.monotonic()
            process.send_signal(number)
            for stream in found:
                assert stream.until("bye")
            code = process.wait(20)
            took = time.monotonic() - began
            for stream in found:
                stream.close()
            _, errors = process.communicate()

        assert (code, "Traceback" in errors, "ERROR" in errors) == (0, False, False), errors
        assert not (store / "web.json").exists()
        return took

    once_within(3.0, stop)


def test_its_place_is_a_file_for_its_user_alone_and_the_token_is_in_no_output(store):
    with web(store) as (address, token, process):
        assert (store / "web.json").stat().st_mode & 0o777 == 0o600
        assert place_of_page(str(store)).address == address
        assert address_of(str(store), "a:b@c") == f"{address}procedures/a%3Ab%40c"
        url = subprocess.run(
            [sys.executable, "-m", "actorproc", "--path", store, "web", "--url", "order-7"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        assert url == f"{address}procedures/order-7#token={token}"
        assert get(address, "api/v1/status", token)[0] == 200
        assert get(address, "api/v1/status", "wrong")[0] == 401
        assert get(address, "nothing?x=" + token, token)[0] == 404
        process.terminate()
        out, errors = process.communicate(timeout=20)

    assert token not in out + errors
    assert "web.json" in errors


def test_a_page_that_was_killed_has_no_place(store):
    with web(store) as (_, _, process):
        process.kill()
        process.wait()
        assert (store / "web.json").exists()
        assert place_of_page(str(store)) is None
        assert address_of(str(store), "x") is None


def test_the_newest_of_two_pages_is_the_one_that_is_named(store):
    with web(store) as (first, _, old), web(store) as (second, _, _):
        assert place_of_page(str(store)).address == second != first
        old.terminate()
        old.wait(20)
        assert place_of_page(str(store)).address == second


def test_an_address_of_the_environment_is_named_where_there_is_one(store, monkeypatch):
    monkeypatch.setenv("ACTORPROC_WEB", "https://ops.example.org/page")
    assert address_of(str(store), "order-7") == "https://ops.example.org/page/procedures/order-7"


def test_the_token_of_a_file_outlives_the_page_and_so_do_its_sessions(store, tmp_path):
    file = tmp_path / "token"
    with web(store, "--token-file", file) as (address, token, process):
        assert file.stat().st_mode & 0o777 == 0o600
        assert token == file.read_text().strip()
        port = urlsplit(address).port
        origin = address.rstrip("/")
        status, _, cookie = login(address, origin, token)
        assert status == 200
        process.kill()
        process.wait()
    with web(store, "--token-file", file, "--port", port) as (again, _, _):
        assert again == address
        assert get(again, "api/v1/status", "none", {"Authorization": "", "Cookie": cookie})[0] == 200
    with web(store, "--port", port) as (other, _, _):
        assert get(other, "api/v1/status", "none", {"Authorization": "", "Cookie": cookie})[0] == 401


def login(address, origin, token):
    parts = urlsplit(address)
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=20)
    headers = {"X-Actorproc": "1", "Origin": origin, "Content-Type": "application/json"}
    connection.request("POST", "/session", json.dumps({"token": token}), headers)
    answer = connection.getresponse()
    found = answer.status, answer.read(), (answer.getheader("set-cookie") or "").partition(";")[0]
    connection.close()
    return found


def test_two_pages_side_by_side_keep_a_browser_logged_in_to_both(store, tmp_path):
    other = tmp_path / "other"
    ProcedureManager(other, workers=1).start().stop()
    with web(store) as (first, one, _), web(other) as (second, two, _):
        cookies = "; ".join(
            login(address, address.rstrip("/"), token)[2] for address, token in ((first, one), (second, two))
        )
        for address in (first, second):
            assert get(address, "api/v1/status", "", {"Authorization": "", "Cookie": cookies})[0] == 200


@pytest.mark.parametrize("text", ["", "short", "x" * 20, "with space " * 5, "é" * 40])
def test_a_file_that_holds_no_token_is_refused(tmp_path, text):
    file = tmp_path / "token"
    file.write_text(text)
    file.chmod(0o600)
    with pytest.raises(UsageError, match="no token"):
        read_token(str(file))


def test_a_token_that_others_may_read_is_refused(tmp_path):
    file = tmp_path / "token"
    file.write_text("x" * 40)
    file.chmod(0o644)
    with pytest.raises(UsageError, match="chmod 600"):
        read_token(str(file))


@pytest.mark.parametrize(
    "settings",
    [
        {"host": "0.0.0.0"},
        {"host": "::"},
        {"user_header": "X-User"},
        {"user_header": "X-User", "public_url": "https://ops.test/"},
        {"user_header": "X-User", "uds": "/tmp/x"},
        {"certificate": "cert.pem"},
        {"certificate": "/nothing.pem", "key": "/nothing.pem", "host": "0.0.0.0"},
    ],
)
def test_s9_what_would_open_the_page_to_others_without_protection_is_refused(settings):
    with pytest.raises(UsageError):
        check_settings(PageSettings(path="x", **settings))


def test_s9_it_listens_on_this_machine_alone(store):
    with web(store) as (address, token, process):
        port = urlsplit(address).port
        found = subprocess.run(
            ["cat", f"/proc/{process.pid}/net/tcp"], capture_output=True, text=True, check=True
        ).stdout
        ours = [
            line.split()[1]
            for line in found.splitlines()[1:]
            if line.split()[1].endswith(f":{port:04X}") and line.split()[3] == "0A"
        ]
        assert ours == [f"0100007F:{port:04X}"]
        for host in (f"127.0.0.1:{port}", f"localhost:{port}", f"[::1]:{port}"):
            assert get(address, "api/v1/session", token, {"Host": host})[0] == 200
        for host in ("127.0.0.1", "evil.test", f"evil.test:{port}", f"127.0.0.1:{port + 1}", f"localhost.:{port}"):
            assert get(address, "api/v1/session", token, {"Host": host})[0] == 403


def test_an_answer_is_sent_at_once(store):
    """Without TCP_NODELAY a second answer on one connection waits for the delayed acknowledgement of the first."""
    with web(store) as (address, token, _):
        parts = urlsplit(address)
        connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=20)
        walls = []
        for _ in range(12):
            began = time.perf_counter()
            connection.request("GET", "/api/v1/session", headers={"Authorization": f"Bearer {token}"})
            connection.getresponse().read()
            walls.append(time.perf_counter() - began)
        connection.close()
    assert min(walls[3:]) < 0.03


def test_s9_headers_of_proxies_are_not_believed(store):
    forged = {
        "X-Forwarded-For": "10.0.0.1",
        "X-Forwarded-Proto": "https",
        "X-Forwarded-Host": "evil.test",
        "X-User": "root",
        "Forwarded": "host=evil.test",
    }
    with web(store) as (address, _, _):
        assert get(address, "api/v1/status", "", {**forged, "Authorization": ""})[0] == 401
        status, body = get(address, "procedures", "", forged)
        assert (status, b"evil" in body) == (200, False)


class Unix(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("ops.test")
        self._path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self._path)


def test_behind_a_proxy_that_knows_its_users_their_names_are_in_the_audit(store, tmp_path):
    uds = str(tmp_path / "page.sock")
    words = ("--uds", uds, "--behind-proxy", "--public-url", "https://ops.test/deep/", "--user-header", "X-Remote-User")
    with web(store, *words) as (address, token, process):
        assert (address, token) == ("https://ops.test/deep/", None)
        assert Path(uds).stat().st_mode & 0o777 == 0o600

        def ask(method, path, headers, body=None):
            connection = Unix(uds)
            connection.request(method, path, body, {"Host": "ops.test", **headers})
            answer = connection.getresponse()
            found = answer.status, answer.read()
            connection.close()
            return found

        own = {"X-Actorproc": "1", "Content-Type": "application/json", "Origin": "https://ops.test"}
        assert ask("GET", "/api/v1/status", {})[0] == 401
        assert ask("GET", "/api/v1/status", {"X-Remote-User": "ada"})[0] == 200
        assert ask("GET", "/api/v1/status", {"X-Remote-User": "ada", "Host": "evil.test"})[0] == 403
        assert b'<base href="/deep/">' in ask("GET", "/procedures", {})[1]
        assert ask("POST", "/api/v1/manager/pause", {"X-Remote-User": "ada", **own}, "{}")[0] == 200
        assert (
            ask("POST", "/api/v1/manager/pause", {"X-Remote-User": "ada", **own, "Origin": "http://ops.test"}, "{}")[0]
            == 403
        )
        assert json.loads(ask("GET", "/api/v1/activity", {"X-Remote-User": "ada"})[1])["items"][0]["by"] == "ada"
        assert ask("POST", "/api/v1/manager/resume", {"X-Remote-User": "ada", **own}, "{}")[0] == 200
        process.terminate()
        process.wait(20)
        assert not Path(uds).exists()


def test_a_socket_that_a_service_manager_opened_is_used(store):
    with socket.create_server(("127.0.0.1", 0)) as handed:
        port, number = handed.getsockname()[1], handed.fileno()
        process = command("--path", store, "web", "--fd", number, pass_fds=[number])
        try:
            assert process.stdout.readline().strip() == f"http://127.0.0.1:{port}/"
            token = place_of_page(str(store)).token
            assert get(f"http://127.0.0.1:{port}/", "api/v1/status", token)[0] == 200
        finally:
            process.kill()
            process.communicate()


def test_s9_with_tls_it_may_be_seen_by_other_machines_under_its_names(store, tmp_path):
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    self_signed(certificate, key)
    words = ("--host", "0.0.0.0", "--certificate", certificate, "--key", key, "--allow-host", "ops.test")
    with web(store, *words) as (address, token, _):
        assert address.startswith("https://0.0.0.0:")
        port = urlsplit(address).port
        trust = ssl.create_default_context(cafile=str(certificate))
        trust.check_hostname = False
        connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=20, context=trust)
        for host, status in ((f"ops.test:{port}", 200), ("ops.test", 403), ("evil.test", 403)):
            connection.request("GET", "/api/v1/status", headers={"Host": host, "Authorization": f"Bearer {token}"})
            answer = connection.getresponse()
            answer.read()
            assert answer.status == status
        headers = {"X-Actorproc": "1", "Origin": f"https://ops.test:{port}", "Content-Type": "application/json"}
        connection.request("POST", "/session", json.dumps({"token": token}), {**headers, "Host": f"ops.test:{port}"})
        answer = connection.getresponse()
        answer.read()
        assert "Secure" in answer.getheader("set-cookie")
        connection.close()


def self_signed(certificate, key):
    from datetime import UTC, datetime, timedelta

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    secret = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "ops.test")])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(secret.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime.now(UTC) - timedelta(days=1))
        .not_valid_after(datetime.now(UTC) + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(secret, hashes.SHA256())
    )
    certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    key.write_bytes(
        secret.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )


def test_a_port_that_is_taken_is_told_in_one_line(store):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        process = command("--path", store, "web", "--port", taken.getsockname()[1])
        _, errors = process.communicate(timeout=20)

    assert process.returncode != 0
    assert "in use" in errors
    assert "Traceback" not in errors


def test_without_a_page_there_is_no_address(store):
    found = subprocess.run(
        [sys.executable, "-m", "actorproc", "--path", store, "web", "--url", "x"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (found.returncode, "no page runs" in found.stderr) == (2, True)


# ---------------------------------------------------------------- beside a manager
def test_the_page_of_a_service_outlives_its_kill_and_the_next_one_takes_its_address_over(tmp_path):
    with service(tmp_path, "--web") as (path, process):
        place = until(lambda: place_of_page(str(path)), process)
        said = subprocess.run(
            [sys.executable, "-m", "actorproc", "--path", path, "why", "waits"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        assert f"on its page: {place.address}procedures/waits" in said
        (stream,) = streams_of(place.address, place.token, 1)
        process.kill()
        process.wait()
        assert stream.until("manager", lambda data: data["manager"] == "down")
        assert json.loads(get(place.address, "api/v1/procedures/waits/why", place.token)[1])["lines"]
        began = time.monotonic()
        with service_again(tmp_path, path, "--web") as new:
            found = until(lambda: (now := place_of_page(str(path))) and now.pid != place.pid and now, new)
            assert (found.address, found.token) == (place.address, place.token)
            assert time.monotonic() - began < 20
            status = json.loads(get(found.address, "api/v1/status", found.token)[1])
            assert status["manager"] in ("up", "down")
            new.terminate()
            new.wait(20)
            assert place_of_page(str(path)) is None
        stream.close()


def test_a_stream_hears_of_a_manager_that_was_killed_and_of_the_next_one(tmp_path):
    with service(tmp_path) as (path, process), web(path) as (address, token, _):
        (stream,) = streams_of(address, token, 1, "procedures")
        stream.until("manager", lambda data: data["manager"] == "up")
        process.kill()
        process.wait()
        stream.until("manager", lambda data: data["manager"] == "down")
        with service_again(tmp_path, path):
            stream.until("manager", lambda data: data["manager"] == "up")
            assert stream.until("many") == {"many": None}
        stream.close()


def service_again(folder, path, *words):
    from contextlib import contextmanager

    @contextmanager
    def again():
        process = command("run", "works", "--path", path, "--workers", "1", *words, cwd=folder)
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()
            process.communicate()

    return again()
