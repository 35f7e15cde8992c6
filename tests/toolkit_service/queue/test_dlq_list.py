"""Listing the dead letter queue: every filter in both forms, dates, counts, cursors, and what is refused."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

Service = Any

NOW = 1_795_000_000_000
URLS = ("https://shop.example/a", "https://shop.example/b", "https://pay.example/c?x=1")
STATES = (
    "CALLBACK_INPROGRESS",
    "CALLBACK_SUCCESS",
    "CALLBACK_FAIL",
    "CALLBACK_CANCELED",
    None,
)
FILTERS = {
    "workflowUrl": URLS,
    "label": ("red", "green", "two words", "größe"),
    "failureFunctionState": STATES[:4],
    "callerIp": ("10.0.0.1", "10.0.0.2", "2001:db8::1"),
    "flowControlKey": ("k1", "k2", "k3"),
}
FIELDS = {
    "workflowUrl": "workflowUrl",
    "callerIp": "callerIP",
    "flowControlKey": "flowControlKey",
}


def entries(count: int, seed: int = 1) -> list[dict[str, Any]]:
    """Entries of every combination of values, some without them, with undocumented fields."""
    chance = random.Random(seed)
    made = []
    for number in range(count):
        entry = {
            "dlqId": f"dlq-{number}",
            "workflowRunId": f"wfr_{number % 50}",
            "workflowUrl": chance.choice(URLS),
            "workflowCreatedAt": NOW - number * 1000,
            "createdAt": NOW - number * 1000 + chance.randrange(500),
            "callerIP": chance.choice(FILTERS["callerIp"]),
            "labels": chance.sample(FILTERS["label"], chance.randrange(3)),
            "responseBody": "lone \ud800 surrogate",
            "unheardOf": {"deep": [1, 2**70]},
        }
        if chance.random() < 0.5:
            entry["flowControlKey"] = chance.choice(FILTERS["flowControlKey"])
        if state := chance.choice(STATES):
            entry["failureFunctionState"] = state
        if number % 7 == 0:
            del entry["labels"]
            entry["label"] = "red"
        made.append(entry)
    return made


ENTRIES = entries(300)


@pytest.fixture(scope="module")
def filled(shared: Service) -> Service:
    """A queue with the entries above; its clock is past them."""
    shared.store.insert_failures(ENTRIES)
    shared.store.insert_failures(
        [{"dlqId": "plain", "createdAt": NOW, "url": URLS[0]}], workflow=False
    )
    return shared


def listed(service: Service, **parameters: Any) -> list[dict[str, Any]]:
    """All entries, page by page."""
    actual: list[dict[str, Any]] = []
    cursor = ""
    while True:
        response = service.http.get(
            "/v2/workflows/dlq", params={**parameters, "cursor": cursor}
        )
        assert response.status_code == 200, response.text
        page = response.json()
        actual += page["messages"]
        cursor = page["cursor"]
        if not cursor:
            return actual


def values(entry: dict[str, Any], name: str) -> set[Any]:
    """The values of an entry that a filter tests, computed independently of the service."""
    if name == "label":
        return {*entry.get("labels", []), entry.get("label")}
    return {entry.get(FIELDS.get(name, name))}


def test_filled_in_entries_are_returned_unchanged(filled: Service) -> None:
    """Every field is returned, unknown ones, integers of any size and lone surrogates too; none is added."""
    actual = {entry["dlqId"]: entry for entry in listed(filled)}
    assert actual == {entry["dlqId"]: entry for entry in ENTRIES}


@pytest.mark.parametrize("name", list(FILTERS))
@pytest.mark.parametrize("form", ["repeated", "comma"])
def test_each_filter_takes_one_or_several_values(
    filled: Service, name: str, form: str
) -> None:
    """Values of one filter are alternatives, in both forms of passing them."""
    for size in (1, 2, 3):
        for wanted in itertools.combinations(FILTERS[name], size):
            given_as = list(wanted) if form == "repeated" else ",".join(wanted)
            ids = [entry["dlqId"] for entry in listed(filled, **{name: given_as})]
            expected = {
                entry["dlqId"] for entry in ENTRIES if values(entry, name) & set(wanted)
            }
            assert set(ids) == expected
            assert len(ids) == len(expected) > 0


@settings(max_examples=60, deadline=None)
@given(
    chosen=st.fixed_dictionaries(
        {},
        optional={
            name: st.lists(st.sampled_from(all_), min_size=1, max_size=3)
            for name, all_ in FILTERS.items()
        },
    ),
    span=st.none() | st.tuples(st.integers(0, 300_000), st.integers(0, 300_000)),
)
def test_filters_combine(
    filled: Service, chosen: dict[str, list[str]], span: tuple[int, int] | None
) -> None:
    """Different filters all have to match, dates included: compared with a plain evaluation here."""
    parameters: dict[str, Any] = dict(chosen)
    low, high = 0, 2**62
    if span:
        low, high = NOW - max(span), NOW - min(span)
        parameters |= {"fromDate": low, "toDate": high}
    expected = [
        entry["dlqId"]
        for entry in ENTRIES
        if low <= entry["createdAt"] <= high
        and all(values(entry, name) & set(wanted) for name, wanted in chosen.items())
    ]
    assert sorted(entry["dlqId"] for entry in listed(filled, **parameters)) == sorted(
        expected
    )


def test_both_names_of_the_state_filter_work(filled: Service) -> None:
    """`failureCallbackState` is the same filter as `failureFunctionState`."""
    failed = listed(filled, failureFunctionState="CALLBACK_FAIL")
    assert failed == listed(filled, failureCallbackState="CALLBACK_FAIL")
    assert failed


def test_run_id_and_creation_of_the_run_are_single_values(filled: Service) -> None:
    """Each finds exactly the entries that have it."""
    actual = listed(filled, workflowRunId="wfr_7")
    assert {entry["workflowRunId"] for entry in actual} == {"wfr_7"}
    assert len(actual) == 6
    created = ENTRIES[5]["workflowCreatedAt"]
    assert [entry["dlqId"] for entry in listed(filled, workflowCreatedAt=created)] == [
        "dlq-5"
    ]


def test_dates_are_inclusive_at_both_ends(filled: Service) -> None:
    """From and to the very millisecond of an entry it is listed; a millisecond off, not."""
    created = ENTRIES[9]["createdAt"]
    assert len(listed(filled, fromDate=created, toDate=created)) == 1
    assert ENTRIES[9] not in listed(filled, fromDate=created + 1)
    assert ENTRIES[9] not in listed(filled, toDate=created - 1)


def test_page_size_is_as_requested_and_at_most_100(filled: Service) -> None:
    """100 by default; the last page has an empty cursor, also when it is exactly full."""
    first = filled.http.get("/v2/workflows/dlq").json()
    assert len(first["messages"]) == 100
    assert first["cursor"]
    page = filled.http.get(
        "/v2/workflows/dlq", params={"count": 6, "workflowRunId": "wfr_7"}
    ).json()
    assert (len(page["messages"]), page["cursor"]) == (6, "")
    page = filled.http.get(
        "/v2/workflows/dlq", params={"count": 5, "workflowRunId": "wfr_7"}
    ).json()
    assert len(page["messages"]) == 5
    assert page["cursor"]


def test_the_plain_queue_is_another(filled: Service) -> None:
    """Plain messages and workflow messages do not show up in each other's lists."""
    assert [entry["dlqId"] for entry in filled.dlq()] == ["plain"]
    assert filled.http.get("/v2/dlq/plain").status_code == 200
    assert filled.http.get("/v2/workflows/dlq/plain").status_code == 404


