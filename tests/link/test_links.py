"""Links: bytes go both ways whole, the handshake lets in those that know the secret, and nothing waits for ever."""

from __future__ import annotations

import contextlib
import logging
import os
import random
import socket
import ssl
import threading
import time

import pytest

pytest.importorskip("cryptography", reason="the certificate of a link is made by cryptography (extra postgres)")

from actorproc.errors import EngineError
from actorproc.testing.torture.cluster.proxy import Proxy
from actorproc.workers.link import listener as listening
from actorproc.workers.link.certificates import FileCertificate, LinkCertificate, made_credentials
from actorproc.workers.link.handshake import LinkRefused, LinkRole
from actorproc.workers.link.listener import LinkListener, dial
from actorproc.workers.link.stream import LinkStream
from tests.kit.waiting import BOUND

SECRET = bytes(range(32))


@pytest.fixture(scope="module")
def credentials():
    return made_credentials("here")


class Server:
    """A listener that admits one connection after the other, on threads of its own."""

    def __init__(self, certificate: LinkCertificate, silence: float = 5.0) -> None:
        self.listener = LinkListener("127.0.0.1", 0, certificate=certificate, secret=SECRET, silence=silence)
        self.streams: list[LinkStream] = []
        self.errors: list[OSError] = []
        self._all: list[LinkStream] = []
        self._news = threading.Condition()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=self._admit, args=(self.listener.accept(),), daemon=True).start()

    def _admit(self, guest) -> None:
        try:
            stream = guest.admit()
        except OSError as error:
            with self._news:
                self.errors.append(error)
                self._news.notify_all()
        else:
            with self._news:
                self.streams.append(stream)
                self._all.append(stream)
                self._news.notify_all()

    def close(self) -> None:
        self.listener.close()
        for stream in self._all:
            stream.close()

    def next_stream(self) -> LinkStream:
        with self._news:
            assert self._news.wait_for(lambda: self.streams, BOUND)
            return self.streams.pop(0)

    def next_error(self) -> OSError:
        with self._news:
            assert self._news.wait_for(lambda: self.errors, BOUND)
            return self.errors.pop(0)

    def dial(self, port: int | None = None, **others) -> LinkStream:
        pin = self.listener.certificate.current().pin
        settings = {"secret": SECRET, "pin": pin, "role": LinkRole.CLIENT, "epoch": 3, "name": "there"} | others
        return dial("127.0.0.1", port or self.listener.port, **settings)


@pytest.fixture
def server(credentials):
    server = Server(LinkCertificate(credentials))
    yield server
    server.close()


