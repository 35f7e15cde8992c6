"""Groups of failures: who belongs together, what is said of them, and that ids and rules stay."""

from __future__ import annotations

import json
import math
import time
import warnings
from datetime import UTC, datetime, timedelta
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import toolkit as tk
from tests.accuracy.log_lines import log_lines
from toolkit.analysis import error_signatures
from toolkit.errors import InputError, UnexpectedResultWarning
from toolkit.tables.frames import frame_from_rows, to_table
from toolkit.tables.schemas import FAILURES

START = datetime(2026, 3, 2, tzinfo=UTC)
SECRET = (
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U"
)


def failures(*bodies: str | None, **columns: list[Any]) -> pd.DataFrame:
    """Failures with these bodies, an hour apart, status 500 of workflow u unless said otherwise."""
    rows = [
        {
            "dlq_id": f"d{number}",
            "workflow_url": "u",
            "response_status": 500,
            "failed_at": START + timedelta(hours=number),
            "response_body": body,
            **{name: values[number] for name, values in columns.items()},
        }
        for number, body in enumerate(bodies)
    ]
    return frame_from_rows(rows, FAILURES)


def test_a_row_says_who_where_and_when():
    """Everything counted by hand, the same from pandas and Arrow."""
    rows = failures(
        "disk full", "no order 17", "no order 4", "no order 17",
        workflow_url=["u", "u", "v", "v"], response_status=[507, 404, 500, 404],
    )  # fmt: skip
    for source in (rows, to_table(rows, FAILURES)):
        groups = tk.group_failures(source).frame
        first = groups.iloc[0]
        assert groups["count"].tolist() == [3, 1]
        assert (first.title, first.template, first.kind) == ("no order <num>",) * 2 + (
            "message",
        )
        assert first.group == error_signatures(["no order 17"])[0]
        assert (first.workflows, first.statuses, first.share, first.cohesion) == (
            2,
            "404, 500",
            0.75,
            1.0,
        )
        assert (first.first_at, first.last_at) == (
            START + timedelta(hours=1),
            START + timedelta(hours=3),
        )
        assert json.loads(first.examples) == [
            {"dlq_id": "d3", "text": "no order 17"},
            {"dlq_id": "d2", "text": "no order 4"},
            {"dlq_id": "d1", "text": "no order 17"},
        ]
        assert groups["rule"].tolist() == [
            "texts with the same message but for its values",
            "texts with the same message",
        ]


def test_nothing_is_a_normal_result():
    """An empty frame has all columns with their types, and so has one row."""
    empty, one = tk.group_failures(failures()), tk.group_failures(failures("x"))
    assert empty.frame.dtypes.to_dict() == one.frame.dtypes.to_dict()
    assert repr(empty) == "0 failures in 0 groups"
    assert repr(one) == "1 failure in 1 group; the largest, 100 %: x"
    assert list(empty.assign(failures())) == [*failures(), "signature"]


@pytest.mark.parametrize(
    ("one", "two", "same"),
    [
        (None, None, False),
        ("", None, False),
        (
            "<html><title>Sorry</title></html>",
            "<html><title>Sorry</title></html>",
            False,
        ),
        ("{}", "{}", False),
        ("timed out", "timed out", True),
        ('{"message": "timed out"}', '{"message": "timed out"}', True),
    ],
)
def test_the_status_counts_where_the_body_says_little(one, two, same):
    """Empty bodies and pages of two statuses are two groups, messages are one."""
    found = tk.group_failures(failures(one, two, response_status=[502, 503])).frame
    assert (len(found) == 1) == same


def test_groups_with_the_same_message_have_different_titles():
    """The title names the field that a group is about, as the ids of the groups differ by it."""
    issue = (
        '{"error": {"issues": [{"code": "invalid_type", "path": ["%s"], "message": "Required"}],'
        ' "name": "ZodError"}}'
    )
    detail = '{"detail": [{"type": "missing", "loc": ["body", "%s"], "msg": "Field required"}]}'
    bodies = [text % field for text in (issue, detail) for field in ("email", "sku")]
    titles = tk.group_failures(failures(*bodies)).frame["title"]
    assert set(titles) == {
        "ZodError: Required (email)",
        "ZodError: Required (sku)",
        "missing: Field required (body.email)",
        "missing: Field required (body.sku)",
    }