@pytest.mark.parametrize(
    "query",
    [
        "count=0", "count=101", "count=abc", "count=1.5", "count=-1", "count=5&count=5", "count=%D9%A1",
        "fromDate=x", "toDate=9223372036854775808", "fromDate=-1", "fromDate=2&toDate=1",
        "fromDate=1795000000", "toDate=1795000000", "workflowCreatedAt=soon",
        "workflowRunId=a&workflowRunId=b", "cursor=a&cursor=b",
        "cursor=unknown", "cursor=AAAA", "cursor=%00", "cursor=" + "A" * 5000,
    ],
)  # fmt: skip
def test_what_cannot_be_meant_is_refused(filled: Service, query: str) -> None:
    """400 and a reason that names the parameter; seconds for milliseconds are recognised."""
    response = filled.http.get(f"/v2/workflows/dlq?{query}")
    assert response.status_code == 400
    assert response.json()["error"].startswith(query.partition("=")[0])
    assert ("looks like seconds" in response.text) == ("=1795000000" in query)


def test_a_cursor_of_another_list_or_service_is_refused(
    filled: Service, start: Callable[..., Service]
) -> None:
    """Cursors are signed by this service for this list."""
    cursor = filled.http.get("/v2/workflows/dlq").json()["cursor"]
    assert filled.http.get("/v2/dlq", params={"cursor": cursor}).status_code == 400
    changed = cursor[:-1] + ("A" if cursor[-1] != "A" else "B")
    assert (
        filled.http.get("/v2/workflows/dlq", params={"cursor": changed}).status_code
        == 400
    )
    assert (
        start().http.get("/v2/workflows/dlq", params={"cursor": cursor}).status_code
        == 400
    )


