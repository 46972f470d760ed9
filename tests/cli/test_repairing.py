"""What an operator meets in a live store: found with `why`, repaired with one verb."""

from __future__ import annotations

import shlex

import pytest

pytestmark = pytest.mark.processes


def why(place, name):
    code, out, _ = place("-o", "table", "why", name)
    assert code == 0
    return out


def first_repair(place, name, verb):
    """The last command with this verb that the chain offers."""
    offered = [line.partition("⇒")[2] for line in why(place, name).splitlines() if "⇒" in line]
    command = next(text for text in reversed(offered) if text.strip().startswith(f"actorproc {verb}"))
    return shlex.split(command.partition("#")[0])[1:]


def test_a_stuck_table_lock_is_found_and_given_up(place):
    place("submit", "jobs:Table", "name=t1", "stuck=true", "--id", "holder-1")
    place.until(lambda: place.phase("holder-1") == "running")
    place("submit", "jobs:Table", "name=t1", "--id", "waiter-1")

    chain = place.until(lambda: "on worker" in (text := why(place, "waiter-1")) and text).splitlines()

    assert "waits for write of 'catalog/t1' held by holder-1" in chain[0]
    assert "holder-1 (Table) runs step 1" in chain[1]
    assert place(*first_repair(place, "waiter-1", "abort"), "--reason", "hangs")[0] == 0
    assert place("watch", "waiter-1", "--timeout", "50s")[0] == 0
    assert [row["reason"] for row in place.rows("show", "holder-1")[0]["audit"]] == ["hangs"]


def test_a_failed_rollback_is_found_and_repaired(place):
    mended = place.directory / "mended"
    place("submit", "jobs:Half", f"mended={mended}", "--id", "half-1")
    assert place("watch", "half-1", "--timeout", "50s")[0] == 1

    text = why(place, "half-1")

    assert "ended FAILED" in text
    assert "the undo fails" in text
    assert "poisoned" in text
    assert [row["path"] for row in place.rows("poisons")] == ["catalog/half"]
    refused = place("submit", "jobs:Half", f"mended={mended}", "--id", "half-2")
    assert refused[0] == 5
    assert "poison" in refused[2]
    mended.touch()
    assert place(*first_repair(place, "half-1", "retry"))[0] == 0
    place.until(lambda: place.state("half-1") == "ROLLEDBACK")
    assert place.rows("poisons") == []


def test_an_undo_that_is_tried_again_says_why_it_fails(place):
    place("submit", "jobs:Patient", "mended=/nowhere", "--id", "patient-1")

    text = place.until(lambda: "next try" in (text := why(place, "patient-1")) and text)

    assert "rolled back because of ValueError: the second step fails" in text
    assert "its undo of first failed 1 time: RuntimeError: the undo fails" in text
    shown = place.rows("show", "patient-1")[0]
    assert (shown["error"]["message"], shown["undo_error"]["message"]) == ("the second step fails", "the undo fails")
    printed = place("-o", "table", "show", "patient-1")[1]
    assert "its undo fails" in printed
    assert [row["reason"] for row in place.rows("list", "--prefix", "patient-1")] == ["its undo fails: the undo fails"]
    assert place(*first_repair(place, "patient-1", "bypass"))[0] == 0


def test_signals_and_poison_are_dealt_with_by_filters_and_reasons_are_kept(place):
    for n in range(2):
        place("submit", "jobs:Waits", "event=x", "--id", f"many-{n}", "--tag", "many")
    place.until(lambda: all(place.phase(f"many-{n}") == "waiting" for n in range(2)))
    many = ["signal", "--all-matching", "--tag", "many", "--reason", "by hand"]

    assert place(*many)[0] == 2  # not without a yes
    assert [row["result"] for row in place.rows(*many, "1", "--dry-run")] == ["would be done (dry run)"] * 2
    assert [row["ok"] for row in place.rows(*many, "1", "--yes")] == [True, True]
    place.until(lambda: all(place.phase(f"many-{n}") == "done" for n in range(2)))
    assert [row["reason"] for row in place.rows("audit", "many-0")] == ["by hand"]
    assert place("ack", "many-0", "--reason", "taken")[0] == 0
    assert place.rows("audit")[-1]["reason"] == "taken"

    place("submit", "jobs:Half", "mended=/nowhere", "--id", "half-4")
    place("watch", "half-4", "--timeout", "50s")
    assert place("clear-poison", "--below", "catalog", "--yes")[0] == 0
    assert place.rows("poisons") == []
    assert place("clear-poison", "--below", "catalog", "--yes")[0] == 3


def test_a_poisoned_key_is_given_back(place):
    place("submit", "jobs:Half", "mended=/nowhere", "--id", "half-3")
    place("watch", "half-3", "--timeout", "50s")

    assert place("clear-poison", "catalog/half", "--dry-run")[0] == 0
    assert place.rows("poisons") != []
    assert place("clear-poison", "catalog/half", "--reason", "looked at it")[0] == 0
    assert place.rows("poisons") == []
    assert place("clear-poison", "catalog/half")[0] == 3


