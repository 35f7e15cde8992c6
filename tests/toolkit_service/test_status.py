"""The status page: readable, the same without scripts, and silent towards those without the token."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from html.parser import HTMLParser

import httpx
import pytest

from toolkit_service.demo.local_service import LocalService


class Page(HTMLParser):
    """The texts of a page, and its elements and attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[str] = []
        self.attributes: set[str] = set()
        self.cells: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note the element."""
        self.elements.append(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag in ("td", "th"):
            self.cells.append("")

    def handle_data(self, data: str) -> None:
        """Note the text of a cell."""
        if self.elements and self.elements[-1] in ("td", "th"):
            self.cells[-1] += data

    @property
    def rows(self) -> dict[str, str]:
        """The second cell of each row of two, by the first."""
        return dict(zip(self.cells, self.cells[1:], strict=False))


@pytest.fixture(scope="module")
def service() -> Iterator[LocalService]:
    """One index with three vectors, one failed message, and one pending."""
    with LocalService(indexes=["my-project:dense:2:COSINE"]) as running:
        bearer = {"Authorization": f"Bearer {running.token}"}
        with httpx.Client(base_url=running.url, headers=bearer) as http:
            rows = [{"id": str(number), "vector": [1, number]} for number in range(3)]
            http.post("/vector/my-project/upsert", json=rows)
            http.post(
                "/v2/publish/http://127.0.0.1:9/x", headers={"Service-Retries": "0"}
            )
            http.post(
                "/v2/publish/http://127.0.0.1:9/x", headers={"Service-Delay": "1h"}
            )
            deadline = time.monotonic() + 60
            while not http.get("/v2/dlq").json()["messages"]:
                assert time.monotonic() < deadline
                time.sleep(0.02)
        yield running


def test_it_counts_what_there_is(service: LocalService) -> None:
    """Messages, failures, runs, indexes and vectors."""
    rows = Page(httpx.get(service.url).text).rows
    assert rows["messages waiting or on their way"] == "1"
    assert rows["failed messages in the DLQ"] == "1"
    assert rows["failed workflow runs in the DLQ"] == "0"
    assert rows["vector indexes"] == "1"
    assert rows["vectors"] == "3"


def test_names_are_shown_to_those_with_the_token_alone(service: LocalService) -> None:
    """Without it no names are shown; with it, in header or query, the indexes by name."""
    assert "my-project" not in httpx.get(service.url).text
    for query, headers in (
        (f"?queue_token={service.token}", {}),
        ("", {"Authorization": f"Bearer {service.token}"}),
    ):
        response = httpx.get(f"{service.url}/{query}", headers=headers)
        assert "my-project" in Page(response.text).cells
        assert service.token not in response.text


def test_it_needs_no_script_and_loads_nothing(service: LocalService) -> None:
    """A strict policy, and no element or attribute that would want more."""
    response = httpx.get(service.url)
    assert response.headers["content-type"] == "text/html; charset=utf-8"
    assert response.headers["content-security-policy"].startswith(
        "default-src 'none'; style-src 'unsafe-inline'"
    )
    assert response.headers["x-content-type-options"] == "nosniff"
    assert response.headers["cache-control"] == "no-store"
    page = Page(response.text)
    assert not {"script", "img", "link", "iframe", "form", "object"} & set(
        page.elements
    )
    assert not {
        name
        for name in page.attributes
        if name.startswith("on") or name in ("src", "style")
    }
    assert "url(" not in response.text
    assert "@import" not in response.text


def test_it_can_be_read_by_everybody(service: LocalService) -> None:
    """A language, a title, captions, row headers, and colours for light and dark."""
    text = httpx.get(service.url).text
    assert '<html lang="en">' in text
    assert re.search(r"<title>.+</title>", text)
    assert text.count("<table>") == text.count("<caption>") == 1
    assert '<th scope="row">' in text
    assert "prefers-color-scheme: dark" in text
