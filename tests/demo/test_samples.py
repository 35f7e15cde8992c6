"""The sample data: deterministic, small, and holding every story it promises."""

from __future__ import annotations

import base64
import json
from collections import Counter
from email.utils import parsedate_to_datetime
from ipaddress import ip_address
from pathlib import Path

import pytest

from toolkit.errors import InputError
from toolkit_service.demo.causes import CAUSES, cause
from toolkit_service.demo.documents import NAMESPACES, documents
from toolkit_service.demo.history import wire_entries, wire_runs
from toolkit_service.demo.samples import read_occurrences, sample_files
from toolkit_service.demo.stories import (
    DAYS,
    HOUR,
    ODDITIES,
    RETRY_DELAYS,
    STATES,
    Occurrence,
    occurrences,
)

NOW = 1_763_650_000_123
DATA = Path(__file__).parents[2] / "data"


@pytest.fixture(scope="module")
def found() -> list[Occurrence]:
    return occurrences()


@pytest.fixture(scope="module")
def entries(found: list[Occurrence]) -> list[dict]:
    return wire_entries(NOW, found)


def test_generating_the_samples_again_yields_the_same_bytes() -> None:
    """The files in data/ are exactly the generator's output, and smaller than 2 MB."""
    files = sample_files()
    for name, content in files.items():
        assert (DATA / name).read_bytes() == content
    assert (
        sum(path.stat().st_size for path in DATA.rglob("*") if path.is_file())
        < 2_000_000
    )


def test_another_seed_tells_another_history(found: list[Occurrence]) -> None:
    """The output depends on the seed alone."""
    assert occurrences() == found
    assert occurrences(seed=1) != found


def test_the_file_holds_the_whole_history(
    found: list[Occurrence], entries: list[dict]
) -> None:
    """Entries made from the file are the entries made from the generator."""
    again = read_occurrences(DATA / "failures.jsonl")
    assert again == found
    assert wire_entries(NOW, again) == entries


def test_a_row_with_an_unknown_name_is_refused() -> None:
    """A malformed sample line is an error with the allowed names."""
    with pytest.raises(InputError, match="expected names out of"):
        Occurrence.from_row({"colour": 3})


def test_an_unknown_cause_is_refused() -> None:
    """An unknown cause is an error with the known names."""
    with pytest.raises(InputError, match="html_gateway"):
        cause("html_gatewy")


def test_ids_are_unique_and_times_lie_in_the_fortnight(
    entries: list[dict], found: list[Occurrence]
) -> None:
    """5,000 entries with ids of their own, all failed within the last 14 days and before now."""
    assert len(entries) == 5000
    assert len({entry["dlqId"] for entry in entries}) == 5000
    assert len({entry["workflowRunId"] for entry in entries}) == 5000
    assert all(0 < item.at <= DAYS * 24 * HOUR for item in found)
    assert any(item.at > (DAYS - 1) * 24 * HOUR for item in found)
    for entry, item in zip(entries, found, strict=True):
        assert NOW - entry["createdAt"] == item.at + sum(RETRY_DELAYS[: item.retries])


