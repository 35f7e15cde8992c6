"""The forms of a report: payloads stay inert, secrets stay out, bytes stay the same, files are whole."""

from __future__ import annotations

import json
import re
import stat
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jinja2 import Environment, PackageLoader
from markdown_it import MarkdownIt

from toolkit.errors import InputError, ToolkitError
from toolkit.reports.failure_report import report_failures
from toolkit.reports.markdown_form import escape_markdown
from toolkit.reports.sections import ReportColumn, ReportFigure, Section
from toolkit.secrets.redaction import Redactor, Secret, visible

PAYLOADS = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "</style></svg></table><iframe src=//evil.example>",
    "$\\frac{1}{0}$",
    "_x",
    "safe\u202egpj.exe",
    "long " * 100,
    "{{7*7}}{% raw %}",
    "javascript:alert(1)",
    "=cmd|' /C calc'!A0",
    "a|b `code` **bold** [x](javascript:alert(1)) ![i](http://evil.example/x.png)\n# h\n- l",
    "&lt;b&gt;&amp;",
    "nul\x00bell\x07",
    "]]><!--",
]
TEXT_COLUMNS = [
    "workflow_url", "workflow_run_id", "url", "method", "body", "failure_callback", "caller_ip", "label",
    "flow_control_key", "failure_function_state", "response_body", "extra",
]  # fmt: skip
ELEMENTS = {
    "html", "head", "meta", "title", "style", "body", "main", "div", "header", "section", "footer", "h1",
    "h2", "p", "a", "nav", "details", "summary", "dl", "dt", "dd", "figure", "table", "caption", "thead",
    "tbody", "tr", "th", "td", "span", "ul", "li", "pre", "svg", "desc", "defs", "g", "path", "use", "text",
    "tspan", "clippath", "rect", "wbr", "h3", "colgroup", "col", "time", "b",
}  # fmt: skip
ATTRIBUTES = {
    "lang", "charset", "http-equiv", "content", "name", "class", "scope", "style", "viewbox", "role",
    "aria-labelledby", "id", "d", "clip-path", "href", "transform", "x", "y", "width", "height", "rx",
    "fill", "tabindex", "aria-label", "datetime", "title", "preserveaspectratio", "data-name",
}  # fmt: skip
NOW = datetime(2026, 3, 10, 12, tzinfo=UTC)
VOID = {"meta", "wbr", "col"}


class Page(HTMLParser):
    """Elements, attributes, text and headings of a page; complains where elements do not nest."""

    def __init__(self, markup):
        super().__init__()
        self.found, self.text, self.open, self.headings = [], [], [], []
        self.feed(markup)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        """Keep the element."""
        self.found.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
        if re.fullmatch("h[1-6]", tag):
            self.headings.append(int(tag[1]))

    def handle_startendtag(self, tag, attrs):
        """Keep the element, which is closed already."""
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        """Check that open elements are closed."""
        assert self.open.pop() == tag

    def handle_data(self, data):
        """Keep the text."""
        self.text.append(data)

    @property
    def shown(self):
        """All text, spaces squeezed."""
        return " ".join("".join(self.text).split())


def hostile(make, payload):
    row = dict.fromkeys(TEXT_COLUMNS, payload) | {
        "dlq_id": payload,
        "labels": json.dumps([payload]),
    }
    row |= {
        "headers": json.dumps({payload: [payload]}),
        "failed_at": NOW - timedelta(days=1),
    }
    other = {
        "dlq_id": "other",
        "response_body": json.dumps({"error": payload}),
        "failed_at": NOW,
    }
    page = {"dlq_id": "page", "response_body": f"<html><title>{payload}</title></html>"}
    receipt = {
        "source": payload,
        "scope": {payload: [payload], "label": payload},
        "assumptions": (payload,),
    }
    return make([row, other, page], **receipt)


@cache
def plain_page(make):
    """Return the same report in Markdown with a plain word for the payload, as a parser reads it."""
    report = report_failures(
        hostile(make, "plain"),
        make([], source="plain"),
        title="plain",
        now=NOW,
        redactor=Redactor(key=b"example"),
    )
    return Page(MarkdownIt("commonmark").enable("table").render(report.to_markdown()))


@pytest.mark.slow
@pytest.mark.parametrize("payload", PAYLOADS)
def test_hostile_texts_are_inert(make, options, payload):
    """In every text column, receipt and title, a payload is seen as text in HTML and in Markdown."""
    report = report_failures(
        hostile(make, payload), make([], source=payload), title=payload, **options
    )
    markup = report.to_html()
    assert_inert_html(markup, payload)
    assert "<script" not in markup.lower()
    assert_inert_html(report._repr_html_(), payload)
    assert_inert_markdown(report.to_markdown(), payload, plain_page(make))