def test_a_failure_without_a_status_had_no_response():
    """An empty body of a response is something else."""
    frame = failures(None, "", None, response_status=[None, None, 502])
    titles = tk.group_failures(frame).frame["title"]
    assert titles.tolist() == ["No response", "Empty body, status 502"]


def test_a_page_whose_heading_is_a_number_has_a_title():
    """Some frameworks show the status in large letters below the title of the page."""
    page = "<html><title>500: Internal Server Error</title><h1>500</h1><h2>Internal Server Error.</h2></html>"
    (title,) = tk.group_failures(failures(page)).frame["title"]
    assert title == "500: Internal Server Error (status 500)"


def test_bodies_that_are_not_text_are_binary():
    """They are grouped by status, with their length as example."""
    found = tk.group_failures(
        failures(None, None, response_body_base64=["/w==", "//8="])
    ).frame
    assert found["kind"].tolist() == ["binary"]
    assert [one["text"] for one in json.loads(found["examples"][0])] == [
        "binary, 2 bytes",
        "binary, 1 bytes",
    ]


@pytest.mark.parametrize(
    "bodies",
    [
        [
            '{"outcome": "card declined by the bank", "run": 1}',
            '{"outcome": "parcel has no label", "run": 2}',
        ],
        [
            "<html><title>Oops</title><body><p>the card was declined by the bank</p></body></html>",
            "<html><title>Oops</title><body><p>the parcel has no label</p></body></html>",
        ],
    ],
)
def test_cohesion_is_low_if_a_finer_reading_would_separate(bodies):
    """Bodies of no known form are one group by their keys or title, and the cohesion shows the doubt."""
    groups = tk.group_failures(failures(*bodies))
    assert len(groups.frame) == 1
    assert groups.frame["cohesion"].max() < 1


def test_cohesion_is_low_where_members_differ():
    """A group whose words vary is less cohesive than one of equal texts."""
    names = ["ann", "bob", "eve", "joe"]
    rows = failures(
        *(f"user '{name}' is locked out by {name}-{name}" for name in names),
        *["disk full"] * 5,
    )
    found = tk.group_failures(rows).frame.set_index("title")["cohesion"]
    assert found["disk full"] == 1.0
    assert 0 < found.drop("disk full").max() < 1.0


@pytest.mark.parametrize(
    "body",
    [
        None, "", " ", "{" * 100_000,
        "[" * 5000 + "]" * 5000, '{"a":' * 500 + "1" + "}" * 500, "x" * 10_000_000,
        r'{"message": "\ud800 lone"}', "\ufeff{}", "null", '"', "\0", "a b " * 100_000, "<html>" * 20_000,
    ],
)  # fmt: skip
def test_any_body_is_grouped_in_bounded_time(body):
    """Hostile bodies among others, without statuses, times or workflows."""
    rows = failures(
        "y",
        "x",
        response_status=[None, None],
        failed_at=[None, None],
        workflow_url=[None, None],
    )
    rows["response_body"] = pd.Series([body, "x"], dtype="str")
    started = time.process_time()
    groups = tk.group_failures(rows)
    assert time.process_time() - started < 20
    assert groups.frame["count"].sum() == 2
    assert groups.frame["cohesion"].between(0, 1).all()
    assert f"{groups!r}{groups._repr_html_()}{json.dumps(groups.learned)}".encode()
    assert (
        tk.group_failures(rows, rules=groups.rules).frame["group"].tolist()
        == groups.frame["group"].tolist()
    )


@pytest.mark.slow
def test_failures_that_all_differ_take_linear_time():
    """Thousands of groups, and a notebook that shows the largest of them."""
    rows = failures(
        *(
            f"{chr(97 + n % 26)}{'xyz'[n % 3]} {n:b}".translate({48: "o", 49: "i"})
            for n in range(8000)
        )
    )
    started = time.process_time()
    groups = tk.group_failures(rows)
    assert time.process_time() - started < 20
    assert len(groups.frame) > 5000
    assert groups._repr_html_().count("<tr>") < 60


def test_markup_in_bodies_is_shown_as_text():
    """Tags and signs that turn text around do nothing in notebooks."""
    shown = tk.group_failures(
        failures('{"message": "<img src=x onerror=alert()> \u202e"}')
    )._repr_html_()
    assert "<img" not in shown
    assert "\u202e" not in shown


