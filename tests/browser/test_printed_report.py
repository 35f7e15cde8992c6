"""Pages of the printed report, drawn from the PDF: short, no heading or table header alone, no large gaps."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import numpy as np
import pypdfium2
import pytest

from toolkit.reports.failure_report import report_failures
from toolkit.secrets.redaction import Redactor
from toolkit.tables.failures import FailureDecoder
from toolkit.tables.frames import to_frame
from toolkit_service.demo.history import wire_entries

pytestmark = [pytest.mark.browser, pytest.mark.slow]

NOW = datetime(2026, 3, 10, 12, tzinfo=UTC)
HEADINGS = "h2, h3, caption, thead, thead *"
# magenta is in no other part of the report
MARKED = f".tk-report :is({HEADINGS}) {{ color: #f0f !important; border-color: #f0f !important }}"
# the rules of the stylesheet that keep headings with their rows
WITHOUT_RULES = """
.tk-report :is(h2, h3, p, caption, thead, tr) { break-after: auto !important }
.tk-report :is(figure, tr, pre, .cards) { break-inside: auto !important }
"""
SPACE = (
    "height => document.querySelector('.tk-report').style.paddingTop = `${height}px`"
)
# Pixels. The steps are smaller than a header with a row, so that the ends of pages come to many headers.
HEIGHTS = range(0, 600, 30)


@pytest.fixture(scope="module")
def sample(tmp_path_factory):
    """A saved report on the sample, at the time when the sample ends."""
    entries = json.dumps(wire_entries(int(NOW.timestamp() * 1000))).encode()
    failures = to_frame(FailureDecoder(None).decode(entries))
    report = report_failures(
        failures, now=NOW, retention="15d", redactor=Redactor(key=b"k")
    )
    return report.save(tmp_path_factory.mktemp("printed") / "report.html")


def opened(chromium, path, *styles):
    """Return the page of a saved report. Headings are magenta."""
    page = chromium.new_page(bypass_csp=True)
    page.goto(path.as_uri())
    for style in (MARKED, *styles):
        page.add_style_tag(content=style)
    return page


def drawn(content):
    """Return the pages of a PDF as arrays of rows, columns and colours, one pixel per point."""
    document = pypdfium2.PdfDocument(content)
    pages = [page.render(scale=1).to_numpy().copy() for page in document]
    document.close()
    return pages


def inked_rows(pixels):
    """Return the numbers of the rows that are not white."""
    return np.flatnonzero((pixels < 200).any(axis=(1, 2)))


def ends_with_heading(pixels):
    """Return whether the lowest thing on a page is magenta, as headings are."""
    bottom = inked_rows(pixels)[-1]
    lowest = pixels[bottom - 2 : bottom + 1].astype(int)
    others = lowest[..., [0, 2]].min(axis=2)  # blue and red
    return bool((others - lowest[..., 1] > 100).any())


def largest_gap(pixels, *, last):
    """Return the largest share of a page that is white. The end of the last page does not count."""
    rows = inked_rows(pixels)
    ends = [] if last else [len(pixels)]
    return np.diff([0, *rows, *ends]).max() / len(pixels)


def test_the_sample_is_printed_on_few_pages_without_gaps(chromium, sample):
    """The sample has at most six pages, none of which is half empty or ends with a heading."""
    page = opened(chromium, sample)
    pages = drawn(page.pdf(prefer_css_page_size=True, print_background=True))
    page.close()
    assert 2 <= len(pages) <= 6
    last = len(pages) - 1
    gaps = [largest_gap(one, last=at == last) for at, one in enumerate(pages)]
    assert max(gaps) < 0.5
    assert [at for at, one in enumerate(pages) if ends_with_heading(one)] == []


def pages_with_lone_headings(page):
    """Return the shifts of the text at which a page ends with a heading, and the largest gap."""
    shifts, gaps = [], []
    for height in HEIGHTS:
        page.evaluate(SPACE, height)
        pages = drawn(page.pdf())
        if any(ends_with_heading(one) for one in pages):
            shifts.append(height)
        gaps += [largest_gap(one, last=False) for one in pages[1:-1]]
    return shifts, max(gaps)


def test_no_page_ends_with_a_heading(chromium, sample):
    """Wherever pages are broken, headings are with their rows. Without the rules of print they are not."""
    page = opened(chromium, sample)
    shifts, gap = pages_with_lone_headings(page)
    page.close()
    assert shifts == []
    assert gap < 0.5
    page = opened(chromium, sample, WITHOUT_RULES)
    shifts, _ = pages_with_lone_headings(page)
    page.close()
    assert len(shifts) >= 3
