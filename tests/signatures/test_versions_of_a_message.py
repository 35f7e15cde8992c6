"""One failure that is written in several ways: zones, quotes, logs in JSON, and lists of causes."""

from __future__ import annotations

import json

import pytest

from toolkit.analysis import error_signatures, error_text
from toolkit.signatures.json_lines import read_json_lines
from toolkit.signatures.placeholders import with_placeholders
from toolkit.signatures.reading import read_document
from toolkit.signatures.signing import Learned, document_of, sign, sign_documents


def is_one_group(*texts: str) -> bool:
    """Whether all messages have one id."""
    return len(set(error_signatures(texts))) == 1


@pytest.mark.parametrize(
    "time",
    [
        "Sat Nov 27 19:02:14 EST 2004",
        "Tue Jun 01 04:05:06 BRT 2026",
        "Mon Jun 01 04:05:06 GMT+02:00 2026",
        "Sat Nov 27 07:02:14 PM CET 2004",
        "Sat, 27 Nov 2004 19:02:14 EST",
        "Sat Nov 27 2004 19:02:14 GMT-0500 (Eastern Standard Time)",
        "2026-01-02 03:04:05.999999999 +0100 CET",
        "2026-01-02 03:04:05 PDT",
        "Nov 27, 2004 7:02:14 PM CEST",
    ],
)
def test_the_zone_and_the_year_are_parts_of_a_time(time):
    """Wherever they stand: a zone changes twice a year, and would divide each group."""
    assert with_placeholders(f"since {time} no route") == "since <time> no route"


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("Nov 27 19:02 HTTP 5000", "<time> HTTP 5000"),
        ("at 10:00 GMT (late)", "at <time> (late)"),
        ("opened at 12:30 ESTIMATED", "opened at <time> ESTIMATED"),
        ("Nov 27 19:02:14 KERNEL 2004", "<time> KERNEL <num>"),
    ],
)
def test_words_after_a_time_stay(message, expected):
    """Words in capitals, also before four digits, and other words in brackets."""
    assert with_placeholders(message) == expected


@pytest.mark.parametrize(
    "others",
    [
        ['no field "total" in this table'],
        ["no field \u2018total\u2019 in this table"],
        ["no field \u201ctotal\u201d in this table"],
    ],
)
def test_quotes_of_any_style_are_one_message(others):
    """Libraries change their quotes, and GNU tools use those of the locale."""
    assert is_one_group("no field 'total' in this table", *others)
    assert not is_one_group(
        "no field 'total' in this table", "no field 'price' in this table"
    )


def test_names_in_quotes_of_two_styles_are_one_value():
    """Python writes "o'hara" in other quotes than 'ann'."""
    names = ("'ann'", "'bob'", "'eve'", '"o\'hara"')
    texts = [f"the user {name} has no access to this shop" for name in names]
    assert is_one_group(*texts)
    # a later message with the other quotes has a learned template
    first = sign(texts[:3])
    (group,) = {signature.id for signature in first.values()}
    learned = Learned().extended(first.values())
    (later,) = sign_documents([document_of(texts[3])], learned).values()
    assert later.id == group
    assert learned.extended([later]).exceptions == {}


def test_a_message_is_shown_with_its_quotes():
    """The title has the quotes of the message."""
    text = 'no field "total" in {"order": 7}'
    assert sign([text])[text].templates == ('no field "total" in {"order": <num>}',)


START = {"level": "info", "msg": "start", "time": 1}
FAILURE = {"level": "error", "msg": "no stock left", "time": 2}
END = {"level": "info", "msg": "exit code 1", "time": 3}


def log(*lines, end=""):
    """A log of JSON objects."""
    return "\n".join(map(json.dumps, lines)) + end


