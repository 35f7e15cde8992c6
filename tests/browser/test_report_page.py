"""The report in a real browser: silent, alone, readable."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from importlib.resources import files

import numpy as np
import pandas as pd
import pytest

import toolkit as tk
from toolkit.reports.failure_report import report_failures
from toolkit.secrets.redaction import Redactor
from toolkit.tables.failures import FailureDecoder
from toolkit.tables.frames import frame_from_rows, to_frame
from toolkit.tables.schemas import FAILURES
from toolkit_service.demo.history import wire_entries

pytestmark = pytest.mark.browser

AXE = (files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8")
# without the option, axe-core describes each element that passes
VIOLATIONS = "axe.run({resultTypes: ['violations']}).then(result => result.violations)"
# axe-core does not look at text in drawings: here is each of them, and the last shape beneath its middle
DRAWN_TEXT = """() => {
  const number = (colour) => colour.match(/[\\d.]+/g).slice(0, 3).map((part) => Number(part) / 255);
  const luminance = (colour) => number(colour)
    .map((part) => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4)
    .reduce((sum, part, place) => sum + part * [0.2126, 0.7152, 0.0722][place], 0);
  const paper = getComputedStyle(document.querySelector('.tk-report')).backgroundColor;
  return [...document.querySelectorAll('svg')].filter((svg) => svg.checkVisibility()).flatMap((svg) => {
    const shapes = [...svg.querySelectorAll('path, rect')].filter((shape) =>
      !shape.closest('defs, clipPath') && getComputedStyle(shape).fill !== 'none');
    return [...svg.querySelectorAll('text')].map((text) => {
      const box = text.getBoundingClientRect();
      const middle = new DOMPoint(box.x + box.width / 2, box.y + box.height / 2);
      const shown = (shape) => {
        const point = middle.matrixTransform(shape.getScreenCTM().inverse());
        const clip = document.querySelector((shape.getAttribute('clip-path') || '').slice(4, -1) + ' rect');
        const [x, y, wide, high] = clip && shape.hasAttribute('clip-path')
          ? ['x', 'y', 'width', 'height'].map((name) => Number(clip.getAttribute(name)))
          : [-1e6, -1e6, 1e9, 1e9];
        return shape.isPointInFill(point) && point.x >= x && point.x - x <= wide
          && point.y >= y && point.y - y <= high;
      };
      const beneath = shapes.filter(shown).at(-1);
      const colours = [getComputedStyle(text).fill, beneath ? getComputedStyle(beneath).fill : paper];
      const [low, high] = colours.map(luminance).sort((one, other) => one - other);
      return [(high + 0.05) / (low + 0.05), Boolean(beneath), text.textContent, ...colours];
    });
  });
}"""
OPEN = "document.querySelectorAll('details').forEach(part => { part.open = true })"
NOW = datetime(2026, 3, 10, 12, tzinfo=UTC)
PAYLOAD = '"><img src="http://127.0.0.1:9/x.png" onerror="console.error(1)"><script>console.error(2)</script>'


@pytest.fixture(scope="module")
def page_file(tmp_path_factory):
    """A saved report with hostile texts in it."""
    rows = [
        {
            "dlq_id": f"{number}-{PAYLOAD}",
            "workflow_url": f"https://shop.example/{number % 7}/{PAYLOAD}",
            "failed_at": NOW - timedelta(hours=number),
            "response_status": 500,
            "labels": json.dumps([PAYLOAD, "x" * 500]),
            "response_body": f"<title>{PAYLOAD}</title>" if number % 2 else "x" * 2_000,
        }
        for number in range(60)
    ]
    frame = frame_from_rows(rows, FAILURES)
    path = tmp_path_factory.mktemp("report") / "report.html"
    return report_failures(
        frame, frame.iloc[5:], now=NOW, title=PAYLOAD, redactor=Redactor(key=b"k")
    ).save(path)


@pytest.mark.tour
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1400])
def test_the_report_is_silent_alone_and_fits(chromium, page_file, scheme, width):
    """No console message, no request but the file, nothing wider than the window, the scheme's colours."""
    context = chromium.new_context(
        color_scheme=scheme, viewport={"width": width, "height": 900}
    )
    page = context.new_page()
    messages, requests = [], []
    page.on("console", lambda message: messages.append(message.text))
    page.on("pageerror", lambda error: messages.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    page.goto(page_file.as_uri())
    page.wait_for_load_state("networkidle")
    assert messages == []
    assert requests == [page_file.as_uri()]
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.locator("img, script, iframe, a:not([href^='#'])").count() == 0
    assert PAYLOAD in page.locator(".crumb").inner_text()
    page.evaluate(OPEN)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    shown = page.locator("figure svg:visible")
    assert shown.count() == 4
    assert all(
        shown.nth(number).bounding_box()["width"] > width / 2 for number in range(4)
    )
    background = page.evaluate(
        "getComputedStyle(document.querySelector('.tk-report')).backgroundColor"
    )
    assert (
        background == {"light": "rgb(255, 255, 255)", "dark": "rgb(21, 25, 29)"}[scheme]
    )
    context.close()


def test_the_policy_holds(chromium, page_file):
    """Even a script put into the page by other means does not run: the page's own policy refuses it."""
    context = chromium.new_context()
    page = context.new_page()
    messages = []
    page.on("console", lambda message: messages.append(message.text))
    markup = page_file.read_text().replace(
        "</main>", "</main><script>document.title = 'ran'</script>"
    )
    altered = page_file.with_name("altered.html")
    altered.write_text(markup)
    page.goto(altered.as_uri())
    assert page.title() != "ran"
    assert any("Content Security Policy" in message for message in messages)
    context.close()


@pytest.fixture(scope="module")
def index_file(tmp_path_factory):
    """A saved report on an index, with every section that needs no service, and hostile texts in it."""
    random = np.random.default_rng(0)
    vectors = random.normal(size=(400, 16)) + np.repeat(
        3 * random.normal(size=(4, 16)), 100, axis=0
    )
    vectors[7] = 0
    vectors[9] = vectors[8]
    frame = pd.DataFrame(
        {
            "namespace": np.repeat(["", PAYLOAD, "guides", "x" * 300], 100),
            "id": [f"{number}-{PAYLOAD}" for number in range(400)],
            "vector": list(vectors),
            "data": [f"{PAYLOAD} {number % 390}" for number in range(400)],
            "metadata": [
                json.dumps({PAYLOAD: number} if number % 9 else {})
                for number in range(400)
            ],
        }
    )
    before = frame.iloc[5:].assign(
        data=lambda old: old["data"].where(old.index % 7 > 0, "old")
    )
    scores = random.uniform(0.5, 1, 800)
    labels = pd.DataFrame(
        {
            "namespace": "guides",
            "score": scores,
            "match": random.random(800) < 2 * scores - 1,
        }
    )
    report = tk.report_index(
        frame, previous=before, labels=labels, title=PAYLOAD, now=NOW
    )
    return report.save(tmp_path_factory.mktemp("index") / "report.html")


@pytest.mark.parametrize("report", ["page_file", "index_file"])
def test_nothing_serious_for_readers_of_all_kinds(chromium, report, request):
    """axe-core finds no violation, in light and dark, with every part opened."""
    context = chromium.new_context(bypass_csp=True)
    page = context.new_page()
    page.goto(request.getfixturevalue(report).as_uri())
    page.evaluate(OPEN)
    page.evaluate(AXE)
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        found = page.evaluate(VIOLATIONS)
        assert [
            (scheme, item["id"], [node["html"] for node in item["nodes"]][:3])
            for item in found
        ] == []
    context.close()


@pytest.fixture(scope="module")
def current():
    """A report on the sample, with the time at which the sample ends."""
    entries = json.dumps(wire_entries(int(NOW.timestamp() * 1000))).encode()
    failures = to_frame(FailureDecoder(None).decode(entries))
    return report_failures(
        failures, now=NOW, retention="15d", redactor=Redactor(key=b"k")
    )


@pytest.fixture(scope="module")
def sample_file(current, tmp_path_factory):
    """The saved report: 5,000 failures, counts from 1 to more than a thousand in the cells."""
    return current.save(tmp_path_factory.mktemp("sample") / "report.html")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1400])
