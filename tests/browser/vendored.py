"""Libraries of other projects: what `vendor.lock` says of them, and their packages from npm.

``python -m tests.browser.vendored`` fetches the packages again and compares all files with those in the checkout.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path
from typing import Any

__all__ = ["VENDOR", "differences", "fetched", "packages"]

VENDOR = Path(__file__).parents[2] / "actorproc" / "web" / "static" / "vendor"


def packages() -> list[dict[str, Any]]:
    """Packages of the lock file."""
    return tomllib.loads((VENDOR / "vendor.lock").read_text(encoding="utf-8"))["package"]


def fetched(package: dict[str, Any], target: Path) -> Path:
    """The directory of a package as npm has it. Raises `OSError` if it cannot be had.

    Args:
        package: Of the lock file.
        target: Directory for the archive and its contents.

    Returns:
        The directory that holds the files of the package.
    """
    npm = shutil.which("npm")
    if npm is None:
        raise FileNotFoundError("npm is not installed")
    target.mkdir(parents=True, exist_ok=True)
    wanted = f"{package['name']}@{package['version']}"
    told = subprocess.run(
        [npm, "pack", "--json", wanted], cwd=target, capture_output=True, text=True, timeout=120, check=False
    )
    if told.returncode != 0:
        raise OSError(f"npm pack {wanted} failed: {told.stderr.strip()[-300:]}")
    answer = json.loads(told.stdout)
    (entry,) = answer if isinstance(answer, list) else answer.values()
    with tarfile.open(target / entry["filename"].replace("@", "").replace("/", "-")) as archive:
        archive.extractall(target, filter="data")
    return target / "package"


def differences(package: dict[str, Any], source: Path) -> list[str]:
    """Files of a package that are not as the lock file says, in words.

    Args:
        package: Of the lock file.
        source: Directory of the package as npm has it.
    """
    found = []
    for name, entry in package["files"].items():
        digest = hashlib.sha256((source / entry.get("path", name)).read_bytes()).hexdigest()
        if digest != entry["sha256"]:
            found.append(f"{package['name']} {package['version']}: {name} has the SHA-256 {digest}")
    return found


def main(target: Path) -> int:
    """Compare all; 1 if something differs."""
    wrong = [
        words for package in packages() for words in differences(package, fetched(package, target / package["folder"]))
    ]
    print("\n".join(wrong) or f"{len(packages())} packages are as npm has them")
    return 1 if wrong else 0


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as directory:
        sys.exit(main(Path(directory)))
