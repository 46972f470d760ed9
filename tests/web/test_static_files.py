"""Scripts and styles of the pages: nothing that a strict policy refuses, nothing that was changed, nothing too long."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from actorproc.web.files import PageFiles
from tests.browser.vendored import VENDOR, packages

ROOT = Path(__file__).parents[2]
STATIC = VENDOR.parent
SCRIPTS = sorted((STATIC / "app").rglob("*.js"))
REFUSED = (
    (r"(?<![.\w])style=", "an attribute `style`, which the policy refuses: use `css({…})`"),
    (r"styleMap|unsafe-?html|unsafeHTML|unsafeSVG", "a directive that is refused, or that makes HTML of data"),
    (r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", "HTML or code out of text"),
    (r"""["'`]https?:|["'`]//""", "an address outside of the page"),
    (r"""(?:href|src)=["']?/""", "an address from the root, which breaks below a prefix"),
)


def wrong_with(text: str) -> list[str]:
    """Reasons for which a script of the pages is refused."""
    code = re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE)
    return [words for form, words in REFUSED if re.search(form, code)]


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: str(path.relative_to(STATIC)))
def test_scripts_hold_nothing_that_the_policy_refuses(path):
    text = path.read_text(encoding="utf-8")

    assert wrong_with(text) == []
    assert text.startswith("// ")
    assert len(text.splitlines()) <= 300


@pytest.mark.parametrize(
    "text",
    [
        'html`<div style="top: 1px">`', "html`<p style=${x}>`", "styleMap({})", "unsafeHTML(text)", "element.innerHTML = x",
        'fetch("https://cdn.example/x.js")', 'import("//cdn.example/x.js")', 'html`<a href="/procedures">`', "eval(text)",
    ],
)  # fmt: skip
def test_the_check_finds_what_it_is_for(text):
    assert wrong_with(text) != []


def test_the_shell_has_no_script_or_style_of_its_own():
    text = (STATIC / "index.html").read_text(encoding="utf-8")

    assert re.findall(r"<script(?![^>]* src=)[^>]*>|<style|\son\w+=|\sstyle=|https?:", text) == []
    assert text.count("{{base}}") == 1


def test_libraries_are_those_of_the_lock_file_and_bring_their_licences():
    listed = {f"{package['folder']}/{name}" for package in packages() for name in package["files"]}
    there = {str(path.relative_to(VENDOR)) for path in VENDOR.rglob("*") if path.is_file()} - {"vendor.lock"}

    assert there == listed
    for package in packages():
        assert "LICENSE" in package["files"]
        for name, entry in package["files"].items():
            assert hashlib.sha256((VENDOR / package["folder"] / name).read_bytes()).hexdigest() == entry["sha256"]


def test_scripts_are_served_without_comments_and_the_pages_keep_to_their_budget():
    files = PageFiles("x")
    served = {path: files.get(str(path.relative_to(STATIC))) for path in sorted(STATIC.rglob("*")) if path.is_file()}
    sent = {path: len(file.packed or file.body) for path, file in served.items() if file is not None}

    for path in SCRIPTS:
        body = served[path].body.decode()
        assert not re.search(r"@(type|param|template)\b|^\s*//", body, re.MULTILINE), path
        assert len(body.splitlines()) == len(path.read_text(encoding="utf-8").splitlines())
        # Each such comment is one of types or of words; a text with this sign would be cut.
        assert not re.search(r"/\*\*(?! )|/\*(?!\*)", path.read_text(encoding="utf-8")), path
    assert sum(size for path, size in sent.items() if path.name not in ("LICENSE", "vendor.lock")) <= 80_000
    first = imported({STATIC / "app/main.js", STATIC / "app/pages/overview.js"}, served)
    assert sum(sent[path] for path in {*first, *STATIC.glob("*.*"), STATIC / "app/style.css"}) <= 25_000


def imported(scripts, served):
    """Scripts with those that they need at once."""
    todo, found = list(scripts), set(scripts)
    while todo:
        path = todo.pop()
        for name in re.findall(r"""from ?["'](\.[^"']+)["']""", served[path].body.decode()):
            needed = (path.parent / name).resolve()
            if needed not in found:
                found.add(needed)
                todo.append(needed)
    return found


@pytest.mark.skipif(shutil.which("node") is None, reason="node checks the syntax of scripts")
def test_scripts_are_modules_that_can_be_read(tmp_path):
    files = PageFiles("x")
    for path in SCRIPTS:
        # As a module, whatever package.json is above it; as it is served.
        copy = tmp_path / f"{path.stem}.mjs"
        copy.write_bytes(files.get(str(path.relative_to(STATIC))).body)
        checked = subprocess.run(["node", "--check", copy], capture_output=True, text=True, timeout=30, check=False)
        assert checked.returncode == 0, f"{path}: {checked.stderr}"


def test_nothing_moves_unasked_and_health_alone_is_read_out():
    styles = {path: path.read_text(encoding="utf-8") for path in STATIC.glob("app/**/*.css")}
    for path, text in styles.items():
        rest = re.sub(
            r"@media \(prefers-reduced-motion: no-preference\) \{(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*\}", "", text
        )
        assert not re.search(r"animation|transition|@keyframes|scroll-behavior", rest), path
    assert any("prefers-reduced-motion" in text for text in styles.values())
    spoken = [(path.name, tag) for path in SCRIPTS for tag in re.findall(r"<[^<>]*aria-live=[^<>]*", path.read_text())]
    assert [(name, 'aria-label="Health"' in tag) for name, tag in spoken if 'aria-live="off"' not in tag] == [
        ("shell.js", True)
    ]


def test_browser_tests_wait_for_conditions_alone():
    for path in (ROOT / "tests" / "browser").glob("*.py"):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"networkidle|wait_for_timeout|time\.sleep\((?!0\.0)", text), path
