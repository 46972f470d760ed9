"""Settings from the environment and from files: their order, their forms, and what is refused."""

from __future__ import annotations

import math
from dataclasses import fields

import pytest

from actorproc import Config


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ACTORPROC_ALLOW_ANY_FILESYSTEM", raising=False)
    return tmp_path


def test_without_anything_they_are_the_defaults():
    assert Config.from_env() == Config()


def test_an_empty_variable_says_nothing(monkeypatch):
    monkeypatch.setenv("ACTORPROC_MAX_STATE", "")
    assert Config.from_env() == Config()


def test_arguments_go_before_variables_before_the_own_file_before_the_projects(place, monkeypatch):
    (place / "pyproject.toml").write_text("[tool.actorproc]\nspares = 4\nwarm_limit = 4\n[tool.other]\nx = 1\n")
    assert (Config.from_env().spares, Config.from_env().warm_limit) == (4, 4)
    (place / "actorproc.toml").write_text("spares = 3\nmax_depth = 3\nmax_tree = 3\n")
    found = Config.from_env()
    assert (found.spares, found.warm_limit, found.max_depth) == (3, Config().warm_limit, 3)  # one file, not both
    monkeypatch.setenv("ACTORPROC_SPARES", "2")
    monkeypatch.setenv("ACTORPROC_MAX_TREE", "2")
    found = Config.from_env(spares=1)
    assert (found.spares, found.max_tree, found.max_depth) == (1, 2, 3)
    (place / "other.toml").write_text("spares = 7\nmax_depth = 7\n")
    monkeypatch.setenv("ACTORPROC_CONFIG", str(place / "other.toml"))
    assert Config.from_env().max_depth == 7
    monkeypatch.delenv("ACTORPROC_SPARES")
    assert Config.from_env(place / "actorproc.toml").spares == 3


VALUES = [
    ("retain_for", "7d", 7 * 86400.0),
    ("retain_for", "90", 90.0),
    ("retain_for", "none", None),
    ("stop_timeout", "1.5m", 90.0),
    ("stop_timeout", "250 ms", 0.25),
    ("parked_grace", "inf", math.inf),
    ("max_state", "32KiB", 32768),
    ("max_queued", "1_000", 1000),
    ("recycle_memory", "2GiB", 2**31),
    ("recycle_steps", "None", None),
    ("control", "off", False),
    ("control", "TRUE", True),
    ("code", "4f2a", "4f2a"),
    ("tls", "cert.pem, key.pem", ("cert.pem", "key.pem")),
    ("signing_key", "00ff", b"\x00\xff"),
    ("signing_key", "00ff,01", (b"\x00\xff", b"\x01")),
    ("concurrency", '{"mail": 3}', {"mail": 3}),
    ("rate", '{"mail": [100, "1m"], "x": [1, 2]}', {"mail": (100, 60.0), "x": (1, 2)}),
    ("worker_shares", '{"slow": 0.5}', {"slow": 0.5}),
]


@pytest.mark.parametrize("name, text, value", VALUES, ids=[f"{name} {text}" for name, text, _ in VALUES])  # noqa: PT006
def test_texts_of_variables(monkeypatch, name, text, value):
    monkeypatch.setenv(f"ACTORPROC_{name.upper()}", text)
    assert getattr(Config.from_env(), name) == value


def test_values_of_a_file(place):
    (place / "actorproc.toml").write_text(
        'retain_for = "2h"\nstop_timeout = 5\nmax_state = 70000\ncontrol = false\nretain_count = "none"\n'
        'tls = ["a.pem", "b.pem"]\nconcurrency = {mail = 3, "t/*" = 1}\nrate = {mail = [100, "1m"]}\n'
    )
    found = Config.from_env()
    assert (found.retain_for, found.stop_timeout, found.max_state, found.control) == (7200.0, 5.0, 70000, False)
    assert (found.retain_count, found.tls) == (None, ("a.pem", "b.pem"))
    assert (found.concurrency, found.rate) == ({"mail": 3, "t/*": 1}, {"mail": (100, 60.0)})


