"""Values of users in every answer: none where they are hidden, and none that a function of the host replaces."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from actorproc.api.manager import ProcedureManager
from actorproc.procedure.authoring.procedure import Procedure
from actorproc.procedure.authoring.status import Status
from actorproc.web.api.table import OPERATIONS
from tests.web.conftest import opened

pytestmark = pytest.mark.processes
MARK = "4111-of-the-user"
FORMS = ("4111", "NDExMS1")
"""The value as a text, and as bytes in JSON."""


@dataclass
class Card(Procedure):
    """Shows values in all ways there are, and so does its child."""

    searchable = ("number",)

    child: bool = True
    number: str = MARK
    parts: dict = field(default_factory=lambda: {"a": [MARK], "b": (MARK, {MARK + "-in-a-set"}), "c": MARK.encode()})

    def execute(self, ctx):
        ctx.expose("card", {"number": MARK})
        if self.child and ctx.step == 1:
            self.number = f"{MARK}-2"
            self.parts = {**self.parts, "a": [MARK, f"{MARK}-3"], "b": (1,), "c": b"-"}
            return Status.suspended([Card(child=False)])
        return Status.done({"number": MARK})


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("payloads") / "store"
    with ProcedureManager(path, procedures=[Card], workers=1) as manager:
        manager.submit(Card(), id="card").result(30)
        manager.publish("other", {"number": MARK})
    return path


def replaced(type_name, path, value):
    assert type_name.endswith("Card")
    return "replaced" if isinstance(value, str) and any(form in value for form in FORMS) else value


@pytest.mark.parametrize("options", [{"payloads": "hidden"}, {"redact": replaced}], ids=["hidden", "replaced"])
def test_no_answer_shows_a_value_that_is_hidden_or_replaced(path, options):
    told = set()
    with opened(path) as bare, opened(path, **options) as page:
        for operation in OPERATIONS:
            if operation.method == "GET":
                where = operation.path.strip("/").replace("{id}", "card").replace("{n}", "2").replace("{type}", "Card")
                query = "?first=1&second=2" if where.endswith("diff") else ""
                if MARK in bare.get(where + query).text:
                    told.add(operation.path.rpartition("/")[2])
                found = page.get(where + query).text
                assert not [form for form in FORMS if form in found], where
    assert told >= {"procedures", "{id}", "state", "states", "diff", "output", "tree", "children", "{n}"}


@pytest.mark.parametrize("options", [{"payloads": "hidden"}, {"redact": replaced}], ids=["hidden", "replaced"])
@pytest.mark.parametrize("where", ["procedures", "procedures/count"])
def test_no_value_that_is_hidden_or_replaced_can_be_searched_for(path, options, where):
    search = f"{where}?where=number={MARK}-2"
    with opened(path) as bare, opened(path, **options) as page:
        found = bare.get(search).json()
        assert found.get("count", len(found.get("items", ()))) == 1
        refused = page.get(search)
        assert refused.status_code == 422
        assert "where is refused: values are hidden or replaced on this page" in refused.text


def test_a_difference_shows_what_stands_in_the_place_of_values(path):
    with opened(path) as page:
        paths = [change["path"] for change in page.get("procedures/card/diff?first=1&second=2").json()["changes"]]
    number = iter(range(100))

    with opened(path, redact=lambda type_name, place, value: f"{place}:{next(number)}") as page:
        changes = page.get("procedures/card/diff?first=1&second=2").json()["changes"]

    assert "parts.a[1]" in paths
    assert {change["path"] for change in changes} >= set(paths)
    (found,) = [change for change in changes if change["path"] == "parts.a[0]"]
    assert found["before"].startswith("'state.parts.a[0]:")
