"""All operations of the API."""

from __future__ import annotations

from actorproc.ui.verbs import VERBS
from actorproc.web.api import acting, bulk, procedure, reading
from actorproc.web.api.filters import FILTERS, PAGING
from actorproc.web.api.operations import LIMIT, Handler, Operation, Parameter

__all__ = ["OPERATIONS"]

_LIMIT = Parameter("limit", "int", "greatest number of items", least=1, most=LIMIT, default=50)
_OFFSET = Parameter("offset", "int", "place of the first item", default=0)
_MANY = Parameter("limit", "int", "greatest number of items", least=1, most=1000, default=1000)
_STEP = Parameter("step", "int", "number of a step, or of its record", least=1)
_ORDER = Parameter("order", "text", "trouble (unfinished and failed ones first), newest or oldest")


def _of(part: str, answer: str, handle: Handler, summary: str, *query: Parameter) -> Operation:
    return Operation("GET", f"/procedures/{{id}}{part}", answer, handle, summary, query)


_READING = (
    Operation("GET", "/status", "status", reading.status, "How the store and its manager do"),
    Operation("GET", "/failures", "list of failure-group", reading.failures, "Failed procedures in groups"),
    Operation(
        "GET",
        "/procedures",
        "list of procedure",
        reading.procedures,
        "Procedures that match all filters",
        (*FILTERS, _ORDER, *PAGING),
    ),
    Operation("GET", "/procedures/count", "count", reading.count, "Number of procedures that match", FILTERS),
    _of("", "procedure-detail", procedure.detail, "All about a procedure"),
    _of("/why", "cause", procedure.why, "What it waits for, down to the root cause, and how to repair it"),
    _of("/steps", "list of step", procedure.steps, "Its step log", _MANY, _OFFSET),
    _of("/steps/{n}", "state", procedure.step, "The fields at one record"),
    _of("/attempts", "list of attempt", procedure.attempts, "Its failed attempts", _STEP, _MANY, _OFFSET),
    _of(
        "/children",
        "list of procedure",
        procedure.children,
        "Its children, from any place",
        Parameter("state", "texts", "states"),
        _OFFSET,
        _LIMIT,
    ),
    _of("/tree", "tree", procedure.tree, "It and what it started", _MANY),
    _of("/state", "state", procedure.state, "Its fields, now or at a record", _STEP),
    _of("/states", "list of state", procedure.states, "Its fields at each record", _LIMIT, _OFFSET),
    _of(
        "/diff",
        "diff",
        procedure.diff,
        "Differences between two records",
        Parameter("first", "int", "number of a record", least=1),
        Parameter("second", "int", "number of a record", least=1),
    ),
    _of("/output", "output", procedure.output, "Its output"),
    _of("/logs", "list of log", procedure.logs, "What it printed and logged", _MANY, PAGING[1]),
    _of("/stack", "stack", procedure.stack, "The Python stack of its running step"),
    _of("/locks", "list of lock", procedure.locks, "Locks that it holds or waits for", _LIMIT),
    _of("/audit", "list of audit", procedure.audit, "What operators asked of it", _MANY, _OFFSET),
    _of("/timeline", "timeline", procedure.timeline, "Its steps and attempts as bars"),
    Operation(
        "GET",
        "/locks",
        "list of lock",
        reading.locks,
        "The lock table",
        (
            Parameter("key", "text", "only this key, and those above and below it"),
            Parameter("waited", "bool", "only those that others wait for"),
            _MANY,
        ),
    ),
    Operation("GET", "/locks/graph", "wait-graph", reading.graph, "The wait-for graph"),
    Operation("GET", "/poisons", "list of poison", reading.poisons, "Keys that are poisoned", (_MANY,)),
    Operation("GET", "/signals", "list of signal", reading.signals, "Signals that nothing has taken", (_MANY,)),
    Operation("GET", "/workers", "list of worker", reading.workers, "Workers and the steps in them"),
    Operation("GET", "/hosts", "list of host", reading.hosts, "Worker hosts that have joined"),
    Operation("GET", "/deaths", "list of attempt", reading.deaths, "Workers that died, the newest first", (_LIMIT,)),
    Operation(
        "GET",
        "/activity",
        "list of audit",
        reading.activity,
        "What operators asked for, the newest first",
        (
            Parameter("since", "moment", "at this time or later"),
            Parameter("until", "moment", "before this time"),
            Parameter("verb", "texts", "only these verbs"),
            Parameter("by", "text", "only of this name"),
            *PAGING,
        ),
    ),
    Operation("GET", "/types", "list of type", reading.types, "Types of procedures"),
    Operation("GET", "/types/{type}", "type-detail", reading.type_detail, "One type: durations, failures, what runs"),
    Operation("GET", "/metrics", "metrics", reading.metrics, "Counters and histograms of the manager"),
    Operation("GET", "/schema", "schema", reading.schema, "The JSON Schema of all objects"),
)

_ACTING = (
    *(
        Operation(
            "POST",
            f"/procedures/{{id}}/{verb}",
            "outcome",
            acting.one(verb),
            f"{verb.capitalize()} a procedure",
            body=acting.VerbBody,
            verb=verb,
        )
        for verb in VERBS
    ),
    Operation(
        "POST",
        "/procedures/{id}/signal",
        "outcome",
        acting.signal,
        "Send it a signal",
        body=acting.SignalBody,
        verb="signal",
    ),
    Operation(
        "POST", "/publish", "outcome", acting.publish, "Publish an event", body=acting.PublishBody, verb="publish"
    ),
    Operation(
        "POST",
        "/withdraw",
        "outcome",
        acting.withdraw,
        "Take signals back",
        body=acting.WithdrawBody,
        verb="withdraw",
    ),
    Operation(
        "POST",
        "/poisons/clear",
        "outcome",
        acting.clear_poison,
        "Give a poisoned key back",
        body=acting.PoisonBody,
        verb="clear-poison",
    ),
    *(
        Operation(
            "POST",
            f"/manager/{verb}",
            "outcome",
            acting.for_manager(verb),
            f"{verb.capitalize()} everything",
            body=acting.ManagerBody,
            verb=verb,
        )
        for verb in ("pause", "resume")
    ),
    Operation(
        "POST",
        "/manager/resize",
        "outcome",
        acting.resize,
        "Change the number of workers of the manager in this process",
        body=acting.ResizeBody,
        verb="resize",
    ),
    Operation("POST", "/bulk", "bulk", bulk.bulk, "Do a verb to all that match", body=bulk.BulkBody, verb="bulk"),
)

OPERATIONS = (*_READING, *_ACTING)
"""Reading ones first; of paths that both fit, the earlier one is meant."""