@pytest.mark.parametrize(
    "body",
    [
        f"token {SECRET} was refused",
        json.dumps({"message": f"token {SECRET} was refused"}),
        json.dumps({"message": json.dumps({"error": f"Bearer {SECRET}"})}),
        f"<html><title>no {SECRET}</title></html>",
        f"ValueError: {SECRET}\n    at run (/app/a.js:1:1)",
        json.dumps({"code": SECRET, "message": "refused"}),
        "".join(f"\\u{ord(letter):04x}" for letter in SECRET).join(
            ('{"message": "no ', '"}')
        ),
    ],
)
def test_no_secret_is_in_groups_nor_in_what_is_learned(body, tmp_path):
    """Nor in a rules file, where a user wrote it."""
    groups = tk.group_failures(
        failures(body, body),
        rules=tk.GroupRules(f'name s1-5f0c9a3b12de "with {SECRET}"'),
    )
    groups.rules.save(tmp_path / "groups.txt")
    shown = [
        groups.frame.to_csv(),
        repr(groups),
        groups._repr_html_(),
        json.dumps(groups.learned),
    ]
    assert SECRET not in "".join(
        [*shown, (tmp_path / "groups.txt").read_text(), repr(groups.rules)]
    )
    assert SECRET.partition(".")[2] not in "".join(shown)


def test_assign_gives_each_failure_its_group():
    """In a copy, rows that were not grouped among them."""
    rows = failures("no order 1", "disk full", "no order 2")
    groups = tk.group_failures(rows.head(2))
    found = groups.assign(rows)
    assert "signature" not in rows
    assert found["signature"][0] == found["signature"][2] != found["signature"][1]
    assert set(found["signature"]) == set(groups.frame["group"])
    assert found.index.equals(rows.index)
    with pytest.raises(InputError, match="failures"):
        groups.assign([1])


def test_rules_name_merge_split_and_pin():
    """In the order of the lines; a later merge does not bring back what was split off."""
    rows = failures(
        "no order 1", "no order 2", "disk full", "timed out", "timed out", "timed out",
        workflow_url=["a", "b", "a", "a", "a", "a"],
    )  # fmt: skip
    order, disk, late = error_signatures(["no order 1", "disk full", "timed out"])
    rules = tk.GroupRules(
        f"""
        # what we know of
        split {order} where workflow_url = b
        merge {order} into {disk}   # one cause
        name {disk} "Storage # 1 is full"
        pin {disk}
        pin s1-000000000000
        """
    )
    groups = tk.group_failures(rows, rules=rules)
    found = groups.frame
    assert found["count"].tolist() == [2, 3, 1]
    assert found["group"].tolist()[:2] == [disk, late]
    assert found["title"][0] == "Storage # 1 is full"
    assert "1 other group merged in" in found["rule"][0]
    assert "split off by a rule: workflow_url = b" in found["rule"][2]
    assert found["cohesion"][0] < 1
    assert groups.assign(rows)["signature"].value_counts().to_dict() == {
        disk: 2,
        late: 3,
        found["group"][2]: 1,
    }
    body = tk.group_failures(
        rows, rules=tk.GroupRules(f'split {late} where body contains "out"')
    ).frame
    assert "body contains" in body["rule"][0]
    status = tk.group_failures(
        rows, rules=tk.GroupRules(f"split {late} where response_status = 500")
    ).frame
    assert status["group"][0] not in {order, disk, late, body["group"][0]}


def test_a_split_by_the_body_of_the_response_has_two_names():
    """`response_body` as in frames, and `body`: the same rule, and so the same group."""
    rows = failures(
        "timed out", "timed out", "disk full", body=["customer", None, None]
    )
    (late,) = error_signatures(["timed out"])
    split = [
        tk.group_failures(
            rows, rules=tk.GroupRules(f"split {late} where {name} contains out")
        )
        for name in ("body", "response_body")
    ]
    for groups in split:
        assert late not in groups.frame["group"].tolist()
        assert 'response_body contains "out"' in groups.frame["rule"][0]
    assert split[0].frame.equals(split[1].frame)


