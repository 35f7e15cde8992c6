"""What the analyses find in the failures of a report: explanations, groups, and what changed."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from toolkit.analysis import (
    FailureComparison,
    FailureGroups,
    RetryOutcomes,
    SimilarFailures,
    classify_failures,
    failure_functions,
    group_failures,
    repeat_offenders,
    retry_outcomes,
    sample_failures,
    similar_failures,
)
from toolkit.analysis.change_points import dispersion
from toolkit.analysis.comparing import compare_grouped
from toolkit.analysis.conditions import plainest
from toolkit.analysis.explaining import describe
from toolkit.analysis.grouping import grouped
from toolkit.analysis.incidents import WithRows, incidents_with_rows
from toolkit.analysis.seen_before import similar_grouped
from toolkit.analysis.selection import (
    opened,
    receipt_of,
    select_retained,
    select_timed,
    with_minute,
    with_time,
)
from toolkit.analysis.sources import AnyFrame
from toolkit.analysis.wording import counted
from toolkit.signatures.signed_rows import SIGNATURE, are_signed
from toolkit.tables.schemas import GONE_BEFORE

MOST: Final = 20_000
"""Failures that are looked at one by one; of more, a sample."""

DAY: Final = timedelta(hours=24)
_DOING: Final = "making a report"
_CONFIDENT: Final = 0.997  # three standard deviations
_CLASSED: Final = 300  # groups whose class is shown, the largest
_MARKED: Final = 6  # rises in the figure
_UNNAMED: Final = ("several errors", "a rise of all failures")  # by whether there is no condition
_IDS: Final = 50  # of an explanation
_LIKENED: Final = 20  # new groups that are compared with earlier ones
_BASIS: Final = frozenset(
    "dlq_id workflow_url workflow_run_id response_status response_body response_body_base64".split()  # noqa: SIM905 - words
)
_OFFENDING: Final = frozenset("url caller_ip flow_control_key label body workflow_run_id".split())  # noqa: SIM905 - words
_FUNCTIONS: Final = frozenset(("workflow_url", "failure_callback", "failure_function_state"))
_TIMES: Final = ("failed_at", "created_at")
_SHARED: Final = frozenset("labels headers response_headers extra signature gone_after gone_before".split())  # noqa: SIM905 - words
_READ: Final = _BASIS | _OFFENDING | _FUNCTIONS | _SHARED


@dataclass(frozen=True, eq=False, kw_only=True)
class Story:
    """An explanation: which failures, what they share, when, and how sure that is."""

    kind: str  # rise, or steady
    what: str  # the error that its failures share, else its condition, in words
    stated: frozenset[str]  # the attributes that this names
    whole: bool  # whether all of its failures have that error
    of_all: bool  # whether all failures rose, none much more than the others
    condition: str
    alternatives: list[str]
    shared: dict[str, str]
    workflows: list[str]  # the most frequent first, five at most
    workflow_count: int
    start: datetime
    stop: datetime
    episodes: int
    goes_on: bool
    observed: int
    expected: int
    share: float
    confidence: float
    ids: list[str]  # of its failures with that error that are in the queue, the latest first
    ids_left_out: int
    changed: list[str]  # the workflows of these ids
    last_at: datetime | None  # when the latest of these failed
    found_class: str

    @property
    def name(self) -> str:
        """What its failures share, and whether only most of them do."""
        return self.what if self.whole else f"mostly {self.what}"


@dataclass(frozen=True, eq=False, kw_only=True)
class Trend:
    """How failures came since a time, beside before, and which groups are new since then."""

    since: datetime
    recent: int
    usual: float | None  # failures in as long a time, by the mean of all the time before
    confidence: float | None  # that the rate is another one
    exposure: float  # how many times longer the time before is; of samples, how many times more it would have
    new: list[str] | None  # ids of groups, the largest first
    compared: bool  # with an earlier frame
    grown: list[str] = field(default_factory=list)  # ids of groups whose rate is higher

    @property
    def direction(self) -> str | None:
        """Worse, better or the same, of all failures; None where nothing earlier is known."""
        if self.usual is None or self.confidence is None:
            return None
        if self.confidence < _CONFIDENT:
            return "the same"
        return "worse" if self.recent > self.usual else "better"

    @property
    def words(self) -> str:
        """How the rate is beside the one before, as one statement."""
        if self.worse:
            grown = f", as {counted(len(self.grown), 'group')} grew" if self.grown else ""
            return f"worse than before{grown}"
        return "better than before" if self.direction == "better" else "no clear change from before"

    @property
    def worse(self) -> bool | None:
        """Whether all failures, or those of a group, come at a higher rate than before."""
        return None if self.direction is None else self.direction == "worse" or bool(self.grown)


@dataclass(frozen=True, eq=False, kw_only=True)
class Evidence:
    """Everything that the sections which explain are made of."""

    total: int
    sample: pd.DataFrame
    groups: pd.DataFrame
    waiting: pd.DataFrame  # groups of the failures that are still in the queue
    classes: pd.DataFrame
    trend: Trend
    stories: list[Story] = field(default_factory=list)
    explained: float = 0.0  # the share of all failures that have an explanation; some have two
    comparison: FailureComparison | None = None
    similar: SimilarFailures | None = None
    offenders: pd.DataFrame | None = None
    functions: pd.DataFrame | None = None
    outcomes: RetryOutcomes | None = None
    earlier: int = 0  # entries of the earlier frame
    earlier_sample: int = 0  # and how many of them are looked at one by one

    @property
    def begins(self) -> dict[str, str]:
        """When the explained rises begin, by their numbers, for the figure."""
        rises = [(number, story) for number, story in enumerate(self.stories, 1) if story.kind == "rise"]
        return {f"{number}": story.start.isoformat(timespec="minutes") for number, story in rises[:_MARKED]}

    @property
    def sampled(self) -> bool:
        """Whether there are more failures than are looked at one by one."""
        return self.total > len(self.sample)


def gather(
    failures: AnyFrame, previous: AnyFrame | None, *, total: int, retention: timedelta, now: datetime
) -> Evidence | None:
    """Run the analyses; None where there are no failures, or without what they read."""
    names = set(opened(failures, doing=_DOING).names)
    both = names
    if previous is not None:
        both = names & set(opened(previous, doing="comparing failures", name="previous").names)
    if not total or not both >= _BASIS:
        return None
    known = None if previous is None else group_failures(previous)
    rules = None if known is None else known.rules
    sample = sample_failures(failures, most=MOST, columns=_READ)
    signed = _is_signed(sample)
    if total > len(sample):
        groups = group_failures(failures, rules=rules)
        sample = sample if signed else groups.assign(sample)
    elif signed:
        groups = group_failures(sample, rules=rules)
    else:
        groups, ids = grouped(sample, rules)
        sample = sample.assign(signature=pd.Series(ids, index=sample.index, dtype="str"))
    trend = _trend(failures, previous, groups.frame, None if known is None else known.frame, now)
    recent, before = _split(sample, trend.since, now)
    classes = _classes(sample, groups.frame)
    kinds = dict(zip(classes["group"], classes["class"], strict=True))
    evidence: dict[str, Any] = {}
    if previous is not None:
        before, entries = _earlier(previous, groups)
        evidence |= {"earlier": entries, "earlier_sample": len(before)}
        chosen = (len(before) / max(entries, 1)) / (len(sample) / total)
        trend = replace(trend, exposure=float(f"{trend.exposure * (chosen or 1):.6g}"))
        evidence["outcomes"] = retry_outcomes(before, failures, retention=retention, now=now)
        past = _split(before, trend.since, now)[1]
        evidence["comparison"] = compare_grouped(past, recent, groups, exposure=trend.exposure)
    elif trend.usual and len(recent) and len(before):
        evidence["comparison"] = compare_grouped(before, recent, groups, exposure=trend.exposure)
    if "comparison" in evidence and trend.usual:
        frame = evidence["comparison"].frame
        sure = 1 - (1 - _CONFIDENT) / max(len(frame), 1)  # as so many are looked at
        grown = frame["group"][(frame["change"] == "growing") & (frame["confidence"] >= sure)]
        trend = replace(trend, grown=grown.tolist())
    waiting = groups.frame
    if GONE_BEFORE in sample and sample[GONE_BEFORE].notna().any():
        whole = total == len(sample)
        waiting = _waiting(sample if whole else failures, groups, signed=whole or signed)
        if previous is None:
            evidence["outcomes"] = retry_outcomes(sample, retention=retention)
    if trend.new and len(before):
        rows = sample[sample[SIGNATURE].isin(trend.new[:_LIKENED])]
        if len(rows) and previous is None:
            evidence["similar"] = similar_grouped(rows, before, groups, k=1)
        elif len(rows):
            evidence["similar"] = similar_failures(rows, before, k=1)
    return Evidence(
        total=total,
        sample=sample,
        groups=groups.frame,
        waiting=waiting,
        classes=classes,
        trend=trend,
        stories=_stories(incidents := incidents_with_rows(sample, now=now), sample, total, groups, kinds),
        explained=len({position for _, rows in incidents for position in rows.tolist()}) / len(sample),
        offenders=repeat_offenders(sample) if names >= _OFFENDING else None,
        functions=failure_functions(failures, now=now) if names >= _FUNCTIONS else None,
        **evidence,
    )


def _is_signed(failures: pd.DataFrame) -> bool:
    return SIGNATURE in failures and are_signed(pa.table(failures[[SIGNATURE]])[SIGNATURE])


def _earlier(previous: AnyFrame, groups: FailureGroups) -> tuple[pd.DataFrame, int]:
    """The earlier failures, or a sample of them, each with its group; and how many there are."""
    before = sample_failures(previous, most=MOST, columns=_READ)
    entries = select_timed(previous, ["dlq_id"], doing=_DOING).count()["count_"][0].as_py()
    return before if _is_signed(before) else groups.assign(before), int(entries)


def _waiting(failures: AnyFrame, groups: FailureGroups, *, signed: bool) -> pd.DataFrame:
    """The groups of the failures that are still in the queue: count, first and last time."""
    if not signed:
        retained = select_retained(failures, [*_BASIS, *_TIMES], doing=_DOING)
        failures = groups.assign(retained.table().to_pandas())
    rows = select_retained(failures, [SIGNATURE, *_TIMES], doing=_DOING).then(with_time)
    counts = rows.count(SIGNATURE, first_at=("when_", "min"), last_at=("when_", "max")).to_pandas()
    counts = counts.rename(columns={SIGNATURE: "group", "count_": "count"})
    return groups.frame[["group", "title"]].merge(counts, on="group")


def _split(failures: pd.DataFrame, since: datetime, now: datetime) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The failures after a time until now, and those before, or without a time."""
    when = failures["failed_at"].fillna(failures["created_at"])
    recent, later = when > pd.Timestamp(since), when > pd.Timestamp(now)
    return failures[recent & ~later], failures[~recent]


