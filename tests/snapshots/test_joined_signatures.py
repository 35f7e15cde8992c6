"""Groups of a snapshot do not depend on the windows, parts and order in which their failures were loaded."""

from __future__ import annotations

import json
import random
from types import SimpleNamespace
from zoneinfo import ZoneInfo

import pandas as pd
import pytest

import toolkit as tk
from toolkit.analysis import error_signatures
from toolkit.cli import main
from toolkit.errors import InputError
from toolkit.signatures.signing import Learned, document_of, sign
from toolkit.snapshots.manifest import read_manifest
from toolkit.snapshots.syncing import sync_load
from toolkit.widgets.failure_grouping import FailureGrouping

FRUITS = ("apples", "pears", "plums", "figs", "kiwis", "limes")
NAMES = ("ann", "bob", "eve", "joe", "kim", "lee")
BODIES = (
    *(f"no stock for {fruit} today" for fruit in FRUITS),
    *(f'{{"error": "user {name} is locked", "code": 7}}' for name in NAMES),
    *(f"transfer of {name} to shelf {fruit} was refused" for name, fruit in zip(NAMES, FRUITS, strict=True)),
    "disk full", "no order 17", "no order 4711", "", "<html><title>502 Bad Gateway</title></html>",
)  # fmt: skip


def _entries(made, bodies):
    return [
        made.entry(f"d{body}", response_body=body or None, response_status=500)
        for body in bodies
    ]


def _pages(entries, size):
    return [entries[start : start + size] for start in range(0, len(entries), size)]


def _ids(store):
    """The id of each body."""
    frame = tk.read_snapshot(store.path)
    bodies = frame["response_body"].fillna("")
    return dict(zip(bodies, frame["signature"], strict=True))


def _in_order(order):
    bodies = list(BODIES)
    if order == "shuffled":
        random.Random(7).shuffle(bodies)
    if order == "reversed":
        bodies.reverse()
    return bodies


def _expected():
    """The ids of all bodies in one frame, except that the status is part of a body that tells little."""
    told = [body for body in BODIES if body and not body.startswith("<")]
    return dict(zip(told, error_signatures(told), strict=True))


@pytest.mark.parametrize("order", ["as it is", "reversed", "shuffled"])
@pytest.mark.parametrize("size", [1, 2, 5, len(BODIES)])
def test_windows_of_a_load_do_not_count(sync, store, made, size, order):
    """However the pages and batches of a load fall, the ids are those of one frame."""
    entries = _entries(made, _in_order(order))
    sync(*_pages(entries, size))
    assert _ids(store).items() >= _expected().items()


@pytest.mark.parametrize("order", ["as it is", "reversed", "shuffled"])
@pytest.mark.parametrize("size", [1, 2, 5])
def test_groups_of_several_syncs_are_joined(sync, store, clock, made, size, order):
    """An incident that begins in one sync and goes on in the next ones is one group, as in one frame."""
    entries = _entries(made, _in_order(order))
    for number in range(0, len(entries), size):
        clock.forward(hours=7)
        sync(entries[: number + size])
    assert _ids(store).items() >= _expected().items()


def test_a_join_is_reported_and_written_once(sync, store, clock, made):
    """The result of the sync has the earlier ids, files without such rows stay, and it happens once."""
    entries = _entries(
        made, [*(f"no stock for {fruit} today" for fruit in FRUITS), "disk full"]
    )
    sync(entries[-1:])
    clock.forward(days=1)
    first = sync([*entries[:2], entries[-1]])
    assert first.joined == {}
    before = _ids(store)
    files = read_manifest(store).files
    clock.forward(days=1)
    second = sync([*entries[:3], entries[-1]])
    assert second.counts == {"added": 1, "changed": 0, "gone": 0}
    after = _ids(store)
    (present,) = {after[f"no stock for {fruit} today"] for fruit in FRUITS[:3]}
    assert second.joined == {
        before[f"no stock for {fruit} today"]: present for fruit in FRUITS[:2]
    }
    assert "groups joined with others: 2" in second.verdict
    assert files[0] in read_manifest(store).files
    assert files[1] not in read_manifest(store).files
    assert after["disk full"] == before["disk full"]

    clock.forward(days=1)
    third = sync(entries)
    assert third.joined == {}
    assert {_ids(store)[f"no stock for {fruit} today"] for fruit in FRUITS} == {present}


