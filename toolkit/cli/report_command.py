"""``toolkit report``: a report on failures, or on a vector index."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import toolkit as tk
from toolkit.cli.exit_status import ExitStatus
from toolkit.cli.output import complain, say, status_of, unknown_names_end
from toolkit.cli.shared_options import add_command, add_filters, filter_of
from toolkit.errors import InputError
from toolkit.redaction import visible


def add(commands: Any, summary: str) -> None:
    """Add the command."""
    example = "--since 7d --output failure-report.html --output failure-report.md"
    add_option = add_command(commands, "report", _report, summary, example)
    what = "report on the vector index, or on a snapshot of one: health, recall, scores, changes"
    add_option("--vectors", what, action="store_true")
    what = ".html, .md, .json or .pdf; repeatable (failure-report.html, or index-report.html)"
    add_option("--output", what, action="append", metavar="FILE")
    add_option("--pdf", "the same for a .pdf; needs Chromium", action="append", dest="output", metavar="FILE")
    add_option("--snapshot", "report on a snapshot instead of asking the service", metavar="DIR")
    add_option("--previous", "a snapshot to compare with: what is new since then", metavar="DIR")
    add_option("--retention", "how long the service keeps failures (7d)", default="7d")
    add_option("--title", "title of the report")
    what = "end with 4 when a group was never seen before, 5 when the rate is higher than before; repeatable"
    add_option("--fail-on", what, action="append", default=[], choices=("new", "worse"))
    add_option("--limit", "read at most N failures, for a first look", type=int, metavar="N")
    add_filters(commands.choices["report"])


def _report(given: argparse.Namespace) -> ExitStatus:
    chosen = filter_of(given)
    selects = given.limit is not None or not chosen.is_empty or given.kind != "workflows"
    if given.vectors:
        return _report_vectors(given, selects=selects)
    if given.snapshot is not None:
        if selects:
            raise InputError(
                "reporting on a snapshot",
                got="filters, a kind or a limit together with --snapshot",
                expected="the snapshot alone",
                next_step="Leave them out, or report from the service without --snapshot.",
            )
        failures, redactor = tk.read_snapshot(given.snapshot), None
    else:
        nothing = " So --fail-on has nothing to judge, and no report is written."
        judging = unknown_names_end(then=nothing) if given.fail_on else nullcontext()
        with tk.connect() as service, judging:
            failures = tk.load_failures(service, chosen, kind=given.kind, limit=given.limit)
            redactor = service.redactor
    previous = None if given.previous is None else tk.read_snapshot(given.previous)
    report = tk.failure_report(
        failures, previous, retention=given.retention, title=given.title, redactor=redactor
    )
    _save(report, given.output or ["failure-report.html"])
    if "receipt" in failures.attrs:
        status = status_of(tk.receipt(failures))
    else:  # a snapshot written from a frame that no loader made
        complain("no receipt: whether these are all failures is not known")
        status = ExitStatus.DONE
    return _judged(report.to_dict()["change"], given.fail_on) or status


def _report_vectors(given: argparse.Namespace, *, selects: bool) -> ExitStatus:
    if selects or given.fail_on:
        raise InputError(
            "reporting on a vector index",
            got="options for failures together with --vectors",
            expected="--snapshot, --previous, --title and --output alone",
            next_step="Leave them out.",
        )
    options = {"previous": given.previous, "title": given.title}
    loaded = None
    if given.snapshot is not None:
        report = tk.index_report(given.snapshot, **options)
    else:
        with tk.connect() as service:
            loaded = tk.load_vectors(service, namespace="all")
            report = tk.index_report(service, loaded, **options)
    _save(report, given.output or ["index-report.html"])
    return ExitStatus.DONE if loaded is None else status_of(tk.receipt(loaded))


def _save(report: Any, paths: Sequence[str]) -> None:
    saved = [report.save(path).resolve() for path in paths]  # all, before a reader of the output may leave
    for path in saved:
        say(f"wrote {path}")
    say(visible(report.verdict))


def _judged(change: Mapping[str, Any], fail_on: Sequence[str]) -> ExitStatus:
    """The exit status of what is new or worse; 0 where neither is, or nothing earlier is known."""
    facts = {"new": change["new_groups"], "worse": change["worse"]}
    for name in fail_on:
        if facts[name] is None:
            complain(f"--fail-on {name}: nothing earlier to compare with")

    def named(groups: Sequence[str]) -> str:
        return "; ".join(f"{change['titles'][group]} ({group})" for group in groups)

    status = ExitStatus.DONE
    if "new" in fail_on and facts["new"]:
        complain(visible(f"new since {change['since']}: {named(facts['new'])}"))
        status = ExitStatus.NEW
    if "worse" in fail_on and facts["worse"]:
        expected = "" if change["expected"] is None else f", usually {change['expected']:,.0f} in such a time"
        grown = f"; grown: {named(change['grown_groups'])}" if change["grown_groups"] else ""
        complain(visible(f"worse since {change['since']}: {change['failures']:,} failures{expected}{grown}"))
        status = status or ExitStatus.WORSE
    return status