def assert_inert_html(markup, payload):
    """Check that a payload adds no element or attribute, and that its text is seen."""
    page = Page(markup)
    assert "svg" in {tag for tag, _ in page.found}
    assert {tag for tag, _ in page.found} <= ELEMENTS
    assert {name for _, attributes in page.found for name in attributes} <= ATTRIBUTES
    assert " ".join(visible(payload).split()) in page.shown
    assert not {"\u202e", "\x00", "\x07"} & set(markup)
    links = [attributes["href"] for _, attributes in page.found if "href" in attributes]
    assert all(re.fullmatch(r"#[\w-]+", link) for link in links)


def assert_inert_markdown(text, payload, expected):
    """Check that a parser finds no further element but code, and that the text of the payload is seen."""
    page = Page(MarkdownIt("commonmark").enable("table").render(text))
    tags = Counter(tag for tag, _ in page.found)
    assert page.headings == expected.headings
    assert [tags[tag] for tag in ("table", "li", "p", "strong", "pre")] == [
        [tag for tag, _ in expected.found].count(name)
        for name in ("table", "li", "p", "strong", "pre")
    ]
    assert tags["tr"] == len(re.findall(r"^\|(?! ---)", text, re.MULTILINE))
    assert {tag for tag, _ in page.found} <= {
        "h1", "h2", "p", "strong", "ul", "li", "table", "thead", "tbody", "tr", "th", "td", "code", "pre",
    }  # fmt: skip
    assert " ".join(visible(payload).split()) in page.shown
    assert not {"\u202e", "\x00", "\x07"} & set(text)


@pytest.mark.slow
def test_a_hundred_payloads_are_inert(make, options):
    """A hundred payloads, in every text column of a row each, add no element, attribute, link or control."""
    pieces = [
        *PAYLOADS,
        "<svg/onload=alert(1)>",
        "<a href=javascript:alert(1)>x</a>",
        "&#60;script&#62;",
        "`x`",
    ]
    pieces += ["`x`", "<!--", "-->", "]]>", "\u2028", "\ufeff", "\u200b"]
    payloads = [
        form.format(piece)
        for form in ("{}", "a {}", "{} z", "<b>{}</b>")
        for piece in pieces
    ]
    assert len(set(payloads)) >= 100
    for start in range(0, len(payloads), 15):
        rows = [
            dict.fromkeys(TEXT_COLUMNS, payload)
            | {
                "dlq_id": f"{number} {payload}",
                "labels": json.dumps([payload]),
                "failed_at": NOW - timedelta(hours=number),
            }
            for number, payload in enumerate(payloads[start : start + 15])
        ]
        markup = report_failures(make(rows), **options).to_html()
        page = Page(markup)
        assert {tag for tag, _ in page.found} <= ELEMENTS
        assert {
            name for _, attributes in page.found for name in attributes
        } <= ATTRIBUTES
        links = [
            attributes["href"] for _, attributes in page.found if "href" in attributes
        ]
        assert all(re.fullmatch(r"#[\w-]+", link) for link in links)
        assert not {"\u202e", "\x00", "\x07", "\u200b", "\ufeff", "\u2028"} & set(
            markup
        )


@given(st.text(st.sampled_from("`$\\|() <&*_ab\n"), max_size=12))
def test_any_text_is_read_back_from_markdown(text):
    """For any text, a parser finds one cell and one paragraph with exactly it, on one line."""
    escaped = escape_markdown(text)
    markdown = MarkdownIt("commonmark").enable("table")
    cell = Page(markdown.render(f"| a | b |\n| --- | --- |\n| {escaped} | end |\n"))
    paragraph = Page(markdown.render(f"- **x** {escaped}."))
    line = " ".join(text.split())
    assert cell.shown == f"a b {line} end".replace("  ", " ") or (cell.shown, line) == (
        "a b end",
        "",
    )
    assert paragraph.shown == f"x {line}."
    assert {tag for tag, _ in cell.found} <= {
        "table",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
        "code",
    }
    assert {tag for tag, _ in paragraph.found} <= {"ul", "li", "strong", "code"}
    exposed = re.sub(r"<code>.*?</code>", "", markdown.render(escaped))
    assert not {"$", "\\"} & {*exposed}


def test_markdown_escapes_what_begins_a_list():
    """Signs that begin lists, rules or headings do nothing at the start of a line."""
    assert [escape_markdown(text) for text in ("- a", "+ a", "1. a", "=== ", "# a", "12 a")] == [
        "\\- a", "\\+ a", "1\\. a", "\\===", "\\# a", "12 a",
    ]  # fmt: skip


CANARY = "canary-0123456789abcdef"


