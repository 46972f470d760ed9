"""Text for Prometheus, read by the parser of its client, and by promtool where there is one."""

from __future__ import annotations

import re
import shutil
import subprocess
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

__all__ = ["families"]


def _key(sample: Any) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((name, value) for name, value in sample.labels.items() if name != "le"))


def families(text: str) -> dict[str, Any]:
    """The metrics of an exposition by name, as prometheus-client reads them, with what promtool would say."""
    found = {}
    for family in text_string_to_metric_families(text):
        declared = f"{family.name}_total" if family.type == "counter" else family.name
        assert declared not in found, "declared twice"
        assert family.documentation, family.name
        assert family.type != "unknown", family.name
        found[declared] = family
        seen = [(sample.name, *sorted(sample.labels.items())) for sample in family.samples]
        assert len(seen) == len(set(seen)), family.name
        assert re.fullmatch(r"actorproc_[a-z_]+", family.name)
        if family.type != "histogram":
            assert not re.search(r"_(count|sum|bucket)$", family.name)
            continue
        counts = {_key(sample): sample.value for sample in family.samples if sample.name.endswith("_count")}
        whole = {_key(sample): sample.value for sample in family.samples if sample.labels.get("le") == "+Inf"}
        assert whole == counts
    assert text.endswith("\n")
    if (promtool := shutil.which("promtool")) is not None:
        said = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, text=True, check=False)
        assert said.returncode == 0, said.stderr
    return found