def test_a_looping_step_is_found_by_its_stack_and_ended(place):
    place("submit", "jobs:Loop", "--id", "loop-1")
    place.until(lambda: "round and round" in why(place, "loop-1"))

    code, stack, _ = place("-o", "table", "stack", "loop-1")

    assert code == 0
    assert "in execute" in stack
    assert place(*first_repair(place, "loop-1", "abort"))[0] == 0
    assert place("watch", "loop-1", "--timeout", "50s")[0] == 1


def test_an_event_that_never_came_is_sent(place):
    place("submit", "jobs:Waits", "event=paid", "--id", "waits-1")
    place.until(lambda: place.phase("waits-1") == "waiting")

    assert place(*first_repair(place, "waits-1", "signal"), '{"by": "hand"}')[0] == 0
    assert place("watch", "waits-1", "--timeout", "50s")[0] == 0


def test_a_pause_is_found_and_lifted(place):
    place("submit", "jobs:Parent", "--id", "parent-1")
    place.until(lambda: place.phase("parent-1") == "suspended")
    assert place("pause", "parent-1", "--reason", "audit")[0] == 0

    text = why(place, "parent-1.0")

    assert "audit" in text
    assert first_repair(place, "parent-1.0", "resume") == ["resume", "parent-1"]
    assert place("resume", "parent-1")[0] == 0
    assert "is suspended on 2 of its children" in why(place, "parent-1")
    assert place("bypass", "parent-1", "--children", "--force")[0] == 0
    place.until(lambda: place.state("parent-1") == "SUCCESS")


def test_the_whole_manager_is_paused_and_resumed(place):
    assert place("pause", "--manager", "--reason", "upgrade")[0] == 0
    place("submit", "jobs:add", "a=1", "b=2", "--id", "add-paused")

    text = why(place, "add-paused")

    assert "the whole manager was paused by an operator: upgrade" in text
    assert place.rows("status")[0]["paused"] == "upgrade"
    assert place("resume", "--manager")[0] == 0
    assert place("watch", "add-paused", "--timeout", "50s")[0] == 0


def test_what_has_no_rollback_refuses_one(place):
    place("submit", "jobs:Waits", "--id", "waits-2")
    place.until(lambda: place.phase("waits-2") == "waiting")

    code, out, _ = place("-o", "table", "rollback", "waits-2")

    assert code == 5
    assert "refused" in out
    assert place("abort", "waits-2")[0] == 0


def test_many_are_selected_by_a_filter_after_a_dry_run_and_a_yes(place):
    for n in range(3):
        place("submit", "jobs:Waits", "event=nothing", "--id", f"bulk-{n}", "--tag", "bulk")
    bulk = ["abort", "--tag", "bulk", "--all-matching"]

    dry = place.rows(*bulk, "--dry-run")
    unasked = place(*bulk)

    assert [row["id"] for row in dry] == ["bulk-0", "bulk-1", "bulk-2"]
    assert unasked[0] == 2
    assert "--yes" in unasked[2]
    assert {place.phase(f"bulk-{n}") for n in range(3)} <= {"waiting", "queued", "running"}
    assert [row["result"] for row in place.rows(*bulk, "--yes")] == ["asked to abort"] * 3
    place.until(lambda: all(place.phase(f"bulk-{n}") == "done" for n in range(3)))


def test_finished_ones_are_acknowledged_deleted_and_collected(place):
    for name in ("old-1", "old-2", "old-3"):
        assert place("submit", "jobs:add", "a=1", "b=2", "--id", name, "--wait")[0] == 0

    assert place("ack", "old-1")[0] == 0
    assert place("delete", "old-2", "--reason", "not needed")[0] == 0
    assert place("show", "old-2")[0] == 3
    assert place("gc", "--older-than", "1h", "--yes")[0] == 0
    assert place("show", "old-3")[0] == 0
    assert place("gc", "--older-than", "0s", "--yes")[0] == 0
    assert place("show", "old-3")[0] == 3


def test_an_ended_root_begins_again_and_a_fork_begins_at_its_second_step(place):
    mended = place.directory / "mended-already"
    mended.touch()
    place("submit", "jobs:Half", f"mended={mended}", "--id", "again-1")
    place.until(lambda: place.state("again-1") == "ROLLEDBACK")

    assert place("restart", "again-1", "--reason", "once more")[0] == 0
    place.until(lambda: place.rows("show", "again-1")[0]["generation"] == 2 and place.state("again-1") == "ROLLEDBACK")
    assert [(row["verb"], row["reason"]) for row in place.rows("show", "again-1")[0]["audit"]] == [
        ("restart", "once more")
    ]
    forked = place.rows("fork", "again-1", "--from", "second", "--id", "forked-1")[0]
    assert (forked["id"], forked["ok"], forked["result"]) == ("again-1", True, "forked as forked-1")
    place.until(lambda: place.state("forked-1") == "ROLLEDBACK")
    assert [row["outcome"] for row in place.rows("steps", "forked-1")] == ["submitted", "rolledback"]
    refused = place("fork", "again-1", "--from", "third")
    assert refused[0] != 0
    assert "step 1 (first), step 2 (second)" in refused[1] + refused[2]
    assert place("restart", "forked-1", "--dry-run")[0] == 0