@pytest.mark.slow
def test_secrets_are_in_no_form(make, options, tmp_path):
    """Secrets in bodies, URLs, labels, ids, receipts and titles, and our own token, are in no form."""
    own = Redactor(key=b"k", own=[Secret(CANARY)])
    encoded = "Y2FuYXJ5LTAxMjM0NTY3ODlhYmNkZWY="
    rows = [
        {
            "dlq_id": f"id {CANARY}",
            "workflow_url": f"https://u:{CANARY}@shop.example/a?key={CANARY}",
            "labels": json.dumps([CANARY]),
        },
        {
            "workflow_url": f"https://shop.example/{CANARY}",
            "failure_function_state": CANARY,
        },
        {"response_body": f'{{"error": "Bearer {CANARY}"}}'},
        {
            "response_body": f"first\nTraceback (most recent call last):\n  x\nValueError: {encoded}"
        },
        {
            "response_body": "-----BEGIN PRIVATE KEY-----\nMIIcanary\n-----END PRIVATE KEY-----"
        },
        {"response_body": "AKIAIOSFODNN7EXAMPLE"},
        {"response_body": "x" * 285 + CANARY},
    ]
    rows = [
        row | {"failed_at": options["now"] - timedelta(hours=hours)}
        for hours, row in enumerate(rows)
    ]
    frame = make(
        rows,
        source=f"https://{CANARY}@queue.example",
        scope={"label": [CANARY], CANARY: 1},
    )
    report = report_failures(
        frame, make([]), title=CANARY, **(options | {"redactor": own})
    )
    for name in ("report.html", "report.md", "report.json"):
        report.save(tmp_path / name)
    forms = [path.read_text() for path in tmp_path.iterdir()] + [
        repr(report),
        report._repr_html_(),
        str(vars(report)),
    ]
    assert len(forms) == 6
    assert sum("<svg" in form for form in forms) == 2
    for form in forms:
        for secret in (
            CANARY,
            CANARY[:12],
            encoded[:12],
            "MIIcanary",
            "AKIAIOSFODNN7EXAMPLE",
        ):
            assert secret not in form
        assert "masked len=" in form or "secret" in form


@pytest.mark.slow
def test_the_page_loads_and_runs_nothing(make, rows, options):
    """The page has a policy that forbids everything but its own style, and no address to load from."""
    markup = report_failures(make(rows), **options).to_html()
    page = Page(markup)
    policy = next(
        attributes for tag, attributes in page.found if attributes.get("http-equiv")
    )
    assert (
        policy["content"]
        == "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
    )
    assert "@import" not in markup
    assert re.findall(r"url\((?!#)", markup) == []
    assert len(markup) < 300_000


def test_structure_for_readers_of_all_kinds(make, rows, options):
    """One main heading, headings in order, tables with captions and scoped headers, named figures."""
    page = Page(report_failures(make(rows), make(rows[:2]), **options).to_html())
    tags = [tag for tag, _ in page.found]
    assert page.found[0] == ("html", {"lang": "en"})
    assert page.headings[0] == 1
    assert page.headings.count(1) == 1
    assert set(page.headings[1:]) == {2, 3}
    assert tags.count("table") == tags.count("caption") >= 6
    assert all("scope" in attributes for tag, attributes in page.found if tag == "th")
    ids = [attributes["id"] for _, attributes in page.found if "id" in attributes]
    assert len(ids) == len(set(ids))
    for tag, attributes in page.found:
        if tag == "svg":
            named_by = attributes.get("aria-labelledby", "").split()
            assert attributes.get("aria-label") or named_by
            assert set(named_by) <= set(ids)


@pytest.mark.slow
def test_order_of_the_sections(make, rows, options):
    """Problems come first, then groups, changes and deadlines; everything else is folded, the code last."""
    report = report_failures(make(rows), make(rows[:2]), **options)
    markup = report.to_html()
    shown = [
        "Now", "Groups of failures", "What changed", "New compared with the earlier failures",
        "Until when it can be retried", "Who is affected",
    ]  # fmt: skip
    folded = [
        "In numbers", "When", "What expires", "Worst workflows", "Classes", "Seen before", "Where it fails",
        "At which hours", "Failure functions", "Failure functions that need a look", "Labels",
        "Scope and completeness", "The code",
    ]  # fmt: skip
    assert re.findall("<h2>(.*?)</h2>", markup) == [*shown, "More"]
    assert re.findall("<summary><h3>(.*?)</h3>", markup) == folded
    assert [section.title for section in report.sections] == [*shown, *folded]
    assert markup.index("<h1") < markup.index("<h2>")
    headings = re.findall("^## (.*)$", report.to_markdown(), re.MULTILINE)
    assert headings == [*shown, *folded]


