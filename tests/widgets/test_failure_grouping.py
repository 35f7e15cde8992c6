"""Groups in the failure browser: listed, opened, merged and split by rules in a file."""

from __future__ import annotations

from datetime import UTC, datetime

import anywidget
import ipywidgets as widgets
import pandas as pd
import pytest

import toolkit as tk
from toolkit import FailurePanel, FailureView
from toolkit.errors import InputError

BODIES = [
    "TypeError: Cannot read properties of undefined (reading 'currency')",
    "TypeError: Cannot read properties of undefined (reading 'price')",
    "no space left on device",
    "quota of tenant 17 is used up",
]
COUNTS = (40, 20, 10, 5)
START = datetime(2026, 3, 10, tzinfo=UTC)


@pytest.fixture
def many(make):
    """Failures of four kinds, an hour apart, the largest kind first; two workflows, by turns."""
    rows = []
    for body, count in zip(BODIES, COUNTS, strict=True):
        for number in range(count):
            when = pd.Timestamp(START) + pd.Timedelta(hours=number)
            rows.append(
                {
                    "dlq_id": f"d{len(rows)}", "workflow_url": f"https://a.example/{'ab'[number % 2]}",
                    "response_status": 500, "response_body": body, "failed_at": when, "created_at": when,
                }
            )  # fmt: skip
    return make(rows)


@pytest.fixture
def browser(many):
    """A browser that has read its groups."""
    browser = FailurePanel(many)
    browser.groups()
    browser._show_groups()
    return browser


def named(browser):
    """The ids of the groups, the largest first."""
    return browser.groups().frame["group"].tolist()


def tick(browser, group):
    """What the page sends when a group is added to the chosen ones, or taken away."""
    browser.receive({"kind": "toggle", "group": group})


def brush(browser, *ends):
    """What the page sends when bars of the trend were chosen."""
    browser.receive({"kind": "range", "ends": list(ends)})


def test_a_list_without_groups_says_that_they_are_being_read(many):
    """Until they were read; after an error, the panel shows that instead."""
    browser = FailurePanel(many)
    assert browser.board["waiting"]
    browser.groups()
    browser._show_groups()
    assert not browser.board["waiting"]
    browser = FailurePanel(many)
    browser._groups_failed(InputError("grouping", got="nothing", expected="something"))
    assert (browser.board["waiting"], "grouping" in browser.message) == (False, True)


def test_the_board_is_one_widget_in_layouts_and_links(many):
    """It is an AnyWidget without children; boxes contain it, `observe` and `link` work on the value."""
    browser, other = FailurePanel(many), FailurePanel(many)
    assert isinstance(browser, anywidget.AnyWidget)
    assert not hasattr(browser, "children")
    assert widgets.VBox([browser]).children == (browser,)
    seen = []
    browser.observe(lambda change: seen.append(change["new"]), "value")
    widgets.link((browser, "value"), (other, "value"))
    browser.receive({"kind": "search", "text": "quota"})
    assert other.value == browser.value == seen[-1] == FailureView(search="quota")
    assert other.view["search"] == "quota"


def test_groups_are_listed_with_counts_times_and_bars(browser):
    """As `group_failures` counts them; the bars of a group add up to the count, of states to all."""
    rows = browser.board["groups"]
    assert [row["count"] for row in rows] == list(COUNTS)
    assert [row["id"] for row in rows] == named(browser)
    assert [(row["first"], row["last"]) for row in rows] == [
        ("10 Mar", "11 Mar"), ("10 Mar", "10 Mar"), ("10 Mar", "10 Mar"), ("10 Mar", "10 Mar"),
    ]  # fmt: skip
    assert [sum(row["bars"]) for row in rows] == list(COUNTS)
    assert {row["state"] for row in rows} == {"ended"}
    assert rows[2]["title"] == "no space left on device"
    assert rows[0]["where"] == "a, b"
    assert sum(browser.trend["counts"]) == sum(COUNTS)
    assert [part["kind"] for part in browser.trend["series"]] == ["other"]


def test_a_group_is_searched(browser):
    """The list has the groups in which a search finds failures, also if other groups are chosen."""
    groups = named(browser)
    browser.receive({"kind": "search", "text": "QUOTA"})
    assert browser.board["hits"] == {groups[3]: 5}
    assert len(browser.found()) == 5
    tick(browser, groups[0])
    assert browser.board["hits"] == {groups[3]: 5}
    assert len(browser.found()) == 0
    browser.value = FailureView()
    assert browser.board["hits"] is None


