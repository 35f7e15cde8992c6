"""Collect the results of the analyses of a report: explanations, groups and changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final, NamedTuple

import pandas as pd
import pyarrow as pa

from toolkit.drawing.wording import counted, describe_condition
from toolkit.failures.classes import classify_failures
from toolkit.failures.comparing import FailureComparison, compare_grouped
from toolkit.failures.conditions import plainest
from toolkit.failures.deliveries import charged_messages
from toolkit.failures.failure_attributes import MENTIONED
from toolkit.failures.group_rules import GroupRules
from toolkit.failures.grouping import FailureGroups, group_failures, grouped
from toolkit.failures.incidents import WithRows, incidents_with_rows
from toolkit.failures.matching_rows import select_failures
from toolkit.failures.outcomes import RetryOutcomes, find_retry_outcomes
from toolkit.failures.repeating import failure_functions, repeat_offenders
from toolkit.failures.retention import Retention
from toolkit.failures.seen_before import (
    SimilarFailures,
    find_similar_failures,
    similar_grouped,
)
from toolkit.failures.selection import (
    opened,
    sample_of,
    select_retained,
    select_timed,
    with_time,
)
from toolkit.failures.sources import AnyFrame
from toolkit.reports.group_changes import (
    changes_of_groups,
    estimate,
    estimated_changes,
    grown_groups,
)
from toolkit.reports.periods import Trend, trend_of
from toolkit.tables.freshness import Freshness
from toolkit.tables.schemas import GONE_BEFORE
from toolkit.tables.signed_rows import SIGNATURE, are_signed

MOST: Final = 20_000
"""Largest number of failures that are analysed one by one. If there are more, a sample is analysed."""

_DOING: Final = "making a report"
_CLASSED: Final = 300  # only the largest groups are classified
_MARKED: Final = 6  # rises that are marked in the figure
_UNNAMED: Final = ("several errors", "a rise of all failures")  # indexed by `is_of_all`
_LEAST_OF_A_CLASS: Final = 0.1  # share of the failures of an explanation
_LIKENED: Final = 20  # new groups that are compared with similar earlier groups
_BASIS: Final = frozenset(
    "dlq_id workflow_url workflow_run_id response_status response_body response_body_base64".split()  # noqa: SIM905 - words
)
_OFFENDING: Final = frozenset(
    "url caller_ip flow_control_key label body workflow_run_id".split()  # noqa: SIM905 - words
)
_FUNCTIONS: Final = frozenset(
    ("workflow_url", "failure_callback", "failure_function_state")
)
_CHARGED: Final = frozenset(("max_retries", "failure_function_state"))
_TIMES: Final = ("failed_at", "created_at")
_SHARED: Final = frozenset(
    "labels headers response_headers extra signature gone_after gone_before".split()  # noqa: SIM905 - words
)
_READ: Final = _BASIS | _OFFENDING | _FUNCTIONS | _SHARED


@dataclass(frozen=True, eq=False, kw_only=True)
class Story:
    """A likely explanation for some failures, for example "ConnectionTimeout in orders since 09:10"."""

    kind: str  # "rise" or "steady"
    what: (
        str  # the common error message, or the condition in words if the errors differ
    )
    stated: frozenset[str]  # the attributes that `what` already names
    whole: bool  # whether all failures have the error in `what`
    of_all: bool  # whether failures of all kinds rose alike
    condition: str
    alternatives: list[str]
    shared: dict[str, str]
    workflows: list[str]  # at most five, the most frequent first
    workflow_count: int
    start: datetime
    stop: datetime
    episodes: int
    # when the episodes begin, in UTC, for example "every day at 03:10"
    period: str | None
    goes_on: bool
    observed: int
    expected: int
    share: float
    confidence: float
    chosen: dict[str, str]  # condition for `select_failures` that finds these failures
    waiting: int  # failures that meet `chosen` and are still in the queue
    last_at: datetime | None  # when the latest waiting failure occurred
    classes: tuple[str, ...]  # of the failures, the most frequent first
    groups: frozenset[str]  # the groups of these failures
    last_start: datetime  # when the last episode began
    is_estimate: bool  # whether `observed` and `waiting` are estimated from a sample

    @property
    def about(self) -> str:
        """Return the word before numbers that are estimated from a sample."""
        if self.is_estimate:
            return "about "
        return ""

    @property
    def name(self) -> str:
        """Return a short title: the values that all or most of the failures share."""
        if self.whole:
            return self.what
        return f"mostly {self.what}"


@dataclass(frozen=True, eq=False, kw_only=True)
class Evidence:
    """The results of all analyses that the explaining sections show."""

    total: int
    sample: pd.DataFrame
    scale: float  # number of failures per failure of the sample
    groups: pd.DataFrame
    waiting: pd.DataFrame  # groups of the failures that are still in the queue
    classes: pd.DataFrame
    trend: Trend
    stories: list[Story] = field(default_factory=list)
    explained: float = 0.0  # share of all failures with at least one explanation
    # one row per group, the most urgent change first, with numbers of all failures
    changes: pd.DataFrame | None = None
    similar: SimilarFailures | None = None
    offenders: pd.DataFrame | None = None
    functions: pd.DataFrame | None = None
    charged: pd.DataFrame | None = None  # messages of all failures, by workflow
    outcomes: RetryOutcomes | None = None
    earlier: int = 0  # number of entries in the earlier frame
    earlier_sample: int = 0  # and how many of them are analysed one by one
    is_current: bool = True  # whether the data are recent enough to judge the last day

    @property
    def begins(self) -> dict[str, str]:
        """Return the start times of the explained rises by number, for the markers in the figure."""
        rises = [
            (number, story)
            for number, story in enumerate(self.stories, 1)
            if story.kind == "rise"
        ]
        return {
            f"{number}": story.start.isoformat(timespec="minutes")
            for number, story in rises[:_MARKED]
        }

    @property
    def sampled(self) -> bool:
        """Return whether a sample of the failures is analysed."""
        return self.total > len(self.sample)

    @property
    def estimated_groups(self) -> frozenset[str]:
        """Return the groups whose changes are estimated from a sample."""
        if self.changes is None:
            return frozenset()
        return frozenset(self.changes["group"][self.changes["is_estimate"]])


def gather(
    failures: AnyFrame,
    previous: AnyFrame | None,
    *,
    total: int,
    retention: Retention,
    fresh: Freshness,
    step: Callable[[str], None],
    new_since: datetime | None = None,
) -> Evidence | None:
    """Run all analyses. Return None if the frame has no failures or lacks a required column."""
    if not total or missing_columns(failures, previous):
        return None

    step(f"grouping {counted(total, 'failure')}")
    rules = known_groups = None
    if previous is not None:
        # groups of both frames need the same rules, so that the same error has the same id
        known = group_failures(previous)
        rules, known_groups = known.rules, known.frame

    sample = sample_of(failures, total, MOST, _READ)
    scale = total / max(len(sample), 1)
    signed = _is_signed(sample)
    groups, sample = _grouped(failures, sample, rules, is_whole=total <= len(sample))
    step("comparing with the time before")
    trend = trend_of(
        failures, previous, groups.frame, known_groups, fresh, retention.at_least, new_since
    )  # fmt: skip
    recent, before = _split(sample, trend.since, fresh.end)
    step("classifying the groups")
    classes = _classes(sample, groups.frame)

    earlier: _EarlierLoad | None = None
    if previous is not None:
        earlier = _read_earlier(previous, groups)
        before = earlier.sample
        trend = _with_same_sampling(trend, earlier, 1 / scale)

    outcomes = _outcomes(failures, sample, earlier, retention, fresh)
    comparison = _compared(
        before, recent, groups, trend, fresh, is_earlier=earlier is not None
    )
    if comparison is not None and trend.usual:
        trend = replace(trend, grown=grown_groups(comparison, trend.new))
    similar = _similar(sample, before, groups, trend, is_grouped=earlier is None)
    step(f"looking for what {counted(len(sample), 'failure')} have in common")
    incidents = incidents_with_rows(sample, now=fresh.end)
    # some failures have two explanations, so positions are counted only once
    explained: set[int] = set()
    for _, rows in incidents:
        explained.update(rows.tolist())
    offenders = functions = None
    names = set(opened(failures, doing=_DOING).names)
    if names >= _OFFENDING:
        offenders = repeat_offenders(sample)
    if names >= _FUNCTIONS:
        functions = failure_functions(failures, now=fresh.end)
    charged = charged_if_known(failures)
    changes = changes_of_groups(comparison, trend, groups.frame)
    if changes is not None:
        changes = _of_all(changes, groups, trend, fresh, earlier, scale)
    waiting = _waiting_groups(failures, sample, groups, total=total, signed=signed)
    evidence = Evidence(
        total=total,
        sample=sample,
        scale=scale,
        groups=groups.frame,
        waiting=waiting,
        classes=classes,
        trend=trend,
        stories=_stories(incidents, sample, total, scale, groups, classes, waiting),
        explained=len(explained) / len(sample),
        is_current=fresh.is_current,
        changes=changes,
        similar=similar,
        offenders=offenders,
        functions=functions,
        charged=charged,
        outcomes=outcomes,
    )
    if earlier is None:
        return evidence

    return replace(
        evidence, earlier=earlier.entries, earlier_sample=len(earlier.sample)
    )


def charged_if_known(failures: AnyFrame) -> pd.DataFrame | None:
    """Return the charged messages by workflow; None if the failures tell nothing about retries."""
    names = set(opened(failures, doing=_DOING).names)
    if not names >= _CHARGED:
        return None
    return charged_messages(failures)


def missing_columns(failures: AnyFrame, previous: AnyFrame | None) -> list[str]:
    """Return the columns that explanations need, and that a frame or the earlier one lacks."""
    names = set(opened(failures, doing=_DOING).names)
    if previous is not None:
        earlier = opened(previous, doing="comparing failures", name="previous")
        names &= set(earlier.names)

    return sorted(_BASIS - names)


class _EarlierLoad(NamedTuple):
    """The failures of an earlier load, or a sample of them, with their groups."""

    sample: pd.DataFrame
    entries: int
    """The number of all earlier failures."""


def _read_earlier(previous: AnyFrame, groups: FailureGroups) -> _EarlierLoad:
    counted_rows = select_timed(previous, ["dlq_id"], doing=_DOING).count()
    entries = counted_rows["count_"][0].as_py()
    sample = sample_of(previous, entries, MOST, _READ)
    if not _is_signed(sample):
        sample = groups.assign(sample)
    return _EarlierLoad(sample, int(entries))


def _with_same_sampling(trend: Trend, earlier: _EarlierLoad, share: float) -> Trend:
    """Return a trend with an exposure that corrects for samples of different rates.

    For example, if all 1,000 earlier failures but only half of the later ones (`share`) are in the samples,
    the rate of the earlier sample would look twice as high, so the exposure is doubled.
    """
    earlier_share = len(earlier.sample) / max(earlier.entries, 1)
    correction = earlier_share / share or 1
    return replace(
        trend,
        exposure=float(f"{trend.exposure * correction:.6g}"),
        sampling=correction,
    )


def _outcomes(
    failures: AnyFrame,
    sample: pd.DataFrame,
    earlier: _EarlierLoad | None,
    retention: Retention,
    fresh: Freshness,
) -> RetryOutcomes | None:
    """Return what became of earlier entries, or of entries that left a snapshot; None if no entry left."""
    kept = None
    if retention.is_known:
        kept = retention.length
    if earlier is not None:
        return find_retry_outcomes(
            earlier.sample, failures, retention=kept, now=fresh.now
        )

    if _has_left(sample):
        return find_retry_outcomes(sample, retention=kept)

    return None


def _compared(
    before: pd.DataFrame,
    recent: pd.DataFrame,
    groups: FailureGroups,
    trend: Trend,
    fresh: Freshness,
    *,
    is_earlier: bool,
) -> FailureComparison | None:
    """Compare the groups before and after the period began. None if one of the two times is not known.

    `is_earlier`: the failures before are of an earlier load.
    """
    if is_earlier:
        if not fresh.is_current:
            return None
        # rows of the earlier load that are later than the period began would be counted twice
        _, before = _split(before, trend.since, fresh.end)
    elif not trend.usual or recent.empty or before.empty:
        return None

    return compare_grouped(
        before,
        recent,
        groups,
        exposure=trend.exposure,
        exposure_since=trend.exposure_since,
    )


def _of_all(
    changes: pd.DataFrame,
    groups: FailureGroups,
    trend: Trend,
    fresh: Freshness,
    earlier: _EarlierLoad | None,
    scale: float,
) -> pd.DataFrame:
    """Return the changes with numbers of all failures. `scale` is their number per failure of the sample."""
    before = scale
    if earlier is not None:
        before = earlier.entries / max(len(earlier.sample), 1)
    if scale == before == 1:
        return changes.assign(is_estimate=False)

    period = (trend.since, fresh.end)
    return estimated_changes(changes, groups.frame, period, before=before, after=scale)


def _grouped(
    failures: AnyFrame,
    sample: pd.DataFrame,
    rules: GroupRules | None,
    *,
    is_whole: bool,
) -> tuple[FailureGroups, pd.DataFrame]:
    """Return the groups of all failures, and the sample with a column that names the group of each row."""
    signed = _is_signed(sample)
    if not is_whole:
        groups = group_failures(failures, rules=rules)
        if not signed:
            sample = groups.assign(sample)
        return groups, sample

    # the sample is everything, so each failure is read only once
    if signed:
        return group_failures(sample, rules=rules), sample

    groups, ids = grouped(sample, rules)
    return groups, sample.assign(
        signature=pd.Series(ids, index=sample.index, dtype="str")
    )


def _is_signed(failures: pd.DataFrame) -> bool:
    return SIGNATURE in failures and are_signed(
        pa.table(failures[[SIGNATURE]])[SIGNATURE]
    )


def _similar(
    sample: pd.DataFrame,
    before: pd.DataFrame,
    groups: FailureGroups,
    trend: Trend,
    *,
    is_grouped: bool,
) -> SimilarFailures | None:
    """Return the earlier groups that look like new ones; None if no group is new."""
    new = sample[sample[SIGNATURE].isin((trend.new or [])[:_LIKENED])]
    if new.empty or before.empty:
        return None
    if is_grouped:
        return similar_grouped(new, before, groups, k=1)

    return find_similar_failures(new, before, k=1)


def _has_left(sample: pd.DataFrame) -> bool:
    """Return whether some entries have left the queue, as in a snapshot that is synced repeatedly."""
    return GONE_BEFORE in sample and bool(sample[GONE_BEFORE].notna().any())


def _waiting_groups(
    failures: AnyFrame,
    sample: pd.DataFrame,
    groups: FailureGroups,
    *,
    total: int,
    signed: bool,
) -> pd.DataFrame:
    """Return the groups of the failures in the queue, counted in the sample if it contains all failures."""
    if not _has_left(sample):
        return groups.frame
    if total == len(sample):
        return _waiting(sample, groups, signed=True)

    return _waiting(failures, groups, signed=signed)


def _waiting(
    failures: AnyFrame, groups: FailureGroups, *, signed: bool
) -> pd.DataFrame:
    """Return the groups of the failures that are still in the queue: count, first and last time."""
    if not signed:
        retained = select_retained(failures, [*_BASIS, *_TIMES], doing=_DOING)
        failures = groups.assign(retained.whole_table(_DOING).to_pandas())

    rows = select_retained(failures, [SIGNATURE, *_TIMES], doing=_DOING).then(with_time)
    counts = rows.count(
        SIGNATURE, first_at=("when_", "min"), last_at=("when_", "max")
    ).to_pandas()
    counts = counts.rename(columns={SIGNATURE: "group", "count_": "count"})

    return groups.frame[["group", "title"]].merge(counts, on="group")


def _split(
    failures: pd.DataFrame, since: datetime, now: datetime
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the failures after a time, and the failures before it or without a time."""
    when = failures["failed_at"].fillna(failures["created_at"])
    recent, later = when > pd.Timestamp(since), when > pd.Timestamp(now)
    return failures[recent & ~later], failures[~recent]