def test_rules_for_joined_groups_still_apply(sync, store, clock, made):
    """A group keeps the name, and the group that was split off keeps its id, when others join it."""
    entries = _entries(made, [f"no stock for {fruit} today" for fruit in FRUITS])
    sync(entries[:2])
    ids = _ids(store)
    apples, pears = (ids[f"no stock for {fruit} today"] for fruit in FRUITS[:2])
    text = f'name {apples} "Shelves"\nsplit {pears} where body contains "kiwis"\npin {pears}\n'
    known = tk.group_failures(store.path).learned
    clock.forward(days=1)
    sync(entries)
    for failures in (store.path, tk.read_snapshot(store.path)):
        for rules in (tk.GroupRules(text), tk.GroupRules(text, known)):
            frame = tk.group_failures(failures, rules=rules).frame
            assert frame["title"].tolist()[0] == "Shelves"
            assert frame["count"].tolist() == [5, 1]
        assert len(tk.select_failures(failures, {"signature": apples})) == 6


def test_names_that_are_the_fault_are_not_joined(sync, store, clock, made):
    """Variables in a NameError are different bugs, also if they arrive one by one."""
    bodies = [
        f'Traceback (most recent call last):\n  File "/app/a.py", line 1, in total\n'
        f"NameError: name '{name}' is not defined in this place"
        for name in FRUITS
    ]
    for number in range(len(bodies)):
        clock.forward(hours=1)
        sync(_entries(made, bodies[: number + 1]))
    assert len(set(_ids(store).values())) == len(bodies)


def test_two_states_of_a_snapshot_are_compared_by_present_groups(
    sync, store, clock, made
):
    """A frame that was read before a join has earlier ids: its bodies are compared instead."""
    entries = _entries(made, [f"no stock for {fruit} today" for fruit in FRUITS])
    sync(entries[:2])
    before = tk.read_snapshot(store.path)
    clock.forward(days=1)
    sync(entries)
    changed = tk.compare_failures(before, tk.read_snapshot(store.path)).frame
    assert len(changed) == 1
    pd.testing.assert_series_equal(
        changed[["before", "after"]].iloc[0], pd.Series({"before": 2, "after": 6}),
        check_names=False, check_dtype=False,
    )  # fmt: skip


def test_erased_words_are_not_kept_by_a_join(sync, store, clock, made):
    """If the rows of joined templates are erased, the manifest has none of their words."""
    entries = _entries(made, [f"no stock for {fruit} today" for fruit in FRUITS])
    sync(entries[:2])
    clock.forward(days=1)
    sync(entries)
    before = _ids(store)
    tk.erase_failures(
        store.path, [entry["dlq_id"] for entry in entries[:2]], confirm=True
    )
    learned = read_manifest(store).learned
    assert "apples" not in repr(learned)
    assert "pears" not in repr(learned)
    after = _ids(store)
    assert after == {body: before[body] for body in after}


def test_earlier_ids_of_pages_outlive_an_erasure(sync, store, clock, made):
    """The id of an HTML page has the status; if other rows are erased, its earlier ids still lead to it."""
    pages = [
        f"<html><title>The shop of {name} is closed</title></html>" for name in NAMES
    ]
    entries = _entries(made, [*pages, "disk full"])
    sync([*entries[:2], entries[-1]])
    earlier = _ids(store)[pages[0]]
    clock.forward(days=1)
    sync(entries)
    assert len(tk.select_failures(store.path, {"signature": earlier})) == len(NAMES)
    tk.erase_failures(store.path, [entries[-1]["dlq_id"]], confirm=True)
    assert len(tk.select_failures(store.path, {"signature": earlier})) == len(NAMES)


