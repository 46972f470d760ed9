"""One trace through three kills of workers and one of the host: complete, with the words of each death in its place."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

from tests.kit.waiting import BOUND

ROOT = Path(__file__).parents[2]


def _run(folder: Path, processor: str) -> int:
    program = [sys.executable, "-m", "tests.telemetry.killed_host", str(folder), processor]
    return subprocess.run(program, cwd=ROOT, timeout=2 * BOUND, check=False, env=os.environ).returncode


def spans_of(folder: Path) -> list[SimpleNamespace]:
    """The spans of its file; one that is being written is left out."""
    found = []
    for line in (folder / "spans.jsonl").read_text().split("\n")[:-1]:
        span = json.loads(line)
        found.append(
            SimpleNamespace(
                name=re.sub(r"tests\.telemetry\.\w+\.|__main__\.", "", span["name"]),
                id=span["context"]["span_id"],
                trace=span["context"]["trace_id"],
                above=span["parent_id"],
                words=span["status"].get("description", ""),
                attributes=span["attributes"],
                links=[link["context"]["span_id"] for link in span["links"]],
                span=(span["start_time"], span["end_time"]),
            )
        )
    return found


def test_one_trace_goes_through_kills_of_workers_and_of_the_host(tmp_path):
    assert _run(tmp_path, "simple") == -signal.SIGKILL
    assert _run(tmp_path, "simple") == 0

    spans = spans_of(tmp_path)
    assert len({span.trace for span in spans}) == 1
    assert len({span.id for span in spans}) == len(spans)
    (root,) = [span for span in spans if span.above is None]
    assert (root.name, root.attributes["actorproc.procedure.state"]) == ("actorproc.procedure Journey", "SUCCESS")
    assert {span.above for span in spans} <= {None, *(span.id for span in spans)}
    assert all(begin <= end for begin, end in (span.span for span in spans))

    def attempts(name: str) -> list[SimpleNamespace]:
        found = [span for span in spans if span.name == f"actorproc.step {name}"]
        return sorted(found, key=lambda span: span.attributes["actorproc.step.attempt"])

    assert [span.words for span in attempts("Journey.leave")] == [""]
    killed = attempts("Journey.travel")
    assert [span.attributes["actorproc.step.attempt"] for span in killed] == [1, 2, 3, 4]
    assert ["SIGKILL" in span.words for span in killed] == [True, True, True, False]
    assert ["1st" in killed[0].words, "2nd" in killed[1].words, "3rd" in killed[2].words] == [True] * 3
    lost, again = attempts("Journey.sleep")
    assert "the manager ended" in lost.words
    assert again.words == ""
    assert again.links == [lost.id]
    assert [span.words for span in attempts("Journey.arrive")] == [""]
    (child,) = [span for span in spans if span.name == "actorproc.procedure Visit"]
    assert child.above == root.id
    assert [span.above for span in attempts("Visit.only")] == [child.id]