def _classes(sample: pd.DataFrame, groups: pd.DataFrame) -> pd.DataFrame:
    """Return the class of each of the largest groups, judged by the latest failure of the group."""
    largest = groups.sort_values(["count", "group"], ascending=[False, True]).head(
        _CLASSED
    )
    latest = sample.drop_duplicates(SIGNATURE, keep="last")
    latest = latest[latest[SIGNATURE].isin(largest["group"])].reset_index(drop=True)
    classes = classify_failures(latest).frame.assign(group=latest[SIGNATURE])

    return classes.merge(
        groups[["group", "title", "count", "share"]], on="group"
    ).sort_values(["count", "group"], ascending=[False, True], ignore_index=True)


def _stories(
    incidents: list[WithRows],
    sample: pd.DataFrame,
    total: int,
    scale: float,
    groups: FailureGroups,
    classes: pd.DataFrame,
    waiting_groups: pd.DataFrame,
) -> list[Story]:
    titles = groups.frame.set_index("group")["title"]
    kinds = dict(zip(classes["group"], classes["class"], strict=True))
    sizes = sample[SIGNATURE].value_counts()

    stories = []
    for row, positions in incidents:
        condition = dict(row["condition"])
        shared = dict(row["shared"]) | condition
        rows = sample.iloc[positions]
        groups_of = rows[SIGNATURE].unique()
        group = shared.get(SIGNATURE)
        if group is None and len(groups_of) == 1:
            group = groups_of[0]
        stated = {
            name: value for name, value in condition.items() if name != "workflow_url"
        }
        workflows = (
            list(row["workflows"]) or rows["workflow_url"].dropna().unique().tolist()
        )
        title = str(titles.get(group, ""))
        whole, chosen = True, condition

        if title:
            # the condition may also be met by failures with another error, for example of the same workflow
            whole = bool((rows[SIGNATURE] == group).all())
            chosen = condition | {SIGNATURE: str(group)}

        named = frozenset(stated)
        if title or MENTIONED in shared:
            # the title is then the error, which names no attribute
            named = frozenset()

        last_at = None
        waiting = _waiting_of(sample, chosen, row["from_at"], row["until_at"])
        last = waiting["failed_at"].fillna(waiting["created_at"]).max()
        if not pd.isna(last):
            last_at = last.to_pydatetime(warn=False)
        story = Story(
            kind=row["kind"],
            what=title or _without_title(shared, stated, titles, is_of_all=not condition),
            stated=named,
            whole=whole,
            of_all=not condition,
            condition=_in_words(condition, titles),
            alternatives=[
                _in_words(other, titles)
                for other in plainest([condition, *row["alternatives"]])
                if other != condition
            ],
            shared=shared,
            workflows=workflows,
            workflow_count=row["workflow_count"] or len(workflows),
            start=row["from_at"],
            stop=row["until_at"],
            episodes=len(row["episodes"]),
            period=row["period"],
            goes_on=bool(row["goes_on"]),
            # the estimate is rounded, so it can exceed the number of all failures
            observed=min(estimate(row["observed"], scale), total),
            expected=estimate(row["expected"], scale),
            share=min(float(row["share"]), 1.0),
            confidence=float(row["confidence"]),
            chosen=chosen,
            waiting=estimate(len(waiting), scale),
            last_at=last_at,
            classes=_classes_of(rows[SIGNATURE] if group is None else [group], kinds),
            groups=frozenset(map(str, groups_of)),
            last_start=row["episodes"][-1][0],
            is_estimate=total > len(sample),
        )  # fmt: skip
        is_group = whole and bool(title) and len(rows) == sizes.get(str(group))
        if story.is_estimate and is_group:
            story = _of_whole_group(story, str(group), groups.frame, waiting_groups)
        stories.append(story)

    return stories


