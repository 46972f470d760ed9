"""Tags and searchable fields under torture: orders with a ``tag``, and the judge of what lists and their index find.

Such an order sets a tag to its place and its attempt. A failed attempt sets another one, so one that counts shows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from random import Random
from typing import TYPE_CHECKING, Any

from actorproc.model.states import ProcedureState
from actorproc.procedure.authoring.context import Context
from actorproc.testing.histories.evidence import StoreDump, Violation

if TYPE_CHECKING:
    from actorproc.model.rows.records import ProcedureRecord
    from actorproc.store.base import RecordStore
    from actorproc.testing.torture.orders.roots import Root

__all__ = ["TAG", "judge_lists", "read_lists", "set_tags", "tagged"]

TAG = "at"
"""Key of the tag that orders set."""
_SHARE = 0.5
"""Share of the trees whose orders set tags."""


# ------------------------------------------------------------ steps
def set_tags(order: dict[str, Any], ctx: Context, at: int) -> None:
    """Set the tag of this order, if it has one."""
    if order.get("tag"):
        ctx.set_tag(TAG, f"{at}.{ctx.attempt}")


# ------------------------------------------------------------ plans
def tagged(chance: Random, spec: dict[str, Any]) -> dict[str, Any]:
    """The spec of a root, in half of the cases with tags in all its orders and in those of its children."""
    return _with_tags(spec) if chance.random() < _SHARE else spec


def _with_tags(spec: dict[str, Any]) -> dict[str, Any]:
    orders = [{**order, "tag": True} for order in spec["orders"]]
    for order in orders:
        if "children" in order:
            order["children"] = [_with_tags(child) for child in order["children"]]
    return {**spec, "orders": orders}


# ------------------------------------------------------------ reading
def read_lists(store: RecordStore, dump: StoreDump) -> None:
    """Read what lists find by each tag and each text of a searchable field, and the rows of their index."""
    from actorproc.store.rows.layout import index_rows  # noqa: PLC0415 - workers load this module without a store
    from actorproc.store.rows.tables import Table  # noqa: PLC0415

    heads = dump.heads.values()
    dump.lists = {f"tag {tag}": _ids(store.scan(tag=tag)) for tag in {tag for head in heads for tag in head.tags}}
    texts = {text for head in heads for text in head.searchable}
    dump.lists |= {f"field {text}": _ids(store.scan(where=(text,))) for text in texts}
    wanted = {(key, id) for head in heads for table, key, id in index_rows(head) if table is Table.BY_TAG}
    with store._view() as rows:  # type: ignore[attr-defined]
        found = set(rows.scan(Table.BY_TAG, b""))
    for word, difference in (("without a head that has it", found - wanted), ("missing", wanted - found)):
        for key, id in sorted(difference):
            dump.lists[f"row {key!r} of {id.decode()}, {word}"] = [id.decode()]


def _ids(heads: Iterable[ProcedureRecord]) -> list[str]:
    return sorted(head.id for head in heads)


# ------------------------------------------------------------ judging
def judge_lists(roots: Iterable[Root], dump: StoreDump) -> Iterator[Violation]:
    """Broken promises of the number 35: lists and their index are what heads say, and heads what their steps said."""
    for what, ids in (dump.lists or {}).items():
        kind, _, text = what.partition(" ")
        if kind == "row":
            yield Violation(35, f"the index of lists has the {what}")
            continue
        wanted = _ids(head for head in dump.heads.values() if text in (head.tags if kind == "tag" else head.searchable))
        if ids != wanted:
            yield Violation(35, f"a list by {what} finds {ids}, and {wanted} have it")
    for root in roots:
        head, order = dump.heads.get(root.id), (root.spec.get("orders") or [{}])[-1]
        if head is None or head.state is not ProcedureState.SUCCESS or not dump.steps.get(root.id):
            continue
        if order.get("tag") and (closing := dump.steps[root.id][-1]).slot >= 0:
            tag = f"{TAG}={len(root.spec['orders']) - 1}.{closing.attempts}"
            if tag not in head.tags:
                yield Violation(35, f"{root.id} has the tags {head.tags}, and its last step set {tag}")
        if root.spec["type"] == "journey" and head.searchable != ("place=4",):
            yield Violation(35, f"{root.id} is found by {head.searchable}, and has place=4")