def _trend(
    failures: AnyFrame, previous: AnyFrame | None, groups: pd.DataFrame, known: pd.DataFrame | None,
    now: datetime,
) -> Trend:  # fmt: skip
    """The rate since the earlier load, or of the last day, beside the rate before it."""
    if previous is None:
        since = now - DAY
        groups = groups[groups["count"] > 0]
        new = groups["group"][groups["first_at"].between(since, now, inclusive="right")].tolist()
    else:
        receipt = receipt_of(previous)
        kept = select_retained(previous, [], doing=_DOING).count()["count_"][0].as_py()
        if (
            receipt is not None and receipt.rows != kept
        ):  # rows chosen of a load, which ended after all of them
            receipt = None
        last = None if receipt is None else pd.to_datetime(receipt.ended_at, utc=True, errors="coerce")
        if last is None or pd.isna(last):
            counts = select_timed(previous, [], doing=_DOING).count(last=("when_", "max"))
            last = pd.to_datetime(counts["last"][0].as_py(), utc=True)
        since = (now - DAY) if last is None or pd.isna(last) else min(last.to_pydatetime(), now)
        new = groups["group"][~groups["group"].isin(set() if known is None else known["group"])].tolist()
    recent = _minutes(failures, since, now)["count_"]
    earlier = _minutes(failures if previous is None else previous, None, since)
    before, length = earlier["count_"], (now - since).total_seconds()
    usual = confidence = None
    exposure = 1.0
    observed = (since - earlier["first"].min()).total_seconds() if len(before) else 0.0
    if len(before) and observed >= length / 2 > 0:
        exposure = observed / length
        usual = float(before.sum()) / exposure
        confidence = _confidence(recent, before, since.timestamp() / 60, exposure)
    started = previous is not None or bool(len(before))
    return Trend(
        since=since, recent=int(recent.sum()), usual=usual, confidence=confidence,
        exposure=round(exposure, 4), new=new if started else None, compared=previous is not None,
    )  # fmt: skip