def test_each_story_is_present(found: list[Occurrence]) -> None:
    """A burst, a leak, a neighbour, a broken workflow, something new, and the background, as described."""
    stories = Counter(item.story for item in found)
    assert set(stories) == {"background", "burst", "leak", "neighbour", "broken", "new"}
    assert all(count >= 100 for count in stories.values())
    of = {name: [item for item in found if item.story == name] for name in stories}
    burst = [item.at for item in of["burst"]]
    assert max(burst) - min(burst) < 4 * HOUR
    assert {item.workflow for item in of["burst"]} == {"orders/fulfil"}
    days = Counter(item.at // (24 * HOUR) for item in of["leak"])
    assert days[0] > days[4] > days[8] > 0  # it grows towards now
    assert len({(item.ip, item.flow) for item in of["neighbour"]}) == 1
    assert len({item.workflow for item in of["neighbour"]}) > 1
    assert all(
        day in {item.at // (24 * HOUR) for item in of["broken"]} for day in range(DAYS)
    )
    assert all(item.at < 3.1 * HOUR for item in of["new"])
    assert not [
        item
        for item in found
        if item.workflow == "payments/capture" and item.story != "new"
    ]


def test_every_cause_and_oddity_happens(found: list[Occurrence]) -> None:
    """Nothing that the generator can do stays unused."""
    assert {item.cause for item in found} == {item.name for item in CAUSES}
    irregular = Counter(oddity for item in found for oddity in item.oddities)
    assert set(irregular) == set(ODDITIES)
    assert all(count > 50 for count in irregular.values())
    assert {item.state for item in found} == {*STATES, None}


@pytest.mark.parametrize(
    ("sign", "least"),
    [
        ("Traceback (most recent call last)", 100),
        ("at async WorkflowContext.run", 500),
        ("java.lang.OutOfMemoryError", 300),
        ("Caused by: ", 30),
        ("goroutine ", 100),
        ("<!doctype html>", 500),
        ('"error":', 500),
        ("timed out", 100),
        ("connection refused", 30),
        ("<script>", 3),
        ("9007199254740993", 5),
    ],
)
def test_responses_of_each_kind_are_present(
    entries: list[dict], sign: str, least: int
) -> None:
    """Stack traces of four languages, HTML, JSON, timeouts and hostile text are counted."""
    assert sum(sign in entry["responseBody"] for entry in entries) >= least


def test_bodies_stand_in_the_field_they_belong_in(entries: list[dict]) -> None:
    """UTF-8 is text with the other field empty; everything else is base64 that is really not UTF-8."""
    binary = Counter()
    for entry in entries:
        for name in ("body", "responseBody"):
            text, encoded = entry[name], entry[f"{name}Base64"]
            assert not (text and encoded)
            if encoded:
                binary[name] += 1
                with pytest.raises(UnicodeDecodeError):
                    base64.b64decode(encoded, validate=True).decode()
    assert binary["body"] > 50
    assert binary["responseBody"] > 50


def test_dates_labels_and_fields_vary(entries: list[dict]) -> None:
    """Date headers are the time of failure, or missing; so are labels, states and other fields."""
    dated = [entry for entry in entries if "Date" in entry.get("responseHeader", {})]
    assert 4000 < len(dated) < 5000
    gaps = {
        round(
            (
                parsedate_to_datetime(entry["responseHeader"]["Date"][0]).timestamp()
                * 1000
                - entry["createdAt"]
            )
            / 60_000
        )
        for entry in dated
    }
    assert {0, 3, 33} <= gaps  # minutes: no retry, two, three
    assert max(gaps) > 30 * 60  # five retries
    assert any("label" in entry and "labels" not in entry for entry in entries)
    assert any("label" not in entry and "labels" in entry for entry in entries)
    for name in (
        "callerIP",
        "maxRetries",
        "responseStatus",
        "failureFunctionState",
        "flowControlKey",
    ):
        present = sum(name in entry for entry in entries)
        assert 0 < present < 5000, name
    assert any(entry.get("sequence", 0) > 2**64 for entry in entries)
    assert any(entry.get("failureCallback") == "" for entry in entries)


def test_secrets_are_made_up_and_there_to_be_masked(entries: list[dict]) -> None:
    """Authorization headers and query strings hold sample values; addresses are reserved ones."""
    secret = [entry for entry in entries if "Authorization" in entry.get("header", {})]
    assert len(secret) > 50
    assert all(
        entry["header"]["Authorization"][0].startswith("Bearer sample-")
        for entry in secret
    )
    assert any("?token=sample-" in entry["url"] for entry in entries)
    for entry in entries:
        address = ip_address(entry.get("callerIP", "192.0.2.1"))
        assert address.is_private or address.is_reserved  # the documentation blocks
        assert entry["workflowUrl"].startswith("https://shop.example.com/")


def test_entries_are_json_as_a_service_sends_it(entries: list[dict]) -> None:
    """Every entry survives JSON unchanged, with headers as lists of text."""
    assert json.loads(json.dumps(entries)) == entries
    for entry in entries:
        for values in entry.get("header", {}).values():
            assert all(isinstance(value, str) for value in values)


def test_the_run_log_matches_the_failures(
    entries: list[dict], found: list[Occurrence]
) -> None:
    """Every failed entry has its run, and there are successes beside them."""
    runs = {run["workflowRunId"]: run for run in wire_runs(NOW, found)}
    assert len(runs) == 9000
    for entry in entries:
        run = runs[entry["workflowRunId"]]
        assert (run["workflowState"], run["dlqId"]) == ("RUN_FAILED", entry["dlqId"])
        assert run["workflowRunCreatedAt"] < run["workflowRunCompletedAt"] <= NOW
        assert run["workflowRunCreatedAt"] == entry.get(
            "workflowCreatedAt", run["workflowRunCreatedAt"]
        )


@pytest.mark.slow
def test_documents_vary_by_namespace_and_topic() -> None:
    """2,000 texts, no two alike, with metadata of every JSON type, nested and not."""
    found = documents()
    assert Counter(document.namespace for document in found) == NAMESPACES
    assert len({document.data for document in found}) == len(found) == 2000
    assert len({(document.namespace, document.id) for document in found}) == 2000
    topics = Counter(document.metadata["topic"] for document in found)
    assert len(topics) == 12
    assert min(topics.values()) > 100
    kinds = {type(value) for document in found for value in document.metadata.values()}
    assert kinds == {str, int, float, bool, list, dict, type(None)}
    assert not [document for document in found if "{" in document.data]
    assert sum(document.metadata["city"] == "Izmir" for document in found) > 100