def read(stream: LinkStream, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        chunk = stream.recv(size - len(data), time.monotonic() + BOUND)
        assert chunk, f"the connection ended after {len(data)} of {size} bytes"
        data += chunk
    return bytes(data)


# Records of TLS hold 16 KiB, and what is more comes in the next one.
@pytest.mark.parametrize(
    ("size", "piece"),
    [(3_000_000, 1 << 16)]
    + [(size, piece) for size in (1, 16_383, 16_384, 16_385, 32_768, 65_535, 65_537) for piece in (1 << 16, 1)],
)
def test_bytes_arrive_whole_in_both_directions_at_once(server, size, piece):
    with Proxy("127.0.0.1", server.listener.port) as proxy:
        proxy.piece = piece
        near = server.dial(proxy.port)
        far = server.next_stream()
        up, down = random.Random(size).randbytes(size), random.Random(-size).randbytes(size)
        senders = [
            threading.Thread(target=near.sendall, args=(up,)),
            threading.Thread(target=far.sendall, args=(down,)),
        ]
        for sender in senders:
            sender.start()
        got = {}
        reader = threading.Thread(target=lambda: got.update(up=read(far, size)))
        reader.start()
        assert read(near, size) == down
        for thread in (*senders, reader):
            thread.join(BOUND)
        assert got["up"] == up
        near.close()
        far.close()


def test_a_read_takes_what_one_record_left_without_a_word_from_the_socket(server):
    near, far = server.dial(), server.next_stream()
    far.sendall(b"0123456789")
    assert read(near, 3) == b"012"
    assert read(near, 7) == b"3456789"  # nothing more comes through the socket
    near.close()
    far.close()


@pytest.mark.parametrize(
    ("others", "kind"),
    [({"secret": bytes(32)}, "secret"), ({"pin": bytes(32)}, "certificate")],
)
def test_a_client_leaves_a_server_that_is_another_one(server, others, kind):
    with pytest.raises(LinkRefused) as caught:
        server.dial(**others)
    assert caught.value.kind == kind
    server.next_error()


def test_a_client_that_does_not_know_the_secret_is_refused_before_anything_it_says_is_decoded(server):
    stream = LinkStream(
        socket.create_connection(("127.0.0.1", server.listener.port)),
        ssl._create_unverified_context(),
        server_side=False,
    )
    stream.negotiate(time.monotonic() + BOUND)
    first = b"actorproc link 1\n" + b"\x01" + bytes(40)
    stream.sendall(len(first).to_bytes(2, "big") + first)
    assert len(read(stream, 2 + 64)) == 66  # its nonce, and its proof that it knows the secret
    stream.sendall((32).to_bytes(2, "big") + bytes(32) + b"anything")
    assert server.next_error().kind == "secret"
    with contextlib.suppress(OSError):
        assert stream.recv(1, time.monotonic() + BOUND) == b""
    stream.close()


def test_a_role_that_is_not_let_in_is_told_so(server):
    with pytest.raises(LinkRefused, match="role 2 is not let in"):
        server.dial(role=LinkRole.HOST)
    assert server.next_error().kind == "role"
    assert server.listener.refused["role"] == 1


def test_the_server_knows_role_name_and_epoch_of_its_client(credentials):
    listener = LinkListener("127.0.0.1", 0, certificate=LinkCertificate(credentials), secret=SECRET, silence=2.5)
    settings = {"secret": SECRET, "pin": credentials.pin, "role": LinkRole.CLIENT, "epoch": 2**40, "name": "büro\n"}
    made = []
    thread = threading.Thread(target=lambda: made.append(dial("127.0.0.1", listener.port, **settings)))
    thread.start()
    guest = listener.accept()
    stream = guest.admit()
    thread.join(BOUND)
    assert (guest.peer.role, guest.peer.epoch, guest.peer.name) == (LinkRole.CLIENT, 2**40, "büro?")
    assert made[0].silence == 2.5
    for one in (stream, made[0], listener):
        one.close()


GARBAGE = [
    b"GET / HTTP/1.1\r\n\r\n",
    b"\x16\x03\x01\xff\xff" + bytes(70_000),
    os.urandom(5000),
    b"",
]


@pytest.mark.parametrize("said", GARBAGE, ids=["http", "long-hello", "noise", "nothing"])
def test_garbage_in_place_of_tls_is_refused_and_counted(server, said):
    with socket.create_connection(("127.0.0.1", server.listener.port)) as sock, contextlib.suppress(OSError):
        sock.sendall(said)
        sock.shutdown(socket.SHUT_WR)
        server.next_error()
    assert sum(server.listener.refused.values()) == 1


@pytest.mark.parametrize("said", [b"\xff\xff" + bytes(65535), b"\x00\x05hello", b"\x10\x01" + bytes(4097)])
def test_a_client_of_another_protocol_is_refused_inside_tls(server, said):
    sock = socket.create_connection(("127.0.0.1", server.listener.port))
    context = ssl._create_unverified_context()
    stream = LinkStream(sock, context, server_side=False)
    stream.negotiate(time.monotonic() + BOUND)
    with contextlib.suppress(OSError):  # it hangs up in the middle of what is too long
        stream.sendall(said)
    error = server.next_error()
    assert isinstance(error, LinkRefused)
    assert error.kind == "protocol"
    stream.close()


def test_tls_below_1_3_is_refused(server):
    context = ssl._create_unverified_context()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    sock = socket.create_connection(("127.0.0.1", server.listener.port))
    stream = LinkStream(sock, context, server_side=False)
    with pytest.raises(OSError):
        stream.negotiate(time.monotonic() + BOUND)
    stream.close()
    server.next_error()
    assert server.listener.refused["tls"] == 1


def test_one_that_connects_and_says_nothing_is_left_after_the_time_of_a_handshake(server, monkeypatch):
    monkeypatch.setattr("actorproc.workers.link.handshake.HANDSHAKE", 0.2)
    with socket.create_connection(("127.0.0.1", server.listener.port)):
        assert isinstance(server.next_error(), TimeoutError)


def test_one_that_says_its_handshake_byte_by_byte_does_not_get_more_time(server, monkeypatch):
    monkeypatch.setattr("actorproc.workers.link.handshake.HANDSHAKE", 0.5)
    with Proxy("127.0.0.1", server.listener.port) as proxy:
        proxy.piece, proxy.delay = 1, 0.01
        with pytest.raises(OSError):
            server.dial(proxy.port, within=BOUND)
        assert isinstance(server.next_error(), TimeoutError)


def test_a_server_that_falls_silent_is_noticed_after_the_seconds_it_named(credentials):
    server = Server(LinkCertificate(credentials), silence=0.2)
    with Proxy("127.0.0.1", server.listener.port) as proxy:
        near = server.dial(proxy.port)
        proxy.hold()
        with pytest.raises(TimeoutError, match="silent"):
            near.recv(1)
        near.close()
    server.next_stream()
    server.close()


def test_a_sender_does_not_wait_for_ever_for_one_that_reads_nothing(server):
    near, far = server.dial(), server.next_stream()
    far.stuck = 0.2
    with pytest.raises(TimeoutError, match="takes no bytes"):
        far.sendall(bytes(64 << 20))
    near.close()
    far.close()


def test_a_hang_up_ends_a_read_on_another_thread(server):
    near, far = server.dial(), server.next_stream()
    got = []
    thread = threading.Thread(target=lambda: got.append(near.recv(1)))
    thread.start()
    near.hang_up()
    thread.join(BOUND)
    assert got == [b""]
    near.close()
    far.close()


def test_refusals_of_one_address_are_logged_once_a_minute(server, caplog, monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(listening.time, "monotonic", lambda: now[0])
    with caplog.at_level(logging.WARNING):
        for _ in range(5):
            server.listener.refuse("10.0.0.1", LinkRefused("no", "secret"))
        server.listener.refuse("10.0.0.2", LinkRefused("no", "secret"))
        now[0] += 61
        server.listener.refuse("10.0.0.1", LinkRefused("no", "secret"))
    assert [record.args[0] for record in caplog.records] == ["10.0.0.1", "10.0.0.2", "10.0.0.1"]
    assert server.listener.refused["secret"] == 7


def test_an_address_that_cannot_be_listened_on_is_an_error_that_names_the_option():
    certificate = LinkCertificate(made_credentials("x"))
    with pytest.raises(EngineError, match=r"Config\(listen=…\)"):
        LinkListener("192.0.2.1", 0, certificate=certificate, secret=SECRET, silence=1.0)


# ---------------------------------------------------------------- files
def write(directory, name: str, days: float = 10) -> tuple[str, str]:
    """A certificate and a key of the user's, as files."""
    import datetime as dt

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=days))
        .sign(key, hashes.SHA256())
    )
    files = directory / "cert.pem", directory / "key.pem"
    files[0].write_bytes(made.public_bytes(serialization.Encoding.PEM))
    files[1].write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return str(files[0]), str(files[1])