def test_a_group_shows_what_its_failures_share(many, seen):
    """Values that all have, without the workflows that differ; the place in the code; the usual rate."""
    start = many["failed_at"].max()
    browser = FailurePanel(many, now=start.to_pydatetime())
    browser.groups()
    browser._show_groups()
    browser.show_failure("d0")
    assert browser.about["id"] == named(browser)[0]
    assert "status 500" in browser.about["shares"]
    assert not {"a", "b"} & {*browser.about["shares"]}
    # one per hour, as in the hours before
    assert browser.about["rate"] == "25 in 24 hours, usually 24"


def test_a_load_of_one_day_does_not_tell_what_is_new(many, seen):
    """Each group begins in it, which is said, and the usual rate is not known. With older failures, it is."""
    start = many["failed_at"].min()
    remark = "each group counts as new"
    last_day = many[many["failed_at"] < start + pd.Timedelta(hours=23)]
    browser = FailurePanel(last_day, now=last_day["failed_at"].max().to_pydatetime())
    browser.groups()
    browser._show_groups()
    assert {row["state"] for row in browser.board["groups"]} == {"new"}
    assert browser.about["rate"].endswith(" in 24 hours, nothing earlier is loaded")
    assert remark in browser.view["remarks"]
    whole = FailurePanel(many, now=many["failed_at"].max().to_pydatetime())
    assert remark not in whole.view["remarks"]


def test_a_group_shows_the_labels_that_all_its_failures_have(make):
    """Labels are a list per failure. A label of some failures is not shared, and one of the old field is."""
    labels = ['["release-4.2.0","eu"]'] * 5 + ['["us","release-4.2.0"]']
    rows = [
        {"dlq_id": f"d{number}", "response_body": "disk full", "labels": text}
        for number, text in enumerate(labels)
    ]
    rows.append(
        {"dlq_id": "d9", "response_body": "disk full", "label": "release-4.2.0"}
    )
    browser = FailurePanel(make(rows))
    browser.groups()
    browser._show_groups()
    assert browser.about["shares"] == ["label release-4.2.0"]


def test_a_header_of_nearly_all_failures_is_not_shared_by_all(make):
    """One of 1,000 failures has another value, which a sample of the rows may miss."""
    rows = [
        {
            "dlq_id": f"d{number}",
            "response_body": "disk full",
            "response_headers": '{"Content-Type":["text/plain"],"Server":["app"]}',
        }
        for number in range(1000)
    ]
    rows[3]["response_headers"] = '{"Content-Type":["text/plain"],"Server":["edge"]}'
    rows[7]["response_headers"] = '{"Server": ["app"], "Content-Type": ["text/plain"]}'
    browser = FailurePanel(make(rows))
    browser.groups()
    browser._show_groups()
    assert browser.about["shares"] == ["response header Content-Type = text/plain"]


def test_a_group_opens_into_its_failures(browser, many):
    """A ticked group's failures are shown, of two groups those of both; the value's code makes it again."""
    groups = named(browser)
    tick(browser, groups[2])
    assert set(browser.found()["response_body"]) == {BODIES[2]}
    assert sum(browser.trend["counts"]) == 10
    tick(browser, groups[3])
    assert set(browser.found()["response_body"]) == {BODIES[2], BODIES[3]}
    again = FailurePanel(many, value=eval(browser.value.to_code()))  # noqa: S307 - our own code
    pd.testing.assert_frame_equal(again.found(), browser.found())
    tick(browser, groups[2])
    assert browser.value.groups == (groups[3],)
    browser.press("All groups")
    assert len(browser.found()) == 75
    assert browser.value.groups == ()


def test_a_bar_filters_the_table_by_time(browser):
    """From the start of the first bar to the end of the last; an empty range is all times."""
    starts, width = browser.trend["starts"], browser.trend["width"]
    brush(browser, starts[2], starts[3] + width - 1)
    times = browser.found()["failed_at"]
    assert times.min() == pd.Timestamp(starts[2], unit="ms", tz="UTC")
    assert times.max() < pd.Timestamp(starts[3] + width, unit="ms", tz="UTC")
    assert len(times) == sum(browser.trend["counts"][2:4])
    view = browser.value
    browser.value = FailureView()
    assert browser.trend["selection"] == []
    browser.value = view
    assert browser.trend["selection"] == [starts[2], starts[3] + width - 1]
    brush(browser)
    assert len(browser.found()) == 75
    assert (browser.value.since, browser.value.until) == (None, None)


