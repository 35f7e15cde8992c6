"""Entries recognised by their bytes: what the digests depend on, and which pages the decoder has to read."""

from __future__ import annotations

import json
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolkit.loading.identities import EntryRecognizer
from toolkit.secrets.redaction import Redactor, Secret
from toolkit.tables.failures import FailureDecoder

_REDACTOR = Redactor(key=b"example")
_READER = EntryRecognizer(_REDACTOR)
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.text(max_size=3), inner, max_size=2)
    ),
    max_leaves=4,
)
_ENTRIES = st.builds(
    lambda dlq_id, others: {**others, "dlqId": dlq_id},
    st.text(string.printable, min_size=1, max_size=3),
    st.dictionaries(
        st.sampled_from(["label", "body", "cause", "header"]), _VALUES, max_size=3
    ),
)


def digests(rows: bytes, reader: EntryRecognizer = _READER) -> list[bytes]:
    """Of a page that can be read."""
    result = reader.read(rows)
    assert result is not None
    return result.digests


@pytest.mark.slow
@given(st.lists(_ENTRIES, max_size=4), st.sampled_from([None, 1]))
def test_entries_keep_the_order_of_the_decoder(
    entries: list, indent: int | None
) -> None:
    """As many, with the same ids; what is cut out decodes to the same rows."""
    rows = json.dumps(entries, indent=indent).encode()
    result = _READER.read(rows)
    assert result is not None
    table = FailureDecoder(_REDACTOR).decode(rows)
    assert result.ids == table["dlq_id"].to_pylist()
    assert [json.loads(bytes(raw)) for raw in result.raws] == entries
    cut = b"[" + b",".join(result.raws) + b"]"
    assert FailureDecoder(_REDACTOR).decode(cut).equals(table)
    assert digests(cut) == result.digests


@given(_ENTRIES, _ENTRIES)
def test_digests_are_equal_for_equal_bytes_alone(one: dict, other: dict) -> None:
    """Wherever an entry is, and among whichever others."""
    first, second = json.dumps(one).encode(), json.dumps(other).encode()
    (alone,) = digests(b"[" + first + b"]")
    beside = digests(b"[" + second + b" , " + first + b"]")
    assert beside[1] == alone
    assert (beside[0] == alone) is (first == second)


def test_digests_are_of_one_user_and_one_way_of_masking(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another masking key, other tokens of ours, another version: the same bytes may become another row."""
    rows = b'[{"dlqId": "a"}]'
    made = [
        Redactor(key=b"example"),
        Redactor(key=b"another"),
        Redactor(key=b"example", own=[Secret("a-token-of-ours")]),
        Redactor(
            key=b"example", own=[Secret("a-token-of-ours"), Secret("and-another-one")]
        ),
    ]
    result = [digests(rows, EntryRecognizer(redactor)) for redactor in made]
    monkeypatch.setattr("toolkit.loading.identities.__version__", "another")
    result.append(digests(rows, EntryRecognizer(made[0])))
    assert len({tuple(item) for item in result}) == len(result)


@pytest.mark.parametrize(
    "rows",
    [
        b'[{"dlqId": "a"}',
        b'[{"dlqId": ""}]',
        b'[{"label": "x"}]',
        b'[{"dlqId": 7}]',
        b'[{"dlqId": "\\ud800"}]',
        b'[{"dlqId": "a"}, 7]',
        b'{"cursor": ""}',
        b"<html>",
        b"[" * 100_000,
    ],
)
def test_a_page_that_is_not_as_specified_is_left_to_the_decoder(rows: bytes) -> None:
    """Which says what is wrong, or reads it leniently."""
    assert _READER.read(rows) is None