@pytest.mark.parametrize("field", [field.name for field in fields(Config)])
def test_each_setting_may_be_a_variable(monkeypatch, field):
    default = getattr(Config(), field)
    texts = {"code": "abc", "listen": "localhost:7000", "advertise": "h:1", "executable": "python", "tls": "a,b"}
    text = texts.get(field)
    if text is None:
        text = "00" if field == "signing_key" else "{}" if isinstance(default, dict) else str(default)
    monkeypatch.setenv(f"ACTORPROC_{field.upper()}", text)
    assert isinstance(Config.from_env(), Config)
    if field not in texts and field != "signing_key":
        assert getattr(Config.from_env(), field) == default


@pytest.mark.parametrize(
    "variable, text, words",  # noqa: PT006
    [
        ("RETAINFOR", "1", "ACTORPROC_RETAINFOR is no setting; did you mean ACTORPROC_RETAIN_FOR"),
        ("MAX_STAT", "1", "did you mean ACTORPROC_MAX_STATE"),
        ("ZZZZZZ", "1", "the fields of actorproc.Config"),
        ("RETAIN_FOR", "7 days", "ACTORPROC_RETAIN_FOR is '7 days': write a duration: 30, 30s"),
        ("RETAIN_FOR", "-1", "not negative"),
        ("MAX_STATE", "16MB", "16MiB"),
        ("MAX_STATE", "1.5", "a whole number"),
        ("CONTROL", "maybe", "true or false"),
        ("CONCURRENCY", "mail=3", "an object of JSON"),
        ("RATE", '{"mail": 3}', "a number and a duration"),
        ("SIGNING_KEY", "secret", "hexadecimal"),
        ("TLS", "cert.pem", "Config.tls"),
    ],
)
def test_a_wrong_variable_is_refused_in_words(monkeypatch, variable, text, words):
    monkeypatch.setenv(f"ACTORPROC_{variable}", text)
    with pytest.raises(ValueError, match=words):
        Config.from_env()


@pytest.mark.parametrize(
    "text, words",  # noqa: PT006
    [
        ("retain_four = 1", "actorproc.toml has 'retain_four', which is no setting; did you mean retain_for"),
        ("spares = ", "is no TOML"),
        ("spares = 'two'", "spares in .*actorproc.toml is 'two': write a whole number"),
        ("spares = 1.5", "Config.spares"),
        ("rate = {mail = 3}", "rate in .*a number and a duration"),
        ("[tool.actorproc]\nspares = 1", "'tool', which is no setting"),
        ("#pyproject\n[tool]\nactorproc = 5", r"pyproject.toml has tool.actorproc = 5; it must be a table"),
        ("#pyproject\n[tool]\nactorproc = ['spares']", "it must be a table of settings"),
    ],
)
def test_a_wrong_file_is_refused_in_words(place, text, words):
    (place / ("pyproject.toml" if text.startswith("#pyproject") else "actorproc.toml")).write_text(text)
    with pytest.raises(ValueError, match=words):
        Config.from_env()


def test_a_file_that_is_asked_for_must_be_there_and_what_others_read_is_no_setting(monkeypatch):
    with pytest.raises(OSError, match=r"none\.toml"):
        Config.from_env("none.toml")
    for name in ("PATH", "OUTPUT", "POSTGRES_BIN", "DEMO_X"):
        monkeypatch.setenv(f"ACTORPROC_{name}", "1")
    assert Config.from_env() == Config()


def test_a_key_that_is_wrong_is_not_shown(monkeypatch, place):
    monkeypatch.setenv("ACTORPROC_SIGNING_KEY", "0x5ec2e7")
    with pytest.raises(ValueError, match="ACTORPROC_SIGNING_KEY is no key: write a key as hexadecimal digits"):
        Config.from_env()


def test_a_project_file_that_has_no_tools_says_nothing(place):
    (place / "pyproject.toml").write_text("tool = 5")
    assert Config.from_env() == Config()