@pytest.mark.parametrize(
    "text",
    [
        log(START, FAILURE, END),
        log(START, FAILURE, END, end="\n"),
        log(START, FAILURE, END, end='\n{"level": "error", "msg": "cut o'),
        log(START, {"level": "warn", "msg": "slow"}, FAILURE),
        log({"level": 30, "msg": "start"}, {"level": 50, "msg": "no stock left"}),
        log(START, FAILURE, {"level": "error", "msg": "the job failed"}),
        log({"severity": "INFO", "message": "start"}, {"severity": "ERROR", "message": "no stock left"}),
        log({"level": "info", "event": "start"}, {"level": "error", "event": "no stock left"}),
        log({"@l": "Information", "@m": "start"}, {"@l": "Error", "@m": "no stock left"}),
        log({"msg": "start"}, {"msg": "no stock left", "error": "E7"}),
        log(START, END, {"level": "fatal", "msg": "no stock left"}, FAILURE | {"msg": "x"}),
    ],
)  # fmt: skip
def test_a_log_of_json_has_the_error_of_its_first_severe_line(text):
    """Whatever the logger calls the level. Without a level, the first line with an error counts."""
    assert "no stock left" in error_text(text).text
    assert "start" not in error_text(text).text


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ({"msg": "failed", "err": {"type": "StockError", "message": "no stock"}}, "StockError: no stock"),
        ({"event": "failed", "exc_info": "ValueError: no stock"}, "no stock"),
        ({"ok": False, "err": "no stock"}, "no stock"),
    ],
)  # fmt: skip
def test_keys_of_loggers_are_read(line, expected):
    """An error below `err`, and messages and traces of loggers."""
    text = log({"level": "info", "msg": "start"}, {"level": "error", **line})
    assert expected in error_text(text).text


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(FAILURE, indent=1),
        log(FAILURE),
        log(FAILURE) + "\nTraceback",
        log(FAILURE) + "\n{not JSON}",
        "[1]\n[2]",
    ],
)
def test_other_json_is_no_log(text):
    """One object on several lines, or an object before other text."""
    assert read_json_lines(text, read_document) is None


def test_a_log_without_errors_is_its_first_line():
    """As before, because nothing tells which line is the error."""
    assert error_text(log(START, END)).text == "start"


CHAIN = (
    "Error: could not render label\n\nCaused by:\n    0: loading the template mail\n"
    "    1: reading the folder\n    2: opening the store\n    3: {}"
)
ONE_LINE = (
    "Error: could not render label: loading the template mail: reading the folder: "
    "opening the store: {}"
)


def test_the_last_of_many_causes_is_read():
    """It is the root cause. The form of one line, which the same packages print, is the same group."""
    quota, denied = "disk quota exceeded", "permission denied"
    assert error_text(CHAIN.format(quota)).text == ONE_LINE.format(quota)
    assert is_one_group(CHAIN.format(quota), ONE_LINE.format(quota))
    assert not is_one_group(CHAIN.format(quota), CHAIN.format(denied))


@pytest.mark.parametrize("end", ["", "\n", "\n\nLocation:\n    src/main.rs:7:3"])
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_text_after_causes_does_not_count(end, line_end):
    """Nor a backtrace, whose files look like those of JavaScript."""
    plain = CHAIN.format("disk quota exceeded")
    backtrace = (
        "\n\nStack backtrace:\n   0: shop::main\n             at ./src/main.rs:12:5\n"
    )
    for text in (plain + end, plain + backtrace):
        written = text.replace("\n", line_end)
        assert error_text(written).text == ONE_LINE.format("disk quota exceeded")


def test_lines_of_a_cause_belong_together():
    """A single cause has no number, and long causes go on in the next line."""
    one = "Error: no label\n\nCaused by:\n    no template\n    in this folder"
    assert error_text(one).text == "Error: no label: no template in this folder"
    first = "Error: no label\n\nCaused by:\n    0: no template\n       in this folder\n    1: disk full"
    assert error_text(first).text.endswith("no template in this folder: disk full")


def test_of_very_long_causes_the_root_cause_is_read():
    """A message has at most 1,000 characters, which must not cut off the root cause."""
    causes = [f"    {number}: step {'x' * 90}" for number in range(30)]
    text = "\n".join(
        ["Error: no label", "", "Caused by:", *causes, "    30: disk full"]
    )
    assert error_text(text).text == "Error: no label: disk full"


PANIC = (
    "thread 'main' panicked at src/main.rs:9:33:\n"
    "called `Result::unwrap()` on an `Err` value: loading the config\n\nCaused by:\n"
    "    0: opening the store\n    1: reading the folder\n    2: {}\n"
    "stack backtrace:\n   0: rust_begin_unwind\n   1: shop::total\n             at ./src/main.rs:9:33\n"
)


def test_causes_of_a_panic_are_no_frames():
    """They are a part of the message; the frame comes from the backtrace."""
    document = read_document(PANIC.format("disk quota exceeded"))
    assert document.facts == ("rust", "panic", "at shop::total")
    (message,) = document.messages
    assert message.endswith(
        "loading the config: opening the store: reading the folder: disk quota exceeded"
    )
    assert not is_one_group(
        PANIC.format("disk quota exceeded"), PANIC.format("permission denied")
    )


def test_causes_of_java_are_no_list():
    """The cause follows in the line of the title."""
    java = "a.B: x\n\tat a.B.c(B.java:1)\nCaused by: a.C: y\n\tat a.C.d(C.java:2)\n"
    assert read_document(java).facts == ("java", "a.B", "a.C", "at a.C.d")