def test_a_new_certificate_in_the_files_is_published_before_links_show_it(tmp_path):
    published = []
    certificate = FileCertificate(*write(tmp_path, "old"), publish=published.append)
    server = Server(certificate)
    old = certificate.current()
    assert 9 < old.days_left <= 10
    before = server.dial()
    far = server.next_stream()
    write(tmp_path, "new")
    after = server.dial(pin=(new := certificate.current()).pin)
    assert new.pin != old.pin
    assert published == [new.pin]
    far.sendall(b"on")  # what stands goes on
    assert read(before, 2) == b"on"
    server.next_stream()
    for one in (before, after, server):
        one.close()


@pytest.mark.parametrize("damage", ["certificate", "key", "gone", "publish"])
def test_a_pair_of_files_that_cannot_be_used_leaves_the_old_certificate_in_use(tmp_path, caplog, damage):
    def publish(pin: bytes) -> None:
        raise EngineError("the store is away")

    files = write(tmp_path, "old")
    certificate = FileCertificate(*files, publish=publish)
    old = certificate.current()
    if damage == "publish":
        write(tmp_path, "new")
    elif damage == "gone":
        (tmp_path / "key.pem").unlink()
    else:
        (tmp_path / ("cert.pem" if damage == "certificate" else "key.pem")).write_text("no PEM")
    assert certificate.current().pin == old.pin
    assert "is not used yet" in caplog.text
    assert certificate.current().pin == old.pin


def test_files_that_cannot_be_used_at_the_start_are_an_error(tmp_path):
    with pytest.raises(EngineError, match=r"Config\.tls"):
        FileCertificate(str(tmp_path / "none.pem"), str(tmp_path / "key.pem"))