def _of_whole_group(
    story: Story, group: str, groups: pd.DataFrame, waiting: pd.DataFrame
) -> Story:
    """Return the explanation with the exact numbers and times of a group.

    All failures of the group that are in the sample belong to the explanation, and they are all of it. Groups
    are counted in all failures, so no number has to be estimated. For example, the sample has 22 of 40
    failures, and misses the first one.
    """
    (facts,) = groups[groups["group"] == group].to_dict("records")
    left = waiting["count"][waiting["group"] == group].sum()
    return replace(
        story,
        start=min(story.start, facts["first_at"].to_pydatetime(warn=False)),
        stop=max(story.stop, facts["last_at"].to_pydatetime(warn=False)),
        observed=int(facts["count"]),
        chosen={SIGNATURE: group},
        waiting=int(left),
        is_estimate=False,
    )


def _classes_of(groups: Iterable[object], kinds: Mapping[str, str]) -> tuple[str, ...]:
    """Return the classes of failures by their groups, the most frequent first.

    Classes of less than a tenth of the failures are left out: they are usually of other errors of that time.

    >>> _classes_of(["a", "b"], {"a": "bug", "b": "bug", "c": "throttled"})
    ('bug',)
    >>> _classes_of(["a", "c", "c"], {"a": "bug", "c": "throttled"})
    ('throttled', 'bug')
    """
    counts = Counter(kinds.get(str(group), "unknown") for group in groups)
    least = _LEAST_OF_A_CLASS * counts.total()
    return tuple(name for name, count in counts.most_common() if count >= least)


def _without_title(
    shared: dict[str, str],
    stated: dict[str, str],
    titles: pd.Series,
    *,
    is_of_all: bool,
) -> str:
    """Name an explanation whose failures have several errors."""
    if MENTIONED in shared:
        return f"errors that name {shared[MENTIONED]}"
    if stated:
        return _in_words(stated, titles)

    return _UNNAMED[is_of_all]


def _waiting_of(
    sample: pd.DataFrame, condition: dict[str, str], start: datetime, stop: datetime
) -> pd.DataFrame:
    """Return the failures of a condition and a period that are still in the queue.

    The report shows code that selects the same failures.
    """
    rows = select_failures(sample, condition, since=start, until=stop)
    if GONE_BEFORE in rows:
        rows = rows[rows[GONE_BEFORE].isna()]
    return rows


def _in_words(condition: dict[str, str], titles: pd.Series) -> str:
    """Return a condition in words, with titles of groups instead of their ids."""
    named = {}
    for name, value in condition.items():
        label = name.replace("_", " ")
        if name == SIGNATURE:
            label = "error"
        named[label] = titles.get(value, value)

    return describe_condition(named)