def test_texts_in_figures_can_be_read(chromium, sample_file, scheme, width):
    """Each text in a figure has a contrast of at least 4.5 to 1 to the cell, bar or paper behind it."""
    context = chromium.new_context(
        color_scheme=scheme, viewport={"width": width, "height": 900}
    )
    page = context.new_page()
    page.goto(sample_file.as_uri())
    page.evaluate(OPEN)
    texts = page.evaluate(DRAWN_TEXT)
    assert sum(on_a_shape for _, on_a_shape, *_ in texts) >= (100 if width > 600 else 5)
    assert [text for text in texts if text[0] < 4.5] == []
    context.close()


CUT = """() => [...document.querySelectorAll(".scroll")]
  .filter((table) => table.scrollWidth > table.clientWidth)
  .map((table) => table.getAttribute("aria-label"))"""


@pytest.mark.parametrize("width", [1280, 390])
def test_the_first_screen_tells_what_is_wrong_now(chromium, current, tmp_path, width):
    """Headline and the newest problem with its action are above the fold; the whole page is short."""
    context = chromium.new_context(viewport={"width": width, "height": 900})
    page = context.new_page()
    page.goto(current.save(tmp_path / "report.html").as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    bottom = page.locator(".do.primary").bounding_box()["y"]
    assert bottom < (300 if width > 600 else 600)
    rows = page.locator(".board").first.locator("tbody tr")
    assert rows.count() == 3
    last = rows.nth(2).bounding_box()
    assert last["y"] + last["height"] < 900
    if width > 600:
        assert page.locator("h1").bounding_box()["height"] < 40
        assert page.evaluate("document.documentElement.scrollHeight") <= 6_000
        assert page.locator("section:not([id^=more]) > h2").count() <= 8
    context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_column_is_cut_on_a_phone(chromium, current, tmp_path, scheme):
    """No table of the page, folded ones included, is wider than the screen."""
    context = chromium.new_context(
        color_scheme=scheme, viewport={"width": 390, "height": 844}
    )
    page = context.new_page()
    page.goto(current.save(tmp_path / "report.html").as_uri())
    page.evaluate(OPEN)
    tables = page.locator(".scroll")
    assert tables.count() >= 10
    assert page.evaluate(CUT) == []
    context.close()


def test_a_notebook_shows_a_compact_report(chromium, current, tmp_path):
    """As the output of a cell, at most 1,200 pixels; the rest is one folded part of the same output."""
    cell = tmp_path / "cell.html"
    cell.write_text(f'<meta charset="utf-8">{current._repr_html_()}', encoding="utf-8")
    context = chromium.new_context(viewport={"width": 900, "height": 900})
    page = context.new_page()
    page.goto(cell.as_uri())
    assert page.evaluate("document.documentElement.scrollHeight") <= 1_200
    page.locator(".whole > summary").click()
    assert page.locator("details.more").count() >= 12
    context.close()


def test_a_report_on_the_sample_is_small_as_pdf(current):
    """At most six pages of lines and texts: well below a megabyte."""
    content = current.to_pdf()
    assert content.startswith(b"%PDF-")
    assert len(content) < 500_000
    pages = content.count(b"/Type /Page") - content.count(b"/Type /Pages")
    assert 1 <= pages <= 6
    assert b"/Subtype /Image" not in content


def test_bars_of_shares_are_printed(chromium, sample_file):
    """Print keeps the colours of the bars, and their background does not depend on the printer."""
    context = chromium.new_context()
    page = context.new_page()
    page.emulate_media(media="print")
    page.goto(sample_file.as_uri())
    bars = page.locator(".bar")
    assert bars.count() > 20
    assert (
        bars.first.evaluate("bar => getComputedStyle(bar).printColorAdjust") == "exact"
    )
    assert bars.first.bounding_box()["width"] > 20
    context.close()


@pytest.mark.parametrize(
    ("width", "height"), [(180, 267), (186, 249)], ids=["A4", "Letter"]
)
def test_figures_are_not_cut_in_print(chromium, page_file, width, height):
    """Each row and figure fits a page and may not be broken; folded parts and navigation are not printed."""
    millimetre = 96 / 25.4
    context = chromium.new_context(
        viewport={"width": round(width * millimetre), "height": 900}
    )
    page = context.new_page()
    page.emulate_media(media="print", color_scheme="dark")
    page.goto(page_file.as_uri())
    blocks = page.locator("figure:visible, tr:visible")
    assert blocks.count() > 3
    for number in range(blocks.count()):
        block = blocks.nth(number)
        assert block.bounding_box()["height"] < height * millimetre * 0.6
        style = "item => getComputedStyle(item).breakInside"
        assert block.evaluate(style) == "avoid"
    assert page.locator("nav").is_hidden()
    assert page.locator("details:visible").count() == 0
    background = page.evaluate(
        "getComputedStyle(document.querySelector('.tk-report')).backgroundColor"
    )
    assert background == "rgb(255, 255, 255)"
    context.close()


def test_a_report_is_printed_as_pdf(tmp_path):
    """Saved as .pdf, the report is a PDF of some pages that only its user can read."""
    rows = [
        {"dlq_id": str(number), "failed_at": NOW - timedelta(hours=number)}
        for number in range(30)
    ]
    report = report_failures(
        frame_from_rows(rows, FAILURES), now=NOW, redactor=Redactor(key=b"k")
    )
    content = report.save(tmp_path / "report.pdf").read_bytes()
    assert content.startswith(b"%PDF-")
    assert b"/Type /Page\n" in content or content.count(b"/Type /Page") > 1
    assert (tmp_path / "report.pdf").stat().st_mode & 0o777 == 0o600
