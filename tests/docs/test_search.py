"""The search of the built site finds the page that answers a question of a user first."""

from __future__ import annotations

import re
import subprocess
import sys
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
import yaml

from tests.browser.conftest import launched_chromium

HERE = Path(__file__).parent
DOCS = HERE.parents[1] / "docs"
QUESTIONS = [
    one
    for one in yaml.safe_load((HERE / "questions.yaml").read_text("utf-8"))
    if "search" in one
]
WITHOUT_DOCSTRINGS = (
    *("-D", "autosummary_generate=0"),
    *("-D", "exclude_patterns=pictures,site,generated,notebooks,project,decisions"),
    *("-D", "html_show_search_summary=0"),
)
"""Options for a quick build: the site without the reference of each name, which takes two minutes.

With summaries, the page of results fetches and parses every page that it lists, for each of the questions.
"""
FIRST = 0.9
"""The share of questions whose page must be the first result."""


class _QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Print nothing per request."""


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The address of the site, built without notebooks and pictures, on loopback."""
    folder = tmp_path_factory.mktemp("site")
    subprocess.run(
        [sys.executable, "-m", "sphinx", "-q", *WITHOUT_DOCSTRINGS, DOCS, folder],
        check=True,
        capture_output=True,
    )
    server = ThreadingHTTPServer(
        ("127.0.0.1", 0), partial(_QuietHandler, directory=folder)
    )
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


SEARCH_AGAIN = """async words => {
    history.replaceState(null, "", "?" + new URLSearchParams({q: words}));
    document.querySelector("#search-results").replaceChildren();
    Search.init();
    // the summary counts pages when all results are there
    const summary = document.querySelector("#search-results .search-summary");
    while (!/found|did not match/.test(summary.textContent)) {
        await new Promise(resolve => setTimeout(resolve, 5));
    }
    const first = document.querySelector("#search-results ul.search li a");
    return first ? first.getAttribute("href") : "";
}"""
"""Search as the page does when it is opened with other words, and return the address of the first result.

The page has loaded scripts and index, so that they are not loaded and parsed again for each of the questions.
"""


def first_page(browser_page, words: str) -> str:
    """Return the page that the search of the site shows first, or an empty string."""
    address = browser_page.evaluate(SEARCH_AGAIN, words)
    return re.sub(r"\.html.*$", "", address)


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.timeout(900)
def test_the_search_finds_the_page_that_answers(site):
    """For nine of ten questions, the first result is the page with the answer."""
    with launched_chromium() as browser:
        page = browser.new_page()
        page.goto(f"{site}/search.html")
        page.wait_for_function("Search.hasIndex()")
        found = [first_page(page, one["search"]) for one in QUESTIONS]
    wrong = [
        f"{one['search']}: {first or 'nothing'}, not {one['page']}"
        for one, first in zip(QUESTIONS, found, strict=True)
        if first != one["page"]
    ]
    assert len(wrong) <= (1 - FIRST) * len(QUESTIONS), "\n".join(wrong)
