"""The forms of a report that are sent: the e-mail is whole and inert, the short form is short."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from email import message_from_bytes, policy
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from tests.reports.conftest import NOW, failures, ordinary
from toolkit.errors import InputError
from toolkit.reports.email_form import MOST_BYTES
from toolkit.reports.failure_report import report_failures
from toolkit.reports.index_report import report_index
from toolkit.reports.page import Report
from toolkit.reports.sections import Notice, ReportFigure, Section, table
from toolkit.reports.short_form import MOST_CHARACTERS
from toolkit.secrets.redaction import Redactor

LINK = "https://ci.example.com/runs/17?attempt=2"
ADDRESSED = {
    "to": ["ops@example.com", "dev@example.com"],
    "sender": "cron@example.com",
    "link": LINK,
}
HOSTILE = '<script>alert(1)</script><img src=x> @channel <!here> https://evil.example/x "a" $b$ \u202e[x](http://y)'


@pytest.fixture(scope="module")
def report():
    """A report whose titles, texts and workflows are hostile, with a group that is new."""
    rows = ordinary(40)
    rows[0] |= {
        "response_body": json.dumps({"error": HOSTILE}),
        "workflow_url": "https://shop.example/<b>new",
    }
    options = {"now": NOW, "redactor": Redactor(key=b"example")}
    return report_failures(
        failures(rows), title=f"Nightly\r\nBcc: x@evil.example {HOSTILE}", **options
    )


@pytest.fixture(scope="module")
def sent(report):
    """The bytes of the same as an e-mail."""
    return bytes(report.to_email(**ADDRESSED))


@pytest.fixture(scope="module")
def message(sent):
    """The e-mail as a mail client reads it."""
    return message_from_bytes(sent, policy=policy.default)


def test_a_mail_has_a_text_part_an_html_part_and_pictures_by_content_id(message):
    """Every picture of the HTML part is a PNG in the message, and the HTML needs nothing else."""
    assert message.get_content_type() == "multipart/alternative"
    text, related = message.iter_parts()
    assert (text.get_content_type(), related.get_content_type()) == (
        "text/plain",
        "multipart/related",
    )
    page, *pictures = related.iter_parts()
    markup = page.get_content()
    shown = re.findall(r'src="([^"]*)"', markup)
    assert len(shown) >= 3
    assert shown == [f"cid:{picture['Content-ID'].strip('<>')}" for picture in pictures]
    assert all(picture.get_content_type() == "image/png" for picture in pictures)
    assert all(picture.get_content().startswith(b"\x89PNG") for picture in pictures)
    assert not re.search(r"<(script|svg|details|link|iframe)", markup)
    assert re.findall(r'href="([^"]*)"', markup) == [LINK]
    assert "What changed" in text.get_content()


def test_hostile_texts_add_no_header_and_no_element_to_a_mail(message):
    """A line end in the title stays in the subject, and markup in texts is shown as it is."""
    assert {"To", "From", "Subject", "Date"} < set(message.keys())
    assert "Bcc" not in message
    assert message["To"] == "ops@example.com, dev@example.com"
    assert message["Date"].datetime == NOW
    markup = message.get_body(("html",)).get_content()
    assert "&lt;script&gt;" in markup
    assert "\u202e" not in markup


def test_a_mail_is_the_same_each_time(report, sent):
    """Neither boundaries nor pictures differ, so a mail can be compared and deduplicated."""
    assert bytes(report.to_email(**ADDRESSED)) == sent


def test_a_section_that_does_not_fit_into_a_mail_is_named():
    """Both parts name a table that is too long; later and smaller sections are still in them."""
    long = table(
        "Rows", ["name"], [[f"row {number} {'&' * 60}"] for number in range(600)]
    )
    sections = (
        Section("long", "Endless table", parts=(long,)),
        Section("last", "Small", "Last sentence."),
    )
    mail = report_of(sections).to_email()
    assert len(bytes(mail)) < MOST_BYTES
    for form in ("html", "plain"):
        content = mail.get_body((form,)).get_content()
        assert "mail short: Endless table." in content
        assert "row 599" not in content
        assert "Last sentence." in content


def test_a_mail_is_short_in_any_script():
    """Characters that take nine bytes in quoted-printable do not double the mail."""
    rows = [["\N{HIRAGANA LETTER A}" * 60] for _ in range(60)]
    sections = [
        Section(f"s{number}", f"Section {number}", parts=(table("", ["name"], rows),))
        for number in range(4)
    ]
    mail = report_of(sections).to_email()
    assert len(bytes(mail)) < MOST_BYTES
    assert {part["Content-Transfer-Encoding"] for part in mail.iter_parts()} == {
        "base64"
    }
    assert "Section 1" in mail.get_body(("plain",)).get_content()


def test_pictures_that_do_not_fit_into_a_mail_are_named_with_a_command():
    """The first pictures are attached, a later one only if it is small enough, and none are lost silently."""
    sections = [
        Section("first", "First", parts=(figure("Small", 5),)),
        Section("noisy", "Second", parts=(figure("Large", 300),)),
        Section("last", "Third", parts=(figure("Last", 5),)),
    ]
    mail = report_of(sections).to_email()
    assert len(bytes(mail)) < MOST_BYTES
    names = [part.get_filename() for part in mail.walk() if part.get_filename()]
    assert names == ["figure-1.png", "figure-3.png"]
    markup = mail.get_body(("html",)).get_content()
    assert markup.count("src=") == 2
    assert "mail short: the picture Large." in markup
    assert "report.save" in markup


def report_of(sections):
    """A report with these sections."""
    return Report(
        schema="x/1",
        title="T",
        verdict="V.",
        made_at=NOW.isoformat(),
        sections=tuple(sections),
    )


def figure(title, cells):
    """A figure of random cells: the more, the larger the picture."""

    def draw(ax, _):
        ax.imshow(np.random.default_rng(0).random((cells, cells)), aspect="auto")
        return ax

    return ReportFigure(title, "Random cells", 4.0, draw)


@pytest.mark.parametrize(
    "address", ["ops", "a@b.example\r\nBcc: c@d.example", "Ops <a@b.example>", 7]
)
def test_what_is_no_plain_address_is_refused(report, address):
    """An address cannot add a header."""
    with pytest.raises(InputError):
        report.to_email(to=[address])


@pytest.mark.parametrize(
    "link", ["javascript:alert(1)", "https://a.example/ b", "https://u:p@a.example/", 7]
)
def test_what_is_no_plain_web_address_is_no_link(report, link):
    """A link with a password, a space or another scheme is refused by both forms."""
    for form in (report.to_short, report.to_email):
        with pytest.raises(InputError):
            form(link=link)


@pytest.mark.parametrize("markdown", [False, True])
def test_the_short_form_names_what_is_new_growing_and_expiring(report, markdown):
    """It fits into a chat, has one link, notifies nobody, and names a new group with its number."""
    text = report.to_short(markdown=markdown, link=LINK)
    assert len(text) <= MOST_CHARACTERS
    assert re.findall(r"[a-z]+://[^\s)]+", text) == [LINK]
    assert not re.search(r"(?<!\w)@\w", text)
    assert "\u202e" not in text
    labels = re.findall(r"^\**(New|Growing|Expiring):", text, re.MULTILINE)
    assert labels == ["New", "Growing", "Expiring"]
    assert "<!channel" not in text
    if markdown:
        rendered = MarkdownIt().render(text)
        assert re.findall(r'(?:href|src)="([^"]*)"', rendered) == [LINK]
        assert "<script" not in rendered
    new = report.to_dict()["change"]["new_groups"]
    assert len(new) == 1
    assert re.search(r"New:\**.*\(1\b", text)


def test_a_doubt_comes_first_in_the_short_form():
    """An incomplete load is named before anything that it may hide."""
    made = failures(ordinary(4), complete=False, reasons=("the load was interrupted",))
    text = report_failures(made, now=NOW, redactor=Redactor(key=b"example")).to_short()
    assert text.index("Caution: Not complete") < text.index("New:")


def test_the_age_of_the_data_is_in_both_forms():
    """Data that end five days before the report are named first, and nothing is called new or growing."""
    options = {"now": NOW + timedelta(days=5), "redactor": Redactor(key=b"example")}
    made = report_failures(failures(ordinary(1)), **options)
    short, mail = made.to_short(), made.to_email()
    assert short.splitlines()[1].startswith("Out of date: ")
    assert (
        short.index("Caution: Out of date")
        < short.index("New: not known")
        < short.index("Growing: not known")
    )
    assert "Out of date" in mail["Subject"]
    assert "Out of date" in mail.get_body(("plain",)).get_content()


def test_the_short_form_of_an_index_report_has_its_numbers():
    """A report on vectors is sent in the same way."""
    lines = report_index(np.eye(12, 4) + 1, now=NOW).to_short().splitlines()
    assert [line for line in lines if line.startswith("Numbers: 12 vectors")]
    assert [line for line in lines if line.startswith("First: ")]


def test_a_single_kind_of_defect_is_not_plural():
    """One duplicate is one kind of defect, in the short form as in the verdict."""
    vectors = np.random.default_rng(0).normal(size=(40, 8))
    vectors[1] = vectors[0]
    report = report_index(vectors, now=NOW)
    assert "1 kind of defect" in report.verdict
    (numbers,) = (
        line for line in report.to_short().splitlines() if line.startswith("Numbers: ")
    )
    assert "; 1 kind of defect" in numbers


@given(
    st.text(min_size=100, max_size=600),
    st.lists(st.text(max_size=200), max_size=4),
    st.booleans(),
)
@settings(max_examples=15, deadline=None)
def test_the_short_form_is_short_whatever_the_texts_are(verdict, doubts, markdown):
    """Also if every character has to be escaped."""
    notices = tuple(map(Notice, doubts))
    made = Report(
        schema="x/1",
        title=verdict,
        verdict=verdict,
        made_at=NOW.isoformat(),
        notices=notices,
    )
    text = made.to_short(markdown=markdown, link="https://a.example/" + "x" * 380)
    assert len(text) <= MOST_CHARACTERS
    assert text.count("://") == 1


def test_both_forms_can_be_saved(tmp_path):
    """``.eml`` opens in a mail program, ``.txt`` is the short form."""
    made = Report(schema="x/1", title="T", verdict="V.", made_at=NOW.isoformat())
    mail: Path = made.save(tmp_path / "report.eml")
    assert message_from_bytes(mail.read_bytes()).is_multipart()
    assert made.save(tmp_path / "report.txt").read_text("utf-8") == made.to_short()
