"""Bodies are masked and read in groups, with the results of one by one."""

from __future__ import annotations

import pytest

from toolkit.secrets.redaction import Redactor
from toolkit.signatures.signing import document_of
from toolkit.tables import signed_rows
from toolkit.tables.signed_rows import BodyReader

BODIES = [
    None,
    "",
    "  ",
    "no order 17",
    "no order 17",
    '{"message": "the token k3J9x0Q2v7B1m5 has expired", "request": "a1"}',
    '{"message": "the token k3J9x0Q2v7B1m5 has expired", "request": "b2"}',
    '{"message": "half of a pair: \\ud800"}',
    "<html><title>502 Bad Gateway</title></html>",
    'Traceback (most recent call last):\n  File "/app/a.py", line 1, in run\nKeyError: 7',
    f"refused {'x' * 300_000} password=hunter2",
]


def reader() -> BodyReader:
    """Return a reader whose masks are the same in each test."""
    return BodyReader(Redactor(key=b"example"))


def one_by_one() -> list[tuple[str | None, object]]:
    """Return each masked body and the document, by a reader of its own."""
    results: list[tuple[str | None, object]] = []
    for body in BODIES:
        own = reader()
        (masked,) = own.masked([body])
        results.append((masked, own.documents([masked])[masked]))
    return results


def all_together(shared: BodyReader) -> list[tuple[str | None, object]]:
    """Return each masked body and the document, by one reader."""
    masked = shared.masked(BODIES)
    documents = shared.documents(masked)
    return [(text, documents[text]) for text in masked]


@pytest.mark.parametrize("characters", [1, 100, 8_000_000])
def test_bodies_are_read_in_groups_as_one_by_one(monkeypatch, characters):
    """How many bodies are masked and read at once changes no result."""
    monkeypatch.setattr(signed_rows, "_AT_ONCE", characters)
    assert all_together(reader()) == one_by_one()


@pytest.mark.parametrize("ahead", [BODIES, BODIES[:5], BODIES[5:], []])
def test_bodies_that_are_read_ahead_have_the_same_documents(ahead):
    """Some or all bodies can be read ahead, and another reading forgets them."""
    shared = reader()
    shared.read_ahead(ahead)
    assert all_together(shared) == one_by_one()
    shared.read_ahead(["disk full"])
    assert all_together(shared) == one_by_one()


def test_a_masked_body_has_the_document_without_the_secret():
    """A document has no part of a secret, and bodies that differ by an id share the document."""
    shared = reader()
    masked = shared.masked(BODIES)
    first, second = shared.documents(masked[5:7]).keys() - {None}
    documents = shared.documents(masked)
    assert "k3J9x0Q2v7B1m5" not in repr((first, second, documents[first]))
    assert documents[first] is documents[second]
    assert documents[None] == document_of(None)
