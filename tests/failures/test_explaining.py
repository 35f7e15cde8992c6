"""Conditions in which a rise of failures is concentrated."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from tests.accuracy.incidents import incident, matches
from toolkit.analysis import explain_change
from toolkit.errors import InputError
from toolkit.results import Explanation

COLUMNS = [
    "rank", "condition", "observed", "expected", "excess", "share", "lift", "confidence", "alternatives",
]  # fmt: skip


def _calm(rows: int, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "step": rng.choice(["pay", "ship", "bill"], rows),
            "region": rng.choice(["eu", "us"], rows),
        }
    )


@pytest.mark.slow
def test_incidents_with_known_roots_are_explained() -> None:
    """In most of them the first condition is the root, in nearly all one of the first three."""
    first = three = 0
    for seed in range(60):
        case = incident(seed)
        found = explain_change(
            case.before, case.after, weight="n", exposure=case.exposure
        ).frame
        right = [
            matches(row.condition, row.alternatives, case.root or {})
            for row in found.itertuples()
        ]
        first, three = first + (right[:1] == [True]), three + any(right[:3])
    assert first >= 0.8 * 60
    assert three >= 0.9 * 60


@pytest.mark.slow
def test_no_condition_is_significant_in_quiet_windows() -> None:
    """In at least 95 % of windows in which nothing was made to rise."""
    quiet = 0
    for seed in range(60):
        case = incident(10_000 + seed, quiet=True)
        quiet += not explain_change(
            case.before, case.after, weight="n", exposure=case.exposure
        ).stands_out
    assert quiet >= 0.95 * 60


def test_events_and_counts_of_events_say_the_same() -> None:
    """A frame of events, the same as counts, and as Arrow."""
    before, after = (
        _calm(400),
        pd.concat(
            [
                _calm(400, 1),
                pd.DataFrame({"step": ["pay"] * 200, "region": ["eu"] * 200}),
            ]
        ),
    )
    events = explain_change(before, after)
    counts = [
        frame.groupby(["step", "region"], as_index=False).size()
        for frame in (before, after)
    ]
    counted = explain_change(*counts, weight="size")
    arrow = explain_change(pa.Table.from_pandas(before), pa.Table.from_pandas(after))
    assert events.frame.iloc[0]["condition"] == {"step": "pay", "region": "eu"}
    pd.testing.assert_frame_equal(events.frame, counted.frame)
    pd.testing.assert_frame_equal(events.frame, arrow.frame)


def test_attributes_that_name_the_same_rows_are_one_condition() -> None:
    """The second is listed under the first as an alternative."""
    before, after = (
        _calm(400),
        pd.concat(
            [
                _calm(400, 1),
                pd.DataFrame({"step": ["pay"] * 300, "region": ["eu"] * 300}),
            ]
        ),
    )
    before, after = (
        frame.assign(owner=frame["step"] + " team") for frame in (before, after)
    )
    first = explain_change(before, after).frame.iloc[0]
    named = [first["condition"], *first["alternatives"]]
    assert {"region": "eu", "step": "pay"} in [
        dict(sorted(one.items())) for one in named
    ]
    assert {"owner": "pay team", "region": "eu"} in [
        dict(sorted(one.items())) for one in named
    ]


def test_all_conditions_of_the_same_rows_are_alternatives() -> None:
    """Each of up to three attributes, also where many likelier conditions describe other rows."""
    calm = _calm(4_000).assign(**dict.fromkeys("abcd", "usual"))
    rose = pd.DataFrame(
        {"step": ["pay"] * 900, "region": ["eu"] * 900, **dict.fromkeys("abcd", "new")}
    )
    found = explain_change(calm, pd.concat([calm, rose])).frame
    conditions = [found["condition"][0], *found["alternatives"][0]]
    assert found["condition"][0] == {"a": "new"}
    assert len(conditions) == 4 + (6 + 4 * 2) + (4 + 6 * 2 + 4)
    assert all(
        "new" in condition.values() and len(condition) <= 3 for condition in conditions
    )
    assert {"a": "new", "step": "pay", "region": "eu"} in conditions


@pytest.mark.parametrize("after", [0, 1, 5])
@pytest.mark.parametrize("before", [0, 1, 5])
def test_few_rows_stand_for_nothing(after: int, before: int) -> None:
    """Empty frames and single rows have a result, with the documented columns."""
    found = explain_change(_calm(before), _calm(after))
    assert list(found.frame.columns) == COLUMNS
    assert not found.stands_out
    nothing = (
        "nothing before to compare with"
        if after > before == 0
        else "nothing stands out"
    )
    assert nothing in repr(found)


def test_missing_values_are_a_value() -> None:
    """A rise of rows without a region is one."""
    after = pd.concat(
        [
            _calm(300),
            pd.DataFrame({"step": ["pay", "ship", "bill"] * 60, "region": None}),
        ]
    )
    assert explain_change(_calm(300, 1), after).frame.iloc[0]["condition"] == {
        "region": "(none)"
    }


def test_inputs_are_not_mutated() -> None:
    """Neither frame."""
    after, before = _calm(50), _calm(50, 1)
    copies = after.copy(), before.copy()
    explain_change(before, after)
    pd.testing.assert_frame_equal(after, copies[0])
    pd.testing.assert_frame_equal(before, copies[1])


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"exposure": 0}, "exposure"),
        ({"exposure": "x"}, "exposure"),
        ({"attributes": 5}, "attributes"),
        ({"attributes": ["no such"]}, "no such"),
        ({"weight": "no such"}, "no such"),
        ({"weight": "step"}, "weight"),
        ({"after": 17}, "after"),
        ({"before": None}, "before"),
    ],
)
def test_what_cannot_be_used_is_named(arguments: dict[str, Any], named: str) -> None:
    """Each with an error that names the argument or column."""
    with pytest.raises(InputError, match=named):
        explain_change(**{"after": _calm(9), "before": _calm(9)} | arguments)


def test_a_number_is_one_value_whether_or_not_others_are_missing():
    """A status is the same before and after, also where one of both frames has rows without a status."""
    after = pd.DataFrame({"status": pd.array([500] * 60 + [404] * 5, dtype="Int64")})
    before = pd.DataFrame({"status": pd.array([500] * 60 + [None] * 5, dtype="Int64")})
    explanation = explain_change(before, after, attributes=["status"])
    values = {
        row["condition"]["status"]: row["expected"]
        for row in explanation.frame.to_dict("records")
    }
    assert values == {"404": 0.0}
    assert not explanation.stands_out or "404" in repr(explanation)


def test_the_id_of_a_group_is_not_masked_as_a_signature():
    """In the sentence and in the table, for what a column of a snapshot holds."""
    before = pd.DataFrame({"signature": ["s5-703ae1747355", "s5-0123456789ab"] * 50})
    after = pd.concat([before, pd.DataFrame({"signature": ["s5-703ae1747355"] * 80})])
    explanation = explain_change(before, after)
    for shown in (repr(explanation), explanation._repr_html_()):
        assert "group = s5-703ae1747355" in shown
        assert "masked" not in shown
    assert explanation.frame.loc[0, "condition"] == {"signature": "s5-703ae1747355"}


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ((50, 60), (160, 30), "rose from 50 to 160, as others fell"),  # 138 %
        (
            (50, 60),
            (160, 44),
            "rose from 50 to 160",
        ),  # others fell by less than what chance makes of 60
        ((0, 1), (300, 0), "holds 100 % of the change"),
        ((50, 60), (160, 55), "holds 100 % of the change"),  # 105 %
        ((50, 60), (160, 61), "holds 99 % of the change"),
    ],
)
def test_more_than_the_whole_change_says_why(before, after, said):
    """Where others fell, one condition holds more than the change; that they fell is beyond chance."""
    before, after = (
        pd.DataFrame({"step": ["pay", "ship"], "n": counts})
        for counts in (before, after)
    )
    assert repr(explain_change(before, after, weight="n")).endswith(
        f": step = pay {said}"
    )


def test_a_notebook_shows_the_first_conditions():
    """The table says how many there are; the frame has all."""
    tiers = ["x", "y", "z", "w"] * 80
    before = pd.DataFrame(
        {"step": list("abcdefgh") * 40, "region": ["eu", "us"] * 160, "tier": tiers}
    )
    rise = {
        "step": "a" * 300 + "b" * 30,
        "region": ["eu"] * 310 + ["us"] * 20,
        "tier": "x" * 320 + "y" * 10,
    }
    after = pd.concat(
        [before, pd.DataFrame({name: list(values) for name, values in rise.items()})]
    )
    explanation = explain_change(before, after)
    assert len(explanation.frame) > 5
    table = explanation._repr_html_()
    assert (
        f"of the change. The first 5 of {len(explanation.frame)} conditions:" in table
    )
    assert table.count("<tr>") == 6  # with its head


def test_many_alternatives_are_counted_in_the_notebook():
    """The table names two conditions that hold the same events and counts the others; none expected is ∞."""
    names = [f"a{number}" for number in range(5)]
    before = pd.DataFrame(dict.fromkeys(names, ["old", "older"] * 50))
    after = pd.concat([before, pd.DataFrame(dict.fromkeys(names, ["new"] * 80))])
    explanation = explain_change(before, after)
    others = explanation.frame.loc[0, "alternatives"]
    table = explanation._repr_html_()
    assert f"; {len(others) - 2} more</td>" in table
    assert table.count("a3 = new") < 3
    assert "<td>∞</td>" in table  # at the right, as the numbers beside it
    assert '<th scope="col" style="text-align:right">lift</th>' in table
    assert '<th scope="col" style="text-align:left">condition</th>' in table
    assert "holds 100 % of the change" in repr(explanation)
    assert "(expected 0)" in " ".join(
        text.get_text() for text in explanation.plot().texts
    )


def test_what_all_rows_share_is_no_alternative():
    """In a rise that is nearly all there is, what is as usual holds the same rows and explains nothing."""
    formats = ["json"] * 390 + ["text"] * 10
    before = pd.DataFrame(
        {"step": ["pay", "ship"] * 200, "format": formats, "region": ["eu", "us"] * 200}
    )
    after = pd.concat(
        [before.head(40), before.head(1).assign(step="refund").loc[[0] * 2_000]]
    )
    row = explain_change(before, after, exposure=10).frame.iloc[0]
    assert row["condition"] == {"step": "refund"}
    assert {"format": "json"} not in row["alternatives"]
    # those that need all their attributes come first
    counts = [
        {"step": "refund"}.items() < other.items() for other in row["alternatives"]
    ]
    assert counts == sorted(counts)
    assert {"step": "refund", "format": "json"} in row["alternatives"]


def test_the_count_of_a_label_is_of_all_failures_that_have_it():
    """Also of those that have another label, which rose more; `select` finds as many."""

    def failures(both: int, one: int) -> pd.DataFrame:
        lists = ['["everywhere","release"]'] * both + ['["everywhere"]'] * one
        return pd.DataFrame({"labels": lists, "label": None}, dtype="str")

    before, after = failures(5, 95), failures(85, 115)
    found = explain_change(before, after, attributes=["label"])
    counts = {
        row.condition["label"]: (row.observed, row.expected)
        for row in found.frame.itertuples()
    }
    assert counts["release"] == (85, 5)
    ranks = {row.condition["label"]: row.rank for row in found.frame.itertuples()}
    assert len(found.select(after, rank=ranks["release"])) == 85


def test_fewer_failures_than_before_are_worded():
    """A share of a change that is no rise is not known, and is not a gap in the sentence."""
    before, after = (
        _calm(3000),
        pd.concat([_calm(300, 1), _calm(1500, 2).assign(step="pay")]),
    )
    assert "step = pay rose from" in repr(explain_change(before, after))
    assert repr(explain_change(before.head(0), after)).endswith(
        "nothing before to compare with"
    )


_LABELS = {"new": (0, 103), "fell": (615, 120), "rare": (88, 20), "calm": (311, 88)} | {
    f"l{number}": pair
    for number, pair in enumerate(
        [(754, 202), (516, 172), (401, 116), (208, 66), (84, 25), (343, 77)]
    )
}


def test_one_attribute_of_few_values_is_enough():
    """A label that is new stands out, though others rose and fell, too; without it they do not."""
    before, after = (
        pd.DataFrame(
            {"label": _LABELS.keys(), "n": [pair[side] for pair in _LABELS.values()]}
        )
        for side in (0, 1)
    )
    found = explain_change(
        before, after, attributes=["label"], weight="n", exposure=3.7
    )
    assert found.stands_out
    assert found.frame["condition"][0] == {"label": "new"}


def _named(case: Any, *columns: str) -> Explanation:
    return explain_change(
        case.before, case.after, attributes=columns, weight="n", exposure=case.exposure
    )


@pytest.mark.parametrize("quiet", [True, False])
def test_columns_that_nobody_named_do_not_decide(*, quiet: bool) -> None:
    """With a minute and an id of each row in the frames, the result is the same in every number."""
    for seed in range(5):
        case = incident(30_000 + seed, quiet=quiet)
        rng = np.random.default_rng(seed)
        wider = [
            frame.assign(
                minute=rng.integers(0, 60, len(frame)), key=np.arange(len(frame))
            )
            for frame in (case.after, case.before)
        ]
        few, many = (
            _named(case, "a0", "a1"),
            _named(case._replace(after=wider[0], before=wider[1]), "a0", "a1"),
        )
        assert few.stands_out == many.stands_out
        pd.testing.assert_frame_equal(few.frame, many.frame)


def test_a_column_of_noise_changes_no_condition() -> None:
    """A random minute of each row is compared by default, and is in no condition in front."""
    rng = np.random.default_rng(3)
    calm, more = _calm(2_000), _calm(2_000, 1)
    rose = pd.DataFrame({"step": ["pay"] * 400, "region": ["eu"] * 400})
    before, after = (
        frame.assign(minute=rng.integers(0, 60, len(frame)))
        for frame in (calm, pd.concat([more, rose]))
    )
    found = explain_change(before, after)
    assert found.stands_out
    assert found.frame["condition"][0] == {"step": "pay", "region": "eu"}


def _window(
    rng: np.random.Generator, kind: str, exposure: int
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Two times in which nothing rose for a reason."""
    cells = pd.DataFrame(
        [(a, b, c) for a in range(6) for b in range(5) for c in range(4)],
        columns=["step", "host", "plan"],
    )
    rate = rng.gamma(2, 10, len(cells))
    spread = {"uneven": 0.3}.get(kind, 0.0)
    frames = []
    for length, growth in ((1, 3 if kind == "growth" else 1), (exposure, 1)):
        mean = rate * length * growth * np.exp(rng.normal(0, spread, len(cells)))
        if kind == "bursts":
            bursts = rng.poisson(mean / 5)
            counts = np.where(
                bursts > 0,
                bursts + rng.negative_binomial(np.maximum(bursts, 1), 1 / 5),
                0,
            )
        else:
            counts = rng.poisson(mean)
        frames.append(cells.assign(n=counts))
    return frames[0], frames[1]


