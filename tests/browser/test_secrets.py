"""The text that a real browser shows of bodies which hold secrets, in every form and spelling."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser

import toolkit as tk
from tests.secrets.test_patterns import CANARY, SECRETS, SPELLINGS
from toolkit.secrets.redaction import Redactor
from toolkit.tables.frames import frame_from_rows
from toolkit.tables.schemas import FAILURES
from toolkit.widgets.failure_detail import detail_markup

pytestmark = [pytest.mark.browser, pytest.mark.slow]

BODIES = [
    write(text.format(CANARY))
    for texts in SECRETS.values()
    for text in texts
    for write, _ in SPELLINGS.values()
]


def test_no_secret_is_read_in_the_browser(chromium: Browser) -> None:
    """In details of failures, reports and frames: a browser reads escapes once more, and finds nothing."""
    frame = frame_from_rows(
        [
            {
                "dlq_id": str(number),
                "body": body,
                "response_body": body,
                "response_status": 500,
            }
            for number, body in enumerate(BODIES)
        ],
        FAILURES,
    )
    redactor = Redactor(key=b"k")
    details = "".join(detail_markup(row, redactor) for row in frame.to_dict("records"))
    report = tk.report_failures(frame, redactor=redactor).to_html()
    markup = frame.head(60)._repr_html_() + frame.tail(60)._repr_html_()
    page = chromium.new_page()
    try:
        shown = []
        for content in (details, report, markup):
            page.set_content(content)
            shown.append(page.inner_text("body"))
    finally:
        page.close()
    assert [CANARY in text for text in shown] == [False] * 3
    assert shown[0].count("[masked len=") >= 2 * len(BODIES)
