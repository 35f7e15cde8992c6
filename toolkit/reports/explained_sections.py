"""Make the sections of a failure report that explain failures, for example "Likely explanations".

Secrets are masked afterwards, when the report is assembled (see `Section.masked`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from itertools import chain
from typing import Final

import pandas as pd

from toolkit.base.python_code import Code, PublicCall, fill, variable
from toolkit.base.time_zones import time_text
from toolkit.drawing.wording import counted, percent
from toolkit.redrive.choices import recommended
from toolkit.reports.evidence import MOST, Evidence, Story
from toolkit.reports.explanation_words import (
    episodes_note,
    named,
    number_of,
    places_in_words,
    when_in_words,
)
from toolkit.reports.findings import ReportCounts
from toolkit.reports.group_changes import counts_by_change
from toolkit.reports.problems import Scale, trends_of_groups
from toolkit.reports.sections import (
    Part,
    ReportCode,
    ReportColumn,
    ReportTable,
    ReportText,
    Section,
    table,
)

_SHARE: Final = ReportColumn("share", "share")
_CONFIDENCE: Final = ReportColumn("confidence", "percent")
_SIGNATURE: Final = ReportColumn("signature", "id", below=True, folded=True)
_GROUPS: Final = 10
_OFFENDERS: Final = 2  # rows per kind
_WORST: Final = 15
_CHARGED: Final = 5  # workflows with their charged messages
_FUNCTIONS: Final = ("failed", "hanging", "never set")
_OF_ALL: Final = "Look for what all workflows need: a network, a database, a shared service, a deploy."
_PLAN: Final = PublicCall("plan_redrive", ("include",))
_SELECT: Final = PublicCall("select_failures", ("since", "until"))
_SAMPLING: Final = fill("from toolkit.analysis import sample_failures\n\n")
_SAMPLED: Final = "{imported}failures = sample_failures(failures, most={most})\n{code}"
_SAMPLED_BEFORE: Final = "{imported}previous = sample_failures(previous, most={most})\n"
_RECENT: Final = (
    'is_recent = failures["failed_at"].fillna(failures["created_at"]) > {since}\n'
    "recent, before = failures[is_recent], failures[~is_recent]\n"
)
_LATER: Final = (
    '{sampling}is_recent = failures["failed_at"].fillna(failures["created_at"]) > {since}\n'
    'is_later = previous["failed_at"].fillna(previous["created_at"]) > {since}\n'
    "recent, before = failures[is_recent], previous[~is_later]\n"
)
_CLASSES: Final = (
    "{imported}groups = tk.group_failures(failures)\n"
    'dated = groups.assign({chosen}).sort_values("failed_at")\n'
    'latest = dated.drop_duplicates("signature", keep="last")\n'
    'tk.classify_failures(latest).frame.assign(group=latest["signature"])'
)
_SEEN: Final = (
    "{split}groups = tk.group_failures(failures)\n"
    'new = groups.assign(recent).loc[lambda frame: frame["signature"].isin({groups})]\n'
    "tk.find_similar_failures(new, before, k=1)"
)
_ACTION: Final = "{load}\nchosen = {select}\nplan = {plan}\ntk.RedrivePanel(service, chosen, value=plan)"
_KINDS: Final = {"gone": "not since then"}
_BLANKS: Final = (
    "What caused it", "How it was noticed", "What ended it", "What went well", "What went badly",
    "What is to be done, by whom, until when",
)  # fmt: skip


class Explained:
    """Makes the explaining sections from the evidence and the options of a report."""

    def __init__(self, evidence: Evidence, counts: ReportCounts, scale: Scale) -> None:
        self.evidence, self.scale = evidence, scale
        self.load, self.fresh = counts.load_code, counts.fresh
        self.now, self.retention, self.kept = counts.now, counts.retention, counts.kept

    def why(self) -> Iterator[Section]:
        """Return the explanations, the largest first."""
        stories = self.evidence.stories
        if not stories:
            return

        share = percent(self.evidence.explained)
        columns = [
            ReportColumn("ongoing", "flag"), "explanation",
            ReportColumn("from", "time", below=True, named=True),
            ReportColumn("until", "time", below=True, named=True),
            ReportColumn("in", below=True, named=True),
            ReportColumn("condition:", below=True, named=True),
            ReportColumn("or:", below=True, named=True, folded=True),
            ReportColumn("class", below=True, named=True), "#failures",
            "#expected", _SHARE,
            _CONFIDENCE,
        ]  # fmt: skip
        rows = [
            (story.goes_on and self.evidence.is_current, f"{number}. {story.name}{episodes_note(story)}",
             _iso(story.start), _iso(story.stop),
             places_in_words(self.evidence, story), story.condition, "; or ".join(story.alternatives) or None,
             ", ".join(story.classes), story.observed, story.expected, story.share,
             _confidence(story.confidence))
            for number, story in enumerate(stories, 1)
        ]  # fmt: skip
        yield self._section(
            "why", "Likely explanations",
            f"{counted(len(stories), 'explanation')} for {share} of all failures: what rose, or fails at "
            "regular intervals all the time, and what its failures have in common. Not proof of a cause.",
            table("Explanations, the largest first, numbered as in the figure", columns, rows),
            code=fill(
                "from datetime import datetime\n\nfrom toolkit.analysis import find_incidents\n\n"
                "find_incidents(failures, now={now})", now=self._now(),
            ),
            sampled="Estimated from a sample of {}.",
        )  # fmt: skip

    def impact(self) -> Iterator[Section]:
        """Return values that failed on several occasions, for example callers, and the charged messages."""
        tables = [*self._offenders(), *self._messages()]
        if not tables:
            return

        sentence = (
            "What failed on several occasions: runs, destinations, callers, flow-control keys, labels, and "
            "entities named in the bodies of requests. Then what it has cost."
        )
        code = fill(
            "from toolkit.analysis import count_deliveries, repeat_offenders\n\n"
            "messages = count_deliveries(failures)\nrepeat_offenders(failures)"
        )
        if self.evidence.sampled:
            number = counted(len(self.evidence.sample), "failure")
            sentence += f" All but the cost is counted in a sample of {number}."
            code = fill(
                "from toolkit.analysis import count_deliveries, repeat_offenders, sample_failures\n\n"
                "messages = count_deliveries(failures)\n"
                "repeat_offenders(sample_failures(failures, most={most}))",
                most=MOST,
            )

        yield self._section(
            "impact", "Who is affected", sentence, *tables, code=code, whole=True
        )

    def _offenders(self) -> Iterator[ReportTable]:
        """Return the table of values that failed on several occasions."""
        offenders = self.evidence.offenders
        if offenders is None or offenders.empty:
            return

        some = offenders.groupby("kind", sort=False).head(_OFFENDERS)
        rows = [
            (row["value"], row["kind"], int(row["count"]), int(row["occasions"]), float(row["share"]),
             float(f"{row['lift']:.3g}"))
            for row in some.to_dict("records")
        ]  # fmt: skip
        kind = ReportColumn("kind", below=True)
        columns = ["what", kind, "#failures", "#occasions", _SHARE, "#times the mean"]
        left_out = len(offenders) - len(some)
        yield table("The first of each kind", columns, rows, left_out=left_out)

    def _messages(self) -> Iterator[ReportTable]:
        """Return the table of charged messages by workflow, if the failures tell about retries."""
        counts = self.evidence.charged
        if counts is None:
            return

        names = ["deliveries", "retries", "failure_callbacks", "messages"]
        some = counts.head(_CHARGED)
        rows = [
            (bool(row["lower_bound"]), row["workflow_url"], *(int(row[name]) for name in names))
            for row in some.astype(object).where(some.notna(), None).to_dict("records")
        ]  # fmt: skip
        columns = [
            ReportColumn("at least", "flag"), "workflow", "#deliveries", "#of them retries",
            "#calls of failure functions", "#messages",
        ]  # fmt: skip
        total = f"{int(counts['messages'].sum()):,}"
        if counts["lower_bound"].any():
            total = f"at least {total}"
        yield table(
            f"Charged messages: {total} in total", columns, rows, left_out=len(counts) - len(some),
            more="more workflows",
        )  # fmt: skip

    def deadline(self) -> Iterator[Section]:
        """Return how long the failures of each group can still be retried."""
        if not self.retention.is_known:
            return

        groups = self.evidence.waiting.dropna(subset=["first_at", "last_at"])
        rows = []
        for row in groups.to_dict("records"):
            first, last = (
                row[name].to_pydatetime(warn=False) + self.retention.length
                for name in ("first_at", "last_at")
            )
            if last <= self.now:
                continue
            # the first failures may have expired already; the column then shows "due"
            first_left = None
            if first > self.now:
                first_left = _iso(first)
            rows.append((row["title"], first_left, _iso(last), int(row["count"])))

        rows.sort(key=lambda row: (row[1] or "", row[2]))
        if not rows:
            return

        first_time = ReportColumn("first expires", "time", missing="due")
        columns = [
            "group",
            first_time,
            ReportColumn("last expires", "time"),
            "#failures",
        ]
        yield self._section(
            "deadline", "Until when it can be retried",
            f"Failures are kept {self.kept}; after that nothing can be resumed or restarted.",
            table("Groups, those that expire first at the top", columns, rows[:_GROUPS],
                  left_out=max(len(rows) - _GROUPS, 0), more="more groups"),
            code=fill(
                "from datetime import datetime\n\ntk.find_expiring(failures, {kept}, {now})",
                kept=self.kept, now=self._now(),
            ), whole=True,
        )  # fmt: skip

    def changed(self) -> Iterator[Section]:
        """Return the groups that are new, and the groups whose rate grew or shrank."""
        changes, trend = self.evidence.changes, self.evidence.trend
        if changes is None:
            return

        sizes = counts_by_change(changes)
        counts = ", ".join(
            f"{number:,} {_KINDS.get(kind, kind)}"
            for kind, number in sizes.items()
            if number
        )
        # most groups do not occur every day, so a list of absent groups would hide the other changes
        frame = changes[~changes["change"].isin(["steady", "gone"])]
        columns = [
            "group",
            _SIGNATURE,
            "change",
            "#before",
            "#expected",
            "#now",
            _CONFIDENCE,
        ]

        rows = []
        for row in frame.head(_GROUPS).to_dict("records"):
            # without an earlier rate, nothing is expected and no confidence can be computed
            expected = confidence = None
            if trend.usual is not None:
                expected, confidence = (
                    round(row["expected"], 1),
                    _confidence(row["confidence"]),
                )

            rows.append((
                row["title"], row["group"], row["change"], int(row["before"]), expected, int(row["after"]),
                confidence,
            ))  # fmt: skip

        parts = []
        if rows:
            left_out = max(len(frame) - _GROUPS, 0)
            parts.append(
                table("Groups whose rate changed", columns, rows, left_out=left_out)
            )

        lately = (
            f"{counted(trend.recent or 0, 'failure')} since {time_text(trend.since)}"
        )
        if trend.direction is not None:
            lately += f", usually {trend.usual or 0:,.0f} in such a time: {trend.words}"
        sentence = f"{lately}."
        if counts:
            sentence += f" Of {counted(len(changes), 'group')}: {counts}."
        yield self._section(
            "changed", "What changed", sentence, *parts,
            code=self._comparison_code(), sampled="Estimated from a sample of {}.",
        )  # fmt: skip

    def groups(self) -> Iterator[Section]:
        """Return the largest groups, with one example each."""
        new = set(self.evidence.trend.new or ())
        kinds = self.evidence.classes.set_index("group")["class"]
        bars = trends_of_groups(self.evidence.sample, self.scale)

        rows = []
        for row in self.evidence.groups.head(_GROUPS).to_dict("records"):
            example = next(
                iter(json.loads(row["examples"])), {"dlq_id": None, "text": None}
            )
            text = example["text"]
            if text == row["title"]:
                text = None
            rows.append((
                row["group"] in new, row["title"], text, example["dlq_id"], _iso(row["first_at"]),
                _iso(row["last_at"]), bars.get(row["group"]), kinds.get(row["group"]), row["statuses"],
                int(row["count"]), float(row["share"]),
            ))  # fmt: skip

        columns = [
            ReportColumn("new", "flag"), "group",
            ReportColumn("example", below=True, named=True, folded=True),
            ReportColumn("latest", "id", below=True, named=True, folded=True),
            ReportColumn("first", "time", below=True, named=True),
            ReportColumn("last", "time", below=True, named=True),
            ReportColumn("failures over time", "trend"),
            ReportColumn("class", missing="unknown"), "statuses", "#failures", _SHARE,
        ]  # fmt: skip
        number = len(self.evidence.groups)
        yield self._section(
            "groups", "Groups of failures",
            f"{counted(self.evidence.total, 'failure')} in {counted(number, 'group')} by their errors.",
            table("Groups, the largest first, with an example of each", columns, rows,
                  left_out=max(number - _GROUPS, 0), more="more groups"),
            code=fill("tk.group_failures(failures)"), whole=True,
        )  # fmt: skip

    def classes(self) -> Iterator[Section]:
        """Return the classes of failures, with the evidence of the largest group of each class."""
        classes = self.evidence.classes
        if classes.empty:
            return

        by_class = classes.groupby("class", sort=False)
        sizes = by_class.agg(
            evidence=("evidence", "first"), groups=("group", "size"), count=("count", "sum"),
            share=("share", "sum"),
        ).reset_index().sort_values(["count", "class"], ascending=[False, True])  # fmt: skip
        rows = [
            (
                row["class"],
                row["evidence"] or None,
                int(row["groups"]),
                int(row["count"]),
                row["share"],
            )
            for row in sizes.to_dict("records")
        ]
        columns = [
            "class",
            ReportColumn("evidence", below=True),
            "#groups",
            "#failures",
            _SHARE,
        ]
        sentence = "What kind of failure each group is, by its latest response."
        chosen, imported = fill("failures"), fill("")

        if self.evidence.sampled:
            number = counted(len(self.evidence.sample), "failure")
            sentence = f"{sentence[:-1]} in a sample of {number}; groups that it lacks are left out."
            chosen, imported = (
                fill("sample_failures(failures, most={most})", most=MOST),
                _SAMPLING,
            )

        yield self._section(
            "classes", "Classes", sentence,
            table("Classes, and what decided for the largest group of each", columns, rows),
            code=fill(_CLASSES, imported=imported, chosen=chosen), whole=True,
        )  # fmt: skip

    def functions(self) -> Iterator[Section]:
        """Return the workflows whose failure functions failed, hang or were never set."""
        functions = self.evidence.functions
        if functions is None:
            return

        bad = functions[functions[[*_FUNCTIONS]].sum(axis=1) > 0]
        if bad.empty:
            return

        rows = [
            (row["workflow_url"], *(int(row[name]) for name in (*_FUNCTIONS, "count")))
            for row in bad.head(_WORST).to_dict("records")
        ]
        columns = ["workflow", *(f"#{name}" for name in _FUNCTIONS), "#failures"]
        yield self._section(
            "functions", "Failure functions that need a look", "",
            table("Failures whose failure function failed, hangs, or was never set", columns, rows,
                  left_out=max(len(bad) - _WORST, 0), more="more workflows"),
            code=fill(
                "from datetime import datetime\n\nfrom toolkit.analysis import failure_functions\n\n"
                "failure_functions(failures, now={now})", now=self._now(),
            ), whole=True,
        )  # fmt: skip

    def outcomes(self) -> Iterator[Section]:
        """Return the outcomes of entries that left the queue."""
        outcomes = self.evidence.outcomes
        if outcomes is None or set(outcomes.counts["outcome"]) <= {
            "still there",
            "unknown",
        }:
            return

        counts = outcomes.counts.to_dict("records")
        rows = [
            (row["outcome"], int(row["count"]), float(row["share"])) for row in counts
        ]

        compared, sentence, sampling = self.evidence.trend.compared, "", fill("")
        if compared and self.evidence.earlier > self.evidence.earlier_sample:
            sentence = (
                f"Counted in a sample of {self.evidence.earlier_sample:,} of them."
            )
            sampling = fill(_SAMPLED_BEFORE, imported=_SAMPLING, most=MOST)

        which = fill("failures")
        if compared:
            which = fill("previous, failures")
        yield self._section(
            "outcomes", "What became of earlier entries", sentence,
            table("Entries by what became of them", ["outcome", "#entries", _SHARE], rows),
            code=fill(
                "{sampling}tk.find_retry_outcomes({which}, retention={kept})",
                sampling=sampling, which=which, kept=self.kept,
            ), whole=compared,
        )  # fmt: skip

    def seen(self) -> Iterator[Section]:
        """Return new groups with similar earlier groups."""
        similar = self.evidence.similar
        if similar is None or similar.frame.empty:
            return

        rows = []
        for row in similar.frame.to_dict("records"):
            seen: tuple[object, ...] = (None, None, None, None)
            if row["seen"]:
                seen = (
                    row["similar_title"],
                    float(row["similarity"]),
                    _iso(row["last_at"]),
                    row["outcome"],
                )

            rows.append((row["title"], row["group"], *seen))

        columns = [
            "new group",
            _SIGNATURE,
            ReportColumn("most similar", missing="never seen"),
            ReportColumn("similarity", "percent", missing=""),
            ReportColumn("last", "time", missing=""),
            ReportColumn("what became of it", missing=""),
        ]
        new = self.evidence.trend.new or []
        yield self._section(
            "seen", "Seen before", repr(similar).split(";")[0] + ".",
            table("New groups, and earlier ones that look alike", columns, rows),
            code=fill(_SEEN, split=self._split(), groups=new[:len(rows)]),
        )  # fmt: skip

    def actions(self) -> Iterator[Section]:
        """Return the next actions, with code that selects the failures of each explanation."""
        parts: list[Part] = []
        for number, story in enumerate(self.evidence.stories, 1):
            title = f"{number}. {named(self.evidence, story, story.what)}"
            if not story.waiting:
                parts.append(
                    ReportText(
                        f"{title}: none of its failures is in the queue any more."
                    )
                )
                continue

            last = (story.last_at or story.stop) + self.retention.length
            advice = recommended(*story.classes).advice
            if story.of_all:
                # the class of one group is no reason for a rise of all failures
                advice = _OF_ALL

            until = f" The last expires at {time_text(last)}."
            if not self.retention.is_known:
                until = f" How long they are kept is {self.retention.words}."
            elif last <= self.now:
                until = " They may have expired: the data are older than the retention."

            parts += (
                ReportText(
                    f"{title}: {advice} {self._selected(story)}{until}",
                    anchor=f"action-{number}",
                ),
                ReportCode(action_code(story, self.load)),
            )

        if parts:
            sentence = "The code of each plans a redrive and shows it; nothing is sent until it is confirmed."
            yield Section("actions", "Suggested actions", sentence, tuple(parts))

    def _selected(self, story: Story) -> str:
        """Return how many failures the code of an action selects, compared with the explanation."""
        about = story.about
        if story.waiting == story.observed:
            return f"The code selects all {about}{counted(story.waiting, 'failure')}."

        return (
            f"The code selects {about}{counted(story.waiting, 'failure')} of this kind in the queue; the "
            f"explanation has {about}{story.observed:,}."
        )

    def postmortem(self) -> Iterator[Section]:
        """Return a postmortem form for the largest explanation, with the known values filled in."""
        stories = self.evidence.stories
        if not stories:
            return

        first = stories[0]
        where = places_in_words(self.evidence, first)
        rows = [
            ("What happened", named(self.evidence, first, first.name)),
            (
                "Impact",
                f"{number_of(first)} ({percent(first.share)}) in {where}",
            ),
            ("When", when_in_words(first)),
            *((blank, None) for blank in _BLANKS),
        ]
        columns = ["question", ReportColumn("notes", missing="")]
        parts = (table("Of the largest explanation", columns, rows),)
        yield Section("postmortem", "Postmortem", "To be filled in.", parts)

    def sections(self) -> list[Section]:
        """Return all sections that have contents, in the order of the page."""
        makers = (self.why, self.impact, self.deadline, self.changed, self.groups, self.classes,
                  self.functions, self.outcomes, self.seen, self.actions, self.postmortem)  # fmt: skip
        return list(chain.from_iterable(make() for make in makers))

    def _section(
        self, name: str, title: str, sentence: str, *parts: Part, code: Code, whole: bool = False,
        sampled: str = "Counted in a sample of {}.",
    ) -> Section:  # fmt: skip
        """Return a section with the code that computes it again.

        If a sample was analysed, the sentence mentions it and the code draws the same sample, unless the
        section counts the `whole` of the failures.
        """
        if self.evidence.sampled and not whole:
            number = counted(len(self.evidence.sample), "failure")
            sentence = f"{sentence} {sampled.format(number)}".strip()
            code = fill(_SAMPLED, imported=_SAMPLING, most=MOST, code=code)

        return Section(name, title, sentence, (*parts, ReportCode(code)))

    def _now(self) -> Code:
        return fill("datetime.fromisoformat({now})", now=_iso(self.now))

    def _split(self) -> Code:
        """Return code that assigns the failures of the period to `recent`, and earlier ones to `before`."""
        if self.evidence.trend.compared:
            return fill("recent, before = failures, previous\n")
        return fill(_RECENT, since=self.evidence.trend.since.isoformat())

    def _comparison_code(self) -> Code:
        split = self._split()
        if self.evidence.trend.compared:
            sampling = fill("")
            if self.evidence.earlier > self.evidence.earlier_sample:
                # `_section` adds the import before the code of a sampled section
                imported = _SAMPLING
                if self.evidence.sampled:
                    imported = fill("")
                sampling = fill(_SAMPLED_BEFORE, imported=imported, most=MOST)

            split = fill(
                _LATER, sampling=sampling, since=self.evidence.trend.since.isoformat()
            )

        exposure = self.evidence.trend.exposure
        return fill(
            "{split}tk.compare_failures(before, recent, exposure={exposure})",
            split=split,
            exposure=exposure,
        )


def action_code(story: Story, load: Code) -> Code:
    """Return code that plans a redrive for an explanation and shows the plan. It sends nothing."""
    times = {"since": _iso(story.start), "until": _iso(story.stop)}
    select = _SELECT.write(variable("failures"), story.chosen, **times)
    options: dict[str, object] = {}
    # by default, a plan leaves these failures alone; whoever runs this code has fixed the cause
    fixed = [name for name in story.classes if _is_redriven_later(name)]
    if fixed:
        options["include"] = fixed
    plan = _PLAN.write(variable("chosen"), **options)

    return fill(_ACTION, load=load, select=select, plan=plan)


def _is_redriven_later(failure_class: str) -> bool:
    """Return whether failures of a class are left until their cause was fixed."""
    found = recommended(failure_class)
    return found.action != found.then


def _confidence(value: float) -> float:
    """Round a confidence to two digits, from 0.01 to 0.99, because nothing here is certain."""
    return min(max(round(float(value), 2), 0.01), 0.99)


def _iso(value: datetime | None) -> str | None:
    if value is None or pd.isna(value):
        return None
    return value.isoformat(timespec="milliseconds")