def _minutes(failures: AnyFrame, after: datetime | None, until: datetime) -> pd.DataFrame:
    """Failures after a time and until another, by minute since 1970, and when the first of each was."""
    rows = select_timed(failures, [], doing=_DOING).then(partial(_within, after, until)).then(with_minute)
    counts = rows.count("minute_", first=("when_", "min")).to_pandas()
    first = pd.to_datetime(counts["first"], utc=True)
    return pd.DataFrame(counts.assign(first=first).set_index("minute_").sort_index())


def _within(after: datetime | None, until: datetime, table: pa.Table) -> pa.Table:
    when = table["when_"].cast(pa.timestamp("us", "UTC"), safe=False)
    within = pc.less_equal(when, pa.scalar(until, when.type))
    if after is not None:
        within = pc.and_(within, pc.greater(when, pa.scalar(after, when.type)))
    return table.filter(within)


def _confidence(recent: pd.Series, before: pd.Series, edge: float, exposure: float) -> float:
    """That a rate changed: two-sided, normal, with the variance of counts that come in bursts."""
    hours = (before.index.to_numpy() - before.index.min()) // 60
    size = int((edge - before.index.min()) // 60) + 1
    counts = np.bincount(hours.astype(np.int64), weights=before.to_numpy(), minlength=size)
    bursts = dispersion(counts.astype(np.float64), np.ones(size))
    usual = float(recent.sum() + before.sum()) / (1 + exposure)
    deviation = math.sqrt(bursts * max(usual, 1e-9) * (1 + 1 / exposure))
    z = max(abs(float(recent.sum()) - float(before.sum()) / exposure) - 0.5, 0) / deviation
    return math.erf(z / math.sqrt(2))


def _classes(sample: pd.DataFrame, groups: pd.DataFrame) -> pd.DataFrame:
    """The class of each of the largest groups, by its latest failure."""
    largest = groups.sort_values(["count", "group"], ascending=[False, True]).head(_CLASSED)
    latest = sample.drop_duplicates(SIGNATURE, keep="last")
    latest = latest[latest[SIGNATURE].isin(largest["group"])].reset_index(drop=True)
    classes = classify_failures(latest).frame.assign(group=latest[SIGNATURE])
    return classes.merge(groups[["group", "title", "count", "share"]], on="group").sort_values(
        ["count", "group"], ascending=[False, True], ignore_index=True
    )


def _stories(
    incidents: list[WithRows], sample: pd.DataFrame, total: int, groups: FailureGroups, kinds: dict[str, str]
) -> list[Story]:
    titles = groups.frame.set_index("group")["title"]
    scale = total / max(len(sample), 1)
    stories = []
    for row, positions in incidents:
        condition = dict(row["condition"])
        shared = dict(row["shared"]) | condition
        rows = sample.iloc[positions]
        groups_of = rows[SIGNATURE].unique()
        group = shared.get(SIGNATURE, groups_of[0] if len(groups_of) == 1 else None)
        stated = {name: value for name, value in condition.items() if name != "workflow_url"}
        workflows = list(row["workflows"]) or rows["workflow_url"].dropna().unique().tolist()
        title = str(titles.get(group, ""))
        named = rows[SIGNATURE] == group if title else pd.Series(data=True, index=rows.index)
        whole, rows = bool(named.all()), rows[named]
        if GONE_BEFORE in rows:
            rows = rows[rows[GONE_BEFORE].isna()]
        ids = [str(dlq_id) for dlq_id in rows["dlq_id"]]
        last = rows["failed_at"].fillna(rows["created_at"]).max()
        stories.append(Story(
            kind=row["kind"],
            what=title or (_in_words(stated, titles) if stated else _UNNAMED[not condition]),
            stated=frozenset(() if title else stated),
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
            goes_on=bool(row["goes_on"]),
            observed=_estimate(row["observed"], scale),
            expected=_estimate(row["expected"], scale),
            share=float(row["share"]),
            confidence=float(row["confidence"]),
            ids=ids[::-1][:_IDS],
            ids_left_out=max(_estimate(len(ids), scale) - _IDS, 0),
            changed=sorted(rows["workflow_url"].tail(_IDS).dropna().unique()),
            last_at=None if pd.isna(last) else last.to_pydatetime(),
            found_class=kinds.get(str(group), "unknown"),
        ))  # fmt: skip
    return stories


def _estimate(count: float, scale: float) -> int:
    """A count as it is, or where it is of a sample, of all failures: to three digits, as it is not exact."""
    return round(count) if scale == 1 else round(float(f"{count * scale:.3g}"))


def _in_words(condition: dict[str, str], titles: pd.Series) -> str:
    """A condition in words, with the titles of groups for their ids."""
    return describe({
        "error" if name == SIGNATURE else name.replace("_", " "): titles.get(value, value)
        for name, value in condition.items()
    })  # fmt: skip
