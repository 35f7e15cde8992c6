"""Nothing that is printed holds control characters or bidirectional marks, and personal data is an option."""

from __future__ import annotations

import gc
import io
import re
import sys
import unicodedata
import warnings
from datetime import UTC, datetime

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import toolkit as tk
from toolkit.drawing.result_tables import result_table
from toolkit.errors import SettingsError, ToolkitError, UnexpectedResultWarning
from toolkit.secrets.personal_data import PERSONAL_HINT, personal_spans
from toolkit.secrets.redaction import Redactor
from toolkit.tables.frames import ExactText, VisibleText, frame_from_rows, frame_html
from toolkit.tables.masking import ColumnMasker
from toolkit.tables.receipt import Receipt
from toolkit.tables.schemas import FAILURES
from toolkit.tables.spreadsheets import export_csv

HOSTILE = "safe\u202egpj.exe \x1b[31mred\x07 \x9b2J \u2066x\u2069 \U000e0041"
RAW = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\U000e0000-\U000e007f]"
)


@pytest.fixture
def failures():
    """Two failures whose texts redirect reading, as any application may send them."""
    rows = [
        {
            "dlq_id": f"dlq-{number}",
            "workflow_url": "https://a.example/orders",
            "workflow_run_id": f"wfr_{number}",
            "response_status": 500,
            "response_body": f'{{"error": "Boom", "message": "{HOSTILE}"}}',
            "state": "RUN_FAILED",
            "created_at": datetime(2026, 1, 1, 10, number, tzinfo=UTC),
        }
        for number in range(2)
    ]
    return frame_from_rows(rows, FAILURES)


def test_frames_show_texts_escaped_and_keep_them(failures):
    """As text, as pandas' own HTML, as a column and as an index; also after selecting and sorting."""
    derived = failures.assign(label=failures["error"]).sort_values(
        "dlq_id", ascending=False
    )
    shown = [
        derived.to_string(),
        derived.to_html(),
        repr(derived["error"]),
        repr(derived.set_index("error")),
        repr(derived["error"].array),
    ]
    for text in shown:
        assert not RAW.search(text)
    assert "\\u202e" in shown[0]
    assert type(failures["error"].array) is VisibleText
    assert type(failures["response_body"].array) is ExactText
    assert "\u202e" in failures["response_body"][0]


def test_notebooks_show_any_frame_escaped():
    """Also one that is not the toolkit's, and the names of its columns."""
    html = frame_html(pd.DataFrame({f"name {HOSTILE}": [HOSTILE]}))
    assert html is not None
    assert not RAW.search(html)
    assert html.count("\\u202e") == 2


@pytest.mark.parametrize(
    "show",
    [
        tk.plan_redrive,
        tk.group_failures,
        tk.classify_failures,
        tk.summarize,
        lambda frame: frame,
    ],
    ids=["plan", "groups", "classes", "summarize", "frame"],
)
def test_results_are_printed_escaped(failures, show):
    """As text and as HTML, when the failures' own texts are in them."""
    result = show(failures)
    assert not RAW.search(repr(result))
    assert not RAW.search(str(result))
    assert not RAW.search(result._repr_html_())


def test_frames_of_results_are_printed_escaped(failures):
    """As text, as pandas' own HTML, and column by column: tables that are taken out of a result."""
    plan, groups = tk.plan_redrive(failures), tk.group_failures(failures)
    frames = [
        plan.frame,
        plan.groups,
        groups.frame,
        tk.classify_failures(failures).frame,
    ]
    frames += [
        tk.analysis.count_by(failures, "error"),
        tk.analysis.count_errors(failures),
        tk.find_expiring(failures),
    ]
    for frame in frames:
        shown = [repr(frame), frame.to_html(), frame._repr_html_()]
        shown += [repr(frame[name]) for name in frame.columns]
        assert not RAW.search("".join(shown))


def test_errors_warnings_and_receipts_are_printed_escaped():
    """Whatever they quote; line ends stay."""
    error = ToolkitError(f"reading {HOSTILE}", got=f"a\n{HOSTILE}")
    error.add_note(HOSTILE)
    receipt = Receipt(
        what=HOSTILE, source="http://127.0.0.1", scope={}, reasons=(HOSTILE,),
        started_at="2026-01-01T00:00:00+00:00", ended_at="2026-01-01T00:00:00+00:00",
    )  # fmt: skip
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.warn(UnexpectedResultWarning(HOSTILE), stacklevel=1)
    for text in (str(error), *error.__notes__, str(receipt), str(caught[0].message)):
        assert not RAW.search(text)
        assert "\\u202e" in text
    assert "a\n" in str(error)