def test_an_earlier_id_that_a_group_has_again_is_the_id_of_that_group(
    sync, store, clock, made
):
    """Templates with other kinds of values can have one id: the group with the id is meant."""
    sales = ("kiwis to lee", "plums to joe", "17 to kim", "10.0.0.7 to bob",
             "figs to kim", "10.0.0.7 to ann")  # fmt: skip
    entries = _entries(made, [f"cannot sell {sale}" for sale in sales])
    for count in (1, 2, 3):
        sync(entries[:count])
        clock.forward(days=1)
    earlier = _ids(store)["cannot sell 17 to kim"]
    sync([*entries[:2], entries[3]])
    clock.forward(days=1)
    joined = sync(entries).joined
    ids = _ids(store)
    assert ids["cannot sell 17 to kim"] == joined[earlier]
    assert ids["cannot sell figs to kim"] == earlier
    found = tk.select_failures(store.path, {"signature": earlier})
    assert list(found["response_body"]) == ["cannot sell figs to kim"]


def test_erasing_keeps_the_joins_of_templates_that_are_still_used():
    """Otherwise, a message that arrives later would get the id from before the join."""
    trace = (
        'Traceback (most recent call last):\n  File "/app/a.py", line 1, in total\n'
        "NameError: name apples is not defined in this place"
    )
    texts = [f"name {fruit} is not defined in this place" for fruit in FRUITS]
    learned = Learned().extended(sign([trace]).values())
    learned = learned.extended(sign(texts[:2], learned).values())
    learned = learned.joined_by([document_of(text) for text in texts[2:]])
    kept = learned.extended(sign(texts, learned).values())
    only = kept.only(sign([trace, *texts[1:]], kept).values())
    for text in texts:
        assert sign([text], only)[text].id == sign([text], kept)[text].id


def test_recovered_rows_have_the_ids_of_today(sync, store, clock, made):
    """A file that an interrupted sync left has the ids from before the groups were joined."""
    entries = _entries(made, [f"no stock for {fruit} today" for fruit in FRUITS])
    sync(entries[:2])
    (early,) = (file.path for file in read_manifest(store).files)
    left = (store.path / early).read_bytes()
    clock.forward(days=1)
    (present,) = set(sync(entries).joined.values())
    (damaged,) = (
        file.path
        for file in read_manifest(store).files
        if file.path.startswith(early.rpartition("/")[0])
    )
    (store.path / early).write_bytes(left)
    (store.path / damaged).unlink()
    clock.forward(days=1)
    load = made.load(entries[2:])
    changes = sync_load(load, store, clock=clock, batch_bytes=1, repair=True)
    assert changes.lost == 0
    assert set(_ids(store).values()) == {present}
    assert len(read_manifest(store).learned.renamed) == 2


def _hourly(made, fruits):
    """Entries that failed once per hour, and the time after the last one."""
    first = made.start - pd.Timedelta(hours=len(fruits) + 3)
    times = [first + pd.Timedelta(hours=number) for number in range(len(fruits))]
    entries = [
        made.entry(
            f"d{number}", response_body=f"no stock for {fruit} today",
            workflow_url="https://shop.example/pay", failed_at=time, created_at=time,
        )
        for number, (fruit, time) in enumerate(zip(fruits, times, strict=True))
    ]  # fmt: skip
    return entries, times


def test_a_fix_is_checked_by_an_earlier_id(sync, store, clock, made, capsys):
    """The note of an incident has the id from before the join, and leads to the whole group."""
    entries, times = _hourly(made, FRUITS * 10)
    sync(entries[:2])
    earlier = _ids(store)["no stock for apples today"]
    clock.forward(days=1)
    (present,) = set(sync(entries).joined.values())
    for failures in (str(store.path), tk.read_snapshot(store.path)):
        for group in (earlier, earlier[:9], present):
            check = tk.check_fix(failures, group, times[30], now=made.start)
            assert (check.group, check.before, check.after) == (present, 30, 30)
    command = ["check-fix", earlier, "--snapshot", str(store.path), "--json"]
    assert main([*command, "--since", times[30].isoformat()]) in {0, 8, 9}
    assert json.loads(capsys.readouterr().out)["group"] == present