def test_more_like_this_chooses_the_group_and_similar_ones(browser):
    """The group of the failure shown, and the group with a similar message; not the others."""
    groups = named(browser)
    browser.show_failure("d0")
    browser.press("More like this")
    assert set(browser.value.groups) == set(groups[:2])
    assert "1 group" in browser.message
    browser.show_failure("d70")
    browser.press("More like this")
    assert browser.value.groups == (groups[3],)


def test_a_merge_and_a_split_write_the_rules_file(browser, many, tmp_path):
    """The file makes the same groups with `group_failures`; so does the code that is shown."""
    path = tmp_path / "rules.txt"
    groups = named(browser)
    browser._grouping.choose(str(path))
    tick(browser, groups[0])
    tick(browser, groups[2])
    browser.press("Merge groups")
    assert path.read_text().startswith(f"merge {groups[2]} into {groups[0]}\n")
    assert browser.value.groups == (groups[0],)
    assert len(browser.found()) == 50
    assert f"Written to {path}" in browser.message
    browser.show_failure("d1")
    browser.split_by = "workflow_url"
    browser.press("Split off this")
    counts = browser.groups().frame["count"].tolist()
    assert counts == [25, 25, 20, 5]
    pd.testing.assert_frame_equal(
        tk.group_failures(many, rules=path).frame, browser.groups().frame
    )
    names = {"tk": tk, "failures": many}
    exec(browser._grouping.code(), names)  # noqa: S102 - our own code
    pd.testing.assert_frame_equal(names["groups"].frame, browser.groups().frame)
    browser.press("Undo")
    assert browser.groups().frame["count"].tolist() == [50, 20, 5]
    assert "split" not in path.read_text()


def test_rules_without_a_file_are_code(browser, many):
    """The code that is shown makes the same groups."""
    groups = named(browser)
    browser.value = FailureView(groups=groups[:2])
    browser.press("Merge groups")
    names = {"tk": tk, "failures": many}
    exec(browser._grouping.code(), names)  # noqa: S102 - our own code
    assert names["groups"].frame["count"].tolist() == [60, 10, 5]
    assert "GroupRules" in browser.rules_code()


def test_what_others_wrote_into_the_file_stays(browser, many, tmp_path):
    """Lines added by hand meanwhile, names and comments, are still there after a merge, and hold."""
    path = tmp_path / "rules.txt"
    groups = named(browser)
    path.write_text(f'name {groups[0]} "Currency"  # since March\n')
    browser.receive({"kind": "rules", "path": str(path)})
    assert browser.groups().frame["title"].iloc[0] == "Currency"
    with path.open("a") as file:
        file.write(f"pin {groups[3]}\n")
    browser.value = FailureView(groups=groups[:2])
    browser.press("Merge groups")
    assert browser.groups().frame["group"].tolist() == [groups[3], groups[0], groups[2]]
    assert path.read_text().splitlines()[:3] == [
        f'name {groups[0]} "Currency"  # since March', f"pin {groups[3]}",
        f"merge {groups[1]} into {groups[0]}",
    ]  # fmt: skip
    again = FailurePanel(many, rules=path)
    pd.testing.assert_frame_equal(again.groups().frame, browser.groups().frame)


def test_rules_made_before_a_file_was_chosen_are_written_into_it(browser, tmp_path):
    """Nothing is lost by choosing late; a path that cannot be written is said, and can be replaced."""
    groups = named(browser)
    browser.value = FailureView(groups=groups[:2])
    browser.press("Merge groups")
    browser.receive({"kind": "rules", "path": str(tmp_path / "no" / "rules.txt")})
    assert "writing rules" in browser.message
    assert len(browser.groups().frame) == 3
    path = tmp_path / "rules.txt"
    browser.receive({"kind": "rules", "path": str(path)})
    assert f"merge {groups[1]} into {groups[0]}" in path.read_text()