@pytest.mark.parametrize("kind", ["single", "bursts", "uneven", "growth"])
def test_windows_in_which_nothing_rose_are_left_alone(kind: str) -> None:
    """Single events, bursts of five, cells that vary by 30 %, a growth of everything: at most one in 20."""
    rng = np.random.default_rng(7)
    loud = 0
    for _ in range(20):
        after, before = _window(rng, kind, 4)
        loud += explain_change(before, after, weight="n", exposure=4).stands_out
    assert loud <= 1


def test_the_order_of_rows_and_split_rows_change_nothing() -> None:
    """Rows shuffled, and each row as two of half its weight."""
    case = incident(5)
    found = explain_change(case.before, case.after, weight="n", exposure=case.exposure)
    shuffled = [
        frame.sample(frac=1, random_state=1) for frame in (case.after, case.before)
    ]
    halves = [
        pd.concat([frame.assign(n=frame["n"] / 2)] * 2)
        for frame in (case.after, case.before)
    ]
    for after, before in (shuffled, halves):
        again = explain_change(before, after, weight="n", exposure=case.exposure)
        assert again.frame["condition"][0] == found.frame["condition"][0]
        assert again.frame["observed"][0] == found.frame["observed"][0]
        assert again.stands_out == found.stands_out


@pytest.mark.parametrize(
    "column",
    [
        [["x"], ["y", "z"], None, []] * 5,
        pd.Categorical(["x", "y", None, "x"] * 5),
        pd.date_range("2026-03-01", periods=20, tz="Europe/Berlin"),
        [1, 2.5, None, 3] * 5,
        [True, False, None, True] * 5,
    ],
    ids=["lists", "categories", "times with a zone", "numbers", "booleans"],
)
def test_columns_of_any_type_have_a_result(column: Any) -> None:
    """Nested and missing values, also if one side is empty or has one row."""
    frame = pd.DataFrame({"step": ["pay", "ship"] * 10, "odd": column})
    for after, before in (
        (frame, frame),
        (frame, frame.head(0)),
        (frame.head(0), frame),
        (frame.head(1), frame),
    ):
        for attributes in (None, ["odd"]):
            found = explain_change(before, after, attributes=attributes)
            assert list(found.frame.columns) == COLUMNS
            assert not found.stands_out


