"""Text for Prometheus as its own parsers read it, and what is shipped that names metrics."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from actorproc import Procedure, Saga, StateMachineProcedure, Status, step
from actorproc.engine.callers.counters import Counters
from actorproc.model.ids import StepToken, WorkerId
from actorproc.model.messages.commands import RunStep
from actorproc.model.messages.definitions import Definition
from actorproc.model.messages.outcomes import Finished
from actorproc.model.policies import TypeMeta
from actorproc.procedure.runtime.class_shipping import definition_of
from actorproc.procedure.runtime.engine_side import TypeRuntime
from actorproc.report.metrics import NO_MANAGER
from actorproc.store.memory import MemoryStore
from tests.catalogue.kit import on_threads
from tests.kit.exposition import families

ROOT = Path(__file__).parents[2]
GRAFANA = ROOT / "docs" / "grafana" / "actorproc.json"
ALERTS = ROOT / "docs" / "grafana" / "alerts.yml"
ODD = 'quote " back \\ end é 漢 {a="b"}'


@pytest.mark.processes
def test_every_metric_is_read_as_it_is_meant(open_manager):
    manager = open_manager(workers=1, procedures=[Named])
    manager.run(Named())

    found = families(manager.metrics(whole=True).prometheus())

    kinds = {family.type for family in found.values()}
    assert kinds == {"counter", "gauge", "histogram"}
    assert found["actorproc_steps_run_total"].samples[0].value == 2
    assert families(manager.metrics().prometheus()).keys() < found.keys()
    deaths = {sample.labels["cause"]: sample.value for sample in found["actorproc_worker_deaths_total"].samples}
    assert set(deaths.values()) == {0.0}  # there before the first one, which `increase` would not see
    source = (ROOT / "actorproc" / "model" / "crash_report.py").read_text(encoding="utf-8")
    (told,) = re.findall(r'    kind: str\n    """(.*?)\."""', source, re.DOTALL)
    assert deaths.keys() | {"stopped"} == set(re.split(r",\s+", told))


class Named(Saga):
    @step
    def one(self, ctx):
        return None

    @one.undo
    def no_one(self, ctx):
        return None

    @step
    def two(self, ctx):
        return None


def test_any_name_of_a_type_is_one_label():
    class Odd(Procedure):
        type_name = ODD

        def execute(self, ctx):
            return Status.done()

    with on_threads(MemoryStore(), (Odd,)) as manager:
        manager.run(Odd(), timeout=60)
        found = families(manager.metrics(whole=True).prometheus())

    assert {sample.labels["type"] for sample in found["actorproc_steps_run_total"].samples} == {ODD}


def test_without_a_manager_the_text_says_so():
    (sample,) = families(NO_MANAGER)["actorproc_manager_up"].samples

    assert sample.value == 0


# ---------------------------------------------------------------- the bound on series
def made_types(count):
    def execute(self, ctx):
        return Status.done()

    found = [type(f"Type{n:04}", (Procedure,), {"execute": execute, "__module__": __name__}) for n in range(count)]
    globals().update({cls.__name__: cls for cls in found})  # importable: to send them by value takes longer
    return found


def test_three_hundred_types_are_two_hundred_series_and_the_rest():
    types = made_types(300)
    with on_threads(MemoryStore(), types) as manager:
        for handle in manager.submit_many([kind() for kind in types]):
            handle.result(60)
        text = manager.metrics(whole=True).prometheus()

    counted = families(text)["actorproc_steps_run_total"].samples
    names = {sample.labels["type"]: sample.value for sample in counted}
    assert len(counted) == len(names) == 201
    assert (names["other"], sum(names.values())) == (100, 300)
    assert len([line for line in text.splitlines() if 'type="' in line]) == 201 * (4 + 5 + 2 * 22)


@pytest.mark.parametrize("turned", [False, True])
def test_the_types_that_are_told_apart_are_the_same_ones_after_a_restart(turned):
    known = [Definition(meta=TypeMeta(type_name=f"t{n:04}")) for n in range(1000)]
    counters = Counters(known[::-1] if turned else known)
    token = StepToken(1, WorkerId(0, 1), "p", 1, 1)

    for definition in known if turned else known[::-1]:
        run = RunStep(token, definition.meta.type_name, False, "p", None, False, False, None, 0)
        counters.step_ended(run, Finished(elapsed=0.1))

    assert list(counters.steps()) == ["other", *(f"t{n:04}" for n in range(200))]


def many_steps(name, count):
    names = [f"step{n:03}" for n in range(count)]
    return type(name, (Saga,), {"type_name": name, **{n: step(_step(n)) for n in names}}), names


def _step(name):
    def run(self, ctx):
        return None

    run.__name__ = run.__qualname__ = name
    return run


@pytest.mark.parametrize("turned", [False, True])
def test_pairs_beyond_the_bound_are_counted_as_others_by_their_names_and_not_by_their_arrival(turned):
    classes = [many_steps("b", 150), many_steps("a", 150)]
    known = [definition_of(TypeRuntime.of_class(cls)) for cls, _ in classes]
    counters = Counters(known[::-1] if turned else known)
    token = StepToken(1, WorkerId(0, 1), "p", 1, 1)
    pairs = [(cls.type_name, name) for cls, names in classes for name in names] + [("late", "step")]

    for type_name, name in pairs[::-1] if turned else pairs:
        run = RunStep(token, type_name, False, "p", None, False, False, None, 0, step_name=name)
        counters.step_ended(run, Finished(elapsed=0.1))

    found = counters.named_steps()
    assert {name: len(steps) for name, steps in found.items()} == {"a": 150, "b": 49, "other": 1}
    assert list(found["b"]) == [f"step{n:03}" for n in range(49)]
    assert found["other"]["other"].run == 101 + 1
    assert {name: counts.run for name, counts in counters.steps().items()} == {"a": 150, "b": 150, "late": 1}


def test_the_names_of_steps_are_known_before_any_of_them_runs():
    from enum import Enum

    class Light(Enum):
        RED = 1
        GREEN = 2

    class Crossing(StateMachineProcedure):
        initial_state = Light.RED

        def execute_from_state(self, ctx, state):
            return None

        def rollback_state(self, ctx, state):
            return None

    def names(cls):
        return definition_of(TypeRuntime.of_class(cls)).step_names

    assert names(Named) == ("one", "two", "undo one")
    assert names(Crossing) == ("RED", "GREEN", "undo RED", "undo GREEN")
    assert names(made_types(1)[0]) == ()


# ---------------------------------------------------------------- the dashboard and the rules that are shipped
@pytest.fixture(scope="module")
def known():
    """Names of series, each with its labels, and the metrics of the page."""
    with on_threads(MemoryStore(), (Named,)) as manager:
        manager.run(Named(), timeout=60)
        found = families(manager.metrics(whole=True).prometheus())
    names = {}
    for name, family in found.items():
        labels = {label for sample in family.samples for label in sample.labels}
        suffixes = ("_bucket", "_sum", "_count") if family.type == "histogram" else ("",)
        names |= {f"{name}{suffix}": labels for suffix in suffixes}
    return names


WITHOUT_SAMPLES = {
    "actorproc_worker_cpu_seconds_total": {"slot"},
    "actorproc_worker_resident_bytes": {"slot"},
    "actorproc_procedures_by_phase": {"phase"},
    "actorproc_host_workers": {"host"},
    "actorproc_host_workers_busy": {"host"},
    "actorproc_oldest_unfinished_seconds": {"type"},
}
"""Metrics that have no series while nothing has died or waits, or on threads."""


def expressions():
    panels = json.loads(GRAFANA.read_text(encoding="utf-8"))["panels"]
    for panel in panels:
        for target in panel["targets"]:
            yield panel["title"], target["expr"]
    for group in yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"]:
        for rule in group["rules"]:
            yield rule["alert"], rule["expr"]


@pytest.mark.parametrize(("where", "expression"), list(expressions()))
def test_each_metric_that_is_asked_for_exists_with_its_labels(known, where, expression):
    asked = re.findall(r"(actorproc_[a-z_]+)(?:\{([^}]*)\})?", expression)
    grouped = {name for found in re.findall(r"by \(([^)]*)\)", expression) for name in re.split(r",\s*", found)}

    assert asked
    for name, matchers in asked:
        assert name in known, name
        labels = known[name] | WITHOUT_SAMPLES.get(name, set()) | {"instance", "le"}
        assert set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", matchers or "")) <= labels
        assert grouped <= labels


def test_the_dashboard_has_twelve_panels_that_do_not_overlap_and_choose_their_source():
    board = json.loads(GRAFANA.read_text(encoding="utf-8"))
    places = [tuple(panel["gridPos"][side] for side in "xywh") for panel in board["panels"]]

    assert len(board["panels"]) == len({panel["id"] for panel in board["panels"]}) == len(set(places)) == 12
    assert {panel["datasource"]["uid"] for panel in board["panels"]} == {"${datasource}"}
    assert [variable["name"] for variable in board["templating"]["list"]] == ["datasource", "instance"]
    assert all(x + w <= 24 for x, _, w, _ in places)


def test_the_rules_are_six_and_name_phases_and_commands_that_exist():
    (group,) = yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"]
    names = [rule["alert"].removeprefix("Actorproc") for rule in group["rules"]]

    assert names == ["Down", "StorageTrouble", "Stuck", "PoisonedKeys", "OldUnfinished", "SlotParked"]
    assert all({"summary", "description"} <= rule["annotations"].keys() for rule in group["rules"])
    assert all(rule["labels"]["severity"] in {"warning", "critical"} for rule in group["rules"])
    if (promtool := shutil.which("promtool")) is not None:
        subprocess.run([promtool, "check", "rules", ALERTS], check=True, capture_output=True)
