"""Public calls name their arguments, results and errors under `Args:`, `Returns:` and `Raises:`."""

from __future__ import annotations

import dataclasses
import inspect

import pytest

from actorproc.config import Config
from actorproc.errors import NotAllowed
from actorproc.procedure.declaring.policies import Limits, RetryPolicy
from tests.public_calls import (
    Call,
    docstrings_of_fields,
    missing,
    public_calls,
    raised_by,
    sections,
    sentences,
    unknown_errors,
)

ENTRIES = 300
"""Fewer arguments than this, of all public calls, would mean that the search has lost some."""


WORDS = 25
"""Greatest number of words in a sentence."""


def good(id: str, *rest: int, ctx: object = None) -> bool:
    """Do it.

    Args:
        id: The id.
        *rest: Numbers.

    Returns:
        True.

    Raises:
        NotAllowed: Never.
    """
    del rest, ctx
    raise NotAllowed(id)


def poor(id: str, limit: int = 1) -> bool:
    """Do it.

    Args:
        limit: A number.
        other: No parameter.
    """
    if limit:
        raise NotAllowed(id)
    return True


class Made:
    """A thing.

    Args:
        size: In the docstring of its class.
    """

    def __init__(self, size: int) -> None:
        self.size = size

    def look(self) -> int:
        """The size."""
        return self.size


def test_public_calls_document_their_arguments_results_and_errors():
    calls = public_calls()

    assert [problem for call in calls for problem in missing(call)] == []
    assert sum(len(call.parameters) for call in calls) > ENTRIES


def test_errors_that_are_documented_exist():
    assert [(call.name, names) for call in public_calls() if (names := unknown_errors(call))] == []


def test_sentences_about_public_calls_are_short():
    counted = {text: len(text.split()) for call in public_calls() for text in sentences(call.docstring)}

    assert {text: words for text, words in counted.items() if words > WORDS} == {}


def test_public_calls_have_a_headline():
    assert [call.name for call in public_calls() if not call.docstring.strip()] == []


def test_fields_of_the_settings_are_documented():
    documented = docstrings_of_fields(Config)

    assert [field.name for field in dataclasses.fields(Config) if field.name not in documented] == []


@pytest.mark.parametrize("owner", [RetryPolicy, Limits])
def test_options_with_a_generated_constructor_are_all_documented(owner):
    assert sections(inspect.getdoc(owner))["Args"] == list(owner.__struct_fields__)


def test_a_call_with_all_sections_lacks_nothing():
    assert missing(Call("good", good, None)) == []


def test_a_call_lacks_what_it_does_not_name():
    assert missing(Call("poor", poor, None)) == [
        "poor: Args lacks id",
        "poor: Args names other, which is no parameter",
        "poor: no Returns",
        "poor: Raises lacks NotAllowed",
    ]


@pytest.mark.parametrize("name", ["__init__", "look"])
def test_a_class_speaks_for_its_constructor_and_headlines_suffice_without_parameters(name):
    assert missing(Call(name, inspect.getattr_static(Made, name), Made)) == []


def test_sections_end_where_text_begins_again():
    found = sections(
        "Args:\n    a: One\n        more: than this.\n    b, *c: Two.\nText.\n    d: No entry.\n\nRaises:\n    x.E: Why."
    )

    assert found == {"Args": ["a", "b", "c"], "Raises": ["E"]}


def test_sentences_are_split_at_stops_and_entries():
    text = "One two.\n\nThree four;\nfive.\n\nArgs:\n    a: Six\n        seven.\n    b: Eight.\n- nine"

    assert sentences(text) == ["One two.", "Three four;", "five.", "Args:", "a:", "Six seven.", "b:", "Eight.", "nine"]


def test_an_error_that_no_module_has_is_found():
    def call() -> None:
        """Fail.

        Raises:
            NotAllowed: It may.
            NotKnown: It cannot.
        """

    assert unknown_errors(Call("call", call, None)) == ["NotKnown"]


def test_errors_of_the_package_are_found_in_a_body_and_others_are_not():
    assert raised_by(poor) == {"NotAllowed"}
    assert raised_by(test_fields_of_the_settings_are_documented) == set()