def test_colours_can_be_read():
    """Text has a contrast of at least 4.5 to 1 on every background, in both themes."""
    environment = Environment(
        loader=PackageLoader("toolkit.reports", "templates"), autoescape=True
    )
    style = environment.get_template("style.css").render()
    blocks = re.split(r"(?<!-)color-scheme: (?:light|dark);", style)[:2]
    pairs = [
        ("--ink", "--paper"), ("--muted", "--paper"), ("--ink", "--raised"), ("--muted", "--raised"),
        ("--bad", "--bad-paper"), ("--good", "--good-paper"), ("--bad", "--paper"),
        ("--plot-ink", "--plot-paper"), ("--plot-muted", "--plot-paper"),
    ]  # fmt: skip
    for colours in (
        dict(re.findall(r"(--[\w-]+): (#\w{6})", block)) for block in blocks
    ):
        for ink, paper in pairs:
            first, second = sorted(
                (_luminance(colours[ink]), _luminance(colours[paper])), reverse=True
            )
            assert (first + 0.05) / (second + 0.05) >= 4.5, (ink, paper)


def _luminance(colour):
    parts = [int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4
        for part in parts
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.slow
def test_same_bytes_for_the_same_input(make, rows, options, tmp_path):
    """The same frames and time produce the same files, byte for byte; another time does not."""
    names = ("a.html", "a.md", "a.json")
    for folder in ("first", "second"):
        (tmp_path / folder).mkdir()
        report = report_failures(make(rows), make(rows[:3]), **options)
        for name in names:
            report.save(tmp_path / folder / name)
    for name in names:
        first, second = (
            (tmp_path / folder / name).read_bytes() for folder in ("first", "second")
        )
        assert first == second
    assert (
        json.loads((tmp_path / "first/a.json").read_text())
        == report_failures(make(rows), make(rows[:3]), **options).to_dict()
    )


def test_figures_are_drawn_once(make, rows, options):
    """A cell and a page of a report share the drawings; another report has its own."""
    widths = []

    def draw(ax, _):
        widths.append(ax.figure.get_figwidth())
        return ax

    def report_with_figure(count):
        report = report_failures(make(rows[:count]), **options)
        figure = ReportFigure("title", "description", 2.0, draw)
        return replace(report, sections=(Section("one", "One", parts=(figure,)),))

    report = report_with_figure(2)
    assert report.to_html() == report.to_html()
    assert "<svg" in report._repr_html_()
    assert sorted(widths) == [4.0, 9.6]
    report_with_figure(3).to_html()
    assert sorted(widths) == [4.0, 4.0, 9.6, 9.6]


def test_files_are_private_and_replaced_whole(make, rows, options, tmp_path):
    """A file is private, replaces an existing one, follows no link; no other file is left."""
    victim = tmp_path / "victim"
    victim.write_text("untouched")
    target = tmp_path / "report.html"
    target.symlink_to(victim)
    assert report_failures(make(rows), **options).save(str(target)) == target
    assert victim.read_text() == "untouched"
    assert not target.is_symlink()
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report.html", "victim"]


def test_what_cannot_be_saved(make, options, tmp_path):
    """Other suffixes, missing folders and a folder in the way are typed errors, and leave nothing behind."""
    report = report_failures(make([]), **options)
    for name in ("report.docx", "report"):
        with pytest.raises(
            InputError, match=r"\.html, \.md, \.json, \.eml, \.txt or \.pdf"
        ):
            report.save(tmp_path / name)
    with pytest.raises(ToolkitError, match="an existing folder"):
        report.save(tmp_path / "missing" / "report.html")
    (tmp_path / "folder.html").mkdir()
    with pytest.raises(ToolkitError, match="writing"):
        report.save(tmp_path / "folder.html")
    assert [path.name for path in tmp_path.iterdir()] == ["folder.html"]


@pytest.mark.slow
def test_two_reports_in_one_notebook_do_not_share_ids(make, rows, options):
    """Different reports have different ids, so that their drawings do not mix on one page."""
    first, second = (
        report_failures(make(rows[:count]), **options)._repr_html_() for count in (5, 9)
    )
    ids = [
        {attributes["id"] for _, attributes in Page(markup).found if "id" in attributes}
        for markup in (first, second)
    ]
    assert ids[0]
    assert not ids[0] & ids[1]
    assert "<html" not in first


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (3, "3"),
        (1234567, "1,234,567"),
        (0.5, "0.5"),
        (17.456, "17.46"),
        (1230.0, "1,230"),
        (123456.7, "123,457"),
    ],
)
def test_numbers_are_shown_as_people_write_them(value: float, shown: str) -> None:
    """Large numbers have no decimals and no powers of ten."""
    assert ReportColumn(name="times the mean", kind="number").shown(value) == shown