def test_no_invisible_character_hides_a_formula(tmp_path):
    """Every format control, control, default-ignorable character and combining accent before ``=``."""
    ignorable = [
        0x34F,
        0x115F,
        0x17B4,
        0x180B,
        0x3164,
        0xFE00,
        0xFFA0,
        0xFFF0,
        0xE0000,
        0xE0FFF,
    ]
    named = [0xE0020, 0xFFF9, 0xE0100, 0x1D173]
    hidden = [
        code
        for code in range(sys.maxunicode + 1)
        if unicodedata.category(chr(code)) in {"Cf", "Cc", "Zs"}
    ]
    texts = [f"{chr(code)}=1+1" for code in {*hidden, *ignorable, *named, 0x301}]
    export_csv(pd.DataFrame({"text": texts}), tmp_path / "texts.csv")
    written = pd.read_csv(
        io.StringIO((tmp_path / "texts.csv").read_bytes().decode("utf-8-sig")),
        dtype=str,
    )
    bare = [text for text in written["text"] if not text.startswith(("'", "\\x"))]
    assert bare == []


PERSONAL = {
    "e-mail": "ann.example+orders@mail.example.org",
    "international": "+49 30 1234567",
    "North American": "(555) 010-0199",
    "German": "030/12345678",
    "Visa": "4111 1111 1111 1111",
    "Mastercard": "5555555555554444",
    "American Express": "378282246310005",
}
IMPERSONAL = [
    "4111 1111 1111 1112",
    "1767225600000",
    "2026-01-02T10:00:00Z",
    "10.2.0.14:8443",
    "550e8400-e29b-41d4-a716-446655440000",
    "duration 00:01:02.123456",
    "version 1.22.333-4444",
    "@scope/package",
    "3.14159265358979",
]


@pytest.mark.parametrize("kind", PERSONAL)
def test_personal_data_is_masked_if_that_was_asked_for(kind):
    """In text and in columns, by every redactor as long as one with the option lives; only then."""
    gc.collect()
    text = f"sent to {PERSONAL[kind]}, again"
    plain = Redactor(key=b"k")
    assert plain.text(text) == text
    personal = Redactor(key=b"k", mask_personal=True)
    for redactor in (personal, plain):
        assert redactor.text(text).startswith(
            f"sent to [masked len={len(PERSONAL[kind])} "
        )
        column = ColumnMasker(redactor).texts(pa.array([text] * 40))
        assert column[0].as_py() == redactor.text(text)
    assert re.search(PERSONAL_HINT, text)
    del personal, redactor
    gc.collect()
    assert plain.text(text) == text


def test_other_numbers_are_no_personal_data():
    """Times, versions, addresses, ids, and a card number whose check digit is wrong."""
    assert [text for text in IMPERSONAL if any(personal_spans(text))] == []


def test_connect_takes_the_option():
    """The redactor of the service has it; another type than bool is refused."""
    chosen = {
        "queue_url": "http://127.0.0.1:1",
        "queue_token": "t0ken-of-mine",
        "environ": {},
    }
    with tk.connect(**chosen, mask_personal=True) as service:
        assert service.redactor.masks_personal
        assert "ann@" not in service.redactor.text("ann@mail.example.org")
    with pytest.raises(SettingsError, match="mask_personal"):
        tk.connect(**chosen, mask_personal="yes")
    del service
    gc.collect()
    assert not Redactor(key=b"k").masks_personal


def test_counts_of_loaded_failures_are_printed_escaped() -> None:
    """Tables that the toolkit makes of texts from data escape them as loaded frames do; values stay exact."""
    mark = "\u202e"
    times = pd.to_datetime(["2026-01-01", "2026-01-02"], utc=True)
    failures = pd.DataFrame(
        {
            "dlq_id": [f"a{mark}", f"b{mark}"], "workflow_url": f"http://x/{mark}", "failed_at": times,
            "created_at": times, "response_body": f"no {mark} stock", "response_body_base64": None,
            "labels": [f'["l{mark}"]', None],
        }
    )  # fmt: skip
    for counted, column in (
        (tk.analysis.count_errors(failures), "text"),
        (tk.analysis.count_labels(failures), "label"),
        (tk.find_expiring(failures, "90d"), "workflow_url"),
        (
            tk.analysis.count_expiring(failures, "90d", by="workflow_url"),
            "workflow_url",
        ),
        (tk.analysis.count_over_time(failures, by="workflow_url"), "group"),
    ):
        assert mark not in repr(counted)
        assert mark not in counted[column].to_string()
        assert counted[column].str.contains(mark).any()


def test_long_names_in_tables_of_results_break_after_a_dot():
    """A cell narrower than the name of a class breaks no word of it; short names have no break."""
    long = "OutOfMemoryError at com.example.reports.PageBuffer.grow"
    markup = result_table("caption", ["title"], [[long], ["pricing.priceOf"]])
    assert "reports.<wbr>PageBuffer.<wbr>grow" in markup
    assert "pricing.priceOf" in markup
    assert long in markup.replace("<wbr>", "")


def test_tables_of_results_show_true_and_false_in_words():
    """As the frame does: 1 and 0 would be counts."""
    markup = result_table("caption", ["matches", "n"], [[True, 1], [np.False_, 0]])
    cells = re.findall(r"<td[^>]*>([^<]*)</td>", markup)
    assert cells == ["True", "1", "False", "0"]