@pytest.mark.parametrize(
    "text", ["merge nothing", "\ufeffname x", "split s1-5f0c9a3b12de by label"]
)
def test_a_file_that_is_no_rules_file_is_refused(browser, many, tmp_path, text):
    """The file stays as it is, the groups too, and the message says which line."""
    path = tmp_path / "notes.txt"
    path.write_text(text)
    before = browser.groups().frame
    browser.receive({"kind": "rules", "path": str(path)})
    assert "line 1" in browser.message
    assert path.read_text() == text
    pd.testing.assert_frame_equal(browser.groups().frame, before)
    browser.value = FailureView(groups=named(browser)[:2])
    browser.press("Merge groups")
    assert len(browser.groups().frame) == 3
    assert path.read_text() == text
    with pytest.raises(InputError, match="line 1"):
        FailurePanel(many, rules=path)


def test_a_failure_stays_in_sight_when_it_is_split_off(browser):
    """Its new group is ticked beside the one that it was in; what was done is said once."""
    first = named(browser)[0]
    tick(browser, first)
    shown = browser.found()["dlq_id"].tolist()
    browser.show_failure(shown[0])
    browser.split_by = "workflow_url"
    browser.press("Split off this")
    assert len(browser.value.groups) == 2
    assert browser.found()["dlq_id"].tolist() == shown
    assert "Split by" in browser._status.value
    assert "Split by" not in browser.rules_code()


def test_nothing_to_merge_split_or_undo_is_said(browser, make):
    """One group cannot be merged, a value that is missing cannot be split by, nothing is undone."""
    tick(browser, named(browser)[0])
    browser.press("Merge groups")
    assert "two or more" in browser.message
    browser.split_by = "label"
    browser.press("Split off this")
    assert "no value" in browser.message
    browser.press("Undo")
    assert "Nothing to undo" in browser.message
    empty = FailurePanel(make([]))
    empty.press("More like this")
    assert "No failure is shown" in empty.message
    assert len(empty.groups().frame) == 0


def test_a_split_that_would_take_the_whole_group_is_refused(browser, tmp_path):
    """By a value that all have nothing is split off: no rule is written; another column can be chosen."""
    path = tmp_path / "rules.txt"
    browser._grouping.choose(str(path))
    before = browser.groups().frame
    browser.show_failure("d0")
    browser.split_by = "response_status"
    for _ in range(2):
        browser.press("Split off this")
    assert browser.message == (
        "All 40 failures of this group have this response_status; choose another column."
    )
    assert not path.exists()
    pd.testing.assert_frame_equal(browser.groups().frame, before)
    browser.split_by = "workflow_url"
    browser.press("Split off this")
    assert path.read_text().count("split ") == 1
    browser.press("Split off this")  # all of the new group have it
    assert (
        browser.message
        == "All 20 failures of this group have this workflow_url; choose another column."
    )
    assert path.read_text().count("split ") == 1


def test_a_secret_does_not_get_into_a_rule(make, tmp_path):
    """A value that is masked cannot be split by, and is not written."""
    secret = "Bearer " + "abcdef0123456789" * 3
    row = {
        "response_status": 500,
        "response_body": "x",
        "label": secret,
        "failed_at": pd.Timestamp(START),
    }
    path = tmp_path / "rules.txt"
    browser = FailurePanel(
        make([row | {"dlq_id": "a"}, row | {"dlq_id": "b", "label": "y"}]), rules=path
    )
    browser.show_failure("a")
    browser.split_by = "label"
    browser.press("Split off this")
    assert "a secret" in browser.message
    assert not path.exists()
    assert len(browser.groups().frame) == 1


def test_a_frame_without_bodies_has_no_groups():
    """Rows can still be searched and sorted."""
    browser = FailurePanel(pd.DataFrame({"dlq_id": ["a"], "label": ["x"]}))
    assert not browser.board["possible"]
    assert len(browser.found()) == 1
    with pytest.raises(InputError):
        FailurePanel(pd.DataFrame({"dlq_id": ["a"]}), rules=7)


def test_a_burst_is_cut(make):
    """A bar fifty times the others ends above them."""
    rows = [
        {
            "dlq_id": f"d{number}",
            "response_body": "x",
            "failed_at": pd.Timestamp(START) + pd.Timedelta(hours=hour),
        }
        for number, hour in enumerate([*range(20), *[20] * 50])
    ]
    browser = FailurePanel(make(rows))
    browser.groups()
    browser._show_groups()
    assert browser.trend["limit"] < max(browser.trend["counts"]) == 50