def test_a_condition_of_more_attributes_that_says_no_more_is_not_in_front():
    """Also where few conditions on several attributes have events enough, and all could be listed."""
    before = pd.DataFrame({"step": ["pay", "ship"] * 100, "tier": ["x"] * 199 + ["y"]})
    after = pd.concat(
        [before, pd.DataFrame({"step": ["refund"] * 90, "tier": ["x"] * 90})]
    )
    assert explain_change(before, after).frame["condition"][0] == {"step": "refund"}


def test_what_occurs_is_cheaper_to_state_than_what_could():
    """Of 900 pairs of values 60 occur: the pair that rose is named, not a value of it."""
    number = np.arange(60)
    names = {"step": number % 30, "host": (number + number // 30) % 30}
    before = pd.DataFrame(names | {"n": 30})
    after = before.assign(n=np.where(number == 7, 300, 30))
    assert explain_change(before, after, weight="n").frame["condition"][0] == {
        "step": "7",
        "host": "7",
    }


def test_the_times_of_syncs_explain_nothing():
    """When a snapshot was synced is no attribute of a failure."""
    before = pd.DataFrame(
        {
            "url": ["a", "b"] * 20,
            "first_seen_at": "1",
            "gone_after": None,
            "gone_before": None,
        }
    )
    after = pd.DataFrame(
        {
            "url": ["a", "b"] * 60,
            "first_seen_at": "2",
            "gone_after": "2",
            "gone_before": "3",
        }
    )
    found = explain_change(before, after).frame
    assert not {name for condition in found["condition"] for name in condition} - {
        "url"
    }
