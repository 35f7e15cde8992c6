"""Runbooks and the memory of failures in a vector index."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import numpy as np
import pandas as pd
import pytest

import toolkit as tk
from toolkit.fixes.runbooks import TUNING, _query_text
from toolkit_service.demo.local_service import LocalService

SPECS = {
    "dense": "dense:dense:256:COSINE:hashing",
    "sparse": "sparse:sparse:bm25",
    "hybrid": "hybrid:hybrid:256:COSINE:hashing+bm25",
    "plain": "plain:dense:8:COSINE",
}
RUNBOOKS = (
    (
        "disk",
        "The disk is full: no space left on the device of the exports. Remove old files.",
    ),
    ("card", "The bank declined the card: ask the customer for another card."),
    ("cert", "The certificate of the proxy has expired: renew the certificate."),
)
SECRET = "ghp_" + "a1B2c3D4e5F6a7B8c9D0e1F2a3B4c5D6e7F8"


def failures(*bodies: str, day: str = "2026-03-01") -> pd.DataFrame:
    """Return a failure per body."""
    times = pd.date_range(day, periods=len(bodies), freq="h", tz="UTC")
    return pd.DataFrame(
        {
            "dlq_id": [f"{day}-{number}" for number in range(len(bodies))],
            "workflow_url": "https://shop.example/checkout",
            "workflow_run_id": "wfr_1",
            "response_status": 500,
            "failed_at": times,
            "created_at": times,
            "response_body": list(bodies),
            "response_body_base64": None,
        }
    )


@pytest.fixture(scope="module")
def services() -> Iterator[dict[str, tk.Service]]:
    """Return a service per kind of index, with three runbooks in those that embed text."""
    with LocalService(indexes=list(SPECS.values())) as running:
        made = {
            name: tk.connect(
                queue_url=running.url,
                queue_token=running.token,
                vector_url=f"{running.url}/vector/{name}",
                vector_token=running.token,
                environ={},
            )
            for name in SPECS
        }
        rows = [
            {
                "id": name,
                "data": text,
                "metadata": {
                    "title": f"Runbook {name}",
                    "url": f"https://w.example/{name}",
                },
            }
            for name, text in RUNBOOKS
        ]
        for name in ("dense", "sparse", "hybrid"):
            tk.upsert_vectors(made[name], rows, namespace="runbooks")
        yield made


ERRORS = failures(
    "no space left on device", "card declined by the bank", "unicorn 7 ate the moon"
)


@pytest.mark.parametrize("kind", ["dense", "sparse", "hybrid"])
def test_the_nearest_runbook_is_found_in_each_kind_of_index(services, kind):
    """Groups with a runbook have it at rank 1, with title and link; an unrelated error has none."""
    found = tk.suggest_runbooks(ERRORS, services[kind])
    by_title = found.frame.drop_duplicates("group").set_index("title")
    assert by_title.loc["no space left on device", "runbook"] == "disk"
    assert by_title.loc["card declined by the bank", "runbook"] == "card"
    matching = {about["runbook"]: about for about in found.best.values()}
    assert set(matching) == {"disk", "card"}
    assert matching["disk"]["link"] == "https://w.example/disk"
    assert matching["disk"]["title"] == "Runbook disk"
    assert "3 groups: 2 with a runbook, 1 without" in repr(found)


def letters(texts: list[str]) -> np.ndarray:
    """Embed texts by the number of some letters."""
    counts = [[text.count(letter) + 0.01 for letter in "aeioudsk"] for text in texts]
    return np.array(counts)


def test_texts_can_be_embedded_by_a_function(services):
    """An index without a model gets vectors, also as mappings, and texts are sent nowhere else."""
    service = services["plain"]
    vectors = letters([text for _, text in RUNBOOKS])
    rows = [
        {"id": name, "vector": vector, "metadata": {"link": "javascript:alert(1)"}}
        for (name, _), vector in zip(RUNBOOKS, vectors, strict=True)
    ]
    tk.upsert_vectors(service, rows, namespace="by-letters")
    options = {"namespace": "by-letters", "k": 2, "cut": -1.0}
    found = tk.suggest_runbooks(ERRORS, service, embed=letters, **options)
    assert found.cut == -1.0
    assert found.frame.groupby("group")["rank"].max().tolist() == [2, 2, 2]
    assert found.frame["link"].isna().all()
    again = tk.suggest_runbooks(
        ERRORS,
        service,
        embed=lambda texts: [{"vector": vector} for vector in letters(texts)],
        **options,
    )
    pd.testing.assert_frame_equal(found.frame, again.frame)


def test_secrets_are_masked_before_texts_are_embedded_or_stored(services):
    """A token in a body is in no query, in no stored row and in no result."""
    service, texts = services["plain"], []

    def embed(given: list[str]) -> np.ndarray:
        texts.extend(given)
        return letters(given)

    frame = failures(
        f"no access with {SECRET}", f'{{"error": "key {SECRET} is revoked"}}'
    )
    frame["workflow_url"] = f"https://shop.example/checkout?token={SECRET}"
    tk.index_failures(frame, service, namespace="masked", embed=embed)
    found = tk.suggest_runbooks(frame, service, namespace="masked", embed=embed, cut=-9)
    similar = tk.find_similar_failures(
        failures(f"no access with {SECRET}", day="2026-04-01"),
        service,
        namespace="masked",
        embed=embed,
    )
    stored = tk.load_vectors(service, namespace="masked")
    shown = [*texts, found, found.frame.to_csv(), similar, similar.frame.to_csv()]
    shown += [stored["data"].to_list(), stored["metadata"].to_list()]
    assert len(texts) > 2
    assert SECRET not in repr(shown)
    assert SECRET[8:30] not in repr(shown)


def test_the_memory_knows_earlier_groups_and_keeps_the_first_time(services):
    """A group that was stored months ago is seen before; a new one is not, nor is a group before itself."""
    service = services["dense"]
    old = failures(
        "no order 17 in stock", "quota of the bucket exceeded", day="2026-01-01"
    )
    assert tk.index_failures(old, service) == 2
    new = failures(
        "no order 99 in stock", "penguins left the zoo at noon", day="2026-03-01"
    )
    found = tk.find_similar_failures(new, service, k=1).frame.set_index("title")
    assert bool(found.loc["no order <num> in stock", "seen"])
    assert found.loc["no order <num> in stock", "last_at"] == old["failed_at"][0]
    assert not found.loc["penguins left the zoo at noon", "seen"]
    # stored again: the first time stays, the last one moves
    tk.index_failures(new, service)
    again = tk.find_similar_failures(new, service, k=1).frame.set_index("title")
    assert bool(again.loc["no order <num> in stock", "seen"])
    assert again.loc["no order <num> in stock", "last_at"] == new["failed_at"][0]
    assert not again.loc["penguins left the zoo at noon", "seen"]
    row = tk.fetch_vectors(
        service, again.loc["no order <num> in stock", "similar"], namespace="failures"
    )
    metadata = json.loads(row["metadata"][0])
    assert metadata["class"]
    assert metadata["first_at"] == old["failed_at"][0].isoformat()
    assert metadata["workflows"] == ["https://shop.example/checkout"]


def test_the_row_of_a_joined_group_replaces_the_rows_of_its_earlier_ids(services):
    """A sync joins two groups to one: the memory has one row with the earliest of the first times."""
    service = services["dense"]
    options = {"namespace": "joined", "progress": False}
    old = failures("disk full", "no route", day="2026-01-01")
    tk.index_failures(old, service, **options)
    first, second = tk.group_failures(old).frame["group"]
    new = failures("teapot", day="2026-03-01")
    (present,) = tk.group_failures(new).frame["group"]
    new.attrs["renamed"] = {first: present, second: present}
    for _ in range(2):
        assert tk.index_failures(new, service, **options) == 1
        stored = tk.load_vectors(service, namespace="joined")
        assert stored["id"].to_list() == [present]
        metadata = json.loads(stored["metadata"][0])
        assert metadata["first_at"] == old["failed_at"].min().isoformat()
        assert metadata["last_at"] == new["failed_at"].max().isoformat()


def test_no_failures_and_foreign_rows_are_no_error(services):
    """An empty frame has no rows; rows of another origin in the namespace are ignored."""
    service = services["dense"]
    empty = ERRORS[:0]
    missing = failures("", "x").assign(response_body=None)
    assert tk.index_failures(missing, service, namespace="missing") == 1
    assert tk.suggest_runbooks(empty, service).frame.empty
    assert tk.index_failures(empty, service) == 0
    foreign = {
        "id": "x",
        "data": "no space left on device",
        "metadata": {"count": "many"},
    }
    tk.upsert_vectors(service, foreign, namespace="foreign")
    found = tk.find_similar_failures(ERRORS, service, namespace="foreign")
    assert not found.frame["seen"].any()


def test_an_unknown_namespace_is_a_warning(services):
    """Without the namespace, each group has a row without a runbook, and a warning names the nearest."""
    with pytest.warns(tk.errors.UnexpectedResultWarning, match="runbooks"):
        found = tk.suggest_runbooks(ERRORS, services["dense"], namespace="runbook")
    assert not found.frame["matches"].any()
    assert found.frame["runbook"].isna().all()


@pytest.mark.parametrize(
    "options",
    [
        {"k": 0},
        {"cut": "high"},
        {"embed": "model"},
        {"embed": lambda texts: [[0.5] * 8]},
        {"embed": lambda texts: [{"vectors": [0.5]}] * len(texts)},
    ],
    ids=["k", "cut", "no function", "too few", "name"],
)
def test_wrong_arguments_are_input_errors(services, options):
    """Arguments and results of `embed` are checked before anything is sent."""
    with pytest.raises(tk.errors.InputError):
        tk.suggest_runbooks(ERRORS, services["plain"], **options)


def test_a_panel_finds_the_runbook_of_a_group(services):
    """The button shows the title as a link and keeps the result; without a choice it tells what it needs."""
    panel = tk.FailurePanel(ERRORS, service=services["dense"])
    panel.press("Find a runbook")
    assert "choose a group" in panel.message
    panel.value = tk.FailureView(selected=list(ERRORS["dlq_id"]))
    panel.press("Find a runbook")
    deadline = time.monotonic() + 60
    while panel.runbooks is None:
        assert time.monotonic() < deadline, panel.message
        time.sleep(0.02)
    assert panel.runbooks.frame.equals(
        tk.suggest_runbooks(ERRORS, services["dense"]).frame
    )
    page = panel.status
    assert '<a href="https:' in page
    assert "Runbook disk</a>" in page
    alone = tk.FailurePanel(ERRORS)
    alone.press("Find a runbook")
    assert "service=service" in alone.message


def test_secrets_are_masked_before_long_templates_are_cut(services):
    """A secret at the end of the first 1,000 characters is masked as a whole."""
    body = ("disk " * 199)[:990] + SECRET
    group = tk.group_failures(failures(body)).frame.iloc[0]
    sent = _query_text(group, services["dense"].redactor)
    assert len(sent) <= TUNING.longest
    assert SECRET[:8] not in sent