def test_a_split_by_label_takes_any_of_the_labels(tmp_path):
    """A failure of several labels is among those of each; of a pandas frame, and of a snapshot."""
    labels = ['["shop","eu"]', '["eu"]', None, '["eu","shop"]', '["shop"]']
    rows = failures(
        *["timed out"] * 5, labels=labels, label=[None, "eu", None, None, "shop"]
    )
    (late,) = error_signatures(["timed out"])
    tk.write_snapshot(rows, tmp_path / "kept")
    for name in ("label", "labels"):
        rules = tk.GroupRules(f"split {late} where {name} = shop")
        groups = tk.group_failures(rows, rules=rules)
        assert groups.frame["count"].tolist() == [3, 2]
        (shop,) = {*groups.frame["group"]} - {late}
        assert groups.assign(rows)["signature"].tolist() == [
            shop,
            late,
            late,
            shop,
            shop,
        ]
        assert tk.group_failures(tmp_path / "kept", rules=rules).frame.equals(
            groups.frame
        )
        single = tk.group_failures(rows.drop(columns="labels"), rules=rules).frame
        assert single.set_index("group")["count"].to_dict() == {late: 4, shop: 1}
        both = tk.compare_failures(
            rows[:3], rows[3:].drop(columns="labels"), rules=rules
        ).frame
        assert both.set_index("group")[["before", "after"]].sum().tolist() == [3, 2]
    none = tk.group_failures(
        rows, rules=tk.GroupRules(f'split {late} where label = ""')
    ).frame
    assert none["count"].tolist() == [4, 1]


@pytest.mark.parametrize("where", ["response_body contains customer", "label = shop"])
def test_a_split_that_changes_nothing_is_said(where):
    """Of a group that is there; groups that do not occur, and what is split off and merged, are fine."""
    rows = failures("timed out", "disk full", labels=['["eu"]', None])
    late, full = error_signatures(["timed out", "disk full"])
    with pytest.warns(
        UnexpectedResultWarning, match=f"splits {late} changes nothing"
    ) as caught:
        tk.group_failures(rows, rules=tk.GroupRules(f"split {late} where {where}"))
    assert [warning.filename for warning in caught] == [__file__]
    rules = f"""
        split s5-000000000000 where {where}
        split {late} where response_body contains out
        split {full} where response_body contains disk
        """
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        groups = (
            tk.group_failures(rows, rules=tk.GroupRules(rules)).frame["group"].tolist()
        )
        tk.group_failures(
            rows, rules=tk.GroupRules(f"{rules}merge {groups[0]} into {groups[1]}")
        )
    assert {late, full}.isdisjoint(groups)


def test_a_rules_file_is_read_and_written_as_it_is(tmp_path):
    """Comments and unknown ids stay; what was learned is on one line at the end."""
    path = tmp_path / "groups.txt"
    path.write_text(
        '# ours\n\nname s1-5f0c9a3b12de "Träge Datenbank"\n', encoding="utf-8"
    )
    groups = tk.group_failures(failures("no order 1"), rules=path)
    groups.rules.save(path)
    *lines, learned = path.read_text(encoding="utf-8").splitlines()
    assert lines == ["# ours", "", 'name s1-5f0c9a3b12de "Träge Datenbank"']
    assert json.loads(learned.removeprefix("learned ")) == groups.learned
    again = tk.GroupRules.read(path)
    assert again == groups.rules
    assert repr(again) == "GroupRules(1 rule, 1 template learned)"
    assert (
        tk.group_failures(failures("no order 1"), rules=str(path)).learned
        == groups.learned
    )


@pytest.mark.parametrize(
    "line",
    [
        "nonsense", 'name s1-5f0c9a3b12de ""', "name s1-5f0c9a3b12de 'open", "merge s1-5f0c9a3b12de",
        "merge s1-5f0c9a3b12de into s1-5f0c9a3b12de", "merge s1-5f0c9a3b12de into x", "pin x",
        "split s1-5f0c9a3b12de where body = x", "split s1-5f0c9a3b12de where response_body = x",
        "learned {", "learned []",
    ],
)  # fmt: skip
def test_an_error_names_the_line(line, tmp_path):
    """And says what a rule looks like."""
    path = tmp_path / "groups.txt"
    path.write_text(f"# one\n\n{line}\n", encoding="utf-8")
    with pytest.raises(InputError, match="rules, line 3"):
        tk.group_failures(failures("x"), rules=path)


@pytest.mark.parametrize(
    "learned",
    [
        5,
        {"templates": 5},
        {"frames": [["a"]]},
        {"rules_version": 99},
        {"exceptions": {"a": None}},
    ],
)
def test_what_was_not_learned_is_refused(learned):
    """Of another shape or version."""
    with pytest.raises(InputError, match="learned"):
        tk.GroupRules(learned=learned)