def test_a_redrive_from_before_a_join_is_evidence_of_the_present_group(
    sync, store, clock, made
):
    """Entries that came back from the redrive are no failures of their own."""
    entries, times = _hourly(made, FRUITS * 10)
    sync(entries[:2])
    earlier = _ids(store)["no stock for apples today"]
    clock.forward(days=1)
    (present,) = set(sync(entries).joined.values())
    frame = pd.DataFrame({
        "group": [earlier], "state": ["failed again"], "new_dlq_id": ["d59"],
        "ended_at": pd.to_datetime([times[59]], utc=True),
    })  # fmt: skip
    redrive = SimpleNamespace(frame=frame)
    check = tk.check_fix(
        str(store.path), present, times[30], now=made.start, redrive=redrive
    )
    assert (check.before, check.after) == (30, 29)


def test_rules_with_earlier_ids_apply_wherever_rules_are_read(sync, store, clock, made):
    """A fix of two groups that are one by a rule is checked with the failures of both."""
    entries, times = _hourly(made, FRUITS * 10)
    other = [
        made.entry(
            f"e{number}", response_body="the shelf is broken",
            workflow_url="https://shop.example/pay", failed_at=time, created_at=time,
        )
        for number, time in enumerate(times)
    ]  # fmt: skip
    sync([*entries[:2], *other])
    ids = _ids(store)
    target = ids["the shelf is broken"]
    rules = tk.GroupRules(f"merge {ids['no stock for apples today']} into {target}\n")
    clock.forward(days=1)
    sync([*entries, *other])
    check = tk.check_fix(
        str(store.path), target, times[30], now=made.start, rules=rules
    )
    assert check.before + check.after == 120


@pytest.fixture
def joined(sync, store, clock, made):
    """A snapshot whose groups were joined: the store, the earlier ids, and the present one."""
    entries, _ = _hourly(made, FRUITS)
    sync(entries[:2])
    earlier = list(_ids(store).values())
    clock.forward(days=1)
    (present,) = set(sync(entries).joined.values())
    return store, earlier, present


def test_a_plan_knows_the_present_and_the_earlier_ids(joined):
    """Whatever the failures come from, also if a few rows do not show which words are values."""
    store, earlier, present = joined
    frame = tk.read_snapshot(store.path)
    for failures in (str(store.path), tk.open_snapshot(store.path), frame, frame[:1]):
        assert tk.group_failures(failures).frame["group"].tolist() == [present]
        for group in (*earlier, present):
            plan = tk.plan_redrive(failures, actions={group: "delete"})
            assert set(plan.frame["group"]) == {present}
            assert plan.options["actions"] == {present: "delete"}


def test_two_actions_for_groups_that_are_one_are_refused(joined):
    """Nobody knows which of them is meant; the same action twice is one action."""
    store, (first, second), present = joined
    plan = tk.plan_redrive(str(store.path), actions={first: "resume", second: "resume"})
    assert plan.options["actions"] == {present: "resume"}
    with pytest.raises(InputError, match=f"'resume' and 'delete' for .*{present}"):
        tk.plan_redrive(str(store.path), actions={first: "resume", second: "delete"})


def test_a_few_rows_of_a_snapshot_keep_their_groups(joined):
    """They do not show which words are values, so each function has the stored id."""
    store, _, present = joined
    frame = tk.read_snapshot(store.path)[:1]
    assert tk.group_failures(frame).assign(frame)["signature"].tolist() == [present]
    check = tk.check_fix(frame, present, frame["failed_at"][0])
    assert check.group == present
    similar = tk.find_similar_failures(frame, str(store.path)).frame
    assert set(similar["group"]) == {present}


def test_a_panel_applies_rules_for_earlier_groups(joined):
    """As `group_failures` does with the same frame and rules."""
    store, (earlier, _), present = joined
    frame = tk.read_snapshot(store.path)
    rules = tk.GroupRules(f'name {earlier} "Shelves"')
    grouping = FailureGrouping(frame, rules, ZoneInfo("UTC"))
    shown = grouping.groups.frame[["group", "title"]].to_dict("records")
    assert shown == [{"group": present, "title": "Shelves"}]


def test_a_panel_shows_the_group_of_an_earlier_id(joined):
    """A view that was stored before the join selects the whole group."""
    store, (earlier, _), _ = joined
    view = tk.FailureView(groups=(earlier,))
    for failures in (tk.read_snapshot(store.path), tk.open_snapshot(store.path)):
        assert len(tk.FailurePanel(failures, value=view).found()) == len(FRUITS)