@pytest.mark.parametrize("seed", range(5))
def test_cursors_hold_while_entries_come_and_go(
    start: Callable[..., Service], seed: int
) -> None:
    """Entries present throughout are listed once, whatever is added and removed between the pages."""
    service, chance = start(), random.Random(seed)
    given_at_first = entries(120, seed)
    service.store.insert_failures(given_at_first)
    removed, added, actual, cursor = set[str](), 0, list[str](), ""
    while True:
        page = service.http.get(
            "/v2/workflows/dlq", params={"count": 13, "cursor": cursor}
        ).json()
        actual += [entry["dlqId"] for entry in page["messages"]]
        cursor = page["cursor"]
        if not cursor:
            break
        for _ in range(4):
            gone = f"dlq-{chance.randrange(120)}"
            removed.add(gone)
            service.http.delete(f"/v2/workflows/dlq/{gone}")
            added += 1
            new = {
                "dlqId": f"new-{added}",
                "createdAt": NOW - chance.randrange(120_000),
            }
            service.store.insert_failures([new])
    assert len(actual) == len(set(actual))
    assert {entry["dlqId"] for entry in given_at_first} - removed <= set(actual)


def test_entries_expire(start: Callable[..., Service]) -> None:
    """After the retention they are in no list, cannot be read, and leave the database."""
    service = start(retention_ms=7 * 86_400_000)
    service.store.insert_failures(
        [{"dlqId": "old", "createdAt": service.clock.now_ms()}]
    )
    assert service.http.get("/v2/workflows/dlq/old").status_code == 200
    service.clock.advance(seconds=7 * 86_400 + 1)
    assert listed(service) == []
    assert service.http.get("/v2/workflows/dlq/old").status_code == 404
    service.clock.advance(seconds=120)

    def kept() -> int:
        return service.store.database.submit(
            lambda connection: connection.execute(
                "SELECT count(*) FROM dlq"
            ).fetchone()[0]
        ).result()

    service.wait(lambda: kept() == 0)


def test_repeated_entries_are_stored_once(start: Callable[..., Service]) -> None:
    """Filling in is repeatable: existing entries are not changed."""
    store = start().store
    assert store.insert_failures(ENTRIES[:10]) == 10
    assert store.insert_failures(ENTRIES[:12]) == 2