@pytest.mark.parametrize("rules", ["no such file", "", 5, b"x", "a\0b", {}])
def test_rules_that_cannot_be_read_are_an_error(rules):
    """Which names the argument."""
    with pytest.raises(InputError, match="rules"):
        tk.group_failures(failures("x"), rules=rules)


@pytest.mark.slow
def test_what_is_learned_keeps_every_id():
    """Grouped again among ten times as many others, all failures keep their ids."""
    texts, _ = log_lines(6000, seed=5)
    first = tk.group_failures(failures(*texts[:600]))
    before = first.assign(failures(*texts[:600]))["signature"].tolist()
    again = tk.group_failures(
        failures(*texts),
        rules=tk.GroupRules(learned=json.loads(json.dumps(first.learned))),
    )
    assert again.assign(failures(*texts))["signature"].tolist()[:600] == before
    assert set(before) <= set(again.frame["group"])
    assert again.assign(failures(*texts[:600]))["signature"].tolist() == before


WORDS = st.sampled_from(
    [
        "user",
        "'ann'",
        "'bob'",
        "'eve'",
        "Job-A",
        "Job-B",
        "Job-C",
        "was",
        "lost",
        "x=1",
        "host",
    ]
)
TEXTS = st.lists(st.lists(WORDS, min_size=1, max_size=6).map(" ".join), max_size=40)


@pytest.mark.slow
@settings(max_examples=25)
@given(TEXTS, TEXTS, TEXTS)
def test_adding_data_never_renames_a_group(first, second, third):
    """With what was learned, whatever the texts are and in whatever batches they come."""
    rules = None
    ids: dict[str, str] = {}
    for texts in (first, second, third, first):
        groups = tk.group_failures(failures(*texts), rules=rules)
        for text, group in zip(
            texts, groups.assign(failures(*texts))["signature"], strict=True
        ):
            assert ids.setdefault(text, group) == group
        rules = groups.rules


def test_minified_code_keeps_the_frame_it_was_given():
    """Another trace of the same error later does not rename a trace without names."""
    plain = "TypeError: x is not a function\n    at charge (/app/pay.js:10:5)"
    other = "TypeError: x is not a function\n    at refund (/app/pay.js:20:5)"
    packed = "TypeError: x is not a function\n    at t (/app/a.js:1:90210)"
    first = tk.group_failures(failures(plain, packed))
    assert len(first.frame) == 1
    later = tk.group_failures(failures(plain, other, packed), rules=first.rules)
    assert later.frame["count"].tolist() == [2, 1]
    assert len(tk.group_failures(failures(plain, other, packed)).frame) == 3


@pytest.mark.slow
def test_the_sample_history_is_a_few_groups(sample_service):
    """Thousands of failures are a page of groups; each of the stories' errors is one of the largest."""
    loaded = tk.load_failures(sample_service, progress=False)
    found = tk.group_failures(loaded).frame
    assert len(found) <= 30
    assert found["count"].sum() == len(loaded)
    assert math.isclose(found["share"].sum(), 1)
    assert found["share"].head(4).sum() > 0.6
    assert {"currency", "Java heap space"} <= {
        word
        for word in ("currency", "Java heap space")
        if found["title"].head(5).str.contains(word).any()
    }


@pytest.mark.parametrize(
    "values",
    [[1, 2, 3], pd.date_range("2026-01-01", periods=3), ["own", None, "names"]],
)
def test_a_column_of_the_same_name_is_no_signature(values):
    """A frame of a user may have a column `signature` that holds something else."""
    frame = failures("boom", "boom", "other")
    named = frame.assign(signature=values)
    groups = tk.group_failures(frame).frame
    pd.testing.assert_frame_equal(tk.group_failures(named).frame, groups)
    pd.testing.assert_frame_equal(tk.group_failures(pa.table(named)).frame, groups)
    now = START + timedelta(hours=4)
    assert (
        tk.report_failures(named, now=now).verdict
        == tk.report_failures(frame, now=now).verdict
    )


def test_a_result_used_as_a_table_names_its_frame():
    """`groups.head()` and `groups[0]` are what a reader of pandas tries first."""
    groups = tk.group_failures(failures("disk full"))
    with pytest.raises(AttributeError, match=r"\.frame\.head"):
        groups.head()
    with pytest.raises(TypeError, match=r"\.frame\.iloc\[0\]"):
        groups[0]
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        groups.nonsense  # noqa: B018 - the access is the test
